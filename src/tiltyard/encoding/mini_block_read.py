"""Mini-block pages: many chunks of a few thousand values (file format 7.1 and 7.2), read side.

The chunk words become arrays of positions once per file; chunk headers are read by the kernels, every time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tiltyard.encoding.program import MINI_BLOCK, P, PageProgram, plan_levels, plan_values
from tiltyard.errors import CorruptFile
from tiltyard.format.layouts import MiniBlock

I64 = npt.NDArray[np.int64]

#: Value buffers that a chunk may have (nested fixed-size lists have one a level).
MAX_BUFFERS = 16
#: Bytes of which chunk sizes are multiples.
CHUNK_UNIT_BYTES = 8
_LOG_BITS = 4
_MAX_ITEMS = 1 << 48


@dataclass(frozen=True, slots=True)
class ChunkTable:
    """Chunks of one page: items, position and bytes of each; rows that start in each (None without lists)."""

    items: I64
    position: I64
    size: I64
    rows: I64 | None


def plan(layout: MiniBlock) -> PageProgram:
    """The program of a page, but for what depends on its place."""
    program = PageProgram()
    row = program.row
    row[P.KIND] = MINI_BLOCK
    row[P.LARGE] = layout.large_chunks
    row[P.REP_CODEC], row[P.REP_BITS], program.rep_schemes = plan_levels(layout.rep)
    row[P.DEF_CODEC], row[P.DEF_BITS], program.def_schemes = plan_levels(layout.def_)
    if layout.num_buffers > MAX_BUFFERS:
        raise CorruptFile(f"chunks of {layout.num_buffers} value buffers; at most {MAX_BUFFERS} are known")
    row[P.BUFFERS] = layout.num_buffers
    plan_values(layout.values, program)
    return program


def chunk_table(
    source: npt.NDArray[np.uint8],
    layout: MiniBlock,
    buffers: list[tuple[int, int]],
    rows: int,
    *,
    lists: bool,
) -> ChunkTable:
    """Where the chunks of a page lie. Raises `CorruptFile` when words, buffers and counts contradict."""
    expected = 2 + (layout.dictionary is not None) + lists
    if len(buffers) < expected:
        raise CorruptFile(f"a mini-block page has {len(buffers)} buffers, its layout needs {expected}")
    (words_at, words_size), (chunks_at, chunks_size) = buffers[0], buffers[1]
    width = 4 if layout.large_chunks else 2
    if words_size % width or words_size == 0:
        raise CorruptFile(f"{words_size} bytes of chunk words of {width} bytes each")
    words = source[words_at : words_at + words_size].view(f"<u{width}").astype(np.int64)
    size = ((words >> _LOG_BITS) + 1) * CHUNK_UNIT_BYTES
    if int(size.sum()) > chunks_size:
        raise CorruptFile(f"chunks of {int(size.sum())} bytes in a buffer of {chunks_size}")
    items = np.left_shift(np.int64(1), words & (2**_LOG_BITS - 1))
    before = int(items[:-1].sum())
    if not before <= layout.num_items <= _MAX_ITEMS:
        raise CorruptFile(f"the chunks before the last hold {before} items, the page says {layout.num_items}")
    items[-1] = layout.num_items - before
    position = np.cumsum(size) - size + chunks_at
    if not lists:
        if layout.num_items != rows:
            raise CorruptFile(f"a page of {rows} rows holds {layout.num_items} items")
        return ChunkTable(items, position, size, None)
    return ChunkTable(items, position, size, _rows(source, buffers[-1], len(words), rows))


def _rows(source: npt.NDArray[np.uint8], index: tuple[int, int], chunks: int, rows: int) -> I64:
    """Rows that start in each chunk, from the rows that end there and the entries left over (7.2)."""
    at, size = index
    if size != 16 * chunks:
        raise CorruptFile(f"a repetition index of {size} bytes for {chunks} chunks; expected {16 * chunks}")
    pairs = source[at : at + size].view("<u8").reshape(chunks, 2)
    if (pairs[:, 0] > np.uint64(rows)).any():
        raise CorruptFile(f"a repetition index counts more rows than the page's {rows}")
    ended = np.cumsum(pairs[:, 0].astype(np.int64))
    started = ended + (pairs[:, 1] > 0)
    if ended[-1] != rows or started[-1] != rows:
        raise CorruptFile(f"a repetition index of {int(ended[-1])} rows in a page of {rows}")
    starts = np.diff(started, prepend=np.int64(0))
    if starts.min() < 0:
        raise CorruptFile("a repetition index in which a row that is left over never ends")
    return starts
