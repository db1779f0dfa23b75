"""What SSTables bring into the base: of each key the newest row of all of them, decided before a row is read.

Only keys are in memory; rows are read from their SSTables when they are written, batch by batch, as a merge
reads its source. Tables without a key take every row.

Invariants, and their tests in tests/memwal/test_compaction.py:
1. Of each key the last row over all levels, oldest first, is inserted or replaces those of the base; where it
   deletes, the base has none of it afterwards.
2. The keys of everything that the base had no row of are recorded, deleted ones too: a row of one of them
   that others add meanwhile makes the plan be made again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.memwal.levels import SsTableLevel
from tiltyard.memwal.log_schema import LogSchema
from tiltyard.memwal.merged import MergedLevel
from tiltyard.memwal.sstable import written_version
from tiltyard.table.merge import Planned, Settings
from tiltyard.table.merge.bind import Bound, bind
from tiltyard.table.merge.execute import recorded_key
from tiltyard.table.merge.inserted import MAX_COMPARED_KEYS, InsertedKeys
from tiltyard.table.merge.join import Ints, KeyIndex
from tiltyard.table.merge.key_filter import key_filter
from tiltyard.table.merge.lookup import find_rows
from tiltyard.table.merge.plan import MergePlan, Pairs
from tiltyard.table.merge.source import FittedSource
from tiltyard.table.row_changes import NewRows, RowChanges
from tiltyard.table.write import WriteOptions

if TYPE_CHECKING:
    from tiltyard.format.operations import Update
    from tiltyard.table.snapshot import Snapshot
    from tiltyard.table.unique import KeysMeet


Level = SsTableLevel | MergedLevel


class StreamedRows:
    """The rows of some SSTables, numbered through, in the columns of the table: what a merge reads."""

    is_spilled = False

    def __init__(self, levels: Sequence[Level], schema: LogSchema) -> None:
        """`levels`: those of a shard oldest first."""
        self._levels = list(levels)
        self._fields = schema.stored.fields[:-1]
        arrow = schema.stored.arrow
        self.schema = pa.schema([arrow.field(each.name) for each in self._fields])
        counts = [len(each.keys().deletes) if schema.has_key else each.rows for each in self._levels]
        self._starts: Ints = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])
        self.rows = int(self._starts[-1])

    def batches(self) -> Iterator[Any]:
        """All rows, in order."""
        for level in self._levels:
            yield from level.batches(self._fields)

    def in_order(self, rows: Ints) -> Iterator[Any]:
        """Some rows (ascending numbers) as batches in this order."""
        bounds = np.searchsorted(rows, self._starts)
        for level, start, (low, high) in zip(self._levels, self._starts, pairwise(bounds), strict=False):
            if high > low:
                yield from _picked(level.batches(self._fields), rows[low:high] - start)

    def take(self, rows: Ints, columns: Sequence[str] | None = None) -> Any:
        """Rows by number, in any order, as one `pa.RecordBatch`."""
        wanted, back = np.unique(rows, return_inverse=True)
        found = pa.Table.from_batches(self.in_order(wanted), self.schema).take(pa.array(back))
        whole = found if columns is None else found.select(list(columns))
        batches = whole.combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=whole.schema)


def _picked(batches: Iterator[Any], rows: Ints) -> Iterator[Any]:
    """The rows of these numbers (ascending) among those of the batches."""
    start = at = 0
    for batch in batches:
        end = int(np.searchsorted(rows, start + batch.num_rows))
        if end > at:
            some = rows[at:end] - start
            whole = len(some) == batch.num_rows
            yield batch if whole else batch.take(pa.array(some))
        start, at = start + batch.num_rows, end
        if at == len(rows):
            return


def planned(base: Snapshot, levels: Sequence[SsTableLevel], schema: LogSchema, settings: Settings) -> Planned:
    """Decide on a version of the table what these SSTables change in it. `settings`: an upsert by the table's
    primary key, with its marks. Of a table with merge functions what is brought in is merged with the base's
    rows of this version.
    """
    brought: Sequence[Level] = levels if schema.functions is None else [MergedLevel(levels, base, schema)]
    source = StreamedRows(brought, schema)
    bound = bind(base, settings, source.schema)
    keys = [each.keys() for each in brought]
    of_levels = zip(*(each.columns for each in keys), strict=True)
    columns = [pa.concat_arrays(list(column)) for column in of_levels]
    index = KeyIndex(columns)
    winner = index.last_rows()
    deletes = np.concatenate([each.deletes for each in keys])[winner]
    found = find_rows(base, bound.key, index, columns)
    plan = _plan(found.addresses, found.codes, winner, deletes)
    fresh = np.ones(index.distinct, np.bool_)
    fresh[found.codes] = False
    inserted_keys, keys_meet = _recorded(bound, columns, winner[fresh])
    return Planned(
        base,
        bound,
        FittedSource(source, bound.fit),
        plan,
        False,
        inserted_keys,
        keys_meet,
        len(found.addresses),
        found.index,
    )


def _plan(
    addresses: npt.NDArray[np.uint64], codes: Ints, winner: Ints, deletes: npt.NDArray[np.bool_]
) -> MergePlan:
    """What becomes of the base's rows (`addresses`, ascending, and the key of each) and of each key's newest
    row. Of several rows of the base with one key the first is replaced, the others go.
    """
    replaces = ~deletes[codes]
    first = np.zeros(len(codes), np.bool_)
    first[np.unique(codes, return_index=True)[1]] = True
    moved = replaces & first
    met = np.zeros(len(winner), np.bool_)
    met[codes] = True
    inserted = np.sort(winner[~met & ~deletes])
    return MergePlan(Pairs(addresses[moved], winner[codes[moved]]), inserted, addresses[~moved])


def _recorded(bound: Bound, columns: Sequence[Any], fresh: Ints) -> tuple[Any, KeysMeet | None]:
    """The keys (rows `fresh`) that the base has no row of, as the transaction carries them."""
    recorded = recorded_key(bound)
    if recorded is None:
        return None, None
    by_id = dict(zip(bound.key.field_ids, columns, strict=True))
    taken = pa.array(fresh)
    chosen = [by_id[id].take(taken) for id in recorded.field_ids]
    meet = InsertedKeys(recorded, chosen).meet if len(fresh) <= MAX_COMPARED_KEYS else None
    return key_filter(recorded, chosen), meet


def appended(changes: RowChanges, levels: Sequence[SsTableLevel], schema: LogSchema, marks: Any) -> Update:
    """Write every row of the SSTables of a table without a key; the operation to commit."""
    source = StreamedRows(levels, schema)
    options = WriteOptions(version=written_version(changes.snapshot))
    changes.add(map(NewRows, source.batches()), options=options, arrow_schema=source.schema)
    return changes.updating(compacted_sstables=marks)
