"""Rows as requests carry them: Arrow IPC streams in, Arrow IPC files out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tiltyard.dataset import arguments
from tiltyard.errors import InvalidInput

MAX_BARE_ROWS = 1 << 24
"""Rows that a stream may have which carries less than a bit for each, as columns of nulls do: a few bytes can
say that there are thousands of millions.
"""


def read_stream(data: Any, what: str) -> pa.Table:
    """The rows of an IPC stream; a stream without batches is a table without rows.

    `what` names the operation. Raises `InvalidInput` for no bytes and for bytes that are no such stream.
    """
    if data is None or (isinstance(data, (bytes, bytearray, memoryview)) and not len(data)):
        raise InvalidInput(f"Request data (Arrow IPC stream) is required for {what}")
    if not isinstance(data, (bytes, bytearray, memoryview, pa.Buffer)):
        raise arguments.wrong("the request data", "bytes of an Arrow IPC stream", data)
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            table = reader.read_all()
        table.validate()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidInput(
            f"the request data of {what} is no Arrow IPC stream that can be read: {error}"
        ) from error
    if table.num_rows > MAX_BARE_ROWS and table.nbytes < table.num_rows // 8:
        raise InvalidInput(
            f"the request data of {what} has {table.num_rows:,} rows of almost no bytes; at most "
            f"{MAX_BARE_ROWS:,} such rows are taken at once"
        )
    return table


def write_file(table: pa.Table) -> bytes:
    """The rows as bytes of an IPC file."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    made: bytes = sink.getvalue().to_pybytes()
    return made
