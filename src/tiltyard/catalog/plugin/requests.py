"""Requests of the interface, read: models or mappings, field by field, with our errors for what is wrong.

lancedb's native part sends dicts that hold only what is set; pylance and Python callers send models, whose
`model_dump()` holds every field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tiltyard.dataset import arguments
from tiltyard.errors import InvalidInput

MAX_PARTS = 64
"""Levels of namespaces that an id may have."""


class Given:
    """The fields of one request."""

    __slots__ = ("_fields", "operation")

    def __init__(self, operation: str, request: Any) -> None:
        self.operation = operation
        self._fields = fields_of(request, f"the request of {operation}")

    def fields(self) -> dict[str, Any]:
        """All fields that were given."""
        return {name: each for name, each in self._fields.items() if each is not None}

    def field(self, name: str) -> Any:
        """A field as it was given; None for one that was not."""
        return self._fields.get(name)

    def _name(self, name: str) -> str:
        return f"{name!r} of {self.operation}"

    # -- ids -------------------------------------------------------------------------------------

    def namespace(self) -> tuple[str, ...]:
        """The id of a namespace; () is the root."""
        found = self._id()
        if found is None:
            raise InvalidInput(f"Namespace ID is required for {self.operation}; [] is the root namespace")
        return found

    def table(self) -> tuple[str, ...]:
        """The id of a table, which has at least its name."""
        found = self._id()
        if found is None:
            raise InvalidInput(f"Table ID is required for {self.operation}")
        if not found:
            raise InvalidInput(f"Table ID cannot be empty in {self.operation}: it names a table")
        return found

    def maybe_id(self) -> tuple[str, ...] | None:
        """An id, or None where there is none."""
        return self._id()

    def _id(self) -> tuple[str, ...] | None:
        value = self._fields.get("id")
        if value is None:
            return None
        return parts_of(value, self._name("id"))

    # -- values ----------------------------------------------------------------------------------

    def text(self, name: str) -> str:
        """A text that must be there."""
        value = self._fields.get(name)
        if value is None:
            raise InvalidInput(f"{self.operation} needs {name!r}")
        return arguments.text(self._name(name), value)

    def maybe_text(self, name: str) -> str | None:
        """A text or None."""
        return arguments.maybe_text(self._name(name), self._fields.get(name))

    def flag(self, name: str, default: bool = False) -> bool:
        """True or False."""
        value = arguments.maybe_flag(self._name(name), self._fields.get(name))
        return default if value is None else value

    def whole(self, name: str, low: int = -(1 << 63), high: int = (1 << 63) - 1) -> int:
        """A whole number that must be there."""
        value = self._fields.get(name)
        if value is None:
            raise InvalidInput(f"{self.operation} needs {name!r}")
        return arguments.whole(self._name(name), value, low, high)

    def maybe_whole(self, name: str, low: int = -(1 << 63), high: int = (1 << 63) - 1) -> int | None:
        """A whole number or None."""
        return arguments.maybe_whole(self._name(name), self._fields.get(name), low, high)

    def maybe_number(self, name: str) -> float | None:
        """A number or None."""
        value = self._fields.get(name)
        return None if value is None else number_of(self._name(name), value)

    def texts(self, name: str) -> list[str]:
        """A list of texts; empty where there is none."""
        value = self._fields.get(name)
        return [] if value is None else arguments.texts(self._name(name), value)

    def text_map(self, name: str) -> dict[str, str] | None:
        """A map from text to text, or None."""
        value = self._fields.get(name)
        return None if value is None else arguments.text_map(self._name(name), value)

    def inner(self, name: str) -> dict[str, Any]:
        """The fields of a nested object; empty where there is none."""
        value = self._fields.get(name)
        return {} if value is None else fields_of(value, self._name(name))

    def objects(self, name: str) -> list[dict[str, Any]]:
        """The fields of each of a list of objects; empty where there is none."""
        value = self._fields.get(name)
        if value is None:
            return []
        if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Sequence):
            raise arguments.wrong(self._name(name), "a list", value)
        return [fields_of(each, f"{name}[{at}] of {self.operation}") for at, each in enumerate(value)]

    def word(self, name: str, words: Mapping[str, str], default: str) -> str:
        """One of a few words, whatever their case and underscores; `words` maps their plain form."""
        value = self.maybe_text(name)
        if value is None:
            return default
        found = words.get(plain_word(value))
        if found is None:
            known = ", ".join(dict.fromkeys(words.values()))
            raise InvalidInput(f"{self._name(name)} must be one of {known}, found {arguments.shown(value)}")
        return found

    def page(self) -> tuple[str | None, int | None]:
        """The token and the limit of a page; a negative limit is none."""
        limit = self.maybe_whole("limit")
        return self.maybe_text("page_token"), None if limit is None or limit < 0 else limit


def fields_of(value: Any, name: str) -> dict[str, Any]:
    """The fields of a model or mapping; those of no request at all are none."""
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return {str(key): each for key, each in value.items()}
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise arguments.wrong(name, "a model of lance_namespace or a mapping", value)
    fields = dump()
    if not isinstance(fields, Mapping):
        raise arguments.wrong(f"{name}.model_dump()", "a mapping", fields)
    return {str(key): each for key, each in fields.items()}


def plain_word(value: str) -> str:
    """One of a few words without what may differ: its case and underscores."""
    return value.replace("_", "").lower()


def number_of(name: str, value: Any) -> float:
    """A number that a float holds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise arguments.wrong(name, "a number", value)
    try:
        return float(value)
    except OverflowError as error:
        raise InvalidInput(f"{name} must fit a double, found {arguments.shown(value)}") from error


def parts_of(value: Any, name: str) -> tuple[str, ...]:
    """An id as its parts. Raises `InvalidInput` for what is no list of texts."""
    found = arguments.texts(name, value)
    if len(found) > MAX_PARTS:
        raise InvalidInput(f"{name} has {len(found)} parts; at most {MAX_PARTS} are served")
    return tuple(found)


def after_token(names: Sequence[str], token: str | None, limit: int | None) -> tuple[list[str], str | None]:
    """A page of sorted names: those after the token, at most `limit`; and the token of the next page where
    more follow.
    """
    rest = list(names) if token is None else [name for name in names if name > token]
    if limit is None or limit >= len(rest):
        return rest, None
    page = rest[:limit]
    return page, page[-1] if page else None
