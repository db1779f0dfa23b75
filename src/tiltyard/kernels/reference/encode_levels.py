"""NumPy reference of native/encode_levels.cpp: Arrow structure to repetition and definition codes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
U16 = npt.NDArray[np.uint16]
U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

SPECIAL = 0x8000
"""Marks a slot that owns no child: a null, empty or hidden list."""


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)


def _bits(bits: U8, start: int, count: int) -> npt.NDArray[np.bool_]:
    _require(start + count <= bits.size * 8, "validity bits end before the slots")
    return np.unpackbits(bits, bitorder="little")[start : start + count].astype(bool)


def mark_nulls(def_: U16, bits: U8, start: int, code: int) -> int:
    """Give slots whose validity bit is 0 the code, unless they have one. Returns how many were marked.

    `def_` uint16, changed in place; special slots consume no bit; `bits` is an Arrow bitmap read from bit
    `start`.
    """
    plain = np.flatnonzero((def_ & SPECIAL) == 0)
    valid = _bits(bits, start, plain.size)
    marked = plain[~valid & (def_[plain] == 0)]
    def_[marked] = code
    return int(marked.size)


def measure_lists(def_: U16, offsets: I64, bits: U8, start: int) -> tuple[int, int, int, int, bool]:
    """What a list layer makes of the slots: (slots after it, children kept, lists null, lists empty, whether
    a null or hidden list has children that must be dropped). `bits` empty: all lists valid.
    """
    plain = (def_ & SPECIAL) == 0
    lists = offsets.size - 1
    _require(lists >= 0, "list offsets must have one entry more than lists")
    _require(int(plain.sum()) == lists, "not one list per slot")
    lengths = np.diff(offsets)
    _require(not (lengths < 0).any(), "list offsets must not decrease")
    valid = _bits(bits, start, lists) if bits.size else np.ones(lists, bool)
    seen = def_[plain] == 0
    kept = seen & valid & (lengths > 0)
    slots = int(lengths[kept].sum()) + int((~kept).sum()) + int((~plain).sum())
    nulls, empties = int((seen & ~valid).sum()), int((seen & valid & (lengths == 0)).sum())
    return slots, int(lengths[kept].sum()), nulls, empties, bool((lengths[~kept] > 0).any())


def ravel_lists(
    rep: U16,
    def_: U16,
    offsets: I64,
    bits: U8,
    start: int,
    rep_code: int,
    null_code: int,
    empty_code: int,
    out_rep: U16,
    out_def: U16,
    children: I64,
) -> int:
    """Expand slots by one list layer (file-format.md 6.5); `out_*` have the size that `measure_lists` told.

    `children` (int64) receives the positions of the children kept; an empty array asks for none.
    """
    plain = (def_ & SPECIAL) == 0
    lists = offsets.size - 1
    _require(int(plain.sum()) == lists, "not one list per slot")
    valid = _bits(bits, start, lists) if bits.size else np.ones(lists, bool)
    lengths = np.zeros(def_.size, np.int64)
    lengths[plain] = np.diff(offsets)
    is_valid = np.ones(def_.size, bool)
    is_valid[plain] = valid
    kept = plain & (def_ == 0) & is_valid & (lengths > 0)
    span = np.where(kept, lengths, 1)
    _require(int(span.sum()) == out_rep.size == out_def.size, "output has the wrong size")
    own = np.where(is_valid, empty_code, null_code)
    lost = np.where(def_ != 0, def_, own).astype(np.uint16) | np.uint16(SPECIAL)
    first = np.cumsum(span) - span
    out_rep[:] = 0
    out_rep[first] = np.where(plain & (rep == 0), rep_code, rep)
    out_def[:] = 0
    out_def[first[~kept]] = np.where(plain, lost, def_)[~kept]
    if children.size:
        begins = np.zeros(def_.size, np.int64)
        begins[plain] = offsets[:-1]
        counts = lengths[kept]
        _require(int(counts.sum()) == children.size, "output has the wrong size")
        base = np.repeat(begins[kept] - (np.cumsum(counts) - counts), counts)
        children[:] = base + np.arange(children.size)
    return int(out_rep.size)


def remap_levels(codes: U16, table: U16, out: U16) -> None:
    """`out[i] = table[codes[i]]`, the special mark ignored; all uint16."""
    plain = codes & np.uint16(SPECIAL - 1)
    _require(codes.size == out.size, "output has the wrong size")
    _require(not plain.size or int(plain.max()) < table.size, "a code outside the table")
    out[:] = table[plain]


def visible_nulls(def_: U16, max_visible: int, out: U8) -> int:
    """For each visible entry whether it is null; returns how many are."""
    seen = def_[def_ <= max_visible]
    _require(seen.size == out.size, "not one visible slot per value")
    out[:] = seen != 0
    return int(out.sum())


def level_ends(def_: U16, max_visible: int, chunk_items: I64, ends: I64) -> None:
    """Where each chunk's entries end: right after its last visible item; the last chunk takes the rest."""
    _require(chunk_items.size == ends.size, "one end per chunk")
    positions = np.flatnonzero(def_ <= max_visible)
    counts = np.cumsum(chunk_items)
    _require(not counts.size or int(counts[-1]) <= positions.size, "fewer visible slots than values")
    ends[:] = 0
    some = counts > 0
    ends[some] = positions[counts[some] - 1] + 1
    if ends.size:
        ends[-1] = def_.size


def repetition_index(rep: U16, max_rep: int, ends: I64, out: U64) -> None:
    """Per chunk two numbers: rows that finish in it, entries of the row left open (file-format.md 7.2)."""
    _require(out.size == 2 * ends.size, "two numbers per chunk")
    begin = 0
    for chunk, end in enumerate(ends.tolist()):
        _require(begin <= end <= rep.size, "a chunk ends outside the levels")
        starts = np.flatnonzero(rep[begin:end] == max_rep)
        last = chunk + 1 == ends.size
        closes = last or (end < rep.size and int(rep[end]) == max_rep)
        out[2 * chunk] = int((starts > 0).sum()) + closes
        open_from = int(starts[-1]) if starts.size else 0
        out[2 * chunk + 1] = 0 if closes else end - begin - open_from
        begin = end
