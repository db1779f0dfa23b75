"""Values of fixed width: back to back, in a stream of bits, or in FastLanes blocks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tiltyard.encoding.v20.page import I64, Bytes, Page, Selection, check_empty
from tiltyard.errors import CorruptFile, UnsupportedFeature
from tiltyard.format.array_encodings import (
    ArrayEncoding,
    BitStream,
    FlatArray,
    NullableArray,
    PackedBlocks,
)
from tiltyard.kernels import decode as kernels
from tiltyard.kernels.page_program import LEVEL_OUT_OF_LINE

BLOCK = 1024
WORDS = (8, 16, 32, 64)
#: Bytes that one unaligned word of a stream of bits is read with, beyond those that hold it.
SLACK_BYTES = 9

Words = npt.NDArray[np.unsignedinteger]


def fixed(encoding: ArrayEncoding, page: Page, selection: Selection, entries: int, bits: int) -> Bytes:
    """The bytes of some values of `bits` bits (whole bytes each); a view of the file where they lie together.

    Raises `UnsupportedFeature` for encodings of other values.
    """
    if isinstance(encoding, FlatArray):
        return flat(encoding, page, selection, entries, bits)
    if not isinstance(encoding, BitStream | PackedBlocks):
        raise UnsupportedFeature(
            f"values of fixed width encoded as {type(encoding).__name__} are not supported"
        )
    if encoding.bits != bits:
        raise CorruptFile(f"packed values of {encoding.bits} bits where the schema says {bits}")
    if bits not in WORDS or encoding.packed_bits > bits:
        raise CorruptFile(f"values of {bits} bits packed to {encoding.packed_bits}")
    if not encoding.packed_bits:
        check_empty(selection.count)
        return np.zeros(selection.count * (bits // 8), np.uint8)
    if isinstance(encoding, BitStream):
        return _stream(encoding, page, selection, entries)
    return _blocks(encoding, page, selection, entries)


def flat(encoding: FlatArray, page: Page, selection: Selection, entries: int, bits: int) -> Bytes:
    """The bytes of values that lie back to back."""
    if encoding.bits != bits or bits % 8:
        raise CorruptFile(f"values of {encoding.bits} bits where the schema says {bits}")
    return cut(
        page.buffer(encoding.buffer, encoding.scheme, entries * bits // 8), selection, entries, bits // 8
    )


def cut(data: Bytes, selection: Selection, entries: int, width: int) -> Bytes:
    """Some entries of `width` bytes each, of `entries` that lie in `data`."""
    if len(data) < entries * width:
        raise CorruptFile(f"a buffer of {len(data)} bytes for {entries} values of {width} bytes")
    if selection.rows is None:
        return data[selection.start * width : selection.stop * width]
    out = np.empty(len(selection.rows) * width, np.uint8)
    if width:
        kernels.gather_fixed(data, selection.rows * width, width, out)
    return out


def numbers(encoding: ArrayEncoding, page: Page, selection: Selection, entries: int, bits: int = 0) -> Words:
    """Unsigned whole numbers without nulls, such as ends and indices; of any width where `bits` is 0."""
    while isinstance(encoding, NullableArray):
        if encoding.values is None or encoding.validity is not None:
            raise CorruptFile("nulls among the ends or indices of a page")
        encoding = encoding.values
    if not bits and isinstance(encoding, FlatArray | BitStream | PackedBlocks):
        bits = encoding.bits
    if bits not in WORDS:
        raise CorruptFile(f"ends or indices of {bits} bits")
    found = fixed(encoding, page, selection, entries, bits)
    return np.frombuffer(found, f"<u{bits // 8}")


def _stream(encoding: BitStream, page: Page, selection: Selection, entries: int) -> Bytes:
    """Values `packed_bits` wide, one after the other; whoever is signed repeats its uppermost bit."""
    width, data = encoding.packed_bits, page.buffer(encoding.buffer, "")
    if 8 * len(data) < entries * width:
        raise CorruptFile(f"{entries} values of {width} bits in {len(data)} bytes")
    rows = np.arange(selection.start, selection.stop) if selection.rows is None else selection.rows
    first = int(rows.min()) * width // 8 if len(rows) else 0
    last = (int(rows.max()) + 1) * width // 8 + 1 if len(rows) else 0
    near = np.zeros(last - first + SLACK_BYTES, np.uint8)
    near[: min(last, len(data)) - first] = data[first:last]
    at = rows * width - first * 8
    words = np.ndarray(len(near) - 8, "<u8", near, strides=(1,))
    shift = (at & 7).astype(np.uint64)
    value = words[at >> 3] >> shift
    over = shift > np.uint64(0)  # a shift by 64 has no meaning
    value[over] |= near[(at[over] >> 3) + 8].astype(np.uint64) << (np.uint64(64) - shift[over])
    unused = np.uint64(64 - width)
    if encoding.signed:
        value = ((value << unused).view(np.int64) >> unused.astype(np.int64)).view(np.uint64)
    else:
        value = (value << unused) >> unused
    return value.astype(f"<u{encoding.bits // 8}").view(np.uint8)


def _blocks(encoding: PackedBlocks, page: Page, selection: Selection, entries: int) -> Bytes:
    """Values of whole FastLanes blocks, of which the last is filled up with zeros."""
    width, word, data = encoding.packed_bits, encoding.bits // 8, page.buffer(encoding.buffer, "")
    size = 128 * width
    if len(data) < -(-entries // BLOCK) * size:
        raise CorruptFile(f"{entries} values in blocks of {width} bits in {len(data)} bytes")
    if selection.rows is None:
        low, high = selection.start // BLOCK, -(-selection.stop // BLOCK)
        return _unpacked(data[low * size : high * size], encoding, high - low)[
            (selection.start - low * BLOCK) * word : (selection.stop - low * BLOCK) * word
        ]
    blocks, where = np.unique(selection.rows // BLOCK, return_inverse=True)
    held = cut(data, Selection.of(blocks), -(-entries // BLOCK), size)
    rows: I64 = where * BLOCK + selection.rows % BLOCK
    return cut(_unpacked(held, encoding, len(blocks)), Selection.of(rows), len(blocks) * BLOCK, word)


def _unpacked(data: Bytes, encoding: PackedBlocks, blocks: int) -> Bytes:
    out = np.empty(blocks * BLOCK * (encoding.bits // 8), np.uint8)
    kernels.block_fixed(data, LEVEL_OUT_OF_LINE, encoding.bits, encoding.packed_bits, blocks * BLOCK, out)
    return out
