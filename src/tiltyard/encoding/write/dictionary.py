"""Dictionaries: distinct values of a page once, indices for the rows (compression.md 3.10, 4.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.encoding import choose
from tiltyard.encoding.choose import FixedStats, Form
from tiltyard.encoding.levels.ravel import NO_BYTES
from tiltyard.encoding.write.bitpack import BLOCK, PACKABLE, inline_chunks, inline_size, packed_block
from tiltyard.encoding.write.chunks import Chunks
from tiltyard.encoding.write.flat import flat_chunks
from tiltyard.encoding.write.general import general_block
from tiltyard.encoding.write.options import Options
from tiltyard.encoding.write.rle import rle_chunks
from tiltyard.encoding.write.values import Fixed, Text, gathered
from tiltyard.encoding.write.variable import variable_block, variable_size
from tiltyard.format.layouts import Encoding, Flat, Variable
from tiltyard.format.version import FileVersion
from tiltyard.kernels import encode as kernels

U8 = npt.NDArray[np.uint8]
U32 = npt.NDArray[np.uint32]
I64 = npt.NDArray[np.int64]

_WORD_BYTES = (1, 2, 4, 8)
SAMPLE_MIN_VALUES = 1024
SAMPLE_RUNS = 32
SAMPLE_RUN_VALUES = 128


@dataclass(frozen=True, slots=True)
class Measured:
    """Fixed-width values with their statistics and the form that suits them."""

    values: Fixed
    widths: U8
    stats: FixedStats
    constant: bool
    form: Form
    size: int  # bytes in that form

    def chunks(self) -> Chunks:
        """The values in that form."""
        if self.form is Form.RUNS:
            return rle_chunks(self.values)
        if self.form is Form.INLINE:
            return inline_chunks(self.values, self.widths)
        return flat_chunks(self.values)


def measure(values: Fixed, rle_threshold: float | None = None, nulls: U8 = NO_BYTES) -> Measured:
    """One pass over the values. Blocks of nulls alone become zero (width 0) unless the page is constant."""
    if values.bits not in PACKABLE:
        stats = FixedStats(values.count, values.bits, values.count, None)
        return Measured(values, NO_BYTES, stats, values.all_equal(), Form.FLAT, stats.flat)
    widths = np.empty(-(-values.count // BLOCK), np.uint8)
    entries, changes = kernels.fixed_stats(values.data, values.bits, widths)
    if nulls.size and changes:
        size = values.bits // 8
        for block in np.flatnonzero(_null_blocks(nulls)).tolist():
            values.data[block * BLOCK * size : (block + 1) * BLOCK * size] = 0
            widths[block] = 0
    stats = FixedStats(values.count, values.bits, entries, inline_size(values.bits, widths))
    form, size = choose.fixed_form(stats, rle_threshold)
    return Measured(values, widths, stats, changes == 0, form, size)


def _null_blocks(nulls: U8) -> npt.NDArray[np.bool_]:
    """For each block of 1,024 values whether all are null."""
    padded = np.ones(-(-nulls.size // BLOCK) * BLOCK, np.uint8)
    padded[: nulls.size] = nulls
    return np.asarray(padded.reshape(-1, BLOCK).all(axis=1))


@dataclass(frozen=True, slots=True)
class Dictionary:
    """Indices of a page and the block of items they point into."""

    indices: Measured
    encoding: Encoding
    block: U8
    count: int

    @property
    def size(self) -> int:
        """Bytes of both together."""
        return self.indices.size + self.block.size


def for_fixed(plain: Measured, options: Options, version: FileVersion) -> Dictionary | None:
    """A dictionary for fixed-width values, where it makes the page clearly smaller."""
    values, stats = plain.values, plain.stats
    limit = choose.dictionary_limit(values.count, options.dictionary_divisor)
    if not limit or not choose.may_have_fixed_dictionary(values.bits, version):
        return None
    most = int(choose.DICTIONARY_GAIN * plain.size)
    sampled, distinct = _sample_fixed(values)
    if not choose.dictionary_sample_fits(distinct, sampled, values.count, limit):
        return None
    if choose.fixed_dictionary_floor(stats, distinct) >= most:
        return None
    size = values.bits // 8
    first = np.empty(min(limit, most // size + 1), np.int64)
    indices = np.empty(values.count, np.uint32)
    count = kernels.dictionary_fixed(values.data, size, indices, first)
    if count < 0:
        return None
    items = Fixed(values.bits, values.data.reshape(-1, size)[first[:count]].reshape(-1), count)
    made = _with_items(indices, items, options, version)
    return made if made.size < most else None


def for_text(values: Text, options: Options, version: FileVersion) -> Dictionary | None:
    """A dictionary for strings or binaries, where it makes the page as much smaller as the options ask."""
    limit = choose.dictionary_limit(values.count, options.dictionary_divisor)
    if not limit:
        return None
    sampled, distinct = _sample_text(values)
    if not choose.dictionary_sample_fits(distinct, sampled, values.count, limit):
        return None
    budget = choose.text_dictionary_budget(
        values.count, values.nbytes, values.width, options.dictionary_ratio, distinct
    )
    if budget <= 0:
        return None
    first = np.empty(min(limit, budget // values.width + 1), np.int64)
    indices = np.empty(values.count, np.uint32)
    count = kernels.dictionary_variable(values.data, values.offsets, values.nulls, budget, indices, first)
    if count <= 0:
        return None
    rows = first[:count]
    lengths = values.offsets[rows + 1] - values.offsets[rows]
    offsets, data = gathered(values.data, values.offsets[rows], lengths)
    items = Text(offsets, data, values.width, values.is_text, NO_BYTES)
    made = _with_items(indices, items, options, version)
    most = options.dictionary_ratio * variable_size(values.count, values.nbytes, values.width)
    return made if made.size <= most else None


def _with_items(indices: U32, items: Fixed | Text, options: Options, version: FileVersion) -> Dictionary:
    encoding, block = items_block(items, options, version)
    return Dictionary(measure_indices(indices, items.count), encoding, block, items.count)


def measure_indices(indices: U32, entries: int) -> Measured:
    """Indices as 32-bit words, or in the narrowest word where runs win: a run then costs fewer bytes."""
    wide = measure(Fixed(32, indices.view(np.uint8), indices.size))
    bits = choose.index_bits(entries)
    if wide.form is not Form.RUNS and wide.stats.entries * (bits // 8 + 1) >= wide.size:
        return wide
    narrow = indices.astype(f"<u{bits // 8}").view(np.uint8)
    other = measure(Fixed(bits, narrow, indices.size))
    return other if other.size < wide.size else wide


def items_block(items: Fixed | Text, options: Options, version: FileVersion) -> tuple[Encoding, U8]:
    """The items as one block: bit-packed, or plain, from 2.2 on compressed where that helps."""
    if isinstance(items, Fixed):
        packed = packed_block(items)
        if packed is not None:
            return packed
        encoding: Encoding = Flat(items.bits)
        block = items.data
    else:
        encoding = Variable(8 * items.width)
        block = variable_block(items.offsets, items.data, items.width)
    if version is FileVersion.V2_1 or items.count == 0 or (isinstance(items, Fixed) and items.bits == 1):
        return encoding, block
    return general_block(encoding, block, options.items_compression, options.items_level)


def binaries(items: Fixed | Text) -> Any:
    """The items as an Arrow array of binaries; of bits, which are few, none."""
    if isinstance(items, Text):
        buffers = [None, pa.py_buffer(items.offsets), pa.py_buffer(items.data)]
        return pa.Array.from_buffers(pa.large_binary(), items.count, buffers)
    size = items.bits // 8
    if not size:
        return pa.array([], pa.binary(1))
    return pa.Array.from_buffers(pa.binary(size), items.count, [None, pa.py_buffer(items.data)])


def _sample_rows(count: int) -> I64:
    """Evenly spaced runs of consecutive values, in order, none in two runs; all where there are few."""
    if count < SAMPLE_MIN_VALUES:
        return np.arange(count)
    runs = min(SAMPLE_RUNS, count // SAMPLE_RUN_VALUES)
    starts = np.linspace(0, count - SAMPLE_RUN_VALUES, runs).astype(np.int64)
    return (starts[:, None] + np.arange(SAMPLE_RUN_VALUES)).ravel()


def _sample_fixed(values: Fixed) -> tuple[int, int]:
    """(values sampled, distinct among them)."""
    rows = _sample_rows(values.count)
    size = values.bits // 8
    data = values.data[: values.count * size]
    if rows.size < values.count:
        if size in _WORD_BYTES:  # word by word, which is several times faster than byte by byte
            data = data.view(f"<u{size}")[rows].view(np.uint8)
        else:
            data = np.ascontiguousarray(data.reshape(-1, size)[rows]).reshape(-1)
    first, indices = np.empty(rows.size, np.int64), np.empty(rows.size, np.uint32)
    return rows.size, kernels.dictionary_fixed(data, size, indices, first)


def _sample_text(values: Text) -> tuple[int, int]:
    rows = _sample_rows(values.count)
    offsets, data = values.offsets, values.data
    if rows.size < values.count:
        starts = values.offsets[rows]
        offsets, data = gathered(values.data, starts, values.offsets[rows + 1] - starts)
    first, indices = np.empty(rows.size, np.int64), np.empty(rows.size, np.uint32)
    none = NO_BYTES
    return rows.size, kernels.dictionary_variable(data, offsets, none, 2**62, indices, first)
