"""Compaction marks: up to which generation of each shard the base holds the rows (MemWAL, section 7.3).

Other programs record whatever number they are given, and readers leave out what a mark covers: a number that
is too great hides rows for good. So every mark of ours is held against the shard's manifest first (decision
D28, case M11): the shard is the table's, and each generation from the recorded mark up to the new one is
there.

Invariants, and their tests in tests/memwal/test_marks.py:
1. A mark is recorded only over generations that the shard's manifest names, without a gap, but for what a
   version of the table held that an older one was restored over.
2. What is refused has written nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from tiltyard import runtime
from tiltyard.errors import (
    IncompatibleTransaction,
    InvalidInput,
    RetryableConflict,
    ShardError,
    TiltyardError,
    nearest,
)
from tiltyard.format.index_metadata import MEM_WAL
from tiltyard.format.mem_wal import MemWalDetails
from tiltyard.format.operations import CompactedSsTable, UpdateMemWalState
from tiltyard.format.shard_manifest import ShardManifest, SsTable
from tiltyard.format.transaction import Transaction
from tiltyard.memwal import layout
from tiltyard.memwal.life import shards_of
from tiltyard.table.apply.mem_wal import entry_of
from tiltyard.table.back_off import back_off
from tiltyard.table.commit import commit
from tiltyard.table.snapshot import open_latest, open_snapshot
from tiltyard.table.versions import list_versions

if TYPE_CHECKING:
    from tiltyard.session import Session
    from tiltyard.store import Store
    from tiltyard.table.snapshot import Snapshot


MAX_COMMITS = 8
"""How often a mark is moved that others move meanwhile."""

MAX_SEARCHED = 1_000
"""Versions that are looked at for one that has generations which a shard names no more."""


def marks_of(base: Snapshot) -> Mapping[str, int]:
    """The marks of a version of the table; none where it has no MemWAL."""
    entry = entry_of(base.manifest)
    return {} if entry is None else MemWalDetails.of(entry).marks


def uncompacted(manifest: ShardManifest, mark: int) -> tuple[SsTable, ...]:
    """The generations that follow a mark, ascending, as far as none is missing. Pure.

    Raises `ShardError` where the mark is ahead of what was published, or the next one is missing.
    """
    if mark >= manifest.current_generation:
        raise ShardError(
            f"the base says that generation {mark} of shard {manifest.shard_id} was compacted, which was "
            f"published up to {manifest.current_generation - 1} only: readers would leave out what comes. "
            "`tiltyard shard check` tells more"
        )
    named = sorted((each for each in manifest.sstables if each.generation > mark), key=_generation)
    found = [each for at, each in enumerate(named, mark + 1) if each.generation == at]
    if named and not found:
        raise ShardError(
            f"shard {manifest.shard_id} names generation {named[0].generation} and not {mark + 1}, the next "
            "one to be compacted, and no version of the table that stands has that one: it was taken away "
            "before it was in the base, or such versions were removed after an older one was restored. "
            "Nothing above it is compacted, until `tiltyard shard repair` gives up what is missing"
        )
    return tuple(found)


def _generation(fact: SsTable) -> int:
    return fact.generation


def resumed(base: Snapshot, manifest: ShardManifest, mark: int) -> int:
    """The mark that a shard is compacted from: that of the base, or beyond generations that are named no more
    because a version of the table held them, which another program restored an older one over. What they had
    went with that version.
    """
    missing = gap(manifest, mark)
    return missing if missing and _was_compacted(base, manifest.shard_id, missing) else mark


def gap(manifest: ShardManifest, mark: int) -> int:
    """Up to which generation a shard names none that follows a mark, where it names later ones; else 0."""
    above = [each.generation for each in manifest.sstables if each.generation > mark]
    return min(above) - 1 if above and min(above) > mark + 1 else 0


def _was_compacted(base: Snapshot, shard_id: str, generation: int) -> bool:
    """Whether an earlier version that still stands has this generation of a shard."""
    life = _incarnation(base)
    earlier = [each for each in list_versions(base.store) if each.version < base.version]
    for location in sorted(earlier, key=lambda each: -each.version)[:MAX_SEARCHED]:
        with suppress(TiltyardError):  # it is being removed, or damaged: it proves nothing
            found = open_snapshot(base.store, base.session, location.version)
            if marks_of(found).get(shard_id, 0) >= generation and _incarnation(found) == life:
                return True
    return False


def give_up(store: Store, session: Session, shard_id: str, generation: int) -> None:
    """Move a shard's mark over generations that the base does not have and nobody brings in: up to this one.
    Nothing where it is there already. Raises what commits raise.
    """
    for attempt in range(MAX_COMMITS):
        base = open_latest(store, session)
        if marks_of(base).get(shard_id, 0) >= generation:
            return
        marks = UpdateMemWalState((CompactedSsTable(shard_id, generation),))
        try:
            commit(store, Transaction(base.version, str(runtime.uuid4()), marks), session=session, base=base)
        except (RetryableConflict, IncompatibleTransaction):
            if attempt == MAX_COMMITS - 1:
                raise
            back_off(0.0, attempt + 1)
        else:
            return


def _incarnation(base: Snapshot) -> str | None:
    entry = entry_of(base.manifest)
    return None if entry is None else MemWalDetails.of(entry).incarnation


def check_marks(store: Store, session: Session, marks: Sequence[CompactedSsTable]) -> None:
    """Refuse marks that the table cannot record, before anything is written.

    Raises `InvalidInput`: no MemWAL, a shard twice, a shard or a generation that there is not; and
    `IncompatibleTransaction` for a mark that does not advance.
    """
    if not marks:
        return
    base, shards = shards_of(store, session)
    if entry_of(base.manifest) is None:
        raise InvalidInput(
            f"Cannot record SSTable compaction progress: the {MEM_WAL} system index does not exist on this "
            "table; nothing was written"
        )
    recorded = marks_of(base)
    seen: set[str] = set()
    for each in marks:
        shard_id = layout.parse_shard_id(each.shard_id)
        if shard_id in seen:
            raise InvalidInput(
                f"Duplicate shard {shard_id} in one SSTable compaction update; each shard may advance at "
                "most once per transaction"
            )
        seen.add(shard_id)
        known = recorded.get(shard_id, 0)
        if shard_id in shards:
            known = resumed(base, shards[shard_id], known)
        _check_mark(shards, shard_id, each.generation, known)


def _check_mark(shards: Mapping[str, ShardManifest], shard_id: str, generation: int, recorded: int) -> None:
    manifest = shards.get(shard_id)
    if manifest is None:
        raise InvalidInput(
            f"a mark for shard {shard_id}, which the table does not have; nothing was written; "
            f"{nearest(shard_id, sorted(shards))}"
        )
    if generation <= recorded:
        raise IncompatibleTransaction(
            f"Stale SSTable compaction for shard {shard_id}: proposed generation {generation} is not greater "
            f"than the recorded generation {recorded}; nothing was written"
        )
    there = {each.generation for each in manifest.sstables}
    missing = next((each for each in range(recorded + 1, generation + 1) if each not in there), None)
    if missing is not None:
        published = ", ".join(map(str, sorted(there))) or "none"
        raise InvalidInput(
            f"a mark for generation {generation} of shard {shard_id} over generation {missing}, which the "
            f"shard does not name (it names {published}, and up to {recorded} is compacted): rows would be "
            "hidden; nothing was written"
        )
