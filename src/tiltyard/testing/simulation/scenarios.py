"""The scenarios that are shipped, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tiltyard.testing.faults import Fault
from tiltyard.testing.simulation.batches import batch_scenarios
from tiltyard.testing.simulation.catalogs_scenarios import catalog_scenarios
from tiltyard.testing.simulation.explore import Scenario
from tiltyard.testing.simulation.names_of_versions import NameScenario, Tagger
from tiltyard.testing.simulation.storm import Weather
from tiltyard.testing.simulation.streams_scenarios import stream_scenarios
from tiltyard.testing.simulation.tables import Client, Script, TableScenario
from tiltyard.testing.simulation.world import Medium, Settings

SKEW_NS = 3_600_000_000_000
"""How far a process's clock may be off: an hour."""

STORMY = frozenset(Fault) - {Fault.DELAY}


def settings(medium: Medium, without: Fault = Fault.DELAY, machine_crash: bool = True) -> Settings:
    """Foul weather of every kind that the medium knows, but one."""
    on_disk = medium == "disk"
    faults = STORMY - {without} - ({Fault.CLOCK_JUMP} if on_disk else set())
    crash = on_disk and machine_crash
    weather = Weather(faults, chance=0.02, machine_crash=crash, failing_reads=True)
    return Settings(medium=medium, weather=weather, max_skew_ns=SKEW_NS)


HOURS = 7_200.0
"""So long do maintainers wait before they come (s): what was there is old then."""

Step = Callable[[Client], None]


def steps(*each: Step) -> Script:
    """A script of operations one after the other."""

    def script(client: Client) -> None:
        for step in each:
            step(client)

    return script


def do(method: Callable[..., None], *arguments: Any) -> Step:
    """An operation of a client with its arguments."""
    return lambda client: method(client, *arguments)


def appends(*keys: int) -> Script:
    """One append after the other."""
    return steps(*(do(Client.append, key) for key in keys))


def deletes(*keys: int) -> Script:
    """One delete after the other."""
    return steps(*(do(Client.delete, key) for key in keys))


def compact_deferred(client: Client) -> None:
    """A compaction after which the indices still hold the old addresses."""
    client.compact(deferred=True)


_ACTORS: Mapping[str, Mapping[str, Script]] = {
    "appends": {"a": appends(10, 11), "b": appends(20, 21), "c": appends(30, 31)},
    "grouped-appends": {
        "a/1": appends(10, 11),
        "a/2": appends(12, 13),
        "a/3": appends(14, 15),
        "b": appends(20, 21),
    },
    "reads": {
        "a": steps(do(Client.append, 10), do(Client.read), do(Client.delete, 10), do(Client.read)),
        "b": steps(do(Client.read), do(Client.append, 20), do(Client.read), do(Client.read_version, 2)),
        "c": steps(do(Client.tag, "first", 1), do(Client.delete, 1), do(Client.read_tag, "first")),
    },
    "deletes": {"a": deletes(1, 2), "b": deletes(2, 3), "c": appends(30, 31)},
    "updates": {
        "a": steps(do(Client.update, 1, 101), do(Client.update, 2, 102)),
        "b": steps(do(Client.update, 2, 202), do(Client.update, 3, 203)),
        "c": deletes(1, 3),
    },
    "upserts": {
        "a": steps(do(Client.upsert, 1, 101), do(Client.upsert, 9, 109)),
        "b": steps(do(Client.upsert, 9, 209), do(Client.upsert, 1, 201)),
        "c": steps(do(Client.upsert, 9, 309), do(Client.delete, 2)),
    },
    "repeats": {
        "a": steps(do(Client.append_until_known, 10), do(Client.append_until_known, 11)),
        "b": steps(do(Client.append_until_known, 20), do(Client.append_until_known, 21)),
        "c": appends(30, 31),
    },
    "restores": {
        "a": appends(10, 11),
        "b": steps(do(Client.read), do(Client.restore, 1)),
        "c": deletes(1),
    },
    "overwrites": {
        "a": appends(10, 11),
        "b": steps(do(Client.overwrite, 70), do(Client.append, 71)),
        "c": deletes(1),
    },
    "compactions": {
        "a": steps(do(Client.append, 10), do(Client.append, 11), do(Client.delete, 10)),
        "b": steps(do(Client.compact), do(Client.compact)),
        "c": steps(do(Client.delete, 1), do(Client.update, 2, 202), do(Client.read)),
    },
    "grouped-overwrites": {
        "a/1": appends(10, 11),
        "a/2": appends(12, 13),
        "a/3": steps(do(Client.read), do(Client.append, 14), do(Client.read)),
        "b": steps(do(Client.overwrite, 70), do(Client.overwrite, 71)),
    },
    "cleanups": {
        "a": steps(do(Client.append, 10), do(Client.wait, HOURS), do(Client.append, 11)),
        "b": deletes(1, 2),
        "c": steps(do(Client.wait, HOURS), do(Client.clean_up), do(Client.clean_up)),
        "d": steps(do(Client.tag, "keep", 1), do(Client.wait, HOURS), do(Client.read_tag, "keep")),
    },
    "indices": {
        "a": steps(do(Client.append, 10), do(Client.upsert, 1, 101), do(Client.append, 11)),
        "b": steps(do(Client.index), do(Client.compact), do(Client.extend_index)),
        "c": steps(do(Client.delete, 2), do(Client.update, 3, 303), do(Client.find, 0, 12)),
    },
    "remaps": {
        "a": steps(do(Client.delete, 4), do(Client.upsert, 5, 105), do(Client.append, 10)),
        "b": steps(do(Client.compact), do(Client.find, 4, 6), do(Client.extend_index)),
        "c": steps(do(Client.find, 5, 6), do(Client.update, 1, 101), do(Client.find, 0, 12)),
    },
    "deferred-remaps": {
        "a": steps(do(Client.delete, 4), do(Client.upsert, 5, 105), do(Client.append, 10)),
        "b": steps(compact_deferred, do(Client.find, 4, 6), compact_deferred, do(Client.extend_index)),
        "c": steps(do(Client.find, 5, 6), do(Client.compact), do(Client.find, 0, 12)),
    },
    "young": {
        "a": steps(do(Client.append, 10), do(Client.wait, 600.0), do(Client.append, 11)),
        "c": steps(do(Client.wait, 1800.0), do(Client.clean_up), do(Client.read)),
    },
    "everything": {
        "a": steps(do(Client.append, 10), do(Client.upsert, 9, 109), do(Client.append, 11)),
        "b": steps(do(Client.upsert, 9, 209), do(Client.delete, 1), do(Client.restore, 1)),
        "c": steps(do(Client.compact), do(Client.wait, HOURS), do(Client.clean_up)),
        "d": steps(do(Client.update, 2, 202), do(Client.tag, "keep", 2), do(Client.read)),
    },
}

_INDEXED = steps(do(Client.append, 4), do(Client.append, 5), do(Client.index))
"""Three fragments that one index covers."""

_BEFORE: Mapping[str, Script] = {"indices": _INDEXED, "remaps": _INDEXED, "deferred-remaps": _INDEXED}
"""What is done before the actors begin."""

UNIQUE = ("updates", "upserts")
"""Where no key may ever have two rows."""


_TAGGERS: Mapping[str, Mapping[str, Sequence[Callable[[Tagger], None]]]] = {
    # Left out, for no caller could do anything about it: a request to create that arrives once more after a
    # deletion, a move beside a deletion (`table.tagging`), power loss that undoes what others have seen.
    "tags": {
        "a": [lambda each: each.create(1), Tagger.read, Tagger.delete],
        "b": [lambda each: each.create(2), Tagger.read, Tagger.delete],
        "c": [lambda each: each.create(3), Tagger.delete, lambda each: each.create(1)],
    },
    "moved-tags": {
        "a": [lambda each: each.create(1), Tagger.read, lambda each: each.move(2)],
        "b": [lambda each: each.create(2), Tagger.read, lambda each: each.move(3)],
        "c": [lambda each: each.move(1), Tagger.read, Tagger.read],
    },
}


def _tables() -> dict[str, Callable[[], Scenario]]:
    found: dict[str, Callable[[], Scenario]] = {}
    media: tuple[Medium, ...] = ("disk", "objects")
    for medium in media:
        for name, actors in _ACTORS.items():

            def make(
                name: str = f"{name}-{medium}", actors: Mapping[str, Script] = actors, medium: Medium = medium
            ) -> Scenario:
                kind = name.rpartition("-")[0]
                before = _BEFORE.get(kind)
                return TableScenario(name, actors, settings(medium), kind in UNIQUE, before)

            found[f"{name}-{medium}"] = make
        for name, scripts in _TAGGERS.items():
            calm = settings(medium, without=Fault.LATE_DUPLICATE, machine_crash=False)
            found[f"{name}-{medium}"] = partial(NameScenario, f"{name}-{medium}", scripts, calm)
    return found


TABLES: Mapping[str, Callable[[], Scenario]] = _tables()
"""Scenarios of one table, or of one tag."""

CATALOGS: Mapping[str, Callable[[], Scenario]] = catalog_scenarios(settings)
"""Scenarios of a catalog."""

BATCHES: Mapping[str, Callable[[], Scenario]] = batch_scenarios(settings)
"""Scenarios of batches over several tables."""

STREAMS: Mapping[str, Callable[[], Scenario]] = stream_scenarios(settings)
"""Scenarios of one shard of a streamed table."""

SCENARIOS: Mapping[str, Callable[[], Scenario]] = {**TABLES, **CATALOGS, **BATCHES, **STREAMS}
"""Makers by name; each call makes a scenario anew."""
