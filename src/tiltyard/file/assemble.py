"""From decoded leaf columns to Arrow arrays of top-level fields.

A field tree becomes a tree of nodes once per projection. Structs, lists, maps and fixed-size lists of
structs own no column: each takes validity and offsets from one leaf below it, its guide, because every
leaf repeats the structure above it (file format 4.2 and 6). A leaf without a column is all null, and so is a
struct without any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import types

from tiltyard.encoding.levels import unravel
from tiltyard.errors import CorruptFile, UnsupportedFeature
from tiltyard.file.nulls import null_array
from tiltyard.file.values import Leaf, LeafReader
from tiltyard.format.blobs import check_described
from tiltyard.format.schema import Field
from tiltyard.session import Session


@dataclass(frozen=True, slots=True)
class LeafPlan:
    """One column to read; `scale`: entries per row (the dimensions of fixed-size lists of structs above)."""

    reader: LeafReader
    scale: int


@dataclass(frozen=True, slots=True)
class Guide:
    """The leaf a node takes its structure from: its number, the node's layer in it, entries per slot."""

    leaf: int
    layer: int
    stride: int


Leaves = list[Leaf]
Node = Callable[[Session, Leaves, int], Any]


def _nulls(arrow: Any, name: str) -> Node:
    """The node of a field without columns."""
    return lambda session, leaves, slots: null_array(session, slots, arrow, name)


class Planner:
    """Builds nodes for the fields of one projection.

    `open_leaf(column, field, above)` gives a column's reader; `above`: whether each ancestor of the leaf is a
    list layer, outermost first.
    """

    def __init__(
        self,
        columns: Mapping[int, int],
        open_leaf: Callable[[int, Field, tuple[bool, ...]], LeafReader],
    ) -> None:
        self._columns = columns
        self._open_leaf = open_leaf
        self.leaves: list[LeafPlan] = []

    def node(self, field: Field, above: tuple[bool, ...] = (), scale: int = 1) -> Node:
        """The node of a field below `above`."""
        if field.is_leaf:
            check_described(field)
            return self._leaf(field, above, scale)
        arrow = field.arrow_type
        if types.is_struct(arrow):
            return self._struct(field, arrow, above, scale)
        if types.is_map(arrow):
            return self._list(
                field.name, arrow, above, scale, lambda: self._entries(field.children[0], above, scale)
            )
        if types.is_fixed_size_list(arrow):
            return self._fixed(field, arrow, above, scale)
        return self._list(
            field.name, arrow, above, scale, lambda: self.node(field.children[0], (*above, True), scale)
        )

    def _leaf(self, field: Field, above: tuple[bool, ...], scale: int) -> Node:
        arrow = field.arrow_type
        column = self._columns.get(field.id)
        if column is None:
            return _nulls(arrow, field.name)
        number = len(self.leaves)
        self.leaves.append(LeafPlan(self._open_leaf(column, field, above), scale))
        name = field.name

        def build(session: Session, leaves: Leaves, slots: int) -> Any:
            leaf = leaves[number]
            if leaf.slots != slots:
                raise CorruptFile(f"field {name!r} holds {leaf.slots} values where {slots} are expected")
            return leaf.array

        return build

    def _guide(self, before: int, above: tuple[bool, ...], scale: int) -> Guide | None:
        """The first leaf planned since `before`, for the node right below `above`."""
        if len(self.leaves) == before:
            return None
        plan = self.leaves[before]
        layers = plan.reader.table.layers
        return Guide(before, len(layers.is_list) - 1 - len(above), plan.scale // scale)

    def _validity(self, guide: Guide) -> Callable[[Session, Leaves, int], tuple[Any, int]]:
        table = self.leaves[guide.leaf].reader.table
        used = table.layers.level[guide.layer] in table.levels_used

        def validity(session: Session, leaves: Leaves, slots: int) -> tuple[Any, int]:
            leaf = leaves[guide.leaf]
            if not used or leaf.def_ is None:
                return None, 0
            return unravel.validity(
                session, table.layers, guide.layer, leaf.rep, leaf.def_, slots, guide.stride
            )

        return validity

    def _struct(self, field: Field, arrow: Any, above: tuple[bool, ...], scale: int) -> Node:
        before = len(self.leaves)
        children = [self.node(child, (*above, False), scale) for child in field.children]
        guide = self._guide(before, above, scale)
        if guide is None:
            return _nulls(arrow, field.name)
        validity = self._validity(guide)

        def build(session: Session, leaves: Leaves, slots: int) -> Any:
            bitmap, nulls = validity(session, leaves, slots)
            parts = [child(session, leaves, slots) for child in children]
            return pa.Array.from_buffers(arrow, slots, [bitmap], nulls, children=parts)

        return build

    def _entries(self, field: Field, above: tuple[bool, ...], scale: int) -> Node:
        """The entries of a map: never null, whatever the schema says."""
        arrow = field.arrow_type
        inside = (*above, True, False)
        children = [self.node(child, inside, scale) for child in field.children]

        def build(session: Session, leaves: Leaves, slots: int) -> Any:
            parts = [child(session, leaves, slots) for child in children]
            return pa.Array.from_buffers(arrow, slots, [None], 0, children=parts)

        return build

    def _fixed(self, field: Field, arrow: Any, above: tuple[bool, ...], scale: int) -> Node:
        before = len(self.leaves)
        dimension = arrow.list_size
        child = self.node(field.children[0], (*above, False), scale * dimension)
        guide = self._guide(before, above, scale)
        if guide is None:
            return _nulls(arrow, field.name)
        if any(self.leaves[i].reader.table.layers.max_rep for i in range(before, len(self.leaves))):
            raise UnsupportedFeature(
                f"field {field.name!r}: lists inside or around fixed-size lists of structs are not supported"
            )
        validity = self._validity(guide)

        def build(session: Session, leaves: Leaves, slots: int) -> Any:
            bitmap, nulls = validity(session, leaves, slots)
            items = child(session, leaves, slots * dimension)
            return pa.Array.from_buffers(arrow, slots, [bitmap], nulls, children=[items])

        return build

    def _list(
        self, name: str, arrow: Any, above: tuple[bool, ...], scale: int, below: Callable[[], Node]
    ) -> Node:
        before = len(self.leaves)
        child = below()
        guide = self._guide(before, above, scale)
        if guide is None:
            return _nulls(arrow, name)
        layers = self.leaves[guide.leaf].reader.table.layers
        large = bool(types.is_large_list(arrow))
        number, layer = guide.leaf, guide.layer

        def build(session: Session, leaves: Leaves, slots: int) -> Any:
            leaf = leaves[number]
            assert leaf.def_ is not None
            offsets, bitmap, nulls, children = unravel.lists(
                session, layers, layer, leaf.rep, leaf.def_, slots, large=large
            )
            items = child(session, leaves, children)
            return pa.Array.from_buffers(arrow, slots, [bitmap, offsets], nulls, children=[items])

        return build
