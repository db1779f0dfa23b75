"""The parts of pyarrow that importing the official package loads: scripts then use `pa.dataset`, `pa.compute`
and `pa.fs` without importing them. Here they are loaded when they are named: `pa.dataset` alone takes half as
long as all of ours.
"""

from __future__ import annotations

import importlib
from typing import Any

import pyarrow as pa

PARTS = frozenset(("compute", "dataset", "fs"))


def offer_parts() -> None:
    """Let `pyarrow` load these parts by attribute, as it does what it has of its own."""
    known = vars(pa).get("__getattr__")

    def load(name: str) -> Any:
        if name in PARTS:
            return importlib.import_module(f"pyarrow.{name}")  # which sets the attribute, too
        if known is not None:
            return known(name)
        raise AttributeError(f"module 'pyarrow' has no attribute {name!r}")

    vars(pa)["__getattr__"] = load
