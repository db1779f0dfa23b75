"""Constant pages: nothing visible, or one value for all (file-format.md 7.4)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tiltyard.encoding.levels.ravel import NO_LEVELS, Levels
from tiltyard.encoding.write.level_codec import encode_levels
from tiltyard.encoding.write.pages import EncodedPage
from tiltyard.encoding.write.values import Fixed, Text
from tiltyard.format.layouts import NULLABLE_ITEM, ConstantPage, Encoding
from tiltyard.format.version import FileVersion

U8 = npt.NDArray[np.uint8]
U16 = npt.NDArray[np.uint16]

INLINE_BYTES = 32
"""Longest scalar that stands in the layout itself."""
SCALAR_LEVELS = 256
"""So few levels cost less than the chunk table of a mini-block page."""


def all_null_page(levels: Levels, version: FileVersion) -> EncodedPage:
    """A page without a visible valid item."""
    if levels.layers == (NULLABLE_ITEM,) and levels.rep is None:
        return EncodedPage(ConstantPage(levels.layers), (), levels.rows)
    rep, def_ = _raw(levels.rep), _raw(levels.def_)
    if version is FileVersion.V2_1:
        return EncodedPage(
            ConstantPage(levels.layers), (rep.view(np.uint8), def_.view(np.uint8)), levels.rows
        )
    rep_code, rep_bytes = _compressed(rep)
    def_code, def_bytes = _compressed(def_)
    layout = ConstantPage(levels.layers, None, rep_code, def_code, rep.size, def_.size)
    return EncodedPage(layout, (rep_bytes, def_bytes), levels.rows)


def _raw(levels: U16 | None) -> U16:
    return NO_LEVELS if levels is None else levels


def _compressed(levels: U16) -> tuple[Encoding | None, U8]:
    if not levels.size:
        return None, levels.view(np.uint8)
    encoding, data, _ = encode_levels(levels, np.array([levels.size], np.int64), runs=True)
    return encoding, data


def empty_struct_page(levels: Levels) -> EncodedPage:
    """Structs without fields: the page says only how many there are (file-format.md 7.5)."""
    return EncodedPage(ConstantPage((NULLABLE_ITEM,)), (), levels.rows)


def scalar_pays(levels: Levels, version: FileVersion, otherwise: int) -> bool:
    """Whether a scalar page is allowed and not larger than a mini-block page whose values take `otherwise`
    bytes.

    Beside a scalar, levels stand as they are; in a mini-block page they take about two bits each.
    """
    if version is FileVersion.V2_1:
        return False
    kinds = (levels.rep is not None) + (levels.def_ is not None)
    return kinds == 0 or levels.entries <= SCALAR_LEVELS or 7 * kinds * levels.entries // 4 <= otherwise


def scalar_page(levels: Levels, values: Fixed | Text, row: int) -> EncodedPage:
    """All visible valid items equal the value in `row`."""
    inline: bytes | None = None
    buffers: list[bytes | U8] = []
    if isinstance(values, Fixed):
        own = _scalar_bytes(values, row)
        if len(own) <= INLINE_BYTES:
            inline = own
        else:
            buffers.append(_value_buffer([own]))
    else:
        begin, end = int(values.offsets[row]), int(values.offsets[row + 1])
        offsets = np.array([0, end - begin], f"<i{values.width}").tobytes()
        buffers.append(_value_buffer([offsets, values.data[begin:end].tobytes()]))
    if levels.rep is not None or levels.def_ is not None:
        buffers += [_raw(levels.rep).view(np.uint8), _raw(levels.def_).view(np.uint8)]
    return EncodedPage(ConstantPage(levels.layers, inline), buffers, levels.rows)


def _scalar_bytes(values: Fixed, row: int) -> bytes:
    if values.bits == 1:
        return bytes([values.data[row // 8] >> (row % 8) & 1])
    size = values.bits // 8
    return values.data[row * size : (row + 1) * size].tobytes()


def _value_buffer(parts: list[bytes]) -> bytes:
    head = np.array([len(parts), *map(len, parts)], "<u4").tobytes()
    return head + b"".join(parts)
