"""Columns of plain values of fixed width, read together: one kernel call, one piece of memory (D41).

For a few rows a call costs more than what it decodes, so that all such columns of a projection share one.
For many rows each column gets memory of its own, and is cut by rows into pieces that run in parallel.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard import runtime
from tiltyard.file.column import Rows
from tiltyard.file.values import LeafReader
from tiltyard.kernels import decode as kernels

if TYPE_CHECKING:
    from tiltyard.file.assemble import LeafPlan
    from tiltyard.session import Session

#: Values of a column begin at a multiple of so many bytes of shared memory.
ALIGNMENT = 64
#: Pieces are cut at multiples of so many rows, which is where chunks begin.
PIECE_ROWS = 1024
#: Rows that are looked up at a time: there is room for all of them to pass, though hardly any does.
LOOKED_UP_ROWS = 1 << 20
#: Bytes that reading one value at a random place moves: what a take costs is counted in these.
LINE_BYTES = 64

#: Of words that belong at one place of a filter: bits that are kept of the one that is there.
MARK_BITS = 7
MULTIPLIER = 0x9E3779B97F4A7C15
_ANY, _MARK = np.uint8(1), np.uint8(1 << MARK_BITS)

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]


class Direct:
    """The columns of a plan that can be read so. Safe among threads: what it keeps is replaced whole."""

    def __init__(self, leaves: list[LeafPlan], *, ranges: bool) -> None:
        """`ranges`: leave out columns of which a range may be a mere slice of the file."""
        self.numbers = [
            i
            for i, leaf in enumerate(leaves)
            if leaf.scale == 1 and leaf.reader.direct and not (ranges and leaf.reader.may_slice)
        ]
        self.readers: list[LeafReader] = [leaves[i].reader for i in self.numbers]
        self.others = [i for i in range(len(leaves)) if i not in set(self.numbers)]
        self._handles = tuple([reader.table.handle for reader in self.readers])
        self._bits = [reader.stored_bits for reader in self.readers]
        # Types of the columns whose decoded bytes are their values as they are.
        self._plain = [reader.type if reader.plain else None for reader in self.readers]
        self._row_bytes = sum(self._bits) // 8
        self._placed: tuple[tuple[int, int], I64, list[int], int] | None = None

    def read(self, session: Session, rows: Rows) -> list[Any]:
        """One `pa.Array` for each of `readers`. Raises ValueError on damage."""
        count = rows.total
        cost = self._row_bytes if len(rows.count) else LINE_BYTES * len(self._bits)
        if count * cost >= session.limits.parallel_bytes and runtime.cores() > 1:
            return self._apart(session, rows)
        jobs, places, total = self._places(count, len(rows.start))
        memory, buffer = session.arena.alloc(total)
        kernels.fixed_columns(self._handles, rows.start, rows.count, jobs, memory)
        found = []
        for reader, kind, bits, at in zip(self.readers, self._plain, self._bits, places, strict=True):
            size = count * bits // 8
            part = buffer.slice(at, size)
            if kind is not None:
                found.append(pa.Array.from_buffers(kind, count, [None, part], 0))
            else:
                found.append(reader.wrap(session, count, memory[at : at + size], part))
        return found

    def _places(self, count: int, segments: int) -> tuple[I64, list[int], int]:
        """Jobs of a read of all columns, where each begins in the memory, and how much that is."""
        key = (count, segments)
        placed = self._placed
        if placed is None or placed[0] != key:
            places, at = [], 0
            for bits in self._bits:
                places.append(at)
                at = -(-(at + count * bits // 8) // ALIGNMENT) * ALIGNMENT
            jobs = [(0, segments, bits, place) for bits, place in zip(self._bits, places, strict=True)]
            placed = self._placed = (key, np.array(jobs, np.int64).reshape(-1), places, at)
        return placed[1:]

    def _apart(self, session: Session, rows: Rows) -> list[Any]:
        memory = [session.arena.alloc(rows.total * bits // 8) for bits in self._bits]
        pieces = _pieces(rows, 2 * runtime.cores())
        work = [
            partial(
                kernels.fixed_columns,
                (handle,),
                start,
                count,
                np.array([0, len(start), bits, at * bits // 8], np.int64),
                out,
            )
            for handle, bits, (out, _) in zip(self._handles, self._bits, memory, strict=True)
            for start, count, at in pieces
        ]
        runtime.parallel(work)
        found = zip(self.readers, memory, strict=True)
        return [reader.wrap(session, rows.total, out, buffer) for reader, (out, buffer) in found]


def read_within(
    session: Session, reader: LeafReader, rows: Rows, low: int, span: int
) -> npt.NDArray[np.bool_]:
    """`FileReader.within` of a column that is `plain`. Raises ValueError on damage."""
    found = np.empty(rows.total, np.uint8)
    if rows.total:
        is_small = rows.total * reader.bits // 8 < session.limits.parallel_bytes
        pieces = [(rows.start, rows.count, 0)] if is_small else _pieces(rows, runtime.cores())
        work = [
            partial(kernels.within, reader.table.handle, start, count, reader.bits, low, span, found[at:])
            for start, count, at in pieces
        ]
        if len(work) == 1:
            work[0]()
        else:
            runtime.parallel(work)
    return found.view(np.bool_)


@dataclass(frozen=True, slots=True)
class WordFilter:
    """A set of 64-bit words, or a little more than that, as the kernel `among` takes it; `dense` ones are
    exact.
    """

    low: int
    span: int
    multiplier: int
    shift: int
    table: Bytes

    @classmethod
    def dense(cls, words: Words) -> WordFilter:
        """A byte for each word from the least to the greatest of these, which ascend (at least one)."""
        low, span = words[0], int(words[-1] - words[0])
        table = np.zeros(span + 2, np.uint8)
        table[(words - low).view(np.int64)] = _ANY
        return cls(int(low), span, 1, MARK_BITS, table)

    @classmethod
    def sparse(cls, words: Words, bits: int) -> WordFilter:
        """2 to the number of `bits` (1 to 57) bytes for words that ascend: of those that belong to one, a few
        bits more are kept, so that hardly another one passes.
        """
        product = words * np.uint64(MULTIPLIER)
        places = (product >> np.uint64(64 - bits)).view(np.int64)
        marks = (product >> np.uint64(64 - bits - MARK_BITS)).astype(np.uint8) | _MARK
        table = np.zeros(1 << bits, np.uint8)
        table[places] = marks
        table[places[table[places] != marks]] = _ANY
        return cls(int(words[0]), int(words[-1] - words[0]), MULTIPLIER, 64 - bits, table)


def read_among(
    session: Session, reader: LeafReader, rows: Rows, words: WordFilter, *, is_signed: bool
) -> tuple[I64, Words]:
    """`FileReader.among` of a column that is `plain`. Raises ValueError on damage."""
    is_small = rows.total * reader.bits // 8 < session.limits.parallel_bytes
    pieces = (
        [(rows.start, rows.count, 0)]
        if is_small
        else _pieces(rows, max(runtime.cores(), rows.total // LOOKED_UP_ROWS))
    )
    ends = [at for _, _, at in pieces[1:]] + [rows.total]

    def read(start: I64, count: I64, at: int, end: int) -> tuple[I64, Words]:
        positions, found = np.empty(end - at, np.int64), np.empty(end - at, np.uint64)
        size = kernels.among(
            *(reader.table.handle, start, count, reader.bits, is_signed),
            *(words.low, words.span, words.multiplier, words.shift, words.table),
            *(positions, found),
        )
        return positions[:size] + at, found[:size].copy()  # the rest was never touched, and is let go

    work = [partial(read, *piece, end) for piece, end in zip(pieces, ends, strict=True)]
    parts = [work[0]()] if len(work) == 1 else runtime.parallel(work)
    positions, found = zip(*parts, strict=True)
    return np.concatenate(positions), np.concatenate(found)


def _pieces(rows: Rows, wanted: int) -> list[tuple[I64, I64, int]]:
    """The rows in about so many pieces: starts, counts, rows before the piece."""
    if not len(rows.count):
        step = -(-len(rows.start) // wanted)
        return [(rows.start[at : at + step], rows.count, at) for at in range(0, len(rows.start), step)]
    if len(rows.start) > 1:
        return [(rows.start, rows.count, 0)]
    start, stop = int(rows.start[0]), int(rows.start[0]) + rows.total
    step = -(-rows.total // (wanted * PIECE_ROWS)) * PIECE_ROWS
    bounds = [start, *range(start - start % PIECE_ROWS + step, stop, step), stop]
    return [
        (np.array([low], np.int64), np.array([high - low], np.int64), low - start)
        for low, high in pairwise(bounds)
    ]
