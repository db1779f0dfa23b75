"""Leaf values of a column as Arrow arrays: items of plain and dictionary pages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from tiltyard.encoding import dictionary
from tiltyard.encoding.levels import unravel
from tiltyard.encoding.levels.unravel import NO_LEVELS, U16
from tiltyard.encoding.program import FULL_ZIP, VALUE_NONE, P
from tiltyard.errors import BatchTooLarge, CorruptFile, UnsupportedFeature
from tiltyard.file import packed, walked
from tiltyard.file.column import NO_COUNTS, ColumnTable, Items, Rows
from tiltyard.file.page_tables import BYTES, DICTIONARY, PLAIN, WALKED
from tiltyard.kernels import decode as kernels
from tiltyard.session import Session

#: Bytes assumed per string of a take, and of slack behind every buffer of strings.
GUESSED_STRING_BYTES = 48
STRING_SLACK_BYTES = 64
#: Decoded bytes assumed per stored byte of compressed strings until a read has measured it.
GUESSED_EXPANSION = 3.0
#: Longest dictionary item for which output is sized by the longest rather than measured first.
SHORT_ITEM_BYTES = 64

INDEX_BITS = 32
TYPES_KEPT = 1024


@dataclass(slots=True)  # one a column of every read: freezing each would cost a microsecond
class Leaf:
    """A decoded column: levels (`def_` None: all valid at every layer), slots, and one array of them."""

    rep: U16
    def_: U16 | None
    slots: int
    array: Any


@dataclass(frozen=True, slots=True)
class TypeFacts:
    """What reading asks about an Arrow type: `bits` of a stored value (0: widths vary), `dims` of vectors."""

    bits: int
    varying: bool
    large: bool
    dims: tuple[int, ...]
    null: bool
    struct: bool
    dictionary: bool
    empty_struct: bool


@lru_cache(maxsize=TYPES_KEPT)
def type_facts(arrow: Any) -> TypeFacts:
    """The facts of a type."""
    struct = bool(types.is_struct(arrow))
    return TypeFacts(
        storage_bits(arrow),
        is_varying(arrow),
        is_large(arrow),
        _dims(arrow),
        bool(types.is_null(arrow)),
        struct,
        bool(types.is_dictionary(arrow)),
        struct and arrow.num_fields == 0,
    )


def storage_bits(arrow: Any) -> int:
    """Bits of one stored value of an Arrow type; 0 where values vary in width."""
    if types.is_fixed_size_list(arrow):
        return int(arrow.list_size) * storage_bits(arrow.value_type)
    if types.is_dictionary(arrow):
        return int(arrow.index_type.bit_width)
    if is_varying(arrow) or types.is_null(arrow) or types.is_struct(arrow):
        return 0
    return int(arrow.bit_width)


def is_varying(arrow: Any) -> bool:
    """Whether a type has offsets and bytes."""
    return bool(
        types.is_string(arrow)
        or types.is_binary(arrow)
        or types.is_large_string(arrow)
        or types.is_large_binary(arrow)
    )


def is_large(arrow: Any) -> bool:
    """Whether a type of varying width has 64-bit offsets."""
    return bool(types.is_large_string(arrow) or types.is_large_binary(arrow))


class LeafReader:
    """Reads one column of a file as arrays of one Arrow type. `buffer`: the file's bytes, to slice."""

    def __init__(self, name: str, arrow: Any, table: ColumnTable, buffer: Any) -> None:
        self.name = name
        self.type = arrow
        self.table = table
        self.buffer = buffer
        self.facts = type_facts(arrow)
        self.bits = self.facts.bits
        self.varying = self.facts.varying
        self.bytes_per_row = max(self.bits, 64) / 8
        self._dictionary: Any = None
        self.dims = self.facts.dims
        self.may_slice = any(program.row[P.KIND] == FULL_ZIP for program in table.distinct)
        for program in table.distinct:
            dims = tuple([items for items, _ in program.dims])
            if dims != self.dims and not (not dims and program.row[P.VALUE_CODEC] == VALUE_NONE):
                raise CorruptFile(f"vectors of {dims} values where the schema says {self.dims}")
        self.bitmaps = [table.bitmap_programs(level) for level in range(len(self.dims))]

        self.direct = self._is_direct()
        #: Whether rows are strings in place, and nothing else.
        self.plain_strings = self.varying and table.uniform == PLAIN and self._is_bare()
        #: Whether rows come to plain values, which are the buffer of an array.
        self.plain = self.direct and table.uniform == PLAIN and not self.dims
        self.stored_bits = INDEX_BITS if table.uniform == DICTIONARY else self.bits

    def _is_direct(self) -> bool:
        """Whether rows come to plain values of whole bytes, and nothing else: no levels, nothing to
        decompress.
        """
        table, facts = self.table, self.facts
        if table.uniform not in (PLAIN, DICTIONARY) or not self._is_bare():
            return False
        if facts.struct or facts.dictionary or not self.bits or self.bits % 8:
            return False
        if any(bitmap is not None for bitmap in self.bitmaps):
            return False
        items = table.dictionary
        return table.uniform == PLAIN or (items is not None and items.n > 0 and not self.dims)

    def _is_bare(self) -> bool:
        table = self.table
        return not (table.any_staged or table.has_levels or table.layers.max_rep)

    def wrap(self, session: Session, n: int, memory: npt.NDArray[np.uint8], buffer: Any) -> Any:
        """The `pa.Array` of `n` decoded values of `stored_bits` bits; for columns that are `direct`."""
        if self.dims:
            items = Items(NO_LEVELS, None, n, NO_COUNTS, NO_COUNTS)
            return self._vectors(session, PLAIN, items, None, 0, buffer)
        if self.table.uniform == DICTIONARY:
            return self._looked_up(session, memory.view(np.uint32), None, 0)
        return pa.Array.from_buffers(self.type, n, [None, buffer], 0)

    def read(self, session: Session, rows: Rows) -> Leaf:
        """Decode rows. Raises `CorruptFile`, `BatchTooLarge`, `UnsupportedFeature`."""
        if rows.total == 0:
            return Leaf(NO_LEVELS, NO_LEVELS, 0, pa.array([], self.type))
        runs = self.table.runs(rows)
        parts = [self._run(session, kind, run) for kind, run in runs]
        if len(parts) == 1:
            return parts[0]
        levels = [np.zeros(part.slots, np.uint16) if part.def_ is None else part.def_ for part in parts]
        return Leaf(
            np.concatenate([part.rep for part in parts]),
            np.concatenate(levels),
            sum(part.slots for part in parts),
            pa.concat_arrays([part.array for part in parts]),
        )

    def _run(self, session: Session, kind: int, rows: Rows) -> Leaf:
        items = self.table.items(session, kind, rows)
        validity, nulls = None, 0
        if items.def_ is not None and 1 in self.table.levels_used and not self.facts.empty_struct:
            validity, nulls = unravel.validity(
                session, self.table.layers, 0, items.rep, items.def_, items.slots
            )
        array = self._array(session, kind, rows, items, validity, nulls)
        return Leaf(items.rep, items.def_, items.slots, array)

    def _array(self, session: Session, kind: int, rows: Rows, items: Items, validity: Any, nulls: int) -> Any:
        n = items.slots
        facts = self.facts
        if facts.null:
            return pa.nulls(n)
        if facts.struct:
            return self._struct(session, kind, items, validity, nulls)
        if facts.dictionary:
            return self._dictionary_array(session, kind, items, validity, nulls)
        if kind == DICTIONARY:
            index = self._fixed(session, items, INDEX_BITS).view(np.uint32)
            return self._looked_up(session, index, validity, nulls)
        if self.varying:
            if kind == WALKED:
                offsets, data = walked.variable(session, self.table, items, large=facts.large)
            else:
                offsets, data = self._variable(session, items)
            return pa.Array.from_buffers(self.type, n, [validity, offsets, data], nulls)
        data = self._sliced(kind, rows) if self.may_slice else None
        if data is None:
            data = self._fixed_buffer(session, kind, items)
        if self.dims:
            return self._vectors(session, kind, items, validity, nulls, data)
        return pa.Array.from_buffers(self.type, n, [validity, data], nulls)

    # -- fixed width -----------------------------------------------------------------------------

    def _sliced(self, kind: int, rows: Rows) -> Any:
        """The rows as a slice of the file, where they lie there as Arrow wants them."""
        if kind == WALKED or len(rows.start) != 1:
            return None
        start = int(rows.start[0])
        position = self.table.contiguous(start, start + rows.total, self.bits)
        return None if position is None else self.buffer.slice(position, rows.total * self.bits // 8)

    def _fixed_buffer(self, session: Session, kind: int, items: Items) -> Any:
        if kind == WALKED:
            return walked.fixed(session, self.table, items, self.bits)
        if kind == BYTES:
            loose = self._fixed(session, items, 8)
            return pa.py_buffer(np.packbits(loose, bitorder="little"))
        out, buffer = session.arena.alloc((items.slots * self.bits + 7) // 8)
        self._fill(items, self.bits, out)
        return buffer

    def _fixed(self, session: Session, items: Items, bits: int) -> npt.NDArray[np.uint8]:
        out, _ = session.arena.alloc((items.slots * bits + 7) // 8)
        self._fill(items, bits, out)
        return out

    def _fill(
        self, items: Items, bits: int, out: npt.NDArray[np.uint8], pages: npt.NDArray[np.int64] | None = None
    ) -> None:
        table = self.table
        staged = table.stage(table.item_chunks(items), values=True) if table.any_staged else None
        kernels.fixed(*table.tables(staged, pages), items.start, items.count, bits, out)

    def _vectors(
        self, session: Session, kind: int, items: Items, validity: Any, nulls: int, data: Any
    ) -> Any:
        """Nested fixed-size lists over one buffer of items, innermost first."""
        counts = [items.slots]
        arrow_types = [self.type]
        for dimension in self.dims:
            counts.append(counts[-1] * dimension)
            arrow_types.append(arrow_types[-1].value_type)
        array = None
        for level in range(len(self.dims), -1, -1):
            bitmap = validity if level == 0 else self._item_bitmap(session, kind, items, level - 1)
            null_count = nulls if level == 0 else (0 if bitmap is None else -1)
            if array is None:
                array = pa.Array.from_buffers(arrow_types[level], counts[level], [bitmap, data], null_count)
            else:
                array = pa.Array.from_buffers(
                    arrow_types[level], counts[level], [bitmap], null_count, children=[array]
                )
        return array

    def _item_bitmap(self, session: Session, kind: int, items: Items, level: int) -> Any:
        program = self.bitmaps[level]
        if program is None:
            return None
        pages, bits = program
        if kind == WALKED:
            return walked.bitmap(self.table, items, pages, bits)
        out, buffer = session.arena.alloc((items.slots * bits + 7) // 8)
        self._fill(items, bits, out, pages)
        return buffer

    # -- varying width ---------------------------------------------------------------------------

    def _variable(self, session: Session, items: Items) -> tuple[Any, Any]:
        """Offsets and bytes as Arrow buffers."""
        table, n = self.table, items.slots
        dtype = np.dtype(np.int64 if self.facts.large else np.int32)
        staged = table.stage(table.item_chunks(items), values=True) if table.any_staged else None
        offsets, offsets_buffer = session.arena.alloc((n + 1) * dtype.itemsize)
        stored = 0
        room = GUESSED_STRING_BYTES * n
        if len(items.count) == 1:
            stored = table.encoded_bytes(items)
            room = int(stored * (table.reserve or GUESSED_EXPANSION)) if table.expands else stored
        while True:
            out, buffer = session.arena.alloc(room + STRING_SLACK_BYTES)
            total = kernels.variable(
                *table.tables(staged), items.start, items.count, offsets.view(dtype), out
            )
            check_offsets(session, total, n, large=dtype.itemsize == 8)
            if total <= room + STRING_SLACK_BYTES:
                break
            room = total
        if stored and table.expands:
            table.reserve = max(table.reserve, total / stored * 1.02 + 0.01)
        return offsets_buffer, buffer.slice(0, total)

    # -- dictionaries ----------------------------------------------------------------------------

    def _looked_up(self, session: Session, index: npt.NDArray[np.uint32], validity: Any, nulls: int) -> Any:
        """Items by index, for a column whose writer chose a dictionary on its own."""
        items = self.table.dictionary
        assert items is not None
        n = len(index)
        if items.n == 0:
            if nulls != n:
                raise CorruptFile("indices into an empty dictionary")
            return pa.nulls(n, self.type)
        if not self.varying:
            data, buffer = session.arena.alloc(n * self.bits // 8)
            if items.bits != self.bits or self.bits % 8:
                raise CorruptFile(f"dictionary items of {items.bits} bits where the schema says {self.bits}")
            item = np.dtype((np.void, self.bits // 8))
            np.take(items.data.view(item), index, out=data.view(item), mode="clip")
            return pa.Array.from_buffers(self.type, n, [validity, buffer], nulls)
        if items.offsets is None:
            raise CorruptFile("a dictionary of fixed-width items for a column of strings")
        offsets, data = self._gathered(session, index, items)
        return pa.Array.from_buffers(self.type, n, [validity, offsets, data], nulls)

    def _gathered(
        self, session: Session, index: npt.NDArray[np.uint32], items: dictionary.Items
    ) -> tuple[Any, Any]:
        n = len(index)
        dtype = np.dtype(np.int64 if self.facts.large else np.int32)
        where = items.offsets
        assert where is not None
        offsets, offsets_buffer = session.arena.alloc((n + 1) * dtype.itemsize)
        longest = int((where[1:] - where[:-1]).max())
        room = n * longest if longest <= SHORT_ITEM_BYTES else GUESSED_STRING_BYTES * n
        while True:
            out, buffer = session.arena.alloc(room + STRING_SLACK_BYTES)
            total = kernels.gather_strings(index, where, items.data, offsets.view(dtype), out)
            check_offsets(session, total, n, large=dtype.itemsize == 8)
            if total <= room + STRING_SLACK_BYTES:
                return offsets_buffer, buffer.slice(0, total)
            room = total

    def _dictionary_array(self, session: Session, kind: int, items: Items, validity: Any, nulls: int) -> Any:
        if kind in (WALKED, BYTES):
            raise CorruptFile("a full-zip page in a dictionary column")
        n = items.slots
        if self.table.dictionary is None:
            # Items that a null ancestor hides need not count as null themselves: what is stored decides.
            if any(program.row[P.VALUE_CODEC] != VALUE_NONE for program in self.table.distinct):
                raise CorruptFile("a page of plain values in a dictionary column")
            index = pa.nulls(n, self.type.index_type)
            nothing = pa.array([], self.type.value_type)
            return pa.DictionaryArray.from_arrays(index, nothing, ordered=self.type.ordered)
        values, numbers = self._arrow_dictionary()
        out, buffer = session.arena.alloc(n * self.bits // 8)
        if numbers is None:
            self._fill(items, self.bits, out)
        else:
            stored = self._fixed(session, items, INDEX_BITS).view(np.uint32)
            out.view(f"<u{self.bits // 8}")[:] = numbers[stored]
        index = pa.Array.from_buffers(self.type.index_type, n, [validity, buffer], nulls)
        return pa.DictionaryArray.from_arrays(index, values, ordered=self.type.ordered, safe=False)

    def _arrow_dictionary(self) -> tuple[Any, npt.NDArray[np.uint32] | None]:
        """One dictionary for all pages, and the new number of each item where items of pages had to become
        one.
        """
        if self._dictionary is None:
            items, numbers = self.table.dictionary, None
            assert items is not None
            value = self.type.value_type
            limit = 1 << (self.bits - (1 if types.is_signed_integer(self.type.index_type) else 0))
            if items.n > limit:
                items, numbers = dictionary.distinct(items)
            if items.n > limit:
                raise UnsupportedFeature(
                    f"the pages of a dictionary column hold {items.n} items, more than "
                    f"{self.type.index_type} can number; write the column with a wider index"
                )
            if is_varying(value):
                if items.offsets is None:
                    raise CorruptFile("a dictionary of fixed-width items for strings")
                offsets = items.offsets.astype(np.int64 if is_large(value) else np.int32)
                buffers = [None, pa.py_buffer(offsets), pa.py_buffer(items.data)]
            else:
                if items.bits != storage_bits(value):
                    raise CorruptFile(f"dictionary items of {items.bits} bits where the schema says {value}")
                buffers = [None, pa.py_buffer(items.data)]
            self._dictionary = pa.Array.from_buffers(value, items.n, buffers, 0), numbers
        found: tuple[Any, npt.NDArray[np.uint32] | None] = self._dictionary
        return found

    # -- structs in one column -------------------------------------------------------------------

    def _struct(self, session: Session, kind: int, items: Items, validity: Any, nulls: int) -> Any:
        if self.facts.empty_struct:
            return pa.Array.from_buffers(self.type, items.slots, [None], 0, children=[])
        program = self.table.programs[0]
        if any(each.packed_fields for each in self.table.programs):
            if kind != WALKED:
                children = [pa.nulls(items.slots, field.type) for field in self.type]
            else:
                children = packed.walked_children(session, self.table, self.type, items)
        else:
            program = next((each for each in self.table.programs if each.packed), program)
            children = self._fixed_fields(session, kind, items, program.packed)
        return pa.Array.from_buffers(self.type, items.slots, [validity], nulls, children=children)

    def _fixed_fields(self, session: Session, kind: int, items: Items, bits: tuple[int, ...]) -> list[Any]:
        if not bits:
            return [pa.nulls(items.slots, field.type) for field in self.type]
        if kind == WALKED:
            raise UnsupportedFeature("packed structs of fixed width in lists of wide rows are not supported")
        rows = self._fixed(session, items, sum(bits))
        return packed.split(rows, bits, self.type, items.slots)


def _dims(arrow: Any) -> tuple[int, ...]:
    dims = []
    while types.is_fixed_size_list(arrow):
        dims.append(int(arrow.list_size))
        arrow = arrow.value_type
    return tuple(dims)


def check_offsets(session: Session, total: int, n: int, *, large: bool) -> None:
    """Raise `BatchTooLarge` where `total` bytes of `n` strings exceed 32-bit offsets."""
    if not large and total > session.limits.offset_limit:
        raise BatchTooLarge(
            f"{n} values hold {total} bytes, more than 32-bit offsets reach ({session.limits.offset_limit}): "
            "read fewer rows at once"
        )
