"""A table written as a stream: each row goes to its shard, which this process takes over when the first row
of it comes.

A put that reaches several shards is durable when it returns, but not one step: where a shard refuses, rows of
others may be in. Rows of one key always go to one shard, so that for each key the order of puts counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tiltyard import runtime
from tiltyard.errors import (
    ClaimLost,
    ForkedHandle,
    InvalidInput,
    SchemaMismatch,
    ShardContention,
    ShardingChanging,
    ShardSpecMismatch,
    WriterClosed,
)
from tiltyard.memwal import layout
from tiltyard.memwal.capture import Captured, capture
from tiltyard.memwal.claim import INCARNATION
from tiltyard.memwal.identity import resolved_spec, streamed
from tiltyard.memwal.incoming import deletions, one_batch, rows_of
from tiltyard.memwal.life import manifests
from tiltyard.memwal.log_schema import LogSchema, log_schema
from tiltyard.memwal.owner import Streamable
from tiltyard.memwal.routing import Value, router_of, shard_name, shard_of
from tiltyard.memwal.writer import ShardWriter
from tiltyard.runtime.awaiting import Begin, in_thread, told
from tiltyard.table.back_off import back_off
from tiltyard.table.fit import side_by_side
from tiltyard.table.snapshot import open_latest

if TYPE_CHECKING:
    from tiltyard.format.schema import Schema
    from tiltyard.session import Session
    from tiltyard.store import Store


MAX_OPENS = 8
"""How often a shard is claimed that other streams claim at the same moment."""

MAX_SHOWN = 8
"""How many shards an error names."""


def open_writers(store: Store, session: Session) -> list[ShardWriter]:
    """The writers of a table's shards that are open in this process and of use, by shard."""
    found: list[ShardWriter] = [
        each for each in list(session.open_shards.get(store.identity, ())) if not each.closed and each.works
    ]
    return sorted(found, key=lambda each: (each.shard_id, each.epoch))


class ShardedWriter:
    """Writers of a table's shards, opened as rows come. Safe to share among threads. Close it, or use it as a
    block.

    `only`: the shards that it may write to, by their values as `Router.values` tells them; None for all. Rows
    of others are refused. `options`: settings of each `ShardWriter`.
    """

    def __init__(self, table: Streamable, *, only: Iterable[Any] | None = None, **options: Any) -> None:
        self._table = table
        self._options = options
        base = open_latest(table._store, table._session)
        found = streamed(base)
        self._spec_id = resolved_spec(found, None, "")
        self._incarnation = found.details.writer_defaults.get(INCARNATION)
        self._schema = log_schema(base.schema)
        self._router = router_of(found.spec, base.schema)
        self._check_routable()
        self._only = None if only is None else frozenset(map(self._router.value_of, only))
        self._process = runtime.process_id()
        self._opening = runtime.lock()
        self._writers: dict[Value, ShardWriter] = {}
        self._closed = False

    def _check_routable(self) -> None:
        """Refuse sharding by a column that may differ among rows of one key."""
        spec, key = self._router.spec, self._schema.key
        if spec is None or not key:
            return
        for each in spec.fields:
            for source in each.source_ids:
                if self._router.columns.get(source) not in key:
                    raise InvalidInput(
                        f"the table is sharded by {self._router.columns.get(source, source)!r}, which is "
                        f"no part of its key ({', '.join(key)}): rows of one key could come into several "
                        "shards. Open writers of single shards instead"
                    )

    @property
    def schema(self) -> Schema:
        """The table's schema as it was when the stream was opened: what rows must have."""
        return self._schema.table

    @property
    def closed(self) -> bool:
        """Whether `close` or `abort` was called."""
        return self._closed

    @property
    def writers(self) -> tuple[ShardWriter, ...]:
        """The shards that are open now."""
        return tuple(self._writers.values())

    def put(self, data: Any, *, durable: bool | None = None) -> None:
        """Insert or replace rows; see `ShardWriter.put`. Of any size: what is too large for one log entry is
        put in several.
        """
        batch = one_batch(data)
        rows_of(batch, self._schema)  # what is wrong is refused before any shard has a row
        for writer, part in self._routed(batch):
            for start in range(0, part.num_rows, writer.config.rows):
                writer.put(part.slice(start, writer.config.rows), durable=durable)

    def delete(self, keys: Any, *, durable: bool | None = None) -> None:
        """Delete rows by key; see `ShardWriter.delete`."""
        batch = one_batch(keys)
        deletions(batch, self._schema)
        for writer, part in self._routed(batch):
            for start in range(0, part.num_rows, writer.config.rows):
                writer.delete(part.slice(start, writer.config.rows), durable=durable)

    async def aput(self, data: Any, *, durable: bool | None = None) -> None:
        """`put`, awaited: all shards at once, and no thread for the waiting."""
        batch = one_batch(data)
        rows_of(batch, self._schema)
        await self._aput(batch, rows_of, durable)

    async def adelete(self, keys: Any, *, durable: bool | None = None) -> None:
        """`delete`, awaited, as `aput` is."""
        batch = one_batch(keys)
        deletions(batch, self._schema)
        await self._aput(batch, deletions, durable)

    async def _aput(self, batch: Any, stored: Callable[[Any, LogSchema], Any], durable: bool | None) -> None:
        begins: list[Begin] = []
        for value, part in self._parts(batch):
            writer = self._writers.get(value)
            if writer is None:
                self._check_process()
                writer = await in_thread(self._writer, value)
            for start in range(0, part.num_rows, writer.config.rows):
                rows = stored(part.slice(start, writer.config.rows), writer.owned.schema)
                begins += await writer.begins(rows, durable)
        await told(begins)

    def _parts(self, batch: Any) -> Iterable[tuple[Value, Any]]:
        """The rows by shard. Raises `InvalidInput` where some are of shards that are not this stream's."""
        if self._only is None:
            return self._router.parts(batch)
        parts = list(self._router.parts(batch))
        foreign = [(value, part.num_rows) for value, part in parts if value not in self._only]
        if foreign:
            shown = sorted({repr(self._router.shown(value)) for value, _ in foreign})
            more = "" if len(shown) <= MAX_SHOWN else f" and {len(shown) - MAX_SHOWN} more"
            raise InvalidInput(
                f"{sum(rows for _, rows in foreign)} of {batch.num_rows} rows belong to shards that this "
                f"stream was not opened for: {', '.join(shown[:MAX_SHOWN])}{more}. Nothing was written; "
                "shard_of tells which shard each row goes to"
            )
        return parts

    def _routed(self, batch: Any) -> list[tuple[ShardWriter, Any]]:
        """The rows of each shard with its writer. All are open before one has a row, so that a shard that
        refuses does it first.
        """
        return [(self._writer(value), part) for value, part in self._parts(batch)]

    def _check_columns(self, table: Schema) -> None:
        """Raise `SchemaMismatch` where the table's columns are no longer those that the stream takes."""
        if table.fields != self._schema.table.fields:
            raise SchemaMismatch(
                f"the columns of {self._table._store.uri} have changed since this stream was opened: close "
                "it, and open another one. Nothing of this call was put\n"
                f"{side_by_side(table, self._schema.table.arrow)}"
            )

    def _check_process(self) -> None:
        if runtime.process_id() != self._process:
            raise ForkedHandle(
                f"the stream into {self._table._store.uri} belongs to process {self._process}; open another "
                "one in the forked child"
            )

    def _writer(self, value: Value) -> ShardWriter:
        self._check_process()
        found = self._writers.get(value)
        if found is not None:
            return found
        with self._opening:
            if self._closed:
                raise WriterClosed("the stream is already closed; open another one")
            found = self._writers.get(value)
            if found is None:
                found = self._opened(value)
                self._writers[value] = found
            return found

    def _opened(self, value: Value) -> ShardWriter:
        """The writer of a value's shard; several streams may begin at one moment, and the last to claim has
        it. Raises `ShardingChanging` where the table's sharding is or was changed.
        """
        for attempt in range(MAX_OPENS):
            shard_id = self._shard_of(value)
            try:
                writer = self._claimed(shard_id, value)
            except ClaimLost:
                if attempt == MAX_OPENS - 1:
                    raise
                back_off(0.0, attempt + 1)
                continue
            if shard_id == shard_name(self._incarnation, self._spec_id, value, 0):
                return writer
            # The value's first shard is sealed. It may have been opened again since we looked; whoever does
            # that looks, too, whether another one began.
            is_right = False
            try:
                is_right = self._shard_of(value) == shard_id
            finally:
                if not is_right:
                    writer.abort()
            if is_right:
                return writer
        raise ShardContention(
            f"which shard rows of {self._table._store.uri} go to changed {MAX_OPENS} times; try again"
        )

    def _shard_of(self, value: Value) -> str:
        known = manifests(self._table._store.at(layout.ROOT))
        base = open_latest(self._table._store, self._table._session)
        self._check_columns(base.schema)
        marks = streamed(base).details.marks
        return shard_of(self._router, self._spec_id, value, self._incarnation, known, marks)

    def _claimed(self, shard_id: str, value: Value) -> ShardWriter:
        try:
            writer = ShardWriter.open(
                self._table, shard_id, shard_spec_id=self._spec_id, sharding_value=value, **self._options
            )
        except ShardSpecMismatch as error:
            raise ShardingChanging(
                f"the table's sharding has changed since this stream was opened with spec {self._spec_id}: "
                f"close it, and open another one ({error})"
            ) from error
        try:
            self._check_columns(writer.owned.base.schema)
        except SchemaMismatch:
            writer.abort()
            raise
        return writer

    def capture(self) -> Captured:
        """The table now, with the memory of these shards."""
        return capture(self._table._store, self._table._session, self.writers)

    def flush(self) -> None:
        """Publish everything that was put so far."""
        for each in self.writers:
            each.flush()

    def sync(self) -> None:
        """Make everything that was put so far durable."""
        for each in self.writers:
            each.sync()

    def close(self) -> None:
        """Publish everything and give the shards up. Raises what ended a writer; the others are closed."""
        self._check_process()
        with self._opening:
            self._closed = True
        failed: BaseException | None = None
        for each in self.writers:
            try:
                each.close()
            except Exception as error:  # told below, when the others are closed
                failed = failed or error
        if failed is not None:
            raise failed

    def abort(self) -> None:
        """Give the shards up as they are; durable rows stay in their logs."""
        with self._opening:
            self._closed = True
        for each in self.writers:
            each.abort()

    def __iter__(self) -> Iterator[ShardWriter]:
        return iter(self.writers)

    def __enter__(self) -> ShardedWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, Exception):
            self.abort()
        else:
            self.close()
