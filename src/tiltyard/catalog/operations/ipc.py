"""Rows as requests carry them: Arrow IPC streams in, Arrow IPC files out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tiltyard.dataset import arguments
from tiltyard.errors import InvalidInput


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
    return table


def write_file(table: pa.Table) -> bytes:
    """The rows as bytes of an IPC file."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    made: bytes = sink.getvalue().to_pybytes()
    return made
