"""Page and chunk tables of one column of a file, and the reading of levels and items through them.

Built when a column is first touched and kept with the file's reader: NumPy arrays over all pages and chunks
(D42), so that a range or a take is one kernel call for the column, whatever it spans. Pages come in three
classes that are read by different calls: plain ones, those whose values are indices into a dictionary, and
full-zip pages that must be walked entry by entry. A column nearly always has one class; where they mix, the
rows are cut into runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiltyard.encoding import full_zip_read, general
from tiltyard.encoding.levels.unravel import NO_LEVELS, U16, Layers
from tiltyard.encoding.program import (
    CHUNK_STAGED_FIELDS,
    FULL_ZIP,
    VALUE_FLAT,
    VALUE_ONES,
    P,
)
from tiltyard.errors import CorruptFile
from tiltyard.file import page_tables
from tiltyard.file.page_tables import WALKED
from tiltyard.format.container import ColumnPages
from tiltyard.kernels import decode as kernels
from tiltyard.kernels.distinct import distinct
from tiltyard.session import Session

I64 = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

NO_BYTES: Bytes = np.empty(0, np.uint8)
NO_COUNTS: I64 = np.empty(0, np.int64)

FEW_ROWS = 64
#: So many rows are looked at for runs; what they come to must be fewer by this factor.
MIN_PICKED = 256
RUNS_PAY = 1.25
#: Level entries assumed per row of a take from a list column; a wrong guess costs a second call.
GUESSED_ENTRIES_PER_ROW = 64


@dataclass(frozen=True, slots=True)
class Rows:
    """Wanted rows: `start` and `count` (int64; empty count: one each) and their number."""

    start: I64
    count: I64
    total: int

    @classmethod
    def range(cls, start: int, stop: int) -> Rows:
        return cls(np.array([start], np.int64), np.array([stop - start], np.int64), stop - start)

    @classmethod
    def take(cls, rows: I64) -> Rows:
        return cls(np.ascontiguousarray(rows, np.int64), NO_COUNTS, len(rows))

    @classmethod
    def picked(cls, rows: I64) -> Rows:
        """The same, as runs of consecutive rows where those are clearly fewer."""
        if len(rows) >= MIN_PICKED:
            follows = rows[1:] - rows[:-1] == 1
            runs = len(rows) - int(np.count_nonzero(follows))
            if runs * RUNS_PAY <= len(rows):
                first = np.empty(runs, np.int64)
                first[0] = 0
                first[1:] = np.flatnonzero(~follows) + 1
                start = np.ascontiguousarray(rows[first], np.int64)
                return cls(start, np.diff(first, append=len(rows)), len(rows))
        return cls.take(rows)

    def scaled(self, factor: int) -> Rows:
        """The same rows where each stands for `factor` consecutive ones."""
        if factor == 1:
            return self
        count = self.count * factor if len(self.count) else np.full(len(self.start), factor, np.int64)
        return Rows(self.start * factor, count, self.total * factor)

    def counts(self) -> I64:
        """Counts, written out."""
        return self.count if len(self.count) else np.ones(len(self.start), np.int64)


def expanded(rows: Rows) -> I64:
    """The number of each row."""
    if not len(rows.count):
        return rows.start
    return np.repeat(rows.start - (np.cumsum(rows.count) - rows.count), rows.count) + np.arange(rows.total)


def extremes(rows: I64) -> tuple[int, int]:
    """Least and greatest of some numbers; for a few of them NumPy costs more than a list."""
    if len(rows) <= FEW_ROWS:
        few = rows.tolist()
        return min(few), max(few)
    return int(rows.min()), int(rows.max())


@dataclass(frozen=True, slots=True)
class Walked:
    """Values of full-zip pages: position and length in bytes and page of each."""

    position: I64
    length: I64
    page: I64


@dataclass(frozen=True, slots=True)
class Items:
    """What rows come to below the structure: levels (None: all valid, no lists) and where the items are."""

    rep: U16
    def_: U16 | None
    slots: int
    start: I64
    count: I64
    walked: Walked | None = None


class ColumnTable:
    """The tables of one column. `source`: the file's bytes; `bits`: of a value, 0 if widths vary."""

    def __init__(self, source: Bytes, pages: ColumnPages, layers: Layers, bits: int) -> None:
        built = page_tables.build(source, pages, layers, bits)
        self.source = source
        self.layers = layers
        self.num_rows = pages.num_rows
        self.page_rows = np.empty(len(pages) + 1, np.int64)
        self.page_rows[:-1] = pages.first_row
        self.page_rows[-1] = pages.num_rows
        self.programs, self.distinct = built.programs, built.distinct
        self.rows_table = built.rows
        self.pages = built.rows.reshape(-1)
        self.side = built.side
        self.first, self.started, self.chunks = built.first, built.started, built.chunks
        table = built.chunks.reshape(-1, 3)
        self.chunk_size, self.chunk_page = table[:, 1], table[:, 2]
        self.dictionary = built.dictionary
        self.classes = built.classes
        classes = built.classes
        uniform = len(classes) == 1 or (len(classes) > 1 and bool((classes == classes[0]).all()))
        self.uniform = int(classes[0]) if uniform else -1
        self.any_staged = built.any_staged
        self.expands = built.expands
        self.levels_used = built.levels_used
        self.has_levels = built.levels_used != {0}
        self.handle = kernels.ColumnTables(source, self.side, self.pages, self.first, self.chunks)
        self._stored = -1
        self.reserve = 0.0  # decoded bytes per encoded byte that earlier reads saw

    @property
    def nbytes(self) -> int:
        """Bytes that the tables take."""
        held = sum(a.nbytes for a in (self.pages, self.chunks, self.first, self.started, self.side))
        return held + (0 if self.dictionary is None else self.dictionary.data.nbytes)

    @property
    def stored_bytes(self) -> int:
        """Bytes of all chunks."""
        if self._stored < 0:
            self._stored = int(self.chunk_size.sum())
        return self._stored

    # -- reading ---------------------------------------------------------------------------------

    def runs(self, rows: Rows) -> list[tuple[int, Rows]]:
        """The rows cut where the class of their pages changes, in order."""
        if self.uniform >= 0:
            return [(self.uniform, rows)]
        found: list[tuple[int, Rows]] = []
        starts: list[list[int]] = []
        counts: list[list[int]] = []
        for start, count in zip(rows.start.tolist(), rows.counts().tolist(), strict=True):
            while count > 0:
                page = int(np.searchsorted(self.page_rows, start, "right")) - 1
                n = min(count, int(self.page_rows[page + 1]) - start)
                kind = int(self.classes[page])
                if found and found[-1][0] == kind:
                    starts[-1].append(start)
                    counts[-1].append(n)
                else:
                    found.append((kind, rows))
                    starts.append([start])
                    counts.append([n])
                start += n
                count -= n
        return [
            (kind, Rows(np.array(s, np.int64), np.array(c, np.int64), sum(c)))
            for (kind, _), s, c in zip(found, starts, counts, strict=True)
        ]

    def tables(self, staged: tuple[Bytes, I64] | None = None, pages: I64 | None = None) -> tuple[Any, ...]:
        """The seven arrays of a column as the kernels take them."""
        aux, where = (NO_BYTES, NO_COUNTS) if staged is None else staged
        return (
            self.source,
            aux,
            where,
            self.side,
            self.pages if pages is None else pages,
            self.first,
            self.chunks,
        )

    def items(self, session: Session, kind: int, rows: Rows) -> Items:
        """Levels and places of the items of rows whose pages are all of class `kind`."""
        if kind == WALKED:
            return self._walk(rows)
        if self.layers.max_rep:
            return self._rows(session, rows)
        if not self.has_levels:
            return Items(NO_LEVELS, None, rows.total, rows.start, rows.count)
        memory, _ = session.arena.alloc(2 * rows.total)
        levels = memory.view(np.uint16)
        staged = self.stage(self._chunks_of(self.first, rows.start, rows.count), values=False)
        kernels.definition(*self.tables(staged), rows.start, rows.count, levels)
        return Items(NO_LEVELS, levels, rows.total, rows.start, rows.count)

    def _rows(self, session: Session, rows: Rows) -> Items:
        staged = None
        if self.any_staged:
            last = rows.start + rows.counts() - 1
            low = np.searchsorted(self.started, rows.start, "right") - 1
            high = np.searchsorted(self.started, last + 1, "right")
            staged = self.stage(_span_union(low, np.minimum(high, len(self.first) - 1)), values=False)
        tables = self.tables(staged)
        if len(rows.start) == 1:
            begin = int(np.searchsorted(self.started, rows.start[0], "right")) - 1
            end = int(np.searchsorted(self.started, rows.start[0] + rows.total, "right"))
            room = kernels.level_bound(*tables, max(begin, 0), min(end, len(self.first) - 1))
        else:
            room = GUESSED_ENTRIES_PER_ROW * rows.total
        start, count = np.empty(len(rows.start), np.int64), np.empty(len(rows.start), np.int64)
        while True:
            rep, def_ = _level_room(session, room), _level_room(session, room)
            entries = kernels.rows(*tables, self.started, rows.start, rows.count, rep, def_, start, count)
            if entries <= room:
                break
            room = entries
        slots = int(count.sum())
        return Items(rep[:entries], def_[:entries], slots, start, count)

    def _walk(self, rows: Rows) -> Items:
        room = values = max(rows.total, 1)
        while True:
            rep, def_ = np.empty(room, np.uint16), np.empty(room, np.uint16)
            position, length, page = (np.empty(values, np.int64) for _ in range(3))
            entries, found = kernels.zip_rows(
                self.source, self.side, self.pages, self.page_rows, rows.start, rows.count,
                rep, def_, position, length, page,
            )  # fmt: skip
            if entries <= room and found <= values:
                break
            room, values = max(entries, 1), max(found, 1)
        walked = Walked(position[:found], length[:found], page[:found])
        rep = rep[:entries] if self.layers.max_rep else NO_LEVELS
        return Items(rep, def_[:entries], found, NO_COUNTS, NO_COUNTS, walked)

    def item_chunks(self, items: Items) -> I64:
        """The chunks that hold the items, ascending."""
        return self._chunks_of(self.first, items.start, items.count)

    def _chunks_of(self, first: I64, start: I64, count: I64) -> I64:
        if not self.any_staged:
            return NO_COUNTS
        keep = count > 0 if len(count) else np.ones(len(start), bool)
        begin = start[keep]
        end = begin + (count[keep] if len(count) else 1)
        low = np.searchsorted(first, begin, "right") - 1
        high = np.searchsorted(first, end, "left")
        return _span_union(low, high)

    def stage(self, wanted: I64, *, values: bool) -> tuple[Bytes, I64] | None:
        """Decompress buffers of chunks: their levels or their first value buffer. None where none need it."""
        if not self.any_staged or not len(wanted):
            return None
        staged_pages = np.array([program.staged for program in self.programs], bool)
        wanted = wanted[staged_pages[self.chunk_page[wanted]]]
        if not len(wanted):
            return None
        places = np.empty((len(wanted), 7), np.int64)
        kernels.chunk_buffers(
            self.source, self.side, self.pages, self.first, self.chunks, wanted, 1, places.reshape(-1)
        )
        staged = np.full((len(self.first) - 1, CHUNK_STAGED_FIELDS), -1, np.int64)
        found: list[bytes] = []
        at = 0
        for chunk, page, place in zip(wanted, self.chunk_page[wanted].tolist(), places.tolist(), strict=True):
            program = self.programs[page]
            slots = (2,) if values else (0, 1)
            schemes = (program.rep_schemes, program.def_schemes, program.value_schemes)
            for slot in slots:
                position, size = place[1 + 2 * slot], place[2 + 2 * slot]
                if not schemes[slot] or position < 0:
                    continue
                data = general.decompress(schemes[slot], self.source[position : position + size])
                staged[chunk, 2 * slot] = at
                staged[chunk, 2 * slot + 1] = len(data)
                found.append(data)
                at += len(data)
        return np.frombuffer(b"".join(found), np.uint8), staged.reshape(-1)

    def bitmap_programs(self, level: int) -> tuple[I64, int] | None:
        """Programs that read the item bitmap of nested list `level`, and its bits per value.

        None where no page has one.
        """
        if not any(program.dims[level][1] for program in self.programs if len(program.dims) > level):
            return None
        table = self.rows_table.copy()
        bits = 1
        for p, program in enumerate(self.programs):
            row = table[p]
            if len(program.dims) <= level:
                row[P.VALUE_CODEC] = VALUE_ONES
                continue
            bits = int(np.prod([items for items, _ in program.dims[: level + 1]], dtype=np.int64))
            row[P.VALUE_BITS] = bits
            if not program.dims[level][1]:
                row[P.VALUE_CODEC] = VALUE_ONES
                continue
            before = [has for _, has in program.dims[:level]]
            row[P.VALUE_CODEC] = VALUE_FLAT
            row[P.BUFFER] = sum(before)
            if row[P.KIND] == FULL_ZIP:
                row[P.WITHIN] = sum(size for _, size in full_zip_read.bitmap_places(program)[: sum(before)])
        return table.reshape(-1), bits

    def contiguous(self, start: int, stop: int, bits: int) -> int | None:
        """The position of rows that lie back to back in the file as Arrow wants them; else None."""
        low = int(np.searchsorted(self.page_rows, start, "right")) - 1
        high = int(np.searchsorted(self.page_rows, stop, "left"))
        pages = self.rows_table[low:high]
        plain = (
            (pages[:, P.KIND] == FULL_ZIP)
            & (pages[:, P.VALUE_CODEC] == VALUE_FLAT)
            & (pages[:, P.CONTROL_BYTES] == 0)
            & (pages[:, P.WITHIN] == 0)
            & (pages[:, P.STRIDE] * 8 == bits)
        )
        if not len(pages) or not plain.all():
            return None
        stride = bits // 8
        data, rows = pages[:, P.DATA_POS], pages[:, P.ROWS]
        if (rows * stride > pages[:, P.DATA_SIZE]).any():
            raise CorruptFile("a full-zip page is shorter than its rows")
        if (data[:-1] + rows[:-1] * stride != data[1:]).any():
            return None
        return int(data[0]) + (start - int(self.page_rows[low])) * stride

    def encoded_bytes(self, items: Items) -> int:
        """Bytes of the chunks that a range of items touches: what its values can come to, uncompressed."""
        begin = int(items.start[0])
        low = int(np.searchsorted(self.first, begin, "right")) - 1
        high = int(np.searchsorted(self.first, begin + int(items.count[0]), "left"))
        return int(self.chunk_size[max(low, 0) : high].sum())


def _level_room(session: Session, n: int) -> U16:
    return session.arena.alloc(2 * n)[0].view(np.uint16)


def _span_union(low: I64, high: I64) -> I64:
    """The numbers in any of the spans [low, high), ascending."""
    if not len(low):
        return NO_COUNTS
    if len(low) == 1:
        return np.arange(int(low[0]), int(high[0]), dtype=np.int64)
    return distinct(np.concatenate([np.arange(a, b, dtype=np.int64) for a, b in zip(low, high, strict=True)]))
