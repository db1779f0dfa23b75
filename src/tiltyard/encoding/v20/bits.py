"""Bitmaps, least bit first: validity and booleans."""

from __future__ import annotations

import numpy as np

from tiltyard.encoding.v20.page import Bytes, Page, Selection
from tiltyard.errors import CorruptFile, UnsupportedFeature
from tiltyard.format.array_encodings import ArrayEncoding, FlatArray


def bitmap(encoding: ArrayEncoding, page: Page, selection: Selection, entries: int) -> Bytes:
    """The bits of some entries as a bitmap that begins with the first; a view of the file if it can."""
    if not isinstance(encoding, FlatArray) or encoding.bits != 1:
        raise UnsupportedFeature(f"bitmaps encoded as {type(encoding).__name__} are not supported")
    size = (entries + 7) // 8
    data = page.buffer(encoding.buffer, encoding.scheme, size)
    if len(data) < size:
        raise CorruptFile(f"a bitmap of {len(data)} bytes for {entries} entries")
    rows = selection.rows
    if rows is not None:
        return np.packbits((data[rows >> 3] >> (rows & 7).astype(np.uint8)) & 1, bitorder="little")
    first, shift = divmod(selection.start, 8)
    last = (selection.stop + 7) // 8
    if shift == 0:
        return data[first:last]
    bits = np.unpackbits(data[first:last], bitorder="little")
    return np.packbits(bits[shift : shift + selection.count], bitorder="little")


def both(left: Bytes | None, right: Bytes | None) -> Bytes | None:
    """Where both bitmaps have a 1; None stands for ones everywhere."""
    if left is None or right is None:
        return right if left is None else left
    size = min(len(left), len(right))
    return left[:size] & right[:size]
