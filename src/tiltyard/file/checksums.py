"""Checksums of a data file in a global buffer of their own (decision D8).

Layout, little endian: magic of 8 bytes, u8 algorithm (1: CRC-32 of zlib), 3 zero bytes, u32 number of page
buffers, one u32 per page buffer in file order (column by column, page by page, buffer by buffer), one u32
over the column metadata.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiltyard.kernels import encode as kernels

MAGIC = b"TYSUM\x00\x00\x01"
CRC32 = 1
KERNEL_MIN_BYTES = 4096
"""Below, the call of a kernel costs more than it saves."""
_HEAD = struct.Struct("<8sB3xI")


@dataclass(frozen=True, slots=True)
class Checksums:
    """Sums as they stand in a file: one per page buffer, one over the concatenated column metadata."""

    pages: tuple[int, ...]
    metadata: int


def checksum(data: Any, start: int = 0) -> int:
    """CRC-32 of a buffer, continuing from `start`."""
    if len(data) < KERNEL_MIN_BYTES:
        return zlib.crc32(data, start)
    return int(kernels.crc32(np.frombuffer(data, np.uint8), start))


def encode_checksums(pages: Sequence[int], columns: Sequence[bytes]) -> bytes:
    """The global buffer for page sums in file order and the metadata bytes of all columns."""
    metadata = 0
    for column in columns:
        metadata = zlib.crc32(column, metadata)
    head = _HEAD.pack(MAGIC, CRC32, len(pages))
    return head + np.array([*pages, metadata], "<u4").tobytes()


def decode_checksums(data: bytes) -> Checksums | None:
    """The sums in a global buffer; None when it holds something else or an algorithm that we do not know."""
    if len(data) < _HEAD.size + 4:
        return None
    magic, algorithm, count = _HEAD.unpack_from(data)
    if magic != MAGIC or algorithm != CRC32 or len(data) != _HEAD.size + 4 * (count + 1):
        return None
    sums = np.frombuffer(data, "<u4", count + 1, _HEAD.size).tolist()
    return Checksums(tuple(sums[:-1]), sums[-1])
