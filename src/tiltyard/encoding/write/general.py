"""General-purpose compression around other encodings: zstd and lz4 (compression.md 3.9)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.encoding.write.chunks import Chunks
from tiltyard.format.layouts import Encoding, General

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]

MIN_CHUNK_BUFFER_BYTES = 4096
"""Pages whose first buffer is smaller are left alone, as the official writer does."""


@lru_cache(maxsize=64)
def _codec(scheme: str, level: int | None) -> Any:
    if scheme == "lz4":
        return pa.Codec("lz4_raw")
    return pa.Codec("zstd", compression_level=level) if level else pa.Codec("zstd")


def compressed(data: U8 | bytes, scheme: str, level: int | None = None) -> bytes:
    """One unit: uncompressed length (u64 for zstd, u32 for lz4), then a zstd frame or a raw lz4 block."""
    size = len(data)
    prefix = size.to_bytes(4 if scheme == "lz4" else 8, "little")
    if size == 0 and scheme == "lz4":
        return prefix + b"\0"
    return prefix + bytes(memoryview(_codec(scheme, level).compress(pa.py_buffer(data))))


def general_chunks(chunks: Chunks, scheme: str, level: int | None) -> Chunks:
    """The same chunks with buffer 0 compressed; unchanged when that does not pay."""
    first = chunks.buffers[0]
    if first.size < MIN_CHUNK_BUFFER_BYTES:
        return chunks
    ends = chunks.ends[0].tolist()
    parts = [
        compressed(first[begin:end], scheme, level) for begin, end in zip([0, *ends[:-1]], ends, strict=True)
    ]
    sizes = np.array([len(part) for part in parts], np.int64)
    if int(sizes.sum()) >= first.size:
        return chunks
    data = np.frombuffer(b"".join(parts), np.uint8)
    return Chunks(
        General(scheme, level, chunks.encoding),
        chunks.items,
        (data, *chunks.buffers[1:]),
        (np.cumsum(sizes), *chunks.ends[1:]),
    )


def general_values(offsets: I64, data: U8, nulls: U8, scheme: str, level: int | None) -> tuple[I64, U8]:
    """Every value compressed alone; nulls stay without bytes."""
    bounds = offsets.tolist()
    absent = nulls.tolist() if nulls.size else [0] * (len(bounds) - 1)
    parts = [
        b"" if null else compressed(data[begin:end], scheme, level)
        for begin, end, null in zip(bounds, bounds[1:], absent, strict=False)
    ]
    out = np.zeros(len(bounds), np.int64)
    np.cumsum([len(part) for part in parts], out=out[1:])
    return out, np.frombuffer(b"".join(parts), np.uint8)


def general_block(encoding: Encoding, block: U8, scheme: str, level: int | None) -> tuple[Encoding, U8]:
    """A dictionary block, compressed where that makes it smaller."""
    if scheme == "none":
        return encoding, block
    data = compressed(block, scheme, level)
    if len(data) >= block.size:
        return encoding, block
    return General(scheme, level, encoding), np.frombuffer(data, np.uint8)
