"""Deletion files: the deleted rows of one fragment, to and from bytes (table format, section 4).

A file holds all deleted offsets, never a difference. Up to 5,000 are an Arrow file with one column, more are
a Roaring bitmap; readers take either for any number.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.errors import CorruptFile
from tiltyard.format.roaring import decode_roaring, encode_roaring
from tiltyard.kernels.distinct import distinct

MAX_ARROW_ROWS = 5000
"""Deleted rows up to which the Arrow form is written."""

MIN_COMPRESSED_ROWS = 64
"""Deleted rows from which compression takes less room than it adds."""

Kind = Literal["arrow", "bin"]

_SCHEMA = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])


def encode_deletions(offsets: npt.NDArray[np.uint32], kind: Kind | None = None) -> tuple[Kind, bytes]:
    """Kind (the suffix of the file's name) and bytes of a deletion file.

    `offsets`: ascending uint32 row offsets in the fragment. `kind` forces one form; by default the number
    decides.
    """
    values = np.ascontiguousarray(offsets, np.uint32)
    if kind is None:
        kind = "arrow" if len(values) <= MAX_ARROW_ROWS else "bin"
    if kind == "bin":
        return kind, encode_roaring(values)
    sink = pa.BufferOutputStream()
    compression = "zstd" if len(values) >= MIN_COMPRESSED_ROWS else None
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    with pa.ipc.new_file(sink, _SCHEMA, options=options) as writer:
        writer.write_batch(pa.record_batch([pa.array(values)], schema=_SCHEMA))
    data: bytes = sink.getvalue().to_pybytes()
    return kind, data


def decode_deletions(data: Any, kind: str, path: str) -> npt.NDArray[np.uint32]:
    """The deleted offsets, ascending and each once. Raises `CorruptFile` naming `path`."""
    if kind == "bin":
        return decode_roaring(data, "the deletion file", path)
    values = _decode_arrow(data, path)
    if len(values) > 1 and not (values[1:] > values[:-1]).all():
        values = distinct(values)
    return values


def _decode_arrow(data: Any, path: str) -> npt.NDArray[np.uint32]:
    try:
        table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise CorruptFile(f"the deletion file is not a readable Arrow file ({error})", path) from error
    if table.num_columns != 1 or table.schema.field(0).type != pa.uint32():
        raise CorruptFile(
            f"the deletion file should have one column of uint32, found {table.schema.to_string()!r}", path
        )
    column = table.column(0)
    if column.null_count:
        raise CorruptFile(f"the deletion file has {column.null_count} null offsets", path)
    values: npt.NDArray[np.uint32] = column.to_numpy()
    return values
