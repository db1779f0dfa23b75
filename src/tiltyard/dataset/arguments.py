"""Arguments of the public faces, checked by kind before anything is read or written.

Each function takes the argument's name and value and gives the value in the one form that the layers below
take; for everything else it raises `WrongType` or `InvalidInput`, which name the argument, what is expected
and what was found. All of them are cheap enough for every call.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np

from tiltyard.errors import InvalidInput, WrongType

MAX_U32 = (1 << 32) - 1
MAX_U64 = (1 << 64) - 1
SHOWN_CHARACTERS = 60
SHOWN_BITS = 200
"""Greater numbers are told by their size."""

T = TypeVar("T")


def shown(value: Any) -> str:
    """A value as messages show it: its type, and the value itself where that is short and safe to tell."""
    kind = type(value).__name__
    if isinstance(value, int) and value.bit_length() > SHOWN_BITS:
        return f"an {kind} of {value.bit_length()} bits"
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    if isinstance(value, (str, bytes)):
        text = repr(value[:SHOWN_CHARACTERS])
        return f"the {kind} {text}" + ("..." if len(value) > SHOWN_CHARACTERS else "")
    return f"a value of type {kind}"


def wrong(name: str, expected: str, value: Any) -> WrongType:
    """The error for an argument of the wrong type, to be raised."""
    return WrongType(f"{name} must be {expected}, found {shown(value)}")


def whole(name: str, value: Any, low: int = 0, high: int = MAX_U64) -> int:
    """A whole number from `low` to `high`: an int, a NumPy integer, anything with `__index__`; no bool."""
    if type(value) is not int:
        if isinstance(value, (bool, np.bool_)):
            raise wrong(name, "a whole number", value)
        try:
            value = operator.index(value)
        except Exception as error:  # whatever a caller's class raises: it is no number
            raise wrong(name, "a whole number", value) from error
    number: int = value
    if not low <= number <= high:
        told = f"from {low} to {high}" if number > high or low < 0 else "positive" if low else "non-negative"
        raise InvalidInput(f"{name} must be {told}, found {shown(number)}")
    return number


def flag(name: str, value: Any) -> bool:
    """True or False, also NumPy's."""
    if value is True or value is False:
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    raise wrong(name, "True or False", value)


def maybe_whole(name: str, value: Any, low: int = 0, high: int = MAX_U64) -> int | None:
    """A whole number, or None."""
    return None if value is None else whole(name, value, low, high)


def maybe_flag(name: str, value: Any) -> bool | None:
    """True, False or None."""
    return None if value is None else flag(name, value)


def maybe_text(name: str, value: Any) -> str | None:
    """A text, or None."""
    return None if value is None else text(name, value)


def text(name: str, value: Any) -> str:
    """A text that UTF-8 can write: half a surrogate pair cannot be."""
    if not isinstance(value, str):
        raise wrong(name, "text", value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidInput(
                f"{name} must be text that can be written as UTF-8, found half a surrogate pair at character "
                f"{error.start} of {shown(value)}"
            ) from error
    return value


def one_of(name: str, value: Any, *choices: str) -> str:
    """One of a few words."""
    if not isinstance(value, str):
        raise wrong(name, " or ".join(map(repr, choices)), value)
    if value not in choices:
        *others, last = map(repr, choices)
        raise InvalidInput(f"{name} must be {', '.join(others)} or {last}, found {shown(value)}")
    return value


def seconds(name: str, value: Any) -> float:
    """A span of time in seconds: a number of seconds or a `timedelta`, not negative, finite."""
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, (bool, np.bool_)) or not isinstance(number, (int, float, np.integer, np.floating)):
        raise wrong(name, "a number of seconds or a timedelta", value)
    try:
        span = float(number)
    except OverflowError:
        span = math.inf
    if not (span >= 0 and math.isfinite(span)):
        raise InvalidInput(f"{name} must be a finite, non-negative number of seconds, found {shown(value)}")
    return span


def maybe_function(name: str, value: Any) -> Any:
    """Something that can be called, or None."""
    if value is not None and not callable(value):
        raise wrong(name, "a function", value)
    return value


def items(name: str, value: Any, kind: type[T]) -> list[T]:
    """A list of instances of a class, from any iterable of them."""
    expected = "a list" if kind is object else f"a list of {kind.__name__}"
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise wrong(name, expected, value)
    found = list(value)
    for at, each in enumerate(found):
        if not isinstance(each, kind):
            raise wrong(f"{name}[{at}]", f"a {kind.__name__}", each)
    return found


def wholes(name: str, value: Any, low: int = 0, high: int = MAX_U64) -> list[int]:
    """A list of whole numbers, from any iterable of them."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise wrong(name, "a list of whole numbers", value)
    return [whole(f"{name}[{at}]", each, low, high) for at, each in enumerate(value)]


def texts(name: str, value: Any) -> list[str]:
    """A list of texts, from any iterable of them that is no text itself."""
    if type(value) is not list and (
        isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable)
    ):
        raise wrong(name, "a list of texts", value)
    found = list(value)
    for each in found:
        if type(each) is not str or not each.isascii():
            return [text(f"{name}[{at}]", one) for at, one in enumerate(found)]
    return found


def instance(name: str, value: Any, kind: type[T]) -> T:
    """An instance of a class."""
    if not isinstance(value, kind):
        raise wrong(name, f"a {kind.__name__}", value)
    return value


def mapping(name: str, value: Any) -> dict[str, Any]:
    """A map from text to anything, as a dict of its own."""
    if not isinstance(value, Mapping):
        raise wrong(name, "a map from text", value)
    return {text(f"a key of {name}", key): each for key, each in value.items()}


def text_map(name: str, value: Any) -> dict[str, str]:
    """A map from text to text, as a dict of its own."""
    return {key: text(f"{name}[{key!r}]", each) for key, each in mapping(name, value).items()}


def expressions(name: str, value: Any) -> dict[str, str]:
    """A map from columns to SQL expressions, as a dict of its own."""
    found = mapping(name, value)
    for key, each in found.items():
        if not isinstance(each, str):
            expected = 'an SQL expression as text, such as "5", "NULL", "\'a text\'" or "price * 2"'
            raise wrong(f"{name}[{key!r}]", expected, each)
    return {key: text(f"{name}[{key!r}]", each) for key, each in found.items()}


def text_updates(name: str, value: Any) -> dict[str, str | None]:
    """A map from text to text, or to None (which deletes the key)."""
    return {
        key: None if each is None else text(f"{name}[{key!r}]", each)
        for key, each in mapping(name, value).items()
    }


def columns(name: str, value: Any) -> list[str] | dict[str, str] | None:
    """Columns of a scan or take: names, or a map from names to SQL; None is all of them."""
    if value is None:
        return None
    if type(value) is list:
        return texts(name, value)
    if isinstance(value, Mapping):
        return text_map(name, value)
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise wrong(name, "a list of names or a map from names to SQL expressions", value)
    return texts(name, value)
