"""The writer of one shard: rows in, durable when the call returns (decisions D18, D19, D39).

Callers that arrive together share one log entry: the first of them leads, the others wait for its answer. A
row is seen by scans when its entry is durable (at once where the caller asked for no durability). What has
grown to a generation is frozen, stays visible, and is published beside the callers by one task.

Invariants, and their tests in tests/memwal/test_writer.py and tests/simulation/test_streams.py:
1. A put that returned is durable and in the log of an epoch that nobody had passed when its entry stood.
2. A put that raised `WriterFenced` with outcome `refused`, or `InvalidInput`, is nowhere.
3. Rows of one generation never share a log entry with those of another.
4. Rows are visible at every moment from their put on: in memory, in frozen memory or in an SSTable that the
   shard's manifest names.
5. Generations are published in order, each with its cursor, within the update of the manifest itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

from tiltyard import runtime
from tiltyard.errors import (
    CompactionBehind,
    ForkedHandle,
    InvalidInput,
    ShardSealed,
    TiltyardError,
    WriterClosed,
    WriterFenced,
)
from tiltyard.format.shard_manifest import ACTIVE, ShardManifest
from tiltyard.memwal.incoming import deletions, rows_of
from tiltyard.memwal.joining import MAX_JOINED_BYTES, joined
from tiltyard.memwal.manifest import still_ours
from tiltyard.memwal.memtable import MemTable, View
from tiltyard.memwal.owner import Owned, Streamable, take_over
from tiltyard.memwal.publishing import Publisher
from tiltyard.memwal.routing import Value
from tiltyard.runtime.awaiting import Begin, in_thread, told
from tiltyard.runtime.combine import CombiningQueue
from tiltyard.table.wording import counted

if TYPE_CHECKING:
    from tiltyard.memwal.config import WriterConfig

FULL_POLL_SECONDS = 1.0
"""How often a put that waits for room looks whether the writer has failed meanwhile."""


DEBT_POLL_SECONDS = 0.05
"""How often a put that waits for compaction looks whether there was one."""


@dataclass(slots=True, eq=False)
class _Put:
    batch: Any
    durable: bool
    nbytes: int


@dataclass(slots=True, eq=False)
class _Step:
    """Put what is pending into the log; with `freeze`, end the generation too. The `last` one ends the
    writer: rows that come after it would be in memory only, and are refused.
    """

    freeze: bool = False
    last: bool = False


_Item = _Put | _Step


class _Posted:
    """Rows of a caller that does not wait; they leave the queue once, however often that is told."""

    __slots__ = ("_left", "nbytes")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._left = [True]

    def done(self) -> bool:
        """Whether this is the first time."""
        try:
            return self._left.pop()  # one step, whatever threads ask
        except IndexError:
            return False


@dataclass(frozen=True, slots=True)
class ShardView:
    """What a reader saw of an open shard: memory first, then the manifest (decision D20)."""

    shard_id: str
    memtables: tuple[View, ...]
    """Newest first."""
    manifest: ShardManifest


class ShardWriter:
    """An open shard. Safe to share among threads; not usable in a forked child. Close it, or use it as a
    block.
    """

    def __init__(self, owned: Owned) -> None:
        """Use `open`."""
        self._owned = owned
        self._log = owned.log
        self._process = runtime.process_id()
        self._closed = False
        self._ended = False  # by a round: no more rows
        self._guard = runtime.leaf_lock()
        self._state: tuple[MemTable, tuple[MemTable, ...]] = (
            owned.memtables[-1],
            tuple(owned.memtables[:-1]),
        )
        self._queue: CombiningQueue[_Item, None] = CombiningQueue(self._round)
        self._posted_bytes = 0
        self._logged_at = runtime.monotonic()
        self._publisher = Publisher(self)
        self.counts = Counts()
        open_here = owned.base.session.open_shards
        open_here.setdefault(owned.base.store.identity, WeakSet()).add(self)
        if self._state[1]:
            self._publisher.wake()

    @classmethod
    def open(
        cls,
        dataset: Streamable,
        shard_id: str,
        *,
        shard_spec_id: int | None = None,
        sharding_value: Value = (),
        **options: Any,
    ) -> Self:
        """Become the owner of a shard of the dataset's table; whoever owned it before is fenced.

        `shard_id`: a UUID; a shard that is not there begins. `shard_spec_id`: the sharding spec that the
        caller means; None for the table's, 0 for shards named by hand. `sharding_value`: what all rows of a
        shard that begins have in common, encoded, by sharding field; rows that have not are refused from
        then on. `options`: settings of `WriterConfig`, over the table's own.

        Raises, leaving the shard and its owner as they were: `InvalidInput`, `ShardSpecMismatch`,
        `ShardSealed`, `ShardingChanging`, `UnsupportedFeature`, `CorruptFile`. Raises `ClaimLost`,
        `ShardContention` where another writer was faster, `OutcomeUnknown` where the claim may stand,
        StoreError where it cannot be written.
        """
        return cls(take_over(dataset, shard_id, shard_spec_id, options, sharding_value))

    # -- facts -----------------------------------------------------------------------------------

    @property
    def shard_id(self) -> str:
        """The shard, UUID text."""
        return self._owned.shard_id

    @property
    def epoch(self) -> int:
        """The epoch that this writer claimed."""
        return self._owned.manifest.writer_epoch

    @property
    def owned(self) -> Owned:
        """What the shard was when it was claimed."""
        return self._owned

    @property
    def config(self) -> WriterConfig:
        """The settings in force."""
        return self._owned.config

    @property
    def manifest(self) -> ShardManifest:
        """The newest manifest of the shard that this writer knows."""
        return self._log.manifest

    @property
    def closed(self) -> bool:
        """Whether `close` or `abort` was called."""
        return self._closed

    @property
    def works(self) -> bool:
        """Whether nothing has ended the writer, as far as it knows."""
        return self._log.poison is None and runtime.process_id() == self._process

    @property
    def error(self) -> TiltyardError | None:
        """What has ended the writer; None while it works."""
        return self._log.poison

    @property
    def rows_in_memory(self) -> int:
        """Rows that are not published yet, superseded ones included."""
        active, frozen = self._state
        return active.rows + sum(each.rows for each in frozen)

    def view(self) -> ShardView:
        """What is in the shard now, each row once or more, none missing. Raises what ended the writer."""
        self._check_open()
        active, frozen = self._state
        memory = (active.view(), *(each.view() for each in reversed(frozen)))
        return ShardView(self.shard_id, tuple(each for each in memory if each.batches), self._log.manifest)

    # -- writing ---------------------------------------------------------------------------------

    def put(self, data: Any, *, durable: bool | None = None) -> None:
        """Insert rows, or replace those of the same keys; of one key the last row counts.

        `data`: a `pa.RecordBatch`, `pa.Table`, a sequence of batches, with exactly the table's columns and
        types. Returns when the rows are durable and visible; with `durable=False` (default: the writer's
        `durable_write`) when they are visible.

        Raises, before anything is logged: `SchemaMismatch`, `InvalidInput`. Raises `WriterFenced`,
        `WriterPoisoned`, `OutcomeUnknown`: the writer can do nothing more.
        """
        self._submit(rows_of(data, self._owned.schema), durable)

    def delete(self, keys: Any, *, durable: bool | None = None) -> None:
        """Delete the rows of these keys: data with the key's columns (others are not looked at). Keys that
        are not there are no error. Raises as `put` does.
        """
        self._submit(deletions(keys, self._owned.schema), durable)

    async def aput(self, data: Any, *, durable: bool | None = None) -> None:
        """`put`, awaited: needs no thread while it waits. Where it is cancelled the rows may be in or not."""
        await self.asubmit(rows_of(data, self._owned.schema), durable)

    async def adelete(self, keys: Any, *, durable: bool | None = None) -> None:
        """`delete`, awaited, as `aput` is."""
        await self.asubmit(deletions(keys, self._owned.schema), durable)

    async def asubmit(self, batch: Any, durable: bool | None) -> None:
        """Have rows in the log's columns put, awaited."""
        begins = await self.begins(batch, durable)
        await told(begins)

    async def begins(self, batch: Any, durable: bool | None) -> list[Begin]:
        """What begins putting rows in the log's columns, once there is room for them; nothing for no rows."""
        if not self._admits(batch):
            return []
        if self._waits_for_compaction:
            await in_thread(self._wait_for_compaction)
        while self._is_crowded():  # looked at again here: others may have taken the room meanwhile
            await in_thread(self._wait_for_room)
        began = runtime.monotonic()

        def begin(tell: Callable[[Any], None]) -> Callable[[], None]:
            posted = _Posted(batch.nbytes)
            self._hold(posted.nbytes)

            def answered(answer: BaseException | None) -> None:
                if posted.done():
                    self._hold(-posted.nbytes)
                    if answer is None:
                        self.counts.put(runtime.monotonic() - began)
                tell(answer)

            def back() -> None:
                if withdraw() and posted.done():
                    self._hold(-posted.nbytes)

            withdraw = self._queue.post(self._item(batch, durable), answered)
            return back

        return [begin]

    def _submit(self, batch: Any, durable: bool | None) -> None:
        if not self._admits(batch):
            return
        if self._waits_for_compaction:
            self._wait_for_compaction()
        self._wait_for_room()
        began = runtime.monotonic()
        self._queue.submit(self._item(batch, durable))
        self.counts.put(runtime.monotonic() - began)

    def _item(self, batch: Any, durable: bool | None) -> _Put:
        return _Put(batch, self.config.durable_write if durable is None else durable, batch.nbytes)

    def _admits(self, batch: Any) -> bool:
        """Whether there are rows to put, all of which may be. Raises what is wrong with them."""
        self._check_open()
        self._owned.router.check(batch, self._owned.manifest)
        if batch.num_rows > self.config.rows:
            raise InvalidInput(
                f"write of {batch.num_rows} rows exceeds max_memtable_rows={self.config.rows}: a write is "
                "never split across memtables. Split the write"
            )
        return bool(batch.num_rows)

    def flush(self) -> None:
        """Publish everything that was put so far; returns when the shard's manifest names it."""
        self._publish(_Step(freeze=True))

    def _publish(self, step: _Step) -> None:
        self._check_open()
        with self._publisher.awaited():
            self._queue.submit(step)
            self._publisher.drain(self._state[0].generation - 1)

    def sync(self) -> None:
        """Make everything that was put with `durable=False` durable."""
        self._check_open()
        self._queue.submit(_Step())

    def close(self) -> None:
        """Publish everything and give the writer up; the shard stays this epoch's until somebody claims it.

        Raises what ended the writer before; a second call does nothing.
        """
        if self._closed:
            return
        try:
            self._publish(_Step(freeze=True, last=True))
        finally:
            self._closed = True
            self._publisher.stop()

    def abort(self) -> None:
        """Give the writer up as it is: nothing more is logged or published. Durable rows stay in the log."""
        self._closed = True
        self._publisher.stop()

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, Exception):
            self.abort()  # interrupted: publishing could take long
        else:
            self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise _closed()
        if runtime.process_id() != self._process:
            raise ForkedHandle(
                f"the writer of shard {self.shard_id} belongs to process {self._process}; open another shard "
                "in the forked child"
            )
        self._log.check()

    @property
    def _waits_for_compaction(self) -> bool:
        most = self.config.max_uncompacted_generations
        return most is not None and len(self._log.manifest.sstables) >= most

    def _wait_for_compaction(self) -> None:
        """Hold a put back while more generations wait for compaction than the writer was told to allow."""
        until = runtime.monotonic() + self.config.max_compaction_wait_ms / 1000
        while self._waits_for_compaction:
            try:
                self._log.adopt(still_ours(self._owned.shard, self._log.manifest))
            except WriterFenced as error:
                self.fail(error)
                raise
            if self._waits_for_compaction and runtime.monotonic() >= until:
                waiting = len(self._log.manifest.sstables)
                raise CompactionBehind(
                    f"shard {self.shard_id} has {counted(waiting, 'generation')} that are not in the table "
                    f"(max_uncompacted_generations={self.config.max_uncompacted_generations}), and none was "
                    f"compacted within {self.config.max_compaction_wait_ms} ms; nothing of this call was "
                    "kept. Run `tiltyard maintain` on the table, call drain(), or stream with drain_every"
                )
            if self._waits_for_compaction:
                runtime.sleep(DEBT_POLL_SECONDS)
            self._check_open()

    def _wait_for_room(self) -> None:
        """Hold a put back while too much waits to be published."""
        while self._is_crowded():
            with self._publisher.awaited():
                if not self._state[1]:
                    self._queue.submit(_Step(freeze=True))
                self._publisher.wait(runtime.monotonic() + FULL_POLL_SECONDS)
            self._check_open()

    def _is_crowded(self) -> bool:
        return self.unpublished_bytes() + self._posted_bytes >= self.config.max_unflushed_memtable_bytes

    def _hold(self, nbytes: int) -> None:
        """Count rows of callers that do not wait, while they are in the queue."""
        with self._guard:
            self._posted_bytes += nbytes

    def unpublished_bytes(self) -> int:
        """Bytes of rows in memory."""
        active, frozen = self._state
        return active.nbytes + sum(each.nbytes for each in frozen)

    # -- rounds: one at a time -------------------------------------------------------------------

    def _round(self, items: list[_Item]) -> Sequence[BaseException | None]:
        answers: list[BaseException | None] = [None] * len(items)
        group: list[_Put] = []
        rows = nbytes = 0  # of the group
        try:
            for at, item in enumerate(items):
                self._log.check()
                if self._ended and isinstance(item, _Put):
                    answers[at] = _closed()
                    continue
                if isinstance(item, _Step):
                    self._append(group)
                    rows = nbytes = 0
                    if item.freeze:
                        self._freeze()
                    self._ended |= item.last
                    continue
                self._check_not_sealed()
                if self._is_full(item, rows, nbytes):
                    self._append(group)
                    rows = nbytes = 0
                    self._freeze()
                    self._state[0].takes(item.batch)
                if item.durable or group:
                    group.append(item)
                    rows += item.batch.num_rows
                    nbytes += item.nbytes
                else:
                    active = self._state[0]
                    active.add(joined([item.batch], is_plain=active.is_plain))
            if group or self._is_due():
                self._append(group)
        except Exception as error:
            # What was appended before stands; what was to be appended now, and all that follows, has failed.
            for each in range(items.index(group[0] if group else item), len(items)):
                answers[each] = error
        if self.logs_at is not None:
            self._publisher.wake()
        return answers

    def _append(self, group: list[_Put]) -> None:
        """One log entry of what is pending and of the group's rows, which are visible from then on."""
        active = self._state[0]
        puts = [each.batch for each in group]
        batches = [*active.pending, *puts]
        if batches:
            began = runtime.monotonic()
            is_own = len(batches) == 1 and not puts  # what was pending is
            combined = batches[0] if is_own else joined(batches, is_plain=active.is_plain)
            nbytes = group[0].nbytes if puts and len(batches) == 1 else combined.nbytes
            position = self._log.append(combined, active.stamp)
            active.logged(position, combined, nbytes, sum([each.num_rows for each in puts]))
            self._logged_at = runtime.monotonic()
            self.counts.logged(nbytes, self._logged_at - began)
        group.clear()

    def _check_not_sealed(self) -> None:
        if self._log.manifest.status != ACTIVE:
            raise ShardSealed(f"shard {self.shard_id} was sealed; it takes no more rows")

    def _is_full(self, item: _Put, rows: int, nbytes: int) -> bool:
        """Whether the generation, with a group of so many rows and bytes, has no room for a batch."""
        active, config = self._state[0], self.config
        fits = active.takes(item.batch)
        if not active.rows and not rows:
            return False
        return (
            not fits
            or active.rows + rows + item.batch.num_rows > config.rows
            or active.entries >= config.entries
            or active.nbytes + nbytes >= config.max_memtable_size
            or active.nbytes + nbytes + item.nbytes > MAX_JOINED_BYTES
        )

    def _is_due(self) -> bool:
        """Whether rows that nobody waits for should go into the log now."""
        pending = self._state[0].pending
        if not pending:
            return False
        config = self.config
        if config.max_wal_buffer_size and self._state[0].pending_bytes >= config.max_wal_buffer_size:
            return True
        return self.interval_passed()

    def interval_passed(self) -> bool:
        """Whether the interval for rows that nobody waits for is over."""
        interval = self.config.max_wal_flush_interval_ms
        return interval is not None and runtime.monotonic() >= self._logged_at + interval / 1000

    def _freeze(self) -> None:
        """End the generation: everything of it is in the log."""
        active = self._state[0]
        if not active.rows:
            return
        fresh = MemTable(active.generation + 1, self._owned.schema, active.stamp + 1)
        with self._guard:
            self._state = (fresh, (*self._state[1], active))
        self._publisher.wake()

    # -- for the publisher -----------------------------------------------------------------------

    @property
    def oldest_frozen(self) -> MemTable | None:
        """The generation to publish next."""
        frozen = self._state[1]
        return frozen[0] if frozen else None

    @property
    def logs_at(self) -> float | None:
        """When rows that nobody waits for are due (boot clock); None when there are none."""
        interval = self.config.max_wal_flush_interval_ms
        if interval is None or not self._state[0].pending:
            return None
        return self._logged_at + interval / 1000

    def published(self, table: MemTable, manifest: ShardManifest) -> None:
        """The manifest names the generation: it need not be kept in memory any more."""
        self._log.adopt(manifest)
        with self._guard:
            active, frozen = self._state
            self._state = (active, tuple(each for each in frozen if each is not table))

    def fail(self, error: TiltyardError) -> None:
        """Nothing more can be published: the writer is ended."""
        self._log.end(error)

    # -- numbers ---------------------------------------------------------------------------------

    def stats(self) -> dict[str, int]:
        """Counts since the writer was opened; times in milliseconds."""
        return self.counts.shown()

    def memtable_stats(self) -> dict[str, int]:
        """What is in memory now."""
        active, frozen = self._state
        view = active.view()
        pending = active.pending
        return {
            "row_count": active.rows,
            "batch_count": len(view.batches),
            "estimated_size_bytes": active.nbytes,
            "index_bytes": 0,
            "generation": active.generation,
            "durable_batch_count": len(view.batches) - len(pending),
            "pending_wal_batch_count": len(pending),
            "pending_wal_row_count": sum(each.num_rows for each in pending),
            "pending_wal_estimated_bytes": active.pending_bytes,
            "frozen_count": len(frozen),
            "frozen_bytes": sum(each.nbytes for each in frozen),
        }


def _closed() -> WriterClosed:
    return WriterClosed("ShardWriter is already closed; open the shard again")


@dataclass(slots=True)
class Counts:
    """What a writer has done. Threads that count at once may lose one."""

    puts: int = 0
    put_seconds: float = 0.0
    entries: int = 0
    entry_bytes: int = 0
    entry_seconds: float = 0.0
    generations: int = 0
    generation_rows: int = 0
    generation_seconds: float = 0.0
    failures: int = 0

    def put(self, seconds: float) -> None:
        """One more put was answered."""
        self.puts += 1
        self.put_seconds += seconds

    def logged(self, nbytes: int, seconds: float) -> None:
        """One more log entry."""
        self.entries += 1
        self.entry_bytes += nbytes
        self.entry_seconds += seconds

    def flushed(self, rows: int, seconds: float) -> None:
        """One more generation was published."""
        self.generations += 1
        self.generation_rows += rows
        self.generation_seconds += seconds

    def shown(self) -> dict[str, int]:
        """As the official package names them."""
        return {
            "put_count": self.puts,
            "put_time_ms": int(self.put_seconds * 1000),
            "wal_flush_count": self.entries,
            "wal_flush_bytes": self.entry_bytes,
            "wal_flush_time_ms": int(self.entry_seconds * 1000),
            "memtable_flush_count": self.generations,
            "memtable_flush_rows": self.generation_rows,
            "memtable_flush_failures": self.failures,
            "memtable_flush_time_ms": int(self.generation_seconds * 1000),
        }
