"""Rows as one Arrow IPC stream to be sent, and sent again: in memory, or what is larger in a file without a
name.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tiltyard.runtime.scratch import Scratch

MEMORY_BYTES = 64 << 20


class _Sink:
    """What Arrow writes a stream into."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._held = 0
        self._scratch: Scratch | None = None

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        self._held += len(piece)
        if self._held > MEMORY_BYTES:
            self._spill()
        return len(piece)

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        self.closed = True

    def _spill(self) -> None:
        if self._scratch is None:
            self._scratch = Scratch()
        self._scratch.extend(self._pieces)
        self._pieces, self._held = [], 0

    def whole(self) -> Any:
        if self._scratch is None:
            return b"".join(self._pieces)
        self._spill()
        return self._scratch.map()


def stream_of(reader: pa.RecordBatchReader) -> Any:
    """All batches of a reader as the bytes, or the buffer, of an IPC stream."""
    sink = _Sink()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
    return sink.whole()
