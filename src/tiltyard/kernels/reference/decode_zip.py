"""Full-zip pages walked entry by entry, in plain Python."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tiltyard.kernels.page_program import FIELDS, P
from tiltyard.kernels.reference.decode_page import I64, Bytes, cut, require

U16 = npt.NDArray[np.uint16]
INDEX_WIDTHS = (1, 2, 4, 8)


class _Found:
    """Entries and values in order."""

    def __init__(self) -> None:
        self.rep: list[int] = []
        self.def_: list[int] = []
        self.position: list[int] = []
        self.length: list[int] = []
        self.page: list[int] = []


def zip_rows(
    src: Bytes,
    side: Bytes,
    pages: I64,
    row_first: I64,
    start: I64,
    count: I64,
    rep: U16,
    def_: U16,
    position: I64,
    length: I64,
    page: I64,
) -> tuple[int, int]:
    """See `kernels.decode`."""
    facts = pages.reshape(-1, FIELDS)
    require(len(row_first) == len(facts) + 1, "row table: wrong size")
    found = _Found()
    for s in range(len(start)):
        r, n = int(start[s]), int(count[s]) if len(count) else 1
        require(r >= 0 and n >= 0 and r + n <= int(row_first[-1]), "rows outside of the column")
        while n > 0:
            number = int(np.searchsorted(row_first, r, "right")) - 1
            m = min(n, int(row_first[number + 1]) - r)
            _walk(src, side, facts[number], number, r - int(row_first[number]), m, found)
            r, n = r + m, n - m
    entries, values = min(len(found.rep), len(rep)), min(len(found.position), len(position))
    rep[:entries] = found.rep[:entries]
    def_[:entries] = found.def_[:entries]
    position[:values] = found.position[:values]
    length[:values] = found.length[:values]
    page[:values] = found.page[:values]
    return len(found.rep), len(found.position)


def _span(src: Bytes, p: I64, data: Bytes, low: int, n: int, fixed: int) -> tuple[int, int]:
    """Where the entries of rows begin and end in a page's data."""
    width, rows = int(p[P.INDEX_WIDTH]), int(p[P.ROWS])
    if not width:
        require(fixed > 0 and p[P.CONTROL_REP_BITS] == 0, "page without the repetition index that it needs")
        stride = int(p[P.CONTROL_BYTES]) + fixed
        require(low + n <= len(data) // stride, "full-zip page cut short")
        return low * stride, (low + n) * stride
    require(width in INDEX_WIDTHS, "repetition index of an impossible width")
    require(low + n <= rows, "row outside of its page")
    index = cut(src, int(p[P.INDEX_POS]), width * (rows + 1), "repetition index outside of the file")
    a, b = (int.from_bytes(index[i * width : (i + 1) * width].tobytes(), "little") for i in (low, low + n))
    require(a <= b <= len(data), "repetition index points outside of its page")
    return a, b


def _walk(src: Bytes, side: Bytes, p: I64, number: int, low: int, n: int, found: _Found) -> None:
    control, rep_bits, def_bits = (
        int(p[P.CONTROL_BYTES]),
        int(p[P.CONTROL_REP_BITS]),
        int(p[P.CONTROL_DEF_BITS]),
    )
    fixed = 0 if p[P.OFFSET_BITS] else int(p[P.STRIDE])
    prefix = int(p[P.OFFSET_BITS]) // 8
    require(0 <= control <= 4 and 0 <= rep_bits <= 16 and 0 <= def_bits <= 16, "control words out of bounds")
    require(rep_bits + def_bits <= control * 8, "control words out of bounds")
    require(fixed > 0 or prefix in (4, 8), "full-zip values of an impossible width")
    base, visible = int(p[P.DATA_POS]), int(p[P.VISIBLE])
    data = cut(src, base, int(p[P.DATA_SIZE]), "page buffer outside of the file")
    begin, end = _span(src, p, data, low, n, fixed)
    lut = (
        cut(side, int(p[P.LUT_POS]), int(p[P.LUT_LEN]), "level map outside of its table").view("<u2").tolist()
    )
    raw = data[begin:end].tobytes()
    at, stop = 0, len(raw)
    while at < stop:
        require(control <= stop - at, "control word outside of its row")
        word = int.from_bytes(raw[at : at + control], "little")
        at += control
        level = word & ((1 << def_bits) - 1)
        require(level < len(lut), "level that no layer of the page has")
        found.rep.append((word >> def_bits) & ((1 << rep_bits) - 1))
        found.def_.append(lut[level])
        if level > visible:
            continue
        size = fixed
        if not fixed and level == 0:
            require(prefix <= stop - at, "value length outside of its row")
            size = int.from_bytes(raw[at : at + prefix], "little")
            at += prefix
        require(size <= stop - at, "value outside of its row")
        found.position.append(base + begin + at)
        found.length.append(size)
        found.page.append(number)
        at += size
