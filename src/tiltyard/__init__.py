"""Tiltyard: the open Lance lakehouse in Python.

>>> import tiltyard as ty
>>> flights = ty.create_table("flights.lance", data)
>>> flights.scan(columns=["id"], where="delay > 60").to_arrow()

`tiltyard.lance` has the names of the official package. Importing this module loads neither numpy nor pyarrow:
what needs them is loaded when it is first named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "connect": "tiltyard.lake",
    "create_table": "tiltyard.lake",
    "open_table": "tiltyard.lake",
    "Lake": "tiltyard.lake",
    "Table": "tiltyard.lake",
    "LanceDataset": "tiltyard.dataset",
    "Loader": "tiltyard.dataset.loader",
    "Session": "tiltyard.session",
    "write_dataset": "tiltyard.dataset",
}

_MODULES = ("errors", "lance")

if TYPE_CHECKING:
    from tiltyard import errors as errors
    from tiltyard import lance as lance
    from tiltyard.dataset import LanceDataset as LanceDataset
    from tiltyard.dataset import write_dataset as write_dataset
    from tiltyard.dataset.loader import Loader as Loader
    from tiltyard.lake import Lake as Lake
    from tiltyard.lake import Table as Table
    from tiltyard.lake import connect as connect
    from tiltyard.lake import create_table as create_table
    from tiltyard.lake import open_table as open_table
    from tiltyard.session import Session as Session

__all__ = [
    "Lake",
    "LanceDataset",
    "Loader",
    "Session",
    "Table",
    "__version__",
    "connect",
    "create_table",
    "errors",
    "lance",
    "open_table",
    "write_dataset",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"tiltyard.{name}")  # which sets the attribute here
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'tiltyard' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
