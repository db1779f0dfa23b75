"""Sequences of row ids and of row versions, to and from arrays (table format, section 13).

A fragment with stable row ids carries one id per physical row, and may carry the version that created and the
one that last updated each row. Both are stored as runs and segments, a few bytes for most fragments.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tiltyard.errors import CorruptFile
from tiltyard.format import wire
from tiltyard.format.protos import table_pb2 as pb
from tiltyard.kernels.distinct import distinct

MAX_SEQUENCE_ROWS = 2**32
"""Rows that a sequence may claim: a fragment cannot have more."""

MAX_RUNS = 256
"""Ascending runs up to which a sequence is tried as one segment per run."""

# Sizes in bytes that the choice of a segment's form goes by.
_SEGMENT_BYTES = 24
_HOLE_BYTES = 4
_ITEM_BYTES = 2

U64 = npt.NDArray[np.uint64]
_MAX_U64 = 2**64 - 1


# -- row ids -------------------------------------------------------------------------------------


def decode_row_ids(data: Any, rows: int | None = None, path: str | None = None) -> U64:
    """The row ids of a fragment, one uint64 per physical row.

    `rows`: how many there must be, when known. Raises `CorruptFile` (naming `path`) for nonsense.
    """
    segments = wire.parse(pb.RowIdSequence, data, path or "", "a row id sequence").segments
    try:
        _check_total(sum(map(_segment_rows, segments)), rows, "row ids")
        parts = [_segment_values(each) for each in segments]
    except CorruptFile as error:
        raise CorruptFile(str(error), path) from error
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def encode_row_ids(ids: npt.ArrayLike) -> bytes:
    """The bytes of a sequence of row ids (uint64), in the smallest form.

    Ids that ascend in a few runs, as after a compaction, become one segment per run where that is smaller.
    """
    values = np.ascontiguousarray(ids, np.uint64)
    if not len(values):
        return b""
    whole: bytes = pb.RowIdSequence(segments=[_encode_segment(values)]).SerializeToString()
    breaks = np.flatnonzero(values[1:] <= values[:-1]) + 1
    if not 0 < len(breaks) < MAX_RUNS:
        return whole
    runs = [_encode_segment(each) for each in np.split(values, breaks)]
    split: bytes = pb.RowIdSequence(segments=runs).SerializeToString()
    return min(whole, split, key=len)


def encode_row_id_range(start: int, count: int) -> bytes:
    """The bytes of `count` consecutive row ids from `start`."""
    segments = [_range(start, count)] if count else []
    return pb.RowIdSequence(segments=segments).SerializeToString()


def append_row_id_range(data: bytes, start: int, count: int) -> bytes:
    """A sequence followed by `count` consecutive ids from `start`; adjacent ranges become one."""
    m = wire.parse(pb.RowIdSequence, data, "", "a row id sequence")
    if count:
        last = m.segments[-1] if m.segments else None
        if last is not None and last.WhichOneof("segment") == "range" and last.range.end == start:
            last.range.end = start + count
        else:
            m.segments.add().CopyFrom(_range(start, count))
    return m.SerializeToString()


def count_row_ids(data: Any) -> int:
    """How many ids a sequence has, without building them."""
    return sum(map(_segment_rows, wire.parse(pb.RowIdSequence, data, "", "a row id sequence").segments))


# -- versions of rows ----------------------------------------------------------------------------


def decode_versions(data: Any, rows: int | None = None, path: str | None = None) -> U64:
    """The version of each physical row, uint64. Raises `CorruptFile` (naming `path`) for nonsense."""
    runs = wire.parse(pb.VersionSequence, data, path or "", "a sequence of row versions").runs
    try:
        lengths = [_segment_rows(each.span) for each in runs]
        _check_total(sum(lengths), rows, "row versions")
    except CorruptFile as error:
        raise CorruptFile(str(error), path) from error
    return np.repeat(np.array([each.version for each in runs], np.uint64), np.array(lengths, np.int64))


def encode_versions(versions: npt.ArrayLike) -> bytes:
    """The bytes of the versions of a fragment's rows (uint64), as runs."""
    values = np.ascontiguousarray(versions, np.uint64)
    m = pb.VersionSequence()
    if len(values):
        starts = np.concatenate([[0], np.flatnonzero(values[1:] != values[:-1]) + 1])
        counts = np.diff(np.append(starts, len(values)))
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
            m.runs.add(span=_range(start, count), version=int(values[start]))
    return m.SerializeToString()


def encode_constant_version(version: int, rows: int) -> bytes:
    """The bytes of one version for all rows."""
    runs = [pb.VersionRun(span=_range(0, rows), version=version)] if rows else []
    return pb.VersionSequence(runs=runs).SerializeToString()


# -- segments ------------------------------------------------------------------------------------


def _check_total(total: int, rows: int | None, what: str) -> None:
    if rows is not None and total != rows:
        raise CorruptFile(f"a fragment of {rows} rows has {total} {what}")
    if total > MAX_SEQUENCE_ROWS:
        raise CorruptFile(f"a fragment has {total} {what}, more than {MAX_SEQUENCE_ROWS}")


def _range(start: int, count: int) -> Any:
    return pb.U64Segment(range=pb.U64Segment.Range(start=start, end=start + count))


def _segment_rows(m: Any) -> int:
    """How many numbers a segment stands for; checks that its parts fit together."""
    kind = m.WhichOneof("segment")
    if kind is None:
        raise CorruptFile("a segment of row ids is of a form that this version does not know")
    body = getattr(m, kind)
    if kind in ("sorted_array", "array"):
        return _array_length(body)
    if body.end < body.start:
        raise CorruptFile(f"a segment of row ids ends at {body.end}, before its start {body.start}")
    slots: int = body.end - body.start
    if kind == "range":
        return slots
    if kind == "range_with_holes":
        holes = _array_values(body.holes)
        if len(holes) and not (int(holes.min()) >= body.start and int(holes.max()) < body.end):
            raise CorruptFile("a hole in a segment of row ids lies outside its range")
        return slots - len(distinct(holes))
    if len(body.bitmap) != -(-slots // 8):
        raise CorruptFile(f"a segment of {slots} row ids has a bitmap of {len(body.bitmap)} bytes")
    return int(_bits(body.bitmap, slots).sum())


def _segment_values(m: Any) -> U64:
    kind = m.WhichOneof("segment")
    body = getattr(m, kind)
    if kind in ("sorted_array", "array"):
        return _array_values(body)
    values = np.arange(body.end - body.start, dtype=np.uint64) + np.uint64(body.start)
    if kind == "range_with_holes":
        keep = np.ones(len(values), bool)
        keep[(_array_values(body.holes) - np.uint64(body.start)).astype(np.int64)] = False
        return values[keep]
    if kind == "range_with_bitmap":
        return values[_bits(body.bitmap, len(values))]
    return values


def _bits(bitmap: bytes, slots: int) -> npt.NDArray[np.bool_]:
    return np.unpackbits(np.frombuffer(bitmap, np.uint8), count=slots, bitorder="little").view(bool)


_WIDTHS: dict[str, tuple[str, int]] = {
    "u16_array": ("<u2", 2),
    "u32_array": ("<u4", 4),
    "u64_array": ("<u8", 8),
}


def _array_bytes(m: Any) -> tuple[str, bytes, int]:
    kind = m.WhichOneof("array")
    if kind is None:
        raise CorruptFile("an array of row ids is of a form that this version does not know")
    body = getattr(m, kind)
    dtype, width = _WIDTHS[kind]
    data, base = (body.values, 0) if kind == "u64_array" else (body.offsets, body.base)
    if len(data) % width:
        raise CorruptFile(f"an array of row ids has {len(data)} bytes, not a multiple of {width}")
    return dtype, data, base


def _array_length(m: Any) -> int:
    dtype, data, _ = _array_bytes(m)
    return len(data) // np.dtype(dtype).itemsize


def _array_values(m: Any) -> U64:
    dtype, data, base = _array_bytes(m)
    values = np.frombuffer(data, dtype).astype(np.uint64)
    if base and len(values):
        if base + int(values.max()) > _MAX_U64:
            raise CorruptFile("an array of row ids goes beyond 64 bits")
        values += np.uint64(base)
    return values


def _encode_segment(values: U64) -> Any:
    """The smallest form of a non-empty run of ids, by the rule of section 13.1."""
    rising = bool((values[1:] > values[:-1]).all())
    if not rising:
        return pb.U64Segment(array=_encode_array(values))
    start, end = int(values[0]), int(values[-1]) + 1
    slots = end - start
    if slots == len(values) and end <= _MAX_U64:
        return _range(start, slots)
    holes = _SEGMENT_BYTES + _HOLE_BYTES * (slots - len(values))
    bitmap = _SEGMENT_BYTES + -(-slots // 8)
    items = _SEGMENT_BYTES + _ITEM_BYTES * len(values)
    if end > _MAX_U64 or items < min(holes, bitmap):
        return pb.U64Segment(sorted_array=_encode_array(values))
    taken = np.zeros(slots, bool)
    taken[(values - np.uint64(start)).astype(np.int64)] = True
    if holes <= bitmap:
        gaps = np.flatnonzero(~taken).astype(np.uint64) + np.uint64(start)
        body = pb.U64Segment.RangeWithHoles(start=start, end=end, holes=_encode_array(gaps))
        return pb.U64Segment(range_with_holes=body)
    packed = np.packbits(taken, bitorder="little").tobytes()
    return pb.U64Segment(range_with_bitmap=pb.U64Segment.RangeWithBitmap(start=start, end=end, bitmap=packed))


def _encode_array(values: U64) -> Any:
    based = pb.EncodedU64Array.Based
    if len(values):
        low = int(values.min())
        spread = int(values.max()) - low
        if spread <= 0xFFFF:
            offsets = (values - np.uint64(low)).astype("<u2").tobytes()
            return pb.EncodedU64Array(u16_array=based(base=low, offsets=offsets))
        if spread <= 0xFFFFFFFF:
            offsets = (values - np.uint64(low)).astype("<u4").tobytes()
            return pb.EncodedU64Array(u32_array=based(base=low, offsets=offsets))
    plain = pb.EncodedU64Array.Plain(values=values.astype("<u8").tobytes())
    return pb.EncodedU64Array(u64_array=plain)
