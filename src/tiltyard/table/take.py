"""Takes: rows by number in scan order, by row id, or by row address; order and duplicates are kept.

A row number counts live rows over all fragments. Without stable row ids a row id is the address
`fragment << 32 | offset` (table format, section 13).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.errors import InvalidInput, RowOutOfRange
from tiltyard.file.column import extremes
from tiltyard.format.flags import uses_stable_row_ids
from tiltyard.format.fragment import Fragment
from tiltyard.store.protocol import MIN_MAP_BYTES
from tiltyard.table.deletions import load_deletions, physical_offsets, without_deleted
from tiltyard.table.dictionaries import united
from tiltyard.table.fragment_columns import FragmentColumns
from tiltyard.table.projection import ColumnsLike, Projection, project
from tiltyard.table.removed import tells_removed
from tiltyard.table.row_counts import live_rows
from tiltyard.table.system_columns import FRAGMENT_SHIFT, row_ids
from tiltyard.table.unit_reader import UnitReader
from tiltyard.table.wording import counted

if TYPE_CHECKING:
    from tiltyard.file.reader import FileReader
    from tiltyard.table.fragment_columns import Part
    from tiltyard.table.snapshot import Snapshot

FILES_KEPT = 64  # files that a taker keeps open
TAKER_BYTES = 4096  # what a kept taker is accounted as
FRAGMENT_BYTES = 16  # what it is accounted as for each fragment, besides the files that it keeps
OFFSET_MASK = (1 << FRAGMENT_SHIFT) - 1
Int64s = npt.NDArray[np.int64]


class Taker:
    """Takes with one choice of columns from one snapshot; worth keeping, since it remembers what it looked
    up.

    Safe among threads: what it keeps is only ever added to.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        columns: ColumnsLike = None,
        *,
        row_id: bool = False,
        projection: Projection | None = None,
    ) -> None:
        """`projection` stands in place of `columns` and `row_id`."""
        self.snapshot = snapshot
        if projection is None:
            projection = project(snapshot.schema, columns, row_id=row_id, nested_as_struct=True)
        self.projection = projection
        self._reader = UnitReader(snapshot, self.projection)
        self._columns = FragmentColumns.of(snapshot, self.projection.fields)
        live = live_rows(snapshot)
        ends = np.cumsum(live)
        self._starts: Int64s = ends - live
        self._ends: Int64s = ends
        self.rows = int(ends[-1]) if len(ends) else 0
        self._plain: dict[int, tuple[FileReader, Part]] = {}

    # -- by number -------------------------------------------------------------------------------

    @tells_removed
    def rows_at(self, indices: Any) -> Any:
        """A `pa.Table` of the rows with these numbers (any integers), in this order.

        Raises `RowOutOfRange` for a number below 0 or past the end.
        """
        numbers = row_numbers(indices)
        if not len(numbers):
            return self._empty()
        low, high = extremes(numbers)
        self._check_range(low, high)
        # Fragments without live rows share their start with the next one; the last of them holds the row.
        lone = int(self._starts.searchsorted(low, "right")) - 1
        if high < self._ends[lone]:
            live = numbers - self._starts[lone] if lone else numbers
            plain = self._plain.get(lone)
            if plain is not None:
                file, part = plain
                arrays = file.read(part.fields, part.columns, live)
                return pa.Table.from_arrays(arrays, schema=self.projection.schema)
            return pa.Table.from_batches([self._read_live(lone, live, numbers)])
        positions = self._starts.searchsorted(numbers, "right") - 1
        return self._gather(positions, numbers - self._starts[positions], numbers, self._read_live)

    def _check_range(self, low: int, high: int) -> None:
        if low < 0 or high >= self.rows:
            bad = low if low < 0 else high
            raise RowOutOfRange(
                f"index {bad} out of range for {counted(self.rows, 'row')}"
                + ("" if bad >= 0 or self.rows == 0 else f"; rows are numbered from 0 to {self.rows - 1}")
            )

    # -- by address ------------------------------------------------------------------------------

    @tells_removed
    def rows_at_addresses(self, addresses: Any) -> Any:
        """A `pa.Table` of the live rows at these addresses, in this order; deleted rows are left out.

        Raises `RowOutOfRange` for an address whose fragment or offset the version does not have.
        """
        wanted = row_addresses(addresses)
        if not len(wanted):
            return self._empty()
        positions, offsets = self._places(wanted)
        keep = self._live(positions, offsets)
        return self.rows_at_offsets(positions[keep], offsets[keep])

    @tells_removed
    def rows_that_live(self, addresses: npt.NDArray[np.uint64]) -> Any:
        """The same for addresses that the caller has found to be those of live rows of this version."""
        if not len(addresses):
            return self._empty()
        offsets = (addresses & OFFSET_MASK).astype(np.int64)
        positions = np.zeros(len(addresses), np.int64)
        if len(self._starts) > 1:
            positions = self.snapshot.fragments.positions((addresses >> FRAGMENT_SHIFT).astype(np.int64))
        if len(addresses) == 1:
            batch = self._read(int(positions[0]), offsets, self._numbers(positions, offsets))
            return pa.Table.from_batches([batch], self.projection.schema)
        return self.rows_at_offsets(positions, offsets)

    @tells_removed
    def row_that_lives(self, address: int) -> Any:
        """The live row at an address that the caller has found, as a `pa.RecordBatch`."""
        at = 0
        if len(self._starts) > 1:
            at = int(self.snapshot.fragments.positions(np.array([address >> FRAGMENT_SHIFT]))[0])
        offsets = np.array([address & OFFSET_MASK])
        plain = self._plain.get(at)
        if plain is None:
            return self._read(at, offsets, self._numbers(np.array([at]), offsets))
        file, part = plain
        arrays = file.read(part.fields, part.columns, offsets)
        return pa.RecordBatch.from_arrays(arrays, schema=self.projection.schema)

    @tells_removed
    def rows_with_ids(self, ids: Any) -> Any:
        """A `pa.Table` of the live rows with these row ids, in this order; ids of no live row are left out.

        Where ids are addresses, one of a fragment that the version does not have raises `RowOutOfRange`.
        """
        if not uses_stable_row_ids(self.snapshot.manifest):
            return self.rows_at_addresses(ids)
        wanted = row_addresses(ids)
        known, places, offsets = self._id_index()
        if not len(known) or not len(wanted):
            return self._empty()
        at = np.searchsorted(known, wanted)
        at[at == len(known)] = 0
        at = at[known[at] == wanted]
        return self.rows_at_offsets(places[at], offsets[at])

    def _id_index(self) -> tuple[npt.NDArray[np.uint64], Int64s, Int64s]:
        """Live stable row ids, sorted, with fragment position and physical offset of each."""
        ids: list[Any] = []
        places: list[Int64s] = []
        offsets: list[Int64s] = []
        for position in range(len(self._starts)):
            fragment = self.snapshot.fragments[position]
            found = row_ids(self.snapshot, fragment)
            if found is None:
                continue
            every = np.arange(len(found), dtype=np.int64)
            live = every[without_deleted(load_deletions(self.snapshot, fragment), every)]
            ids.append(found[live])
            places.append(np.full(len(live), position, dtype=np.int64))
            offsets.append(live)
        if not ids:
            return np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.int64)
        every_id = np.concatenate(ids)
        order = np.argsort(every_id, kind="stable")
        return every_id[order], np.concatenate(places)[order], np.concatenate(offsets)[order]

    def _places(self, addresses: npt.NDArray[np.uint64]) -> tuple[Int64s, Int64s]:
        fragments = (addresses >> np.uint64(FRAGMENT_SHIFT)).astype(np.int64)
        offsets = (addresses & np.uint64(OFFSET_MASK)).astype(np.int64)
        positions = self.snapshot.fragments.positions(fragments)
        physical = self.snapshot.fragments.physical_rows
        inside = positions >= 0
        if not inside.all():
            bad = int(fragments[~inside][0])
            raise RowOutOfRange(
                f"row address in fragment {bad}, which version {self.snapshot.version} does not have"
            )
        outside = offsets >= physical[positions]
        if outside.any():
            bad = int(np.flatnonzero(outside)[0])
            raise RowOutOfRange(
                f"row address with offset {int(offsets[bad])} in fragment {int(fragments[bad])}, which has "
                f"{int(physical[positions[bad]])} rows"
            )
        return positions, offsets

    def _live(self, positions: Int64s, offsets: Int64s) -> npt.NDArray[np.bool_]:
        keep = np.ones(len(positions), dtype=bool)
        for position in np.unique(positions):
            deleted = load_deletions(self.snapshot, self.snapshot.fragments[int(position)])
            if deleted is not None:
                here = positions == position
                keep[here] = without_deleted(deleted, offsets[here])
        return keep

    @tells_removed
    def whole(self) -> Any:
        """All rows as one `pa.RecordBatch`, where that takes no more than reading one file; else None."""
        if len(self._starts) != 1 or not self.rows:
            return None
        fragment = self.snapshot.fragments[0]
        found = self._prepare(0, fragment)
        if found is None:
            return None
        file, part = found
        arrays = file.read(part.fields, part.columns, slice(0, fragment.physical_rows))
        return pa.RecordBatch.from_arrays(arrays, schema=self.projection.schema)

    # -- gathering -------------------------------------------------------------------------------

    def rows_at_offsets(self, positions: Int64s, offsets: Int64s) -> Any:
        """A `pa.Table` of the rows at physical offsets of the fragments at these positions of the version's
        list, in this order; whether they are live is for the caller to know.
        """
        if not len(positions):
            return self._empty()
        return self._gather(positions, offsets, self._numbers(positions, offsets), self._read)

    def _gather(
        self,
        positions: Int64s,
        offsets: Int64s,
        numbers: Int64s,
        read: Callable[[int, Int64s, Int64s], Any],
    ) -> Any:
        """Rows at offsets of fragments, as `read` takes them, in the order given; `numbers` only serve
        `_rowoffset`.
        """
        steps = np.diff(positions)
        if int(steps.min(initial=0)) >= 0:
            bounds = [0, *(np.flatnonzero(steps) + 1).tolist(), len(positions)]
            batches = [
                read(int(positions[low]), offsets[low:high], numbers[low:high])
                for low, high in pairwise(bounds)
            ]
            return pa.Table.from_batches(batches, self.projection.schema)
        order = np.argsort(positions, kind="stable")
        table = self._gather(positions[order], offsets[order], numbers[order], read)
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        if not table.num_columns:
            return table
        return united(table).combine_chunks().take(pa.array(back))

    def _numbers(self, positions: Int64s, offsets: Int64s) -> Int64s:
        """Row numbers of live rows at physical offsets."""
        if "_rowoffset" not in self.projection.system:
            return offsets
        numbers = self._starts[positions] + offsets
        for position in np.unique(positions):
            deleted = load_deletions(self.snapshot, self.snapshot.fragments[int(position)])
            if deleted is not None:
                here = positions == position
                numbers[here] -= np.searchsorted(deleted, offsets[here])
        return numbers

    def _read_live(self, position: int, live: Int64s, numbers: Int64s) -> Any:
        """The batch of rows at live positions of a fragment."""
        if position not in self._plain:
            deleted = load_deletions(self.snapshot, self.snapshot.fragments[position])
            if deleted is not None:
                live = physical_offsets(deleted, live)
        return self._read(position, live, numbers)

    def _read(self, position: int, offsets: Int64s, numbers: Int64s) -> Any:
        """The batch of rows at physical offsets of a fragment."""
        plain = self._plain.get(position)
        if plain is None:
            fragment = self.snapshot.fragments[position]
            plain = self._prepare(position, fragment)
            if plain is None:
                arrays = self._columns.read(fragment, offsets) if self._columns.fields else []
                system = numbers.astype(np.uint64)
                return self._reader.outputs(fragment, offsets, arrays, len(offsets), system)
        file, part = plain
        arrays = file.read(part.fields, part.columns, offsets)
        return pa.RecordBatch.from_arrays(arrays, schema=self.projection.schema)

    def _prepare(self, position: int, fragment: Fragment) -> tuple[FileReader, Part] | None:
        """The common case, a fragment in one file with nothing deleted, is then read without any planning."""
        if not self.projection.direct or not self.projection.fields or fragment.deletion is not None:
            return None
        found = self._columns.whole(fragment)
        if found is not None and len(self._plain) < FILES_KEPT:
            self._plain[position] = found
        return found

    def _empty(self) -> Any:
        return self.projection.schema.empty_table()


def take(snapshot: Snapshot, indices: Any, columns: ColumnsLike = None) -> Any:
    """Rows by number as a `pa.Table`; see `Taker.rows_at`."""
    return Taker(snapshot, columns).rows_at(indices)


def kept_taker(snapshot: Snapshot, names: tuple[str, ...]) -> Taker:
    """What takes these columns, kept in the session."""
    cache = snapshot.session.cache
    key = (snapshot.store.identity, snapshot.location.path, "taker", names)
    known: tuple[Any, Taker] | None = cache.get(key)
    if known is not None and known[0] is snapshot.manifest:
        return known[1]
    made = Taker(snapshot, names)
    files = [file for each in snapshot.fragments[:FILES_KEPT] for file in each.files]
    held = sum(min(each.size or MIN_MAP_BYTES, MIN_MAP_BYTES) for each in files)
    cache.put(key, (snapshot.manifest, made), TAKER_BYTES + FRAGMENT_BYTES * len(made._starts) + held)
    return made


def row_numbers(indices: Any) -> Int64s:
    """Row numbers as int64. Raises `InvalidInput` for what is not a flat list of whole numbers."""
    values = _flat(indices)
    if values.dtype.kind == "u" and len(values) and int(values.max()) > np.iinfo(np.int64).max:
        raise RowOutOfRange(f"index {int(values.max())} is past every table")
    return values.astype(np.int64, copy=False)


def row_addresses(addresses: Any) -> npt.NDArray[np.uint64]:
    """Row ids or addresses as uint64. Raises `InvalidInput` for what is not, `RowOutOfRange` below 0."""
    values = _flat(addresses)
    if values.dtype.kind == "i" and len(values) and int(values.min()) < 0:
        raise RowOutOfRange(f"row id {int(values.min())} is negative; row ids and addresses are not")
    return values.astype(np.uint64, copy=False)


def _flat(indices: Any) -> npt.NDArray[Any]:
    if isinstance(indices, (pa.Array, pa.ChunkedArray)):
        if indices.null_count:
            raise InvalidInput("row numbers must not be null")
        values = (
            indices.to_numpy()
            if isinstance(indices, pa.ChunkedArray)
            else indices.to_numpy(zero_copy_only=False)
        )
    elif isinstance(indices, np.ndarray):
        values = indices
    elif type(indices) is not list and (
        isinstance(indices, (str, bytes, Mapping)) or not isinstance(indices, Iterable)
    ):
        raise InvalidInput(f"rows are named by a list of numbers, as in [0, 5]; found {indices!r}")
    else:
        listed = indices if isinstance(indices, (list, Sequence)) else list(indices)
        try:
            values = np.asarray(listed)
        except (ValueError, OverflowError) as error:
            raise InvalidInput("row numbers must be a flat list of whole numbers") from error
        if values.dtype.kind == "f" and values.ndim == 1:  # numbers beyond 63 bits become floats
            values = np.array(listed, dtype=object)
    if values.ndim != 1:
        raise InvalidInput(f"row numbers must be a flat list, found {values.ndim} dimensions")
    if len(values) == 0:
        return np.empty(0, dtype=np.int64)
    if values.dtype.kind == "O":
        return _from_objects(values)
    if values.dtype.kind not in "iu":
        raise InvalidInput(f"row numbers must be whole numbers, found {values.dtype}")
    return values


def _from_objects(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Python integers beyond 64 bits, or mixed with other things."""
    for value in values:
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
            raise InvalidInput(f"row numbers must be whole numbers, found {value!r}")
        if not 0 <= int(value) < 1 << 64:
            raise RowOutOfRange(f"index {value} out of range: rows are numbered from 0, in 64 bits")
    return np.array([int(value) for value in values], dtype=np.uint64)
