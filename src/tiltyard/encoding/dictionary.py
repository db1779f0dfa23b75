"""Page dictionaries: a block of distinct items beside chunks of indices (compression 3.10)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.encoding import bitpack, flat, general, rle, variable
from tiltyard.errors import CorruptFile, UnsupportedFeature
from tiltyard.format.layouts import Encoding
from tiltyard.kernels import decode as kernels

Bytes = npt.NDArray[np.uint8]

#: Items of one page's dictionary: indices are 32-bit at most where the writer chose a dictionary.
MAX_ITEMS = 1 << 31


@dataclass(frozen=True, slots=True)
class Items:
    """Items of a dictionary: `data` (uint8) with `offsets` (int64, n + 1) where they vary in width.

    Fixed-width items are `bits` wide and back to back.
    """

    n: int
    data: Bytes
    offsets: npt.NDArray[np.int64] | None
    bits: int


def read_items(encoding: Encoding, data: Bytes, n: int) -> Items:
    """Decode the items of a page's dictionary. Raises `CorruptFile`, `UnsupportedFeature`."""
    if n > MAX_ITEMS:
        raise CorruptFile(f"a dictionary of {n} items")
    schemes: list[str] = []
    while isinstance(encoding, general.READS):
        schemes.append(encoding.scheme)
        encoding = encoding.values
    if schemes:
        data = np.frombuffer(general.decompress(schemes, data), np.uint8)
    if isinstance(encoding, variable.READS):
        offsets, body = variable.read_block(encoding, data, n)
        return Items(n, body, offsets, 0)
    for module in (flat, bitpack, rle):
        if isinstance(encoding, module.BLOCKS):
            codec, bits, width = module.block(encoding)
            return _fixed(codec, bits, width, data, n)
    raise UnsupportedFeature(f"dictionary items encoded as {type(encoding).__name__} are not supported")


def _fixed(codec: int, bits: int, width: int, data: Bytes, n: int) -> Items:
    if bits == 1:  # booleans: the bitmap as it stands
        if len(data) < (n + 7) // 8:
            raise CorruptFile(f"{n} one-bit items in {len(data)} bytes")
        return Items(n, data, None, 1)
    if bits % 8 or bits == 0 or n > 255 * 8 * max(len(data), 128):
        raise CorruptFile(f"a dictionary of {n} items of {bits} bits in {len(data)} bytes")
    items = np.empty(n * bits // 8, np.uint8)
    kernels.block_fixed(data, codec, bits, width, n, items)
    return Items(n, items, None, bits)


def joined(parts: list[Items]) -> Items:
    """One dictionary of all items of several, in order."""
    if len(parts) == 1:
        return parts[0]
    n = sum(part.n for part in parts)
    if len({(part.bits, part.offsets is None) for part in parts}) != 1:
        raise CorruptFile("dictionaries of one column hold items of different widths")
    if parts[0].offsets is None:
        if parts[0].bits == 1:
            bits = [np.unpackbits(part.data, count=part.n, bitorder="little") for part in parts]
            return Items(n, np.packbits(np.concatenate(bits), bitorder="little"), None, 1)
        return Items(n, np.concatenate([part.data for part in parts]), None, parts[0].bits)
    ends, bodies, at = [np.zeros(1, np.int64)], [], 0
    for part in parts:
        offsets = part.offsets
        assert offsets is not None
        ends.append(offsets[1:] + at)
        bodies.append(part.data[: int(offsets[-1])])
        at += int(offsets[-1])
    return Items(n, np.concatenate(bodies), np.concatenate(ends), 0)


def distinct(items: Items) -> tuple[Items, npt.NDArray[np.uint32]]:
    """The distinct items in order of appearance, and for each given item its number (uint32) among them."""
    data = items.data if items.bits != 1 else np.unpackbits(items.data, count=items.n, bitorder="little")
    if items.offsets is None:
        size = max(1, items.bits // 8)
        array = pa.Array.from_buffers(pa.binary(size), items.n, [None, pa.py_buffer(data)])
    else:
        buffers = [None, pa.py_buffer(items.offsets), pa.py_buffer(data)]
        array = pa.Array.from_buffers(pa.large_binary(), items.n, buffers)
    coded = array.dictionary_encode()
    found = coded.dictionary
    numbers = np.frombuffer(coded.indices.buffers()[1], np.int32, items.n).astype(np.uint32)
    if items.offsets is not None:
        _, offsets, body = found.buffers()
        where = np.frombuffer(offsets, np.int64, len(found) + 1)
        return Items(len(found), _bytes(body), where, 0), numbers
    body = _bytes(found.buffers()[1])
    if items.bits == 1:
        body = np.packbits(body[: len(found)], bitorder="little")
    return Items(len(found), body, None, items.bits), numbers


def _bytes(buffer: pa.Buffer | None) -> Bytes:
    return np.empty(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)
