"""Where values of varying width, and lists, begin and end: one end each, raised by a constant where there is
a null.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tiltyard.encoding.v20.fixed import numbers
from tiltyard.encoding.v20.page import I64, Bytes, Page, Selection, check_empty
from tiltyard.errors import CorruptFile, UnsupportedFeature
from tiltyard.format.array_encodings import ArrayEncoding, BinaryArray, EqualLengths, FlatArray, NullableArray

END_BITS = 64


@dataclass(frozen=True, slots=True)
class Spans:
    """The places of some values in `data`: where each begins and how long it is; `valid` (None: all) is a
    bitmap.
    """

    data: Bytes
    begin: I64
    length: I64
    valid: Bytes | None


def ends(
    encoding: ArrayEncoding, page: Page, selection: Selection, entries: int, null_adjustment: int, limit: int
) -> tuple[I64, I64, Bytes | None]:
    """Begin, length and validity of some entries, none of which ends beyond `limit`."""
    adjustment = np.uint64(null_adjustment)

    def read(chosen: Selection) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
        found = numbers(encoding, page, chosen, entries, END_BITS).astype(np.uint64, copy=False)
        is_null = found >= adjustment
        return (np.where(is_null, found - adjustment, found) if is_null.any() else found), is_null

    rows = selection.rows
    if rows is not None:
        end, is_null = read(selection)
        start = read(Selection.of(np.maximum(rows - 1, 0)))[0]
        start = np.where(rows == 0, np.uint64(0), start)
    elif selection.start:
        before, is_null = read(Selection(selection.start - 1, selection.stop))
        start, end, is_null = before[:-1], before[1:], is_null[1:]
    else:
        end, is_null = read(selection)
        start = np.concatenate([np.zeros(1, np.uint64), end[:-1]])[: len(end)]
    if len(end) and (bool((start > end).any()) or int(end.max()) > limit):
        raise CorruptFile(f"the ends of a page decrease, or lie beyond {limit}")
    begin = start.astype(np.int64)
    length = end.astype(np.int64) - begin
    if rows is not None and int(length.sum()) > limit:
        once = np.unique(rows, return_index=True)[1]
        if int(length[once].sum()) > limit:
            raise CorruptFile(f"the ends of a page decrease: its values come to more than {limit}")
    valid = np.packbits(~is_null, bitorder="little") if is_null.any() else None
    return begin, length, valid


def spans(encoding: ArrayEncoding, page: Page, selection: Selection, entries: int) -> Spans:
    """The places of some values of varying width."""
    if isinstance(encoding, EqualLengths):
        data, width = _bytes(encoding.data, page), encoding.width
        if not width:
            check_empty(selection.count)
        if len(data) < entries * width:
            raise CorruptFile(f"{entries} values of {width} bytes in {len(data)} bytes")
        rows = np.arange(selection.start, selection.stop) if selection.rows is None else selection.rows
        return Spans(data, rows * width, np.full(len(rows), width, np.int64), None)
    if not isinstance(encoding, BinaryArray):
        raise UnsupportedFeature(
            f"values of varying width encoded as {type(encoding).__name__} are not supported"
        )
    data = _bytes(encoding.data, page)
    return Spans(data, *ends(encoding.ends, page, selection, entries, encoding.null_adjustment, len(data)))


def _bytes(encoding: ArrayEncoding, page: Page) -> Bytes:
    while isinstance(encoding, NullableArray) and encoding.validity is None and encoding.values is not None:
        encoding = encoding.values
    if not isinstance(encoding, FlatArray):
        raise UnsupportedFeature(f"bytes encoded as {type(encoding).__name__} are not supported")
    if encoding.bits != 8:
        raise CorruptFile(f"bytes of values of varying width that have {encoding.bits} bits")
    return page.buffer(encoding.buffer, encoding.scheme)
