"""From a location to a store: paths, `file://`, `memory://`, object stores; the rest is refused by name.

What follows the scheme of an object store's URI is percent-decoded, as the official package does; `?` and `#`
have to be encoded, for there they would cut the location short.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from tiltyard import runtime
from tiltyard.errors import InvalidInput, InvalidUri, UnsupportedFeature
from tiltyard.store.local import LocalStore
from tiltyard.store.memory import MemoryStore, memory_space
from tiltyard.store.paths import checked_dir
from tiltyard.store.protocol import Store

if TYPE_CHECKING:
    from tiltyard.store.remote.options import Service

DURABLE_VARIABLE = "TILTYARD_DURABLE"  # environment; 0 turns every fsync off, whatever the options say
OPTIONS = ("durable", "map")

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_SERVED = ("s3", "s3a", "s3n", "gs", "gcs", "az", "azure", "abfs", "abfss", "adl", "http", "https")
_NOT_SERVED = ("s3+ddb", "wasb", "wasbs", "hf", "oss", "cos", "tos", "r2", "goosefs")
_OBJECT_STORES = (*_SERVED, *_NOT_SERVED)
_INSTEAD = {
    "s3+ddb": "S3 itself keeps versions apart by now: write s3://; what else writes the table must do so too",
    "r2": "write s3:// with the endpoint of R2",
    "wasb": "write abfss://",
    "wasbs": "write abfss://",
}
_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")


def open_store(uri: str | os.PathLike[str], options: Mapping[str, Any] | None = None) -> Store:
    """The store at a location, which need not exist yet.

    `uri`: a path (`~` and relative ones too), `file:///path`, `memory://name[/path]`, `memory://` for a new
    space, or `s3://bucket/path`, `gs://`, `az://`, `abfss://`, `https://`. Options of local stores: `durable`
    (default True): whether writes are forced to the medium; `map` (default True): whether large local files
    are mapped into memory rather than read; of object stores: `store.remote.options`. Raises
    InvalidUri, UnsupportedFeature for schemes that this version does not serve, InvalidInput for options.
    """
    location = os.fspath(uri)
    if not isinstance(location, str):
        raise InvalidUri(f"a location must be text or a path, not {type(uri).__name__}")
    if not location or "\0" in location:
        raise InvalidUri(f"{location!r} is not a location: expected a path, file:///path or s3://bucket/path")
    scheme = _SCHEME.match(location)
    if scheme is not None and scheme.group(1).lower() in _SERVED:
        return _remote(location, scheme.group(1).lower(), location[scheme.end() :], options or {})
    durable, mapped = _options(options or {})
    if scheme is None:
        _refuse_half_scheme(location)
        return LocalStore(runtime.current().port.user_path(location), durable=durable, mapped=mapped)
    rest = location[scheme.end() :]
    match scheme.group(1).lower():
        case "file" | "file-object-store":
            return LocalStore(_file_path(location, rest), durable=durable, mapped=mapped)
        case "memory":
            name, _, prefix = rest.partition("/")
            store = MemoryStore(memory_space(unquote(name)))
            return store.at(checked_dir(_decoded(location, prefix.rstrip("/"))))
        case name if name in _NOT_SERVED:
            instead = _INSTEAD.get(name, "copy the table to a local path, S3, Google Cloud Storage or Azure")
            raise UnsupportedFeature(f"{location}: {name}:// is not served by this version; {instead}")
        case name:
            raise InvalidUri(
                f"{location}: no store is known for {name}://; expected a path, file:///path, "
                "s3://bucket/path or memory://name"
            )


def options_for(uri: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of some options that the store at a location knows: of what others hand out for many kinds."""
    scheme = _kind(uri)
    if scheme not in _SERVED:
        return {name: value for name, value in options.items() if name in OPTIONS}
    from tiltyard.store.remote.options import known_names, plain_name

    known = set(known_names(_service(scheme)))
    return {name: value for name, value in options.items() if plain_name(name) in known}


def _service(scheme: str) -> Service:
    from tiltyard.store.remote.options import Service

    if scheme in ("http", "https"):
        return Service.HTTP
    if scheme.startswith("s3"):
        return Service.S3
    return Service.GCS if scheme in ("gs", "gcs") else Service.AZURE


def _remote(location: str, scheme: str, rest: str, options: Mapping[str, Any]) -> Store:
    """The store of an object store's URI; nothing is asked of the service yet."""
    from tiltyard.store.remote.client import client_of
    from tiltyard.store.remote.options import Service, from_environment, parse_options, without
    from tiltyard.store.remote.store import RemoteStore

    for sign in "?#":
        if sign in rest:
            raise InvalidUri(
                f"{location.partition(sign)[0]!r} is followed by {sign!r}, which would cut the location "
                f"short; write %{ord(sign):02X} if it belongs to a name. Credentials are given by options"
            )
    host, _, path = rest.partition("/")
    if "@" in host and _service(scheme) is not Service.AZURE:
        raise InvalidUri(
            f"a location has no user: write {scheme}://{host.rpartition('@')[2]}/... and give credentials by "
            "options"
        )
    given, service, bucket = dict(options), _service(scheme), host
    if service is Service.HTTP:
        bucket, path = f"{scheme}://{rest.rstrip('/')}", ""
        if scheme == "http":
            given.setdefault("allow_http", "true")
    elif service is Service.AZURE:
        bucket, _, account = host.partition("@")
        if account:  # which an option does not change: it may be meant for another location (`open_other`)
            given = without(service, given, "account_name", "use_fabric_endpoint")
            given["account_name"] = account.partition(".")[0]
            given["use_fabric_endpoint"] = str(".fabric." in account)
    if not host or not bucket:
        raise InvalidUri(f"{location!r} names no {'server' if service is Service.HTTP else 'bucket'}")
    prefix = checked_dir(_decoded(location, path.rstrip("/")))
    given = from_environment(service, given, os.environ)
    client = client_of(service, bucket, parse_options(service, given))
    shown = bucket if service is Service.HTTP else f"{scheme}://{host}"
    return RemoteStore(client, shown).at(prefix)


def _decoded(location: str, path: str) -> str:
    """A path without its % signs. Raises InvalidUri for bytes that are no text: all would be one name."""
    try:
        return unquote(path, errors="strict")
    except UnicodeDecodeError as error:
        raise InvalidUri(
            f"{location!r}: the bytes that its % signs write are not UTF-8 ({error.reason}); for a % in a "
            "name write %25"
        ) from error


def object_key(store: Store, path: str) -> str:
    """The key of an object of the store as catalogs exchange it: without scheme, bucket and leading slash."""
    uri = store.uri.rstrip("/")
    scheme = _SCHEME.match(uri)
    if scheme is not None:
        uri = uri[scheme.end() :].partition("/")[2]
        if scheme.group(1).lower() in _OBJECT_STORES:
            uri = unquote(uri)
    return f"{uri}/{path}".strip("/")


def open_other(store: Store, uri: str) -> Store:
    """The store at another location, with the options of one that is open where they are for its kind."""
    options: Mapping[str, Any] = getattr(store, "storage_options", {})
    return open_store(uri, options if _kind(store.uri) == _kind(uri) else None)


def _kind(uri: str) -> str:
    scheme = _SCHEME.match(uri)
    return "file" if scheme is None else scheme.group(1).lower()


def _refuse_half_scheme(location: str) -> None:
    """`memory:` or `file:x` is a slip of the pen more often than a directory of that name."""
    word = location.partition(":")[0] if ":" in location else ""
    if word.lower() in ("memory", "file", *_OBJECT_STORES):
        raise InvalidUri(
            f"{location!r} is not a location: after {word}: two slashes are missing, as in {word}://...; a "
            f"directory of this name is ./{location}"
        )


def _file_path(location: str, rest: str) -> str:
    host, slash, path = rest.partition("/")
    if host not in ("", "localhost") or not slash:
        raise InvalidUri(f"{location}: a file location has no host; write file:///{rest}")
    return runtime.current().port.user_path("/" + _decoded(location, path))


def _options(options: Mapping[str, Any]) -> tuple[bool, bool]:
    for name in options:
        if name not in OPTIONS:
            raise InvalidInput(f"unknown storage option {name!r} of a local store; {_nearest(str(name))}")
    durable = _truth("the storage option 'durable'", options.get("durable", True))
    mapped = _truth("the storage option 'map'", options.get("map", True))
    return _truth(DURABLE_VARIABLE, os.environ.get(DURABLE_VARIABLE) or "1") and durable, mapped


def _truth(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word not in _TRUE and word not in _FALSE:
        raise InvalidInput(f"{name} must be true or false, not {value!r}")
    return word in _TRUE


def _nearest(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name.lower(), OPTIONS, 1, 0.5)
    return f"did you mean {near[0]!r}?" if near else f"a local store knows: {', '.join(OPTIONS)}"
