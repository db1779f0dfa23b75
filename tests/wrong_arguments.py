"""Values that are no argument of anything, and a look at what they changed: for the tests of every face."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tiltyard.errors import InvalidInput, UnsupportedFeature

FAST = {"durable": False}


class Thing:
    """Of no use as an argument."""


class NoNumber:
    def __index__(self) -> int:
        raise RuntimeError("asked for a number")


JUNK: dict[str, Any] = {
    "int": 5,
    "negative": -1,
    "huge": 1 << 70,
    "float": 1.5,
    "nan": float("nan"),
    "true": True,
    "text": "x",
    "empty": "",
    "surrogate": "\ud800",
    "bytes": b"x",
    "list": [None],
    "nested": [0, [1]],
    "pair": (1, 2),
    "nothing": (),
    "map": {"a": None},
    "numbers": {1: 2},
    "map of surrogate": {"a": "\ud800"},
    "array": np.array([1, 2]),
    "set": {"a"},
    "type": pa.int8(),
    "object": Thing(),
    "class": Thing,
    "no number": NoNumber(),
}

Case = tuple[str, Callable[[str, Any], Any], str]
"""A name, a call with the table's path and the junk, and the names of junk that is fine or told otherwise."""


def files_of(path: str) -> list[tuple[str, int, int]]:
    """Every file and directory below a path: size, and of files the time of the last change."""
    found = []
    for each in sorted(Path(path).rglob("*")):
        facts = each.stat()
        found.append((str(each), facts.st_size, 0 if each.is_dir() else facts.st_mtime_ns))
    return found


def refused(path: str, call: Callable[[str, Any], Any], takes: str) -> None:
    """Try a call with all junk but that which it takes: each is told as what it is, and changes nothing."""
    before = files_of(path)
    for name in JUNK.keys() - set(takes.split(", ")):
        try:
            call(path, JUNK[name])
        except (InvalidInput, UnsupportedFeature):
            continue
        pytest.fail(f"{name} was taken")
    assert files_of(path) == before
