"""Values of full-zip pages that were walked entry by entry: each at a position and of a length."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.encoding import general
from tiltyard.encoding.program import FIELDS, VALUE_FLAT, VALUE_FSST, VALUE_NONE, VALUE_ONES, P
from tiltyard.errors import BatchTooLarge, CorruptFile
from tiltyard.file.column import ColumnTable, Items, Walked
from tiltyard.kernels import decode as kernels
from tiltyard.session import Session

SLACK_BYTES = 64
#: Decoded bytes assumed per stored byte of compressed strings; a wrong guess costs a second call.
GUESSED_EXPANSION = 3


def _walk(items: Items) -> Walked:
    assert items.walked is not None
    return items.walked


def variable(session: Session, table: ColumnTable, items: Items, *, large: bool) -> tuple[Any, Any]:
    """Offsets and bytes of values of varying width, as Arrow buffers."""
    walk = _walk(items)
    source, position, length = table.source, walk.position, walk.length
    schemes = {program.value_schemes for program in table.programs}
    if schemes != {()}:
        source, position, length = _decompressed(table, walk)
    return gather(session, source, position, length, walk.page, table.side, table.pages, large=large)


def gather(
    session: Session,
    source: npt.NDArray[np.uint8],
    position: npt.NDArray[np.int64],
    length: npt.NDArray[np.int64],
    page: npt.NDArray[np.int64],
    side: npt.NDArray[np.uint8],
    pages: npt.NDArray[np.int64],
    *,
    large: bool,
) -> tuple[Any, Any]:
    """Offsets and bytes of values at positions; `page` names the symbol table of each where there are any."""
    n = len(position)
    dtype = np.dtype(np.int64 if large else np.int32)
    offsets, offsets_buffer = session.arena.alloc((n + 1) * dtype.itemsize)
    stored = int(length.sum())
    compressed = bool((pages.reshape(-1, FIELDS)[:, P.VALUE_CODEC] == VALUE_FSST).any())
    room = stored * GUESSED_EXPANSION if compressed else stored
    while True:
        if not large and min(room, stored) > session.limits.offset_limit:
            raise BatchTooLarge(
                f"{n} values hold at least {stored} stored bytes, more than 32-bit offsets reach "
                f"({session.limits.offset_limit}): read fewer rows at once"
            )
        out, buffer = session.arena.alloc(room + SLACK_BYTES)
        total = kernels.gather_variable(source, position, length, page, side, pages, offsets.view(dtype), out)
        if not large and total > session.limits.offset_limit:
            raise BatchTooLarge(
                f"{n} values hold {total} bytes, more than 32-bit offsets reach "
                f"({session.limits.offset_limit}): read fewer rows at once"
            )
        if total <= room + SLACK_BYTES:
            return offsets_buffer, buffer.slice(0, total)
        room = total


def _decompressed(
    table: ColumnTable, walk: Walked
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The values of pages that compress each value on its own, side by side in new memory."""
    parts: list[Any] = []
    sizes = []
    for position, length, page in zip(
        walk.position.tolist(), walk.length.tolist(), walk.page.tolist(), strict=True
    ):
        data = table.source[position : position + length]
        schemes = table.programs[page].value_schemes
        found: Any = general.decompress(schemes, data) if schemes and length else data
        parts.append(found)
        sizes.append(len(found))
    length_ = np.array(sizes, np.int64)
    return np.frombuffer(b"".join(parts), np.uint8), np.cumsum(length_) - length_, length_


def fixed(session: Session, table: ColumnTable, items: Items, bits: int) -> Any:
    """Values of `bits` bits as one Arrow buffer."""
    walk = _walk(items)
    facts = table.rows_table[walk.page]
    codecs = set(facts[:, P.VALUE_CODEC].tolist())
    if bits == 1:
        return _booleans(table, walk, facts)
    if not codecs <= {VALUE_FLAT, VALUE_NONE} or (bits % 8 and codecs == {VALUE_NONE, VALUE_FLAT}):
        raise CorruptFile("full-zip values that are not flat")
    if codecs == {VALUE_NONE}:
        return pa.py_buffer(np.zeros((items.slots * bits + 7) // 8, np.uint8))
    if codecs == {VALUE_FLAT, VALUE_NONE}:
        # Pages in which all items are null store none: read flat ones, leave zeros elsewhere.
        width = bits // 8
        out = np.zeros((items.slots, width), np.uint8)
        flat = facts[:, P.VALUE_CODEC] == VALUE_FLAT
        part = np.empty(int(flat.sum()) * width, np.uint8)
        kernels.gather_fixed(table.source, (walk.position + facts[:, P.WITHIN])[flat], width, part)
        out[flat] = part.reshape(-1, width)
        return pa.py_buffer(out.reshape(-1))
    if (facts[:, P.VALUE_BITS] != bits).any():
        raise CorruptFile(f"full-zip values of other than {bits} bits")
    if bits % 8:
        return _bits(table, walk.position + facts[:, P.WITHIN], bits)
    out, buffer = session.arena.alloc(items.slots * bits // 8)
    kernels.gather_fixed(table.source, walk.position + facts[:, P.WITHIN], bits // 8, out)
    return buffer


def _booleans(table: ColumnTable, walk: Walked, facts: npt.NDArray[np.int64]) -> Any:
    if (facts[:, P.STRIDE] != 1).any():
        raise CorruptFile("full-zip booleans that are not one byte each")
    out = np.empty(len(walk.position), np.uint8)
    kernels.gather_fixed(table.source, walk.position, 1, out)
    return pa.py_buffer(np.packbits(out, bitorder="little"))


def _bits(table: ColumnTable, position: npt.NDArray[np.int64], bits: int) -> Any:
    """Values of a number of bits that is no multiple of eight, each padded to bytes in the file."""
    width = (bits + 7) // 8
    loose = np.empty(len(position) * width, np.uint8)
    kernels.gather_fixed(table.source, position, width, loose)
    each = np.unpackbits(loose.reshape(-1, width), axis=1, count=bits, bitorder="little")
    return pa.py_buffer(np.packbits(each.reshape(-1), bitorder="little"))


def bitmap(table: ColumnTable, items: Items, pages: npt.NDArray[np.int64], bits: int) -> Any:
    """The item bitmap of nested vectors: `pages` are the programs that read it."""
    walk = _walk(items)
    facts = pages.reshape(-1, FIELDS)[walk.page]
    width = (bits + 7) // 8
    loose = np.full((len(walk.position), width), 0xFF, np.uint8)
    stored = facts[:, P.VALUE_CODEC] != VALUE_ONES
    part = np.empty(int(stored.sum()) * width, np.uint8)
    kernels.gather_fixed(table.source, (walk.position + facts[:, P.WITHIN])[stored], width, part)
    loose[stored] = part.reshape(-1, width)
    each = np.unpackbits(loose, axis=1, count=bits, bitorder="little")
    return pa.py_buffer(np.packbits(each.reshape(-1), bitorder="little"))
