"""Levels to Arrow structure (file format 6.6).

Pages of one column may declare different kinds for a layer, so that a level number means different things
in each. The reader maps all to one numbering for the column, in which an item layer has one level and a list
layer two (null, then empty); then every layer of a whole range or take is unravelled from the same two
arrays, each in one pass and independent of the others:

- an entry owns a slot at an item layer below or at `depth` lists if rep >= depth and def <= cut[depth], where
  cut[k] is the greatest level of the layers inside the (k+1)-th list; it is valid if def < the layer's level
- an entry is a list of the j-th list layer if rep >= j and def <= cut[j]; it has a child if def <= cut[j - 1]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiltyard.errors import BatchTooLarge, CorruptFile
from tiltyard.format.layouts import (
    ALL_VALID_ITEM,
    EMPTYABLE_LIST,
    NULL_AND_EMPTY_LIST,
    NULLABLE_ITEM,
    NULLABLE_LIST,
)
from tiltyard.kernels import decode as kernels
from tiltyard.session import Session

U16 = npt.NDArray[np.uint16]
NO_LEVELS: U16 = np.empty(0, np.uint16)

#: A level that no page reaches: everything is visible where there is no list.
EVERYTHING_VISIBLE = 0xFFFF


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers of a column, innermost first, with the column's own level numbers.

    `is_list[i]`; `level[i]`: the null level of layer i (a list's empty level is one more); `depth[i]`: list
    layers inside layer i; `cut[k]`: see the module.
    """

    is_list: tuple[bool, ...]
    level: tuple[int, ...]
    depth: tuple[int, ...]
    cut: tuple[int, ...]

    @property
    def max_rep(self) -> int:
        return len(self.cut) - 1

    @classmethod
    def of(cls, is_list: Sequence[bool]) -> Layers:
        """Number the layers, given innermost first."""
        level, depth, cut = [], [], []
        last = 0
        for each in is_list:
            if each:
                cut.append(last)
            level.append(last + 1)
            depth.append(len(cut) - each)
            last += 2 if each else 1
        cut.append(last)
        return cls(tuple(is_list), tuple(level), tuple(depth), tuple(cut))

    def map_page(self, declared: Sequence[int]) -> tuple[U16, int]:
        """The column's number of each level of a page, and the page's greatest visible level."""
        if len(declared) != len(self.is_list):
            raise CorruptFile(
                f"a page declares {len(declared)} nesting layers, its field has {len(self.is_list)}"
            )
        numbers = [0]
        visible = EVERYTHING_VISIBLE
        for kind, is_list, level in zip(declared, self.is_list, self.level, strict=True):
            if is_list != (kind not in (ALL_VALID_ITEM, NULLABLE_ITEM)):
                raise CorruptFile(f"a page declares layer kind {kind} for a {'list' if is_list else 'value'}")
            if is_list and visible == EVERYTHING_VISIBLE:
                visible = len(numbers) - 1
            if kind in (NULLABLE_ITEM, NULLABLE_LIST, NULL_AND_EMPTY_LIST):
                numbers.append(level)
            if kind in (EMPTYABLE_LIST, NULL_AND_EMPTY_LIST):
                numbers.append(level + 1)
        return np.array(numbers, np.uint16), visible


def validity(
    session: Session, layers: Layers, i: int, rep: U16, def_: U16, slots: int, stride: int = 1
) -> tuple[Any, int]:
    """Validity bitmap (a `pa.Buffer`, or None where nothing is null) and null count of item layer `i`.

    Raises `CorruptFile` if the levels do not describe `slots` slots.
    """
    bitmap, buffer = session.arena.alloc((slots + 7) // 8)
    depth = layers.depth[i]
    found, nulls = kernels.unravel_items(rep, def_, depth, layers.cut[depth], layers.level[i], stride, bitmap)
    if found != slots:
        raise CorruptFile(f"levels describe {found} values where {slots} are expected")
    return (buffer, nulls) if nulls else (None, 0)


def lists(
    session: Session, layers: Layers, i: int, rep: U16, def_: U16, slots: int, *, large: bool
) -> tuple[Any, Any, int, int]:
    """Offsets, validity, null count and number of children of list layer `i`, which has `slots` lists.

    Offsets are int64 if `large`, else int32. Raises `BatchTooLarge`, `CorruptFile`.
    """
    dtype = np.dtype(np.int64 if large else np.int32)
    offsets, offsets_buffer = session.arena.alloc((slots + 1) * dtype.itemsize)
    bitmap, bitmap_buffer = session.arena.alloc((slots + 7) // 8)
    depth = layers.depth[i] + 1
    found, nulls, children = kernels.unravel_lists(
        rep,
        def_,
        depth,
        layers.cut[depth],
        layers.cut[depth - 1],
        layers.level[i],
        offsets.view(dtype),
        bitmap,
    )
    if found != slots:
        raise CorruptFile(f"levels describe {found} lists where {slots} are expected")
    if not large and children > session.limits.offset_limit:
        raise BatchTooLarge(
            f"{slots} lists hold {children} items, more than {session.limits.offset_limit}: read fewer rows "
            "at once"
        )
    return offsets_buffer, bitmap_buffer if nulls else None, nulls, children
