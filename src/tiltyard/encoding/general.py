"""General compression of a whole buffer: zstd or LZ4 with the length in front (compression 3.9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tiltyard.encoding.program import PageProgram, plan_values
from tiltyard.errors import CorruptFile
from tiltyard.format.layouts import General

READS = (General,)

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
#: LZ4 stores at most 255 bytes per byte; zstd far more, in runs.
MAX_LZ4_RATIO = 255
#: Bytes that one compressed buffer may claim to hold.
MAX_OUTPUT_BYTES = 1 << 32

_codecs: dict[str, Any] = {}


def plan(encoding: General, program: PageProgram) -> None:
    """Note the decompression of buffer 0, then plan what is inside."""
    program.value_schemes = (*program.value_schemes, encoding.scheme)
    plan_values(encoding.values, program)


def decompress(schemes: Sequence[str], data: Any, most: int = MAX_OUTPUT_BYTES) -> bytes:
    """Undo the compressions, outermost first; `most`: bytes that each may come to. Raises `CorruptFile`."""
    found = bytes(data)
    for scheme in schemes:
        found = _decompress(scheme, found, most)
    return found


def _decompress(scheme: str, data: bytes, most: int) -> bytes:
    if not data:
        return b""
    codec = _codecs.get(scheme)
    if codec is None:
        codec = _codecs[scheme] = pa.Codec("lz4_raw" if scheme == "lz4" else scheme)
    head = 4 if scheme == "lz4" else 8
    if scheme == "zstd" and (len(data) < head or _bare_frame(data)):
        return _bare(data)
    if len(data) < head:
        raise CorruptFile(f"a {scheme} buffer of {len(data)} bytes has no room for its length")
    size = int.from_bytes(data[:head], "little")
    if size > most or (scheme == "lz4" and size > MAX_LZ4_RATIO * len(data)):
        raise CorruptFile(f"a {scheme} buffer of {len(data)} bytes claims to hold {size}")
    if size == 0:
        return b""
    try:
        found: bytes = codec.decompress(data[head:], decompressed_size=size, asbytes=True)
    except (OSError, ValueError, MemoryError) as error:
        raise CorruptFile(f"a {scheme} buffer cannot be decompressed: {error}") from error
    if len(found) != size:
        raise CorruptFile(f"a {scheme} buffer holds {len(found)} bytes, its length says {size}")
    return found


def _bare_frame(data: bytes) -> bool:
    return data[:4] == ZSTD_MAGIC and not data[4] & 0x10


def _bare(data: bytes) -> bytes:
    """A zstd frame without a length in front: its own header may give none, so it is streamed."""
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            found: bytes = stream.read()
    except (OSError, ValueError) as error:
        raise CorruptFile(f"a zstd frame cannot be decompressed: {error}") from error
    return found
