"""Callers of a catalog: each method is one call of the product's catalog code, kept as what its caller saw.

What the calls should have given is `catalogs_model`; what must hold in storage is `catalogs_checks`; who
calls what at the same time is `catalogs_scenarios`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from tiltyard import runtime
from tiltyard.catalog.catalog import Catalog
from tiltyard.catalog.listing import list_tables
from tiltyard.catalog.namespaces import create_namespace, drop_namespace, list_namespaces
from tiltyard.catalog.operations.opening import opened
from tiltyard.catalog.purging import purge
from tiltyard.catalog.renaming import rename_table
from tiltyard.catalog.settings import Settings as CatalogSettings
from tiltyard.catalog.tables import create_table, deregister_table, register_table, table_exists
from tiltyard.catalog.trash import drop_table, undrop_table
from tiltyard.dataset import LanceDataset
from tiltyard.errors import (
    CorruptFile,
    NamespaceAlreadyExists,
    NamespaceNotEmpty,
    NamespaceNotFound,
    StoreError,
    TableAlreadyExists,
    TableNotDropped,
    TableNotFound,
    TiltyardError,
    VersionNotFound,
)
from tiltyard.testing.simulation import catalogs_model as model
from tiltyard.testing.simulation.catalogs_model import Answer, Asked, Done, Id, Refused, Shelf
from tiltyard.testing.simulation.chain import rows_of
from tiltyard.testing.simulation.history import History, Operation, Outcome
from tiltyard.testing.simulation.tables import rows
from tiltyard.testing.simulation.world import World

ROOT = "lake"
"""The directory of the catalog in the world's medium."""

STOCK, STOCK_CONTENT = "stock", 900
"""A table without an entry, which calls register, and its content."""

REMAINDER = "was cut off has left"
"""What an error says of a name that is taken by what a dead caller has left."""

_CODES: tuple[tuple[type[TiltyardError], int], ...] = (
    (NamespaceNotFound, model.NO_NAMESPACE),
    (NamespaceAlreadyExists, model.NAMESPACE_EXISTS),
    (NamespaceNotEmpty, model.NOT_EMPTY),
    (TableNotFound, model.NO_TABLE),
    (TableNotDropped, model.NO_TABLE),
    (TableAlreadyExists, model.TABLE_EXISTS),
)


def code_of(error: BaseException | None) -> int | None:
    """The code with which a caller was refused; None for an error that refuses nothing."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), None)


@dataclass(eq=False)
class Ledger:
    """What all callers of a run saw, and the contents that they write: a number for each writing call."""

    world: World
    history: History
    asked: list[Asked] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    contents: list[int] = field(default_factory=lambda: [STOCK_CONTENT])
    purges: int = 0
    _numbers: count[int] = field(default_factory=lambda: count(1))

    def content(self) -> int:
        """The content of the next writing call."""
        self.contents.append(next(self._numbers))
        return self.contents[-1]


def open_lake(world: World, **properties: str) -> Catalog:
    """The catalog of a world as one process opens it."""
    return Catalog(world.store(ROOT), CatalogSettings.parse(properties), world.session())


def content_of(dataset: LanceDataset) -> int:
    """The number that a table's writer wrote."""
    (key,) = rows_of(dataset._held)
    return key


@dataclass(eq=False)
class Caller:
    """One process's calls on the catalog."""

    ledger: Ledger
    catalog: Catalog

    def ask(
        self,
        name: str,
        step: model.Step,
        run: Callable[[], Any],
        *alternatives: model.Step,
        sees: bool = False,
        then: model.Step | None = None,
    ) -> None:
        """Make one call. `sees`: what `run` gives is what the step answers with. `then`: see `Asked`."""
        history, seen = self.ledger.history, []
        before = len(history.operations)
        actor = self.ledger.world.scheduler.running

        def perform() -> None:
            seen.append(run())

        try:
            history.perform(name, perform)
        finally:
            mine = next(each for each in history.operations[before:] if each.actor == (actor and actor.name))
            answer = _answer(mine, seen[0] if sees and seen else None)
            if mine.outcome is Outcome.FAILED and answer is None:
                step, answer, then = model.nothing, Done(), None  # it failed for certain: nothing was done
            elif isinstance(mine.error, TableAlreadyExists) and REMAINDER in str(mine.error):
                step, answer, then = model.nothing, Done(), None  # the model knows no remainders
            who = f"{mine.actor}: {name}"
            self.ledger.asked.append(Asked(who, mine.begun, mine.ended, step, answer, alternatives, then))

    # -- tables ------------------------------------------------------------------------------------

    def _write(self, id: Id, content: int, mode: str) -> int | None:
        _, dataset = create_table(self.catalog, id, rows({content: content}), mode=mode)
        with suppress(StoreError, VersionNotFound, CorruptFile):  # purged meanwhile
            return content_of(dataset) if mode == "exist_ok" else content
        return None

    def create(self, id: Id) -> None:
        """Make a table."""
        content = self.ledger.content()
        name = f"create {_told(id)} with {content}"
        self.ask(name, partial(model.create, id, content), lambda: self._write(id, content, "create"))

    def exist_ok(self, id: Id) -> None:
        """Make a table or open the one that is there."""
        content = self.ledger.content()
        name, step = f"exist_ok {_told(id)} with {content}", partial(model.create_or_open, id, content)
        self.ask(name, step, lambda: self._write(id, content, "exist_ok"), sees=True)

    def overwrite(self, id: Id) -> None:
        """Make a table or replace what it holds."""
        content = self.ledger.content()
        name = f"overwrite {_told(id)} with {content}"
        step, then = partial(model.overwrite, id, content), partial(model.written, content)
        self.ask(name, step, lambda: self._write(id, content, "overwrite"), then=then)

    def drop(self, id: Id) -> None:
        """Drop a table, for a while."""
        self.ask(f"drop {_told(id)}", partial(model.drop, id), lambda: drop_table(self.catalog, id))

    def undrop(self, id: Id) -> None:
        """Bring a dropped table back, and look at it."""
        seen: list[int] = []

        def run() -> None:
            undrop_table(self.catalog, id)
            # It may have been dropped again by now, and purged, or renamed.
            with suppress(TableNotFound, StoreError, VersionNotFound, CorruptFile):
                seen.append(content_of(opened(self.catalog, id)))

        def step(shelf: Shelf) -> tuple[Shelf, Answer]:
            return model.undrop(id, seen[0] if seen else None, shelf)

        others = [partial(model.undrop, id, content) for content in self.ledger.contents]
        self.ask(f"undrop {_told(id)}", step, run, *others)

    def purge(self, *ids: Id) -> None:
        """Give up whatever was dropped more than the grace ago: perhaps these."""
        self.ledger.purges += 1
        try:
            self.ask("purge", model.nothing, lambda: purge(self.catalog, 0.0))
        finally:
            steps = [partial(model.purge, (id, content)) for id in ids for content in self.ledger.contents]
            mine = self.ledger.asked[-1]
            mine.answer, mine.alternatives = None, tuple(steps)

    def rename(self, id: Id, new: Id) -> None:
        """Give a table another id."""
        name = f"rename {_told(id)} {_told(new)}"
        step = partial(model.rename, id, new)
        self.ask(name, step, lambda: rename_table(self.catalog, id, new))

    def register(self, id: Id, location: str = STOCK) -> None:
        """Give a directory that holds a table an entry."""
        step = partial(model.register, id, STOCK_CONTENT)
        self.ask(f"register {_told(id)}", step, lambda: register_table(self.catalog, id, location))

    def deregister(self, id: Id) -> None:
        """Take a table's entry away and leave its data."""
        name = f"deregister {_told(id)}"
        self.ask(name, partial(model.deregister, id), lambda: deregister_table(self.catalog, id))

    def read(self, id: Id) -> None:
        """Find a table by its id and read it."""

        def run() -> int | None:
            dataset = opened(self.catalog, id)
            try:
                content = content_of(dataset)
                if self.catalog.settings.mode.has_register:
                    return content
                # Without a register it may have been renamed before it was read, and overwritten there.
                with suppress(TableNotFound):
                    return content if content_of(opened(self.catalog, id)) == content else None
                return None
            except (CorruptFile, VersionNotFound):
                if not self.ledger.purges:
                    raise
                return None  # it was dropped and purged meanwhile

        self.ask(f"read {_told(id)}", partial(model.read, id), run, sees=True)

    def exists(self, id: Id) -> None:
        """Ask whether there is a table."""
        name = f"exists {_told(id)}"
        self.ask(name, partial(model.exists, id), lambda: table_exists(self.catalog, id), sees=True)

    # -- namespaces --------------------------------------------------------------------------------

    def create_namespace(self, id: Id) -> None:
        """Make a namespace."""
        name = f"create_namespace {_told(id)}"
        self.ask(name, partial(model.create_namespace, id), lambda: create_namespace(self.catalog, id))

    def drop_namespace(self, id: Id) -> None:
        """Drop an empty namespace."""
        name = f"drop_namespace {_told(id)}"
        self.ask(name, partial(model.drop_namespace, id), lambda: drop_namespace(self.catalog, id))

    def list(self, id: Id = ()) -> None:
        """The tables of a namespace."""

        def run() -> tuple[str, ...]:
            try:
                return tuple(list_tables(self.catalog, id).names)
            except NamespaceNotFound:
                return ()

        self.ask(f"list {_told(id)}", partial(model.list_tables, id), run, sees=True)

    def list_namespaces(self, id: Id = ()) -> None:
        """The namespaces directly in another."""

        def run() -> tuple[str, ...]:
            try:
                return tuple(list_namespaces(self.catalog, id).names)
            except NamespaceNotFound:
                return ()

        self.ask(f"namespaces {_told(id)}", partial(model.list_namespaces, id), run, sees=True)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        runtime.sleep(seconds)


def _told(id: Id) -> str:
    return "$".join(id) or "()"


def _answer(operation: Operation, seen: object) -> Answer | None:
    if operation.outcome is Outcome.DONE:
        return Done(seen)
    code = code_of(operation.error)
    return None if code is None else Refused(frozenset({code}))
