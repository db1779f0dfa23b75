"""Mini-block pages: many small values in chunks that are decoded one by one (file-format.md 7.2)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tiltyard.encoding.levels.ravel import NO_BYTES, NO_ROWS, Levels
from tiltyard.encoding.write.chunks import Chunks, shares
from tiltyard.encoding.write.level_codec import encode_levels
from tiltyard.encoding.write.pages import EncodedPage, large_chunks
from tiltyard.format.layouts import Encoding, MiniBlock
from tiltyard.format.version import FileVersion
from tiltyard.kernels import encode as kernels

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]

MAX_CHUNK_LEVELS = 65535
MAX_LEVEL_BYTES = 65535
SMALL_CHUNK_BYTES = 32768
"""A whole chunk in version 2.1, header and levels included."""


class ChunkOverflowError(Exception):
    """A chunk would not fit its header fields: the page must be split or laid out in another way."""


def mini_block_page(
    levels: Levels, chunks: Chunks, version: FileVersion, dictionary: tuple[Encoding, U8, int] | None = None
) -> EncodedPage:
    """The page of some chunked values. Raises `ChunkOverflowError` when its levels do not fit their chunks.

    `dictionary`: encoding, block and number of items that the chunks' indices point into.
    """
    large = large_chunks(version)
    has_levels = levels.rep is not None or levels.def_ is not None
    if has_levels:
        ends = _level_ends(levels, chunks.items)
        counts = shares(ends)
        if int(counts.max()) > MAX_CHUNK_LEVELS:
            raise ChunkOverflowError
    else:
        ends, counts = NO_ROWS, np.zeros_like(chunks.items)
    rep, rep_bytes, rep_ends = _part(levels.rep, ends, large)
    def_, def_bytes, def_ends = _part(levels.def_, ends, large)
    sizes = _chunk_sizes(rep_ends, def_ends, chunks, large)
    words = np.empty(chunks.items.size * (4 if large else 2), np.uint8)
    out = np.empty(int(sizes.sum()), np.uint8)
    kernels.mini_block(
        counts,
        rep_bytes,
        rep_ends,
        def_bytes,
        def_ends,
        list(chunks.buffers),
        list(chunks.ends),
        _logs(chunks.items),
        large,
        words,
        out,
    )
    buffers: list[U8] = [words, out]
    if dictionary is not None:
        buffers.append(dictionary[1])
    if levels.max_rep:
        index = np.empty(2 * chunks.items.size, np.uint64)
        assert levels.rep is not None
        kernels.repetition_index(levels.rep, levels.max_rep, ends, index)
        buffers.append(index.view(np.uint8))
    layout = MiniBlock(
        rep,
        def_,
        chunks.encoding,
        None if dictionary is None else dictionary[0],
        0 if dictionary is None else dictionary[2],
        levels.layers,
        len(chunks.buffers),
        1 if levels.max_rep else 0,
        int(chunks.items.sum()),
        large,
    )
    return EncodedPage(layout, buffers, levels.rows)


def _level_ends(levels: Levels, items: I64) -> I64:
    if not levels.has_hidden:
        return np.cumsum(items)
    assert levels.def_ is not None
    ends = np.empty(items.size, np.int64)
    kernels.level_ends(levels.def_, levels.max_visible, items, ends)
    return ends


def _part(levels: npt.NDArray[np.uint16] | None, ends: I64, runs: bool) -> tuple[Encoding | None, U8, I64]:
    if levels is None:
        return None, NO_BYTES, NO_ROWS
    encoding, data, out_ends = encode_levels(levels, ends, runs=runs)
    if int(shares(out_ends).max()) > MAX_LEVEL_BYTES:
        raise ChunkOverflowError
    return encoding, data, out_ends


def _chunk_sizes(rep_ends: I64, def_ends: I64, chunks: Chunks, large: bool) -> I64:
    """Bytes of each chunk: header and every buffer, padded to 8."""
    header = 2 + 2 * bool(rep_ends.size) + 2 * bool(def_ends.size) + len(chunks.buffers) * (4 if large else 2)
    total = np.full(chunks.items.size, -(-header // 8) * 8, np.int64)
    for ends in (rep_ends, def_ends, *chunks.ends):
        if ends.size:
            total += -(-shares(ends) // 8) * 8
    if not large and int(total.max()) > SMALL_CHUNK_BYTES:
        raise ChunkOverflowError
    return total


def _logs(items: I64) -> U8:
    """log2 of the values of each chunk; 0 for the last."""
    logs = np.zeros(items.size, np.uint8)
    if items.size > 1:
        logs[:-1] = np.log2(items[:-1]).astype(np.uint8)
    return logs
