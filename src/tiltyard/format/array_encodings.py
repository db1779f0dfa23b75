"""Array encodings of files of version 2.0 as frozen values (file format 5; compression 7).

A page of such a file carries one tree of them, whose leaves name buffers of the page by number. Only reading
is here: no file of version 2.0 is written. A member that this version does not know raises
`UnsupportedFeature` naming it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tiltyard.errors import CorruptFile, UnsupportedFeature
from tiltyard.format import wire
from tiltyard.format.layouts import page_encoding
from tiltyard.format.protos import encodings20_pb2 as pb

ENCODING_CACHE_ENTRIES = 4096
ARRAY_ENCODING = "lance.encodings.ArrayEncoding"

_SCHEMES = {"": "", "none": "", "zstd": "zstd", "lz4": "lz4"}

# Members of the message that the making of version 2.1 left behind: no reader of version 2.0 knows them.
_LATER = {
    13: "constant",
    14: "inline_bitpacking",
    15: "out_of_line_bitpacking",
    16: "variable",
    17: "packed_struct_fixed_width_mini_block",
    18: "block",
    19: "rle",
    20: "general_mini_block",
    21: "byte_stream_split",
}


@dataclass(frozen=True, slots=True)
class FlatArray:
    """Values of `bits` bits back to back in one buffer, which `scheme` ("": nothing) compresses whole."""

    bits: int
    buffer: int
    scheme: str = ""


@dataclass(frozen=True, slots=True)
class NullableArray:
    """`values` and which of them are there: all (`validity` None), or those with a 1 in `validity`; `values`
    None: none is.
    """

    validity: ArrayEncoding | None
    values: ArrayEncoding | None


@dataclass(frozen=True, slots=True)
class VectorArray:
    """Vectors of `dimension` items, which `items` lays out one vector after the other."""

    dimension: int
    items: ArrayEncoding


@dataclass(frozen=True, slots=True)
class ListOffsets:
    """Ends of lists among the `num_items` items of a page, more by `null_adjustment` where a list is null."""

    offsets: ArrayEncoding
    null_adjustment: int
    num_items: int


@dataclass(frozen=True, slots=True)
class StructHeader:
    """A struct with columns of its own below: nothing is stored for it."""


@dataclass(frozen=True, slots=True)
class BinaryArray:
    """Ends of values in `data`, more by `null_adjustment` where a value is null."""

    ends: ArrayEncoding
    data: ArrayEncoding
    null_adjustment: int


@dataclass(frozen=True, slots=True)
class DictionaryArray:
    """Numbers of `num_items` items. In columns that are no dictionaries 0 is null, and k is item k - 1."""

    indices: ArrayEncoding
    items: ArrayEncoding
    num_items: int


@dataclass(frozen=True, slots=True)
class FsstArray:
    """Values of `binary` compressed with a table of symbols."""

    binary: ArrayEncoding
    symbol_table: bytes


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Rows of fixed width, each with one value per field of a struct."""

    fields: int
    buffer: int


@dataclass(frozen=True, slots=True)
class BitStream:
    """Values of `bits` bits, of which `packed_bits` are stored: one after the other, least bit first."""

    packed_bits: int
    bits: int
    buffer: int
    signed: bool


@dataclass(frozen=True, slots=True)
class PackedBlocks:
    """FastLanes blocks of 1,024 values of `bits` bits, all packed to `packed_bits` bits."""

    packed_bits: int
    bits: int
    buffer: int


@dataclass(frozen=True, slots=True)
class EqualLengths:
    """Values of varying width that all have `width` bytes here."""

    data: ArrayEncoding
    width: int


ArrayEncoding = (
    FlatArray
    | NullableArray
    | VectorArray
    | ListOffsets
    | StructHeader
    | BinaryArray
    | DictionaryArray
    | FsstArray
    | PackedRows
    | BitStream
    | PackedBlocks
    | EqualLengths
)


@lru_cache(maxsize=ENCODING_CACHE_ENTRIES)
def decode_array_encoding(data: bytes) -> ArrayEncoding:
    """The encoding in a page's metadata. Raises `UnsupportedFeature` for unknown members, `CorruptFile` for
    nonsense.
    """
    value = page_encoding(data, ARRAY_ENCODING, "files of version 2.0")
    return _decode(wire.parse(pb.ArrayEncoding, value, "", "array encoding"))


def _decode(message: Any) -> ArrayEncoding:  # protobuf bounds how deep messages nest
    kind = message.WhichOneof("array_encoding")
    if kind is None:
        number = wire.first_field_number(wire.unknown_fields(message))
        if number is None:
            raise CorruptFile("an array encoding is missing where one is required")
        named = f"{_LATER[number]!r}" if number in _LATER else f"number {number}"
        raise UnsupportedFeature(f"array encoding {named} is not known in files of version 2.0")
    return _READERS[kind](getattr(message, kind))


def _buffer(message: Any) -> int:
    """The number of a buffer of the page: nothing else is ever written, nor read by anybody."""
    if message.buffer_type:
        raise UnsupportedFeature(
            f"array encodings over buffers of type {message.buffer_type} are not supported"
        )
    number: int = message.buffer_index
    return number


def _flat(m: Any) -> ArrayEncoding:
    scheme = _SCHEMES.get(m.compression.scheme)
    if scheme is None:
        raise UnsupportedFeature(f"buffer compression {m.compression.scheme!r} is not known to this version")
    return FlatArray(m.bits_per_value, _buffer(m.buffer), scheme)


def _nullable(m: Any) -> ArrayEncoding:
    kind = m.WhichOneof("nullability")
    if kind == "no_nulls":
        return NullableArray(None, _decode(m.no_nulls.values))
    if kind == "some_nulls":
        return NullableArray(_decode(m.some_nulls.validity), _decode(m.some_nulls.values))
    if kind == "all_nulls":
        return NullableArray(None, None)
    raise CorruptFile("a nullable array does not say which values are null")


_READERS: dict[str, Callable[[Any], ArrayEncoding]] = {
    "flat": _flat,
    "nullable": _nullable,
    "fixed_size_list": lambda m: VectorArray(m.dimension, _decode(m.items)),
    "list": lambda m: ListOffsets(_decode(m.offsets), m.null_offset_adjustment, m.num_items),
    "struct": lambda m: StructHeader(),
    "binary": lambda m: BinaryArray(_decode(m.indices), _decode(m.bytes), m.null_adjustment),
    "dictionary": lambda m: DictionaryArray(_decode(m.indices), _decode(m.items), m.num_dictionary_items),
    "fsst": lambda m: FsstArray(_decode(m.binary), m.symbol_table),
    "packed_struct": lambda m: PackedRows(len(m.inner), _buffer(m.buffer)),
    "bitpacked": lambda m: BitStream(
        m.compressed_bits_per_value, m.uncompressed_bits_per_value, _buffer(m.buffer), m.signed
    ),
    "fixed_size_binary": lambda m: EqualLengths(_decode(m.bytes), m.byte_width),
    "bitpacked_for_non_neg": lambda m: PackedBlocks(
        m.compressed_bits_per_value, m.uncompressed_bits_per_value, _buffer(m.buffer)
    ),
}
