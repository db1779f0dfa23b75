"""JSON text brought to the binary form in which tables hold it, wherever in a column it stands."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import types

from tiltyard.errors import InvalidInput
from tiltyard.format import jsonb
from tiltyard.format.logical_types import says_json
from tiltyard.format.nested import mapped, parts, rebuilt

JSON_ADVICE = "give it as text, as json.dumps(value) makes it of a value"
"""What to do with values for a JSON column that are no text."""


def is_text(arrow: Any) -> bool:
    """Whether values of a type are texts."""
    return bool(types.is_string(arrow) or types.is_large_string(arrow) or types.is_string_view(arrow))


def json_form(given: Any, wanted: Any) -> Any:
    """The type that values of type `given` have when their JSON text is in its binary form, for the table's
    Arrow field `wanted`; `given` itself where there is none.
    """
    storage = given.storage_type if isinstance(given, pa.BaseExtensionType) else given
    if says_json(wanted):
        return wanted.type if is_text(storage) else given
    pairs = _pairs(storage, wanted.type)
    if pairs is None:
        return given
    made = [part if into is None else part.with_type(json_form(part.type, into)) for part, into in pairs]
    same = all(new.type.equals(part.type) for new, (part, _) in zip(made, pairs, strict=True))
    return given if same else rebuilt(storage, made)


def in_json_form(array: Any, wanted: Any, column: str) -> Any:
    """The array as type `json_form`. Raises `InvalidInput`, naming the column, for text that is no JSON."""
    kind = json_form(array.type, wanted)
    if kind is array.type or kind.equals(array.type):
        return array
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    pairs = _pairs(array.type, wanted.type)
    if not pairs:
        return _from_texts(array, column)

    def change(values: Any, at: int) -> Any:
        part, into = pairs[at]
        named = f"{column}.{part.name}" if types.is_struct(kind) else column
        return values if into is None else in_json_form(values, into, named)

    return mapped(array, kind, change)


def _pairs(given: Any, wanted: Any) -> list[tuple[Any, Any]] | None:
    """Each part of a nested type with the part of the other type that it goes to, None where there is none;
    nothing where the types are not of one make.
    """
    ours, theirs = parts(given), parts(wanted)
    if types.is_struct(given) and types.is_struct(wanted):
        by_name = {each.name: each for each in theirs}
        return [(each, by_name.get(each.name)) for each in ours]
    if types.is_struct(given) or types.is_struct(wanted) or len(ours) != len(theirs) or not ours:
        return None
    return list(zip(ours, theirs, strict=True))


def _from_texts(array: Any, column: str) -> Any:
    try:
        made = [None if text is None else jsonb.from_text(text) for text in array.to_pylist()]
    except InvalidInput as error:
        raise InvalidInput(f"column {column!r}: {error}") from error
    return pa.array(made, pa.large_binary())
