"""The rows that a merge writes: moved ones with the values they take on, then inserted ones, as a stream in
bounded memory.

Where the source brings every column, its rows are written as they stand, in the source's order. Where it
brings some, or expressions say what to set, the rows of the table are read in the table's order and the
source's values are put into them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.expr import mask
from tiltyard.format.flags import uses_stable_row_ids
from tiltyard.format.schema import Field, Schema
from tiltyard.table.merge.bind import SOURCE, TARGET, Bound
from tiltyard.table.merge.plan import MergePlan, Pairs, by_fragment
from tiltyard.table.merge.source import FittedSource
from tiltyard.table.plan import DEFAULT_BATCH_ROWS, estimated_row_bytes, stream_unit_rows
from tiltyard.table.rewriting import among, every_row, scattered
from tiltyard.table.row_changes import NewRows
from tiltyard.table.touched_rows import TouchedRows, read_touched

if TYPE_CHECKING:
    from tiltyard.expr import Expr
    from tiltyard.table.snapshot import Snapshot

Bools = npt.NDArray[np.bool_]
Paths = Sequence[tuple[str, ...]]


# -- what expressions read ---------------------------------------------------------------------------


class Scope:
    """Batches of the structs `source` and `target` for pairs of rows, with the columns that `paths` name."""

    def __init__(self, bound: Bound, source: FittedSource, paths: Paths) -> None:
        self._source = source
        names = {path[1] for path in paths if path[0] == SOURCE and len(path) > 1}
        self._fitted = [field for field in bound.fit.schema.fields if field.name in names]
        self._extras = [name for name in bound.extras if name in names]
        self._raw = [source.source.schema.names[bound.names.index(name)] for name in self._extras]
        wanted = {path[1] for path in paths if path[0] == TARGET and len(path) > 1}
        self.fields = tuple(field for field in bound.schema.fields if field.name in wanted)

    def batch(self, rows: npt.NDArray[np.int64], target: Any) -> Any:
        """The scope for these source rows beside a batch with (at least) `fields` of the table."""
        arrays: list[Any] = []
        fields: list[Any] = []
        if self._fitted:
            taken = self._source.take(rows)
            for field in self._fitted:
                arrays.append(taken.column(field.name))
                fields.append(field.arrow_field)
        if self._raw:
            raw = self._source.source.take(rows, self._raw)
            for name, column in zip(self._extras, raw.columns, strict=True):
                arrays.append(column)
                fields.append(pa.field(name, column.type))
        there = [target.column(field.name) for field in self.fields]
        return pa.RecordBatch.from_arrays(
            [
                _struct(arrays, fields, len(rows)),
                _struct(there, [field.arrow_field for field in self.fields], len(rows)),
            ],
            names=[SOURCE, TARGET],
        )


def _struct(arrays: list[Any], fields: list[Any], rows: int) -> Any:
    if arrays:
        return pa.StructArray.from_arrays(arrays, fields=fields)
    return pa.StructArray.from_buffers(pa.struct([]), rows, [None], children=[])


def passing(snapshot: Snapshot, bound: Bound, source: FittedSource, pairs: Pairs, condition: Expr) -> Bools:
    """Which pairs fulfil the condition. Pairs are in address order; one row may be in several."""
    scope = Scope(bound, source, condition.paths)
    addresses, position = np.unique(pairs.addresses, return_inverse=True)
    if len(addresses) == len(pairs):
        return _tested(snapshot, scope, addresses, pairs.rows, condition)
    # Several source rows for one row of the table: one pair of each at a time.
    keep = np.zeros(len(pairs), np.bool_)
    first = np.flatnonzero(np.diff(position, prepend=-1))
    rank = np.arange(len(pairs)) - first[position]
    for each in range(int(rank.max(initial=-1)) + 1):
        at = np.flatnonzero(rank == each)
        keep[at] = _tested(snapshot, scope, pairs.addresses[at], pairs.rows[at], condition)
    return keep


def _tested(
    snapshot: Snapshot,
    scope: Scope,
    addresses: npt.NDArray[np.uint64],
    rows: npt.NDArray[np.int64],
    condition: Expr,
) -> Bools:
    keep = np.empty(len(addresses), np.bool_)
    start = 0
    for touched in read_touched(snapshot, by_fragment(addresses), scope.fields):
        stop = start + len(touched.offsets)
        keep[start:stop] = mask(condition, scope.batch(rows[start:stop], touched.batch))
        start = stop
    return keep


# -- rows --------------------------------------------------------------------------------------------


def new_rows(snapshot: Snapshot, bound: Bound, source: FittedSource, plan: MergePlan) -> Iterator[NewRows]:
    """Everything that the merge writes into new fragments."""
    if bound.updates is None and not bound.is_partial:
        yield from _whole(snapshot, source, plan)
        return
    if bound.updates is None:
        yield from _overlaid(snapshot, bound, source, plan.updated)
    else:
        yield from _assigned(snapshot, bound, source, plan.updated)
    yield from inserted_rows(source, plan)


def inserted_rows(source: FittedSource, plan: MergePlan) -> Iterator[NewRows]:
    """The inserted rows, with the columns that the source brings; the others are null."""
    for batch in source.in_order(plan.inserted):
        yield NewRows(batch)


def _whole(snapshot: Snapshot, source: FittedSource, plan: MergePlan) -> Iterator[NewRows]:
    if not uses_stable_row_ids(snapshot.manifest):
        # Nothing depends on which rows are moved: all of them in the source's order, mostly untouched.
        for batch in source.in_order(_sorted(plan.updated.rows, plan.inserted)):
            yield NewRows(batch)
        return
    rows, addresses = plan.updated.rows, plan.updated.addresses
    if not bool((rows[1:] >= rows[:-1]).all()):
        order = np.argsort(rows, kind="stable")
        rows, addresses = rows[order], addresses[order]
        del order
    start = 0
    for batch in source.in_order(rows):
        stop = start + batch.num_rows
        yield NewRows(batch, addresses[start:stop])
        start = stop
    yield from inserted_rows(source, plan)


def _sorted(rows: npt.NDArray[np.int64], more: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Both in order, without a copy where that is so already."""
    every = np.concatenate([rows, more.astype(rows.dtype, copy=False)]) if len(more) else rows
    return every if bool((every[1:] >= every[:-1]).all()) else np.sort(every)


def _overlaid(snapshot: Snapshot, bound: Bound, source: FittedSource, pairs: Pairs) -> Iterator[NewRows]:
    """Whole rows: the source's columns over the table's."""
    brought = {field.name: field for field in bound.fit.schema.fields}
    fields = snapshot.schema.fields
    read = tuple(field for field in fields if brought.get(field.name) != field)
    arrow = snapshot.schema.arrow
    start = 0
    for touched in _pieces(read_touched(snapshot, by_fragment(pairs.addresses), read), fields):
        stop = start + len(touched.offsets)
        taken = source.take(pairs.rows[start:stop])
        arrays = []
        for field in fields:
            mine = brought.get(field.name)
            if mine is None:
                arrays.append(touched.batch.column(field.name))
            elif mine == field:
                arrays.append(taken.column(field.name))
            else:
                arrays.append(
                    overlay(field, touched.batch.column(field.name), mine, taken.column(field.name))
                )
        yield NewRows(pa.RecordBatch.from_arrays(arrays, schema=arrow), touched.addresses)
        start = stop


def _pieces(rows: Iterable[TouchedRows], fields: Sequence[Field]) -> Iterator[TouchedRows]:
    """The rows in pieces that are small also when they have all of `fields`."""
    step = stream_unit_rows(estimated_row_bytes(fields), DEFAULT_BATCH_ROWS)
    for each in rows:
        if len(each.offsets) <= step:
            yield each
            continue
        for at in range(0, len(each.offsets), step):
            yield TouchedRows(each.fragment_id, each.offsets[at : at + step], each.batch.slice(at, step))


def overlay(field: Field, target: Any, part: Field, source: Any) -> Any:
    """A struct column with the fields that the source brings (`part`, a part of `field`) over the table's.

    Fields inside a struct that is null on one side are null; the result is null where both are.
    """
    there = _children(target)
    given = dict(zip((child.name for child in part.children), _children(source), strict=True))
    parts = {child.name: child for child in part.children}
    children = []
    for child, before in zip(field.children, there, strict=True):
        mine = parts.get(child.name)
        if mine is None:
            children.append(before)
        elif mine == child:
            children.append(given[child.name])
        else:
            children.append(overlay(child, before, mine, given[child.name]))
    mask_of = None
    if target.null_count and source.null_count:
        both = np.asarray(target.is_null()) & np.asarray(source.is_null())
        mask_of = pa.array(both) if both.any() else None
    fields = [child.arrow_field for child in field.children]
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask_of)


def _children(struct: Any) -> list[Any]:
    """The children of a struct array, null where it is."""
    if struct.null_count:
        return list(struct.flatten())
    return [struct.field(i) for i in range(struct.type.num_fields)]


def _assigned(snapshot: Snapshot, bound: Bound, source: FittedSource, pairs: Pairs) -> Iterator[NewRows]:
    """Whole rows: the table's, with what the expressions set."""
    updates = bound.updates
    assert updates is not None
    scope = Scope(bound, source, updates.paths)
    arrow = snapshot.schema.arrow
    start = 0
    for touched in read_touched(snapshot, by_fragment(pairs.addresses), snapshot.schema.fields):
        stop = start + len(touched.offsets)
        before = dict(zip(arrow.names, touched.batch.columns, strict=True))
        changed = updates.apply(before, scope.batch(pairs.rows[start:stop], touched.batch))
        arrays = [changed.get(name, before[name]) for name in arrow.names]
        yield NewRows(pa.RecordBatch.from_arrays(arrays, schema=arrow), touched.addresses)
        start = stop


# -- columns -----------------------------------------------------------------------------------------


def rewritten_columns(
    snapshot: Snapshot,
    bound: Bound,
    source: FittedSource,
    columns: Schema,
    fragment_id: int,
    offsets: npt.NDArray[np.uint32],
    rows: npt.NDArray[np.int64],
) -> Iterator[Any]:
    """The columns for all physical rows of a fragment, in order, with the values of the source rows `rows` at
    `offsets` (ascending).
    """
    fragment = snapshot.fragment(fragment_id)
    assert fragment is not None
    updates = bound.updates
    scope = None if updates is None else Scope(bound, source, updates.paths)
    names = set(columns.names)
    if scope is not None:
        names |= {field.name for field in scope.fields}
    read = tuple(field for field in snapshot.schema.fields if field.name in names)
    for touched in _pieces(read_touched(snapshot, every_row(fragment), read), source.fit.schema.fields):
        chosen, at = among(touched, offsets)
        before = [touched.batch.column(name) for name in columns.names]
        if len(at):
            some = rows[chosen]
            if updates is not None and scope is not None:
                picked = touched.batch.take(pa.array(at))
                held = dict(zip(picked.schema.names, picked.columns, strict=True))
                changed = updates.apply(held, scope.batch(some, picked))
                after = [changed[name] for name in columns.names]
            else:
                taken = source.take(some)
                after = [taken.column(name) for name in columns.names]
            before = [scattered(old, at, new) for old, new in zip(before, after, strict=True)]
        yield pa.RecordBatch.from_arrays(before, schema=columns.arrow)
