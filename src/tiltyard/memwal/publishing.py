"""Beside the callers: frozen generations become SSTables, and rows that nobody waits for reach the log.

One task does both, while there is anything to do; it ends when there is not, and begins again when woken. It
leaves the other processors to the callers, but while one of them waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from tiltyard import runtime
from tiltyard.errors import (
    OutcomeUnknown,
    ShardError,
    TiltyardError,
    WriterClosed,
    WriterFenced,
    WriterPoisoned,
)
from tiltyard.format.shard_manifest import ShardManifest, SsTable
from tiltyard.memwal import layout
from tiltyard.memwal.life import of_this_life
from tiltyard.memwal.manifest import still_ours, update
from tiltyard.memwal.memtable import MemTable
from tiltyard.table.back_off import back_off
from tiltyard.table.snapshot import open_latest

if TYPE_CHECKING:
    from tiltyard.memwal.owner import Owned
    from tiltyard.memwal.writer import ShardWriter

MAX_PAUSE_SECONDS = 5.0
"""The longest pause before a generation that could not be written is tried again."""


MAX_FAILURES = 30
"""How often one generation is tried (about half a minute). Each try leaves a directory; whatever fails for so
long, such as a disk whose sync has failed, is not mended by this writer.
"""


class Publisher:
    """The task of one writer."""

    def __init__(self, writer: ShardWriter) -> None:
        self._writer = writer
        self._guard = runtime.leaf_lock()
        self._running = False
        self._stopped = False
        self._awaited = 0  # by so many callers
        self._signal = runtime.event()
        self._progress = runtime.condition()
        self._failed = 0
        self._last_error: TiltyardError | None = None

    def wake(self) -> None:
        """There is something to do."""
        with self._guard:
            if self._stopped:
                return
            begin, self._running = not self._running, True
        self._signal.set()
        if begin:
            runtime.spawn(self._work, name=f"publisher of {self._writer.shard_id}")

    def stop(self) -> None:
        """Do nothing more."""
        with self._guard:
            self._stopped = True
        self._signal.set()
        self._tell()

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """A caller waits in this block for generations that were, or are yet to be, frozen."""
        with self._guard:
            self._awaited += 1
        try:
            yield
        finally:
            with self._guard:
                self._awaited -= 1

    def wait(self, deadline: float) -> None:
        """Wait until a generation was published or could not be, or until the deadline."""
        with self._progress:
            if self._writer.oldest_frozen is not None:
                self._progress.wait(deadline=deadline)

    def drain(self, generation: int) -> None:
        """Wait until everything up to a generation is published, whatever others put meanwhile.

        Raises what prevents it, twice in a row or for good.
        """
        failed = self._failed
        while (oldest := self._writer.oldest_frozen) is not None and oldest.generation <= generation:
            self._writer.owned.log.check()
            if self._stopped:
                raise WriterClosed(
                    "the writer was given up before everything was published; its rows are in the log"
                )
            self.wake()
            self.wait(runtime.monotonic() + MAX_PAUSE_SECONDS)
            if self._failed > failed + 1 and self._last_error is not None:
                raise self._last_error
        self._writer.owned.log.check()

    def _tell(self) -> None:
        with self._progress:
            self._progress.notify_all()

    def _work(self) -> None:
        try:
            while self._is_needed():
                self._signal.clear()
                table = self._writer.oldest_frozen
                if table is not None:
                    self._publish(table)
                    continue
                due = self._writer.logs_at
                if due is not None and not self._signal.wait(deadline=due):
                    with suppress(TiltyardError):  # the writer keeps it, and tells its next caller
                        self._writer.sync()
        except BaseException:
            with self._guard:
                self._running = False
            raise
        finally:
            self._tell()

    def _is_needed(self) -> bool:
        with self._guard:
            writer = self._writer
            needed = writer.oldest_frozen is not None or writer.logs_at is not None
            # A writer that has ended keeps what it could not log, and nobody can any more.
            needed = needed and not self._stopped and writer.works
            if not needed:
                self._running = False  # here: a task that is woken from now on is another one
            return needed

    def _publish(self, table: MemTable) -> None:
        began = runtime.monotonic()
        try:
            manifest = publish_generation(
                self._writer.owned, self._writer.manifest, table, awaited=self._awaited > 0
            )
        except (WriterFenced, OutcomeUnknown) as error:
            self._failed += 1
            self._last_error = error
            self._writer.fail(error)
            self.stop()
        except Exception as error:  # tried again: until then later generations wait
            self._failed += 1
            self._last_error = _told(error)
            self._writer.counts.failures += 1
            if self._failed >= MAX_FAILURES:
                self._give_up(table, self._last_error)
                return
            self._tell()
            back_off(0.05, self._failed, MAX_PAUSE_SECONDS)
        else:
            self._failed = 0
            self._writer.published(table, manifest)
            self._writer.counts.flushed(table.rows, runtime.monotonic() - began)
            self._tell()

    def _give_up(self, table: MemTable, error: TiltyardError) -> None:
        ended = WriterPoisoned(
            f"generation {table.generation} of shard {self._writer.shard_id} could not be published in "
            f"{self._failed} tries: {error}. Its rows are in the log; open the shard again, which reads them"
        )
        ended.__cause__ = error
        self._last_error = ended
        self._writer.fail(ended)
        self.stop()


def _told(error: Exception) -> TiltyardError:
    """An error as callers get it: what is none of ours must not end the task, or they would wait for ever."""
    if isinstance(error, TiltyardError):
        return error
    told = ShardError(f"a generation could not be published: {type(error).__name__}: {error}")
    told.__cause__ = error
    return told


def publish_generation(
    owned: Owned, manifest: ShardManifest, table: MemTable, *, awaited: bool = True
) -> ShardManifest:
    """Write a frozen generation and name it in the shard's manifest; the manifest that does.

    `manifest`: the newest that is known of the owner's epoch. `awaited`: see `write_sstable`.

    Raises `WriterFenced`: its directory stays, named by nobody, and its rows are in the log. Raises
    `ShardError` where the table is another one by now.
    """
    from tiltyard.memwal.sstable import write_sstable, written_version  # a shard is opened without

    known = still_ours(owned.shard, manifest)
    _check_table(owned, known)
    name = layout.sstable_name(table.generation)
    version = written_version(owned.base)
    try:
        made = write_sstable(
            owned.shard,
            name,
            table.generation,
            table.stored(),
            version,
            owned.base.session,
            owned.maintained,
            awaited=awaited,
        )
    except TiltyardError:
        still_ours(owned.shard, known)  # who was passed may have had its directory collected
        raise
    return update(owned.shard, known, lambda current: named(current, made, table.logged_to))


def _check_table(owned: Owned, manifest: ShardManifest) -> None:
    """Raise `ShardError` where nobody would read what is published: the table that stands here now does not
    count the shard among its own.
    """
    now = open_latest(owned.base.store, owned.base.session)
    if not of_this_life(now, {owned.shard_id: manifest}):
        raise ShardError(
            f"the table at {owned.base.store.uri} was overwritten or restored to a version before its first "
            f"stream while shard {owned.shard_id} was open: what is streamed into it belongs to none of its "
            "versions. Its rows stay in the shard's log; close the stream, and open another one"
        )


def named(current: ShardManifest, made: SsTable, logged_to: int) -> ShardManifest:
    """The manifest with one more generation: the next in order, its rows covered by the cursor. Pure.

    The same manifest where it is named already. Raises `ShardError`.
    """
    if any(each.path == made.path for each in current.sstables):
        return current
    if made.generation != current.current_generation:
        raise ShardError(
            f"MemTable generation {made.generation} cannot flush before generation "
            f"{current.current_generation} of shard {current.shard_id}, which has not flushed"
        )
    if logged_to <= current.replay_after:
        raise ShardError(
            f"generation {made.generation} of shard {current.shard_id} ends at log position {logged_to}, "
            f"which the cursor {current.replay_after} has passed"
        )
    return replace(
        current,
        sstables=(*current.sstables, made),
        current_generation=made.generation + 1,
        replay_after=logged_to,
        last_seen=max(current.last_seen, logged_to),
    )
