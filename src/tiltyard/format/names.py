"""Names of files and folders in a table's directory, built and matched strictly (table format, sections 1 to
4).

Other programs leave temporary files where ours stand: a name that is not exactly of a known form is nobody's
(O12).
"""

from __future__ import annotations

import re
from typing import Literal

from tiltyard import runtime
from tiltyard.errors import InvalidInput

DATA_DIR = "data"
VERSIONS_DIR = "_versions"
TRANSACTIONS_DIR = "_transactions"
DELETIONS_DIR = "_deletions"
INDICES_DIR = "_indices"
TAGS_DIR = "_refs/tags"
BRANCHES_DIR = "_refs/branches"
TREE_DIR = "tree"
PRIVATE_DIR = "_tiltyard"
"""State of our own below a table's root (D3): other writers keep what they do not know."""
HINT_PATH = "_versions/latest_version_hint.json"
TEMPORARY = ".tmp"
"""What names of unfinished files begin with: other writers ignore them and collect them after 7 days (D3)."""

Naming = Literal["V1", "V2", "detached"]
NAMINGS: tuple[Naming, ...] = ("V2", "V1")
"""Schemes of versions that follow each other, in the order in which to probe."""
MAX_U64 = 2**64 - 1
DETACHED_BIT = 2**63
_V2_DIGITS = 20
_SUFFIX = ".manifest"
_BINARY_BYTES = 3
"""Leading bytes of a data file's id that are written as binary digits."""

_NUMBERED = re.compile(r"(0|[1-9][0-9]{0,19})\.manifest", re.ASCII)
_DETACHED = re.compile(r"d([1-9][0-9]{0,19})\.manifest", re.ASCII)
_HINT_BODY = re.compile(rb'\s*\{\s*"version"\s*:\s*([0-9]{1,20})\s*\}\s*')
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_TRANSACTION = re.compile(rf"(0|[1-9][0-9]{{0,19}})-({_UUID})\.txn", re.ASCII)
_DELETION = re.compile(r"([0-9]{1,10})-([0-9]{1,20})-([0-9]{1,20})\.(arrow|bin)", re.ASCII)
_DATA_FILE = re.compile(r"[01]{24}[0-9a-f]{26}\.lance", re.ASCII)
_TAG = re.compile(r"[0-9A-Za-z._-]+", re.ASCII)
_BRANCH_PART = re.compile(r"[\w.-]+")
_INDEX_DIRECTORY = re.compile(_UUID, re.ASCII)
_OLD_DATA_FILE = re.compile(rf"{_UUID}\.lance", re.ASCII)
_SIDECAR = re.compile(r"data/([^/]+)/[01]{32}\.blob", re.ASCII)
_STAGED = re.compile(rf"([^/]*\.manifest)[-.]({_UUID}|[0-9a-f]{{32}})", re.ASCII)


def manifest_name(version: int, naming: Naming = "V2") -> str:
    """The file name of a version's manifest in `_versions/`."""
    if naming == "V2":
        return f"{MAX_U64 - version:020d}{_SUFFIX}"
    return f"{'d' if naming == 'detached' else ''}{version}{_SUFFIX}"


def manifest_path(version: int, naming: Naming = "V2") -> str:
    """The path of a version's manifest below the table's root."""
    return f"{VERSIONS_DIR}/{manifest_name(version, naming)}"


def parse_manifest_name(name: str) -> tuple[int, Naming] | None:
    """Version and naming scheme of a file name in `_versions/`; `None` for every other name."""
    if len(name) == _V2_DIGITS + len(_SUFFIX) and name.endswith(_SUFFIX) and name[0] != "d":
        digits = name[:_V2_DIGITS]
        if not digits.isascii() or not digits.isdigit():
            return None
        version = MAX_U64 - int(digits)
        return (version, "V2") if 0 < version < DETACHED_BIT else None
    found = _NUMBERED.fullmatch(name)
    if found:
        version = int(found[1])
        return (version, "V1") if 0 < version < DETACHED_BIT else None
    found = _DETACHED.fullmatch(name)
    if found and DETACHED_BIT <= int(found[1]) <= MAX_U64:
        return int(found[1]), "detached"
    return None


def hint_body(version: int) -> bytes:
    """The bytes of the hint file."""
    return b'{"version":%d}' % version


def parse_hint(body: bytes) -> int | None:
    """The version that a hint file names; `None` when it is not of the known form."""
    found = _HINT_BODY.fullmatch(body)
    version = int(found[1]) if found else 0
    return version if 0 < version < DETACHED_BIT else None


def data_file_name(id: bytes) -> str:
    """The name of a data file from the 16 bytes of a random UUID."""
    if len(id) != 16:
        raise ValueError(f"a data file's id has 16 bytes, got {len(id)}")
    digits = int.from_bytes(id[:_BINARY_BYTES], "big")
    return f"{digits:024b}{id[_BINARY_BYTES:].hex()}.lance"


def new_data_file_name() -> str:
    """A name for a new data file; never the same twice."""
    return data_file_name(runtime.uuid4().bytes)


def is_data_file_name(name: str) -> bool:
    """Whether a name in `data/` is one that the usual writers give to data files."""
    return _DATA_FILE.fullmatch(name) is not None


def is_written_data_file(name: str) -> bool:
    """Whether a writer of data files, of now or of long ago, gives such names; nobody else does."""
    return is_data_file_name(name) or _OLD_DATA_FILE.fullmatch(name) is not None


def sidecar_owner(path: str) -> str | None:
    """The path of the data file that a blob file, given by its path, belongs to; `None` for every other
    path.
    """
    found = _SIDECAR.fullmatch(path)
    return f"data/{found[1]}.lance" if found else None


def sidecar_path(data_file: str, blob_id: int) -> str:
    """The path of the file of blobs of a number (32 bits, from 1) beside a data file, given by its path."""
    return f"{data_file.removesuffix('.lance')}/{f'{blob_id:032b}'[::-1]}.blob"


def parse_staged_manifest(name: str) -> int | None:
    """The version that a manifest was staged for under this name in `_versions/`, waiting to be published
    (decision D5); `None` for every other name.
    """
    found = _STAGED.fullmatch(name)
    parsed = parse_manifest_name(found[1]) if found else None
    return None if parsed is None or parsed[1] == "detached" else parsed[0]


def data_path(name: str) -> str:
    """The path of a data file below the table's root."""
    return f"{DATA_DIR}/{name}"


def transaction_name(read_version: int, uuid: str) -> str:
    """The name of a transaction's file in `_transactions/`."""
    return f"{read_version}-{uuid}.txn"


def transaction_path(name: str) -> str:
    """The path of a transaction's file below the table's root."""
    return f"{TRANSACTIONS_DIR}/{name}"


def parse_transaction_name(name: str) -> tuple[int, str] | None:
    """Read version and uuid of a name in `_transactions/`; `None` for every other name."""
    found = _TRANSACTION.fullmatch(name)
    return (int(found[1]), found[2]) if found else None


def parse_deletion_name(name: str) -> tuple[int, int, int, str] | None:
    """Fragment id, read version, id and kind of a name in `_deletions/`; `None` for every other name."""
    found = _DELETION.fullmatch(name)
    return (int(found[1]), int(found[2]), int(found[3]), found[4]) if found else None


def index_directory(uuid: str) -> str:
    """The directory of an index segment below the table's root."""
    return f"{INDICES_DIR}/{uuid}"


def is_index_directory(name: str) -> bool:
    """Whether a name in `_indices/` is that of a segment."""
    return _INDEX_DIRECTORY.fullmatch(name) is not None


def is_temporary(name: str) -> bool:
    """Whether a name is that of an unfinished file."""
    return name.startswith(TEMPORARY)


# -- tags and branches ---------------------------------------------------------------------------


def is_tag_name(name: str) -> bool:
    """Whether a tag may have this name: letters and digits of ASCII, `.`, `-`, `_`, not like a path."""
    return (
        _TAG.fullmatch(name) is not None
        and ".." not in name
        and not name.startswith(".")
        and not name.endswith((".", ".lock"))
    )


def tag_path(name: str) -> str:
    """The path of a tag's file below the root. Raises `InvalidInput` for a name that no tag may have."""
    if not is_tag_name(name):
        raise InvalidInput(f"{name!r} cannot be the name of a tag: use letters, digits, '.', '-', '_'")
    return f"{TAGS_DIR}/{name}.json"


def parse_tag_name(file_name: str) -> str | None:
    """The tag whose file in `_refs/tags/` has this name; `None` for every other name."""
    name = file_name.removesuffix(".json")
    return name if name != file_name and is_tag_name(name) else None


def is_branch_name(name: str) -> bool:
    """Whether a branch may have this name: parts of letters, digits, `.`, `-`, `_`, separated by `/`; not
    `main`.
    """
    return (
        name != "main"
        and ".." not in name
        and not name.endswith(".lock")
        and all(_BRANCH_PART.fullmatch(part) is not None for part in name.split("/"))
    )


def branch_path(name: str) -> str:
    """The directory of a branch's own versions and files below the table's root. Raises `InvalidInput`."""
    if not is_branch_name(name):
        raise InvalidInput(
            f"{name!r} cannot be the name of a branch: use letters, digits, '.', '-', '_', '/'"
        )
    return f"{TREE_DIR}/{name}"


def branch_file_path(name: str) -> str:
    """The path of a branch's file below the table's root. Raises `InvalidInput`."""
    from urllib.parse import quote

    branch_path(name)
    return f"{BRANCHES_DIR}/{quote(name, safe='')}.json"


def parse_branch_file_name(file_name: str) -> str | None:
    """The branch whose file in `_refs/branches/` has this name; `None` for every other name."""
    from urllib.parse import unquote

    text = file_name.removesuffix(".json")
    name = unquote(text)
    return name if text != file_name and is_branch_name(name) else None
