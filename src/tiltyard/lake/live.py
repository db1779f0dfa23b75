"""A table with what is being streamed into it, in plain words."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from tiltyard.dataset import arguments
from tiltyard.dataset.json_text import shown_batches, shown_schema, shown_table
from tiltyard.dataset.packages import frame_of, polars_of
from tiltyard.errors import OutcomeUnknown, ShardError, WrongType
from tiltyard.lake.given import keys_given
from tiltyard.lake.scan import vector_column
from tiltyard.lake.words import plain
from tiltyard.memwal.capture import Captured, capture
from tiltyard.memwal.lookup import Lookup
from tiltyard.memwal.nearest import NearestScan
from tiltyard.memwal.scan import LsmScan
from tiltyard.memwal.stream import open_writers
from tiltyard.runtime.awaiting import in_thread
from tiltyard.table.nearest.query import DEFAULT_K, Nearest

if TYPE_CHECKING:
    from tiltyard.dataset import LanceDataset

Columns = Sequence[str] | Mapping[str, str] | None

MAX_LOOKS = 16
"""How often a table is looked at again because a stream of this process ended meanwhile."""

HEAD_ROWS = 10


class Live:
    """A table with what is being streamed into it: base, what was published and, of streams open in this
    process, what is in memory. Every call looks anew; `scan` gives one moment that stays.

    What another process has made durable is seen too, and what one that died has left: it is read from the
    logs of their shards. A table that nobody streams into is read as it is. May be pickled.
    """

    def __init__(self, ds: LanceDataset) -> None:
        """Use `Table.live` or `Stream.live`."""
        self._ds = ds

    def __repr__(self) -> str:
        return f"Live({self._ds.uri!r})"

    def _now(self) -> Captured:
        store, session = self._ds._store, self._ds._session
        for _ in range(MAX_LOOKS):
            try:
                return capture(store, session, open_writers(store, session), with_logs=True)
            except (ShardError, OutcomeUnknown):
                continue  # a stream of ours was ended: what it published, and its successor, are looked at
        return capture(store, session, open_writers(store, session), with_logs=True)

    @property
    def schema(self) -> Any:
        """The `pa.Schema`."""
        return self._ds.schema

    @plain
    def scan(
        self,
        columns: Columns = None,
        where: Any = None,
        limit: int | None = None,
        offset: int | None = None,
        **others: Any,
    ) -> LiveScan:
        """Some rows and columns as of now, in no order that means anything: `columns`, `where`, `limit` and
        `offset` as for `Table.scan`. Its other options are refused (`InvalidInput`).
        """
        _refuse_others("scan", others)
        asked = {"columns": columns, "where": where, "limit": limit, "offset": offset}
        chosen = None if columns is None else arguments.columns("columns", columns)
        count = arguments.maybe_whole("limit", limit)
        skipped = arguments.maybe_whole("offset", offset) or 0
        return LiveScan(LsmScan(self._now(), chosen, where, count, skipped), self._ds.uri, asked)

    @plain
    def lookup(self, keys: Any, columns: Columns = None) -> Any:
        """The rows of some keys as a `pa.Table`: of one value, or several in a list, array or series; of a
        key of several columns tuples, or dicts. Keys without a row give none; the order means nothing.
        """
        chosen = None if columns is None else arguments.columns("columns", columns)
        now = self._now()
        asked = keys_given(keys, now.base.schema)
        return shown_table(Lookup(now, chosen).find([asked.column(name) for name in now.schema.key]))

    @plain
    def count(self, where: Any = None) -> int:
        """How many rows there are, or pass a predicate."""
        return LsmScan(self._now(), [], where).count()

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        return True

    @plain
    def search(
        self,
        vector: Any,
        column: str | None = None,
        k: int = DEFAULT_K,
        *,
        where: Any = None,
        columns: Columns = None,
        metric: str | None = None,
        distance_range: tuple[float | None, float | None] | None = None,
        **others: Any,
    ) -> LiveScan:
        """The `k` nearest rows among those that count and pass the predicate as of now, nearest first, with
        `_distance`; exact. Arguments as for `Table.search`, but one vector at a time.
        """
        _refuse_others("search", others)
        chosen = None if columns is None else arguments.columns("columns", columns)
        named = vector_column(self.schema, self._ds.uri) if column is None else column
        low, high = (None, None) if distance_range is None else distance_range
        wanted = arguments.whole("k", k, 1)
        asked = Nearest(arguments.text("column", named), vector, wanted, metric, low, high)
        told = {"columns": columns, "where": where, "nearest": f"{wanted} in {named!r}"}
        return LiveScan(NearestScan(self._now(), asked, chosen, where), self._ds.uri, told)

    def head(self, rows: int = HEAD_ROWS, columns: Columns = None) -> Any:
        """Some rows, as a `pa.Table`."""
        return self.scan(columns, limit=arguments.whole("rows", rows)).to_arrow()

    def to_arrow(self) -> Any:
        """Everything, as a `pa.Table`."""
        return self.scan().to_arrow()

    def to_pandas(self) -> Any:
        """Everything, as a `pandas.DataFrame`."""
        return self.scan().to_pandas()

    def to_polars(self) -> Any:
        """Everything, as a `polars.DataFrame`."""
        return self.scan().to_polars()

    def batches(self) -> Iterator[Any]:
        """Everything as of now, as `pa.RecordBatch`es one after another: see `LiveScan.batches`."""
        return self.scan().batches()

    def __iter__(self) -> Iterator[Any]:
        return self.batches()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.scan().__arrow_c_stream__(requested_schema)

    async def alookup(self, keys: Any, columns: Columns = None) -> Any:
        """`lookup`, awaited."""
        return await in_thread(self.lookup, keys, columns)

    async def acount(self, where: Any = None) -> int:
        """`count`, awaited."""
        return await in_thread(self.count, where)

    async def asearch(
        self, vector: Any, column: str | None = None, k: int = DEFAULT_K, **asked: Any
    ) -> LiveScan:
        """`search`, awaited; read it by `ato_arrow`, or by `async for`."""
        return await in_thread(self.search, vector, column, k, **asked)

    async def ascan(self, columns: Columns = None, where: Any = None, **asked: Any) -> LiveScan:
        """`scan`, awaited; read it by `async for`."""
        return await in_thread(self.scan, columns, where, **asked)

    async def ato_arrow(self) -> Any:
        """`to_arrow`, awaited."""
        return await in_thread(self.to_arrow)


_OF_TABLES = {
    "order_by": "rows of a live scan come in no order: sort what to_arrow() gives, or drain() the table and "
    "scan it",
    "blob_bytes": "tables with blobs are not streamed into: scan the table itself",
}
"""Options of a table's scan that a live one has not, and what to do."""


def _refuse_others(what: str, others: Mapping[str, Any]) -> None:
    for name in others:
        why = _OF_TABLES.get(name) if what == "scan" else None
        if why is None:
            raise WrongType(f"live().{what} has no option {name!r}")
        raise WrongType(f"live().{what} does not take {name}: {why}")


class LiveScan:
    """Some rows and columns of a live table at one moment, not yet read. It may be read repeatedly, and gives
    the same rows each time; iterating it (`for`, `async for`) gives its batches.
    """

    def __init__(self, scan: LsmScan | NearestScan, uri: str, asked: Mapping[str, Any]) -> None:
        """Use `Live.scan` or `Live.search`."""
        self._scan = scan
        self._uri = uri
        self._asked = asked

    def __reduce__(self) -> NoReturn:
        raise WrongType(
            "a LiveScan is neither pickled nor copied: it is one moment of this process's memory. Ask "
            "table.live() for a scan where it is to be read, or send what to_arrow() gives"
        )

    def __repr__(self) -> str:
        told = [
            f"{name}={value if name == 'nearest' else repr(value)}"
            for name, value in self._asked.items()
            if value is not None
        ]
        version = f"version={self._scan.captured.base.version}"
        return f"LiveScan({', '.join([repr(self._uri), version, *told])})"

    @property
    def schema(self) -> Any:
        """The `pa.Schema` of the result."""
        return shown_schema(self._scan.schema)

    @plain
    def to_arrow(self) -> Any:
        """Everything, as a `pa.Table`."""
        return shown_table(self._scan.table())

    def to_pandas(self) -> Any:
        """Everything, as a `pandas.DataFrame`."""
        return frame_of(self.to_arrow())

    def to_polars(self) -> Any:
        """Everything, as a `polars.DataFrame`."""
        return polars_of(self.to_arrow())

    def batches(self) -> Iterator[Any]:
        """`pa.RecordBatch`es one after another. In memory are one batch of the base, and the keys of what
        was streamed and is not in the base yet.
        """
        return shown_batches(self._scan.batches())

    def __iter__(self) -> Iterator[Any]:
        return self.batches()

    async def __aiter__(self) -> AsyncIterator[Any]:
        batches = self.batches()
        while (batch := await in_thread(next, batches, None)) is not None:
            yield batch

    @plain
    def count(self) -> int:
        """How many rows."""
        return self._scan.count()

    def explain(self) -> str:
        """What will be read, as text: the base's version, and by shard what is not in it yet."""
        now = self._scan.captured
        told = [repr(self), f"  base: version {now.base.version}"]
        for each in now.shards:
            generations = ", ".join(str(level.generation) for level in each.levels) or "none"
            told.append(f"  shard {each.shard_id}: generations {generations}")
        return "\n".join(told)

    async def ato_arrow(self) -> Any:
        """`to_arrow`, awaited."""
        return await in_thread(self.to_arrow)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        import pyarrow as pa

        reader = pa.RecordBatchReader.from_batches(self.schema, self.batches())
        return reader.__arrow_c_stream__(requested_schema)
