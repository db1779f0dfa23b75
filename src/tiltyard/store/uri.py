"""From a location to a store: plain paths, `file://` and `memory://`; everything else is refused by name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from tiltyard import runtime
from tiltyard.errors import InvalidInput, InvalidUri, UnsupportedFeature
from tiltyard.store.local import LocalStore
from tiltyard.store.memory import MemoryStore, memory_space
from tiltyard.store.paths import checked_dir
from tiltyard.store.protocol import Store

DURABLE_VARIABLE = "TILTYARD_DURABLE"  # environment; 0 turns every fsync off, whatever the options say
OPTIONS = ("durable", "map")

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_OBJECT_STORES = (
    *("s3", "s3a", "s3n", "s3+ddb", "gs", "gcs", "az", "azure", "abfs", "abfss", "adl", "wasb", "wasbs"),
    *("http", "https", "hf", "oss", "cos", "tos", "r2", "goosefs"),
)
_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")


def open_store(uri: str | os.PathLike[str], options: Mapping[str, Any] | None = None) -> Store:
    """The store at a location, which need not exist yet.

    `uri`: a path (`~` and relative ones too), `file:///path`, `memory://name[/path]`, or `memory://` for a
    new space. Options: `durable` (default True): whether writes are forced to the medium; `map` (default
    True): whether large local files are mapped into memory rather than read. Raises
    InvalidUri, UnsupportedFeature for schemes that this version does not serve, InvalidInput for options.
    """
    durable, mapped = _options(options or {})
    location = os.fspath(uri)
    if not isinstance(location, str):
        raise InvalidUri(f"a location must be text or a path, not {type(uri).__name__}")
    if not location or "\0" in location:
        raise InvalidUri(f"{location!r} is not a location: expected a path, file:///path or memory://name")
    scheme = _SCHEME.match(location)
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
            return store.at(checked_dir(unquote(prefix.rstrip("/"))))
        case name if name in _OBJECT_STORES:
            raise UnsupportedFeature(
                f"{location}: object stores ({name}://) are not served by this version; use a local path"
            )
        case name:
            raise InvalidUri(
                f"{location}: no store is known for {name}://; expected a path, file:///path or memory://name"
            )


def object_key(store: Store, path: str) -> str:
    """The key of an object of the store as catalogs exchange it: without scheme, bucket and leading slash."""
    uri = store.uri.rstrip("/")
    scheme = _SCHEME.match(uri)
    if scheme is not None:
        uri = uri[scheme.end() :].partition("/")[2]
    return f"{uri}/{path}".strip("/")


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
    return runtime.current().port.user_path("/" + unquote(path))


def _options(options: Mapping[str, Any]) -> tuple[bool, bool]:
    for name in options:
        if name not in OPTIONS:
            raise InvalidInput(f"unknown storage option {name!r}; {_nearest(str(name))}")
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
