"""Writes that would take a table's MemWAL away, and what was streamed with it: see `memwal.ending`, which is
loaded only where the table has one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from tiltyard.errors import TiltyardError
from tiltyard.format.index_metadata import MEM_WAL
from tiltyard.format.mem_wal import MemWalDetails
from tiltyard.format.operations import (
    CreateIndex,
    Operation,
    Overwrite,
    Restore,
    Update,
    UpdateMemWalState,
)
from tiltyard.table.apply.mem_wal import entry_of
from tiltyard.table.snapshot import Snapshot, open_latest, open_snapshot
from tiltyard.table.versions import latest_or_none

if TYPE_CHECKING:
    from tiltyard.session import Session
    from tiltyard.store import Store


def refuse_undrained(base: Snapshot, what: str) -> None:
    """Raise `UndrainedRows` where the table has streamed rows that are not in its base."""
    if entry_of(base.manifest) is not None:
        from tiltyard.memwal.ending import refuse_undrained

        refuse_undrained(base, what)


def newest_or_none(store: Store, session: Session) -> Snapshot | None:
    """The newest version; None where there is none that can be read: what is damaged may be deleted."""
    try:
        return open_latest(store, session)
    except TiltyardError:
        return None


@contextmanager
def streams_deleted(base: Snapshot | None, what: str, discard: bool) -> Iterator[None]:
    """A block that deletes the table with its streams. Raises `UndrainedRows` before it where that would lose
    streamed rows, unless `discard`, which warns of them after it.
    """
    if base is None or entry_of(base.manifest) is None:
        yield
        return
    from tiltyard.memwal.ending import lost_with, refuse_undrained, told_lost

    if not discard:
        refuse_undrained(base, what)
    lost = lost_with(base)
    yield
    told_lost(base, lost, what)


def streams_ended(base: Snapshot, what: str, discard: bool) -> AbstractContextManager[None]:
    """A block in which the table loses its MemWAL: see `memwal.ending.streams_ended`."""
    if entry_of(base.manifest) is None:
        return nullcontext()
    from tiltyard.memwal.ending import streams_ended

    return streams_ended(base, what, discard)


def streams_restored(target: Snapshot, discard: bool) -> AbstractContextManager[None]:
    """A block that makes `target` the newest version: the streams end where that one does not have them."""
    latest = open_latest(target.store, target.session)
    if _life(latest) in (None, _life(target)):
        return nullcontext()
    return streams_ended(latest, "restore", discard)


def streams_overwritten(
    store: Store, session: Session, operation: Operation, discard: bool
) -> AbstractContextManager[None]:
    """A block that commits an operation: one that takes the table's MemWAL away ends the streams."""
    ends = isinstance(operation, (Overwrite, Restore)) or _drops_mem_wal(operation)
    if not ends or latest_or_none(store, session) is None:
        return nullcontext()
    if isinstance(operation, Restore):
        return streams_restored(open_snapshot(store, session, operation.version), discard)
    what = "overwrite" if isinstance(operation, Overwrite) else "removal of the MemWAL"
    return streams_ended(open_latest(store, session), what, discard)


def _drops_mem_wal(operation: Operation) -> bool:
    if not isinstance(operation, CreateIndex):
        return False
    removed, made = operation.removed_indices, operation.new_indices
    return any(e.name == MEM_WAL for e in removed) and not any(e.name == MEM_WAL for e in made)


def check_marks(store: Store, session: Session, operation: Operation) -> None:
    """Refuse compaction marks that the table cannot record: see `memwal.marks.check_marks`."""
    if isinstance(operation, (Update, UpdateMemWalState)) and operation.compacted_sstables:
        from tiltyard.memwal.marks import check_marks

        check_marks(store, session, operation.compacted_sstables)


def _life(snapshot: Snapshot) -> str | None:
    """Which life of the table's streams a version is of: that of its MemWAL; None without one."""
    entry = entry_of(snapshot.manifest)
    if entry is None:
        return None
    from tiltyard.memwal.claim import INCARNATION

    return MemWalDetails.of(entry).writer_defaults.get(INCARNATION, "")
