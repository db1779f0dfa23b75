"""Names of the files below a table's `_mem_wal` directory, built and matched strictly (MemWAL, section 1.1).

Numbers of manifests and log entries are written as 64 binary digits, least significant first, so that
consecutive ones do not stand together in a store that splits its load by prefix. Temporary files of other
writers (`<64 digits>.arrow.tmp.<hex>`) are no entries: a name counts only where it is exactly of the form.
"""

from __future__ import annotations

import re

from tiltyard import runtime
from tiltyard.errors import InvalidInput

ROOT = "_mem_wal"
MANIFEST_DIR = "manifest"
WAL_DIR = "wal"
HINT = "version_hint.json"
BLOOM_FILTER = "bloom_filter.bin"
PK_INDEX = "_pk_index"
PK_PAGES = f"{PK_INDEX}/page_data.lance"
PK_LOOKUP = f"{PK_INDEX}/page_lookup.lance"
MAX_NUMBER = 2**64 - 1

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)
_UUID_ANY_CASE = re.compile(
    r"([0-9a-f]{8})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{12})", re.ASCII | re.IGNORECASE
)
_MANIFEST = re.compile(r"([01]{64})\.binpb", re.ASCII)
_ENTRY = re.compile(r"([01]{64})\.arrow", re.ASCII)
_TEMPORARY = re.compile(r"\.tmp.*|[01]{64}\.(arrow|binpb)\.tmp\..*", re.ASCII | re.DOTALL)
_SSTABLE = re.compile(r"([0-9a-f]{8})_gen_([1-9][0-9]{0,19})", re.ASCII)


def digits(number: int) -> str:
    """The 64 binary digits of a number, least significant first."""
    return format(number, "064b")[::-1]


def number_of(text: str) -> int:
    """The number that 64 binary digits stand for."""
    return int(text[::-1], 2)


def parse_shard_id(text: object) -> str:
    """A shard's id in its one form: a UUID in lower case with hyphens. Raises `InvalidInput`."""
    found = _UUID_ANY_CASE.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise InvalidInput(
            f"Invalid shard_id UUID: a shard is named by a UUID such as {runtime.uuid4()}, found {text!r}"
        )
    return "-".join(found.groups()).lower()


def shard_ids(names: list[str]) -> list[str]:
    """Those names in `_mem_wal` that are shards."""
    return [name for name in names if _UUID.fullmatch(name)]


def shard_dir(shard: str) -> str:
    """A shard's directory, below the table's root."""
    return f"{ROOT}/{shard}"


def manifest_path(version: int) -> str:
    """The path of a version's manifest, below the shard's directory."""
    return f"{MANIFEST_DIR}/{digits(version)}.binpb"


def entry_path(position: int) -> str:
    """The path of a log entry, below the shard's directory."""
    return f"{WAL_DIR}/{digits(position)}.arrow"


def manifest_versions(names: list[str]) -> list[int]:
    """The versions among the names in `manifest/`, ascending."""
    return sorted(number_of(found[1]) for name in names if (found := _MANIFEST.fullmatch(name)))


def entry_positions(names: list[str]) -> list[int]:
    """The positions among the names in `wal/`, ascending."""
    return sorted(number_of(found[1]) for name in names if (found := _ENTRY.fullmatch(name)))


def sstable_name(generation: int) -> str:
    """A new name for the directory of an SSTable."""
    return f"{runtime.uuid4().hex[:8]}_gen_{generation}"


def sstable_generation(name: str) -> int | None:
    """The generation of an SSTable directory's name; None for every other name."""
    found = _SSTABLE.fullmatch(name)
    return None if found is None else int(found[2])


def is_temporary(name: str) -> bool:
    """Whether a name in `wal/` or `manifest/` is that of a file which a writer, ours or another program's,
    gives its real name when it is whole.
    """
    return _TEMPORARY.fullmatch(name) is not None
