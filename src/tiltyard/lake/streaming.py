"""Streams into a table, and the table with what is being streamed: in plain words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tiltyard.dataset import arguments
from tiltyard.dataset.mem_wal import one_batch_of
from tiltyard.errors import InvalidInput
from tiltyard.lake.words import in_plain_words, plain
from tiltyard.memwal.capture import Captured, capture
from tiltyard.memwal.lookup import Lookup
from tiltyard.memwal.nearest import nearest_rows
from tiltyard.memwal.scan import LsmScan
from tiltyard.memwal.stream import ShardedWriter, open_writers
from tiltyard.runtime.awaiting import in_thread

if TYPE_CHECKING:
    from tiltyard.dataset import LanceDataset

Columns = Sequence[str] | Mapping[str, str] | None


class Stream:
    """Rows that go into a table one after the other: durable when a call returns, and seen by `live()`.

    May be shared among threads, whose calls are put into the log together, and awaited: `aput` is `put` for
    coroutines, and so on. Use it as a block (`with` or `async with`), or close it.
    """

    def __init__(self, ds: LanceDataset, options: Mapping[str, Any]) -> None:
        """Use `Table.stream`."""
        self._ds = ds
        self._writer = ShardedWriter(ds, **options)

    def __repr__(self) -> str:
        return f"Stream({self._ds.uri!r}, {len(self._writer.writers)} shards open)"

    @plain
    def put(self, data: Any, *, durable: bool | None = None) -> None:
        """Insert rows, or replace those of the same keys. Of any kind that `append` takes, with all columns.

        Returns when they survive power loss; with `durable=False` when they are seen here. Raises, before
        anything is written, `SchemaMismatch` and `InvalidInput`; `WriterFenced` when somebody else took a
        shard over, and `OutcomeUnknown` when it cannot be told whether the rows are in.
        """
        self._writer.put(one_batch_of(data, None, self._ds.schema), durable=durable)

    @plain
    def delete(self, keys: Any, *, durable: bool | None = None) -> None:
        """Delete rows by key: the values of a key of one column, or data with the key's columns."""
        self._writer.delete(self._keys(keys), durable=durable)

    def _keys(self, keys: Any) -> Any:
        names = [each.name for each in self._ds._snapshot.schema.primary_key]
        if not names:
            raise InvalidInput("the table has no key: nothing can be deleted from a stream into it")
        schema = pa.schema([self._ds.schema.field(name) for name in names])
        if len(names) == 1 and (isinstance(keys, (list, tuple, set, range, pa.Array, pa.ChunkedArray))):
            values = sorted(keys) if isinstance(keys, set) else keys
            if not isinstance(values, (pa.Array, pa.ChunkedArray)):
                values = list(values)
            if not (isinstance(values, list) and values and isinstance(values[0], Mapping)):
                return one_batch_of({names[0]: values}, schema, schema)
        return one_batch_of(keys, None, schema)

    @plain
    def flush(self) -> None:
        """Publish what was put so far, for processes that do not have this stream; close does that too."""
        self._writer.flush()

    @plain
    def sync(self) -> None:
        """Make durable what was put with `durable=False`."""
        self._writer.sync()

    @plain
    def close(self) -> None:
        """Publish everything and give the shards up."""
        self._writer.close()

    def live(self) -> Live:
        """The table with everything that was streamed into it."""
        return Live(self._ds)

    async def aput(self, data: Any, *, durable: bool | None = None) -> None:
        """`put`, awaited: any number may be under way, and they share log entries. Where it is cancelled the
        rows may be in or not.
        """
        with in_plain_words():
            await self._writer.aput(one_batch_of(data, None, self._ds.schema), durable=durable)

    async def adelete(self, keys: Any, *, durable: bool | None = None) -> None:
        """`delete`, awaited, as `aput` is."""
        with in_plain_words():
            await self._writer.adelete(self._keys(keys), durable=durable)

    async def aflush(self) -> None:
        """`flush`, awaited."""
        await in_thread(self.flush)

    async def aclose(self) -> None:
        """`close`, awaited."""
        await in_thread(self.close)

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.__exit__(kind, error, trace)

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await in_thread(self._writer.__exit__, kind, error, trace)


class Live:
    """A table with what is being streamed into it: base, published and, of streams open in this process, what
    is in memory. Every call looks anew.
    """

    def __init__(self, ds: LanceDataset) -> None:
        """Use `Table.live` or `Stream.live`."""
        self._ds = ds

    def __repr__(self) -> str:
        return f"Live({self._ds.uri!r})"

    def _now(self) -> Captured:
        store, session = self._ds._store, self._ds._session
        return capture(store, session, open_writers(store, session))

    @plain
    def scan(
        self, columns: Columns = None, where: Any = None, *, limit: int | None = None, offset: int = 0
    ) -> LiveScan:
        """Some rows and columns as of now, in no order that means anything; arguments as for `Table.scan`."""
        chosen = None if columns is None else arguments.columns("columns", columns)
        return LiveScan(LsmScan(self._now(), chosen, where, limit, offset))

    @plain
    def lookup(self, keys: Any, columns: Columns = None) -> Any:
        """The rows of some keys as a `pa.Table`: a list of values, or for a key of several columns a list of
        one list per column. Keys without a row give none.
        """
        chosen = None if columns is None else arguments.columns("columns", columns)
        now = self._now()
        parts = keys if len(now.schema.key) > 1 else [keys]
        return Lookup(now, chosen).find(list(parts))

    @plain
    def count(self, where: Any = None) -> int:
        """How many rows there are, or pass a predicate."""
        return LsmScan(self._now(), [], where).count()

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        return True

    @plain
    def to_arrow(self) -> Any:
        """Everything, as a `pa.Table`."""
        return LsmScan(self._now()).table()

    @plain
    def search(
        self,
        vector: Any,
        *,
        column: str,
        k: int = 10,
        columns: Columns = None,
        where: Any = None,
        metric: str | None = None,
    ) -> Any:
        """The `k` nearest rows among those that count and pass the predicate, exact, with `_distance`."""
        from tiltyard.table.nearest.query import Nearest

        chosen = None if columns is None else arguments.columns("columns", columns)
        asked = Nearest(arguments.text("column", column), vector, arguments.whole("k", k, 1), metric)
        return nearest_rows(self._now(), asked, chosen, where)

    async def alookup(self, keys: Any, columns: Columns = None) -> Any:
        """`lookup`, awaited."""
        return await in_thread(self.lookup, keys, columns)

    async def acount(self, where: Any = None) -> int:
        """`count`, awaited."""
        return await in_thread(self.count, where)

    async def ato_arrow(self) -> Any:
        """`to_arrow`, awaited."""
        return await in_thread(self.to_arrow)


class LiveScan:
    """Some rows and columns of a live table at one moment, not yet read."""

    def __init__(self, scan: LsmScan) -> None:
        self._scan = scan

    @property
    def schema(self) -> Any:
        """The `pa.Schema` of the result."""
        return self._scan.schema

    @plain
    def to_arrow(self) -> Any:
        """Everything, as a `pa.Table`."""
        return self._scan.table()

    def batches(self) -> Iterator[Any]:
        """`pa.RecordBatch`es one after another."""
        return self._scan.batches()

    def __iter__(self) -> Iterator[Any]:
        return self.batches()

    @plain
    def count(self) -> int:
        """How many rows."""
        return self._scan.count()

    def to_pandas(self) -> Any:
        """Everything, as a `pandas.DataFrame`."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """Everything, as a `polars.DataFrame`."""
        import polars

        return polars.from_arrow(self.to_arrow())


def open_stream(ds: LanceDataset, shards: int | None, options: Mapping[str, Any]) -> Stream:
    """A stream into a table, which is made one that can be streamed into if it is not yet."""
    if ds.mem_wal_index_details() is None:
        ds.checkout_latest()
    if ds.mem_wal_index_details() is None:
        _begin(ds, shards)
    return Stream(ds, options)


def _begin(ds: LanceDataset, shards: int | None) -> None:
    key = [each.name for each in ds._snapshot.schema.primary_key]
    if shards is None:
        sharding: dict[str, Any] = {"unsharded": True}
    elif not key:
        raise InvalidInput("rows without a key cannot be shared out among shards: leave `shards` out")
    else:
        sharding = {"bucket_column": key[0], "num_buckets": arguments.whole("shards", shards, 1)}
    try:
        ds.initialize_mem_wal(**sharding)
    except InvalidInput:
        ds.checkout_latest()  # somebody else was first, or it is what we were told
        if ds.mem_wal_index_details() is None:
            raise
