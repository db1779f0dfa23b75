"""`tiltyard serve ROOT`: a catalog over HTTP, for the official clients and ours."""

from __future__ import annotations

import argparse
import secrets
import sys
from pathlib import Path

from tiltyard.cli.arguments import positive_number, whole_number

SECRET_BYTES = 32
MAX_PORT = 65535


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Serve the catalog below ROOT by the Lance REST namespace specification, for pylance, lancedb and "
        "tiltyard (ty.connect('http://...')). Without keys only programs on this machine are served. Ends "
        "with Ctrl-C or SIGTERM, after the requests at work."
    )
    parser.add_argument("uri", metavar="ROOT", nargs="?", help="directory or URI of the lake")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (default: %(default)s)")
    parser.add_argument(
        "--port", type=_port, default=2333, help="port; 0 takes a free one (default: %(default)s)"
    )
    parser.add_argument("--auth", metavar="FILE", help="TOML file of keys and roles, see docs/server.md")
    parser.add_argument(
        "--anonymous", action="store_true", help="no keys, though other machines can reach the host"
    )
    parser.add_argument("--tls-cert", metavar="FILE", help="PEM file of the certificate and its chain")
    parser.add_argument("--tls-key", metavar="FILE", help="PEM file of its private key")
    parser.add_argument(
        "--property",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a setting of the catalog, such as storage.region=eu-west-1; may be given several times",
    )
    parser.add_argument(
        "--max-upload-mib", metavar="N", type=positive_number, help="of an Arrow stream (default: 4096)"
    )
    parser.add_argument(
        "--max-rows", metavar="N", type=positive_number, help="of the answer of a query (default: 10000000)"
    )
    parser.add_argument(
        "--threads", metavar="N", type=positive_number, help="requests at work at once (default: 16)"
    )
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=positive_number, help="for one request (default: 300)"
    )
    parser.add_argument(
        "--workers", metavar="N", type=positive_number, default=1, help="processes (default: 1)"
    )
    parser.add_argument("--inherited", metavar="FD", type=whole_number, help=argparse.SUPPRESS)
    parser.add_argument("--quiet", action="store_true", help="no access log on standard error")
    parser.add_argument(
        "--new-key",
        metavar="NAME",
        help="print a new secret and its table for the file of --auth, and end; ROOT is not needed",
    )
    parser.add_argument("--role", choices=("read", "write", "admin"), help="of --new-key (default: read)")


def _port(text: str) -> int:
    number = whole_number(text)
    if number > MAX_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, 0 to {MAX_PORT}")
    return number


def run(arguments: argparse.Namespace) -> int:
    if arguments.new_key is not None:
        return _new_key(arguments.new_key, arguments.role or "read")
    import logging
    from dataclasses import replace

    from tiltyard.catalog.plugin import DirectoryNamespace
    from tiltyard.errors import InvalidInput
    from tiltyard.server.limits import MIB, Limits
    from tiltyard.server.run import BACKLOG, Place, access_of, application, serve

    if not arguments.uri:
        raise InvalidInput("serve needs ROOT, the directory or URI of the lake")
    if Path(arguments.uri).is_file():
        raise InvalidInput(f"{arguments.uri} is a file: ROOT is the directory, or the URI, of the lake")
    if arguments.role is not None:
        raise InvalidInput("--role is of --new-key; the roles of a server stand in the file of --auth")
    if (arguments.tls_cert is None) != (arguments.tls_key is None):
        raise InvalidInput("--tls-cert and --tls-key are given together")
    access = access_of(_text_of(arguments.auth), arguments.host, arguments.anonymous)
    limits = Limits()
    given = {
        "upload_bytes": arguments.max_upload_mib and arguments.max_upload_mib * MIB,
        "rows": arguments.max_rows,
        "threads": arguments.threads,
        "seconds": arguments.timeout,
    }
    limits = replace(limits, **{name: value for name, value in given.items() if value is not None})
    namespace = DirectoryNamespace(root=arguments.uri, **_properties(arguments.property))
    namespace.list_namespaces({"id": [], "limit": 1})  # a root that cannot be read is told now
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.WARNING if arguments.quiet else logging.INFO,
        format="%(asctime)s %(name)s %(message)s",
    )
    place = Place(arguments.host, arguments.port, arguments.tls_cert, arguments.tls_key)

    def started(port: int) -> None:
        who = "without keys" if access.is_open else "with keys"
        print(f"{arguments.uri} is served at {place.uri(port)} ({who}); Ctrl-C ends", flush=True)

    if arguments.inherited is not None:
        from tiltyard.cli.serve_workers import READY, inherited

        app, listening = application(namespace, access, limits), inherited(arguments.inherited)
        serve(app, place, limits, lambda port: print(READY, flush=True), listening)
    elif arguments.workers > 1:
        from tiltyard.cli.serve_workers import Workers, bound

        with bound(place.host, place.port, BACKLOG) as listening:
            port = listening.getsockname()[1]
            Workers(arguments.workers, _words_of(arguments), listening).watch(lambda: started(port))
    else:
        serve(application(namespace, access, limits), place, limits, started)
    return 0


FOR_WORKERS = (
    "host",
    "auth",
    "tls_cert",
    "tls_key",
    "max_upload_mib",
    "max_rows",
    "threads",
    "timeout",
)
"""Options with a value that workers get as they were given."""


def _words_of(arguments: argparse.Namespace) -> list[str]:
    """The command line of a worker."""
    words = [arguments.uri]
    for name in FOR_WORKERS:
        if (value := getattr(arguments, name)) is not None:
            words += ["--" + name.replace("_", "-"), str(value)]
    words += [word for each in arguments.property for word in ("--property", each)]
    words += ["--anonymous"] if arguments.anonymous else []
    return [*words, "--quiet"] if arguments.quiet else words


def _text_of(file: str | None) -> tuple[str, str] | None:
    if file is None:
        return None
    from tiltyard.errors import InvalidInput

    try:
        return file, Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise InvalidInput(f"the file of keys {file} cannot be read: {error}") from error


def _properties(given: list[str]) -> dict[str, str]:
    from tiltyard.catalog.settings import STORAGE
    from tiltyard.errors import InvalidInput
    from tiltyard.lake.properties import check_properties

    found: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name or name == "root":
            raise InvalidInput(f"--property is NAME=VALUE, and the root is ROOT; found {each!r}")
        found[name] = value
    check_properties({name: value for name, value in found.items() if not name.startswith(STORAGE)})
    return found


def _new_key(name: str, role: str) -> int:
    from tiltyard.server.access import hash_of, parsed

    secret = secrets.token_urlsafe(SECRET_BYTES)
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    entry = f'[[keys]]\nname = "{quoted}"\nsha256 = "{hash_of(secret)}"\nrole = "{role}"\n'
    parsed(entry, "--new-key")
    print(f"# the secret, which is told only now: {secret}", file=sys.stderr)
    print(entry, end="")
    return 0
