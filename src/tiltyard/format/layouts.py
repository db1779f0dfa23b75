"""Page layouts and leaf encodings of file versions 2.1 and 2.2 as frozen values (file format 7; compression
1).

`decode_layout` and `encode_layout` translate between these values and the bytes that stand in a page's
metadata (a typed value around a `PageLayout` message). Equal bytes give the same object while it is cached. A
member that this version does not know raises `UnsupportedFeature` naming it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tiltyard.errors import CorruptFile, UnsupportedFeature
from tiltyard.format import wire
from tiltyard.format.protos import encodings21_pb2 as pb
from tiltyard.format.protos import file_pb2

LAYOUT_CACHE_ENTRIES = 4096
PAGE_LAYOUT_URL = "/lance.encodings21.PageLayout"

# Kinds of nesting levels (file format, section 6.1), innermost first in a page's `layers`.
ALL_VALID_ITEM = 1
ALL_VALID_LIST = 2
NULLABLE_ITEM = 3
NULLABLE_LIST = 4
EMPTYABLE_LIST = 5
NULL_AND_EMPTY_LIST = 6


# -- leaf encodings ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Flat:
    """Values of `bits` bits back to back."""

    bits: int


@dataclass(frozen=True, slots=True)
class Variable:
    """Offsets of `offset_bits` bits (32 or 64) and bytes."""

    offset_bits: int


@dataclass(frozen=True, slots=True)
class ConstantValue:
    """One value, in the message itself; `None` stands for null."""

    value: bytes | None


@dataclass(frozen=True, slots=True)
class OutOfLineBitpacking:
    """FastLanes blocks of 1,024 values of `bits` bits, all packed to `packed_bits` bits."""

    bits: int
    packed_bits: int


@dataclass(frozen=True, slots=True)
class InlineBitpacking:
    """FastLanes blocks of 1,024 values of `bits` bits, each led by its own packed width."""

    bits: int


@dataclass(frozen=True, slots=True)
class Fsst:
    """Strings compressed with a table of symbols, then laid out by `values`."""

    symbol_table: bytes
    values: Encoding


@dataclass(frozen=True, slots=True)
class Rle:
    """Values of `value_bits` bits and run lengths of `length_bits` bits."""

    value_bits: int
    length_bits: int


@dataclass(frozen=True, slots=True)
class ByteStreamSplit:
    """Values of `bits` bits, transposed byte by byte."""

    bits: int


@dataclass(frozen=True, slots=True)
class General:
    """`lz4` or `zstd` around the first buffer of `values`."""

    scheme: str
    level: int | None
    values: Encoding


@dataclass(frozen=True, slots=True)
class FixedSizeList:
    """Vectors of `items` values, laid out by `values`, with or without validity of the items."""

    items: int
    values: Encoding
    has_validity: bool


@dataclass(frozen=True, slots=True)
class PackedStruct:
    """Rows of fixed-width fields of `bits` bits each, together one value of `values`."""

    bits: tuple[int, ...]
    values: Encoding


@dataclass(frozen=True, slots=True)
class PackedField:
    """A field of a packed row: `bits` wide, or led by a length of `bits` bits when `variable`."""

    value: Encoding
    bits: int
    variable: bool


@dataclass(frozen=True, slots=True)
class VariablePackedStruct:
    """Rows of fields of which some vary in width."""

    fields: tuple[PackedField, ...]


Encoding = (
    Flat
    | Variable
    | ConstantValue
    | OutOfLineBitpacking
    | InlineBitpacking
    | Fsst
    | Rle
    | ByteStreamSplit
    | General
    | FixedSizeList
    | PackedStruct
    | VariablePackedStruct
)


# -- page layouts --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MiniBlock:
    """Small chunks of many values. `num_items` counts the visible items of the page."""

    rep: Encoding | None
    def_: Encoding | None
    values: Encoding
    dictionary: Encoding | None
    num_dictionary_items: int
    layers: tuple[int, ...]
    num_buffers: int
    repetition_index_depth: int
    num_items: int
    large_chunks: bool


@dataclass(frozen=True, slots=True)
class FullZip:
    """One entry per level: control word, length where `variable`, bytes.

    `bits_per_value` counts the bits of a value, or of a value's length when `variable`.
    """

    bits_rep: int
    bits_def: int
    bits_per_value: int
    variable: bool
    num_items: int
    num_visible_items: int
    values: Encoding
    layers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ConstantPage:
    """All items null or equal; `rep` and `def_` encode the level buffers (`None`: raw 16-bit numbers)."""

    layers: tuple[int, ...]
    inline_value: bytes | None = None
    rep: Encoding | None = None
    def_: Encoding | None = None
    num_rep_values: int = 0
    num_def_values: int = 0


@dataclass(frozen=True, slots=True)
class BlobPage:
    """Descriptors (position, size) of out-of-line values, laid out by `inner`; `layers` are the column's."""

    inner: PageLayout
    layers: tuple[int, ...]


PageLayout = MiniBlock | FullZip | ConstantPage | BlobPage


# -- from bytes ----------------------------------------------------------------------------------


@lru_cache(maxsize=LAYOUT_CACHE_ENTRIES)
def decode_layout(data: bytes) -> PageLayout:
    """The layout in a page's metadata. Raises `UnsupportedFeature` for unknown members, `CorruptFile` for
    nonsense.
    """
    value = page_encoding(data, PAGE_LAYOUT_URL[1:], "files of versions 2.1 and 2.2")
    return _layout(wire.parse(pb.PageLayout, value, "", "page layout"))


def page_encoding(data: bytes, name: str, files: str) -> bytes:
    """The message in a page's metadata, which must be of type `name` in such files. Raises `CorruptFile`,
    `UnsupportedFeature`.
    """
    typed = wire.parse(file_pb2.TypedBytes, data, "", "page encoding")
    url = typed.type_url
    if "/" not in url:
        raise CorruptFile(f"the type of a page encoding must contain a slash, found {url!r}")
    found = url.rpartition("/")[2]
    if found != name:
        raise UnsupportedFeature(f"page encoding {found!r} is not supported; expected {name!r} in {files}")
    value: bytes = typed.value
    return value


def _layout(message: Any) -> PageLayout:
    kind = message.WhichOneof("layout")
    if kind == "mini_block_layout":
        return _mini_block(message.mini_block_layout)
    if kind == "full_zip_layout":
        return _full_zip(message.full_zip_layout)
    if kind == "constant_layout":
        return _constant(message.constant_layout)
    if kind == "blob_layout":
        blob = message.blob_layout
        return BlobPage(_layout(blob.inner_layout), _layers(blob))
    raise _unknown(message, kind, "page layout")


def _mini_block(m: Any) -> MiniBlock:
    return MiniBlock(
        _decode(m.rep_compression) if m.HasField("rep_compression") else None,
        _decode(m.def_compression) if m.HasField("def_compression") else None,
        _decode(m.value_compression),
        _decode(m.dictionary) if m.HasField("dictionary") else None,
        m.num_dictionary_items,
        _layers(m),
        m.num_buffers,
        m.repetition_index_depth,
        m.num_items,
        m.has_large_chunk,
    )


def _full_zip(m: Any) -> FullZip:
    details = m.WhichOneof("details")
    if details is None:
        raise CorruptFile("a full-zip page says neither bits per value nor bits per offset")
    variable = details == "bits_per_offset"
    bits = m.bits_per_offset if variable else m.bits_per_value
    values = _decode(m.value_compression)
    return FullZip(
        m.bits_rep, m.bits_def, bits, variable, m.num_items, m.num_visible_items, values, _layers(m)
    )


def _constant(m: Any) -> ConstantPage:
    return ConstantPage(
        _layers(m),
        m.inline_value if m.HasField("inline_value") else None,
        _decode(m.rep_compression) if m.HasField("rep_compression") else None,
        _decode(m.def_compression) if m.HasField("def_compression") else None,
        m.num_rep_values,
        m.num_def_values,
    )


def _layers(message: Any) -> tuple[int, ...]:
    layers = tuple(message.layers)
    for layer in layers:
        if not ALL_VALID_ITEM <= layer <= NULL_AND_EMPTY_LIST:
            raise UnsupportedFeature(f"page layer kind {layer} is not known to this version")
    return layers


def _decode(message: Any) -> Encoding:
    kind = message.WhichOneof("compression")
    reader = _READERS.get(kind)
    if reader is None:
        raise _unknown(message, kind, "encoding")
    return reader(getattr(message, kind))


def _unknown(message: Any, kind: str | None, what: str) -> Exception:
    if kind is not None:
        return UnsupportedFeature(f"{what} {kind!r} is not supported by this version")
    number = wire.first_field_number(wire.unknown_fields(message))
    if number is None:
        return CorruptFile(f"{what} is missing where one is required")
    return UnsupportedFeature(f"{what} number {number} is not known to this version")


def _no_compression(message: Any, name: str, what: str) -> None:
    if message.HasField(name):
        raise UnsupportedFeature(f"buffer compression inside {what} is not supported by this version")


def _flat_bits(message: Any, what: str) -> int:
    """The width of an inner encoding that versions up to 2.2 only know as flat."""
    inner = _decode(message)
    if not isinstance(inner, Flat):
        raise UnsupportedFeature(
            f"{what} encoded as {type(inner).__name__} are not supported (expected flat)"
        )
    return inner.bits


def _read_flat(m: Any) -> Encoding:
    _no_compression(m, "data", "flat")
    return Flat(m.bits_per_value)


def _read_variable(m: Any) -> Encoding:
    _no_compression(m, "values", "variable")
    return Variable(_flat_bits(m.offsets, "offsets of variable-width values"))


def _read_inline(m: Any) -> Encoding:
    _no_compression(m, "values", "inline_bitpacking")
    return InlineBitpacking(m.uncompressed_bits_per_value)


def _read_out_of_line(m: Any) -> Encoding:
    return OutOfLineBitpacking(m.uncompressed_bits_per_value, _flat_bits(m.values, "bit-packed values"))


def _read_rle(m: Any) -> Encoding:
    return Rle(_flat_bits(m.values, "values of runs"), _flat_bits(m.run_lengths, "run lengths"))


_SCHEMES = {pb.COMPRESSION_SCHEME_LZ4: "lz4", pb.COMPRESSION_SCHEME_ZSTD: "zstd"}
_SCHEME_NUMBERS = {name: number for number, name in _SCHEMES.items()}


def _read_general(m: Any) -> Encoding:
    compression = m.compression
    scheme = _SCHEMES.get(compression.scheme)
    if scheme is None:
        raise UnsupportedFeature(f"compression scheme {compression.scheme} is not known to this version")
    level = compression.level if compression.HasField("level") else None
    return General(scheme, level, _decode(m.values))


def _read_packed_field(m: Any) -> PackedField:
    layout = m.WhichOneof("layout")
    if layout is None:
        raise CorruptFile("a field of a packed struct says neither bits per value nor bits per length")
    return PackedField(_decode(m.value), getattr(m, layout), layout == "bits_per_length")


_READERS: dict[str | None, Callable[[Any], Encoding]] = {
    "flat": _read_flat,
    "variable": _read_variable,
    "constant": lambda m: ConstantValue(m.value if m.HasField("value") else None),
    "out_of_line_bitpacking": _read_out_of_line,
    "inline_bitpacking": _read_inline,
    "fsst": lambda m: Fsst(m.symbol_table, _decode(m.values)),
    "rle": _read_rle,
    "byte_stream_split": lambda m: ByteStreamSplit(_flat_bits(m.values, "split values")),
    "general": _read_general,
    "fixed_size_list": lambda m: FixedSizeList(m.items_per_value, _decode(m.values), m.has_validity),
    "packed_struct": lambda m: PackedStruct(tuple(m.bits_per_value), _decode(m.values)),
    "variable_packed_struct": lambda m: VariablePackedStruct(tuple(map(_read_packed_field, m.fields))),
}


# -- to bytes ------------------------------------------------------------------------------------


@lru_cache(maxsize=LAYOUT_CACHE_ENTRIES)
def encode_layout(layout: PageLayout) -> bytes:
    """The bytes of a layout as they stand in a page's metadata."""
    value = _layout_message(layout).SerializeToString()
    return file_pb2.TypedBytes(type_url=PAGE_LAYOUT_URL, value=value).SerializeToString()


def _layout_message(layout: PageLayout) -> Any:
    message: Any = pb.PageLayout()
    if isinstance(layout, MiniBlock):
        _fill_mini_block(message.mini_block_layout, layout)
    elif isinstance(layout, FullZip):
        _fill_full_zip(message.full_zip_layout, layout)
    elif isinstance(layout, ConstantPage):
        _fill_constant(message.constant_layout, layout)
    else:
        message.blob_layout.inner_layout.CopyFrom(_layout_message(layout.inner))
        message.blob_layout.layers.extend(layout.layers)
    return message


def _fill_mini_block(m: Any, layout: MiniBlock) -> None:
    if layout.rep is not None:
        _fill(m.rep_compression, layout.rep)
    if layout.def_ is not None:
        _fill(m.def_compression, layout.def_)
    _fill(m.value_compression, layout.values)
    if layout.dictionary is not None:
        _fill(m.dictionary, layout.dictionary)
    m.num_dictionary_items = layout.num_dictionary_items
    m.layers.extend(layout.layers)
    m.num_buffers = layout.num_buffers
    m.repetition_index_depth = layout.repetition_index_depth
    m.num_items = layout.num_items
    m.has_large_chunk = layout.large_chunks


def _fill_full_zip(m: Any, layout: FullZip) -> None:
    m.bits_rep = layout.bits_rep
    m.bits_def = layout.bits_def
    if layout.variable:
        m.bits_per_offset = layout.bits_per_value
    else:
        m.bits_per_value = layout.bits_per_value
    m.num_items = layout.num_items
    m.num_visible_items = layout.num_visible_items
    _fill(m.value_compression, layout.values)
    m.layers.extend(layout.layers)


def _fill_constant(m: Any, layout: ConstantPage) -> None:
    m.SetInParent()
    m.layers.extend(layout.layers)
    if layout.inline_value is not None:
        m.inline_value = layout.inline_value
    if layout.rep is not None:
        _fill(m.rep_compression, layout.rep)
    if layout.def_ is not None:
        _fill(m.def_compression, layout.def_)
    m.num_rep_values = layout.num_rep_values
    m.num_def_values = layout.num_def_values


def _fill(m: Any, encoding: Encoding) -> None:
    """Write one leaf encoding into a `CompressiveEncoding` message."""
    match encoding:
        case Flat(bits):
            m.flat.bits_per_value = bits
        case Variable(bits):
            m.variable.offsets.flat.bits_per_value = bits
        case ConstantValue(value):
            m.constant.SetInParent()
            if value is not None:
                m.constant.value = value
        case OutOfLineBitpacking(bits, packed):
            m.out_of_line_bitpacking.uncompressed_bits_per_value = bits
            m.out_of_line_bitpacking.values.flat.bits_per_value = packed
        case InlineBitpacking(bits):
            m.inline_bitpacking.uncompressed_bits_per_value = bits
        case Fsst(table, values):
            m.fsst.symbol_table = table
            _fill(m.fsst.values, values)
        case Rle(value_bits, length_bits):
            m.rle.values.flat.bits_per_value = value_bits
            m.rle.run_lengths.flat.bits_per_value = length_bits
        case ByteStreamSplit(bits):
            m.byte_stream_split.values.flat.bits_per_value = bits
        case General(scheme, level, values):
            m.general.compression.scheme = _SCHEME_NUMBERS[scheme]
            if level is not None:
                m.general.compression.level = level
            _fill(m.general.values, values)
        case FixedSizeList(items, values, has_validity):
            m.fixed_size_list.items_per_value = items
            _fill(m.fixed_size_list.values, values)
            m.fixed_size_list.has_validity = has_validity
        case PackedStruct(widths, values):
            m.packed_struct.bits_per_value.extend(widths)
            _fill(m.packed_struct.values, values)
        case VariablePackedStruct(fields):
            _fill_packed_fields(m.variable_packed_struct, fields)


def _fill_packed_fields(m: Any, fields: tuple[PackedField, ...]) -> None:
    m.SetInParent()
    for each in fields:
        field = m.fields.add()
        _fill(field.value, each.value)
        if each.variable:
            field.bits_per_length = each.bits
        else:
            field.bits_per_value = each.bits
