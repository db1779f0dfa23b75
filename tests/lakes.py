"""Catalogs for tests: as another process would open them, and over stores that fail as planned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from tiltyard.catalog import Catalog, open_catalog
from tiltyard.catalog.found import find_or_none, find_table, register_of, table_store
from tiltyard.catalog.moves import PREFIX as MOVE
from tiltyard.catalog.settings import Settings
from tiltyard.catalog.tables import create_table
from tiltyard.catalog.trash import PREFIX as TRASH
from tiltyard.dataset import LanceDataset
from tiltyard.session import Session
from tiltyard.store import open_store
from tiltyard.testing.faults import FaultyStore, Plan, Rule

MODES: dict[str, dict[str, str]] = {
    "v1": {"manifest_enabled": "false"},
    "mixed": {},
    "migration": {"dir_listing_to_manifest_migration_enabled": "true"},
    "manifest": {"dir_listing_enabled": "false"},
}


def fresh(root: str, mode: str = "mixed", **properties: str) -> Catalog:
    """The catalog as another process would open it."""
    return open_catalog(root, properties=MODES[mode] | properties, session=Session())


def over(store: Any, mode: str = "mixed", **properties: str) -> Catalog:
    """A catalog on a store of ours."""
    return Catalog(store, Settings.parse(MODES[mode] | properties), Session())


def planned(root: str, plan: Plan, mode: str = "mixed") -> Catalog:
    """A catalog over a store that fails as planned."""
    return over(FaultyStore(open_store(root), plan), mode)


def faulty(root: str, *rules: Rule, mode: str = "mixed") -> Catalog:
    """The same with the rules alone."""
    return planned(root, Plan(*rules), mode)


class Interrupted(Catalog):
    """A catalog whose first change finds that others did something after it was planned."""

    def __init__(self, root: str, meanwhile: Callable[[], object], mode: str = "mixed") -> None:
        super().__init__(open_store(root), Settings.parse(MODES[mode]), Session())
        self._meanwhile: Callable[[], object] | None = meanwhile

    def mutate(self, *arguments: Any, **named: Any) -> Any:
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().mutate(*arguments, **named)


def table(*values: int) -> pa.Table:
    """Data that is told from others by its values."""
    return pa.table({"a": list(values)})


def put(
    catalog: Catalog, id: tuple[str, ...], *values: int, properties: Mapping[str, str] | None = None
) -> None:
    """Create a table."""
    create_table(catalog, id, table(*values), properties=properties)


def opened(catalog: Catalog, id: tuple[str, ...]) -> LanceDataset:
    """A table, found and opened."""
    return LanceDataset(table_store(catalog, find_table(catalog, id)), session=catalog.session)


def values(catalog: Catalog, id: tuple[str, ...]) -> list[int]:
    """What a table holds."""
    found: list[int] = opened(catalog, id).to_table()["a"].to_pylist()
    return found


def has(catalog: Catalog, id: tuple[str, ...]) -> bool:
    """Whether there is a table of this id."""
    return find_or_none(catalog, register_of(catalog), id) is not None


def keys(catalog: Catalog, prefix: str) -> list[str]:
    """Keys of the register's metadata with a prefix."""
    return [key for key in catalog.register().metadata if key.startswith(prefix)]


def moves_left(catalog: Catalog) -> int:
    """How many moves the register still speaks of."""
    return len(keys(catalog, MOVE))


def trash_left(catalog: Catalog) -> int:
    """How many dropped tables the register speaks of."""
    return len(keys(catalog, TRASH))


def directories(catalog: Catalog) -> list[str]:
    """What stands at the root beside the register."""
    return [name for name in catalog.store.list_names("") if name != "__manifest"]
