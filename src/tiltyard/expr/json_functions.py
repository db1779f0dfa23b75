"""Functions over JSON columns, which hold the binary form of `format/jsonb.py`.

`json_extract`, `json_exists`, `json_array_...` take a path (`json_path.py`); `json_get` and its forms a name,
or the number of an element. A value that is not there is null; one that cannot become the type that is asked
for is an error, as in the official package.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from tiltyard.errors import CorruptFile
from tiltyard.expr.coerce import Kind, Mismatch
from tiltyard.expr.json_path import Found, json_path
from tiltyard.expr.signatures import Run, Signature, by_value
from tiltyard.format import jsonb
from tiltyard.format.jsonb import Place

_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_REAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_JSON = pa.large_binary()


def _checked(of: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose refusals are told as those of other functions."""

    def run(*args: Any) -> Any:
        try:
            return of(*args)
        except (Mismatch, CorruptFile) as error:
            raise ValueError(str(error)) from error

    return run


# -- by path ----------------------------------------------------------------------------------------------


def _selected(data: bytes, path: str) -> bytes | None:
    """What a path names as one document: several values as an array."""
    found = json_path(path).select(data)
    if not found:
        return None
    if len(found) == 1:
        return jsonb.bytes_at(*found[0])
    return jsonb.array_of([_payload(each) for each in found])


def _payload(found: Found) -> tuple[int, bytes]:
    data, at = found
    return at.kind, data[at.start : at.start + at.length]


def _extract(data: bytes, path: str) -> str | None:
    found = _selected(data, path)
    return None if found is None else jsonb.text_of(found)


def _exists(data: bytes, path: str) -> bool:
    return bool(json_path(path).select(data))


def _array_length(data: bytes, path: str) -> int | None:
    """The length of the first value that the path names, 0 where that is no array."""
    found = json_path(path).select(data)
    return len(jsonb.elements(*found[0]) or ()) if found else None


def _array_contains(data: bytes, path: str, wanted: str) -> bool:
    """Whether an array that the path names has an element whose text is `wanted`, in quotes or without."""
    return any(
        jsonb.text_at(document, each) == wanted
        or (each.kind == jsonb.TEXT and jsonb.scalar(document, each) == wanted)
        for document, at in json_path(path).select(data)
        for each in jsonb.elements(document, at) or ()
    )


_TAGS = {jsonb.NULL: 0, jsonb.FALSE: 1, jsonb.TRUE: 1, jsonb.TEXT: 4}
_TYPED = pa.struct([pa.field("value", _JSON), pa.field("type_tag", pa.uint8(), nullable=False)])


def _with_type(data: bytes, path: str) -> dict[str, Any]:
    """A value and the number of its kind: 0 null, 1 boolean, 2 and 3 whole and other numbers, 4 text, 5 an
    array, 6 an object."""
    found = _selected(data, path)
    if found is None:
        return {"value": None, "type_tag": 0}
    at = jsonb.root(found)
    if at.kind == jsonb.CONTAINER:
        tag = 6 if jsonb.elements(found, at) is None else 5
    elif at.kind == jsonb.NUMBER:
        number = jsonb.scalar(found, at)
        tag = 2 if isinstance(number, int) and number < 2**63 else 3
    else:
        tag = _TAGS[at.kind]
    return {"value": found, "type_tag": tag}


# -- by name ----------------------------------------------------------------------------------------------


def _child(data: bytes, name: str) -> Place | None:
    top = jsonb.root(data)
    inside = jsonb.elements(data, top)
    if inside is not None:
        at = int(name) if name.isdecimal() and name.isascii() and len(name) < 10 else len(inside)
        return inside[at] if at < len(inside) else None
    wanted = name.encode()
    return next((each for key, each in jsonb.members(data, top) or () if key == wanted), None)


def _get(data: bytes, name: str) -> bytes | None:
    found = _child(data, name)
    return None if found is None else jsonb.bytes_at(data, found)


def _got(read: Callable[[Any], Any], of: str) -> Callable[[bytes, str], Any]:
    """A child as a value that `read` makes of it, which gives None for what it cannot be."""

    def get(data: bytes, name: str) -> Any:
        at = _child(data, name)
        if at is None or at.kind == jsonb.NULL:
            return None
        value = None if at.kind == jsonb.CONTAINER else read(jsonb.scalar(data, at))
        if value is None:
            shown = jsonb.text_at(data, at)
            shown = shown if len(shown) <= 60 else f"{shown[:60]}..."
            raise ValueError(f"the JSON value {shown} is no {of}: ask for it with json_get or json_extract")
        return value

    return get


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return jsonb.float_text(value, "+") if math.isfinite(value) else str(value).replace("nan", "NaN")
    return str(value)


def _as_int(value: Any) -> int | None:
    if isinstance(value, str):
        if not _REAL.fullmatch(value):
            return None
        value = int(value) if _WHOLE.fullmatch(value) and len(value) < 40 else float(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        value = int(math.copysign(math.floor(abs(value) + 0.5), value))  # halves away from zero
    value = int(value)
    return value if -(2**63) <= value < 2**63 else None


def _as_float(value: Any) -> float | None:
    if isinstance(value, str):
        return float(value) if _REAL.fullmatch(value) else None
    return float(value)


def _as_bool(value: Any) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.lower())
    return value if isinstance(value, bool) else None


_ARGUMENTS = (frozenset({Kind.BINARY}), frozenset({Kind.TEXT}))


def _of_json(of: Callable[..., Any], arrow: pa.DataType, arguments: int = 2) -> Signature:
    run: Run = by_value(_checked(of), arrow)
    return Signature(_ARGUMENTS, arguments, arguments, run, as_text=True)


def _typed(args: Sequence[Any], rows: int) -> Any:
    found = by_value(_checked(_with_type), _TYPED)(args, rows)
    tags = found.field("type_tag").fill_null(0)
    return pa.StructArray.from_arrays([found.field("value"), tags], fields=list(_TYPED))


SIGNATURES: dict[str, Signature] = {
    "json_extract": _of_json(_extract, pa.string()),
    "json_extract_with_type": Signature(_ARGUMENTS, 2, 2, _typed, as_text=True),
    "json_exists": _of_json(_exists, pa.bool_()),
    "json_get": _of_json(_get, _JSON),
    "json_get_string": _of_json(_got(_as_text, "text"), pa.string()),
    "json_get_int": _of_json(_got(_as_int, "64-bit integer"), pa.int64()),
    "json_get_float": _of_json(_got(_as_float, "number"), pa.float64()),
    "json_get_bool": _of_json(_got(_as_bool, "boolean"), pa.bool_()),
    "json_array_contains": _of_json(_array_contains, pa.bool_(), 3),
    "json_array_length": _of_json(_array_length, pa.int64()),
}
