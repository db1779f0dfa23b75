"""Full-zip pages: one entry per level, control word and value side by side (file-format.md 7.3)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tiltyard.encoding.levels.ravel import NO_BYTES, Levels
from tiltyard.encoding.write.pages import EncodedPage
from tiltyard.format.layouts import Encoding, FullZip
from tiltyard.kernels import encode as kernels

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]


def fixed_page(levels: Levels, data: U8, bits: int, encoding: Encoding, count: int) -> EncodedPage:
    """`count` values of `bits` bits (whole bytes) each in `data`, one per visible entry, null or not."""
    size = bits // 8
    control, width, bits_rep, bits_def = _control_words(levels)
    layout = FullZip(bits_rep, bits_def, bits, False, levels.entries, count, encoding, levels.layers)
    if width == 0:
        return EncodedPage(layout, (data,), levels.rows)
    shown = _visible(levels)
    sizes = (
        np.where(shown, width + size, width) if shown is not None else np.full(levels.entries, width + size)
    )
    positions = np.cumsum(sizes) - sizes
    out = np.empty(int(sizes.sum()), np.uint8)
    kernels.scatter_fixed(control, width, positions, out)
    places = positions if shown is None else np.ascontiguousarray(positions[shown])
    kernels.scatter_fixed(data, size, places + width, out)
    buffers = [out]
    if levels.max_rep:
        buffers.append(_row_starts(levels, positions, out.size))
    return EncodedPage(layout, buffers, levels.rows)


def variable_page(
    levels: Levels, offsets: I64, data: U8, nulls: U8, length_size: int, encoding: Encoding
) -> EncodedPage:
    """Values of varying width, one per visible entry; a null one has neither length nor bytes."""
    control, width, bits_rep, bits_def = _control_words(levels)
    count = offsets.size - 1
    layout = FullZip(
        bits_rep, bits_def, 8 * length_size, True, levels.entries, count, encoding, levels.layers
    )
    present = np.ones(count, bool) if not nulls.size else nulls == 0
    value_sizes = np.where(present, np.diff(offsets) + length_size, 0)
    shown = _visible(levels)
    if shown is None:
        sizes = value_sizes + width
    else:
        sizes = np.full(levels.entries, width, np.int64)
        sizes[shown] += value_sizes
    positions = np.cumsum(sizes) - sizes
    out = np.empty(int(sizes.sum()), np.uint8)
    if width:
        kernels.scatter_fixed(control, width, positions, out)
    places = (positions if shown is None else positions[shown]) + width
    if nulls.size:  # a null owns no bytes, so offsets of the others still lie back to back
        places = places[present]
        offsets = np.append(offsets[:-1][present], offsets[-1])
    kernels.scatter_variable(data, offsets, np.ascontiguousarray(places), length_size, out)
    return EncodedPage(layout, (out, _row_starts(levels, positions, out.size)), levels.rows)


def _control_words(levels: Levels) -> tuple[U8, int, int, int]:
    """Bytes of all control words, bytes of one, bits of repetition and definition in it."""
    bits_rep = levels.max_rep.bit_length() if levels.rep is not None else 0
    bits_def = levels.max_def.bit_length() if levels.def_ is not None else 0
    bits = bits_rep + bits_def
    if bits == 0:
        return NO_BYTES, 0, 0, 0
    width = 1 if bits <= 8 else 2 if bits <= 16 else 4
    words = np.zeros(levels.entries, np.uint32)
    if levels.rep is not None:
        words |= levels.rep.astype(np.uint32) << bits_def
    if levels.def_ is not None:
        words |= levels.def_
    return words.astype(f"<u{width}").view(np.uint8), width, bits_rep, bits_def


def _visible(levels: Levels) -> npt.NDArray[np.bool_] | None:
    if not levels.has_hidden:
        return None
    assert levels.def_ is not None
    return levels.def_ <= levels.max_visible


def _row_starts(levels: Levels, positions: I64, total: int) -> U8:
    """The repetition index: where each row starts, then the end, in the narrowest width."""
    starts = positions if levels.rep is None else positions[levels.rep == levels.max_rep]
    width = next(each for each in (1, 2, 4, 8) if total < 1 << (8 * each))
    return np.append(starts, total).astype(f"<u{width}").view(np.uint8)
