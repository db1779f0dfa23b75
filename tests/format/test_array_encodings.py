"""Array encodings of version 2.0, from bytes that the official implementation wrote (file format 10)."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from tiltyard.errors import CorruptFile, UnsupportedFeature
from tiltyard.format.array_encodings import (
    BinaryArray,
    FlatArray,
    ListOffsets,
    NullableArray,
    VectorArray,
    decode_array_encoding,
)
from tiltyard.format.protos import file_pb2

URL = "/lance.encodings.ArrayEncoding"

# (what, the bytes of the message, what they mean)
WORKED = {
    "int32, no nulls": ("120a0a080a060a0408201200", NullableArray(None, FlatArray(32, 0))),
    "int64, some nulls": (
        "121412120a060a040801120012080a06084012020801",
        NullableArray(FlatArray(1, 0), FlatArray(64, 1)),
    ),
    "strings": (
        "321a0a0c120a0a080a060a040840120012080a060808120208011806",
        BinaryArray(NullableArray(None, FlatArray(64, 0)), FlatArray(8, 1), 6),
    ),
    "lists": (
        "22120a0c120a0a080a060a040840120010041803",
        ListOffsets(NullableArray(None, FlatArray(64, 0)), 4, 3),
    ),
    "vectors with nulls inside": (
        "122a12280a060a0408011200121e1a1c0802121812161214" + "0a080a060801120208011208" + "0a06082012020802",
        NullableArray(FlatArray(1, 0), VectorArray(2, NullableArray(FlatArray(1, 1), FlatArray(32, 2)))),
    ),
    "all null": ("12021a00", NullableArray(None, None)),
}


def typed(value: bytes, url: str = URL) -> bytes:
    return file_pb2.TypedBytes(type_url=url, value=value).SerializeToString()


@pytest.mark.parametrize("what", WORKED)
def test_worked_bytes(what: str) -> None:
    data, expected = WORKED[what]
    assert decode_array_encoding(typed(bytes.fromhex(data))) == expected


def test_other_types_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedFeature, match=r"'lance\.encodings21\.PageLayout'"):
        decode_array_encoding(typed(b"", "/lance.encodings21.PageLayout"))
    with pytest.raises(CorruptFile, match="must contain a slash"):
        decode_array_encoding(typed(b"", "lance.encodings.ArrayEncoding"))
    with pytest.raises(CorruptFile, match="is missing"):
        decode_array_encoding(typed(b""))


def test_depth_is_bounded() -> None:
    data = bytes.fromhex(WORKED["all null"][0])
    for _ in range(500):  # nullable.no_nulls.values of it
        for tag in (0x0A, 0x0A, 0x12):
            data = bytes([tag]) + encoded(len(data)) + data
    with pytest.raises(CorruptFile, match="cannot be decoded"):
        decode_array_encoding(typed(data))


def encoded(number: int) -> bytes:
    """A number in base 128."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def test_damage_gives_one_of_our_errors() -> None:
    rng = random.Random(1)
    for data, _ in WORKED.values():
        for _ in range(200):
            broken = bytearray(typed(bytes.fromhex(data)))
            for _ in range(rng.randint(1, 4)):
                broken[rng.randrange(len(broken))] = rng.randrange(256)
            with suppress(CorruptFile, UnsupportedFeature):
                decode_array_encoding(bytes(broken))
