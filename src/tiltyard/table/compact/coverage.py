"""What the indices of a version say about its fragments: which of them may be rewritten together, and which
must wait because an index on them could not follow.

Without stable row ids an index holds row addresses. Those of a B-tree are mapped to the new fragments, or
left to the fragment-reuse index. Zone maps and Bloom filters describe places, not rows: they fall behind, as
they do with the official writer, and are built anew by it. Every other kind would be of no use any more until
somebody builds it again, so that its fragments are left as they are.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiltyard.format.flags import uses_stable_row_ids
from tiltyard.format.index_metadata import IndexMetadata
from tiltyard.index.btree.layout import READABLE_VERSIONS
from tiltyard.table.index_entries import is_btree, kind_of, stores_addresses

if TYPE_CHECKING:
    from tiltyard.table.snapshot import Snapshot

OF_PLACES = frozenset(("zonemap", "bloomfilter"))
NOT_TRANSLATED = frozenset(("ngram",))
"""Kinds that readers do not translate through the fragment-reuse index."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """`covering`: fragments of each index segment; `holding`: name, kind and fragments of those that hold
    fragments back.
    """

    covering: tuple[frozenset[int], ...]
    holding: tuple[tuple[str, str, frozenset[int]], ...]

    @classmethod
    def of(cls, snapshot: Snapshot, *, deferred: bool) -> Coverage:
        """The coverage by a version's indices."""
        manifest = snapshot.manifest
        if all(entry.is_system for entry in manifest.indices):
            return cls((), ())
        from tiltyard.table.index_segments import covered_now

        live = frozenset(manifest.fragments.ids.tolist())
        stable = uses_stable_row_ids(manifest)
        covering: list[frozenset[int]] = []
        holding: list[tuple[str, str, frozenset[int]]] = []
        for entry in manifest.indices:
            if entry.is_system:
                continue
            here = live if entry.fragment_bitmap is None else covered_now(snapshot, entry) & live
            covering.append(here)
            if here and not can_follow(entry, stable=stable, deferred=deferred):
                holding.append((entry.name, kind_of(entry) or "unknown", here))
        return cls(tuple(covering), tuple(holding))

    def key(self, fragment_id: int) -> Hashable:
        """Equal for fragments that the same segments cover."""
        return tuple(at for at, covered in enumerate(self.covering) if fragment_id in covered)

    def holds(self, fragment_id: int) -> bool:
        """Whether a fragment must stay as it is."""
        return any(fragment_id in covered for _, _, covered in self.holding)

    def splits(self, fragments: frozenset[int]) -> bool:
        """Whether some segment covers a part of these fragments only."""
        return any(0 < len(covered & fragments) < len(fragments) for covered in self.covering)


def can_follow(entry: IndexMetadata, *, stable: bool, deferred: bool) -> bool:
    """Whether an index stays of use when fragments that it covers are rewritten."""
    kind = kind_of(entry)
    if is_btree(entry):
        # One that does not say what it covers is used by nobody.
        return entry.fragment_bitmap is None or (entry.index_version or 0) in READABLE_VERSIONS
    if kind in OF_PLACES:
        return True
    if stable:
        return not stores_addresses(entry)
    return deferred and kind not in NOT_TRANSLATED and entry.details is not None
