"""Texts cast to dates and timestamps: ISO forms, with or without a time, an offset or the name of a zone."""

from __future__ import annotations

import re

import pyarrow as pa

from tiltyard.expr.coerce import DAY_NANOS, Mismatch, local_to_utc, read_instant, unit_nanos

_SHORT = re.compile(r"(\d{4})(\d{2})(\d{2})")
_NAMED = re.compile(r"(.*\d:\d\d(?:\.\d+)?)\s*([A-Za-z][\w/+-]+)")
_CAPITAL = re.compile(r"(?<=\d)t(?=\d)")
_LIMIT = {32: 2**31, 64: 2**63}


def moments(array: pa.Array, target: pa.DataType, lenient: bool) -> pa.Array:
    """Texts as dates or timestamps. A date is that of the instant in UTC where the text has an offset; a
    timestamp with a zone is what clocks there show where it has none.

    Raises `pa.ArrowInvalid` for a text that is none; `lenient`: null there.
    """
    coded = array.dictionary_encode()
    found: list[int | None] = []
    for text in coded.dictionary.to_pylist():
        try:
            found.append(None if text is None else _read(text, target))
        except Mismatch as error:
            if not lenient:
                raise pa.ArrowInvalid(str(error)) from error
            found.append(None)
    storage = pa.int32() if target.bit_width == 32 else pa.int64()
    return pa.array(found, storage).cast(target).take(coded.indices)


def _read(text: str, target: pa.DataType) -> int:
    """The number that stands for the text in a date or timestamp type."""
    written = text.strip().removeprefix("+")
    short = _SHORT.fullmatch(written)
    if short is not None:
        written = "-".join(short.groups())
    zone = getattr(target, "tz", None)
    named = _NAMED.fullmatch(written)
    if named is not None:
        written, zone = named.groups()
    nanos, is_utc, _ = read_instant(_CAPITAL.sub("T", written))
    if zone is not None and not is_utc:
        nanos = local_to_utc(nanos, zone)
    if pa.types.is_date(target):
        nanos -= nanos % DAY_NANOS
    found = nanos // unit_nanos(target)
    if not -_LIMIT[target.bit_width] <= found < _LIMIT[target.bit_width]:
        raise Mismatch(f"{text!r} is out of the range of {target}")
    return found
