"""The compiled loops over fixed-width values and their NumPy reference give the same bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.kernels.reference import encode as reference

native = pytest.importorskip("tiltyard.kernels._encode", reason="the kernels are not built")
BOTH = (native, reference)
FEW = settings(max_examples=40, deadline=None)


@st.composite
def words(draw: st.DrawFn, most: int = 2500) -> tuple[int, np.ndarray]:
    """(bits, words): random, narrow or in runs."""
    bits = draw(st.sampled_from([8, 16, 32, 64]))
    count = draw(st.integers(0, most))
    width = draw(st.integers(0, bits))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    values = (
        rng.integers(0, 2**64, count, dtype=np.uint64) >> np.uint64(64 - width) if width else np.zeros(count)
    )
    values = values.astype(f"<u{bits // 8}")
    if draw(st.booleans()) and count:
        values = np.repeat(values, rng.integers(1, draw(st.sampled_from([3, 40, 600])), count))[:most]
    return bits, values


def widths_of(kernels: object, bits: int, values: np.ndarray) -> tuple[np.ndarray, tuple[int, int]]:
    widths = np.zeros(-(-values.size // 1024), np.uint8)
    return widths, kernels.fixed_stats(values.view(np.uint8), bits, widths)  # type: ignore[attr-defined]


@FEW
@given(words(most=9000))
def test_statistics_are_equal_and_say_what_they_mean(given_words: tuple[int, np.ndarray]) -> None:
    bits, values = given_words
    (mine, facts), (theirs, same) = (widths_of(each, bits, values) for each in BOTH)
    assert facts == same
    assert mine.tolist() == theirs.tolist()
    blocks = [values[at : at + 1024] for at in range(0, values.size, 1024)]
    assert mine.tolist() == [max(map(int.bit_length, block.tolist())) for block in blocks]


@FEW
@given(words())
def test_inline_blocks_are_equal(given_words: tuple[int, np.ndarray]) -> None:
    bits, values = given_words
    widths, _ = widths_of(native, bits, values)
    outs = [np.zeros(widths.size * bits // 8 + 128 * int(widths.sum(dtype=int)), np.uint8) for _ in BOTH]
    for kernels, out in zip(BOTH, outs, strict=True):
        assert kernels.pack_inline(values.view(np.uint8), bits, widths, out) == out.size
    assert outs[0].tobytes() == outs[1].tobytes()


def test_a_packed_block_has_the_bytes_of_the_format_description() -> None:
    # compression.md 3.2: v[i] = i mod 7, three bits
    values = (np.arange(1024) % 7).astype("<u4")
    out = np.zeros(4 + 384, np.uint8)
    native.pack_inline(values.view(np.uint8), 32, np.array([3], np.uint8), out)
    assert out[:20].tobytes().hex() == "03000000109d155959213aa2a2b3422b2b446774"


@FEW
@given(words(), st.data())
def test_out_of_line_chunks_are_equal(given_words: tuple[int, np.ndarray], data: st.DataObject) -> None:
    bits, values = given_words
    width = max(map(int.bit_length, values.tolist()), default=0)
    ends = np.array(
        sorted([*data.draw(st.lists(st.integers(0, values.size), max_size=4)), values.size]), np.int64
    )
    results = []
    for kernels in BOTH:
        out, out_ends = np.zeros(values.nbytes + 128 * bits, np.uint8), np.zeros(ends.size, np.int64)
        size = kernels.pack_out_of_line(values.view(np.uint8), bits, ends, width, out, out_ends)
        results.append((size, out[:size].tobytes(), out_ends.tolist()))
    assert results[0] == results[1]


@FEW
@given(words(most=9000))
def test_runs_are_equal_and_add_up(given_words: tuple[int, np.ndarray]) -> None:
    bits, values = given_words
    size = bits // 8
    results = []
    for kernels in BOTH:
        runs, lengths = np.zeros(values.nbytes, np.uint8), np.zeros(values.size, np.uint8)
        items, entries = np.zeros(values.size + 1, np.int64), np.zeros(values.size + 1, np.int64)
        raw = values.view(np.uint8)
        chunks, total = kernels.rle_encode(raw, bits, 4096, 8186, runs, lengths, items, entries)
        results.append((runs[: total * size], lengths[:total], items[:chunks], entries[:chunks]))
    for mine, theirs in zip(*results, strict=True):
        assert mine.tolist() == theirs.tolist()
    runs, lengths, items, _ = results[0]
    assert np.repeat(runs.view(f"<u{size}"), lengths).tobytes() == values.tobytes()
    assert all(count & (count - 1) == 0 and count >= 2 for count in items[:-1].tolist())


@FEW
@given(st.lists(st.integers(0, 3), max_size=3000), st.lists(st.integers(0, 3000), max_size=5))
def test_run_blocks_of_levels_are_equal(levels: list[int], cuts: list[int]) -> None:
    values = np.array(levels, np.uint16)
    ends = np.array(sorted([min(cut, values.size) for cut in cuts] + [values.size]), np.int64)
    results = []
    for kernels in BOTH:
        size = kernels.rle_block_size(values, ends, 2**40)
        out, out_ends = np.zeros(size, np.uint8), np.zeros(ends.size, np.int64)
        assert kernels.rle_block(values, ends, out, out_ends) == size
        results.append((out.tobytes(), out_ends.tolist()))
    assert results[0] == results[1]


def test_a_run_block_has_the_bytes_of_the_format_description() -> None:
    # compression.md 3.7: 90 levels with one 1 at index 3
    values = np.zeros(90, np.uint16)
    values[3] = 1
    out, ends = np.zeros(17, np.uint8), np.zeros(1, np.int64)
    native.rle_block(values, np.array([90], np.int64), out, ends)
    assert out.tobytes().hex() == "0600000000000000" + "000001000000" + "030156"


@FEW
@given(st.sampled_from([1, 2, 4, 5, 8, 16]), st.lists(st.booleans(), max_size=300), st.integers(0, 999))
def test_nulls_are_filled_alike(size: int, flags: list[bool], seed: int) -> None:
    nulls = np.array(flags, np.uint8)
    values = np.random.default_rng(seed).integers(0, 256, nulls.size * size).astype(np.uint8)
    outs = [values.copy(), values.copy()]
    for kernels, out in zip(BOTH, outs, strict=True):
        kernels.fill_nulls(out, size, nulls)
    assert outs[0].tobytes() == outs[1].tobytes()
    kept = nulls == 0
    assert (outs[0].reshape(-1, size)[kept] == values.reshape(-1, size)[kept]).all()


@FEW
@given(st.binary(max_size=60), st.data())
def test_bitmaps_are_moved_alike(raw: bytes, data: st.DataObject) -> None:
    bits = np.frombuffer(raw, np.uint8)
    start = data.draw(st.integers(0, bits.size * 8))
    count = data.draw(st.integers(0, bits.size * 8 - start))
    outs = [np.zeros(-(-count // 8), np.uint8) for _ in BOTH]
    for kernels, out in zip(BOTH, outs, strict=True):
        kernels.copy_bits(bits, start, count, out)
    assert outs[0].tobytes() == outs[1].tobytes()
    cuts = sorted(data.draw(st.lists(st.integers(0, count), max_size=4)))
    counts = np.diff(np.array([0, *cuts, count], np.int64))
    shares = []
    for kernels in BOTH:
        out, ends = np.zeros(int((-(-counts // 8)).sum()), np.uint8), np.zeros(counts.size, np.int64)
        kernels.chunk_bits(bits, start, counts, out, ends)
        shares.append((out.tobytes(), ends.tolist()))
    assert shares[0] == shares[1]


@FEW
@given(st.sampled_from([1, 2, 4, 8, 16]), st.integers(1, 40), st.integers(0, 400), st.integers(0, 999))
def test_fixed_dictionaries_are_equal(size: int, distinct: int, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    pool = rng.integers(0, 256, (distinct, size)).astype(np.uint8)
    rows = pool[rng.integers(0, distinct, count)]
    results = []
    for kernels in BOTH:
        indices, first = np.zeros(count, np.uint32), np.zeros(min(distinct, 20), np.int64)
        found = kernels.dictionary_fixed(np.ascontiguousarray(rows).reshape(-1), size, indices, first)
        results.append((found, indices.tolist() if found >= 0 else None, first[: max(found, 0)].tolist()))
    assert results[0] == results[1]
    found, indices, first = results[0]
    if found >= 0:
        assert (rows[np.array(first, np.int64)][indices] == rows).all()


@pytest.mark.parametrize("kernels", BOTH, ids=["compiled", "reference"])
def test_bounds_are_checked(kernels: object) -> None:
    eight = np.zeros(8, np.uint8)
    with pytest.raises(ValueError, match="whole words"):
        kernels.fixed_stats(np.zeros(7, np.uint8), 64, np.zeros(1, np.uint8))  # type: ignore[attr-defined]
    out, wide, width = np.zeros(8 + 128, np.uint8), np.full(8, 255, np.uint8), np.array([1], np.uint8)
    with pytest.raises(ValueError, match="wider"):
        kernels.pack_inline(wide, 64, width, out)  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="behind the buffer"):
        kernels.copy_bits(eight, 60, 8, np.zeros(1, np.uint8))  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="1, 2, 4, 8 or 16"):
        kernels.dictionary_fixed(  # type: ignore[attr-defined]
            np.zeros(3, np.uint8), 3, np.zeros(1, np.uint32), np.zeros(1, np.int64)
        )
