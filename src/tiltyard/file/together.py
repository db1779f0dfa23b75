"""Whole small files read together: the values of each column side by side in one array.

A table of many tiny fragments would otherwise cost an array per file and column, which is more than decoding
what is in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.file.values import GUESSED_EXPANSION, STRING_SLACK_BYTES, LeafReader, check_offsets
from tiltyard.kernels import decode as kernels
from tiltyard.session import Session

I64 = npt.NDArray[np.int64]


def can_join(reader: LeafReader) -> bool:
    """Whether values of a column can be put behind those of another file as they are."""
    return reader.plain_strings or reader.plain


def read_together(
    session: Session, files: Sequence[tuple[LeafReader, ...]], rows: Sequence[int]
) -> list[Any]:
    """One `pa.Array` per column with all rows of all files, in order.

    `files`: the columns of each file, alike in number and type, all of which `can_join`; `rows` of each file.
    Raises ValueError on damage, without saying in which file, and `BatchTooLarge`.
    """
    count = np.array(rows, np.int64)
    start = np.zeros(len(files), np.int64)
    total = int(count.sum())
    found = []
    for column, like in enumerate(files[0]):
        readers = [file[column] for file in files]
        handles = tuple([reader.table.handle for reader in readers])
        if like.varying:
            found.append(_strings(session, like, readers, handles, start, count, total))
            continue
        jobs = np.empty((len(files), 4), np.int64)
        jobs[:, 0] = np.arange(len(files))
        jobs[:, 1] = jobs[:, 0] + 1
        jobs[:, 2] = like.bits
        jobs[:, 3] = (np.cumsum(count) - count) * (like.bits // 8)
        memory, buffer = session.arena.alloc(total * like.bits // 8)
        kernels.fixed_columns(handles, start, count, jobs.reshape(-1), memory)
        found.append(pa.Array.from_buffers(like.type, total, [None, buffer], 0))
    return found


def _strings(
    session: Session,
    like: LeafReader,
    readers: Sequence[LeafReader],
    handles: tuple[Any, ...],
    start: I64,
    count: I64,
    total: int,
) -> Any:
    dtype = np.dtype(np.int64 if like.facts.large else np.int32)
    offsets, offsets_buffer = session.arena.alloc((total + 1) * dtype.itemsize)
    room = sum([reader.table.stored_bytes for reader in readers])
    if any(reader.table.expands for reader in readers):
        room = int(room * GUESSED_EXPANSION)
    while True:
        out, buffer = session.arena.alloc(room + STRING_SLACK_BYTES)
        size = kernels.variable_columns(handles, start, count, offsets.view(dtype), out)
        check_offsets(session, size, total, large=like.facts.large)
        if size <= len(out):
            return pa.Array.from_buffers(like.type, total, [None, offsets_buffer, buffer.slice(0, size)], 0)
        room = size
