"""MemTables: what readers saw of one stays as it was."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from streamed import KEY
from tiltyard.format.schema import Schema
from tiltyard.memwal.log_schema import log_schema
from tiltyard.memwal.memtable import MemTable

LOG = log_schema(Schema.from_arrow(pa.schema([pa.field("id", pa.int64(), False, KEY)])))


def batch(*ids: int) -> Any:
    return pa.RecordBatch.from_arrays([pa.array(ids), pa.array([False] * len(ids))], schema=LOG.stored.arrow)


def ids(view: Any) -> list[int]:
    return [i for each in view.batches for i in each.to_pydict()["id"]]


def test_rows_are_seen_once_before_and_after_they_are_logged() -> None:
    table = MemTable(3, LOG)
    table.add(batch(1))
    table.add(batch(2))
    seen = table.view()
    assert (ids(seen), seen.rows, seen.generation) == ([1, 2], 2, 3)
    together = pa.concat_batches([*table.pending, batch(3)])
    table.logged(7, together, together.nbytes, 1)
    assert ids(table.view()) == [1, 2, 3]
    assert ids(seen) == [1, 2]
    assert (table.rows, table.entries, table.logged_to, table.pending) == (3, 1, 7, [])
    table.add(batch(4))
    assert ids(table.view()) == [1, 2, 3, 4]
    assert [each.num_rows for each in table.pending] == [1]


def test_bytes_are_those_of_the_batches_it_holds() -> None:
    table = MemTable(1, LOG)
    table.add(batch(1, 2, 3))
    whole = pa.concat_batches([*table.pending, batch(4)])
    table.logged(1, whole, whole.nbytes, 1)
    assert table.nbytes == sum(each.nbytes for each in table.view().batches)


def test_it_is_numbered_for_the_log_as_for_the_shard_unless_told() -> None:
    assert MemTable(4, LOG).stamp == 4
    assert MemTable(4, LOG, 9).stamp == 9
