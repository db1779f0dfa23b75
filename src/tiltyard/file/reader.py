"""Reading a .lance data file of version 2.1 or 2.2: projection, ranges and takes (file format; D40 to D47).

`open_file` gives a cached `FileReader`; for files of version 2.0 that of `file.v20`. The file's bytes are one
buffer, mapped or read whole by the store; the page tables of a column are built when it is first read. A read
decodes every wanted column with one or a few kernel calls, whatever pages and chunks the rows lie in, and
puts Arrow arrays together from the results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import is_
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from tiltyard import runtime
from tiltyard.encoding.levels.unravel import NO_LEVELS, Layers
from tiltyard.errors import CorruptFile, RowOutOfRange, TiltyardError, UnsupportedFeature
from tiltyard.file.assemble import LeafPlan, Node, Planner
from tiltyard.file.column import ColumnTable, Rows, extremes
from tiltyard.file.direct import Direct, WordFilter, read_among, read_within
from tiltyard.file.together import can_join
from tiltyard.file.values import Leaf, LeafReader, type_facts
from tiltyard.file.verify import verify_checksums
from tiltyard.format.container import ColumnPages, FileTail, FileVersion, parse_tail
from tiltyard.format.schema import Field, Schema, column_type
from tiltyard.session import Session, default_session
from tiltyard.store.protocol import MIN_MAP_BYTES, Store

T = TypeVar("T")

#: Projections whose plan a reader keeps.
MAX_PLANS = 16
#: The take of a file before which all of its pages in memory are entered into the page table: a fault costs
#: more than the rest of a small take. Larger files are left alone, for they would look like memory in use.
TAKES_BEFORE_TOUCH = 3
MAX_TOUCH_BYTES = 256 * 1024 * 1024
#: Shapes of nesting whose levels stay numbered.
SHAPES_KEPT = 1024
#: What a cached reader of a mapped file is accounted as: this part of the file's bytes, about what the chunk
#: tables of all its columns take (40 bytes for a chunk of 4 to 8 KiB).
MAPPED_SHARE = 128

#: What the objects of a reader and the tables of a few small columns take beside the bytes (measured).
READER_BYTES = 16 << 10


def open_file(
    store: Store, path: str, *, size: int | None = None, session: Session | None = None
) -> FileReader:
    """The reader of a data file; `size` in bytes where it is known.

    Raises `ObjectNotFound`, `CorruptFile` (also where the size differs), `UnsupportedFeature` for versions
    that are not read.
    """
    held = default_session() if session is None else session
    key = (store.identity, path, "file", size)
    found = held.maps.get(key)
    if found is not None:
        return found
    if getattr(store, "ranged", False):
        from tiltyard.file.ranged import open_ranged  # which derives from what is here

        def opened() -> tuple[FileReader, int]:
            made = open_ranged(store, path, size, held, key)
            return made, made.nbytes

        return cast(FileReader, held.maps.get_or_once(key, opened))
    reader = read_file(store.map(path, size), path, held)
    held.maps.put(key, reader, reader.nbytes)
    return reader


def read_file(buffer: Any, path: str, session: Session) -> FileReader:
    """The reader of a data file whose bytes are in `buffer`; raises as `open_file`."""
    tail = parse_tail(buffer, buffer.size, path)
    if tail.version is not FileVersion.V2_0:
        return FileReader(buffer, path, session, tail)
    from tiltyard.file.v20.reader import FileReader20  # most tables have no such file

    return FileReader20(buffer, path, session, tail)


@lru_cache(maxsize=SHAPES_KEPT)
def _layers(above: tuple[bool, ...]) -> Layers:
    """The layers of a leaf below ancestors of which some are lists."""
    return Layers.of((False, *reversed(above)))


@dataclass(frozen=True, slots=True)
class _Plan:
    """How one choice of fields is read from a file."""

    fields: tuple[Field, ...]
    columns: Any
    nodes: list[Node]
    leaves: list[LeafPlan]
    flat: bool
    """Whether each field is one column: arrays of the columns are those of the fields."""
    take: Direct
    range: Direct
    together: tuple[LeafReader, ...] | None
    """The column of each field, where whole files of such columns can be read together."""


class FileReader:
    """One data file. Safe to share among threads: what it builds lazily may be built twice, never half."""

    def __init__(self, buffer: Any, path: str, session: Session, tail: FileTail) -> None:
        self.path = path
        self.session = session
        self._buffer = buffer
        self._source: npt.NDArray[np.uint8] = np.frombuffer(buffer, np.uint8)
        self._tail = tail
        self._leaves: dict[tuple[int, str, tuple[bool, ...]], LeafReader] = {}
        self._plans: list[_Plan] = []
        self._own_columns: dict[int, int] | None = None
        self._num_rows: int | None = None
        self._takes = 0

    @property
    def version(self) -> FileVersion:
        """Version of the file format."""
        return self._tail.version

    @property
    def schema(self) -> Schema:
        """The file's own schema."""
        return self._tail.schema

    @property
    def num_rows(self) -> int:
        """Rows of the file."""
        return self._tail.length

    @property
    def tail(self) -> FileTail:
        """What the end of the file says."""
        return self._tail

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._tail.file_size

    @property
    def num_columns(self) -> int:
        """Columns of the file."""
        return len(self._tail.columns)

    def column_bytes(self, column: int) -> int:
        """Bytes of a column's pages and of its own buffers."""
        pages = self._tail.columns[column]
        return int(pages.sizes.sum()) + sum(pages.column_sizes)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that keeping this reader costs."""
        size = int(self._buffer.size)
        held = size if size < MIN_MAP_BYTES else size // MAPPED_SHARE
        return held + self._tail.nbytes + READER_BYTES

    def read(
        self,
        fields: Sequence[Field],
        columns: Mapping[int, int] | None,
        rows: slice | npt.NDArray[np.int64],
    ) -> list[Any]:
        """One `pa.Array` per field, of the field's Arrow type, with the rows in the order asked for.

        `fields` are top-level fields, pruned to what is wanted. `columns` maps the ids of leaf fields to
        column numbers (None: as the file's own schema says); a leaf without one is all null. `rows` is a
        slice (step 1) or an int64 array in any order, duplicates allowed.

        Raises `RowOutOfRange`, `BatchTooLarge` where 32-bit offsets overflow, `CorruptFile`,
        `UnsupportedFeature`.
        """
        wanted = self._rows(rows)
        try:
            if not len(wanted.count):
                self._count_take()
            return self._read(fields, columns, wanted)
        except TiltyardError as error:
            raise self._named(error) from error
        except (ValueError, OverflowError, MemoryError) as error:
            raise CorruptFile(str(error), self.path) from error

    def _read(self, fields: Sequence[Field], columns: Mapping[int, int] | None, wanted: Rows) -> list[Any]:
        plan = self._plan(fields, columns)
        direct = plan.range if len(wanted.count) else plan.take
        if plan.flat and not direct.others and wanted.total:
            return self._read_direct(plan, direct, wanted)
        decoded = self._decode(plan, direct, wanted)
        return [node(self.session, decoded, wanted.total) for node in plan.nodes]

    def within(
        self,
        field: Field,
        columns: Mapping[int, int] | None,
        rows: slice | npt.NDArray[np.int64],
        low: int,
        span: int,
    ) -> npt.NDArray[np.bool_] | None:
        """bool[rows]: where a field of whole numbers lies among the `span` + 1 words from `low` on, both less
        than 2 to the number of its bits; words wrap around, so signed numbers are tested too.

        None where the column must be decoded and compared, as one with nulls. Otherwise as `read`.
        """
        wanted = self._rows(rows)
        return self._unpacking(
            field, columns, lambda leaf: read_within(self.session, leaf, wanted, low, span)
        )

    def among(
        self, field: Field, columns: Mapping[int, int] | None, words: WordFilter, *, is_signed: bool
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]] | None:
        """The rows of the file whose value of a field of whole numbers passes a filter: their numbers,
        ascending, and their values as 64-bit words.

        None where the column must be decoded and looked up, as one with nulls. Otherwise as `read`.
        """
        if not self.num_rows:
            return None
        rows = Rows.range(0, self.num_rows)
        return self._unpacking(
            field, columns, lambda leaf: read_among(self.session, leaf, rows, words, is_signed=is_signed)
        )

    def _unpacking(
        self, field: Field, columns: Mapping[int, int] | None, look: Callable[[LeafReader], T]
    ) -> T | None:
        """What `look` finds in a field's column; None where its values cannot be looked at while they are
        unpacked.
        """
        try:
            plan = self._plan((field,), columns)
            if not plan.flat or plan.leaves[0].scale != 1 or not plan.leaves[0].reader.plain:
                return None
            return look(plan.leaves[0].reader)
        except TiltyardError as error:
            raise self._named(error) from error
        except ValueError as error:
            raise CorruptFile(f"column {field.name!r}: {error}", self.path) from error

    def _count_take(self) -> None:
        """Rows that are taken lie anywhere: a file that is taken from again and again is mapped whole."""
        self._takes += 1
        size = int(self._buffer.size)
        if self._takes == TAKES_BEFORE_TOUCH and MIN_MAP_BYTES <= size <= MAX_TOUCH_BYTES:
            runtime.touch_pages(self._buffer.address, size)

    def fetch(
        self, fields: Sequence[Field], columns: Mapping[int, int] | None, rows: slice
    ) -> tuple[Any, int]:
        """Have here what a read of these rows will look at, where it is far away: something to hold until
        they are read, and how many bytes had to be fetched. Raises as `read`.
        """
        return None, 0

    def release(self) -> None:
        """What was read of a mapped file will not be read again soon: its pages no longer count as memory of
        this process, though they can be read as before. Not those of a file that takes have entered whole.
        """
        size = int(self._buffer.size)
        if size >= MIN_MAP_BYTES and (self._takes < TAKES_BEFORE_TOUCH or size > MAX_TOUCH_BYTES):
            runtime.release_pages(self._buffer.address)

    def whole(
        self, fields: Sequence[Field], columns: Mapping[int, int] | None
    ) -> tuple[LeafReader, ...] | None:
        """The columns of the fields, one each, where `together.read_together` can read them; else None."""
        try:
            return self._plan(fields, columns).together
        except TiltyardError as error:
            raise self._named(error) from error

    def verify(self) -> bool:
        """Check the file's checksums (D8): False where it carries none. Raises `CorruptFile`."""
        return verify_checksums(self._source, self._tail)

    # -- planning --------------------------------------------------------------------------------

    def _rows(self, rows: slice | npt.NDArray[np.int64]) -> Rows:
        total = self.num_rows
        if isinstance(rows, slice):
            start = 0 if rows.start is None else int(rows.start)
            stop = total if rows.stop is None else int(rows.stop)
            if not 0 <= start <= stop <= total or rows.step not in (None, 1):
                raise RowOutOfRange(f"{self.path}: rows {start} to {stop} of a file of {total} rows")
            return Rows.range(start, stop)
        if len(rows):
            low, high = extremes(rows)
            if low < 0 or high >= total:
                bad = int(rows[(rows < 0) | (rows >= total)][0])
                raise RowOutOfRange(f"{self.path}: row {bad} of a file of {total} rows (0 to {total - 1})")
        return Rows.picked(rows)

    def _plan(self, fields: Sequence[Field], columns: Mapping[int, int] | None) -> _Plan:
        for known in self._plans:
            if (
                known.columns is columns
                and len(known.fields) == len(fields)
                and all(map(is_, known.fields, fields))
            ):
                return known
        planner = Planner(self._columns() if columns is None else columns, self._open_leaf)
        nodes = [planner.node(field) for field in fields]
        for leaf in planner.leaves:
            if leaf.reader.table.num_rows != self.num_rows * leaf.scale:
                raise CorruptFile(
                    f"column {leaf.reader.name!r} has {leaf.reader.table.num_rows} rows where the file has "
                    f"{self.num_rows * leaf.scale}"
                )
        leaves = planner.leaves
        take, range_ = Direct(leaves, ranges=False), Direct(leaves, ranges=True)
        flat = len(leaves) == len(fields) and all(field.is_leaf for field in fields)
        readers = tuple([leaf.reader for leaf in leaves])
        together = readers if flat and all(map(can_join, readers)) else None
        made = _Plan(tuple(fields), columns, nodes, leaves, flat, take, range_, together)
        self._plans = [*self._plans, made][-MAX_PLANS:]
        return made

    def _columns(self) -> dict[int, int]:
        if self._own_columns is None:
            owners = self.schema.columns(self.version)
            self._own_columns = {each.id: i for i, each in enumerate(owners)}
        return self._own_columns

    def _open_leaf(self, column: int, field: Field, above: tuple[bool, ...]) -> LeafReader:
        key = (column, field.logical_type, above)
        found = self._leaves.get(key)
        if found is None or found.type != field.arrow_type:
            arrow, layers = field.arrow_type, _layers(above)

            def leaf(pages: ColumnPages) -> LeafReader:
                if field.is_blob and not field.is_packed:
                    from tiltyard.file.blobs import BlobReader  # few tables have such columns

                    return BlobReader(field.name, arrow, self._source, pages, layers, self._buffer)
                table = ColumnTable(self._source, pages, layers, type_facts(arrow).bits)
                return LeafReader(field.name, arrow, table, self._buffer)

            found = self._leaves[key] = self._opened(column, field, leaf)
        return found

    def _opened(self, column: int, field: Field, make: Callable[[ColumnPages], T]) -> T:
        """What `make` makes of the column that a field is said to be in; errors name the field."""
        columns = self._tail.columns
        if not 0 <= column < len(columns):
            raise CorruptFile(f"field {field.name!r} is said to be in column {column} of {len(columns)}")
        self._check_type(column, field)
        try:
            return make(columns[column])
        except UnsupportedFeature as error:
            raise UnsupportedFeature(f"column {field.name!r}: {error}") from error
        except (CorruptFile, ValueError) as error:
            raise CorruptFile(f"column {field.name!r}: {error}") from error

    def _check_type(self, column: int, field: Field) -> None:
        """Raise `CorruptFile` unless the file's own schema has the field's type in this column."""
        known = self.schema.column_types(self.version)
        if len(known) != len(self._tail.columns) or field.is_blob:
            return  # a writer of later versions; what blobs are is said by the table alone
        wanted = column_type(field)
        if known[column] != wanted:
            raise CorruptFile(
                f"column {field.name!r} is {' of '.join(known[column])} in the file, {' of '.join(wanted)} "
                "in the table"
            )

    # -- decoding --------------------------------------------------------------------------------

    def _decode(self, plan: _Plan, direct: Direct, rows: Rows) -> list[Leaf]:
        if not direct.readers or not rows.total:
            return self._read_leaves(plan.leaves, rows)
        arrays = self._read_direct(plan, direct, rows)
        found = [Leaf(NO_LEVELS, None, rows.total, array) for array in arrays]
        if not direct.others:
            return found
        rest = self._read_leaves([plan.leaves[i] for i in direct.others], rows)
        every: list[Any] = [None] * len(plan.leaves)
        for i, leaf in zip((*direct.numbers, *direct.others), (*found, *rest), strict=True):
            every[i] = leaf
        return every

    def _read_direct(self, plan: _Plan, direct: Direct, rows: Rows) -> list[Any]:
        try:
            return direct.read(self.session, rows)
        except ValueError as error:
            raise self._of_column([plan.leaves[i] for i in direct.numbers], rows, error) from error

    def _of_column(self, leaves: list[LeafPlan], rows: Rows, error: ValueError) -> TiltyardError:
        """The error of a read of many columns with the name of the column that it is about."""
        for leaf in leaves:
            try:
                self._read_leaf(leaf, rows)
            except TiltyardError as named:
                return named
        return CorruptFile(str(error))

    def _read_leaves(self, leaves: list[LeafPlan], rows: Rows) -> list[Leaf]:
        if len(leaves) > 1 and rows.total > 1:
            estimate = sum(leaf.reader.bytes_per_row * leaf.scale for leaf in leaves) * rows.total
            if estimate >= self.session.limits.parallel_bytes:
                return runtime.parallel([partial(self._read_leaf, leaf, rows) for leaf in leaves])
        return [self._read_leaf(leaf, rows) for leaf in leaves]

    def _read_leaf(self, leaf: LeafPlan, rows: Rows) -> Leaf:
        try:
            return leaf.reader.read(self.session, rows.scaled(leaf.scale))
        except TiltyardError as error:
            raise type(error)(f"column {leaf.reader.name!r}: {error}") from error
        except (ValueError, OverflowError) as error:
            raise CorruptFile(f"column {leaf.reader.name!r}: {error}") from error

    def _named(self, error: TiltyardError) -> TiltyardError:
        if isinstance(error, CorruptFile):
            return CorruptFile(str(error), self.path)
        if self.path in str(error):
            return error
        return type(error)(f"{self.path}: {error}")
