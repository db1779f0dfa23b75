"""Scenarios of tables: writers, maintainers and readers of every kind on one table at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

import pyarrow as pa

from tiltyard import runtime
from tiltyard.dataset import LanceDataset, write_dataset
from tiltyard.errors import OutcomeUnknown, StoreError, TiltyardError
from tiltyard.format.operations import Append, Overwrite
from tiltyard.format.schema import Schema
from tiltyard.format.transaction import Transaction
from tiltyard.session import Session
from tiltyard.store import Store
from tiltyard.table.apply import NewTable
from tiltyard.table.commit import commit
from tiltyard.table.snapshot import open_latest
from tiltyard.table.versions import list_versions
from tiltyard.table.write import write_fragments
from tiltyard.testing.simulation.chain import KEY, VALUE, by_key, made_below_another, rows_of, version_of
from tiltyard.testing.simulation.files import CLOCK_TICK_NS
from tiltyard.testing.simulation.history import History, Rows, Saw
from tiltyard.testing.simulation.table_checks import between, check_table
from tiltyard.testing.simulation.unfinished import move_away_unfinished
from tiltyard.testing.simulation.world import FileSystem, Settings, World

FIRST_KEYS = range(4)
"""Keys of the rows that a table begins with; each has its own number as value."""

CLEANUP_AGE_SECONDS = 3_600.0
"""How old a version is when a cleanup of a scenario takes it."""

NEXT_KEY = 999
"""Key of the row that whoever comes after a run appends."""

POWER_CUT_CHANCE = 0.25
"""How often the power goes after the actors have ended, where the weather has that."""

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

    def compact(self, *, deferred: bool = False) -> None:
        """Rewrite small fragments into one. `deferred`: indices stay as they are, with notes of where rows
        went.
        """

        def run() -> Saw:
            handle = self.table()
            handle.optimize.compact_files(defer_index_remap=deferred)
            return Saw(int(handle.version))

        self.history.perform("compact deferred" if deferred else "compact", run)

    def index(self) -> None:
        """Build a B-tree on the key."""

        def run() -> int:
            handle = self.table()
            handle.create_scalar_index(KEY, "BTREE", replace=True)
            return int(handle.version)

        self.history.perform("index", run, effect=lambda before, _: before)

    def extend_index(self) -> None:
        """Take new rows into the B-tree."""

        def run() -> Saw:
            handle = self.table()
            handle.optimize.optimize_indices()
            return Saw(int(handle.version))

        self.history.perform("extend", run)

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

        def run() -> None:
            self.table().tags.create(name, version)

        self.history.perform(f"tag {name} = {version}", run, tagged=(name, version))

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
        self._look("read", lambda: (self._newest(), None))

    def find(self, first: int, end: int) -> None:
        """Read the rows of the newest version whose keys are in a range."""
        self._look(f"find {first} to {end}", lambda: (self._newest(), range(first, end)))

    def read_version(self, version: int) -> None:
        """Read a version by its number."""

        def old() -> tuple[LanceDataset, None]:
            table = self.table().checkout_version(version)
            if table.version != version:
                self.history.wrong.append(f"T10: asked for version {version}, shown {table.version}")
            return table, None

        self._look(f"read version {version}", old)

    def read_tag(self, name: str) -> None:
        """Read what a tag names."""
        self._look(f"read tag {name}", lambda: (self.table().checkout_version(name), None), tag=name)

    def _newest(self) -> LanceDataset:
        known = self.history.newest_acknowledged()
        table = self.table()
        if table.version < known:
            self.history.wrong.append(
                f"T8: a read saw version {table.version} after version {known} was acknowledged"
            )
        return table

    def _look(
        self, name: str, opened: Callable[[], tuple[LanceDataset, range | None]], tag: str | None = None
    ) -> None:
        def run() -> Saw:
            table, keys = opened()
            where = {} if keys is None else {"filter": between(keys)}
            return Saw(int(table.version), by_key(table.to_table(**where)), keys, tag)

        self.history.perform(name, run)


class Behind(AssertionError):
    """Whoever came next did not find what was told before."""


Script = Callable[[Client], None]


@dataclass(eq=False)
class TableScenario:
    """Actors with a script each, on a table of a few rows. `a/1` and `a/2` are threads of process `a`."""

    name: str
    actors: Mapping[str, Script]
    settings: Settings = field(default_factory=Settings)
    unique: bool = False
    before: Script | None = None
    """What is done in fair weather before the actors begin."""

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

            if self.before is not None:
                self.before(Client(world, history, world.store(), world.session()))

        world.calmly("setup", start)
        world.do({name: partial(act, name, script) for name, script in self.actors.items()})
        world.perhaps_cut_power(POWER_CUT_CHANCE)
        if world.settings.file_system is FileSystem.NO_EXCLUSIVE_NAMES:
            world.calmly("person", lambda: move_away_unfinished(world.store(), history))
        wrong: list[str] = world.calmly(
            "check", lambda: check_table(world, history, world.store(), unique=self.unique)
        )
        return wrong or next_ones(world, history)


def next_ones(world: World, history: History) -> list[str]:
    """T12: whoever comes after a run finds the newest version, appends a row to it, and another reads it."""
    greatest = history.newest_acknowledged(seen=not world.power_cuts)

    def write() -> tuple[int, Rows]:
        base = open_latest(world.store(), world.session())
        if base.version < greatest:
            raise Behind(f"the newest version is {base.version}, and {greatest} was acknowledged")
        last = list_versions(base.store)[-1].version
        if base.version != last:
            raise Behind(f"the newest version is {base.version}, and {last} is the last of all")
        before = rows_of(base)
        made = write_dataset(rows({NEXT_KEY: NEXT_KEY}), LanceDataset._made(base), mode="append").version
        if made != base.version + 1:
            raise Behind(f"an append to version {base.version} made version {made}")
        return int(made), {**before, NEXT_KEY: (*before.get(NEXT_KEY, ()), NEXT_KEY)}

    def read(expected: tuple[int, Rows]) -> None:
        after = open_latest(world.store(), world.session())
        if (after.version, rows_of(after)) != expected:
            raise Behind(f"version {expected[0]} was appended, and version {after.version} is read")

    try:
        written = world.calmly("next writer", write)
        world.calmly("next reader", lambda: read(written))
    except (TiltyardError, Behind) as error:
        return [f"T12: {type(error).__name__} for whoever comes next: {error}"]
    return []
