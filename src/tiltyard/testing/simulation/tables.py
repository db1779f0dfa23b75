"""Scenarios of tables: writers, maintainers and readers of every kind on one table at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

import pyarrow as pa

from tiltyard import runtime
from tiltyard.dataset import LanceDataset, write_dataset
from tiltyard.errors import OutcomeUnknown, StoreError
from tiltyard.format.operations import Append, Overwrite
from tiltyard.format.schema import Schema
from tiltyard.format.transaction import Transaction
from tiltyard.session import Session
from tiltyard.store import Store
from tiltyard.table.apply import NewTable
from tiltyard.table.commit import commit
from tiltyard.table.snapshot import open_latest
from tiltyard.table.write import write_fragments
from tiltyard.testing.simulation.chain import KEY, VALUE, check_table, made_below_another, version_of
from tiltyard.testing.simulation.files import CLOCK_TICK_NS
from tiltyard.testing.simulation.history import History, Rows
from tiltyard.testing.simulation.unfinished import move_away_unfinished
from tiltyard.testing.simulation.world import FileSystem, Settings, World

FIRST_KEYS = range(4)
"""Keys of the rows that a table begins with; each has its own number as value."""

CLEANUP_AGE_SECONDS = 3_600.0
"""How old a version is when a cleanup of a scenario takes it."""

REPEATS = 4
"""How often a client commits again after a lost answer."""

SCHEMA = pa.schema([pa.field(KEY, pa.int64()), pa.field(VALUE, pa.int64())])


def rows(pairs: dict[int, int]) -> pa.Table:
    """An Arrow table of keys and values."""
    return pa.table([list(pairs), list(pairs.values())], schema=SCHEMA)


def create(store: Store, session: Session, pairs: dict[int, int]) -> None:
    """Make the table."""
    schema = Schema.from_arrow(SCHEMA)
    fragments = write_fragments(store, schema, rows(pairs).to_batches())
    transaction = Transaction(0, str(runtime.uuid4()), Overwrite(tuple(fragments), schema))
    commit(store, transaction, session=session, base=None, new_table=NewTable(data_version="2.2"))


@dataclass(eq=False)
class Client:
    """One process's view of the table, and what it does there. Each method is one operation."""

    world: World
    history: History
    store: Store
    session: Session

    def table(self) -> LanceDataset:
        """A handle on the newest version."""
        return LanceDataset._made(open_latest(self.store, self.session))

    def append(self, *keys: int) -> None:
        """Append rows whose value is their key."""
        pairs = {key: key for key in keys}

        def effect(before: Rows, _: Callable[[int], Rows]) -> Rows:
            after = dict(before)
            for key in keys:
                after[key] = tuple(sorted((*after.get(key, ()), key)))
            return dict(sorted(after.items()))

        def run() -> int:
            return int(write_dataset(rows(pairs), self.table(), mode="append").version)

        self.history.perform(f"append {keys}", run, effect=effect, groups=True)

    def append_until_known(self, key: int) -> None:
        """Append a row; where the answer is lost, commit the same transaction again (which is safe)."""

        def effect(before: Rows, _: Callable[[int], Rows]) -> Rows:
            return dict(sorted({**before, key: tuple(sorted((*before.get(key, ()), key)))}.items()))

        def run() -> int:
            base = open_latest(self.store, self.session)
            fragments = write_fragments(self.store, base.schema, rows({key: key}).to_batches())
            transaction = Transaction(base.version, str(runtime.uuid4()), Append(tuple(fragments)))
            unknown: OutcomeUnknown | None = None
            for _ in range(REPEATS):
                try:
                    return commit(self.store, transaction, session=self.session, base=None).version
                except OutcomeUnknown as error:
                    unknown = error
                except StoreError:
                    if unknown is None:
                        raise
                    # else it says nothing of the attempt before
            assert unknown is not None
            raise unknown

        self.history.perform(f"append {key} until known", run, effect=effect)

    def delete(self, key: int) -> None:
        """Delete the rows of a key."""

        def effect(before: Rows, _: Callable[[int], Rows]) -> Rows:
            return {each: values for each, values in before.items() if each != key}

        def run() -> int:
            handle = self.table()
            handle.delete(f"{KEY} = {key}")
            return int(handle.version)

        self.history.perform(f"delete {key}", run, effect=effect)

    def update(self, key: int, value: int) -> None:
        """Give the rows of a key another value."""

        def effect(before: Rows, _: Callable[[int], Rows]) -> Rows:
            return {each: (value,) * len(had) if each == key else had for each, had in before.items()}

        def run() -> int:
            handle = self.table()
            handle.update({VALUE: str(value)}, where=f"{KEY} = {key}")
            return int(handle.version)

        self.history.perform(f"update {key} to {value}", run, effect=effect)

    def upsert(self, key: int, value: int) -> None:
        """Merge-insert one row by its key."""

        def effect(before: Rows, _: Callable[[int], Rows]) -> Rows:
            return dict(sorted({**before, key: (value,) * max(1, len(before.get(key, ())))}.items()))

        def run() -> int:
            handle = self.table()
            merge = handle.merge_insert(KEY).when_matched_update_all().when_not_matched_insert_all()
            merge.execute(rows({key: value}))
            return int(handle.version)

        self.history.perform(f"upsert {key} = {value}", run, effect=effect)

    def compact(self) -> None:
        """Rewrite small fragments into one."""

        def run() -> None:
            self.table().optimize.compact_files()

        self.history.perform("compact", run)

    def index(self) -> None:
        """Build a B-tree on the key."""
        self.history.perform("index", lambda: self.table().create_scalar_index(KEY, "BTREE", replace=True))

    def extend_index(self) -> None:
        """Take new rows into the B-tree."""
        self.history.perform("extend", lambda: self.table().optimize.optimize_indices())

    def clean_up(self, older_than_seconds: float = CLEANUP_AGE_SECONDS) -> None:
        """Remove old versions and what only they name."""

        def run() -> None:
            self.table().cleanup_old_versions(
                timedelta(seconds=older_than_seconds), error_if_tagged_old_versions=False
            )
            now = self.world.scheduler.now_ns
            for _, place, made in self.world.made():
                version, age = version_of(place), (now - made.at_ns + CLOCK_TICK_NS) / 1e9
                if version is None or made_below_another(version, made.beside):
                    continue
                if age < older_than_seconds and not self.world.stands(made):
                    self.history.wrong.append(
                        f"T7: version {version} went at an age of {age:.1f} s; asked was {older_than_seconds}"
                    )

        self.history.perform("cleanup", run)

    def tag(self, name: str, version: int) -> None:
        """Give a version a name, which keeps it."""
        self.history.perform(f"tag {name} = {version}", lambda: self.table().tags.create(name, version))

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        runtime.sleep(seconds)

    def restore(self, version: int) -> None:
        """Bring back an old version."""

        def effect(_: Rows, of: Callable[[int], Rows]) -> Rows:
            return of(version)

        def run() -> int:
            handle = self.table().checkout_version(version)
            return int(handle.restore()["version"])

        self.history.perform(f"restore {version}", run, effect=effect)

    def overwrite(self, key: int) -> None:
        """Replace everything by one row."""

        def effect(_before: Rows, _: Callable[[int], Rows]) -> Rows:
            return {key: (key,)}

        def run() -> int:
            return int(write_dataset(rows({key: key}), self.table(), mode="overwrite").version)

        self.history.perform(f"overwrite with {key}", run, effect=effect)

    def read(self) -> None:
        """Read the newest version whole; it is no older than what was acknowledged before."""

        def run() -> None:
            known = self.history.newest_acknowledged()
            table = self.table()
            if table.version < known:
                self.history.wrong.append(
                    f"T8: a read saw version {table.version} after version {known} was acknowledged"
                )
            table.to_table()

        self.history.perform("read", run)


Script = Callable[[Client], None]


@dataclass(eq=False)
class TableScenario:
    """Actors with a script each, on a table of a few rows. `a/1` and `a/2` are threads of process `a`."""

    name: str
    actors: Mapping[str, Script]
    settings: Settings = field(default_factory=Settings)
    unique: bool = False

    def run(self, world: World) -> list[str]:
        """Set up, act, check."""
        history = History(world)
        clients: dict[str, Client] = {}

        def act(name: str, script: Script) -> None:
            process = name.partition("/")[0]
            if process not in clients:
                clients[process] = Client(world, history, world.store(), world.session())
            script(clients[process])

        def start() -> None:
            create(world.store(), world.session(), {key: key for key in FIRST_KEYS})

        world.calmly("setup", start)
        world.do({name: partial(act, name, script) for name, script in self.actors.items()})
        if world.settings.file_system is FileSystem.NO_EXCLUSIVE_NAMES:
            world.calmly("person", lambda: move_away_unfinished(world.store(), history))
        wrong: list[str] = world.calmly(
            "check", lambda: check_table(world, history, world.store(), unique=self.unique)
        )
        return wrong
