"""Kernels of the reader. Arrays are one-dimensional and contiguous; all raise ValueError on damage.

A column is described by seven arrays, called `column` below and passed one by one: `src` (uint8, the whole
file), `aux` (uint8, buffers decompressed elsewhere), `staged` (int64, six per chunk: where in `aux`; or
empty), `side` (uint8, small facts of pages), `pages` (int64, `encoding.program.FIELDS` per page), `first`
(int64, first item of each chunk and the end), `chunks` (int64, three per chunk: position, bytes, page). What
is wanted comes as `start` and `count` (int64; an empty `count` means one each), items or rows counted through
the column.

- `fixed(*column, start, count, bits, out)`: values of `bits` bits into uint8 `out`
- `ColumnTables(src, side, pages, first, chunks)`: a column without `staged` buffers, checked once and kept
- `fixed_columns(tables, start, count, jobs, out)`: `fixed` for each of a tuple of `ColumnTables`; a job is
  four numbers: its segments (from, to), bits of a value, position of its values in `out`
- `within(table, start, count, bits, low, span, out)`: for values of `bits` bits of one `ColumnTables` whether
  each lies among the `span` + 1 words from `low` on (both below 2**bits, and words wrap around: so signed
  values are tested too), as 0 or 1 into uint8 `out`
- `among(table, start, count, bits, is_signed, low, span, multiplier, shift, filter, positions, words)
  -> int`: the values that pass a filter, as 64-bit words: those among the `span` + 1 words from `low` on that
  uint8 `filter` knows. Multiplier 1: by a 1 at word - low (one byte more is there for all others). Else by
  the byte at word * multiplier >> shift, which is 1, or 0x80 with the next seven bits of the product. Puts
  their numbers among what is wanted into int64 `positions` and themselves into uint64 `words`
- `variable(*column, start, count, offsets, out) -> int`: offsets (int32 or int64) and bytes; returns how many
  bytes there are, and leaves out what does not fit
- `variable_columns(tables, start, count, offsets, out) -> int`: the same for one column of many files;
  segment i is of `tables[i]`
- `definition(*column, start, count, out)`: uint16 definition levels of items of a column without lists
- `level_bound(*column, low, high) -> int`: level entries of a range of chunks
- `rows(*column, started, start, count, rep, def, item_start, item_count) -> int`: levels and item ranges of
  rows of a column with lists; returns the entries there are
- `zip_rows(src, side, pages, row_first, start, count, rep, def, position, length, page) -> (entries, values)`
- `gather_fixed(src, position, width, out)`
- `gather_variable(src, position, length, page, side, pages, offsets, out) -> int`
- `gather_strings(index, dictionary_offsets, dictionary, offsets, out) -> int`
- `unravel_items(rep, def, depth, cut, level, stride, bitmap) -> (slots, nulls)`
- `unravel_lists(rep, def, depth, cut, inner, level, offsets, bitmap) -> (lists, nulls, children)`
- `block_fixed(data, codec, bits, width, n, out)`, `block_levels(data, codec, width, out)`: one packed block
- `index_chunks(src, places, first, started, chunks) -> int`: chunk tables from nine numbers a page (chunk
  words: position, bytes, bytes of a word or 0 where the page is one chunk; chunks: position, bytes; items;
  rows; repetition index: position or -1, bytes); returns the chunks there are
- `chunk_buffers(src, side, pages, first, chunks, wanted, buffers, out)`: where the buffers of chunks lie
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType


def _implementation() -> ModuleType:
    if os.environ.get("TILTYARD_PURE") != "1":
        try:
            return importlib.import_module("tiltyard.kernels._decode")
        except ImportError:
            pass  # not built: the reference below gives the same answers, slower
    return importlib.import_module("tiltyard.kernels.reference.decode")


_native = _implementation()

ColumnTables = _native.ColumnTables
fixed = _native.fixed
fixed_columns = _native.fixed_columns
among = _native.among
within = _native.within
variable = _native.variable
variable_columns = _native.variable_columns
definition = _native.definition
level_bound = _native.level_bound
rows = _native.rows
zip_rows = _native.zip_rows
gather_fixed = _native.gather_fixed
gather_variable = _native.gather_variable
gather_strings = _native.gather_strings
unravel_items = _native.unravel_items
unravel_lists = _native.unravel_lists
block_fixed = _native.block_fixed
block_levels = _native.block_levels
chunk_buffers = _native.chunk_buffers
index_chunks = _native.index_chunks
