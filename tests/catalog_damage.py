"""Damaging a catalog the way older programs did, for tests of checks and repairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tiltyard.catalog import Catalog, open_catalog
from tiltyard.catalog.round import Draft
from tiltyard.catalog.rows import Row


def damage(root: str | Path, change: Callable[[Draft], None]) -> Catalog:
    """Change the register as no product code would; the catalog."""
    catalog = open_catalog(str(root))
    catalog.mutate(change, repairing=True)
    return catalog


def put_rows(root: str | Path, *rows: Row) -> Catalog:
    """Put rows beside whatever their ids have."""

    def change(draft: Draft) -> None:
        for row in rows:
            draft.put_beside(row)

    return damage(root, change)


def duplicate(root: str | Path, object_id: str, **changes: Any) -> Catalog:
    """Put a second row of an id, with some values changed."""
    (row,) = open_catalog(str(root)).register().rows.all(object_id)
    return put_rows(root, replace(row, **changes))
