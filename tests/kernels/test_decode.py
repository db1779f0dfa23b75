"""The compiled kernels of the reader against their NumPy reference, on good input and on bad."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastlanes import pack
from tiltyard.kernels.page_program import LEVEL_FLAT, LEVEL_INLINE, LEVEL_OUT_OF_LINE, LEVEL_RLE
from tiltyard.kernels.reference import decode as reference

native = pytest.importorskip("tiltyard.kernels._decode")

property_test = settings(max_examples=50, deadline=None)
BLOCK = 1024


def both(name: str, *args: Any, out: tuple[np.ndarray, ...]) -> tuple[Any, ...] | str:
    """Answers and outputs of both forms, asserted equal; 'refused' if both refuse."""
    answers = []
    for module in (native, reference):
        mine = [each.copy() for each in out]
        try:
            answers.append((getattr(module, name)(*args, *mine), mine))
        except ValueError:
            answers.append("refused")
    first, second = answers
    if first == "refused" or second == "refused":
        assert first == second == "refused"
        return "refused"
    assert first[0] == second[0]
    if isinstance(first[0], int):  # bytes of strings: what lies behind the last one is undefined
        first[1][-1], second[1][-1] = first[1][-1][: first[0]], second[1][-1][: first[0]]
    for a, b in zip(first[1], second[1], strict=True):
        assert np.array_equal(a, b)
    return first


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_every_width_of_a_packed_block_is_unpacked(bits: int) -> None:
    rng = np.random.default_rng(bits)
    for width in range(0, bits + 1, 1 if bits < 32 else 5):
        high = (1 << width) - 1
        values = (rng.integers(0, 2**63, BLOCK, dtype=np.uint64) * np.uint64(2) & np.uint64(high)).astype(
            f"u{bits // 8}"
        )
        head = np.frombuffer(width.to_bytes(bits // 8, "little"), np.uint8)
        data = np.concatenate([head, pack(values, width)])
        for n in (1, 15, 16, 1023, BLOCK):
            found = both(
                "block_fixed", data, LEVEL_INLINE, bits, 0, n, out=(np.zeros(n * bits // 8, np.uint8),)
            )
            assert np.array_equal(found[1][0].view(values.dtype), values[:n])


def test_the_worked_example_of_the_specification() -> None:
    # compression 3.2: v[i] = i mod 7, width 3, first words of a page that the official writer made
    values = (np.arange(BLOCK) % 7).astype(np.uint32)
    assert pack(values, 3)[:16].tobytes().hex() == "109d155959213aa2a2b3422b2b446774"


@pytest.mark.parametrize(("n", "raw"), [(1106, False), (1108, True), (2048, False), (1025, True), (5, True)])
def test_blocks_of_one_width_with_either_tail(n: int, raw: bool) -> None:
    values = np.random.default_rng(n).integers(0, 4, n).astype(np.uint16)
    full, tail = divmod(n, BLOCK)
    parts = [pack(values[b * BLOCK : (b + 1) * BLOCK], 2) for b in range(full)]
    if tail and raw:
        parts.append(values[full * BLOCK :].view(np.uint8))
    elif tail:
        parts.append(pack(np.append(values[full * BLOCK :], np.zeros(BLOCK - tail, np.uint16)), 2))
    data = np.concatenate(parts)
    found = both("block_levels", data, LEVEL_OUT_OF_LINE, 2, out=(np.zeros(n, np.uint16),))
    assert np.array_equal(found[1][0], values)
    found = both("block_fixed", data, LEVEL_OUT_OF_LINE, 16, 2, n, out=(np.zeros(2 * n, np.uint8),))
    assert np.array_equal(found[1][0].view(np.uint16), values)


@property_test
@given(st.integers(0, 3000), st.binary(max_size=300))
def test_a_block_of_width_zero_holds_zeros_and_needs_no_bytes(n: int, rest: bytes) -> None:
    data = np.frombuffer(rest, np.uint8)
    found = both("block_levels", data, LEVEL_OUT_OF_LINE, 0, out=(np.ones(n, np.uint16),))
    assert not found[1][0].any()
    for bits in (8, 16, 32, 64):
        out = np.ones(n * bits // 8, np.uint8)
        assert not both("block_fixed", data, LEVEL_OUT_OF_LINE, bits, 0, n, out=(out,))[1][0].any()


def test_more_levels_of_width_zero_than_a_chunk_can_hold_are_refused() -> None:
    nothing = np.empty(0, np.uint8)
    out = (np.zeros(1 << 16, np.uint16),)
    assert both("block_levels", nothing, LEVEL_OUT_OF_LINE, 0, out=out) == "refused"


@property_test
@given(st.lists(st.tuples(st.integers(0, 65535), st.integers(1, 255)), min_size=1, max_size=30))
def test_runs_are_expanded(runs: list[tuple[int, int]]) -> None:
    values = np.array([value for value, _ in runs], np.uint16)
    lengths = np.array([length for _, length in runs], np.uint8)
    head = np.array([values.nbytes], np.uint64).view(np.uint8)
    data = np.concatenate([head, values.view(np.uint8), lengths])
    n = int(lengths.sum())
    found = both("block_levels", data, LEVEL_RLE, 0, out=(np.zeros(n, np.uint16),))
    assert np.array_equal(found[1][0], np.repeat(values, lengths))
    assert both("block_levels", data, LEVEL_RLE, 0, out=(np.zeros(n + 1, np.uint16),)) == "refused"


@property_test
@given(
    st.binary(max_size=600),
    st.sampled_from([0, LEVEL_FLAT, LEVEL_INLINE, LEVEL_OUT_OF_LINE, LEVEL_RLE, 9]),
    st.sampled_from([8, 16, 32, 64, 24, 128]),
    st.integers(0, 70),
    st.integers(0, 3000),
)
def test_blocks_of_random_bytes_are_read_alike_or_refused(
    data: bytes, codec: int, bits: int, width: int, n: int
) -> None:
    source = np.frombuffer(data, np.uint8)
    both("block_fixed", source, codec, bits, width, n, out=(np.zeros(n * bits // 8, np.uint8),))
    if width <= 16:
        both("block_levels", source, codec, width, out=(np.zeros(n, np.uint16),))


levels = st.integers(0, 5)


@property_test
@given(
    st.lists(st.tuples(st.integers(0, 3), levels), max_size=100),
    st.integers(0, 3),
    levels,
    levels,
    st.integers(1, 3),
    st.booleans(),
    st.integers(0, 20),
)
def test_layers_of_any_levels_are_unravelled_alike(
    entries: list[tuple[int, int]], depth: int, cut: int, level: int, stride: int, lists: bool, room: int
) -> None:
    rep = np.array([r for r, _ in entries], np.uint16)
    def_ = np.array([d for _, d in entries], np.uint16)
    bitmap = np.zeros(room, np.uint8)
    both(
        "unravel_items",
        rep if lists else rep[:0],
        def_,
        depth if lists else 0,
        cut if lists else 9,
        level,
        stride,
        out=(bitmap,),
    )
    for dtype in (np.int32, np.int64):
        both(
            "unravel_lists",
            rep,
            def_,
            depth + 1,
            cut,
            max(cut - 2, 0),
            max(cut - 1, 0),
            out=(np.zeros(room + 1, dtype), bitmap),
        )


def symbol_table(symbols: list[bytes], compressed: bool = True) -> np.ndarray:
    head = (0x46535354 << 32) | (int(compressed) << 24) | len(symbols)
    body = b"".join(each.ljust(8, b"\0") for each in symbols) + bytes(len(each) for each in symbols)
    return np.frombuffer((head.to_bytes(8, "little") + body).ljust(2312, b"\0"), np.uint8)


@property_test
@given(
    st.lists(st.binary(min_size=1, max_size=8), max_size=10, unique=True),
    st.lists(st.lists(st.integers(0, 12), max_size=40), min_size=1, max_size=20),
    st.integers(0, 200),
)
def test_compressed_strings_are_decoded_with_any_room(
    symbols: list[bytes], codes: list[list[int]], room: int
) -> None:
    from tiltyard.kernels.page_program import FIELDS, VALUE_FSST, P

    wanted, stored = [], []
    for value in codes:
        parts = [symbols[c] if c < len(symbols) else bytes([c]) for c in value]
        wanted.append(b"".join(parts))
        stored.append(b"".join(bytes([c]) if c < len(symbols) else bytes([255, c]) for c in value))
    lengths = np.array([len(each) for each in stored], np.int64)
    pages = np.zeros(FIELDS, np.int64)
    side = symbol_table(symbols)
    pages[P.VALUE_CODEC], pages[P.SIDE_LEN] = VALUE_FSST, len(side)
    source = np.frombuffer(b"".join(stored), np.uint8)
    for capacity in (room, sum(map(len, wanted)), 4000):
        found = both(
            "gather_variable",
            source,
            np.cumsum(lengths) - lengths,
            lengths,
            np.zeros(len(codes), np.int64),
            side,
            pages,
            np.zeros(len(codes) + 1, np.int32),
            out=(np.zeros(capacity, np.uint8),),
        )
        total = sum(map(len, wanted))
        assert found[0] == total
        n = min(total, capacity)
        assert found[1][0][:n].tobytes() == b"".join(wanted)[:n]


@property_test
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=20), st.data(), st.integers(0, 100))
def test_dictionary_strings_are_gathered(items: list[bytes], data: st.DataObject, room: int) -> None:
    index = np.array(data.draw(st.lists(st.integers(0, len(items)), max_size=50)), np.uint32)
    offsets = np.append(0, np.cumsum([len(each) for each in items])).astype(np.int64)
    source = np.frombuffer(b"".join(items), np.uint8)
    for dtype in (np.int32, np.int64):
        found = both(
            "gather_strings",
            index,
            offsets,
            source,
            out=(np.zeros(len(index) + 1, dtype), np.zeros(room, np.uint8)),
        )
        if (index == len(items)).any():
            assert found == "refused"
        else:
            assert found[0] == sum(len(items[i]) for i in index)


@property_test
@given(st.binary(max_size=60), st.lists(st.integers(-5, 70), max_size=20), st.integers(-1, 9))
def test_values_at_positions_are_gathered_or_refused(data: bytes, positions: list[int], width: int) -> None:
    source, where = np.frombuffer(data, np.uint8), np.array(positions, np.int64)
    both("gather_fixed", source, where, width, out=(np.zeros(max(width, 1) * len(where), np.uint8),))


@property_test
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 65535), max_size=6), st.integers(0, 400), st.integers(0, 20)),
        max_size=4,
    ),
    st.booleans(),
    st.booleans(),
    st.integers(-2, 3),
)
def test_chunk_tables_of_any_words_are_alike_or_refused(
    pages: list[tuple[list[int], int, int]], wide: bool, lists: bool, slip: int
) -> None:
    word = np.dtype(np.uint32 if wide else np.uint16)
    source, places, total = [np.zeros(1 << 16, np.uint8)], [], 0
    at = 1 << 16
    for words, items, rows in pages:
        table = np.array(words, word).view(np.uint8)
        ended = np.zeros((len(words), 2), np.uint64)
        if len(words):
            ended[-1, 0] = rows
        source += [table, ended.reshape(-1).view(np.uint8)]
        index = at + len(table) if lists else -1
        counted = rows if lists else items
        place = [
            at,
            len(table),
            word.itemsize if words else 0,
            0,
            1 << 16,
            items,
            counted,
            index,
            ended.nbytes,
        ]
        places.append(place)
        at += len(table) + ended.nbytes
        total += len(words) or 1
    room = max(total + slip, 0)
    outputs = (np.zeros(room + 1, np.int64), np.zeros(room + 1, np.int64), np.zeros(3 * room, np.int64))
    flat = np.array(places, np.int64).reshape(-1)
    both("index_chunks", np.concatenate(source), flat, out=outputs)
