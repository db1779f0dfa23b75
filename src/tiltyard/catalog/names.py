"""Ids, names and locations of a directory catalog (namespace pack, sections 1 and 2).

An id is a tuple of names, `()` is the root. It is stored as its *object id*: the names joined by `$`, without
any escape. A table's *location* is the path of its directory below the catalog's root. New names are held to
what every program finds again; what stands there already under another name still opens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

from tiltyard import runtime
from tiltyard.errors import InvalidInput, InvalidName, WrongType
from tiltyard.format.names import VERSIONS_DIR

if TYPE_CHECKING:
    from tiltyard.store import Store

Id = tuple[str, ...]
"""Names from the root down; `()` is the root namespace."""

SEPARATOR = "$"
SUFFIX = ".lance"
REGISTER = "__manifest"
"""Name of the directory in which the catalog's register is kept, as a table."""

UNSAFE = frozenset('"#%*/<>?[\\]^`{|}~')
"""Characters of ASCII under which pylance does not find again what it wrote (tried on 14.0.2)."""

MAX_NAME_LENGTH = 180
"""Characters of one name: with what a location puts around it, a file system's 255 bytes hold it."""

MAX_OBJECT_ID_LENGTH = 240
"""Characters of a whole id, joined: the directory of a table in a namespace is named after it."""

RIVALS_DIR = "_tiltyard/names"
"""Below the register: what creators of one name lock (`rivals`)."""

WAITING_DIR = "_tiltyard/waiting"
"""Below the register: what processes ask of the one whose turn it is (`waiting`)."""

PRIVATE_SEGMENTS = frozenset(
    (
        *(REGISTER, "_tiltyard", "_versions", "_transactions", "_deletions", "_indices", "_refs"),
        "_mem_wal",
    )
)
"""Directories in which catalogs and tables keep what is theirs."""

_HASH_BITS = 32
_URI_SAFE = "/!$&'()*+,;=:@-._"


def object_id(id: Sequence[str]) -> str:
    """The stored form of an id: its names joined by `$`."""
    return SEPARATOR.join(id)


def parts(object_id: str) -> Id:
    """The id of a stored form."""
    return tuple(object_id.split(SEPARATOR)) if object_id else ()


def checked_id(id: Sequence[str], what: str = "the id") -> Id:
    """An id as given by a caller: a sequence of text, such as `["ops", "flights"]`.

    Raises `WrongType`, `InvalidName`.
    """
    if isinstance(id, str) or not isinstance(id, Sequence) or not all(isinstance(part, str) for part in id):
        raise WrongType(f"{what} must be a list of names, such as ['ops', 'flights'], found {id!r}")
    for part in id:
        if any("\ud800" <= each <= "\udfff" for each in part):
            raise InvalidName(f"{what} has {part!r}, which holds half a character and cannot be stored")
    return tuple(id)


def shown(id: Sequence[str]) -> str:
    """An id in a message."""
    return repr(object_id(id)) if id else "the root namespace"


def check_new_name(name: str, what: str) -> None:
    """Raise `InvalidName` for a name that something new may not have; `what` it is for, as in "a table"."""
    if not isinstance(name, str):
        raise WrongType(f"the name of {what} must be text, found {name!r}")
    problem = _problem(name)
    if problem is not None:
        raise InvalidName(
            f"{name!r} cannot be the name of {what}: {problem}. Use letters and digits of ASCII, spaces "
            "inside, and any of _ - . + : ' & ! ( ) , ; = @"
        )


def check_new_id(id: Id, what: str) -> None:
    """`check_new_name` for the last name of an id, and that the whole is short enough for a directory's
    name.
    """
    check_new_name(id[-1] if id else "", what)
    length = len(object_id(id))
    if length > MAX_OBJECT_ID_LENGTH:
        raise InvalidName(
            f"the id {object_id(id)!r} has {length} characters, and at most {MAX_OBJECT_ID_LENGTH} fit the "
            f"name of a directory: use shorter names, or fewer namespaces inside each other, for {what}"
        )


def _problem(name: str) -> str | None:
    if not name:
        return "it is empty"
    if name.startswith("."):
        return "it begins with a dot, as hidden and temporary files do"
    if len(name) > MAX_NAME_LENGTH:
        return f"it has {len(name)} characters, and at most {MAX_NAME_LENGTH} are allowed"
    if name != name.strip():
        return "it begins or ends with a space"
    if SEPARATOR in name:
        return "'$' separates the names of an id"
    if not name.isascii():
        return "other characters than those of ASCII are not found again by every program"
    bad = next((char for char in name if char in UNSAFE), None)
    if bad is not None:
        return f"{bad!r} is not found again by every program"
    if not name.isprintable():
        return "it has a control character"
    if name.removesuffix(SUFFIX) == REGISTER:
        return "the catalog itself is kept under it"
    return None


# -- locations -----------------------------------------------------------------------------------


def root_location(name: str) -> str:
    """Where a root table is while directories are listed: everybody finds it by its name."""
    return name + SUFFIX


def hashed_location(id: Id) -> str:
    """A new location for a table of a namespace; never the same twice."""
    return f"{_hash()}_{object_id(id)}"


def dropped_location(name: str) -> str:
    """Where the directory of a dropped root table is moved to: no listing shows it there."""
    return f"{_hash()}_dropped_{name}"


def _hash() -> str:
    return f"{runtime.random().getrandbits(_HASH_BITS):08x}"


def resolve(location: str) -> str:
    """The path below the root that a stored location stands for: segments joined, empty ones dropped.

    An absolute path or a URI is not honoured, it lies below the root as well. Raises `InvalidInput` for `..`
    and `.` segments, and where nothing is left.
    """
    segments = [segment for segment in location.split("/") if segment]
    if not segments or ".." in segments or "." in segments or "\0" in location:
        raise InvalidInput(f"{location!r} is not the path of a directory below the catalog's root")
    return "/".join(segments)


def is_place(location: str) -> bool:
    """Whether a location can be that of a table: a path as it is on disk, and no part of the catalog."""
    try:
        location.encode()
        return resolve(location) == location and not is_private(location)
    except (InvalidInput, UnicodeEncodeError):
        return False


def is_inside(place: str, other: str) -> bool:
    """Whether a place below the root lies in another one, or is it."""
    return place == other or place.startswith(other + "/")


def inside_table(store: Store, place: str) -> str | None:
    """The directory of a table that a place lies in; None where there is none."""
    segments = place.split("/")
    for at in range(1, len(segments)):
        above = "/".join(segments[:at])
        if store.list_names(f"{above}/{VERSIONS_DIR}"):
            return above
    return None


def is_private(place: str) -> bool:
    """Whether a place below the root is a part of the catalog or of a table, and so no table's own."""
    return not PRIVATE_SEGMENTS.isdisjoint(place.split("/"))


def location_uri(root_uri: str, location: str) -> str:
    """The URI of a location, as the catalog's answers give it: a scheme, and other characters than those of
    paths percent-encoded. A query behind the root's URI is left out.
    """
    path = resolve(location)
    scheme, separator, rest = root_uri.partition("://")
    if not separator:
        return "file://" + quote(f"{root_uri.rstrip('/')}/{path}", safe=_URI_SAFE)
    rest = rest.partition("?")[0].rstrip("/")
    return f"{scheme}://{rest}/{quote(path, safe=_URI_SAFE)}"
