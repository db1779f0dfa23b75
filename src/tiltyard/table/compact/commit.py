"""Publishing rewritten fragments: ids are reserved in a version of their own, indices follow, then the
Rewrite.

Others may go on meanwhile. Every attempt looks at the newest version: what was deleted from the old fragments
since is deleted from the new ones (`carry`), and only a group whose rows were rewritten by another is lost.

Invariants, and the tests that check them (tests/table/test_compact_commit.py):
1. Files of a group are removed when it is lost or the commit fails for certain, never after an unknown
   answer.
2. No row that was deleted by a version below the Rewrite lives in it, and no other row is missing.
3. An index answers after the Rewrite as before: its segments follow, or cover the rows no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tiltyard import runtime
from tiltyard.errors import (
    InvalidInput,
    OutcomeUnknown,
    RetryableConflict,
    TiltyardError,
    TooMuchContention,
)
from tiltyard.format.deletion import encode_deletions
from tiltyard.format.fragment import DeletionFile, Fragment
from tiltyard.format.operations import ReserveFragments, Rewrite, RewriteGroup, RewrittenIndex
from tiltyard.format.transaction import Transaction
from tiltyard.table.back_off import back_off
from tiltyard.table.commit import commit
from tiltyard.table.compact.carry import Carried, Offsets, carry, group_moves, planned_deletions
from tiltyard.table.compact.catch_up import catch_up_indices, lags
from tiltyard.table.compact.coverage import Coverage
from tiltyard.table.compact.moves import GroupMoves, Moves
from tiltyard.table.compact.results import Metrics, Rewritten, remove_rewritten
from tiltyard.table.compact.reuse import reuse_entry, reuse_group
from tiltyard.table.index_entries import covered_fragments, is_btree
from tiltyard.table.snapshot import open_latest

if TYPE_CHECKING:
    from tiltyard.format.index_metadata import IndexMetadata
    from tiltyard.session import Session
    from tiltyard.store import Store
    from tiltyard.table.snapshot import Snapshot

COMMIT_ATTEMPTS = 20
"""How often a Rewrite follows the newest version before it gives up."""

_MAX_U64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Committed:
    """The version after the Rewrite (the newest one where nothing was left to commit), what went and came,
    and the groups that were lost, with the reason of each.
    """

    snapshot: Snapshot
    metrics: Metrics
    lost: tuple[tuple[Rewritten, str], ...] = ()


def commit_rewrites(
    store: Store,
    session: Session,
    rewrites: Sequence[Rewritten],
    *,
    defer_index_remap: bool = False,
    partial: bool = False,
    properties: Mapping[str, str] | None = None,
) -> Committed:
    """Commit groups of rewritten fragments together.

    `partial`: a group that cannot follow what others committed is left out and told, instead of failing the
    rest. Raises `RetryableConflict` (plan again), `TooMuchContention`, `InvalidInput` for groups that share a
    fragment, and what a commit raises; then the new files are removed, unless the outcome is unknown.
    """
    publication = _Publication(
        store, session, list(rewrites), defer_index_remap, partial, dict(properties or {})
    )
    try:
        return publication.run()
    except BaseException:
        publication.discard()
        raise


@dataclass(slots=True)
class _Publication:
    """One commit of groups, over its attempts."""

    store: Store
    session: Session
    groups: list[Rewritten]
    deferred: bool
    partial: bool
    properties: dict[str, str]
    ids: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Reserved ids of the new fragments, by the id() of their group."""
    planned: dict[int, dict[int, Offsets | None]] = field(default_factory=dict)
    lost: list[tuple[Rewritten, str]] = field(default_factory=list)
    remapped: list[RewrittenIndex] = field(default_factory=list)
    remapped_for: object = None
    """What `remapped` was made from; made anew when that changed."""
    written: list[str] = field(default_factory=list)
    """Deletion and index files of this attempt alone."""
    referenced: bool = False
    """Whether a version may name the files, or did so for a moment."""

    def run(self) -> Committed:
        snapshot = open_latest(self.store, self.session)
        self._check_disjoint()
        for group in self.groups:
            self.planned[id(group)] = planned_deletions(snapshot, group)
        self._drop_lost(snapshot)
        if not self.groups:
            return Committed(snapshot, Metrics(), tuple(self.lost))
        if not self.deferred and lags(snapshot):
            catch_up_indices(snapshot)  # else they would lose the fragments that they answer for by the notes
        self._reserve(snapshot)
        for number in range(COMMIT_ATTEMPTS):
            began = runtime.monotonic()
            snapshot = open_latest(self.store, self.session)
            carried = self._drop_lost(snapshot)
            if not self.groups:
                return Committed(snapshot, Metrics(), tuple(self.lost))
            try:
                return self._attempt(snapshot, carried)
            except RetryableConflict as error:
                if number + 1 == COMMIT_ATTEMPTS:
                    raise self._given_up(error) from error
            back_off(runtime.monotonic() - began, number)
        raise AssertionError("the last attempt returns or raises")

    def _given_up(self, error: RetryableConflict) -> TooMuchContention:
        raised = TooMuchContention(
            f"the compaction of {self.store.uri} was to be committed {COMMIT_ATTEMPTS} times, and each time "
            f"others had changed the same fragments or indices ({error}); nothing was changed. Compact again "
            "when it is quieter"
        )
        return raised

    def _check_disjoint(self) -> None:
        seen: set[int] = set()
        for group in self.groups:
            for each in group.old:
                if each.id in seen:
                    raise InvalidInput(
                        f"fragment {each.id} is in two of the rewrites: commit each of them once"
                    )
                seen.add(each.id)

    def _drop_lost(self, snapshot: Snapshot) -> list[Carried]:
        """The groups on the newest version; those that cannot follow leave, or fail the commit."""
        coverage = Coverage.of(snapshot, deferred=self.deferred)
        kept: list[Rewritten] = []
        carried: list[Carried] = []
        for group in self.groups:
            found = carry(snapshot, group, self.planned[id(group)])
            if not isinstance(found, str) and coverage.covering:
                ids = frozenset(each.id for each in found.old)
                if any(map(coverage.holds, ids)):
                    found = "an index that cannot follow was built on its fragments meanwhile"
                elif coverage.splits(ids):
                    found = "an index was built on a part of its fragments meanwhile"
            if isinstance(found, str):
                if not self.partial:
                    raise RetryableConflict(
                        f"the rewrite of fragments {[each.id for each in group.old][:5]} of "
                        f"{self.store.uri}, planned on version {group.read_version}, cannot be "
                        f"committed on version {snapshot.version} because {found}; plan the compaction again"
                    )
                self.lost.append((group, found))
                remove_rewritten(self.store, [group])
            else:
                kept.append(group)
                carried.append(found)
        self.groups = kept
        return carried

    def _reserve(self, snapshot: Snapshot) -> None:
        """Ids for the new fragments: indices must know them before the Rewrite is committed."""
        count = sum(len(group.new) for group in self.groups)
        if not count:
            return
        transaction = Transaction(snapshot.version, str(runtime.uuid4()), ReserveFragments(count))
        # Reserved ids name no file: whatever comes of it, the files are still ours alone.
        after = commit(self.store, transaction, session=self.session, base=snapshot, skip_auto_cleanup=True)
        top = after.manifest.max_fragment_id
        assert top is not None
        next_id = top - count + 1
        for group in self.groups:
            self.ids[id(group)] = tuple(range(next_id, next_id + len(group.new)))
            next_id += len(group.new)

    # -- one attempt -------------------------------------------------------------------------------

    def _attempt(self, snapshot: Snapshot, carried: Sequence[Carried]) -> Committed:
        try:
            groups = [
                self._group(snapshot, group, found) for group, found in zip(self.groups, carried, strict=True)
            ]
            reuse = self._reuse(snapshot, groups) if self.deferred else None
            rewritten = () if self.deferred else self._remap(snapshot, groups)
            operation = Rewrite(tuple(groups), rewritten)
            transaction = Transaction(snapshot.version, str(runtime.uuid4()), operation, self.properties)
            after = self._commit(snapshot, transaction, reuse)
        except BaseException:
            self._discard_written()
            raise
        metrics = sum(
            (
                Metrics(
                    len(group.old),
                    len(new.new_fragments),
                    group.metrics.files_removed,
                    Rewritten(0, (), new.new_fragments).metrics.files_added,
                )
                for group, new in zip(self.groups, groups, strict=True)
            ),
            Metrics(),
        )
        return Committed(after, metrics, tuple(self.lost))

    def _commit(self, snapshot: Snapshot, transaction: Transaction, reuse: IndexMetadata | None) -> Snapshot:
        before, self.referenced = self.referenced, True  # until a definite answer
        try:
            return commit(self.store, transaction, session=self.session, base=snapshot, reuse_entry=reuse)
        except OutcomeUnknown:
            raise
        except TiltyardError as error:
            self.referenced = before or error.files_referenced
            raise

    def _group(self, snapshot: Snapshot, group: Rewritten, carried: Carried) -> RewriteGroup:
        new: list[Fragment] = []
        for number, (fragment_id, fragment) in enumerate(
            zip(self.ids.get(id(group), ()), group.new, strict=True)
        ):
            named = replace(fragment, id=fragment_id)
            deleted = carried.deleted.get(number)
            if deleted is None:
                new.append(named)
            elif len(deleted) < fragment.physical_rows:
                new.append(replace(named, deletion=self._deletion(snapshot, fragment_id, deleted)))
        return RewriteGroup(carried.old, tuple(new))

    def _deletion(self, snapshot: Snapshot, fragment_id: int, deleted: Offsets) -> DeletionFile:
        kind, data = encode_deletions(deleted)
        file = DeletionFile(kind, snapshot.version, runtime.uuid4().int & _MAX_U64, len(deleted))
        path = file.path(fragment_id)
        self.written.append(path)
        with self.store.writer(path) as writer:
            writer.write([data])
            writer.commit()
        return file

    def _moves(self) -> list[GroupMoves]:
        return [
            group_moves(group, self.planned[id(group)], self.ids.get(id(group), ())) for group in self.groups
        ]

    def _reuse(self, snapshot: Snapshot, groups: Sequence[RewriteGroup]) -> IndexMetadata | None:
        """The note of where rows went, for the groups that some index covers; None where none does."""
        covered = frozenset[int]().union(*Coverage.of(snapshot, deferred=True).covering)
        if not covered:
            return None
        noted = [
            (reuse_group(before, moved, new), new)
            for before, moved, new in zip(self.groups, self._moves(), groups, strict=True)
            if any(fragment.id in covered for fragment in before.old)
        ]
        return reuse_entry(snapshot, noted, self.written) if noted else None

    def _remap(self, snapshot: Snapshot, groups: Sequence[RewriteGroup]) -> tuple[RewrittenIndex, ...]:
        """Segments of B-tree indices with the addresses that the rows have now."""
        indices = [entry for entry in snapshot.manifest.indices if is_btree(entry)]
        if not indices:
            return ()
        pairs = [
            (frozenset(f.id for f in group.old_fragments), frozenset(f.id for f in group.new_fragments))
            for group in groups
        ]
        old = frozenset[int]().union(*(before for before, _ in pairs))
        entries = tuple(entry for entry in indices if (covered_fragments(entry) or old) & old)
        if not entries:
            return ()
        made_from = (entries, tuple(pairs))
        if self.remapped_for != made_from:
            from tiltyard.table.indexing.remap import remap_indices

            self._discard_remapped()
            owner = {f.id: number for number, group in enumerate(self.groups) for f in group.old}
            self.remapped = remap_indices(snapshot, Moves(self._moves(), owner), pairs)
            self.remapped_for = made_from
        return tuple(self.remapped)

    # -- what is left behind -----------------------------------------------------------------------

    def discard(self) -> None:
        """Remove every file that no version names; what cannot be removed is collected by age."""
        if not self.referenced:
            remove_rewritten(self.store, self.groups)
            self._discard_remapped()

    def _discard_written(self) -> None:
        paths, self.written = self.written, []
        if self.referenced:
            return
        self.store.delete_many(paths)  # what cannot be removed is collected by age

    def _discard_remapped(self) -> None:
        if self.remapped:
            from tiltyard.table.indexing.source import discard_segments

            discard_segments(self.store, [each.new_id for each in self.remapped])
        self.remapped, self.remapped_for = [], None
