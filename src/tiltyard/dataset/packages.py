"""Packages that only some results need."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tiltyard.errors import MissingPackage


def needed(package: str, by: str) -> Any:
    """A package that `by`, such as a method, cannot do without. Raises `MissingPackage`."""
    try:
        return import_module(package)
    except ImportError as error:
        raise MissingPackage(
            f"{by} needs {package}, which is not installed here: pip install {package}, or take the rows as "
            "Arrow"
        ) from error


def frame_of(table: Any, **options: Any) -> Any:
    """A `pa.Table` as a `pandas.DataFrame`."""
    needed("pandas", "to_pandas")
    return table.to_pandas(**options)


def polars_of(table: Any) -> Any:
    """A `pa.Table` as a `polars.DataFrame`."""
    return needed("polars", "to_polars").from_arrow(table)
