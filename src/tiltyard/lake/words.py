"""The plain face says errors without the prefixes that callers of the official package look for."""

from __future__ import annotations

from collections.abc import Callable
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
            if error.args and isinstance(error.args[0], str):
                error.args = (without_prefix(error.args[0]), *error.args[1:])
            raise

    return acting
