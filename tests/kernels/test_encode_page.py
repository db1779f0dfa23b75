"""Levels, page assembly and hashes: the compiled loops and their NumPy reference are equal."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.kernels import encode
from tiltyard.kernels.reference import encode as reference

native = pytest.importorskip("tiltyard.kernels._encode", reason="the kernels are not built")
BOTH = (native, reference)
FEW = settings(max_examples=40, deadline=None)
SPECIAL = 0x8000

codes = st.lists(st.sampled_from([0, 0, 0, 1, 3, SPECIAL | 2, SPECIAL | 1]), max_size=120)


def bitmap(flags: list[bool], start: int) -> np.ndarray:
    return np.packbits(np.array([True] * start + flags, np.uint8), bitorder="little")


@FEW
@given(codes, st.integers(0, 9), st.data())
def test_nulls_are_marked_alike(slots: list[int], start: int, data: st.DataObject) -> None:
    def_ = np.array(slots, np.uint16)
    plain = int(((def_ & SPECIAL) == 0).sum())
    bits = bitmap(data.draw(st.lists(st.booleans(), min_size=plain, max_size=plain)), start)
    outs = [def_.copy(), def_.copy()]
    counts = [kernels.mark_nulls(out, bits, start, 5) for kernels, out in zip(BOTH, outs, strict=True)]
    assert counts[0] == counts[1]
    assert outs[0].tolist() == outs[1].tolist()


@FEW
@given(codes, st.integers(0, 9), st.data())
def test_lists_are_unfolded_alike(slots: list[int], start: int, data: st.DataObject) -> None:
    def_ = np.array(slots, np.uint16)
    rep = np.array([data.draw(st.integers(0, 2)) for _ in slots], np.uint16)
    lists = int(((def_ & SPECIAL) == 0).sum())
    lengths = data.draw(st.lists(st.integers(0, 4), min_size=lists, max_size=lists))
    offsets = np.cumsum([3, *lengths]).astype(np.int64)
    bits = bitmap(data.draw(st.lists(st.booleans(), min_size=lists, max_size=lists)), start)
    if data.draw(st.booleans()):
        bits = np.empty(0, np.uint8)
    facts = [kernels.measure_lists(def_, offsets, bits, start) for kernels in BOTH]
    assert facts[0] == facts[1]
    slots_out, kept = facts[0][:2]
    results = []
    for kernels in BOTH:
        out_rep, out_def = np.zeros(slots_out, np.uint16), np.zeros(slots_out, np.uint16)
        children = np.zeros(kept, np.int64)
        kernels.ravel_lists(rep, def_, offsets, bits, start, 7, 9, 10, out_rep, out_def, children)
        results.append((out_rep.tolist(), out_def.tolist(), children.tolist()))
    assert results[0] == results[1]


@FEW
@given(st.lists(st.integers(0, 14), max_size=9000), st.integers(0, 14), st.booleans())
def test_levels_are_remapped_alike(levels: list[int], most: int, many: bool) -> None:
    given_codes = np.minimum(np.array(levels, np.uint16), most)
    given_codes[::3] |= np.uint16(SPECIAL)
    table = np.arange(100, 100 + most + 1 + 20 * many, dtype=np.uint16)
    table[1::2] = 0
    outs = [np.zeros_like(given_codes) for _ in BOTH]
    for kernels, out in zip(BOTH, outs, strict=True):
        kernels.remap_levels(given_codes, table, out)
    assert outs[0].tolist() == outs[1].tolist()
    if most and given_codes.size and (given_codes & (SPECIAL - 1)).max() == most:
        for kernels in BOTH:
            with pytest.raises(ValueError, match="outside the table"):
                kernels.remap_levels(given_codes, table[:most], outs[0])


@FEW
@given(st.lists(st.integers(0, 3), max_size=400), st.integers(0, 3), st.integers(1, 60))
def test_chunk_boundaries_and_row_counts_are_equal(levels: list[int], visible: int, per_chunk: int) -> None:
    def_ = np.array(levels, np.uint16)
    values = int((def_ <= visible).sum())
    nulls = [np.zeros(values, np.uint8) for _ in BOTH]
    counts = [kernels.visible_nulls(def_, visible, out) for kernels, out in zip(BOTH, nulls, strict=True)]
    assert counts[0] == counts[1]
    assert nulls[0].tolist() == nulls[1].tolist()
    items = np.array([min(per_chunk, values - at) for at in range(0, values, per_chunk)], np.int64)
    ends = [np.zeros(items.size, np.int64) for _ in BOTH]
    for kernels, out in zip(BOTH, ends, strict=True):
        kernels.level_ends(def_, visible, items, out)
    assert ends[0].tolist() == ends[1].tolist()
    rep = (def_ % 3).astype(np.uint16)
    index = [np.zeros(2 * items.size, np.uint64) for _ in BOTH]
    for kernels, out in zip(BOTH, index, strict=True):
        kernels.repetition_index(rep, 2, ends[0], out)
    assert index[0].tolist() == index[1].tolist()


@FEW
@given(st.integers(1, 6), st.booleans(), st.booleans(), st.booleans(), st.integers(1, 3), st.integers(0, 999))
def test_mini_blocks_are_assembled_alike(
    chunks: int, large: bool, has_rep: bool, has_def: bool, buffers: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    none8, none64 = np.empty(0, np.uint8), np.empty(0, np.int64)

    def part() -> tuple[np.ndarray, np.ndarray]:
        ends = np.cumsum(rng.integers(0, 50, chunks)).astype(np.int64)
        return rng.integers(0, 256, int(ends[-1])).astype(np.uint8), ends

    rep, rep_ends = part() if has_rep else (none8, none64)
    def_, def_ends = part() if has_def else (none8, none64)
    values = [part() for _ in range(buffers)]
    levels = rng.integers(0, 65536, chunks).astype(np.int64)
    logs = rng.integers(0, 16, chunks).astype(np.uint8)
    header = 2 + 2 * has_rep + 2 * has_def + buffers * (4 if large else 2)
    sizes = np.full(chunks, -(-header // 8) * 8)
    for _, ends in [(rep, rep_ends), (def_, def_ends), *values]:
        if ends.size:
            sizes += -(-np.diff(ends, prepend=0) // 8) * 8
    results = []
    for kernels in BOTH:
        words, out = np.zeros(chunks * (4 if large else 2), np.uint8), np.zeros(int(sizes.sum()), np.uint8)
        own = [each for each, _ in values], [ends for _, ends in values]
        kernels.mini_block(levels, rep, rep_ends, def_, def_ends, *own, logs, large, words, out)
        results.append((words.tobytes(), out.tobytes()))
    assert results[0] == results[1]


def test_a_page_has_the_bytes_of_the_format_description() -> None:
    # file-format.md 10.3: int64 [7, null, 9, null] at 2.1
    values = np.array([7, 0, 9, 0], np.int64).view(np.uint8)
    def_ = np.array([0, 1, 0, 1], np.uint16).view(np.uint8)
    words, out = np.zeros(2, np.uint8), np.zeros(48, np.uint8)
    one = np.array([4], np.int64)
    native.mini_block(
        one, np.empty(0, np.uint8), np.empty(0, np.int64), def_, 2 * one, [values], [8 * one], np.zeros(1,
        np.uint8), False, words, out,
    )  # fmt: skip
    assert words.tobytes().hex() == "5000"
    assert out[:24].tobytes().hex() == "040008002000fefe" + "0000010000000100" + "0700000000000000"


@FEW
@given(st.lists(st.binary(max_size=9), max_size=30), st.sampled_from([4, 8]), st.integers(0, 999))
def test_parts_are_scattered_alike(values: list[bytes], width: int, seed: int) -> None:
    offsets = np.cumsum([0, *map(len, values)]).astype(np.int64)
    data = np.frombuffer(b"".join(values), np.uint8)
    gaps = np.random.default_rng(seed).integers(0, 5, len(values))
    sizes = np.diff(offsets) + width + gaps
    positions = (np.cumsum(sizes) - sizes).astype(np.int64)
    outs = [np.zeros(int(sizes.sum()), np.uint8) for _ in BOTH]
    for kernels, out in zip(BOTH, outs, strict=True):
        kernels.scatter_variable(data, offsets, positions, width, out)
        kernels.scatter_fixed(np.arange(2 * len(values), dtype=np.uint8), 2, positions, out)
    assert outs[0].tobytes() == outs[1].tobytes()


def test_hashes_are_those_of_the_xxhash_specification() -> None:
    # known answers of XXH64 with seed 0
    known = {b"": 0xEF46DB3751D8E999, b"a": 0xD24EC4F1A98C6E5B, b"abc": 0x44BC2CF5AD770999}
    offsets = np.cumsum([0, *map(len, known)]).astype(np.int64)
    data = np.frombuffer(b"".join(known), np.uint8)
    for kernels in BOTH:
        out = np.zeros(len(known), np.uint64)
        kernels.xxhash64(data, offsets, 0, out)
        assert out.tolist() == list(known.values())


@FEW
@given(st.lists(st.binary(max_size=80), max_size=20), st.integers(0, 2**64 - 1))
def test_hashes_and_filters_are_equal(values: list[bytes], seed: int) -> None:
    offsets = np.cumsum([0, *map(len, values)]).astype(np.int64)
    data = np.frombuffer(b"".join(values), np.uint8)
    results = []
    for kernels in BOTH:
        out, filter_ = np.zeros(len(values), np.uint64), np.zeros(32768, np.uint8)
        kernels.xxhash64(data, offsets, seed, out)
        kernels.bloom_insert(out, filter_)
        results.append((out.tolist(), filter_.tobytes()))
    assert results[0] == results[1]


@FEW
@given(st.binary(max_size=400), st.integers(0, 2**32 - 1), st.integers(0, 20))
def test_checksums_are_those_of_zlib(data: bytes, start: int, skip: int) -> None:
    values = np.frombuffer(data, np.uint8)[skip:]
    wanted = zlib.crc32(data[skip:], start)
    assert [encode.crc32(values, start), reference.crc32(values, start)] == [wanted, wanted]
