"""The order of rows by the values of columns, as a scan's `order_by` asks for, in bounded memory.

Rows that are alike keep their order. Floats are ordered as filters compare them: NaN of any sign is the
greatest, -0.0 equals 0.0. What is more than the budget is sorted in runs, put aside in a file without a name,
and merged: of every run a block is looked at, and what sorts before the first end of a block that has more
behind it is handed on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.errors import UnsupportedFeature
from tiltyard.runtime.scratch import Scratch
from tiltyard.table.dictionaries import united

BLOCK_BYTES = 1 << 20
"""Bytes of a run that a merge looks at at a time."""

BLOCK_ROWS = 1 << 16
TOP_ROWS = 1 << 16
"""Rows beyond those that a limit keeps, after which the others are let go; where the limit keeps more than
that, as many again, so that those are not sorted over and over."""

_NAN = np.iinfo(np.int64).max

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SortKey:
    """A column of the rows that are sorted, by its place among them."""

    column: int
    ascending: bool = True
    nulls_first: bool = False


def sort_order(columns: Sequence[Any], keys: Sequence[SortKey]) -> Positions:
    """Row numbers of arrays of one length in the order of the keys, the weightiest first."""
    import pyarrow.compute as pc

    order = np.arange(len(columns[keys[0].column]), dtype=np.int64)
    # Least weighty key first; each pass keeps the order of the one before.
    for key in reversed(keys):
        column = _comparable(columns[key.column])
        if key is not keys[-1]:
            column = column.take(pa.array(order))
        picked = pc.array_sort_indices(
            column,
            order="ascending" if key.ascending else "descending",
            null_placement="at_start" if key.nulls_first else "at_end",
        )
        order = order[picked.to_numpy()]
    return order


def check_sortable(fields: Iterable[Any]) -> None:
    """Raise `UnsupportedFeature` for a `pa.Field` whose values have no order."""
    for field in fields:
        kind = field.type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if pa.types.is_nested(kind):
            raise UnsupportedFeature(
                f"order_by: the values of column {field.name!r} ({field.type}) have no order here; order by "
                "a field of a struct, as in 'column.field', or sort the result"
            )


def _comparable(column: Any) -> Any:
    """An array that Arrow sorts as the values of this one are to be sorted."""
    kind = column.type
    if pa.types.is_floating(kind):
        wide = column.cast(pa.float64())
        values = wide.fill_null(0.0).to_numpy() + 0.0  # which makes -0.0 a 0.0
        bits = values.view(np.int64)
        ranks = np.where(np.isnan(values), _NAN, bits ^ ((bits >> 63) & _NAN))
        return pa.array(ranks, mask=wide.is_null().to_numpy() if wide.null_count else None)
    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks()
    return column


class RowSorter:
    """Takes batches of rows in any order; `sorted` gives all of them, or the first `keep`, in order.

    Holds about `spill_bytes` of them, and as much again while it sorts.
    """

    def __init__(
        self, schema: Any, keys: Sequence[SortKey], *, spill_bytes: int, keep: int | None = None
    ) -> None:
        check_sortable(schema.field(key.column) for key in keys)
        self._schema = schema
        self._keys = keys
        self._room = max(1, spill_bytes)
        self._keep = keep
        self._bound: Any = None
        """The weightiest key of the last row that is kept: what comes behind it is not."""
        self._held: list[Any] = []
        self._rows = self._nbytes = 0
        self._scratch: Scratch | None = None
        self._runs: list[list[tuple[int, int]]] = []

    def add(self, batch: Any) -> None:
        """Take some rows: a `pa.RecordBatch` of the schema."""
        if self._bound is not None:
            batch = self._within(batch, self._bound)
        self._held.append(batch)
        self._rows += batch.num_rows
        self._nbytes += batch.nbytes
        if self._keep is not None and self._rows > self._keep + max(TOP_ROWS, self._keep):
            self._cut(self._keep)
        if self._nbytes > self._room:
            self._put_aside()

    @property
    def is_spilled(self) -> bool:
        """Whether rows lie in a scratch file."""
        return self._scratch is not None

    def sorted(self) -> Iterator[Any]:
        """The rows in order, as `pa.Table`s; the sorter is empty then."""
        last = self._taken()
        if self._scratch is None:
            yield last
            return
        mapped = self._scratch.map()
        sources = [self._run(mapped, places) for places in self._runs]
        yield from self._merged([*sources, iter([last])])

    def _cut(self, keep: int) -> None:
        """Let go of the rows that a limit cannot give."""
        table = self._taken()
        self._hold(table.to_batches())
        column = table.column(self._keys[0].column)
        if keep and not pa.types.is_dictionary(column.type):
            bound = _comparable(column.slice(keep - 1, 1))[0]
            self._bound = bound if bound.is_valid else None

    def _within(self, batch: Any, bound: Any) -> Any:
        import pyarrow.compute as pc

        key = self._keys[0]
        compare = pc.less_equal if key.ascending else pc.greater_equal
        return batch.filter(compare(_comparable(batch.column(key.column)), bound).fill_null(key.nulls_first))

    def _hold(self, batches: list[Any]) -> None:
        self._held = batches
        self._rows = sum(batch.num_rows for batch in batches)
        self._nbytes = sum(batch.nbytes for batch in batches)

    def _taken(self) -> Any:
        """What is held, in order and cut to what is kept; nothing is held then."""
        table = united(pa.Table.from_batches(self._held, self._schema)).combine_chunks()
        self._hold([])
        if not table.num_rows:
            return table
        order = sort_order(table.columns, self._keys)
        return table.take(pa.array(order[: self._keep]))

    def _put_aside(self) -> None:
        nbytes = self._nbytes
        table = self._taken()
        if not table.num_rows:
            return
        if self._scratch is None:
            self._scratch = Scratch()
        rows = min(BLOCK_ROWS, max(1, BLOCK_BYTES * table.num_rows // max(1, nbytes)))
        places = []
        for start in range(0, table.num_rows, rows):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, self._schema) as writer:
                writer.write_table(table.slice(start, rows).combine_chunks())
            places.append(self._scratch.append([sink.getvalue()]))
        self._runs.append(places)

    def _run(self, mapped: Any, places: list[tuple[int, int]]) -> Iterator[Any]:
        for begin, size in places:
            yield pa.ipc.open_stream(mapped.slice(begin, size)).read_all()

    def _merged(self, sources: list[Iterator[Any]]) -> Iterator[Any]:
        blocks: list[Any] = [next(source, None) for source in sources]
        while True:
            for at, block in enumerate(blocks):
                if block is not None and not block.num_rows:
                    blocks[at] = next(sources[at], None)
            live = [at for at, block in enumerate(blocks) if block is not None and block.num_rows]
            if not live:
                return
            if len(live) == 1:
                yield blocks[live[0]]
                blocks[live[0]] = next(sources[live[0]], None)
                continue
            ends = np.cumsum([blocks[at].num_rows for at in live])
            rows = united(pa.concat_tables([blocks[at] for at in live]))
            order = sort_order(rows.columns, self._keys)
            place = np.empty(len(order), np.int64)
            place[order] = np.arange(len(order))
            # Behind the last row of a block there may be rows that come right after it.
            ready = order[: int(place[ends - 1].min()) + 1]
            yield rows.take(pa.array(ready))
            taken = np.bincount(np.searchsorted(ends, ready, side="right"), minlength=len(live))
            for at, count in zip(live, taken.tolist(), strict=True):
                blocks[at] = blocks[at].slice(count)
