"""Building the tables of a column from its page table: programs, chunks, classes, dictionaries (D42).

What depends on a layout alone is planned once and kept for all files; what depends on a page's place is
filled in for all pages at once. Only pages that carry something of their own (a scalar, a dictionary, control
words) cost a few microseconds each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tiltyard.encoding import constant_read, dictionary, full_zip_read, mini_block_read
from tiltyard.encoding.levels.unravel import Layers
from tiltyard.encoding.program import (
    CONSTANT,
    FIELDS,
    MINI_BLOCK,
    VALUE_FSST,
    VALUE_NONE,
    VALUE_SCALAR,
    P,
    PageProgram,
)
from tiltyard.errors import CorruptFile, UnsupportedFeature
from tiltyard.format.container import ColumnPages
from tiltyard.format.layouts import ConstantPage, FullZip, MiniBlock, PageLayout
from tiltyard.kernels import decode as kernels

I64 = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

#: Classes of pages, which are read by different calls: values in place; indices into a dictionary; full-zip
#: entries that must be walked; booleans of one byte each (full-zip pages).
PLAIN, DICTIONARY, WALKED, BYTES = range(4)

PLANS_KEPT = 1024
PLACE_FIELDS = 9
_MAX_ITEMS = 1 << 48


@dataclass(frozen=True, slots=True)
class Lone:
    """What all columns of one page of a layout share; never written to."""

    programs: list[PageProgram]
    rows: I64
    side: Bytes
    classes: npt.NDArray[np.int8]
    expands: bool


@dataclass(frozen=True, slots=True)
class Planned:
    """What a layout says wherever it stands. `side`: the map of its levels, then its symbol table."""

    program: PageProgram
    row: I64
    side: bytes
    numbers: frozenset[int]
    chunk_word_bytes: int
    items: int
    lone: Lone | None
    """The tables of a column of one such page, where the page's place decides nothing but its chunks."""


@dataclass(slots=True)
class PageTables:
    """The tables of one column, as `ColumnTable` and the kernels use them."""

    programs: list[PageProgram]  # one a page
    distinct: list[PageProgram]  # one a layout
    rows: I64  # [pages, FIELDS]
    side: Bytes
    first: I64
    started: I64
    chunks: I64  # three numbers a chunk
    classes: npt.NDArray[np.int8]
    levels_used: frozenset[int]
    dictionary: dictionary.Items | None
    any_staged: bool  # some buffers must be decompressed first
    expands: bool  # decoded strings may be longer than what is stored


@lru_cache(maxsize=PLANS_KEPT)
def _planned(layout: PageLayout, layers: Layers) -> Planned:
    if isinstance(layout, MiniBlock):
        program, items, word = mini_block_read.plan(layout), layout.num_items, 4 if layout.large_chunks else 2
    elif isinstance(layout, FullZip):
        program, items, word = full_zip_read.plan(layout), layout.num_visible_items, 0
    elif isinstance(layout, ConstantPage):
        program, items, word = constant_read.plan(layout), 0, 0
    else:
        raise UnsupportedFeature("blob pages are not supported by this version; leave the column out")
    numbers, visible = layers.map_page(layout.layers)
    row = program.row
    row[P.LUT_POS], row[P.LUT_LEN] = 0, 2 * len(numbers)
    row[P.VISIBLE] = visible
    row[P.MAX_REP] = layers.max_rep
    if program.side:
        row[P.SIDE_POS], row[P.SIDE_LEN] = 2 * len(numbers), len(program.side)
    used = frozenset(numbers.tolist())
    fixed, side = np.array(row, np.int64), numbers.tobytes() + program.side
    lone = None
    if isinstance(layout, MiniBlock) and layout.dictionary is None:
        expands = program.staged or row[P.VALUE_CODEC] == VALUE_FSST
        plain = np.full(1, PLAIN, np.int8)
        lone = Lone([program], fixed.reshape(1, -1), np.frombuffer(side, np.uint8), plain, expands)
    return Planned(program, fixed, side, used, word, items, lone)


def build(source: Bytes, pages: ColumnPages, layers: Layers, bits: int) -> PageTables:
    """All tables of a column whose values have `bits` bits (0: they vary in width). Raises `CorruptFile`."""
    planned = [_planned(layout, layers) for layout in pages.layouts]
    if len(pages) == 1 and planned[0].lone is not None:
        return _of_one_page(source, pages, planned[0], planned[0].lone, lists=layers.max_rep > 0)
    side = bytearray()
    templates = np.empty((len(planned), FIELDS), np.int64)
    for k, plan in enumerate(planned):
        templates[k] = plan.row
        if side:
            templates[k, P.LUT_POS] += len(side)
            if plan.program.side:
                templates[k, P.SIDE_POS] += len(side)
        side += plan.side
    index = pages.layout_index
    rows = templates[index] if len(planned) > 1 else np.repeat(templates, len(pages), axis=0)
    places = _places(pages, planned, lists=layers.max_rep > 0)
    classes = np.zeros(len(rows), np.int8)
    parts: list[dictionary.Items] = []
    base = 0
    for p in _special_pages(pages):
        layout = pages.layouts[index[p]]
        row = rows[p].tolist()
        buffers, page_rows = pages.buffers(p), int(pages.rows[p])
        if isinstance(layout, MiniBlock):
            assert layout.dictionary is not None
            at, size = buffers[2]
            items = dictionary.read_items(
                layout.dictionary, source[at : at + size], layout.num_dictionary_items
            )
            row[P.DICT_BASE], row[P.DICT_ITEMS] = base, items.n
            base += items.n
            parts.append(items)
            classes[p] = DICTIONARY
        elif isinstance(layout, FullZip):
            full_zip_read.place(row, layout, buffers, page_rows)
            walked = layers.max_rep > 0 or layout.variable
            one_byte = bits == 1 and row[P.VALUE_BITS] == 8
            classes[p] = WALKED if walked else BYTES if one_byte else PLAIN
        else:
            assert isinstance(layout, ConstantPage)
            scalar = constant_read.place(row, layout, source, buffers, page_rows, varying=bits == 0)
            if layers.max_rep:
                program = planned[index[p]].program
                places[p, 5] = constant_read.visible_items(row, program, source)
            if row[P.VALUE_CODEC] == VALUE_SCALAR:
                row[P.SIDE_POS], row[P.SIDE_LEN], row[P.VALUE_BITS] = len(side), len(scalar), bits
                side += scalar
        rows[p] = row
    if parts:
        # All-null pages of a dictionary column read as such: index 0 under nulls.
        classes[(rows[:, P.KIND] != MINI_BLOCK) & (rows[:, P.VALUE_CODEC] == VALUE_NONE)] = DICTIONARY
    first, started, chunks = _chunks(source, places)
    used = frozenset[int]().union(*[plan.numbers for plan in planned])
    distinct = [plan.program for plan in planned]
    staged = any(program.staged for program in distinct)
    compressed = any(program.row[P.VALUE_CODEC] == VALUE_FSST for program in distinct)
    constant = any(program.row[P.KIND] == CONSTANT for program in distinct)
    return PageTables(
        [distinct[k] for k in index.tolist()],
        distinct,
        rows,
        np.frombuffer(bytes(side), np.uint8),
        first,
        started,
        chunks,
        classes,
        used | set(rows[:, P.DEFAULT_DEF].tolist()) if constant else used,
        dictionary.joined(parts) if parts else None,
        staged,
        staged or compressed or constant,
    )


def _of_one_page(
    source: Bytes, pages: ColumnPages, planned: Planned, lone: Lone, *, lists: bool
) -> PageTables:
    """The same for the most frequent column of small files, at a fraction of the price."""
    offsets, sizes, rows = pages.offsets.tolist(), pages.sizes.tolist(), pages.num_rows
    items = planned.items
    if items > _MAX_ITEMS:
        raise CorruptFile(f"a page of {items} items")
    if len(offsets) < 2 + lists:
        raise CorruptFile(f"a mini-block page has fewer buffers than the {2 + lists} of its layout")
    if not lists and rows != items:
        raise CorruptFile(f"a page without lists of {items} items and another number of rows")
    index = (offsets[-1], sizes[-1]) if lists else (-1, 0)
    word = planned.chunk_word_bytes
    place = np.array([offsets[0], sizes[0], word, offsets[1], sizes[1], items, rows, *index], np.int64)
    first, started, chunks = _indexed(source, place, sizes[0] // word)
    return PageTables(
        lone.programs, lone.programs, lone.rows, lone.side, first, started, chunks, lone.classes,
        planned.numbers, None, planned.program.staged, lone.expands,
    )  # fmt: skip


def _special_pages(pages: ColumnPages) -> list[int]:
    """Pages that carry something of their own."""
    special = [not isinstance(each, MiniBlock) or each.dictionary is not None for each in pages.layouts]
    if not any(special):
        return []
    found: list[int] = np.flatnonzero(np.array(special)[pages.layout_index]).tolist()
    return found


def _places(pages: ColumnPages, planned: list[Planned], *, lists: bool) -> I64:
    """Nine numbers a page for `kernels.index_chunks`."""
    places = np.zeros((len(pages), PLACE_FIELDS), np.int64)
    places[:, 5] = places[:, 6] = pages.rows
    places[:, 7] = -1
    for k, (layout, plan) in enumerate(zip(pages.layouts, planned, strict=True)):
        if plan.items > _MAX_ITEMS:
            raise CorruptFile(f"a page of {plan.items} items")
        which = slice(None) if len(planned) == 1 else pages.layout_index == k
        if lists:
            places[which, 5] = plan.items
        if not isinstance(layout, MiniBlock):
            continue
        start, end = pages.buffer_start[:-1][which], pages.buffer_start[1:][which]
        needed = 2 + lists + (layout.dictionary is not None)
        if len(start) and int((end - start).min()) < needed:
            raise CorruptFile(f"a mini-block page has fewer buffers than the {needed} of its layout")
        if not lists and (pages.rows[which] != plan.items).any():
            raise CorruptFile(f"a page without lists of {plan.items} items and another number of rows")
        places[which, 2] = plan.chunk_word_bytes
        places[which, 0], places[which, 1] = pages.offsets[start], pages.sizes[start]
        places[which, 3], places[which, 4] = pages.offsets[start + 1], pages.sizes[start + 1]
        if lists:
            places[which, 7], places[which, 8] = pages.offsets[end - 1], pages.sizes[end - 1]
    return places


def _chunks(source: Bytes, places: I64) -> tuple[I64, I64, I64]:
    """First items, started rows, and (position, bytes, page) of all chunks."""
    width = places[:, 2]
    chunked = width > 0
    total = int((places[chunked, 1] // width[chunked]).sum()) + int(len(places) - np.count_nonzero(chunked))
    return _indexed(source, places.reshape(-1), total)


def _indexed(source: Bytes, places: I64, total: int) -> tuple[I64, I64, I64]:
    first, started = np.empty(total + 1, np.int64), np.empty(total + 1, np.int64)
    chunks = np.empty(3 * total, np.int64)
    found = kernels.index_chunks(source, places, first, started, chunks)
    if found != total:
        raise CorruptFile(f"{found} chunks where the pages have {total}")
    return first, started, chunks
