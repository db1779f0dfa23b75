"""Rows as one Arrow IPC stream to be sent, and sent again: in memory, or what is larger in a file without a
name.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tiltyard.runtime.scratch import Spool

MEMORY_BYTES = 64 << 20


class _Sink:
    """What Arrow writes a stream into."""

    closed = False

    def __init__(self) -> None:
        self.spool = Spool(MEMORY_BYTES)

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self.spool.add(piece)
        if self.spool.is_full:
            self.spool.spill()
        return len(piece)

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        self.closed = True


def stream_of(reader: pa.RecordBatchReader) -> Any:
    """All batches of a reader as the bytes, or the buffer, of an IPC stream."""
    sink = _Sink()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
    return sink.spool.whole()
