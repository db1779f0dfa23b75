"""Reads one unit of a plan: rows of one fragment, filtered, projected, as record batches.

A filter reads its own columns first and the others only for the rows that pass (D49). A unit whose strings
would overflow 32-bit offsets is halved until it fits (case E12).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.errors import BatchTooLarge
from tiltyard.file.together import read_together
from tiltyard.format.fragment import Fragment
from tiltyard.runtime.collector import collector_held_back
from tiltyard.store.protocol import MIN_MAP_BYTES
from tiltyard.table.deletions import load_deletions, rows_to_read
from tiltyard.table.fragment_columns import Part, Rows
from tiltyard.table.gather import WIDE_SHARE, Gather, keep_rows
from tiltyard.table.number_range import arc_of
from tiltyard.table.plan import Picked, Piece, Unit, halves
from tiltyard.table.projection import ROW_ADDRESS, ROW_ID, ROW_OFFSET, Output, Projection, for_expression
from tiltyard.table.system_columns import system_column

if TYPE_CHECKING:
    from tiltyard.expr import Expr
    from tiltyard.file.reader import FileReader
    from tiltyard.table.snapshot import Snapshot

SMALL_ROWS = 4096  # rows of a fragment that is read together with its neighbours
JOINED_ROWS = 1 << 16  # rows after which a shared batch takes no further fragment
MANY_UNITS = 256  # fragments from which opening them is mostly the making of objects that stay

Positions = npt.NDArray[np.int64]


def batch_of(arrays: list[Any], schema: Any, rows: int) -> Any:
    """A `pa.RecordBatch`; also one without columns knows its number of rows."""
    if arrays:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    empty = pa.StructArray.from_buffers(pa.struct([]), rows, [None], children=[])
    return pa.RecordBatch.from_struct_array(empty).replace_schema_metadata(schema.metadata)


class UnitReader:
    """One projection and at most one predicate over a snapshot. Safe among threads: it only caches
    layouts.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        projection: Projection,
        predicate: Expr | None = None,
        *,
        include_deleted: bool = False,
        late: bool | Collection[str] | None = None,
    ) -> None:
        """`late`: how columns beside the filter's are read; see `Gather`."""
        self.snapshot = snapshot
        self.projection = projection
        self._predicate = predicate
        self._include_deleted = include_deleted
        self._columns = Gather(snapshot, projection.fields)
        if predicate is not None:
            self._test = for_expression(snapshot.schema, predicate)
            self._arc = arc_of(predicate, self._test)
            self._test_columns = Gather(snapshot, self._test.fields)
            tested = {field.id: i for i, field in enumerate(self._test.fields)}
            # A field that the filter reads whole is not read a second time.
            self._reused = [
                tested[field.id]
                if field.id in tested and self._test.fields[tested[field.id]] == field
                else -1
                for field in projection.fields
            ]
            self._needs_tested = any(at >= 0 for at in self._reused)
            others = tuple(field for field, at in zip(projection.fields, self._reused, strict=True) if at < 0)
            self._late_columns = Gather(snapshot, others, late)
        self._single: dict[int, Gather] = {}

    # -- whole units -----------------------------------------------------------------------------

    def read(self, unit: Piece) -> list[Any]:
        """The unit's rows as `pa.RecordBatch`es in order: none when no row passes, several when halved."""
        try:
            batch = self._read(unit)
        except BatchTooLarge:
            if unit.rows < 2:
                raise
            left, right = halves(unit)
            return self.read(left) + self.read(right)
        return [] if batch is None else [batch]

    def read_all(self, units: Sequence[Piece]) -> list[Any]:
        """The rows of the units as batches in order; small whole fragments that follow each other share
        one.
        """
        if self._predicate is not None or not self.projection.direct or len(units) == 1:
            return [batch for unit in units for batch in self.read(unit)]
        if len(units) < MANY_UNITS:
            return self._read_joined(units)
        with collector_held_back():
            return self._read_joined(units)

    def _read_joined(self, units: Sequence[Piece]) -> list[Any]:
        batches: list[Any] = []
        pending: list[tuple[Piece, FileReader, Part]] = []
        rows = 0
        for unit in units:
            small = self._small(unit, self._columns)
            if pending and (small is None or small[1] is not pending[0][2] or rows > JOINED_ROWS):
                batches += self._joined(pending)
                pending, rows = [], 0
            if small is None:
                batches += self.read(unit)
            else:
                pending.append((unit, *small))
                rows += unit.rows
        return batches + self._joined(pending)

    def _small(self, unit: Piece, columns: Gather) -> tuple[FileReader, Part] | None:
        """The file of a small fragment that the unit reads whole, and what to read from it."""
        if isinstance(unit, Picked) or unit.start or unit.rows > SMALL_ROWS:
            return None
        fragment = self.snapshot.fragments[unit.fragment]
        if fragment.deletion is not None or unit.rows != fragment.physical_rows:
            return None
        return columns.whole(fragment)

    def _joined(self, files: list[tuple[Piece, FileReader, Part]]) -> list[Any]:
        arrays = self._together(files)
        if arrays is not None:
            return [batch_of(arrays, self.projection.schema, sum(unit.rows for unit, _, _ in files))]
        return [batch for unit, _, _ in files for batch in self.read(unit)]

    def _together(self, files: list[tuple[Piece, FileReader, Part]]) -> list[Any] | None:
        """The columns of several whole files, one array for all of them; None where they do not go
        together.
        """
        if len(files) < 2:
            return None
        columns = [file.whole(part.fields, part.columns) for _, file, part in files]
        rows = [file.num_rows for _, file, _ in files]
        if not all(columns) or rows != [unit.rows for unit, _, _ in files]:
            return None
        try:
            return read_together(self.snapshot.session, cast(Any, columns), rows)
        except (ValueError, BatchTooLarge):
            return None  # one by one then: that reads what can be read, and names the file that is damaged

    def fetch(self, unit: Piece) -> tuple[list[Any], int]:
        """Have here what a read of the unit looks at first, where its files are far away; see
        `FileReader.fetch`. Rows that are picked one by one are left to who reads them.
        """
        fragment, rows = self._rows(unit)
        columns = self._columns if self._passes(unit) else self._test_columns
        if not isinstance(rows, slice):
            span = int(rows[-1]) + 1 - int(rows[0]) if len(rows) else 0
            if len(rows) * WIDE_SHARE < span or not span:
                return [], 0
            rows = slice(int(rows[0]), int(rows[-1]) + 1)
        found = [file.fetch(part.fields, part.columns, rows) for file, part in columns.files(fragment)]
        return [kept for kept, _ in found], sum(nbytes for _, nbytes in found)

    def release(self, units: Sequence[Piece]) -> None:
        """The units were read and are not read again soon; see `FileReader.release`."""
        looks = (self._columns,) if self._predicate is None else (self._test_columns, self._late_columns)
        for position in dict.fromkeys(unit.fragment for unit in units):
            fragment = self.snapshot.fragments[position]
            if all(0 < file.size < MIN_MAP_BYTES for file in fragment.files):
                continue
            for columns in looks:
                for file, _ in columns.files(fragment):
                    file.release()

    def count(self, unit: Piece) -> int:
        """How many of the unit's rows pass the predicate."""
        if self._passes(unit):
            return unit.rows
        try:
            return int(np.count_nonzero(self._mask(*self._rows(unit), unit)))
        except BatchTooLarge:
            if unit.rows < 2:
                raise
            return sum(self.count(half) for half in halves(unit))

    def offsets(self, unit: Piece) -> Positions:
        """Physical offsets of the unit's rows that pass the predicate, ascending."""
        fragment, rows = self._rows(unit)
        if self._passes(unit):
            return _offsets(rows)
        try:
            keep = self._mask(fragment, rows, unit)
        except BatchTooLarge:
            if unit.rows < 2:
                raise
            return np.concatenate([self.offsets(half) for half in halves(unit)])
        passed = np.flatnonzero(keep)
        return passed + rows.start if isinstance(rows, slice) else rows[passed]

    def offsets_all(self, units: Sequence[Piece]) -> list[tuple[int, Positions]]:
        """For each unit the position of its fragment and its `offsets`; small whole fragments that follow
        each other are tested together.
        """
        if self._predicate is None or self._test.system or len(units) < 2:
            return [(unit.fragment, self.offsets(unit)) for unit in units]
        found: list[tuple[int, Positions]] = []
        pending: list[tuple[Piece, FileReader, Part]] = []
        rows = 0
        for unit in units:
            small = None if self._passes(unit) else self._small(unit, self._test_columns)
            if pending and (small is None or small[1] is not pending[0][2] or rows > JOINED_ROWS):
                found += self._tested_together(pending)
                pending, rows = [], 0
            if small is None:
                found.append((unit.fragment, self.offsets(unit)))
            else:
                pending.append((unit, *small))
                rows += unit.rows
        return found + self._tested_together(pending)

    def _tested_together(self, files: list[tuple[Piece, FileReader, Part]]) -> list[tuple[int, Positions]]:
        from tiltyard.expr import mask

        arrays = self._together(files)
        if arrays is None:
            return [(unit.fragment, self.offsets(unit)) for unit, _, _ in files]
        assert self._predicate is not None
        ends = np.cumsum([unit.rows for unit, _, _ in files])
        batch = batch_of(arrays, self._test.schema, int(ends[-1]))
        passed = np.flatnonzero(mask(self._predicate, batch))
        cuts = np.searchsorted(passed, ends)
        found: list[tuple[int, Positions]] = []
        first = start = 0
        for (unit, _, _), cut, end in zip(files, cuts.tolist(), ends.tolist(), strict=True):
            found.append((unit.fragment, passed[first:cut] - start))
            first, start = cut, end
        return found

    def read_field(self, unit: Unit, field: int) -> Any:
        """One of the projection's fields for all rows of the unit, for callers that spread columns over
        tasks.
        """
        columns = self._single.get(field)
        if columns is None:
            made = Gather(self.snapshot, (self.projection.fields[field],))
            columns = self._single.setdefault(field, made)
        return columns.read(*self._rows(unit))[0]

    def assemble(self, unit: Unit, arrays: list[Any]) -> Any:
        """The batch of outputs from the unit's arrays, one per field of the projection, unfiltered."""
        fragment, rows = self._rows(unit)
        return self.outputs(fragment, rows, arrays, unit.rows, unit.first)

    def _passes(self, unit: Piece) -> bool:
        """Whether all rows of the unit are known to pass."""
        return self._predicate is None or (isinstance(unit, Picked) and unit.is_certain)

    def _rows(self, unit: Piece) -> tuple[Fragment, Rows]:
        fragment = self.snapshot.fragments[unit.fragment]
        if isinstance(unit, Picked):
            return fragment, unit.offsets
        deleted = None if self._include_deleted else load_deletions(self.snapshot, fragment)
        return fragment, rows_to_read(deleted, unit.start, unit.stop)

    def _read(self, unit: Piece) -> Any | None:
        fragment, rows = self._rows(unit)
        if self._passes(unit):
            arrays = self._columns.read(fragment, rows)
            return self.outputs(fragment, rows, arrays, unit.rows, _first(unit))
        tested: list[Any] = []
        if self._needs_tested:
            tested, keep = self._passing(fragment, rows, unit)
        else:
            keep = self._mask(fragment, rows, unit)
        count = int(np.count_nonzero(keep))
        if count == 0:
            return None
        if count == unit.rows:
            late = self._late_columns.read(fragment, rows)
            return self.outputs(fragment, rows, self._merge(tested, late), count, _first(unit))
        positions = np.flatnonzero(keep)
        picked = _picked(rows, positions)
        late = self._late_columns.read(fragment, picked)
        reused = sorted({at for at in self._reused if at >= 0})
        kept = keep_rows(self.snapshot.session, [tested[at] for at in reused], positions)
        passed = dict(zip(reused, kept, strict=True))
        firsts: Any = 0
        if ROW_OFFSET in self.projection.system:
            numbers = unit.numbers[positions] if isinstance(unit, Picked) else positions + unit.first
            firsts = numbers.astype(np.uint64)
        return self.outputs(fragment, picked, self._merge(passed, late), count, firsts)

    def _passing(
        self, fragment: Fragment, rows: Rows, unit: Piece
    ) -> tuple[list[Any], npt.NDArray[np.bool_]]:
        from tiltyard.expr import mask

        assert self._predicate is not None
        arrays = self._test_columns.read(fragment, rows)
        system = [self._system(fragment, name, rows, _first(unit)) for name in self._test.system]
        batch = batch_of(arrays + system, self._test.schema, unit.rows)
        return arrays, mask(self._predicate, batch)

    def _mask(self, fragment: Fragment, rows: Rows, unit: Piece) -> npt.NDArray[np.bool_]:
        """Which rows pass, for who needs nothing else of the columns that are tested."""
        if self._arc is not None:
            whole = self._test_columns.whole(fragment)
            if whole is not None:
                file, part = whole
                found: Any = file.within(part.fields[0], part.columns, rows, *self._arc)
                if found is not None:
                    return cast("npt.NDArray[np.bool_]", found)
        return self._passing(fragment, rows, unit)[1]

    def _merge(self, tested: Any, late: list[Any]) -> list[Any]:
        """The projection's fields from those that the filter read (by position) and those read after it."""
        rest = iter(late)
        return [tested[at] if at >= 0 else next(rest) for at in self._reused]

    # -- outputs ---------------------------------------------------------------------------------

    def outputs(self, fragment: Fragment, rows: Rows, arrays: list[Any], count: int, first: Any) -> Any:
        """The result batch. `arrays` are the projection's fields for `rows`; `first` as for
        `system_column`.
        """
        projection = self.projection
        if projection.direct:
            return batch_of(arrays, projection.schema, count)
        system = {name: self._system(fragment, name, rows, first) for name in projection.system}
        scope = None
        if projection.has_expressions:
            fields = [field.arrow_field for field in projection.fields]
            fields += [pa.field(name, pa.uint64()) for name in system]
            scope = batch_of(arrays + list(system.values()), pa.schema(fields), count)
        columns = [output_column(each, arrays, system, scope) for each in projection.outputs]
        return batch_of(columns, projection.schema, count)

    def _system(self, fragment: Fragment, name: str, rows: Rows, first: Any) -> Any:
        column = system_column(self.snapshot, fragment, name, rows, first)
        if self._include_deleted and name in (ROW_ID, ROW_ADDRESS):
            deleted = load_deletions(self.snapshot, fragment)
            if deleted is not None:
                gone = np.isin(_offsets(rows), deleted)
                return pa.array(column.to_numpy(), mask=gone)
        return column


def output_column(output: Output, arrays: list[Any], system: dict[str, Any], scope: Any) -> Any:
    """One column of a result, from the arrays of the projection's fields, the pseudo columns, and `scope`, a
    batch of both for expressions.
    """
    if output.system:
        return system[output.system]
    if output.expression is not None:
        from tiltyard.expr import evaluate

        return evaluate(output.expression, scope)
    array = arrays[output.field]
    for step in output.steps:
        at = array.type.get_field_index(step)
        # A null struct makes its children null, whatever stands below it.
        array = array.field(at) if array.null_count == 0 else array.flatten()[at]
    return array


def _first(unit: Piece) -> Any:
    """Positions of the unit's rows in scan order, as `system_column` takes them."""
    return unit.numbers.astype(np.uint64) if isinstance(unit, Picked) else unit.first


def _picked(rows: Rows, positions: Positions) -> Positions:
    """Offsets of the rows at some positions among `rows`."""
    if not isinstance(rows, slice):
        return rows[positions]
    return positions + rows.start if rows.start else positions


def _offsets(rows: Rows) -> Positions:
    return np.arange(rows.start, rows.stop, dtype=np.int64) if isinstance(rows, slice) else rows
