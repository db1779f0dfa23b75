"""Kernels of the reader in NumPy, of the same signatures as the compiled ones (see `kernels.decode`)."""

from tiltyard.kernels.reference.decode_fixed import (
    ColumnTables,
    among,
    block_fixed,
    chunk_buffers,
    fixed,
    fixed_columns,
    gather_fixed,
    within,
)
from tiltyard.kernels.reference.decode_levels import (
    block_levels,
    definition,
    level_bound,
    rows,
    unravel_items,
    unravel_lists,
)
from tiltyard.kernels.reference.decode_page import index_chunks
from tiltyard.kernels.reference.decode_text import (
    gather_strings,
    gather_variable,
    variable,
    variable_columns,
)
from tiltyard.kernels.reference.decode_zip import zip_rows

__all__ = [
    "ColumnTables",
    "among",
    "block_fixed",
    "block_levels",
    "chunk_buffers",
    "definition",
    "fixed",
    "fixed_columns",
    "gather_fixed",
    "gather_strings",
    "gather_variable",
    "index_chunks",
    "level_bound",
    "rows",
    "unravel_items",
    "unravel_lists",
    "variable",
    "variable_columns",
    "within",
    "zip_rows",
]
