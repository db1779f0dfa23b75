"""A catalog as it was found: the facts that `findings` judges. Plain values, nothing is read here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tiltyard.catalog.rows import Row
from tiltyard.table.wording import NS_PER_SECOND

GRACE_NS = 3_600 * NS_PER_SECOND
"""What is younger may be the work of a creator who is still at it (ns, store clock)."""


@dataclass(frozen=True, slots=True)
class Place:
    """One directory below the root, as it was found."""

    entries: int
    """Names directly in it."""
    latest: int = 0
    """The newest version; 0 where there is none."""
    rows: int = 0
    """Live rows of that version; counted only where two directories are compared."""
    reserved: bool = False
    deregistered: bool = False
    age_ns: int = 0
    """Since anything in it was last written (store clock)."""

    @property
    def is_table(self) -> bool:
        return self.latest > 0


@dataclass(frozen=True, slots=True)
class Facts:
    """A catalog as it was found."""

    version: int
    """Of the register; 0 where there is none."""
    rows: tuple[Row, ...]
    places: Mapping[str, Place]
    """By location: what rows name, as far as it is there, and all that looks like a table at the root."""
    files: tuple[str, ...] = ()
    """Plain files at the root that are named like tables."""
    named: frozenset[str] = frozenset()
    """Locations that the trash or a move that is under way speaks of."""
    elsewhere: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By location of a row: where else its directory may be, while a move is under way."""
    dropped: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    """Dropped tables that can be had back: object id and the places of their data, by key."""
    purged: tuple[tuple[str, str], ...] = ()
    """Dropped tables whose data are being deleted, and their directories, which may be emptied already."""
    moves: tuple[str, ...] = ()
    unreadable_records: Mapping[str, str] = field(default_factory=dict)
    """Entries of our own in the register's metadata that cannot be read."""
    batches: tuple[str, ...] = ()
    unreadable_batches: tuple[str, ...] = ()
    """Files that should say what a batch is to do, and cannot be read."""
    torn: tuple[tuple[str, str], ...] = ()
    """Batches that could be neither finished nor taken back: their files, and what was told of them."""
    root_is_listed: bool = True
    """Whether directories at the root are tables by themselves (all modes but one)."""
    has_register: bool = True
    """Whether the catalog looks at a register at all."""
    primary_key: bool = True
    fragments: int = 1
    deletions: bool = False
    indices: tuple[str, ...] = ()
    extra_columns: tuple[str, ...] = ()
    versions: int = 1
    unreadable: str = ""
    """Why the register could not be read; then nothing is known of its rows."""
    unsupported: str = ""
    """What newer software has marked the catalog with."""
    grace_ns: int = GRACE_NS
