"""Compressed buffers and dictionary blocks as the official writer lays them out (compression 3.5, 3.9)."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.encoding import dictionary, general, variable
from tiltyard.errors import CorruptFile, UnsupportedFeature
from tiltyard.format.layouts import ConstantValue, Flat, General, Variable


def array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def wrapped(scheme: str, data: bytes) -> bytes:
    codec = pa.Codec("lz4_raw" if scheme == "lz4" else scheme)
    return len(data).to_bytes(4 if scheme == "lz4" else 8, "little") + codec.compress(data, asbytes=True)


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=3000), st.sampled_from(["lz4", "zstd"]))
def test_a_compressed_buffer_comes_back(data: bytes, scheme: str) -> None:
    if data:
        assert general.decompress([scheme], wrapped(scheme, data)) == data
        assert general.decompress(["zstd", scheme], wrapped("zstd", wrapped(scheme, data))) == data


def test_a_zstd_frame_without_a_length_in_front() -> None:
    # compression 3.9: accepted by the official reader, never written by it
    frame = pa.Codec("zstd").compress(b"tilt" * 100, asbytes=True)
    assert general.decompress(["zstd"], frame) == b"tilt" * 100


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=100), st.sampled_from(["lz4", "zstd"]))
def test_damaged_compressed_buffers_are_refused_or_read(data: bytes, scheme: str) -> None:
    with suppress(CorruptFile):
        general.decompress([scheme], data)


def test_a_length_that_no_compression_reaches_is_refused() -> None:
    with pytest.raises(CorruptFile, match="claims to hold"):
        general.decompress(["lz4"], b"\xff\xff\xff\x7f" + b"\x00" * 20)
    with pytest.raises(CorruptFile, match="claims to hold"):
        general.decompress(["zstd"], b"\x00" * 6 + b"\x01\x00" + b"\x00" * 20)


def test_the_example_of_the_specification() -> None:
    # compression 3.5 and 3.9: items "aa" and "b", plain and under LZ4
    block = bytes.fromhex("2000000014000000000000000200000003000000616162")
    compressed = bytes.fromhex("17000000622000000014000100b00200000003000000616162")
    for encoding, data in ((Variable(32), block), (General("lz4", None, Variable(32)), compressed)):
        items = dictionary.read_items(encoding, array(data), 2)
        assert items.offsets is not None
        assert items.offsets.tolist() == [0, 2, 3]
        assert items.data.tobytes() == b"aab"


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("damage", ["short", "bits", "start", "decreasing", "outside"])
def test_damaged_blocks_of_strings_are_refused(bits: int, damage: str) -> None:
    dtype = f"<u{bits // 8}"
    head = np.array([bits, bits // 8 * 5, 0, 2, 3], dtype)
    change = {"bits": (0, 16), "start": (1, 3), "decreasing": (3, 9), "outside": (4, 99)}
    if damage in change:
        place, value = change[damage]
        head[place] = value
    data = head.tobytes() + b"aab"
    with pytest.raises(CorruptFile):
        variable.read_block(Variable(bits), array(data[:7] if damage == "short" else data), 2)


def test_dictionaries_of_several_pages_become_one() -> None:
    parts = [
        dictionary.Items(2, array(b"aab"), np.array([0, 2, 3]), 0),
        dictionary.Items(1, array(b"xyz"), np.array([0, 3]), 0),
    ]
    whole = dictionary.joined(parts)
    assert whole.offsets is not None
    assert (whole.n, whole.offsets.tolist(), whole.data.tobytes()) == (3, [0, 2, 3, 6], b"aabxyz")
    flat = [dictionary.read_items(Flat(16), array(bytes(range(4))), 2)] * 2
    assert dictionary.joined(flat).data.tobytes() == bytes(range(4)) * 2
    with pytest.raises(CorruptFile):
        dictionary.joined([parts[0], flat[0]])


def test_items_in_an_encoding_that_holds_none_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedFeature, match="ConstantValue"):
        dictionary.read_items(ConstantValue(None), array(b""), 1)
