"""Feature flags: two words of a manifest that say what a reader and a writer must know (table format, section
8).

`check_readable` and `check_writable` refuse by name what this version does not know; `recompute` derives the
words of a new manifest from its content.
"""

from __future__ import annotations

from tiltyard.errors import CorruptFile, UnsupportedFeature
from tiltyard.format.index_metadata import FRAGMENT_REUSE
from tiltyard.format.manifest import Manifest

DELETION_FILES = 1 << 0
STABLE_ROW_IDS = 1 << 1
V2_FORMAT = 1 << 2
TABLE_CONFIG = 1 << 3
BASE_PATHS = 1 << 4
NO_TRANSACTION_FILES = 1 << 5
DATA_OVERLAYS = 1 << 6
COVERING_INDICES = 1 << 7
MIXED_FILE_VERSIONS = 1 << 8
FRAGMENT_REUSE_WITH_ROW_IDS = 1 << 9
TAGGED_FRAGMENT_REUSE = 1 << 10
SPILLED_ROW_LINEAGE = 1 << 11
MANAGED_BLOBS = 1 << 14
UNIQUE_FIELD_IDS = 1 << 15
ZONE_WRITE_SEED = 1 << 16

NAMES = {
    DELETION_FILES: "deletion files",
    STABLE_ROW_IDS: "stable row ids",
    V2_FORMAT: "v2 format",
    TABLE_CONFIG: "table config",
    BASE_PATHS: "base paths",
    NO_TRANSACTION_FILES: "no transaction files",
    DATA_OVERLAYS: "data overlay files",
    COVERING_INDICES: "covering indices",
    MIXED_FILE_VERSIONS: "mixed data file versions",
    FRAGMENT_REUSE_WITH_ROW_IDS: "fragment reuse with stable row ids",
    TAGGED_FRAGMENT_REUSE: "tagged fragment reuse",
    SPILLED_ROW_LINEAGE: "spilled row lineage",
    MANAGED_BLOBS: "managed blobs",
    UNIQUE_FIELD_IDS: "field ids that are never reused",
    ZONE_WRITE_SEED: "zone write seed",
}

PAIRED = MIXED_FILE_VERSIONS | TAGGED_FRAGMENT_REUSE | MANAGED_BLOBS | ZONE_WRITE_SEED
"""Flags that both words must agree on."""
STICKY = MIXED_FILE_VERSIONS | MANAGED_BLOBS
"""Flags that a table never loses."""

READABLE = (
    DELETION_FILES
    | STABLE_ROW_IDS
    | V2_FORMAT
    | TABLE_CONFIG
    | BASE_PATHS
    | NO_TRANSACTION_FILES
    | COVERING_INDICES
    | MIXED_FILE_VERSIONS
    | SPILLED_ROW_LINEAGE
)
WRITABLE = READABLE | UNIQUE_FIELD_IDS


def describe(flags: int) -> str:
    """The names of the flags set in a word."""
    bits = [bit for bit in range(flags.bit_length()) if flags >> bit & 1]
    return ", ".join(f"{NAMES.get(1 << bit, 'unknown')} (bit {bit})" for bit in bits)


def check_readable(reader_flags: int, writer_flags: int, path: str) -> None:
    """Refuse to open a version that needs features which we do not know.

    Raises `UnsupportedFeature` naming them, `CorruptFile` when the two words contradict each other.
    """
    unpaired = (reader_flags ^ writer_flags) & PAIRED
    if unpaired:
        raise CorruptFile(
            f"only one of the reader and writer words has the flag {describe(unpaired)}: "
            "its meaning is undefined",
            path,
        )
    unknown = reader_flags & ~READABLE
    if unknown:
        raise UnsupportedFeature(
            f"{path}: reading this version needs features that tiltyard does not have: {describe(unknown)}; "
            "open it with a newer version of tiltyard or with the program that wrote it"
        )


def check_writable(writer_flags: int, path: str) -> None:
    """Refuse to commit on top of a version whose writer flags we do not know. Raises `UnsupportedFeature`."""
    unknown = writer_flags & ~WRITABLE
    if unknown:
        raise UnsupportedFeature(
            f"{path}: writing to this table needs features that tiltyard does not have: {describe(unknown)}; "
            "it can be read; write with a newer version of tiltyard or with the program that wrote it"
        )


def check_manifest(manifest: Manifest, path: str) -> None:
    """`check_readable`, and that the content keeps what the flags promise."""
    check_readable(manifest.reader_flags, manifest.writer_flags, path)
    promised = bool(manifest.writer_flags & UNIQUE_FIELD_IDS)
    if promised != (manifest.max_allocated_field_id is not None):
        raise CorruptFile(
            f"the flag {describe(UNIQUE_FIELD_IDS)} and the highest field id ever used must stand together",
            path,
        )
    if manifest.reader_flags & STABLE_ROW_IDS and not manifest.fragments.all_have_row_ids:
        raise CorruptFile("the table has stable row ids, but not every fragment carries them", path)


def uses_stable_row_ids(manifest: Manifest) -> bool:
    """Whether the table has stable row ids."""
    return bool(manifest.reader_flags & STABLE_ROW_IDS)


def recompute(
    manifest: Manifest,
    *,
    inherited: tuple[int, int] = (0, 0),
    stable_row_ids: bool | None = None,
    mixed_versions: bool = False,
    no_transaction_files: bool | None = None,
) -> tuple[int, int]:
    """Reader and writer word of a new manifest, from its content.

    `inherited` are the words of the manifest before it (on restore: of the current one); `stable_row_ids` and
    `no_transaction_files` are kept from them when `None`; `mixed_versions`: the commit adds a data file of
    another version than the table's default.
    """
    if stable_row_ids is None:
        stable_row_ids = bool(inherited[0] & STABLE_ROW_IDS)
    if no_transaction_files is None:
        no_transaction_files = bool(inherited[1] & NO_TRANSACTION_FILES)
    both = inherited[0] & inherited[1] & STICKY
    fragments = manifest.fragments
    for flag, applies in (
        (DELETION_FILES, fragments.any_deletions),
        (STABLE_ROW_IDS, stable_row_ids),
        (BASE_PATHS, bool(manifest.base_paths)),
        (DATA_OVERLAYS, fragments.any_overlays),
        (COVERING_INDICES, any(each.covering_fields for each in manifest.indices)),
        (MIXED_FILE_VERSIONS, mixed_versions),
        (TAGGED_FRAGMENT_REUSE, _has_tagged_reuse(manifest)),
        (SPILLED_ROW_LINEAGE, fragments.any_spilled),
    ):
        both |= flag if applies else 0
    writer = both
    for flag, applies in (
        (TABLE_CONFIG, bool(manifest.config)),
        (NO_TRANSACTION_FILES, no_transaction_files),
        (UNIQUE_FIELD_IDS, manifest.max_allocated_field_id is not None),
    ):
        writer |= flag if applies else 0
    return both, writer


def _has_tagged_reuse(manifest: Manifest) -> bool:
    return any(each.name == FRAGMENT_REUSE and (each.index_version or 0) >= 1 for each in manifest.indices)
