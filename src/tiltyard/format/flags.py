"""Feature flags: two words of a manifest that say what a reader and a writer must know (table format, section
8).

`check_reader` and `check_writer` refuse by name what this version does not know; `recomputed` derives the
words of a new manifest from its content.
"""

from __future__ import annotations

from dataclasses import replace

from tiltyard.errors import CorruptFile, UnsupportedFeature
from tiltyard.format.index_metadata import FRAGMENT_REUSE
from tiltyard.format.manifest import Manifest
from tiltyard.format.version import FileVersion

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
PARTIAL_ROWS = 1 << 62
"""Of our own: the SSTable of a table with merge functions. Its rows are to be merged with older ones, and no
other program knows how; that it refuses to read them is the flag's purpose.
"""

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
    PARTIAL_ROWS: "rows to be merged",
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
    | PARTIAL_ROWS
)
WRITABLE = READABLE & ~PARTIAL_ROWS | UNIQUE_FIELD_IDS


def describe(flags: int) -> str:
    """The names of the flags set in a word."""
    bits = [bit for bit in range(flags.bit_length()) if flags >> bit & 1]
    return ", ".join(f"{NAMES.get(1 << bit, 'unknown')} (bit {bit})" for bit in bits)


def check_readable(reader_flags: int, writer_flags: int, what: str) -> None:
    """Refuse to open a version that needs features which we do not know; `what` names it.

    Raises `UnsupportedFeature` naming them, `CorruptFile` when the two words contradict each other.
    """
    unpaired = (reader_flags ^ writer_flags) & PAIRED
    if unpaired:
        raise CorruptFile(
            f"{what}: only one of the reader and writer words has the flag {describe(unpaired)}: its meaning "
            "is undefined"
        )
    unknown = reader_flags & ~READABLE
    if unknown:
        raise UnsupportedFeature(
            f"{what} needs features that tiltyard cannot read: {describe(unknown)}; open it with a newer "
            "version of tiltyard or with the program that wrote it"
        )


def check_writable(writer_flags: int, what: str) -> None:
    """Refuse to commit on top of a version whose writer flags we do not know. Raises `UnsupportedFeature`."""
    unknown = writer_flags & ~WRITABLE
    if unknown:
        raise UnsupportedFeature(
            f"{what} needs features that tiltyard cannot write: {describe(unknown)}; it can be read; write "
            "with a newer version of tiltyard or with the program that wrote it"
        )


def check_reader(manifest: Manifest) -> None:
    """`check_readable` for a manifest, and that its content keeps what the flags promise."""
    what = f"version {manifest.version}"
    check_readable(manifest.reader_flags, manifest.writer_flags, what)
    promised = bool(manifest.writer_flags & UNIQUE_FIELD_IDS)
    if promised != (manifest.max_allocated_field_id is not None):
        raise CorruptFile(
            f"{what}: the flag {describe(UNIQUE_FIELD_IDS)} and the highest field id ever used must stand "
            "together"
        )
    if uses_stable_row_ids(manifest) and not manifest.fragments.all_have_row_ids:
        raise CorruptFile(f"{what} has stable row ids, but not every fragment carries them")


def check_writer(manifest: Manifest) -> None:
    """`check_writable` for a manifest that a commit builds on."""
    check_writable(manifest.writer_flags, f"version {manifest.version}")


def with_partial_rows(manifest: Manifest) -> Manifest:
    """The manifest of an SSTable whose rows are to be merged with older ones."""
    return replace(
        manifest,
        reader_flags=manifest.reader_flags | PARTIAL_ROWS,
        writer_flags=manifest.writer_flags | PARTIAL_ROWS,
    )


def has_partial_rows(manifest: Manifest) -> bool:
    """Whether its rows are to be merged with older ones."""
    return bool(manifest.reader_flags & PARTIAL_ROWS)


def uses_stable_row_ids(manifest: Manifest) -> bool:
    """Whether the table has stable row ids."""
    return bool(manifest.reader_flags & STABLE_ROW_IDS)


def recomputed(manifest: Manifest, previous: Manifest | None) -> Manifest:
    """The manifest with the words that its content asks for.

    Its own words say whether the table has stable row ids and whether transactions stand in manifests only;
    sticky flags come from `previous`, the version that it follows (on restore: the current one), or from its
    own words when it is the first.
    """
    before = manifest if previous is None else previous
    both = before.reader_flags & before.writer_flags & STICKY
    if not both & MIXED_FILE_VERSIONS and _adds_other_version(manifest, previous):
        both |= MIXED_FILE_VERSIONS
    fragments = manifest.fragments
    for flag, applies in (
        (DELETION_FILES, fragments.any_deletions),
        (STABLE_ROW_IDS, uses_stable_row_ids(manifest)),
        (BASE_PATHS, bool(manifest.base_paths)),
        (DATA_OVERLAYS, fragments.any_overlays),
        (COVERING_INDICES, any(each.covering_fields for each in manifest.indices)),
        (TAGGED_FRAGMENT_REUSE, _has_tagged_reuse(manifest)),
        (SPILLED_ROW_LINEAGE, fragments.any_spilled),
    ):
        both |= flag if applies else 0
    writer = both | manifest.writer_flags & NO_TRANSACTION_FILES
    writer |= TABLE_CONFIG if manifest.config else 0
    writer |= UNIQUE_FIELD_IDS if manifest.max_allocated_field_id is not None else 0
    return replace(manifest, reader_flags=both, writer_flags=writer)


def _adds_other_version(manifest: Manifest, previous: Manifest | None) -> bool:
    """Whether a 2.x file that `previous` does not have is of another version than the table's default."""
    default = manifest.data_format.version if manifest.data_format else None
    found = manifest.fragments.file_versions(since=previous.fragments if previous else None)
    versions = {FileVersion.of_footer(*each) for each in found} - {None}
    return any(each is not None and each.value != default for each in versions)


def _has_tagged_reuse(manifest: Manifest) -> bool:
    return any(each.name == FRAGMENT_REUSE and (each.index_version or 0) >= 1 for each in manifest.indices)
