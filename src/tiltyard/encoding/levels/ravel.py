"""From a nested Arrow array to its leaves with repetition and definition levels (file-format.md 6.5).

The walk goes from the outermost layer inwards and is shared by sibling leaves: a slot carries a code that
says which layer made it null or empty, and only at a leaf are codes turned into the level numbers of that
leaf's path.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.errors import InvalidInput, UnsupportedFeature
from tiltyard.format.layouts import (
    ALL_VALID_ITEM,
    ALL_VALID_LIST,
    EMPTYABLE_LIST,
    NULL_AND_EMPTY_LIST,
    NULLABLE_ITEM,
    NULLABLE_LIST,
)
from tiltyard.format.schema import Field
from tiltyard.kernels import encode as kernels

U8 = npt.NDArray[np.uint8]
U16 = npt.NDArray[np.uint16]
I64 = npt.NDArray[np.int64]

NO_BYTES: U8 = np.empty(0, np.uint8)
NO_LEVELS: U16 = np.empty(0, np.uint16)
NO_ROWS: I64 = np.empty(0, np.int64)
MAX_LAYERS = 1000
"""Layers of nesting that codes of 15 bits can tell apart, with room to spare."""


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels of one leaf over some rows.

    `rep` and `def_` are uint16 with one entry per slot, or None where the path has no list or nothing null or
    empty; `entries` counts them (the values where there are none). An entry with `def_` above `max_visible`
    owns no value. `rows` counts what `Page.length` counts.
    """

    rep: U16 | None
    def_: U16 | None
    entries: int
    rows: int
    max_rep: int
    max_def: int
    max_visible: int
    layers: tuple[int, ...]

    @property
    def has_hidden(self) -> bool:
        """Whether some entry may own no value."""
        return self.def_ is not None and self.max_visible < self.max_def


@dataclass(frozen=True, slots=True)
class Leaf:
    """One leaf column over some rows: its values (one per visible entry) and its levels."""

    field: Field
    path: str
    array: Any
    levels: Levels


@dataclass(frozen=True, slots=True)
class _Layer:
    is_list: bool
    nulls: bool = False
    empties: bool = False

    @property
    def kind(self) -> int:
        if not self.is_list:
            return NULLABLE_ITEM if self.nulls else ALL_VALID_ITEM
        if self.nulls:
            return NULL_AND_EMPTY_LIST if self.empties else NULLABLE_LIST
        return EMPTYABLE_LIST if self.empties else ALL_VALID_LIST


@dataclass(frozen=True, slots=True)
class _Slots:
    """The walk so far: codes per slot (None = all zero), layers outermost first, rows times dimensions."""

    rep: U16 | None
    def_: U16 | None
    count: int
    rows: int
    layers: tuple[_Layer, ...]
    general: bool = False

    @property
    def lists(self) -> int:
        return sum(layer.is_list for layer in self.layers)


def ravel(array: Any, field: Field, *, more_pages: bool = False) -> list[Leaf]:
    """The leaves below a top-level field, in column order, for the rows of `array`.

    Layers are declared as the rows have it, except with `more_pages` where a list lies below a struct: there
    every page must declare the same, for the official reader gives wrong rows when such pages differ (it does
    so with pages of its own).

    Raises `InvalidInput` where a field that must not be null is, `UnsupportedFeature` for nestings that the
    format has no place for; both name the column.
    """
    if not field.children:
        inner = storage(array)
        if not pa.types.is_dictionary(inner.type):
            return [_flat(inner, field)]
    general = more_pages and _has_list_below_struct(field, False)
    return list(_walk(array, field, field.name, _Slots(None, None, len(array), len(array), (), general)))


def storage(array: Any) -> Any:
    """The storage of an extension array; the array itself otherwise."""
    while isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    return array


def validity(array: Any) -> tuple[U8, int]:
    """Bitmap and first bit of an array that has nulls; an empty bitmap when it has none."""
    if array.null_count == 0:
        return NO_BYTES, 0
    bits = array.buffers()[0]
    if bits is None:  # the null type has no bitmap
        return np.zeros((len(array) + 7) // 8, np.uint8), 0
    return np.frombuffer(bits, np.uint8), array.offset


def _walk(array: Any, field: Field, path: str, slots: _Slots) -> Iterator[Leaf]:
    array = storage(array)
    if len(slots.layers) > MAX_LAYERS:
        raise UnsupportedFeature(f"column {path!r}: more than {MAX_LAYERS} levels of nesting")
    kind = field.logical_type
    if field.is_leaf:
        if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
            array = without_null_items(array)
        yield _leaf(array, field, path, _item(array, field, path, slots))
    elif kind == "struct":
        inner = _item(array, field, path, slots)
        for index, child in enumerate(field.children):
            yield from _walk(array.field(index), child, f"{path}.{child.name}", inner)
    elif kind.startswith("fixed_size_list:"):
        yield from _vector_of_structs(array, field, path, slots)
    else:
        child, inner = _list(array, field, path, slots)
        yield from _walk(child, field.children[0], f"{path}.{field.children[0].name}", inner)


_VALID = (ALL_VALID_ITEM,)
_NULLABLE = (NULLABLE_ITEM,)


def _flat(array: Any, field: Field) -> Leaf:
    """What the walk finds where nothing is nested."""
    rows = len(array)
    bits, start = validity(array)
    if bits.size:
        def_ = np.zeros(rows, np.uint16)
        marked = kernels.mark_nulls(def_, bits, start, 1)
        if marked and not field.nullable:
            raise _must_not_be_null(field.name, marked)
        if marked:
            return Leaf(field, field.name, array, Levels(None, def_, rows, rows, 0, 1, 1, _NULLABLE))
    return Leaf(field, field.name, array, Levels(None, None, rows, rows, 0, 0, 0, _VALID))


def _must_not_be_null(path: str, count: int) -> InvalidInput:
    return InvalidInput(f"column {path!r} must not be null, but {count} of its values are")


def _item(array: Any, field: Field, path: str, slots: _Slots) -> _Slots:
    bits, start = validity(array)
    # Below a null struct an item layer counts as nullable even where no item is null itself: the official
    # reader takes the items of a null struct for values else, and its filters on a field find such rows.
    plain = _Layer(False, _below_null_struct(slots.layers) or (slots.general and field.nullable))
    if not bits.size:
        return replace(slots, layers=(*slots.layers, plain))
    def_ = np.zeros(slots.count, np.uint16) if slots.def_ is None else slots.def_.copy()
    code = 2 * len(slots.layers) + 1
    marked = kernels.mark_nulls(def_, bits, start, code)
    if not marked:
        return replace(slots, layers=(*slots.layers, plain))
    if not field.nullable:
        raise _must_not_be_null(path, marked)
    return replace(slots, def_=def_, layers=(*slots.layers, _Layer(False, nulls=True)))


def _vector_of_structs(array: Any, field: Field, path: str, slots: _Slots) -> Iterator[Leaf]:
    size = array.type.list_size
    if slots.lists or any(each.logical_type in _LISTS for each in field.walk()):
        raise UnsupportedFeature(
            f"column {path!r}: a fixed-size list of structs inside or around a list cannot be stored; use "
            "list instead"
        )
    inner = _item(array, field, path, slots)
    def_ = None if inner.def_ is None else np.repeat(inner.def_, size)
    inner = replace(inner, def_=def_, count=inner.count * size, rows=inner.rows * size)
    child = array.values.slice(array.offset * size, len(array) * size)
    name = field.children[0].name
    yield from _walk(child, field.children[0], f"{path}.{name}", inner)


_LISTS = frozenset({"list", "large_list", "list.struct", "large_list.struct", "map"})


def _list(array: Any, field: Field, path: str, slots: _Slots) -> tuple[Any, _Slots]:
    offsets = list_offsets(array)
    bits, start = validity(array)
    def_ = np.zeros(slots.count, np.uint16) if slots.def_ is None else slots.def_
    rep = np.zeros(slots.count, np.uint16) if slots.rep is None else slots.rep
    count, kept, nulls, empties, hides = kernels.measure_lists(def_, offsets, bits, start)
    if nulls and not field.nullable:
        raise _must_not_be_null(path, nulls)
    code = 2 * len(slots.layers) + 1
    out_rep, out_def = np.empty(count, np.uint16), np.empty(count, np.uint16)
    children = np.empty(kept, np.int64) if hides else NO_ROWS
    kernels.ravel_lists(
        rep, def_, offsets, bits, start, slots.lists + 1, code, code + 1, out_rep, out_def, children
    )
    first = int(offsets[0])
    values = array.values
    child = values.take(pa.array(children)) if hides else values.slice(first, int(offsets[-1]) - first)
    # Below a null struct a list layer counts as nullable even where no list is null itself: the official
    # reader makes a null list of a null struct, and miscounts when the layer has no level for it.
    null = nulls > 0 or _below_null_struct(slots.layers) or (slots.general and field.nullable)
    layer = _Layer(True, null, empties > 0 or slots.general)
    special = count != kept
    return child, _Slots(out_rep, out_def if special else None, count, slots.rows, (*slots.layers, layer))


def _has_list_below_struct(field: Field, below: bool) -> bool:
    if field.is_leaf:
        return False
    if field.logical_type in _LISTS and below:
        return True
    below = below or field.logical_type == "struct"
    return any(_has_list_below_struct(child, below) for child in field.children)


def _below_null_struct(layers: tuple[_Layer, ...]) -> bool:
    """Whether a struct above, with no list between, is null somewhere."""
    for layer in reversed(layers):
        if layer.is_list:
            return False
        if layer.nulls:
            return True
    return False


_WIDE = frozenset(each.id for each in (pa.large_list(pa.null()), pa.large_string(), pa.large_binary()))
"""Types whose offsets have 64 bits."""


def list_offsets(array: Any) -> I64:
    """The offsets of a list, map, string or binary array as int64, one more than values."""
    if len(array) == 0:
        return np.zeros(1, np.int64)
    raw = np.frombuffer(array.buffers()[1], np.int64 if array.type.id in _WIDE else np.int32)
    return raw[array.offset : array.offset + len(array) + 1].astype(np.int64, copy=False)


def without_null_items(array: Any) -> Any:
    """The same dictionary array with nulls in its indices only (compression.md 3.10)."""
    items = array.dictionary
    present = np.asarray(items.is_valid())
    indices = array.indices
    valid = np.asarray(indices.is_valid())
    words = np.asarray(indices.fill_null(0)).astype(np.int64) if len(indices) else np.empty(0, np.int64)
    if len(items):
        valid = valid & present[words]
    moved = (np.cumsum(present) - 1)[words] if len(items) else words
    narrow = np.where(valid, moved, 0)
    keys = pa.array(narrow, mask=~valid).cast(indices.type)
    return pa.DictionaryArray.from_arrays(keys, items.take(pa.array(np.flatnonzero(present))))


def _leaf(array: Any, field: Field, path: str, slots: _Slots) -> Leaf:
    """Turn codes into the level numbers of this path, counted from the leaf outwards."""
    table = np.zeros(2 * len(slots.layers) + 1, np.uint16)
    level, max_visible, seen_list = 0, 0, False
    for depth in range(len(slots.layers) - 1, -1, -1):
        layer = slots.layers[depth]
        if layer.is_list and not seen_list:
            max_visible, seen_list = level, True
        if layer.nulls:
            level += 1
            table[2 * depth + 1] = level
        if layer.empties:
            level += 1
            table[2 * depth + 2] = level
    if not seen_list:
        max_visible = level
    def_ = rep = None
    if level and slots.def_ is None:
        def_ = np.zeros(slots.count, np.uint16)
    elif level:
        assert slots.def_ is not None
        def_ = np.empty(slots.count, np.uint16)
        kernels.remap_levels(slots.def_, table, def_)
    lists = slots.lists
    if lists and slots.rep is not None:
        rep = np.empty(slots.count, np.uint16)
        kernels.remap_levels(slots.rep, np.array([0, *range(lists, 0, -1)], np.uint16), rep)
    layers = tuple(layer.kind for layer in reversed(slots.layers))
    levels = Levels(rep, def_, slots.count, slots.rows, lists, level, max_visible, layers)
    return Leaf(field, path, array, levels)
