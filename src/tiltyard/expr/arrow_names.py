"""Types by the names of Arrow's Rust implementation: `Int64`, `Timestamp(µs, "UTC")`, `List(Utf8)`.

`arrow_typeof` writes them; `arrow_cast` reads them, the units also as words (`Timestamp(Second, None)`).
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa

from tiltyard.expr.coerce import Mismatch

MAX_NESTED = 50
"""Types with parameters in one name."""

_PLAIN = {
    "Null": pa.null(),
    "Boolean": pa.bool_(),
    **{f"Int{width}": getattr(pa, f"int{width}")() for width in (8, 16, 32, 64)},
    **{f"UInt{width}": getattr(pa, f"uint{width}")() for width in (8, 16, 32, 64)},
    "Float16": pa.float16(),
    "Float32": pa.float32(),
    "Float64": pa.float64(),
    "Utf8": pa.string(),
    "LargeUtf8": pa.large_string(),
    "Utf8View": pa.string(),
    "Binary": pa.binary(),
    "LargeBinary": pa.large_binary(),
    "BinaryView": pa.binary(),
    "Date32": pa.date32(),
    "Date64": pa.date64(),
}
_NAMES = {arrow: name for name, arrow in reversed(_PLAIN.items()) if not name.endswith("View")}
_UNITS = {"s": "s", "ms": "ms", "us": "µs", "ns": "ns"}
_UNIT_WORDS = {
    "s": "s", "ms": "ms", "µs": "us", "us": "us", "ns": "ns",
    "Second": "s", "Millisecond": "ms", "Microsecond": "us", "Nanosecond": "ns",
}  # fmt: skip
_PART = re.compile(r'\s*(?:(?P<text>"[^"]*")|(?P<word>[\wµ]+)|(?P<sign>[(),:])|(?P<end>\Z))')


def arrow_name(arrow: pa.DataType) -> str:
    """The name of a type."""
    types = pa.types
    if arrow in _NAMES:
        return _NAMES[arrow]
    if types.is_decimal(arrow):
        return f"Decimal{arrow.bit_width}({arrow.precision}, {arrow.scale})"
    if types.is_timestamp(arrow):
        zone = "" if arrow.tz is None else f', "{arrow.tz}"'
        return f"Timestamp({_UNITS[arrow.unit]}{zone})"
    if types.is_time(arrow) or types.is_duration(arrow):
        word = "Duration" if types.is_duration(arrow) else f"Time{arrow.bit_width}"
        return f"{word}({_UNITS[arrow.unit]})"
    if types.is_fixed_size_binary(arrow):
        return f"FixedSizeBinary({arrow.byte_width})"
    if types.is_fixed_size_list(arrow):
        return f"FixedSizeList({arrow.list_size} x {arrow_name(arrow.value_type)})"
    if types.is_list(arrow) or types.is_large_list(arrow):
        return f"{'Large' if types.is_large_list(arrow) else ''}List({arrow_name(arrow.value_type)})"
    if types.is_struct(arrow):
        fields = (arrow.field(at) for at in range(arrow.num_fields))
        shown = ", ".join(f'"{field.name}": {arrow_name(field.type)}' for field in fields)
        return f"Struct({shown})"
    if types.is_dictionary(arrow):
        return f"Dictionary({arrow_name(arrow.index_type)}, {arrow_name(arrow.value_type)})"
    if types.is_map(arrow):
        return f"Map({arrow_name(arrow.key_type)}, {arrow_name(arrow.item_type)})"
    return str(arrow)


class _Reader:
    """The parts of a name, one after the other."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.kind = self.value = ""
        self.nested = 0
        self.advance()

    def advance(self) -> None:
        match = _PART.match(self.text, self.at)
        if match is None or match.lastgroup is None:
            raise self.unknown()
        self.kind, self.value, self.at = match.lastgroup, match[match.lastgroup], match.end()

    def unknown(self) -> Mismatch:
        return Mismatch(
            f"{self.text!r} names no type: write it as 'Int64', 'Timestamp(Microsecond, None)', 'List(Utf8)'"
        )

    def take(self, value: str) -> None:
        if self.value != value:
            raise self.unknown()
        self.advance()

    def word(self) -> str:
        word = self.value
        if self.kind not in ("word", "text"):
            raise self.unknown()
        self.advance()
        return word.strip('"')

    def number(self) -> int:
        word = self.word()
        if not word.isdecimal() or len(word) > 9:
            raise self.unknown()
        return int(word)

    def unit(self) -> str:
        unit = _UNIT_WORDS.get(self.word())
        if unit is None:
            raise self.unknown()
        return unit

    def zone(self) -> str | None:
        """`, "UTC"`, `, Some("UTC")`, `, None` or nothing."""
        if self.value != ",":
            return None
        self.advance()
        word = self.word()
        if word == "Some":
            self.take("(")
            word = self.word()
            self.take(")")
        return None if word == "None" else word

    def inner(self) -> pa.DataType:
        """A type, which may stand behind `nullable` or `non-null` as in older names."""
        if self.value == "nullable":
            self.advance()
        return _read(self)

    def decimal(self, bits: int) -> pa.DataType:
        precision = self.number()
        self.take(",")
        return getattr(pa, f"decimal{bits}")(precision, self.number())

    def sized_list(self) -> pa.DataType:
        size = self.number()
        if self.value in ("x", ","):
            self.advance()
        return pa.list_(self.inner(), size)

    def struct(self) -> pa.DataType:
        fields = []
        while self.kind in ("text", "word"):
            name = self.word()
            self.take(":")
            fields.append((name, self.inner()))
            if self.value == ",":
                self.advance()
        return pa.struct(fields)

    def pair(self, make: Callable[[pa.DataType, pa.DataType], pa.DataType]) -> pa.DataType:
        first = self.inner()
        self.take(",")
        return make(first, self.inner())


_MADE: dict[str, Callable[[_Reader], pa.DataType]] = {
    "Decimal128": lambda read: read.decimal(128),
    "Decimal256": lambda read: read.decimal(256),
    "Timestamp": lambda read: pa.timestamp(read.unit(), read.zone()),
    "Time32": lambda read: pa.time32(read.unit()),
    "Time64": lambda read: pa.time64(read.unit()),
    "Duration": lambda read: pa.duration(read.unit()),
    "FixedSizeBinary": lambda read: pa.binary(read.number()),
    "List": lambda read: pa.list_(read.inner()),
    "LargeList": lambda read: pa.large_list(read.inner()),
    "FixedSizeList": _Reader.sized_list,
    "Struct": _Reader.struct,
    "Dictionary": lambda read: read.pair(pa.dictionary),
    "Map": lambda read: read.pair(pa.map_),
}


def _read(read: _Reader) -> pa.DataType:
    word = read.word()
    if word in _PLAIN:
        return _PLAIN[word]
    make = _MADE.get(word)
    read.nested += 1
    if make is None or read.nested > MAX_NESTED:
        raise read.unknown()
    read.take("(")
    try:
        found = make(read)
    except (ValueError, pa.ArrowInvalid) as error:
        raise Mismatch(f"{read.text!r} names no type: {error}") from error
    read.take(")")
    return found


def arrow_type(name: str) -> pa.DataType:
    """The type of a name; raises `Mismatch` where it is none."""
    read = _Reader(name)
    found = _read(read)
    if read.kind != "end":
        raise read.unknown()
    return found
