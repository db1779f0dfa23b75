"""A scan whose rows come in the order of columns: the rows and their keys are read side by side, sorted
within the session's budget, and cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tiltyard.table.scan import Scan
from tiltyard.table.sorting import RowSorter, SortKey, check_sortable

KEY_NAME = "\0key {}"
"""Names of key columns that are not in the result; no column has such a name."""


def sorted_rows(scan: Scan) -> Iterator[Any]:
    """The result of a scan with `order_by` as `pa.Table`s, limit and offset applied."""
    request = scan.request
    keep = None if request.limit is None else request.offset + request.limit
    if keep == 0:
        return
    schema, keys, batches = _rows_with_keys(scan)
    spill_bytes = scan.snapshot.session.limits.spill_bytes
    sorter = RowSorter(schema, keys, spill_bytes=spill_bytes // 2, keep=keep)
    for batch in batches:
        sorter.add(batch)
    width = len(scan.schema)
    skip, left = request.offset, request.limit
    for table in sorter.sorted():
        rows = table.slice(skip, left)
        skip = max(0, skip - table.num_rows)
        if left is not None:
            left -= rows.num_rows
        if rows.num_rows:
            yield _result(rows, width, scan.schema)
        if left == 0:
            return


def check_order(scan: Scan) -> None:
    """Raise what is wrong with a scan's `order_by`: a column that is not there, or that has no order."""
    check_sortable(_key_scan(scan).schema)


def _names(scan: Scan) -> list[str]:
    return list(dict.fromkeys(name for name, _, _ in scan.request.order_by))


def _whole(scan: Scan) -> Any:
    """The request for all rows, in batches of a size, so that those of two scans go together."""
    return replace(scan.request, limit=None, offset=0, order_by=(), full_batches=True, batch_bytes=None)


def _key_scan(scan: Scan) -> Scan:
    keys = replace(_whole(scan), columns=_names(scan), row_id=scan.request.include_deleted, row_address=False)
    return Scan(scan.snapshot, keys)


def _rows_with_keys(scan: Scan) -> tuple[Any, list[SortKey], Iterator[Any]]:
    """A schema, the keys' places in it, and batches: the result's columns, then keys that it has not."""
    request, names = scan.request, _names(scan)
    rows = Scan(scan.snapshot, _whole(scan))
    own = rows.schema.names
    is_plain = request.columns is None or not isinstance(request.columns, Mapping)
    if is_plain and all(own.count(name) == 1 for name in names):
        places = {name: own.index(name) for name in names}
        schema, batches = rows.schema, rows.units()
    else:
        beside = _key_scan(scan)
        places = {name: len(own) + at for at, name in enumerate(names)}
        fields = [beside.schema.field(at).with_name(KEY_NAME.format(at)) for at in range(len(names))]
        schema = pa.schema([*rows.schema, *fields])
        pairs = zip(rows.batches(), beside.batches(), strict=True)
        batches = (_joined(schema, left, right, len(names)) for left, right in pairs)
    keys = [SortKey(places[name], ascending, first) for name, ascending, first in request.order_by]
    return schema, keys, batches


def _joined(schema: Any, rows: Any, keys: Any, width: int) -> Any:
    return pa.RecordBatch.from_arrays([*rows.columns, *keys.columns[:width]], schema=schema)


def _result(rows: Any, width: int, schema: Any) -> Any:
    if width:
        return pa.Table.from_arrays(rows.columns[:width], schema=schema)
    from tiltyard.table.unit_reader import batch_of

    return pa.Table.from_batches([batch_of([], schema, rows.num_rows)], schema)
