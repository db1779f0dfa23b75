"""The hash against published values and a plain implementation of the specification."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.table.merge.xxh64 import xxh64_strings, xxh64_words

MASK = (1 << 64) - 1
P1, P2, P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5

# From the xxHash specification and its reference programs, seed 0.
PUBLISHED = {
    "": 0xEF46DB3751D8E999,
    "a": 0xD24EC4F1A98C6E5B,
    "Nobody inspects the spammish repetition": 0xFBCEA83C8A378BF1,
}


def _rotl(value: int, by: int) -> int:
    return ((value << by) | (value >> (64 - by))) & MASK


def _round(lane: int, word: int) -> int:
    return _rotl((lane + word * P2) & MASK, 31) * P1 & MASK


def _plain(data: bytes) -> int:
    at = 0
    if len(data) >= 32:
        lanes = [(P1 + P2) & MASK, P2, 0, -P1 & MASK]
        while at + 32 <= len(data):
            for i in range(4):
                lanes[i] = _round(lanes[i], int.from_bytes(data[at + 8 * i : at + 8 * i + 8], "little"))
            at += 32
        hashed = sum(_rotl(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & MASK
        for lane in lanes:
            hashed = ((hashed ^ _round(0, lane)) * P1 + P4) & MASK
    else:
        hashed = P5
    hashed = (hashed + len(data)) & MASK
    while at + 8 <= len(data):
        hashed ^= _round(0, int.from_bytes(data[at : at + 8], "little"))
        hashed = (_rotl(hashed, 27) * P1 + P4) & MASK
        at += 8
    if at + 4 <= len(data):
        hashed ^= int.from_bytes(data[at : at + 4], "little") * P1 & MASK
        hashed = (_rotl(hashed, 23) * P2 + P3) & MASK
        at += 4
    for byte in data[at:]:
        hashed = _rotl(hashed ^ (byte * P5 & MASK), 11) * P1 & MASK
    hashed = (hashed ^ (hashed >> 33)) * P2 & MASK
    hashed = (hashed ^ (hashed >> 29)) * P3 & MASK
    return hashed ^ (hashed >> 32)


def test_published_values() -> None:
    assert xxh64_strings(pa.array(list(PUBLISHED))).tolist() == list(PUBLISHED.values())


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=100), max_size=20), st.integers(0, 3))
def test_strings_of_any_length_hash_as_specified(values: list[bytes], skipped: int) -> None:
    for kind in (pa.binary(), pa.large_binary()):
        array = pa.array(values, kind)
        assert xxh64_strings(array).tolist() == [_plain(value) for value in values]
        part = array.slice(skipped)
        assert xxh64_strings(part).tolist() == [_plain(value) for value in values[skipped:]]


@given(st.lists(st.integers(0, MASK), max_size=20))
def test_words_hash_as_their_eight_bytes(values: list[int]) -> None:
    words = np.array(values, np.uint64)
    assert xxh64_words(words).tolist() == [_plain(value.to_bytes(8, "little")) for value in values]
