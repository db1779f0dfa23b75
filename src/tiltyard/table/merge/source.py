"""The rows that a merge brings: kept for as long as it may have to be planned again, in bounded memory.

A stream is read once. What is more than the session's `spill_bytes` goes to a scratch file, in pieces that
are mapped back as Arrow data; rows that the caller holds already are referred to, not copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.errors import InvalidInput, SchemaMismatch
from tiltyard.runtime.scratch import Scratch

if TYPE_CHECKING:
    from tiltyard.table.fit import Fit

PIECE_BYTES = 4 << 20
"""Rows gathered before they are written to the scratch file together."""

PIECE_ROWS = 1 << 16
MANY_BATCHES = 256
"""More batches than this, with fewer than `FEW_ROWS` rows on average, are joined into one."""

FEW_ROWS = 4096

Ints = npt.NDArray[np.int64]


class SourceRows(Protocol):
    """Rows that a merge brings, by number: of a `Source`, or of whatever keeps them elsewhere."""

    schema: Any
    """The `pa.Schema` of all batches."""
    rows: int

    @property
    def is_spilled(self) -> bool: ...
    def batches(self) -> Iterator[Any]: ...
    def in_order(self, rows: Ints) -> Iterator[Any]: ...
    def take(self, rows: Ints, columns: Sequence[str] | None = None) -> Any: ...


class Source:
    """Rows in the order they came, as `pa.RecordBatch`es of one schema."""

    def __init__(self, schema: Any, batches: Sequence[Any], scratch: Scratch | None = None) -> None:
        self.schema = schema
        self._batches = list(batches)
        self._scratch = scratch
        ends = np.cumsum([batch.num_rows for batch in self._batches], dtype=np.int64)
        self.rows = int(ends[-1]) if len(ends) else 0
        self._starts: Ints = np.concatenate([np.zeros(1, np.int64), ends])

    @classmethod
    def of(cls, schema: Any, batches: Iterable[Any], *, held: bool, spill_bytes: int) -> Source:
        """Take in all rows. `held`: the caller holds them in memory, so that keeping them costs nothing."""
        kept: list[Any] = []
        size = 0
        waiting = iter(batches)
        for given in waiting:
            if not given.num_rows:
                continue
            batch = _conformed(given, schema)
            kept.append(batch)
            size += 0 if held else batch.nbytes
            if size > spill_bytes:
                return cls._spilled(schema, kept, waiting)
        if len(kept) > MANY_BATCHES and sum(batch.num_rows for batch in kept) < len(kept) * FEW_ROWS:
            kept = _joined(kept, schema).to_batches()
        return cls(schema, kept)

    @classmethod
    def _spilled(cls, schema: Any, kept: list[Any], waiting: Iterator[Any]) -> Source:
        scratch = Scratch()
        places: list[tuple[int, int]] = []
        for piece in _pieces(schema, kept, waiting):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, schema) as writer:
                writer.write_table(piece)
            places.append(scratch.append([sink.getvalue()]))
        whole = scratch.map()
        batches = [
            batch
            for begin, size in places
            for batch in pa.ipc.open_stream(whole.slice(begin, size)).read_all().to_batches()
        ]
        return cls(schema, batches, scratch)

    @property
    def is_spilled(self) -> bool:
        """Whether the rows lie in a scratch file."""
        return self._scratch is not None

    def batches(self) -> Iterator[Any]:
        """All rows, in order."""
        return iter(self._batches)

    def in_order(self, rows: Ints) -> Iterator[Any]:
        """Some rows, ascending numbers (a number may repeat), as batches in this order."""
        bounds = np.searchsorted(rows, self._starts)
        for batch, start, (low, high) in zip(self._batches, self._starts, pairwise(bounds), strict=False):
            if high == low:
                continue
            if high - low == batch.num_rows and _is_run(rows[low:high]):
                yield batch
            else:
                yield batch.take(pa.array(rows[low:high] - start))

    def take(self, rows: Ints, columns: Sequence[str] | None = None) -> Any:
        """Rows by number, in any order, as one `pa.RecordBatch`."""
        batches = self._batches
        if columns is not None:
            batches = [batch.select(list(columns)) for batch in batches]
        if len(batches) == 1:
            return batches[0].take(pa.array(rows))
        holders = np.searchsorted(self._starts, rows, side="right") - 1
        order = np.argsort(holders, kind="stable")
        if not len(order):
            schema = self.schema if columns is None else pa.schema([self.schema.field(n) for n in columns])
            return pa.RecordBatch.from_pylist([], schema=schema)
        used = holders[order]
        bounds = [0, *(np.flatnonzero(np.diff(used)) + 1).tolist(), len(used)]
        parts = [
            batches[used[low]].take(pa.array(rows[order[low:high]] - self._starts[used[low]]))
            for low, high in pairwise(bounds)
        ]
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        try:
            joined = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
        except pa.ArrowInvalid as error:
            raise InvalidInput(
                f"rows of several source batches cannot be brought together: {error}; cast dictionaries "
                "to a wider index type"
            ) from error
        return joined if bool((back[1:] > back[:-1]).all()) else joined.take(pa.array(back))


class FittedSource:
    """The rows of a source in the types of a table; converted when they are asked for."""

    def __init__(self, source: SourceRows, fitted: Fit) -> None:
        self.source = source
        self.fit = fitted
        self._names = [source.schema.names[at] for at in fitted.sources]

    @property
    def rows(self) -> int:
        return self.source.rows

    def batches(self) -> Iterator[Any]:
        """All rows, in order. Raises `InvalidInput` for a null where the table allows none."""
        return map(self.fit.apply, self.source.batches())

    def in_order(self, rows: Ints) -> Iterator[Any]:
        """See `Source.in_order`."""
        return map(self.fit.apply, self.source.in_order(rows))

    def take(self, rows: Ints) -> Any:
        """See `Source.take`."""
        return self.fit.apply(self.source.take(rows))


def _conformed(batch: Any, schema: Any) -> Any:
    """The batch with exactly this schema. Raises `SchemaMismatch` where it has other columns or types."""
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    if set(batch.schema.names) != set(schema.names) or len(batch.schema) != len(schema):
        raise SchemaMismatch(
            f"a batch of the source has the columns {batch.schema.names}, the first one {schema.names}: give "
            "batches of one schema"
        )
    try:
        return batch.select(schema.names).cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise SchemaMismatch(f"a batch of the source is not of the first one's types: {error}") from error


def _joined(batches: list[Any], schema: Any) -> Any:
    """The batches as one table in one piece, where their dictionaries allow that."""
    table = pa.Table.from_batches(batches, schema)
    try:
        return table.combine_chunks()
    except pa.ArrowInvalid:
        return table


def _is_run(rows: Ints) -> bool:
    return bool((rows[1:] == rows[:-1] + 1).all())


def _pieces(schema: Any, kept: list[Any], waiting: Iterator[Any]) -> Iterator[Any]:
    """The batches, those kept first and given up one by one, gathered to pieces of about `PIECE_BYTES`."""
    held: list[Any] = []
    size = 0
    kept.reverse()
    while True:
        if kept:
            batch = kept.pop()
        else:
            found = next(waiting, None)
            if found is None:
                break
            batch = _conformed(found, schema)
        for at in range(0, batch.num_rows, PIECE_ROWS):
            part = batch.slice(at, PIECE_ROWS)
            held.append(part)
            size += part.nbytes
            if size >= PIECE_BYTES:
                yield _joined(held, schema)
                held, size = [], 0
    if held:
        yield _joined(held, schema)
