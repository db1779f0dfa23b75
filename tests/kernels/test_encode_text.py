"""The compiled loops over text and their NumPy reference give the same bytes; FSST gives its input back."""

from __future__ import annotations

import itertools
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.kernels.reference import encode as reference

native = pytest.importorskip("tiltyard.kernels._encode", reason="the kernels are not built")
BOTH = (native, reference)
FEW = settings(max_examples=40, deadline=None)

texts = st.lists(
    st.one_of(st.binary(max_size=12), st.sampled_from([b"", b"http://www.", b"aaaaaaaaaaaaa"])), max_size=80
)


def packed(values: list[bytes], skip: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Offsets and data, as a slice that starts `skip` bytes into its buffer."""
    offsets = np.cumsum([skip, *map(len, values)]).astype(np.int64)
    return offsets, np.frombuffer(b"x" * skip + b"".join(values), np.uint8)


@FEW
@given(texts, st.sampled_from([4, 8]), st.sampled_from([16, 100, 4096]), st.integers(0, 5))
def test_chunks_are_equal(values: list[bytes], width: int, target: int, skip: int) -> None:
    offsets, data = packed(values, skip)
    results = []
    for kernels in BOTH:
        items = np.zeros(len(values) + 1, np.int64)
        items = items[: kernels.variable_chunks(offsets, width, target, 4096, items)].copy()
        assert items.sum() == len(values)
        stops = np.concatenate(([0], np.cumsum(items)))
        sizes = (items + 1) * width + np.diff(offsets[stops])
        out, ends = (
            np.zeros(int((-(-sizes // width) * width).sum()), np.uint8),
            np.zeros(items.size, np.int64),
        )
        kernels.variable_encode(data, offsets, width, items, out, ends)
        results.append((items.tolist(), out.tobytes(), ends.tolist()))
    assert results[0] == results[1]


def test_a_chunk_has_the_bytes_of_the_format_description() -> None:
    # compression.md 3.5: ["ab", "", "cde"]
    offsets, data = packed([b"ab", b"", b"cde"])
    out, ends = np.zeros(24, np.uint8), np.zeros(1, np.int64)
    native.variable_encode(data, offsets, 4, np.array([3], np.int64), out, ends)
    assert out.tobytes().hex() == "10000000120000001200000015000000" + "6162636465" + "484848"


WRONG = [
    b"\x80", b"\xbf", b"\xc0\xaf", b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xf0\x8f\xbf\xbf",
    b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xff", b"\xc3", b"\xe6\x97", b"\xf0\x9f\x98", b"\xc3(",
    b"\xe6\x97(", b"\xf0\x9f\x98(", b"\xe6\x97\xa5\xa5",
]  # fmt: skip
RIGHT = [
    "",
    "a",
    "\x7f",
    "\x80",
    "\u07ff",
    "\u0800",
    "\ud7ff",
    "\ue000",
    "\uffff",
    "\U00010000",
    "\U0010ffff",
]


@FEW
@given(
    st.lists(st.one_of(st.sampled_from(RIGHT), st.text(max_size=40)), max_size=30),
    st.lists(st.tuples(st.sampled_from(WRONG), st.integers(0, 30), st.integers(0, 40)), max_size=2),
    st.integers(0, 5),
)
def test_text_that_is_not_utf8_is_found(
    values: list[str], bad: list[tuple[bytes, int, int]], skip: int
) -> None:
    encoded = [value.encode() for value in values]
    for wrong, at, inside in bad:
        if encoded:
            value = encoded[at % len(encoded)]
            encoded[at % len(encoded)] = value[:inside] + wrong + value[inside:]
    offsets, data = packed(encoded, skip)
    assert native.invalid_text(data, offsets) == reference.invalid_text(data, offsets)


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_wrong_bytes_are_found_at_every_place_of_a_stretch(wrong: bytes) -> None:
    for lead in (0, 1, 2, 3, 29, 30, 31, 32, 33, 4093, 4094, 4095, 4096, 4097, 8190):
        for filler in (b"x", "ä".encode()):
            value = filler * (lead // len(filler)) + wrong
            offsets, data = packed([filler * 50, value, filler])
            assert native.invalid_text(data, offsets) == 1, (lead, filler)


def test_a_character_that_two_values_share_is_in_neither() -> None:
    data = np.frombuffer("xä".encode() * 100, np.uint8)
    offsets = np.array([0, 3, 6, 8, 300], np.int64)
    for kernels in BOTH:
        assert kernels.invalid_text(data, offsets) == 2
    with pytest.raises(ValueError, match="offsets"):
        native.invalid_text(data, np.array([0, 301], np.int64))


@FEW
@given(texts, st.data())
def test_gathering_is_equal(values: list[bytes], data: st.DataObject) -> None:
    offsets, raw = packed(values)
    rows = np.array(
        data.draw(st.lists(st.integers(0, len(values) - 1), max_size=50)) if values else [], np.int64
    )
    lengths = offsets[rows + 1] - offsets[rows]
    out_offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    outs = [np.zeros(int(out_offsets[-1]), np.uint8) for _ in BOTH]
    for kernels, out in zip(BOTH, outs, strict=True):
        kernels.copy_variable(raw, offsets[rows], out_offsets, out)
    assert outs[0].tobytes() == outs[1].tobytes() == b"".join(values[row] for row in rows.tolist())


def decoded(table: np.ndarray, data: bytes, offsets: list[int]) -> list[bytes]:
    """FSST decoding as compression.md 3.6 says it."""
    count = int(table[0])
    lengths = table[8 + 8 * count : 8 + 9 * count].tolist()
    symbols = [table[8 + 8 * i : 8 + 8 * i + n].tobytes() for i, n in enumerate(lengths)]
    values = []
    for begin, end in itertools.pairwise(offsets):
        out, at = b"", begin
        while at < end:
            if data[at] == 255:
                out += data[at + 1 : at + 2]
                at += 2
            else:
                out += symbols[data[at]]
                at += 1
        values.append(out)
    return values


@settings(max_examples=25, deadline=None)
@given(texts, st.integers(0, 5))
def test_symbol_tables_and_codes_are_equal_and_decode_to_the_input(values: list[bytes], skip: int) -> None:
    offsets, data = packed(values * 3, skip)
    results = []
    for kernels in BOTH:
        table = np.zeros(2312, np.uint8)
        kernels.fsst_train(data, offsets, table)
        out, out_offsets = np.zeros(2 * data.size, np.uint8), np.zeros(offsets.size, np.int64)
        size = kernels.fsst_encode(table, data, offsets, out, out_offsets)
        results.append((table.tobytes(), out[:size].tobytes(), out_offsets.tolist()))
    assert results[0] == results[1]
    table, codes, bounds = results[0]
    assert decoded(np.frombuffer(table, np.uint8), codes, bounds) == values * 3


def test_frequent_substrings_shrink() -> None:
    values = [f"https://www.example.com/item/{i * 7919 % 1000}".encode() for i in range(2000)]
    offsets, data = packed(values)
    table = np.zeros(2312, np.uint8)
    assert native.fsst_train(data, offsets, table) > 50
    out, out_offsets = np.zeros(2 * data.size, np.uint8), np.zeros(offsets.size, np.int64)
    assert native.fsst_encode(table, data, offsets, out, out_offsets) < data.size / 3


@FEW
@given(st.integers(256, 700), st.integers(0, 12), st.integers(0, 9), st.randoms(use_true_random=False))
def test_many_values_compress_alike_in_turns(count: int, longest: int, behind: int, random: Random) -> None:
    words = [b"alpha", b"beta", b"https://", b".example.com/", b"\x00", b"\xff\xfe", b"", b"z" * 40]
    values = [b"".join(random.choices(words, k=random.randint(0, longest))) for _ in range(count)]
    if random.random() < 0.3:  # all bytes in one value, so that lanes have little but empty ones
        values = [b""] * count
        values[random.randrange(count)] = b"alphabet" * 200
    offsets = np.cumsum([3, *map(len, values)]).astype(np.int64)
    data = np.frombuffer(b"pre" + b"".join(values) + b"x" * behind, np.uint8)
    table = np.zeros(2312, np.uint8)
    native.fsst_train(data, offsets[: count // 2], table)
    results = []
    for kernels in BOTH:
        out, ends = np.zeros(2 * int(offsets[-1] - 3), np.uint8), np.zeros(count + 1, np.int64)
        size = kernels.fsst_encode(table, data, offsets, out, ends)
        results.append((size, out[:size].tobytes(), ends.tolist()))
    assert results[0] == results[1]


@FEW
@given(
    st.lists(
        st.sampled_from([b"", b"a", b"abcdefgh", b"abcdefgi", b"abc" * 9, b"abc" * 8 + b"abd"]), max_size=200
    ),
    st.data(),
)
def test_text_dictionaries_are_equal(values: list[bytes], data: st.DataObject) -> None:
    offsets, raw = packed(values)
    nulls = np.array(data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values))), np.uint8)
    most = data.draw(st.integers(0, 6))
    budget = data.draw(st.integers(0, 100))
    results = []
    for kernels in BOTH:
        indices, first = np.zeros(len(values), np.uint32), np.zeros(most, np.int64)
        found = kernels.dictionary_variable(raw, offsets, nulls, budget, indices, first)
        results.append((found, indices.tolist() if found >= 0 else None, first[: max(found, 0)].tolist()))
    assert results[0] == results[1]
    found, indices, first = results[0]
    if found >= 0:
        for row, value in enumerate(values):
            assert nulls[row] or values[first[indices[row]]] == value


@pytest.mark.parametrize("kernels", BOTH, ids=["compiled", "reference"])
def test_bounds_are_checked(kernels: object) -> None:
    data, table = np.zeros(4, np.uint8), np.zeros(2312, np.uint8)
    backwards = np.array([0, 3, 1], np.int64)
    beyond = np.array([0, 9], np.int64)
    for offsets in (backwards, beyond):
        with pytest.raises(ValueError, match="offsets"):
            kernels.fsst_train(data, offsets, table)  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="outside the data"):
        kernels.copy_variable(  # type: ignore[attr-defined]
            data, np.array([2], np.int64), np.array([0, 4], np.int64), np.zeros(4, np.uint8)
        )
    table[0], table[8 + 8] = 1, 9
    with pytest.raises(ValueError, match="1 to 8 bytes"):
        kernels.fsst_encode(  # type: ignore[attr-defined]
            table, data, np.array([0, 4], np.int64), np.zeros(8, np.uint8), np.zeros(2, np.int64)
        )
