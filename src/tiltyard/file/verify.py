"""Checking the checksums that a data file carries in a global buffer (D8)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tiltyard.errors import CorruptFile
from tiltyard.file.checksums import MAGIC, Checksums, checksum, decode_checksums
from tiltyard.format.container import FileTail


def verify_checksums(source: npt.NDArray[np.uint8], tail: FileTail) -> bool:
    """Compare every sum of a file; False where it carries none. Raises `CorruptFile` naming what differs."""
    sums = _find(source, tail)
    if sums is None:
        return False
    start, end = tail.metadata_span
    _compare(source[start:end], sums.metadata, "the column metadata", tail.path)
    at = 0
    for number, column in enumerate(tail.columns):
        for page in range(len(column)):
            for which, (position, size) in enumerate(column.buffers(page)):
                if at < len(sums.pages):
                    what = f"buffer {which} of page {page} of column {number}"
                    _compare(source[position : position + size], sums.pages[at], what, tail.path)
                at += 1
    if at != len(sums.pages):
        raise CorruptFile(f"{len(sums.pages)} checksums for {at} page buffers", tail.path)
    return True


def _find(source: npt.NDArray[np.uint8], tail: FileTail) -> Checksums | None:
    for position, size in reversed(tail.global_buffers[1:]):  # ours is the last
        data = source[position : position + size].tobytes()
        if data.startswith(MAGIC):
            sums = decode_checksums(data)
            if sums is None:
                raise CorruptFile("the table of checksums is damaged, or of an unknown algorithm", tail.path)
            return sums
    return None


def _compare(data: npt.NDArray[np.uint8], expected: int, what: str, path: str) -> None:
    found = checksum(data)
    if found != expected:
        raise CorruptFile(f"{what} has checksum {found:08x}, expected {expected:08x}: it changed", path)
