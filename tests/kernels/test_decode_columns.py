"""Many columns in one call: the compiled form against the reference, and both against what was packed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastlanes import pack
from tiltyard.file.direct import WordFilter
from tiltyard.kernels.page_program import (
    FIELDS,
    MINI_BLOCK,
    VALUE_BSS,
    VALUE_FLAT,
    VALUE_INLINE,
    VALUE_NONE,
    VALUE_VARIABLE,
    P,
)
from tiltyard.kernels.reference import decode as reference

native = pytest.importorskip("tiltyard.kernels._decode")

property_test = settings(max_examples=50, deadline=None)
BLOCK = 1024
SIZES = (1024, 1024, 77)


def column(codec: int, bits: int, seed: int) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Source, side, pages, first and chunks of a column of three chunks, and its values as bytes."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(f"u{bits // 8}")
    source, first, chunks, values = bytearray(b"\xaa" * 24), [0], [], []
    for size in SIZES:
        width = int(rng.integers(0, bits + 1))
        each = rng.integers(0, 2**63, BLOCK, dtype=np.uint64) & np.uint64((1 << width) - 1)
        each = each.astype(dtype)
        each[size:] = 0
        if codec == VALUE_INLINE:
            data = np.array([width], dtype).tobytes() + pack(each, width).tobytes()
        elif codec == VALUE_BSS:
            data = each[:size].view(np.uint8).reshape(size, -1).T.tobytes()
        else:
            data = each[:size].tobytes()
        values.append(each[:size] if codec != VALUE_NONE else np.zeros(size, dtype))
        head = np.array([0, len(data) % 65536, len(data) // 65536, 0], np.uint16).tobytes()
        chunks += [len(source), len(head) + len(data), 0]
        source += head + data + b"\0" * (-len(data) % 8)
        first.append(first[-1] + size)
    page = np.zeros(FIELDS, np.int64)
    page[P.KIND], page[P.LARGE], page[P.BUFFERS] = MINI_BLOCK, 1, 1
    page[P.VALUE_CODEC], page[P.VALUE_BITS], page[P.ROWS] = codec, bits, sum(SIZES)
    tables = (np.frombuffer(bytes(source), np.uint8), np.empty(0, np.uint8), page)
    return (*tables, np.array(first, np.int64), np.array(chunks, np.int64)), np.concatenate(values)


def run(module: Any, columns: list[tuple[np.ndarray, ...]], *args: Any, size: int) -> np.ndarray | str:
    out = np.zeros(size, np.uint8)
    try:
        module.fixed_columns(tuple(module.ColumnTables(*each) for each in columns), *args, out)
    except ValueError:
        return "refused"
    return out


codecs = st.sampled_from([VALUE_FLAT, VALUE_INLINE, VALUE_BSS, VALUE_NONE])
shapes = st.lists(st.tuples(codecs, st.sampled_from([16, 32, 64]), st.integers(0, 3)), min_size=1, max_size=4)
places = st.lists(st.integers(0, sum(SIZES) - 1), min_size=1, max_size=70)


@property_test
@given(shapes, places)
def test_rows_of_several_columns_come_as_they_were_packed(
    shapes: list[tuple[int, int, int]], rows: list[int]
) -> None:
    made = [column(*shape) for shape in shapes]
    start, n = np.array(rows, np.int64), len(rows)
    jobs, expected, at = [], [], 0
    for (_, bits, _), (_, values) in zip(shapes, made, strict=True):
        jobs.append((0, n, bits, at))
        expected.append(values[start].view(np.uint8))
        at += n * bits // 8
    args = start, np.empty(0, np.int64), np.array(jobs, np.int64).reshape(-1)
    for module in (native, reference):
        found = run(module, [each for each, _ in made], *args, size=at)
        assert np.array_equal(found, np.concatenate(expected))


@property_test
@given(shapes, st.lists(st.tuples(st.integers(0, 900), st.integers(0, 1225)), min_size=1, max_size=5))
def test_each_job_reads_segments_of_its_own(
    shapes: list[tuple[int, int, int]], segments: list[tuple[int, int]]
) -> None:
    made = [column(*shape) for shape in shapes]
    jobs, starts, counts, expected, at = [], [], [], [], 0
    for number, ((_, bits, _), (_, values)) in enumerate(zip(shapes, made, strict=True)):
        mine = segments[: 1 + number]
        jobs.append((len(starts), len(starts) + len(mine), bits, at))
        for start, count in mine:
            starts.append(start)
            counts.append(count)
            expected.append(values[start : start + count].view(np.uint8))
            at += count * bits // 8
    args = np.array(starts, np.int64), np.array(counts, np.int64), np.array(jobs, np.int64).reshape(-1)
    for module in (native, reference):
        found = run(module, [each for each, _ in made], *args, size=at)
        assert np.array_equal(found, np.concatenate(expected))


@property_test
@given(
    st.data(),
    st.lists(st.integers(-2, sum(SIZES) + 2), max_size=40),
    st.lists(st.integers(-2, 1300), min_size=4, max_size=8),
    st.integers(0, 700),
)
def test_damage_is_refused_alike(data: st.DataObject, start: list[int], jobs: list[int], size: int) -> None:
    codec = data.draw(codecs)
    (source, side, page, first, chunks), _ = column(codec, 32, 1)
    damaged = [source.copy(), page.copy(), first.copy(), chunks.copy()]
    which = data.draw(st.integers(0, 3))
    at = data.draw(st.integers(0, len(damaged[which]) - 1))
    damaged[which][at] = data.draw(st.integers(0, 255) if which == 0 else st.integers(-9, 5000))
    if which == 2:
        damaged[2] = np.sort(damaged[2])  # the table comes from `index_chunks`, which never decreases
    tables = [(damaged[0], side, damaged[1], damaged[2], damaged[3])]
    args = np.array(start, np.int64), np.empty(0, np.int64), np.array(jobs[:4], np.int64)
    first_answer = run(native, tables, *args, size=size)
    second = run(reference, tables, *args, size=size)
    assert type(first_answer) is type(second)
    if not isinstance(second, str):
        assert np.array_equal(first_answer, second)


def passing(module: Any, tables: tuple[np.ndarray, ...], *args: Any, size: int) -> np.ndarray | str:
    out = np.full(size, 7, np.uint8)
    try:
        module.within(module.ColumnTables(*tables), *args, out)
    except ValueError:
        return "refused"
    return out


WORDS = st.sampled_from([8, 16, 32, 64])


@property_test
@given(
    st.sampled_from([VALUE_FLAT, VALUE_INLINE, VALUE_NONE]),
    WORDS,
    st.integers(0, 9),
    st.lists(st.tuples(st.integers(0, 1100), st.integers(0, 1025)), min_size=1, max_size=4),
    st.data(),
)
def test_a_range_is_tested_as_the_unpacked_values_are(
    codec: int, bits: int, seed: int, segments: list[tuple[int, int]], data: st.DataObject
) -> None:
    tables, values = column(codec, bits, seed)
    most = (1 << bits) - 1
    near = st.one_of(
        st.integers(0, most),
        st.sampled_from(values.tolist()),
        st.integers(0, bits).map(lambda n: (1 << n) - 1),
    )
    low, span = data.draw(near), data.draw(near)
    wanted = np.concatenate([values[start : start + count] for start, count in segments])
    expected = [(int(value) - low) & most <= span for value in wanted]
    args = np.array([s for s, _ in segments], np.int64), np.array([n for _, n in segments], np.int64)
    for module in (native, reference):
        found = passing(module, tables, *args, bits, low, span, size=len(wanted))
        assert not isinstance(found, str)
        assert found.tolist() == expected


@property_test
@given(
    st.data(),
    st.sampled_from([VALUE_FLAT, VALUE_INLINE, VALUE_BSS, VALUE_NONE]),
    st.lists(st.integers(-2, sum(SIZES) + 2), max_size=40),
    st.integers(0, 60),
    st.sampled_from([16, 32]),
)
def test_damage_under_a_range_test_is_refused_or_told_alike(
    data: st.DataObject, codec: int, start: list[int], size: int, bits: int
) -> None:
    (source, side, page, first, chunks), _ = column(codec, 32, 1)
    damaged = [source.copy(), page.copy(), first.copy(), chunks.copy()]
    which = data.draw(st.integers(0, 3))
    at = data.draw(st.integers(0, len(damaged[which]) - 1))
    damaged[which][at] = data.draw(st.integers(0, 255) if which == 0 else st.integers(-9, 5000))
    if which == 2:
        damaged[2] = np.sort(damaged[2])  # the table comes from `index_chunks`, which never decreases
    tables = (damaged[0], side, damaged[1], damaged[2], damaged[3])
    low, span = data.draw(st.integers(0, 1 << 33)), data.draw(st.integers(0, 1 << 20))
    args = np.array(start, np.int64), np.empty(0, np.int64), bits, low, span
    answer, other = (passing(module, tables, *args, size=size) for module in (native, reference))
    assert type(answer) is type(other)
    if not isinstance(answer, str):
        assert np.array_equal(answer, other)


def looked_up(module: Any, tables: tuple[np.ndarray, ...], *args: Any, size: int) -> Any:
    positions, words = np.zeros(size, np.int64), np.zeros(size, np.uint64)
    try:
        count = module.among(module.ColumnTables(*tables), *args, positions, words)
    except ValueError:
        return "refused"
    return positions[:count].tolist(), words[:count].tolist()


@property_test
@given(
    st.sampled_from([VALUE_FLAT, VALUE_INLINE, VALUE_NONE]),
    WORDS,
    st.booleans(),
    st.integers(0, 9),
    st.lists(st.tuples(st.integers(0, 1100), st.integers(0, 1025)), min_size=1, max_size=4),
    st.one_of(st.none(), st.integers(1, 12)),
    st.data(),
)
def test_values_of_a_set_are_found_while_they_are_unpacked(
    codec: int,
    bits: int,
    is_signed: bool,
    seed: int,
    segments: list[tuple[int, int]],
    places: int | None,
    data: st.DataObject,
) -> None:
    tables, values = column(codec, bits, seed)
    wide = (
        values.view(f"i{bits // 8}").astype(np.int64).view(np.uint64)
        if is_signed
        else values.astype(np.uint64)
    )
    some = st.one_of(st.sampled_from(wide.tolist()), st.integers(0, (1 << 64) - 1))
    keys = np.unique(np.array(data.draw(st.lists(some, min_size=1, max_size=20)), np.uint64))
    if places is None:
        keys = keys[keys - keys[0] < np.uint64(5000)]
        known = WordFilter.dense(keys)
    else:
        known = WordFilter.sparse(keys, places)
    wanted = np.concatenate([wide[start : start + count] for start, count in segments])
    expected = {i: int(word) for i, word in enumerate(wanted) if word in keys}
    args = (
        *(np.array([s for s, _ in segments], np.int64), np.array([n for _, n in segments], np.int64)),
        *(bits, is_signed, known.low, known.span, known.multiplier, known.shift, known.table),
    )
    found = [looked_up(module, tables, *args, size=len(wanted)) for module in (native, reference)]
    assert found[0] == found[1]
    passed = dict(zip(*found[0], strict=True))
    assert passed.items() >= expected.items()
    assert all(int(wanted[i]) == word for i, word in passed.items())
    assert places is not None or passed == expected


def test_a_filter_smaller_than_its_places_is_refused() -> None:
    tables, _ = column(VALUE_INLINE, 64, 1)
    start, count = np.array([0], np.int64), np.array([50], np.int64)
    for low, span, multiplier, shift, size in (
        (0, 10, 1, 7, 11),
        (0, 10, 3, 60, 15),
        (0, 10, 3, 64, 1000),
        (0, 10, 3, 6, 1000),
        (0, (1 << 64) - 1, 1, 60, 1000),
    ):
        args = start, count, 64, False, low, span, multiplier, shift, np.zeros(size, np.uint8)
        for module in (native, reference):
            assert looked_up(module, tables, *args, size=50) == "refused"
            assert looked_up(module, tables, *args[:-1], np.zeros(size + 5000, np.uint8), size=9) == "refused"


def text(values: list[bytes]) -> tuple[np.ndarray, ...]:
    """The tables of a column of one chunk of strings."""
    offsets = np.cumsum([4 * (len(values) + 1), *map(len, values)]).astype(np.uint32)
    data = offsets.tobytes() + b"".join(values)
    head = np.array([0, len(data) % 65536, len(data) // 65536, 0], np.uint16).tobytes()
    page = np.zeros(FIELDS, np.int64)
    page[P.KIND], page[P.LARGE], page[P.BUFFERS] = MINI_BLOCK, 1, 1
    page[P.VALUE_CODEC], page[P.OFFSET_BITS], page[P.ROWS] = VALUE_VARIABLE, 32, len(values)
    source = np.frombuffer(head + data + bytes(-len(data) % 8), np.uint8)
    chunks = np.array([0, len(source), 0], np.int64)
    return source, np.empty(0, np.uint8), page, np.array([0, len(values)], np.int64), chunks


@property_test
@given(
    st.lists(st.lists(st.binary(max_size=30), min_size=1, max_size=9), min_size=1, max_size=4),
    st.integers(0, 200),
    st.integers(0, 3),
    st.sampled_from([np.int32, np.int64]),
    st.data(),
)
def test_strings_of_several_files_stand_side_by_side(
    files: list[list[bytes]], room: int, missing: int, offset_type: Any, data: st.DataObject
) -> None:
    start = [data.draw(st.integers(0, len(each))) for each in files]
    count = [data.draw(st.integers(0, len(each) - low)) for each, low in zip(files, start, strict=True)]
    kept = [each[low : low + n] for each, low, n in zip(files, start, count, strict=True)]
    values = [value for each in kept for value in each]
    answers = []
    for module in (native, reference):
        offsets = np.zeros(max(1, len(values) + 1 - missing), offset_type)
        out = np.zeros(room, np.uint8)
        tables = tuple(module.ColumnTables(*text(each)) for each in files)
        try:
            size = module.variable_columns(
                tables, np.array(start, np.int64), np.array(count, np.int64), offsets, out
            )
        except ValueError:
            answers.append(None)
            continue
        answers.append((size, offsets.tolist(), out[:size].tobytes()))
    assert answers[0] == answers[1]
    if missing == 0 or not values:
        assert answers[0] is not None
        assert answers[0][0] == sum(map(len, values))
        assert answers[0][2] == b"".join(values)[:room]
