"""Scenarios of a catalog: every pair of calls on one name, and groups of callers, from every start.

The storage is looked at afterwards (`catalogs_checks`), and two things are asked of the answers:
K2  All answers, those of a calm reader afterwards included, fit one order of the calls (`linear`): one
    creator wins, whoever loses is told so, nothing acknowledged is lost, nothing refused happens later, what
    was dropped comes back with its data.
K3  Whoever is refused is told why, with the specification's code; nobody is told of contention in calm times.

`catalog-pairs-*` draw the pair and the start as the first choices of a run, so that looking through all
schedules goes through all pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations_with_replacement
from typing import TypeAlias, TypeVar

from tiltyard.catalog.check import check
from tiltyard.catalog.findings import PRUNE
from tiltyard.catalog.purging import purge
from tiltyard.catalog.repair import plan_repair, repair
from tiltyard.catalog.rows import Row
from tiltyard.catalog.trash import dropped_tables
from tiltyard.errors import CatalogThrottled, CommitConflict, TiltyardError
from tiltyard.testing.simulation.catalogs import ROOT, STOCK, STOCK_CONTENT, Caller, Ledger, open_lake
from tiltyard.testing.simulation.catalogs_checks import (
    FOREIGN_ID,
    FOREIGN_KEY,
    FOREIGN_TYPE,
    FOREIGN_VALUE,
    check_aside,
    check_directories,
    check_settled,
    check_versions,
)
from tiltyard.testing.simulation.catalogs_model import Asked, Done, Id, Shelf, calls
from tiltyard.testing.simulation.choices import Choices
from tiltyard.testing.simulation.explore import Scenario
from tiltyard.testing.simulation.history import History, Outcome
from tiltyard.testing.simulation.linear import is_linearizable
from tiltyard.testing.simulation.tables import create
from tiltyard.testing.simulation.world import Medium, Settings, World

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Place:
    """Where the table is that everybody wants."""

    table: Id
    new: Id
    """What it is renamed to, beside it."""
    far: Id
    """What it is renamed to, in another namespace."""
    space: Id
    """The namespace that is made and dropped: above the table, or of the same id."""
    parent: Id
    """A namespace that something is put into, and that is made and dropped."""
    starts: tuple[str, ...]
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def registered(self) -> bool:
        """Whether the catalog has a register; else it has no namespaces."""
        return self.properties.get("manifest_enabled") != "false"

    @property
    def tables(self) -> tuple[Id, ...]:
        """Every id that a table may get."""
        return self.table, self.new, self.far


_STARTS = ("absent", "present", "dropped")

PLACES: Mapping[str, Place] = {
    "root": Place(("t",), ("u",), ("n", "u"), ("t",), ("n",), (*_STARTS, "namespace")),
    "child": Place(("n", "t"), ("n", "u"), ("u",), ("n",), ("n",), (*_STARTS, "no parent")),
    "manifest": Place(
        ("t",), ("u",), ("n", "u"), ("t",), ("n",), (*_STARTS, "namespace"), {"dir_listing_enabled": "false"}
    ),
    "directories": Place(("t",), ("u",), ("w",), (), (), _STARTS, {"manifest_enabled": "false"}),
}

Step: TypeAlias = Callable[[Caller, Place], None]

STEPS: Mapping[str, Step] = {
    "create": lambda caller, place: caller.create(place.table),
    "create_new": lambda caller, place: caller.create(place.new),
    "create_far": lambda caller, place: caller.create(place.far),
    "exist_ok": lambda caller, place: caller.exist_ok(place.table),
    "overwrite": lambda caller, place: caller.overwrite(place.table),
    "drop": lambda caller, place: caller.drop(place.table),
    "undrop": lambda caller, place: caller.undrop(place.table),
    "rename": lambda caller, place: caller.rename(place.table, place.new),
    "back": lambda caller, place: caller.rename(place.new, place.table),
    "move": lambda caller, place: caller.rename(place.table, place.far),
    "register": lambda caller, place: caller.register(place.table),
    "deregister": lambda caller, place: caller.deregister(place.table),
    "create_namespace": lambda caller, place: caller.create_namespace(place.space),
    "drop_namespace": lambda caller, place: caller.drop_namespace(place.space),
    "create_parent": lambda caller, place: caller.create_namespace(place.parent),
    "drop_parent": lambda caller, place: caller.drop_namespace(place.parent),
    "read": lambda caller, place: caller.read(place.table),
    "read_new": lambda caller, place: caller.read(place.new),
    "list": lambda caller, place: caller.list(place.table[:-1]),
    "wait": lambda caller, place: caller.wait(HOURS),
    "purge": lambda caller, place: caller.purge(*place.tables),
}

HOURS = 7_200.0
"""So long do maintainers wait before they come (s)."""

POWER_CUT_CHANCE = 0.15
"""How often the power goes when everybody is done: what was told as done is there."""

PAIRED = (
    "create",
    "exist_ok",
    "overwrite",
    "drop",
    "undrop",
    "rename",
    "move",
    "register",
    "deregister",
    "create_namespace",
    "drop_namespace",
)
"""Every two of these meet."""

PAIRS: Sequence[tuple[str, str]] = tuple(combinations_with_replacement(PAIRED, 2))

GROUPS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "creates": {
        "a": ("create", "read", "drop"),
        "b": ("exist_ok", "read"),
        "c": ("overwrite", "list", "read"),
    },
    "lives": {
        "a": ("create", "drop", "undrop"),
        "b": ("drop", "create", "read"),
        "c": ("undrop", "read", "overwrite"),
    },
    "renames": {
        "a": ("rename", "read_new", "create"),
        "b": ("back", "read", "rename"),
        "c": ("overwrite", "move", "list"),
    },
    "parents": {
        "a": ("create", "read", "drop"),
        "b": ("drop_parent", "create_parent", "list"),
        "c": ("exist_ok", "drop_parent", "move"),
    },
    "registers": {
        "a": ("register", "read", "deregister"),
        "b": ("create", "deregister", "exist_ok"),
        "c": ("register", "drop", "list"),
    },
    "threads": {
        "a/1": ("create", "drop"),
        "a/2": ("exist_ok", "read"),
        "a/3": ("create_parent", "rename"),
        "b": ("overwrite", "drop", "undrop"),
    },
    "requests": {
        "a": ("create", "drop", "create_new"),
        "b": ("create_new", "create"),
        "c": ("create_far", "create_parent", "drop_parent", "create"),
        "d": ("create_far", "create_new", "read"),
    },
    "purges": {
        "a": ("drop", "undrop", "read"),
        "b": ("wait", "purge", "create"),
        "c": ("exist_ok", "drop", "wait", "purge"),
    },
}

UNREGISTERED: Sequence[str] = (
    "create",
    "exist_ok",
    "overwrite",
    "drop",
    "undrop",
    "purge",
    "rename",
    "back",
    "deregister",
)
"""Every two of these meet where directories are the catalog."""

UNREGISTERED_PAIRS: Sequence[tuple[str, str]] = tuple(combinations_with_replacement(UNREGISTERED, 2))

UNREGISTERED_GROUPS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    **{name: GROUPS[name] for name in ("creates", "lives", "renames")},
    "ends": {
        "a": ("drop", "undrop", "read"),
        "b": ("purge", "create", "purge"),
        "c": ("undrop", "drop", "purge"),
    },
    "threads": {
        "a/1": ("create", "drop", "undrop"),
        "a/2": ("undrop", "rename", "read"),
        "a/3": ("purge", "exist_ok"),
        "b": ("overwrite", "drop", "purge"),
    },
    "purges": GROUPS["purges"],
}

LEFT_OUT = (("registers", "root"),)
"""A root table is there for everybody once its first version is, before it has its row. Where another table
is registered under its name in that moment, its creator gives way; and a third caller has seen what never
was. For the same reason namespaces have the name of a root table in pairs only.
"""

Pair: TypeAlias = tuple[str, str]


@dataclass(eq=False)
class CatalogScenario:
    """Callers of one catalog. `actors` are the names of their steps; without them a pair of `pairs` is drawn,
    and one of `starts` (of the place, where there are none).
    """

    name: str
    place: Place
    settings: Settings
    actors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    pairs: Sequence[Pair] = PAIRS
    starts: tuple[str, ...] = ()

    def run(self, world: World) -> list[str]:
        """Set up, act, check."""
        history = History(world)
        ledger = Ledger(world, history)
        place = self.place
        actors = dict(self.actors)
        if not actors:
            one, other = _drawn(world.choices, self.pairs)
            actors = {"a": (one,), "b": (other,)}
        start = _drawn(world.choices, self.starts or place.starts)
        callers: dict[str, Caller] = {}

        def act(name: str, names: tuple[str, ...]) -> None:
            process = name.partition("/")[0]
            if process not in callers:
                callers[process] = Caller(ledger, open_lake(world, **place.properties))
            for each in names:
                STEPS[each](callers[process], place)

        world.calmly("setup", partial(_set_up, ledger, place, start))
        begun = len(ledger.asked)
        world.do({name: partial(act, name, names) for name, names in actors.items()})
        world.perhaps_cut_power(POWER_CUT_CHANCE)
        if world.storm.struck["machine crash"]:
            _forget_what_was_seen(ledger.asked[begun:])
        mark = len(world.scheduler.trace)
        wrong: list[str] = world.calmly("check", partial(_check, world, ledger, place))
        # Of what was looked at afterwards a finding shows the answers only.
        world.scheduler.trace[mark:] = [str(each) for each in ledger.asked if each.name.startswith("check:")]
        return [*_check_errors(world, history), *wrong]


def _drawn(choices: Choices, options: Sequence[T]) -> T:
    """One of the options. An exhaustive search takes each, at no cost; a random run any."""
    if len(options) == 1:
        return options[0]
    return options[(choices.choose(len(options) + 1, 1.0, forced=True) or 1) - 1]


def _set_up(ledger: Ledger, place: Place, start: str) -> None:
    """The catalog before the run, made by calls that are part of the history."""
    world = ledger.world
    create(world.store(f"{ROOT}/{STOCK}"), world.session(), {STOCK_CONTENT: STOCK_CONTENT})
    caller = Caller(ledger, open_lake(world, **place.properties))

    def leave_something(draft: object) -> None:
        draft.put(Row(FOREIGN_ID, FOREIGN_TYPE, None, '{"k":"v"}', ("a", None)))  # type: ignore[attr-defined]
        draft.metadata[FOREIGN_KEY] = FOREIGN_VALUE  # type: ignore[attr-defined]

    if place.registered:
        caller.catalog.mutate(leave_something)
        if start == "namespace":
            caller.create_namespace(place.space)
        if start != "no parent":
            caller.create_namespace(("n",))
    if start in ("present", "dropped"):
        caller.create(place.table)
    if start == "dropped":
        caller.drop(place.table)
    for each in ledger.asked:
        if not isinstance(each.answer, Done):
            raise AssertionError(f"the set-up went wrong: {each}")


def _forget_what_was_seen(asked: Sequence[Asked]) -> None:
    """After power loss: somebody may have seen what was lost then, before anybody was told that it is done.
    What was told as done to a caller that looked at nothing still holds.
    """
    for each in asked:
        if not (isinstance(each.answer, Done) and each.answer.value is None):
            each.answer = None


def _check_errors(world: World, history: History) -> list[str]:
    wrong = []
    calm = not world.storm.struck
    for each in history.operations:
        error = each.error
        if not isinstance(error, Exception):
            continue
        if not isinstance(error, TiltyardError):
            wrong.append(f"an error that is none of ours: {each}")
        elif not isinstance(error, CatalogThrottled) and isinstance(error, CommitConflict):
            wrong.append(f"K3: refused for contention: {each}")
        elif calm and each.outcome in (Outcome.UNKNOWN, Outcome.FAILED) and not _is_refusal(each.error):
            wrong.append(f"K3: neither done nor refused, and nothing happened: {each}")
    return wrong


def _is_refusal(error: BaseException | None) -> bool:
    from tiltyard.testing.simulation.catalogs import code_of

    return code_of(error) is not None


def _check(world: World, ledger: Ledger, place: Place) -> list[str]:
    """Everything that can be seen afterwards, by a process that was not there."""
    wrong = list(ledger.wrong)
    caller = Caller(ledger, open_lake(world, **place.properties))
    _look(caller, place)
    if place.registered:
        caller.create_namespace(("zz",))
        wrong += check_settled(world)
        wrong += check_directories(world, ledger)
    if world.storm.struck:
        caller.wait(HOURS)  # what the dead have left under a name is in the way for a while
    if not place.registered:
        _tidy(caller)
    _bring_back(caller, place)
    _look(caller, place)
    if place.registered:
        wrong += check_versions(world)
    else:
        wrong += check_aside(world, [each.location for each in dropped_tables(caller.catalog)])
    if not is_linearizable(calls(ledger.asked), _empty(world, place)):
        wrong.append("K2: no order of the calls explains the answers: " + "; ".join(map(str, ledger.asked)))
    return wrong


def _empty(world: World, place: Place) -> Shelf:
    """What the model begins with: whether root tables lie under their names, and whether directories move."""
    return Shelf(
        seated="dir_listing_enabled" not in place.properties,
        moves=world.settings.medium == "disk",
        registered=place.registered,
    )


def _look(caller: Caller, place: Place) -> None:
    """Read and list every name."""
    for each in place.tables:
        caller.read(each)
    caller.exists(place.table)
    caller.list(())
    if place.registered:
        caller.list(("n",))
        caller.list_namespaces(())


def _tidy(caller: Caller) -> None:
    """Finish the purges of the dead; set aside what they have left under the names of tables."""
    purge(caller.catalog)
    plan = plan_repair(check(caller.catalog), [PRUNE])
    if not plan.is_empty:
        repair(caller.catalog, plan)


def _bring_back(caller: Caller, place: Place) -> None:
    """Undrop everything, each table that is in the way getting another name first."""
    if place.registered and not any(each == ("n",) for each in _namespaces(caller)):
        caller.create_namespace(("n",))
    for number, each in enumerate(dropped_tables(caller.catalog)):
        caller.rename(each.id, (f"spare{number}",))
        caller.undrop(each.id)
        caller.read(each.id)


def _namespaces(caller: Caller) -> list[Id]:
    return [tuple(each.object_id.split("$")) for each in caller.catalog.register().rows]


def catalog_scenarios(settings: Callable[[Medium], Settings]) -> dict[str, Callable[[], Scenario]]:
    """Makers by name."""
    found: dict[str, Callable[[], Scenario]] = {}
    media: tuple[Medium, ...] = ("disk", "objects")
    for medium in media:
        for where, place in PLACES.items():
            if not place.registered and medium != "disk":
                continue  # one process alone has a memory; tables are not renamed there
            name = f"catalog-pairs-{where}-{medium}"
            pairs = PAIRS if place.registered else UNREGISTERED_PAIRS
            found[name] = partial(CatalogScenario, name, place, settings(medium), pairs=pairs)
            for group, actors in (GROUPS if place.registered else UNREGISTERED_GROUPS).items():
                if (group, where) in LEFT_OUT:
                    continue
                name = f"catalog-{group}-{where}-{medium}"
                found[name] = partial(CatalogScenario, name, place, settings(medium), actors)
    return found


def only(scenario: CatalogScenario, *pairs: Pair, starts: tuple[str, ...] = ()) -> CatalogScenario:
    """The same with these pairs only."""
    return replace(scenario, pairs=pairs, starts=starts)
