"""What requests carry outside their bodies: ids in paths, parameters in queries, both ways.

Source: namespace pack, sections 6.1 and 6.4.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from tiltyard.catalog.rest.routes import DELIMITER
from tiltyard.dataset.arguments import shown
from tiltyard.errors import InvalidInput

KEY_HEADER = "idempotency-key"
"""One for each change: a repetition of it has the same."""

SERVER_HEADER = "tiltyard-server"
"""In an answer: the process that gave it; in a request: the only one that may do it."""

OTHER_PROCESS = 421
"""The status by which another process than the named one refuses, before anything."""

MAX_DELIMITER = 16
"""Characters."""

FLAGS = frozenset(
    (
        "include_declared",
        "with_table_uri",
        "load_detailed_metadata",
        "check_declared",
        "descending",
        "use_index",
        "when_matched_update_all",
        "when_not_matched_insert_all",
        "when_not_matched_by_source_delete",
    )
)
WHOLE = frozenset(("limit", "version"))
MAPS = frozenset(("properties", "storage_options"))
SEVERAL = frozenset(("on",))
MAX_DIGITS = 19


def decoded(text: str, name: str) -> str:
    """Percent-encoded text as it was; `+` is a space, as the official client writes one. Raises
    `InvalidInput` for bytes that are no UTF-8.
    """
    try:
        return unquote_to_bytes(text.replace("+", " ")).decode("utf-8")
    except UnicodeError as error:
        raise InvalidInput(f"{name} is not UTF-8 in percent-encoding, found {shown(text)}") from error


def encoded(text: str) -> str:
    """Text as it stands in a path or a query, a space as `%20`, which every server reads alike."""
    return quote(text, safe="")


def parts_of_path(segment: str, delimiter: str) -> tuple[str, ...]:
    """The id that a segment of a path says; the delimiter alone, or nothing, is the root."""
    joined = decoded(segment, "the id in the path")
    return () if joined in ("", delimiter) else tuple(joined.split(delimiter))


def joined(id: Iterable[str], delimiter: str = DELIMITER) -> str:
    """An id as one text. Raises `InvalidInput` for a part in which the delimiter stands: it would be read as
    two.
    """
    parts = tuple(id)
    if (odd := next((part for part in parts if delimiter in part), None)) is not None:
        raise InvalidInput(
            f"{odd!r} has the delimiter {delimiter!r} in it, so that it cannot stand in a path of the REST "
            "catalog; give the client another `delimiter`"
        )
    return delimiter.join(parts) or delimiter


def pairs_of(query: str) -> list[tuple[str, str]]:
    """The parameters of a query, in their order."""
    pairs = []
    for part in query.split("&"):
        if part:
            name, _, value = part.partition("=")
            pairs.append(
                (decoded(name, "a parameter's name"), decoded(value, f"the parameter {shown(name)}"))
            )
    return pairs


def delimiter_of(pairs: Iterable[tuple[str, str]]) -> str:
    """What separates the parts of ids. Raises `InvalidInput` for none and for one that is too long."""
    given = next((value for name, value in pairs if name == "delimiter"), DELIMITER)
    if not 1 <= len(given) <= MAX_DELIMITER:
        raise InvalidInput(
            f"the parameter 'delimiter' has 1 to {MAX_DELIMITER} characters, found {shown(given)}"
        )
    return given


def fields_of_query(pairs: Iterable[tuple[str, str]], known: Iterable[str]) -> dict[str, Any]:
    """The known parameters as the fields of a request; others are left aside, of one that stands there twice
    the last counts. Raises `InvalidInput` for a value of the wrong kind.
    """
    wanted = frozenset(known)
    fields: dict[str, Any] = {}
    for name, text in pairs:
        if name not in wanted:
            continue
        if name in SEVERAL:
            fields.setdefault(name, []).append(text)
        else:
            fields[name] = _value(name, text)
    return fields


def _value(name: str, text: str) -> Any:
    if name in FLAGS:
        if text not in ("true", "false"):
            raise InvalidInput(f"the parameter {name!r} is true or false, found {shown(text)}")
        return text == "true"
    if name in WHOLE:
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= MAX_DIGITS):
            raise InvalidInput(f"the parameter {name!r} is a whole number, found {shown(text)}")
        return int(text)
    if name in MAPS:
        return _map(name, text)
    return text


def _map(name: str, text: str) -> Any:
    if not text:
        return None
    return json_of(text.encode(), f"the parameter {name!r}")


def query_of(fields: Mapping[str, Any], known: Iterable[str]) -> list[tuple[str, str]]:
    """The parameters that say these fields; those without a value are left out."""
    pairs: list[tuple[str, str]] = []
    for name in known:
        value = fields.get(name)
        if value is None:
            continue
        if name in SEVERAL:
            pairs += [(name, each) for each in ([value] if isinstance(value, str) else value)]
        elif name in MAPS:
            pairs.append((name, json.dumps(dict(value))))
        elif isinstance(value, bool):
            pairs.append((name, "true" if value else "false"))
        else:
            pairs.append((name, str(value)))
    return pairs


def json_of(body: bytes, name: str) -> Any:
    """The value that JSON bytes say. Raises `InvalidInput` for what is no JSON, and for `NaN` and the like,
    which are none.
    """
    try:
        return json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:  # also of numbers too long to read
        raise InvalidInput(f"{name} is no JSON: {error}") from error


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no JSON number")
