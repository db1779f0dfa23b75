"""NumPy reference of the writer's kernels, with the signatures of the compiled module.

It is the oracle in tests and the fallback where nothing is compiled (`TILTYARD_PURE=1`). Arrays come in
contiguous; outputs are given by the caller with the exact size; a violated bound raises `ValueError`.
"""

from __future__ import annotations

from tiltyard.kernels.reference.encode_fixed import (
    chunk_bits,
    copy_bits,
    dictionary_fixed,
    fill_nulls,
    fixed_stats,
    pack_inline,
    pack_out_of_line,
    rle_block,
    rle_block_size,
    rle_encode,
)
from tiltyard.kernels.reference.encode_levels import (
    level_ends,
    mark_nulls,
    measure_lists,
    ravel_lists,
    remap_levels,
    repetition_index,
    visible_nulls,
)
from tiltyard.kernels.reference.encode_page import (
    bloom_insert,
    crc32,
    mini_block,
    scatter_fixed,
    scatter_variable,
    xxhash64,
)
from tiltyard.kernels.reference.encode_sort import sort_pairs
from tiltyard.kernels.reference.encode_text import (
    copy_variable,
    dictionary_variable,
    fsst_encode,
    fsst_train,
    invalid_text,
    variable_chunks,
    variable_encode,
)

__all__ = [
    "bloom_insert",
    "chunk_bits",
    "copy_bits",
    "copy_variable",
    "crc32",
    "dictionary_fixed",
    "dictionary_variable",
    "fill_nulls",
    "fixed_stats",
    "fsst_encode",
    "fsst_train",
    "invalid_text",
    "level_ends",
    "mark_nulls",
    "measure_lists",
    "mini_block",
    "pack_inline",
    "pack_out_of_line",
    "ravel_lists",
    "remap_levels",
    "repetition_index",
    "rle_block",
    "rle_block_size",
    "rle_encode",
    "scatter_fixed",
    "scatter_variable",
    "sort_pairs",
    "variable_chunks",
    "variable_encode",
    "visible_nulls",
    "xxhash64",
]
