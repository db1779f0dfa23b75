"""Loops of the writer: the compiled ones, or their NumPy reference.

The reference serves where the compiled module is not built or `TILTYARD_PURE=1` asks for it. Both have the
same signatures; `tiltyard.kernels.reference.encode` documents them, and tests/kernels holds them equal.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType

from tiltyard.kernels.reference import encode as _reference


def _implementation() -> ModuleType:
    if os.environ.get("TILTYARD_PURE") == "1":
        return _reference
    try:
        return importlib.import_module("tiltyard.kernels._encode")
    except ImportError:
        return _reference


_loops = _implementation()

fixed_stats = _loops.fixed_stats
pack_inline = _loops.pack_inline
pack_out_of_line = _loops.pack_out_of_line
rle_encode = _loops.rle_encode
rle_block = _loops.rle_block
rle_block_size = _loops.rle_block_size
fill_nulls = _loops.fill_nulls
copy_bits = _loops.copy_bits
chunk_bits = _loops.chunk_bits
variable_chunks = _loops.variable_chunks
variable_encode = _loops.variable_encode
copy_variable = _loops.copy_variable
invalid_text = _loops.invalid_text
fsst_train = _loops.fsst_train
fsst_encode = _loops.fsst_encode
dictionary_variable = _loops.dictionary_variable
dictionary_fixed = _loops.dictionary_fixed
mark_nulls = _loops.mark_nulls
measure_lists = _loops.measure_lists
ravel_lists = _loops.ravel_lists
remap_levels = _loops.remap_levels
visible_nulls = _loops.visible_nulls
level_ends = _loops.level_ends
repetition_index = _loops.repetition_index
mini_block = _loops.mini_block
scatter_fixed = _loops.scatter_fixed
scatter_variable = _loops.scatter_variable
xxhash64 = _loops.xxhash64
bloom_insert = _loops.bloom_insert
sort_pairs = _loops.sort_pairs
# The compiled module has it only where the processor can fold; elsewhere zlib is the best there is.
crc32 = getattr(_loops, "crc32", _reference.crc32)
