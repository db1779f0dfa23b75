"""JSON in the binary form that tables hold, and as text.

A value begins with a header, a big-endian u32: `0x80000000 | n` for an array of n elements, `0x40000000 | n`
for an object of n members, `0x20000000` for a single value. Entries follow, a u32 each: the kind in the four
upper bits (0 null, 1 text, 2 number, 3 false, 4 true, 5 an array or object), the length of the payload in the
others; of an object first those of all names, which ascend by their bytes, then those of the values. Payloads
come last, in the same order. A number is a byte that says which, and its big-endian bytes: 0x00 zero, 0x10
NaN, 0x20 and 0x30 the infinities, 0x40 a signed and 0x50 an unsigned integer of 1, 2, 4 or 8 bytes, 0x60 a
float of 8 (found in files of the official package).
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from decimal import Decimal
from operator import itemgetter
from typing import Any, NamedTuple, NoReturn

from tiltyard.errors import CorruptFile, InvalidInput

MAX_DEPTH = 200
"""Arrays and objects within each other, at most."""

ARRAY, OBJECT, SCALAR = 0x80000000, 0x40000000, 0x20000000
NULL, TEXT, NUMBER, FALSE, TRUE, CONTAINER = range(6)
_KINDS = 0xE0000000
_COUNT = 0x1FFFFFFF
_LENGTH = 0x0FFFFFFF
_ZERO, _NAN, _INFINITY, _MINUS_INFINITY, _SIGNED, _UNSIGNED, _FLOAT = (at << 4 for at in range(7))
_SPECIAL = {_NAN: math.nan, _INFINITY: math.inf, _MINUS_INFINITY: -math.inf}


class Place(NamedTuple):
    """Where a value lies in its document: its kind, its first byte, and how many there are."""

    kind: int
    start: int
    length: int


# -- reading ------------------------------------------------------------------------------------------------


def root(data: bytes) -> Place:
    """The place of the whole document; raises `CorruptFile` for bytes that are none."""
    header = _u32(data, 0)
    if header & _KINDS == SCALAR:
        return _entry(data, 4, 8)
    if header & _KINDS not in (ARRAY, OBJECT):
        _damaged("an unknown header")
    return Place(CONTAINER, 0, len(data))


def elements(data: bytes, at: Place) -> list[Place] | None:
    """The elements of an array, None for any other value."""
    if at.kind != CONTAINER:
        return None
    header = _u32(data, at.start)
    if header & _KINDS != ARRAY:
        return None
    return _entries(data, at, at.start + 4, header & _COUNT, at.start + 4 + 4 * (header & _COUNT))


def members(data: bytes, at: Place) -> Iterator[tuple[bytes, Place]] | None:
    """Names and values of an object, None for any other value."""
    if at.kind != CONTAINER:
        return None
    header = _u32(data, at.start)
    if header & _KINDS != OBJECT:
        return None
    count = header & _COUNT
    places = _entries(data, at, at.start + 4, 2 * count, at.start + 4 + 8 * count)
    names = (data[each.start : each.start + each.length] for each in places[:count])
    return zip(names, places[count:], strict=True)


def _entries(data: bytes, at: Place, first: int, count: int, payload: int) -> list[Place]:
    if payload > at.start + at.length or payload > len(data):
        _damaged("more entries than bytes")
    found = []
    for entry in struct.unpack_from(f">{count}I", data, first):
        length = entry & _LENGTH
        found.append(Place(entry >> 28, payload, length))
        payload += length
    if payload > len(data):
        _damaged("a value beyond the end")
    return found


def _entry(data: bytes, at: int, payload: int) -> Place:
    entry = _u32(data, at)
    if payload + (entry & _LENGTH) > len(data):
        _damaged("a value beyond the end")
    return Place(entry >> 28, payload, entry & _LENGTH)


def _u32(data: bytes, at: int) -> int:
    if at + 4 > len(data):
        _damaged("a header cut short")
    return int.from_bytes(data[at : at + 4], "big")


def _damaged(what: str) -> NoReturn:
    raise CorruptFile(f"a value of a JSON column is damaged: {what}")


def scalar(data: bytes, at: Place) -> Any:
    """The Python value of a single value: None, a bool, a number or a text; an array or object is refused."""
    raw = data[at.start : at.start + at.length]
    if at.kind == TEXT:
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            _damaged(str(error))
    if at.kind == NUMBER:
        return _number(raw)
    if at.kind in (NULL, FALSE, TRUE):
        return (None, None, None, False, True)[at.kind]
    return _damaged(f"a value of the unknown kind {at.kind}")


def _number(raw: bytes) -> int | float:
    which = raw[0] & 0xF0 if raw else -1
    if which in _SPECIAL:
        return _SPECIAL[which]
    if which == _ZERO:
        return 0
    if which in (_SIGNED, _UNSIGNED) and len(raw) in (2, 3, 5, 9):
        return int.from_bytes(raw[1:], "big", signed=which == _SIGNED)
    if which == _FLOAT and len(raw) == 9:
        return float(struct.unpack(">d", raw[1:])[0])
    return _damaged("a number of an unknown form")


def bytes_at(data: bytes, at: Place) -> bytes:
    """A value as a document of its own."""
    raw = data[at.start : at.start + at.length]
    return raw if at.kind == CONTAINER else _scalar_document(at.kind, raw)


def text_of(data: bytes) -> str:
    """A document as text: without blanks, names in order."""
    return text_at(data, root(data))


def text_at(data: bytes, at: Place, depth: int = 0) -> str:
    """A value of a document as text."""
    if at.kind != CONTAINER:
        return _scalar_text(scalar(data, at))
    if depth > MAX_DEPTH:
        raise CorruptFile(f"a value of a JSON column is nested deeper than {MAX_DEPTH} levels")
    inside = elements(data, at)
    if inside is not None:
        return f"[{','.join([text_at(data, each, depth + 1) for each in inside])}]"
    named = members(data, at)
    if named is None:
        _damaged("an unknown header")
    parts = [
        f"{_scalar_text(name.decode('utf-8', 'replace'))}:{text_at(data, each, depth + 1)}"
        for name, each in named
    ]
    return f"{{{','.join(parts)}}}"


def _scalar_text(value: Any) -> str:
    if isinstance(value, float):
        return float_text(value, "+") if math.isfinite(value) else "null"
    return json.dumps(value, ensure_ascii=False)


def float_text(value: Any, plus: str = "", most: int = 16, least: int = -5) -> str:
    """A finite float (of Python or NumPy) as the shortest text that reads back, with digits from `least` to
    `most` places around the point, beyond them with an exponent, which `plus` precedes where it is positive.
    """
    sign, digits, exponent = Decimal(str(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    written = "".join(map(str, digits))
    point = len(written) + exponent
    if not any(digits):
        found = "0.0"
    elif exponent >= 0 and point <= most:
        found = f"{written}{'0' * exponent}.0"
    elif 0 < point <= most:
        found = f"{written[:point]}.{written[point:]}"
    elif least < point <= 0:
        found = f"0.{'0' * -point}{written}"
    else:
        rest = f".{written[1:]}" if len(written) > 1 else ""
        found = f"{written[0]}{rest}e{plus if point > 1 else ''}{point - 1}"
    return f"-{found}" if sign else found


# -- writing ------------------------------------------------------------------------------------------------


def from_text(text: str) -> bytes:
    """The binary form of JSON text. Raises `InvalidInput` for what is none, an object that names a member
    twice, and more than `MAX_DEPTH` levels.
    """
    try:
        return from_value(json.loads(text, strict=False, object_pairs_hook=_members_once))
    except (ValueError, RecursionError) as error:
        shown = text if len(text) <= 60 else f"{text[:60]}..."
        raise InvalidInput(f"{shown!r} is no JSON: {error}") from error


def _members_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(
            f"the member {next(name for name in names if names.count(name) > 1)!r} stands there twice"
        )
    return found


def from_value(value: Any) -> bytes:
    """The binary form of a value of Python's `json`."""
    kind, payload = _encoded(value, 0)
    return payload if kind == CONTAINER else _scalar_document(kind, payload)


def _scalar_document(kind: int, payload: bytes) -> bytes:
    return struct.pack(">II", SCALAR, kind << 28 | len(payload)) + payload


def _encoded(value: Any, depth: int) -> tuple[int, bytes]:
    if value is None:
        return NULL, b""
    if isinstance(value, bool):
        return (TRUE if value else FALSE), b""
    if isinstance(value, str):
        return TEXT, value.encode()
    if isinstance(value, (int, float)):
        return NUMBER, _encoded_number(value)
    if depth >= MAX_DEPTH:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        named = sorted(((name.encode(), each) for name, each in value.items()), key=itemgetter(0))
        names = [(TEXT, name) for name, _ in named]
        return CONTAINER, _container(
            OBJECT, len(named), names + [_encoded(each, depth + 1) for _, each in named]
        )
    return CONTAINER, _container(ARRAY, len(value), [_encoded(each, depth + 1) for each in value])


def array_of(parts: list[tuple[int, bytes]]) -> bytes:
    """A document that is an array of values, given by their kinds and payloads."""
    return _container(ARRAY, len(parts), parts)


def _container(kind: int, count: int, parts: list[tuple[int, bytes]]) -> bytes:
    heads = [of << 28 | len(payload) for of, payload in parts]
    if any(len(payload) > _LENGTH for _, payload in parts):
        raise ValueError(f"a part of more than {_LENGTH:,} bytes")
    return b"".join(
        [struct.pack(f">{len(heads) + 1}I", kind | count, *heads), *(payload for _, payload in parts)]
    )


def _encoded_number(value: float) -> bytes:
    if isinstance(value, int):
        if value == 0:
            return bytes([_ZERO])
        if -(2**63) <= value < 2**64:
            width = next(each for each in (1, 2, 4, 8) if _fits(value, each))
            which = _SIGNED if value < 0 else _UNSIGNED
            return bytes([which]) + value.to_bytes(width, "big", signed=value < 0)
        value = float(value) if abs(value) < 10**308 else math.copysign(math.inf, value)
    if not math.isfinite(value):
        return bytes([_NAN if math.isnan(value) else _INFINITY if value > 0 else _MINUS_INFINITY])
    return bytes([_FLOAT]) + struct.pack(">d", value)


def _fits(value: int, width: int) -> bool:
    return value >= -(1 << 8 * width - 1) if value < 0 else value < 1 << 8 * width
