"""Scenarios of batches over several tables: whoever commits, whoever helps, and writers that know of neither.

K14  When a batch is over and one more change was made, all of it stands or nothing does; who was told that it
     succeeded, or that it was refused, was told right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from tiltyard import runtime
from tiltyard.catalog.batch import CreateVersion, DeclareTable, DeregisterTable, Member, commit_batch
from tiltyard.catalog.batch_intents import pending, torn
from tiltyard.catalog.catalog import Catalog
from tiltyard.catalog.declaring import table_exists
from tiltyard.catalog.found import find_table, table_store
from tiltyard.catalog.namespaces import create_namespace
from tiltyard.catalog.operations.opening import opened
from tiltyard.catalog.tables import create_table
from tiltyard.dataset import write_dataset
from tiltyard.format import names
from tiltyard.format.manifest import encode_manifest
from tiltyard.format.operations import Append, Restore
from tiltyard.format.transaction import Transaction
from tiltyard.store import object_key
from tiltyard.table.apply import apply
from tiltyard.table.snapshot import open_latest, read_transaction
from tiltyard.table.versions import list_versions
from tiltyard.table.write import write_fragments
from tiltyard.testing.simulation.catalogs import ROOT, open_lake
from tiltyard.testing.simulation.history import History, Operation, Outcome
from tiltyard.testing.simulation.tables import rows

if TYPE_CHECKING:
    from tiltyard.catalog.names import Id
    from tiltyard.testing.simulation.explore import Scenario
    from tiltyard.testing.simulation.world import Medium, Settings, World

TABLES: tuple[Id, ...] = (("n", "a"), ("n", "b"))
"""They get a version each."""
LEAVING: Id = ("n", "old")
COMING: Id = ("n", "new")

BATCH_KEY = 100
FOREIGN_KEY = 200
MORE_NAMESPACES = 2
"""Changes that a helper makes."""
LATE_CHANGES = 3
"""Changes that are made when all is over."""


@dataclass(eq=False)
class BatchScenario:
    """One batch, a process that changes the catalog meanwhile, and one that writes to the tables."""

    name: str
    settings: Settings
    mode: str
    """What the foreign writer does: `append`, which goes together with the batch, or `overwrite`."""

    def run(self, world: World) -> list[str]:
        """Set up, act, check."""
        history = History(world)
        staged: list[tuple[CreateVersion, str]] = world.calmly("setup", partial(_set_up, world))
        actors: Mapping[str, Callable[[], Any]] = {
            "batch": partial(_commit, world, history, [each for each, _ in staged]),
            "helper": partial(_help, world, history),
            "writer": partial(_write, world, history, self.mode),
        }
        world.do(actors)
        wrong: list[str] = world.calmly("check", partial(_check, world, history, staged))
        return wrong


def _set_up(world: World) -> list[tuple[CreateVersion, str]]:
    catalog = open_lake(world)
    create_namespace(catalog, ("n",))
    for id in (*TABLES, LEAVING):
        create_table(catalog, id, rows({1: 1}))
    return [stage(catalog, id, {BATCH_KEY: BATCH_KEY}) for id in TABLES]


def stage(catalog: Catalog, id: Id, pairs: dict[int, int]) -> tuple[CreateVersion, str]:
    """A version with some rows more as a client stages it: its files in their place, its manifest beside its
    own. Also the uuid of its transaction.
    """
    store = table_store(catalog, find_table(catalog, id))
    base = open_latest(store, catalog.session)
    fragments = write_fragments(store, base.schema, rows(pairs).to_batches())
    transaction = Transaction(base.version, str(runtime.uuid4()), Append(tuple(fragments)))
    version = base.version + 1
    manifest = apply(base.manifest, transaction, version=version, timestamp_ns=runtime.now_ns(), read=None)
    path = f"{names.manifest_path(version)}-{runtime.uuid4()}"
    store.put(path, encode_manifest(manifest, transaction.encode()))
    return CreateVersion(id, version, object_key(store, path)), transaction.uuid


def _commit(world: World, history: History, staged: list[CreateVersion]) -> None:
    members: list[Member] = [*staged, DeclareTable(COMING), DeregisterTable(LEAVING)]

    def run() -> None:
        commit_batch(open_lake(world), members)

    history.perform("commit the batch", run)


def _help(world: World, history: History) -> None:
    catalog = open_lake(world)
    for number in range(MORE_NAMESPACES):

        def run(number: int = number) -> None:
            create_namespace(catalog, (f"more{number}",))

        history.perform("create a namespace", run)


def _write(world: World, history: History, mode: str) -> None:
    catalog = open_lake(world)
    for id in reversed(TABLES):

        def run(id: Id = id) -> None:
            write_dataset(rows({FOREIGN_KEY: 0}), opened(catalog, id), mode=mode)

        history.perform(f"{mode} to {id[-1]}", run)


# -- afterwards ----------------------------------------------------------------------------------


def _check(world: World, history: History, staged: list[tuple[CreateVersion, str]]) -> list[str]:
    catalog = open_lake(world)
    for number in range(LATE_CHANGES):  # a request that arrives once more may bring an intent back
        create_namespace(catalog, (f"after{number}",))
    wrong = [f"K14: an intent is left: {path}" for path in pending(world.store(ROOT))]
    stands = {each.id[-1]: _stands(catalog, each.id, uuid) for each, uuid in staged}
    stands["the declaration"] = table_exists(catalog, COMING)
    stands["the deregistration"] = not table_exists(catalog, LEAVING)
    told = ", ".join(f"{name}: {'done' if is_done else 'not done'}" for name, is_done in stands.items())
    if any(torn(world.store(ROOT))):
        return wrong  # said so, and to be looked at
    if len(set(stands.values())) > 1:
        wrong.append(f"K14: neither all nor nothing: {told}")
    batch = next((each for each in history.operations if each.actor == "batch"), None)
    if batch is not None and _told_wrong(batch, all(stands.values())):
        wrong.append(f"K14: told {batch}, but {told}")
    return wrong


def _told_wrong(batch: Operation, done: bool) -> bool:
    return batch.outcome is (Outcome.FAILED if done else Outcome.DONE)


def _stands(catalog: Catalog, id: Id, uuid: str) -> bool:
    """Whether the batch's version of a table was made, and not taken back."""
    store = table_store(catalog, find_table(catalog, id))
    stands = False
    for location in list_versions(store):
        transaction = read_transaction(store, catalog.session, location)
        if transaction is not None and transaction.uuid == uuid:
            stands = True
        elif transaction is not None and isinstance(transaction.operation, Restore):
            stands = False  # nobody else restores here
    return stands


Makers: TypeAlias = dict[str, Callable[[], "Scenario"]]


def batch_scenarios(settings: Callable[[Medium], Settings]) -> Makers:
    """Makers by name."""
    found: Makers = {}
    media: tuple[Medium, ...] = ("disk", "objects")
    for medium in media:
        for mode in ("append", "overwrite"):
            name = f"batches-{mode}s-{medium}"
            found[name] = partial(BatchScenario, name, settings(medium), mode)
    return found
