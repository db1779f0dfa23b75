"""Scans of a streamed table: base, SSTables and memory as one (MemWAL, section 6).

Rows come in no order that means anything: newest sources first. Only columns that are asked for, or that the
filter names, are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.errors import InvalidInput, UnsupportedFeature
from tiltyard.expr import bind_predicate
from tiltyard.expr.arrays import values_of
from tiltyard.expr.equals_number import equals_number
from tiltyard.format.schema import Schema
from tiltyard.memwal.lookup import found_row, found_rows, projection_of, pruned
from tiltyard.memwal.winners import Chosen
from tiltyard.table.plan import DEFAULT_BATCH_ROWS
from tiltyard.table.projection import ROW_ADDRESS, ColumnsLike, readable_schema
from tiltyard.table.row_counts import live_rows
from tiltyard.table.scan import Scan, ScanRequest
from tiltyard.table.system_columns import FRAGMENT_SHIFT
from tiltyard.table.unit_reader import batch_of, output_column

if TYPE_CHECKING:
    from tiltyard.format.field import Field
    from tiltyard.memwal.capture import Captured
    from tiltyard.table.snapshot import Snapshot

GENERATION = "_memtable_gen"
"""Pseudo column: the generation that a row comes from (uint64), 0 for the base."""

MAX_KEYS = 1024
"""Of a filter that names so many keys the rows are looked up; for more everything is read."""

MAX_PARTS = 8
"""Ranges of a batch up to which its rows are given as parts of it instead of being copied."""

WORD = (1 << 64) - 1
"""A word of all ones: what makes a negative number the word that it is kept as."""

_PSEUDO = {GENERATION: pa.field(GENERATION, pa.uint64())}


class LsmScan:
    """A scan bound to a captured table. Raises on construction what is wrong with the request; reads nothing.

    `columns`: names and dotted paths, or a map of names to SQL; `_memtable_gen` and `_rowaddr` (null beside
    the base) may be named too. `where`: SQL text or an Arrow expression, asked of the rows that count.
    """

    def __init__(
        self,
        captured: Captured,
        columns: ColumnsLike = None,
        where: Any = None,
        limit: int | None = None,
        offset: int = 0,
        *,
        row_address: bool = False,
        generation: bool = False,
        batch_rows: int = DEFAULT_BATCH_ROWS,
    ) -> None:
        if (limit is not None and limit < 0) or offset < 0:
            raise InvalidInput(f"limit and offset must not be negative, found {limit} and {offset}")
        self.captured = captured
        self._where, self._limit, self._offset = where, limit, offset
        self._batch_rows = batch_rows
        table = captured.base.schema
        wanted = _with_generation(columns, table, generation)
        self._projection = projection_of(captured, wanted, row_address=row_address, found=_PSEUDO)
        for name in self._projection.system:
            if name not in (GENERATION, ROW_ADDRESS):
                raise UnsupportedFeature(
                    f"rows of a streamed table have no {name!r} before they reach the base"
                )
        self._predicate = None
        self._key = None if where is None else key_asked(captured, where)
        """The one key that is asked for, where the filter says no more."""
        if where is not None and self._key is None:
            self._predicate = bind_predicate(where, readable_schema(table, "", {}))
        tested = () if self._predicate is None else tuple(path[0] for path in self._predicate.paths)
        names = tuple(dict.fromkeys((*[each.name for each in self._projection.fields], *tested)))
        self._fields: tuple[Field, ...] = captured.schema.kept(
            ("fields", names), lambda: tuple([table.field((name,)) for name in names])
        )

    @property
    def schema(self) -> Any:
        """The `pa.Schema` of the result."""
        return self._projection.schema

    def table(self) -> Any:
        """All rows as one `pa.Table`."""
        return pa.Table.from_batches(list(self.batches()), self.schema)

    def batches(self) -> Iterator[Any]:
        """Rows as `pa.RecordBatch`es, never empty."""
        skip, left = self._offset, self._limit
        for batch in self._all():
            if skip >= batch.num_rows:
                skip -= batch.num_rows
                continue
            cut = batch.slice(skip, batch.num_rows if left is None else min(left, batch.num_rows))
            skip = 0
            if cut.num_rows:
                yield cut
            if left is not None:
                left -= cut.num_rows
                if left <= 0:
                    return

    def count(self) -> int:
        """How many rows the scan gives."""
        if self._where is not None:
            bare = LsmScan(self.captured, [], self._where)
            found = sum(batch.num_rows for batch in bare._all())
        else:
            winners = self.captured.winners
            found = winners.rows + Scan(self.captured.base).count() - len(winners.shadowed)
        found = max(0, found - self._offset)
        return found if self._limit is None else min(found, self._limit)

    # -- sources ---------------------------------------------------------------------------------

    def _all(self) -> Iterator[Any]:
        if self._limit == 0:
            return
        if self._key is not None:
            yield from self._of_key(self._key)
            return
        asked = self._keys_asked()
        if asked is not None:
            yield from self._of_keys(*asked)
            return
        winners = self.captured.winners
        for chosen in winners.levels:
            if chosen.rows.any():
                yield from self._of_level(chosen)
        yield from self._of_base(winners.shadowed)

    def _of_key(self, key: int) -> Iterator[Any]:
        """The row of one key."""
        word = np.uint64(key & WORD)
        for piece in found_row(self.captured, word, self._fields, lambda: keys_of(self.captured, [key])):
            yield self._with_system(piece.batch, piece.generation, piece.addresses)

    def _keys_asked(self) -> tuple[Any, bool] | None:
        """The keys outside which no row passes the filter, and whether all rows of theirs do; None where it
        does not say, or they are many.
        """
        key = self.captured.schema.key
        if self._predicate is None or len(key) != 1:
            return None
        from tiltyard.expr.index_query import AllOf, ColumnQuery, index_query

        asked = index_query(self._predicate, [(key[0],)])
        parts = asked.items if isinstance(asked, AllOf) else (asked,)
        for part in parts:
            if not isinstance(part, ColumnQuery) or part.ranges or part.nulls:
                continue
            if 0 < len(part.values) <= MAX_KEYS:
                return keys_of(self.captured, list(part.values)), part is asked and part.is_exact
        return None

    def _of_keys(self, keys: Any, is_exact: bool) -> Iterator[Any]:
        """The rows of these keys that pass the filter, as all do where it is exact."""
        from tiltyard.expr import mask

        for piece in found_rows(self.captured, [keys], self._fields):
            kept, addresses = piece.batch, piece.addresses
            if not is_exact and self._predicate is not None:
                passes = mask(self._predicate, piece.batch)
                if not passes.any():
                    continue
                kept = _where(piece.batch, passes)
                if addresses is not None:
                    addresses = addresses.filter(pa.array(passes))
            yield self._with_system(kept, piece.generation, addresses)

    def _with_system(self, batch: Any, generation: int, addresses: Any = None) -> Any:
        """The output of rows of one source, with the pseudo columns that are asked for."""
        if not self._projection.system:
            return self._output(batch, {})
        rows = batch.num_rows
        if addresses is None:
            addresses = pa.nulls(rows, pa.uint64())
        generations = pa.array(np.full(rows, generation, np.uint64))
        return self._output(batch, {GENERATION: generations, ROW_ADDRESS: addresses})

    def _of_level(self, chosen: Chosen) -> Iterator[Any]:
        start = 0
        for batch in chosen.level.batches(self._fields):
            counts = chosen.rows[start : start + batch.num_rows]
            start += batch.num_rows
            kept = _where(batch, counts)
            if kept.num_rows and self._predicate is not None:
                from tiltyard.expr import mask

                kept = _where(kept, mask(self._predicate, kept))
            if kept.num_rows:
                yield self._with_system(kept, chosen.level.generation)

    def _of_base(self, shadowed: npt.NDArray[np.uint64]) -> Iterator[Any]:
        fragments = _read_of(self.captured.base, shadowed)
        if fragments is not None and not fragments:
            return
        request = ScanRequest(
            columns=[each.name for each in self._fields],
            where=self._where,
            row_address=True,
            batch_rows=self._batch_rows,
            fragments=fragments,
        )
        for batch in Scan(self.captured.base, request).batches():
            for kept in _without(batch, shadowed):
                if kept.num_rows:
                    yield self._with_system(kept, 0, kept.column(kept.num_columns - 1))

    def _output(self, batch: Any, system: dict[str, Any]) -> Any:
        if self._projection.direct and batch.schema.equals(self.schema, True):
            return batch
        arrays = [batch.column(each.name) for each in self._projection.fields]
        arrays = [
            pruned(array, field.arrow_type)
            for array, field in zip(arrays, self._projection.fields, strict=True)
        ]
        if self._projection.direct and arrays:
            return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        scope = batch if self._projection.has_expressions else None
        columns = [output_column(each, arrays, system, scope) for each in self._projection.outputs]
        return batch_of(columns, self.schema, batch.num_rows)


def key_asked(captured: Captured, where: Any) -> int | None:
    """The key that a filter asks for which says `key = number` and no more; None where it says something
    else, or the key is no integer, or not the newest row of a key counts.
    """
    schema = captured.schema
    if schema.functions is not None or len(schema.key) != 1 or not isinstance(where, str):
        return None
    asked = equals_number(where)
    if asked is None or asked[0] != schema.key[0]:
        return None
    known: tuple[int, int] = schema.kept("numbers of the key", lambda: _numbers(captured))
    return asked[1] if known[0] <= asked[1] <= known[1] else None


def _numbers(captured: Captured) -> tuple[int, int]:
    """The least and the greatest number that a key may be; none where the key is no integer, or where filters
    mean something else by its name.
    """
    from tiltyard.expr.types import Column, Compare

    (name,) = captured.schema.key
    table = captured.base.schema
    kind = table.field((name,)).arrow_type
    node = bind_predicate(f"{name} = 0", readable_schema(table, "", {})).node
    if pa.types.is_integer(kind) and isinstance(node, Compare) and node.left == Column((name,), kind):
        info = np.iinfo(kind.to_pandas_dtype())
        return int(info.min), int(info.max)
    return 0, -1


def keys_of(captured: Captured, values: Sequence[Any]) -> Any:
    """Values as an array of the key's type, where that is one column, without those that no key can be."""
    (name,) = captured.schema.key
    kind = captured.base.schema.field((name,)).arrow_type

    def made(some: Sequence[Any]) -> Any:
        try:
            return pa.array(some, kind)
        except (pa.ArrowInvalid, OverflowError):
            return None

    found = made(values)
    return made([each for each in values if made([each]) is not None]) if found is None else found


def _with_generation(columns: ColumnsLike, table: Schema, wanted: bool) -> ColumnsLike:
    if not wanted:
        return columns
    if columns is None:
        return [*table.names, GENERATION]
    if isinstance(columns, dict):
        return {**columns, GENERATION: GENERATION}
    return [*columns, GENERATION]


def _where(batch: Any, keep: npt.NDArray[np.bool_]) -> Any:
    return batch if keep.all() else batch.filter(pa.array(keep))


def _read_of(base: Snapshot, shadowed: npt.NDArray[np.uint64]) -> list[int] | None:
    """Ids of the fragments that have rows beside those that are shadowed; None for all."""
    live = live_rows(base)
    ids = np.asarray(base.fragments.ids).astype(np.uint64)
    bounds = shadowed.searchsorted(np.stack([ids, ids + np.uint64(1)]) << np.uint64(FRAGMENT_SHIFT))
    rest = live > bounds[1] - bounds[0]
    return None if len(rest) and rest.all() else ids[rest].tolist()


def _without(batch: Any, gone: npt.NDArray[np.uint64]) -> Iterator[Any]:
    """The rows of a batch, whose last column is their addresses, that are not gone; where few ranges of it
    stay, these as they are.
    """
    addresses = values_of(batch.column(batch.num_columns - 1))
    low, high = gone.searchsorted((addresses.min(), addresses.max())) if len(addresses) else (0, 0)
    inside = gone[low : high + 1]
    if not len(inside):
        yield batch
        return
    if not bool((addresses[1:] > addresses[:-1]).all()):
        yield _where(batch, _absent(addresses, inside))
        return
    at = addresses.searchsorted(inside)
    at = at[at < len(addresses)]
    at = at[addresses[at] == inside[: len(at)]]
    after = np.flatnonzero(np.diff(at) > 1)  # where a range that stays begins
    if len(after) >= MAX_PARTS:
        keep = np.ones(len(addresses), np.bool_)
        keep[at] = False
        yield _where(batch, keep)
        return
    starts = [0, *(at[after] + 1).tolist(), *(at[-1:] + 1).tolist()]
    ends = [*at[:1].tolist(), *at[after + 1].tolist(), len(addresses)]
    for start, end in zip(starts, ends, strict=True):
        yield batch.slice(start, end - start)


def _absent(addresses: npt.NDArray[np.uint64], gone: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    at = np.searchsorted(gone, addresses)
    at[at == len(gone)] = len(gone) - 1
    absent: npt.NDArray[np.bool_] = gone[at] != addresses
    return absent
