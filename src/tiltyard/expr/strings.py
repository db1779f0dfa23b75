"""Functions of texts: parts, padding, search, digests.

Positions count characters from 1. What Arrow has no kernel for is computed once for each distinct text.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tiltyard.expr.coerce import Kind
from tiltyard.expr.ragged import lists_of
from tiltyard.expr.signatures import (
    BYTES,
    MAX_TEXT,
    TEXT,
    WHOLE,
    Signature,
    array_of,
    by_value,
    one,
    texts,
)

_DIGESTS = ("md5", "sha224", "sha256", "sha384", "sha512", "blake2s", "blake2b")

# -- parts and padding ------------------------------------------------------------------------------------


def _left(text: str, count: int) -> str:
    return text[:count] if count >= 0 else text[: max(0, len(text) + count)]


def _right(text: str, count: int) -> str:
    if count >= 0:
        return text[max(0, len(text) - count) :]
    return text[-count:]


def _room(characters: int) -> None:
    if characters > MAX_TEXT:
        raise ValueError(f"a text of {characters:,} characters; at most {MAX_TEXT:,} are made")


def _padding(text: str, length: int, fill: str) -> str:
    _room(length)
    missing = length - len(text)
    return (fill * (missing // len(fill) + 1))[:missing] if missing > 0 and fill else ""


def _lpad(text: str, length: int, fill: str = " ") -> str:
    return (_padding(text, length, fill) + text)[: max(length, 0)]


def _rpad(text: str, length: int, fill: str = " ") -> str:
    return (text[: max(length, 0)] + _padding(text, length, fill))[: max(length, 0)]


def _repeat(text: str, times: int) -> str:
    _room(len(text) * max(times, 0))
    return text * times


def _overlay(text: str, by: str, start: int, count: int | None = None) -> str:
    taken = len(by) if count is None else count
    return text[: max(start - 1, 0)] + by + text[max(start - 1 + taken, 0) :]


def _split_part(text: str, separator: str, number: int) -> str:
    if number == 0:
        raise ValueError("the number of a part must not be zero: 1 is the first, -1 the last")
    parts = text.split(separator) if separator else [text]
    at = number - 1 if number > 0 else len(parts) + number
    return parts[at] if 0 <= at < len(parts) else ""


def _substr_index(text: str, separator: str, count: int) -> str:
    if not separator or not count:
        return ""
    parts = text.split(separator)
    return separator.join(parts[:count] if count > 0 else parts[max(0, len(parts) + count) :])


def _initcap(text: str) -> str:
    made: list[str] = []
    starts = True
    for character in text:
        made.append(character.upper() if starts else character.lower())
        starts = not character.isalnum()
    return "".join(made)


def _translate(text: str, given: str, wanted: str) -> str:
    table: dict[int, int | None] = {}
    for at, character in enumerate(given):
        table.setdefault(ord(character), ord(wanted[at]) if at < len(wanted) else None)
    return text.translate(table)


# -- search -------------------------------------------------------------------------------------------------


def _find_in_set(text: str, among: str) -> int:
    parts = among.split(",") if among else []
    return parts.index(text) + 1 if text in parts else 0


_MOST_PAIRS = 100_000_000
"""Characters times characters that `levenshtein` compares for one row: about a second."""
_FEW_PAIRS = 1000
"""Below that plain Python is faster than arrays."""


def _levenshtein(one_text: str, other: str) -> int:
    """Row by row of the usual table. What comes from the left costs one a step, so that the least of a row is
    a running minimum of (cost - place)."""
    short, long = sorted((one_text, other), key=len)
    if len(short) * len(long) > _MOST_PAIRS:
        raise ValueError(
            f"texts of {len(short):,} and {len(long):,} characters; their product may be {_MOST_PAIRS:,}"
        )
    if len(short) * len(long) < _FEW_PAIRS:
        line = list(range(len(long) + 1))
        for i, a in enumerate(short, 1):
            above, line[0] = line[0], i
            for j, b in enumerate(long, 1):
                above, line[j] = line[j], min(line[j] + 1, line[j - 1] + 1, above + (a != b))
        return line[-1]
    codes = np.array([ord(each) for each in long], np.int64)
    places = np.arange(len(long) + 1)
    row = places.copy()
    for i, code in enumerate(map(ord, short), 1):
        best = np.minimum(row[1:] + 1, row[:-1] + (codes != code))
        row = np.minimum.accumulate(np.concatenate(([i], best)) - places) + places
    return int(row[-1])


_TOKEN = re.compile(r"[^\W_]+")


def _contains_tokens(text: str, wanted: str) -> bool:
    """Whether every word of `wanted` is a word of the text; words are runs of letters and digits."""
    return set(_TOKEN.findall(wanted)) <= set(_TOKEN.findall(text))


# -- numbers and bytes --------------------------------------------------------------------------------------


def _chr(code: int) -> str:
    if not 0 <= code < 0x110000 or 0xD800 <= code < 0xE000:
        raise ValueError(f"{code} is the number of no character")
    return chr(code)


def _to_hex(number: int) -> str:
    return f"{number & (1 << 64) - 1:x}" if number < 0 else f"{number:x}"


def _bytes_of(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _encode(value: str | bytes, form: str) -> str:
    if form == "hex":
        return _bytes_of(value).hex()
    if form in ("base64", "base64pad"):
        made = base64.b64encode(_bytes_of(value)).decode()
        return made if form == "base64pad" else made.rstrip("=")
    raise ValueError(f"{form!r} is no encoding: choose hex, base64 or base64pad")


def _decode(value: str | bytes, form: str) -> bytes:
    given = _bytes_of(value)
    try:
        if form == "hex":
            return bytes.fromhex(given.decode("ascii"))
        if form in ("base64", "base64pad"):
            return base64.b64decode(given.rstrip(b"=") + b"=" * (-len(given.rstrip(b"=")) % 4), validate=True)
    except (binascii.Error, UnicodeDecodeError, ValueError) as error:
        raise ValueError(f"{value!r} is not written in {form}: {error}") from error
    raise ValueError(f"{form!r} is no encoding: choose hex, base64 or base64pad")


def _digest(value: str | bytes, algorithm: str) -> bytes:
    name = algorithm.lower()
    if name not in _DIGESTS:
        raise ValueError(f"{algorithm!r} is no digest: choose one of {', '.join(_DIGESTS)}")
    return hashlib.new(name, _bytes_of(value), usedforsecurity=False).digest()


def _hashed(name: str) -> Callable[[str | bytes], bytes]:
    return lambda value: _digest(value, name)


# -- joining ------------------------------------------------------------------------------------------------


def _concat_ws(args: Sequence[Any], rows: int) -> Any:
    import pyarrow.compute as pc

    wide = pa.string() if all(pa.types.is_string(arg.type) for arg in args) else pa.large_string()
    separator, *parts = (array_of(arg, rows).cast(wide) for arg in args)
    known = np.stack([part.is_valid().to_numpy(zero_copy_only=False) for part in parts])
    places = np.arange(known.size).reshape(known.shape).T[known.T]
    lists = lists_of(pa.concat_arrays(parts), places, known.sum(axis=0), np.ones(rows, np.bool_))
    return pc.binary_join(lists, separator)


def _replace(args: Sequence[Any], rows: int) -> Any:
    import pyarrow.compute as pc

    if all(isinstance(arg, pa.Scalar) and arg.as_py() for arg in args[1:2]) and isinstance(
        args[2], pa.Scalar
    ):
        given, wanted = args[1].as_py(), args[2].as_py()
        if wanted is not None:
            return pc.replace_substring(array_of(args[0], rows), given, wanted)
    return by_value(lambda text, old, new: text.replace(old, new))(args, rows)


_COUNT = (TEXT, WHOLE)
_PAD = (TEXT, WHOLE, TEXT)
_INT = pa.int32()


def _bits(args: Sequence[Any], rows: int) -> Any:
    import pyarrow.compute as pc

    return pc.multiply_checked(pc.binary_length(args[0]).cast(_INT), pa.scalar(8, _INT))


SIGNATURES: dict[str, Signature] = {
    "ascii": texts(1, 1, by_value(lambda text: ord(text[0]) if text else 0, _INT)),
    "bit_length": texts(1, 1, _bits),
    "chr": one(WHOLE, by_value(_chr, pa.string())),
    "concat_ws": Signature((TEXT | {Kind.NULL},), 2, None, _concat_ws, as_text=True),
    "contains_tokens": texts(2, 2, by_value(_contains_tokens, pa.bool_())),
    "find_in_set": texts(2, 2, by_value(_find_in_set, _INT)),
    "initcap": texts(1, 1, by_value(_initcap)),
    "left": Signature(_COUNT, 2, 2, by_value(_left)),
    "right": Signature(_COUNT, 2, 2, by_value(_right)),
    "levenshtein": texts(2, 2, by_value(_levenshtein, _INT)),
    "lpad": Signature(_PAD, 2, 3, by_value(_lpad)),
    "rpad": Signature(_PAD, 2, 3, by_value(_rpad)),
    "overlay": Signature((TEXT, TEXT, WHOLE), 3, 4, by_value(_overlay)),
    "repeat": Signature(_COUNT, 2, 2, by_value(_repeat)),
    "replace": texts(3, 3, _replace),
    "split_part": Signature((TEXT, TEXT, WHOLE), 3, 3, by_value(_split_part)),
    "strpos": texts(2, 2, by_value(lambda text, part: text.find(part) + 1, _INT)),
    "substr_index": Signature((TEXT, TEXT, WHOLE), 3, 3, by_value(_substr_index)),
    "to_hex": one(WHOLE, by_value(_to_hex, pa.string())),
    "translate": texts(3, 3, by_value(_translate)),
    "encode": Signature((BYTES, TEXT), 2, 2, by_value(_encode, pa.string())),
    "decode": Signature((BYTES, TEXT), 2, 2, by_value(_decode, pa.binary())),
    "md5": one(BYTES, by_value(lambda value: _digest(value, "md5").hex(), pa.string())),
    **{
        name: one(BYTES, by_value(_hashed(name), pa.binary()))
        for name in ("sha224", "sha256", "sha384", "sha512")
    },
    "digest": Signature((BYTES, TEXT), 2, 2, by_value(_digest, pa.binary())),
}

ALIASES = {
    "instr": "strpos",
    "position": "strpos",
    "substring_index": "substr_index",
}
