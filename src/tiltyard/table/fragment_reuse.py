"""Reading the fragment-reuse index: addresses in indices that a compaction left as they were, translated to
where the rows are now (indices, 1.7).

Fragment ids are never used again, so that translating is harmless where an index was mapped already: its
addresses are in none of the old fragments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tiltyard.errors import CorruptFile, ObjectNotFound, UnsupportedFeature
from tiltyard.format.fragment_reuse import (
    KNOWN_VERSION,
    External,
    ReuseGroup,
    ReuseVersion,
    decode_details,
    decode_survivors,
    decode_versions_file,
)
from tiltyard.format.index_metadata import FRAGMENT_REUSE, IndexMetadata
from tiltyard.format.names import index_directory
from tiltyard.table.system_columns import FRAGMENT_SHIFT

if TYPE_CHECKING:
    from tiltyard.table.snapshot import Snapshot

Addresses = npt.NDArray[np.uint64]
_SHIFT = np.uint64(FRAGMENT_SHIFT)


@dataclass(frozen=True, slots=True)
class _Step:
    """One compaction: addresses (ascending) of surviving rows, where each went, the fragments that went."""

    old: Addresses
    new: Addresses
    fragments: Addresses
    groups: tuple[tuple[frozenset[int], frozenset[int]], ...]


@dataclass(frozen=True, slots=True)
class FragmentReuse:
    """All compactions that a version's notes tell of, oldest first."""

    steps: tuple[_Step, ...]

    def translate(self, addresses: Addresses) -> tuple[npt.NDArray[np.bool_], Addresses]:
        """Which of some row addresses (uint64) still name a row, and where it is now. Addresses in fragments
        that no compaction took stay what they are.
        """
        kept = np.ones(len(addresses), np.bool_)
        now = np.array(addresses, np.uint64)
        for step in self.steps:
            here = np.flatnonzero(np.isin(now >> _SHIFT, step.fragments) & kept)
            if not len(here):
                continue
            if not len(step.old):
                kept[here] = False
                continue
            at = np.minimum(np.searchsorted(step.old, now[here]), len(step.old) - 1)
            found = step.old[at] == now[here]
            now[here[found]] = step.new[at[found]]
            kept[here[~found]] = False
        return kept, now[kept]

    @property
    def first_new(self) -> int:
        """The least id of a fragment that a compaction made; ids grow, so that all made since are greater."""
        made = [id for step in self.steps for _, new in step.groups for id in new]
        return min(made, default=0)

    def covered(self, fragments: frozenset[int]) -> frozenset[int]:
        """The fragments that an index over some fragments covers now: those of a group that it covered whole
        are covered by their successors.
        """
        for step in self.steps:
            for old, new in step.groups:
                if old <= fragments:
                    fragments = (fragments - old) | new
        return fragments


def reuse_of(snapshot: Snapshot) -> FragmentReuse | None:
    """The notes of a version, None when it has none. Raises `UnsupportedFeature` for a later form of notes,
    `CorruptFile` for damage.
    """
    entry = next((each for each in snapshot.manifest.indices if each.name == FRAGMENT_REUSE), None)
    if entry is None:
        return None

    def make() -> tuple[FragmentReuse, int]:
        steps = tuple(_step(version, entry) for version in reuse_versions(snapshot, entry))
        return FragmentReuse(steps), 1024 + sum(step.old.nbytes + step.new.nbytes for step in steps)

    key = (snapshot.store.identity, entry.uuid, "fragment reuse", "")
    found: FragmentReuse = snapshot.session.cache.get_or(key, make)
    return found


def reuse_versions(snapshot: Snapshot, entry: IndexMetadata) -> tuple[ReuseVersion, ...]:
    """What a fragment-reuse entry tells, from the entry or its file."""
    if (entry.index_version or 0) > KNOWN_VERSION:
        raise UnsupportedFeature(
            f"the fragment-reuse index of {snapshot.store.uri} has version {entry.index_version}; this "
            f"version of tiltyard knows {KNOWN_VERSION}"
        )
    details: Any = decode_details(entry.details)
    if not isinstance(details, External):
        return tuple(details)
    path = f"{index_directory(entry.uuid)}/{details.path}"
    try:
        data = snapshot.store.read(path).to_pybytes()
    except ObjectNotFound as error:
        raise CorruptFile("the details of the fragment-reuse index are missing", path) from error
    if details.offset + details.size > len(data):
        raise CorruptFile(
            f"the details of the fragment-reuse index should be {details.size} bytes at {details.offset}, "
            f"but the file has {len(data)}",
            path,
        )
    return decode_versions_file(data[details.offset : details.offset + details.size], path)


def _step(version: ReuseVersion, entry: IndexMetadata) -> _Step:
    old: list[Addresses] = [np.empty(0, np.uint64)]
    new: list[Addresses] = [np.empty(0, np.uint64)]
    for group in version.groups:
        survivors = decode_survivors(group)
        old.append(survivors)
        new.append(_successors(group, len(survivors)))
    every, where = np.concatenate(old), np.concatenate(new)
    order = np.argsort(every, kind="stable")
    return _Step(
        every[order],
        where[order],
        np.array(sorted(digest.id for group in version.groups for digest in group.old), np.uint64),
        tuple((frozenset(d.id for d in g.old), frozenset(d.id for d in g.new)) for g in version.groups),
    )


def _successors(group: ReuseGroup, rows: int) -> Addresses:
    """The new addresses of a group's surviving rows, in order."""
    parts = [
        (np.uint64(digest.id) << _SHIFT)
        + np.arange(min(digest.physical_rows, 1 << FRAGMENT_SHIFT), dtype=np.uint64)
        for digest in group.new
        if digest.physical_rows <= rows  # more cannot be: checked below, before anything is made of that size
    ]
    found = np.concatenate(parts) if parts else np.empty(0, np.uint64)
    if len(found) != rows:
        told = sum(digest.physical_rows for digest in group.new)
        raise CorruptFile(
            f"the fragment-reuse index says that {rows} rows survived in fragments of {told} rows"
        )
    return found
