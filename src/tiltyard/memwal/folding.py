"""Rows of a key made one, column by column: the algebra of merge functions.

Pure; specified in docs/design/011-merge-functions.md. A *sequence* is rows in the order of the log, each with
the code of its key and whether it deletes. A row that deletes leaves nothing: only what comes after the last
one of a key is combined. To combine a part of a sequence first, and to keep that it held a delete, changes
nothing.

Invariants, and their tests in tests/memwal/test_folding.py:
1. The combined rows are those that putting the rows into a dictionary one after the other gives.
2. Any consecutive rows may be replaced by their `shortened` form (sums of floats: but for rounding).
3. No sequence fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.expr.arrays import plain, valid_of, values_of, words_of
from tiltyard.memwal.merge_functions import FIRST, KEEP, LAST, MIN, SUM

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Runs:
    """Which rows of a sequence are combined: of each key that has any, those after its last delete.

    `order`: their numbers, by key, in the sequence's order within one. `starts`: where each key's begin in
    `order`. `codes`: the keys' codes, ascending. `after_delete`: whether a row before them deletes, so that
    what is older than the sequence does not count for the key; `resets`: those rows, the last of each key.
    `deleted`: codes of keys whose last row deletes, ascending; `deletions`: those rows.
    """

    order: Ints
    starts: Ints
    codes: Ints
    after_delete: Bools
    resets: Ints
    deleted: Ints
    deletions: Ints

    def __len__(self) -> int:
        return len(self.starts)

    def pieces(self, count: int) -> Iterator[Runs]:
        """The runs in at most so many pieces of about as many rows each."""
        ends = np.append(self.starts[1:], len(self.order))
        wanted = np.linspace(0, len(self.order), count + 1)[1:]
        bounds = np.unique(np.searchsorted(ends, wanted) + 1).tolist()
        nothing = np.empty(0, np.int64)
        low = 0
        for high in (min(each, len(self)) for each in bounds):
            if high <= low:
                continue
            first, last = self.starts[low], ends[high - 1]
            yield Runs(
                self.order[first:last],
                self.starts[low:high] - first,
                self.codes[low:high],
                self.after_delete[low:high],
                nothing,
                nothing,
                nothing,
            )
            low = high

    def alone(self) -> Runs:
        """The same runs of a sequence that has only these rows, in this order."""
        return replace(self, order=np.arange(len(self.order)))


def runs(codes: npt.NDArray[Any], deletes: Bools) -> Runs:
    """The rows to combine of a sequence: `codes` of the keys (0 and up) and which rows delete."""
    rows = np.arange(len(codes), dtype=np.int64)
    distinct = int(codes.max()) + 1 if len(codes) else 0
    last_delete = np.full(distinct, -1, np.int64)
    deleting = rows[deletes]
    last_delete[codes[deleting]] = deleting  # ascending, so that the last one stays
    counting = rows[~deletes & (rows > last_delete[codes])]
    order = counting[np.argsort(codes[counting], kind="stable")]
    of_row = codes[order]
    first = np.ones(len(order), np.bool_)
    first[1:] = of_row[1:] != of_row[:-1]
    starts = np.flatnonzero(first)
    own = of_row[starts].astype(np.int64)
    resets = last_delete[own]
    after_delete = resets >= 0
    last_delete[own] = -1
    deleted = np.flatnonzero(last_delete >= 0)
    return Runs(order, starts, own, after_delete, resets[after_delete], deleted, last_delete[deleted])


def combined(rows: Any, which: Runs, functions: Sequence[str]) -> Any:
    """One row for each run, as a `pa.RecordBatch`. `rows`: the sequence as a `pa.Table`; a function for each
    of its columns.
    """
    columns = [_column(rows.column(at), function, which) for at, function in enumerate(functions)]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def shortened(rows: Any, codes: npt.NDArray[Any], deletes: Bools, functions: Sequence[str]) -> Any:
    """A shorter sequence that means the same, as a `pa.Table`: of each key its last row that deletes, if one
    does, before one that combines what came after it.
    """
    which = runs(codes, deletes)
    gone = np.sort(np.concatenate([which.resets, which.deletions]))
    made = combined(rows, which, functions)
    return pa.concat_tables([rows.take(pa.array(gone)), pa.Table.from_batches([made], rows.schema)])


def _column(column: Any, function: str, which: Runs) -> Any:
    if len(which) == len(which.order):  # a row each: nothing to combine
        return _taken(column, which.order)
    if function == LAST:
        return _taken(column, which.order[np.append(which.starts[1:], len(which.order)) - 1])
    if function == FIRST:
        return _taken(column, which.order[which.starts])
    part = _taken(column, which.order)
    if function == SUM:
        return _sums(part, which.starts)
    valid = valid_of(part)
    if function == KEEP:
        rows = np.arange(len(part), dtype=np.int64)
        picked = np.maximum.reduceat(rows if valid is None else np.where(valid, rows, -1), which.starts)
        return part.take(pa.array(picked, mask=picked < 0))
    return part.take(_extremes(part, valid, which.starts, function == MIN))


def _taken(column: Any, rows: Ints) -> Any:
    found = column.take(pa.array(rows))
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _extremes(part: Any, valid: Bools | None, starts: Ints, least: bool) -> Any:
    """The row of each run with the least or greatest value: NaN is above all numbers, null is no value."""
    import pyarrow.compute as pc

    values = plain(part)
    if pa.types.is_float16(values.type):
        values = values.cast(pa.float32())
    order = np.asarray(pc.sort_indices(values)).astype(np.int64)  # stable, NaN last, then null
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    none = len(order) if least else -1
    if valid is not None:
        ranks = np.where(valid, ranks, none)
    found = (np.minimum if least else np.maximum).reduceat(ranks, starts)
    return pa.array(order.take(found, mode="clip"), mask=found == none)


def _sums(part: Any, starts: Ints) -> Any:
    """The sum of each run, without nulls; null where there is nothing else. What leaves the type's range
    wraps around: of all rules only that one lets parts be summed first.
    """
    valid = valid_of(part)
    missing = None if valid is None else ~np.logical_or.reduceat(valid, starts)
    if pa.types.is_decimal(part.type):
        return _decimal_sums(part, valid, starts, missing)
    values = values_of(part)
    if valid is not None:
        nothing = values.dtype.type(-0.0 if values.dtype.kind == "f" else 0)  # -0.0 leaves the sign of zeros
        values = np.where(valid, values, nothing)
    with np.errstate(over="ignore", invalid="ignore"):
        sums = np.add.reduceat(values, starts, dtype=values.dtype)
    return pa.array(sums, part.type, mask=missing)


_WORD = 1 << 64


def _decimal_sums(part: Any, valid: Bools | None, starts: Ints, missing: Bools | None) -> Any:
    words = words_of(part)
    values = words[:, -1].view(np.int64).astype(object)
    for at in range(words.shape[1] - 2, -1, -1):
        values = values * _WORD + words[:, at].astype(object)
    if valid is not None:
        values = np.where(valid, values, 0)
    largest = 10**part.type.precision - 1
    sums = (np.add.reduceat(values, starts) + largest) % (2 * largest + 1) - largest
    made = np.empty((len(starts), words.shape[1]), np.uint64)
    for at in range(words.shape[1]):
        made[:, at] = (sums & (_WORD - 1)).astype(np.uint64)
        sums = sums >> 64
    validity = None if missing is None else pa.array(~missing).buffers()[1]
    return pa.Array.from_buffers(part.type, len(starts), [validity, pa.py_buffer(made)])
