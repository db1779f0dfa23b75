"""The plain face says errors without the prefixes that callers of the official package look for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

from tiltyard.errors import TiltyardError, without_prefix

P = ParamSpec("P")
R = TypeVar("R")


def plain(act: Callable[P, R]) -> Callable[P, R]:
    """The function; of its errors the type, and all that they carry, stay as they are."""

    @wraps(act)
    def acting(*args: P.args, **options: P.kwargs) -> R:
        try:
            return act(*args, **options)
        except TiltyardError as error:
            _said_plainly(error)
            raise

    return acting


@contextmanager
def in_plain_words() -> Iterator[None]:
    """The same for a block."""
    try:
        yield
    except TiltyardError as error:
        _said_plainly(error)
        raise


def _said_plainly(error: TiltyardError) -> None:
    if error.args and isinstance(error.args[0], str):
        error.args = (without_prefix(error.args[0]), *error.args[1:])
