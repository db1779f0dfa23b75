"""Functions of texts: parts, padding, search, regular expressions, digests.

Positions count characters from 1. Regular expressions are those of RE2, but for `regexp_instr`, which has
Python's. What Arrow has no kernel for is computed once for each distinct text.
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
    by_pattern,
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


def _levenshtein(one_text: str, other: str) -> int:
    row = list(range(len(other) + 1))
    for i, a in enumerate(one_text, 1):
        above, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (a != b))
    return row[-1]


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


# -- regular expressions ------------------------------------------------------------------------------------

_FLAGS = frozenset("gimsx")
_CLASS = r"\[\^?\]?(?:\\.|[^\]\\])*\]"
_PIECE = re.compile(rf"\\.|{_CLASS}|\((?!\?)|\(\?P?<(?![=!])\w+>|\(\?|.", re.DOTALL)
_OPENS = re.compile(r"\(\?P?<\w+>")
_REFERENCE = re.compile(r"\\(\d)|\$(?:(\w+)|\{(\w+)\})|\\")


def _flagged(pattern: str, flags: str) -> str:
    unknown = set(flags) - _FLAGS
    if unknown:
        raise pa.ArrowInvalid(f"{sorted(unknown)[0]!r} is no flag of a regular expression: i, m, s, x, g are")
    if "x" in flags:
        raise pa.ArrowInvalid("the flag x (free spacing) is not part of these regular expressions")
    kept = "".join(sorted(set(flags) - {"g"}))
    return f"(?{kept}){pattern}" if kept else pattern


def _flags_of(args: Sequence[Any], at: int) -> str | None:
    return "" if len(args) <= at else args[at].as_py()


def _like_regex(args: Sequence[Any], rows: int) -> Any:
    import pyarrow.compute as pc

    flags = _flags_of(args, 2)
    if flags is None:
        return pa.nulls(rows, pa.bool_())
    return by_pattern(
        lambda column, pattern: pc.match_substring_regex(column, _flagged(pattern, flags)), pa.bool_()
    )(args, rows)


def _replacement(text: str, pattern: str) -> str:
    r"""A replacement with references as `$1`, `${1}`, `$name` or `\1` in the form that RE2 takes."""
    groups = [
        match.group()
        for match in _PIECE.finditer(pattern)
        if match.group() == "(" or _OPENS.match(match.group())
    ]
    names = {group.strip("(?P<>"): number for number, group in enumerate(groups, 1) if group != "("}

    def written(match: re.Match[str]) -> str:
        found = match[1] or match[2] or match[3]
        if found is None:
            return "\\\\"
        number = found if found.isdecimal() else names.get(found)
        if number is None or int(number) > len(groups):
            return ""
        return f"\\{number}"

    return _REFERENCE.sub(written, text)


def _regexp_replace(args: Sequence[Any], rows: int) -> Any:
    import pyarrow.compute as pc

    pattern, by, flags = args[1].as_py(), args[2].as_py(), _flags_of(args, 3)
    if pattern is None or by is None or flags is None:
        return pa.nulls(rows, args[0].type)
    return pc.replace_substring_regex(
        array_of(args[0], rows),
        _flagged(pattern, flags),
        _replacement(by, pattern),
        max_replacements=-1 if "g" in flags else 1,
    )


def _named(pattern: str) -> tuple[str, int]:
    """The pattern with a name for each group, or for the whole where it has none, and their number."""
    count = 0

    def name(match: re.Match[str]) -> str:
        nonlocal count
        piece = match.group()
        if piece == "(" or piece.endswith(">"):
            count += 1
            return f"(?P<g{count}>"
        return piece

    found = _PIECE.sub(name, pattern)
    return (found, count) if count else (f"(?P<g1>{pattern})", 1)


def _regexp_match(args: Sequence[Any], rows: int) -> Any:
    import pyarrow.compute as pc

    flags = _flags_of(args, 2)
    arrow = pa.list_(args[0].type)

    def groups(column: pa.Array, pattern: str) -> pa.Array:
        named, count = _named(pattern)
        found = pc.extract_regex(column, _flagged(named, flags or ""))
        parts = found.flatten()
        flat = pa.concat_arrays(parts)
        places = np.arange(len(flat)).reshape(count, len(column)).T.reshape(-1)
        known = found.is_valid().to_numpy(zero_copy_only=False)
        return lists_of(flat, places, np.full(len(column), count), known)

    if flags is None:
        return pa.nulls(rows, arrow)
    return by_pattern(groups, arrow)([array_of(args[0], rows), *args[1:]], rows)


def _from(column: pa.Array, start: Any) -> pa.Array:
    import pyarrow.compute as pc

    first = start.as_py()
    if first is None or first < 1:
        raise pa.ArrowInvalid("the place at which a search begins counts from 1")
    return pc.utf8_slice_codeunits(column, start=first - 1) if first > 1 else column


def _regexp_count(args: Sequence[Any], rows: int) -> Any:
    import pyarrow.compute as pc

    column = array_of(args[0], rows)
    if len(args) > 2:
        column = _from(column, args[2])
    flags = _flags_of(args, 3)
    if flags is None:
        return pa.nulls(rows, pa.int64())
    found = by_pattern(
        lambda texts, pattern: pc.count_substring_regex(texts, _flagged(pattern, flags)).cast(pa.int64()),
        pa.int64(),
    )([column, args[1]], rows)
    return found.fill_null(0)


def _regexp_instr(text: str, pattern: str, start: int = 1, number: int = 1, flags: str = "") -> int:
    if start < 1 or number < 1:
        raise ValueError("the place at which a search begins and the number of a match count from 1")
    try:
        # what lies before the start is not looked at, so that ^ means the start
        matches = re.finditer(_flagged(pattern, flags), text[start - 1 :])
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
    for count, match in enumerate(matches, 1):
        if count == number:
            return start + match.start()
    return 0


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
    "regexp_like": Signature((TEXT,), 2, 3, _like_regex, frozenset({2})),
    "regexp_match": Signature((TEXT,), 2, 3, _regexp_match, frozenset({2})),
    "regexp_replace": Signature((TEXT,), 3, 4, _regexp_replace, frozenset({1, 2, 3})),
    "regexp_count": Signature((TEXT, TEXT, WHOLE, TEXT), 2, 4, _regexp_count, frozenset({2, 3})),
    "regexp_instr": Signature((TEXT, TEXT, WHOLE, WHOLE, TEXT), 2, 5, by_value(_regexp_instr, pa.int64())),
}

ALIASES = {
    "instr": "strpos",
    "position": "strpos",
    "substring_index": "substr_index",
}
