"""Scenarios of one shard: claimers of either identity, writers, zombies, flushers, sealers, readers, and
those who compact, collect, clean and change the sharding.

The storage is looked at afterwards (`streams_checks`), and three things are asked of what was shown:

W10 Whoever comes next, after a power cut too, opens the shard, finds what the log says, by a scan and by a
    lookup, writes, publishes, and others read it; a shard that is sealed, or of another identity, refuses
    and stays as it is.
W11 A read shows the table as it was at one moment, no older than what was acknowledged to its process's
    writers, or published by anybody, before it began; a lookup shows the same. A feed of changes shows the
    log.
W12 Where nothing fails, callers are told of each other and of nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from tiltyard import runtime
from tiltyard.dataset import LanceDataset
from tiltyard.errors import (
    ClaimLost,
    ShardingChanging,
    ShardSealed,
    ShardSpecMismatch,
    TiltyardError,
    WriterClosed,
    WriterFenced,
)
from tiltyard.format.shard_manifest import ACTIVE, SEALED
from tiltyard.memwal.capture import capture
from tiltyard.memwal.identity import streamed
from tiltyard.memwal.lookup import Lookup
from tiltyard.memwal.manifest import newest, update
from tiltyard.memwal.resharding import compacted, tidy
from tiltyard.memwal.scan import LsmScan
from tiltyard.memwal.writer import ShardWriter
from tiltyard.session import Session
from tiltyard.table.snapshot import open_latest
from tiltyard.testing.simulation.explore import Scenario
from tiltyard.testing.simulation.history import History, Outcome
from tiltyard.testing.simulation.streams import (
    AGE_SECONDS,
    KEYS,
    MARK,
    SHARD,
    SHARD_DIR,
    Client,
    Ledger,
    Look,
    State,
    Write,
    bring_in,
    clear_away,
    make_table,
    rows,
    state_of,
)
from tiltyard.testing.simulation.streams_checks import check_errors, check_shard
from tiltyard.testing.simulation.streams_model import Archive, Reading, applied, read_log
from tiltyard.testing.simulation.world import Medium, Settings, World

Script = Callable[[Client], None]

TOLD_OF_EACH_OTHER = (
    ClaimLost,
    WriterFenced,
    ShardSealed,
    ShardSpecMismatch,
    ShardingChanging,
    WriterClosed,
)

POWER_CUT_CHANCE = 0.25

STALLS_SECONDS = (0.03, 2.0, 40.0, 4_000.0)
"""How long an actor may stand still. No longer: whoever waits for a flush looks every few seconds."""

NEXT_KEY, NEXT_VALUE = 5, 99
"""What whoever comes next writes."""


class Behind(AssertionError):
    """Whoever came next did not find what was told before."""


@dataclass(eq=False)
class StreamScenario:
    """Actors with a script each, on one shard of a table of a few rows. `a/1` and `a/2` are threads of
    process `a`. `automatic`: the table's shards have a sharding spec (1), else they are named by hand (0).
    """

    name: str
    actors: Mapping[str, Script]
    settings: Settings = field(default_factory=Settings)
    before: Script | None = None
    """What a process does in fair weather before the actors begin."""
    options: Mapping[str, Any] = field(default_factory=dict)
    automatic: bool = False
    is_short: bool = False
    """Whoever comes next reads and writes, and nothing is published once more: for many runs of one kind."""
    upkeep: bool = False
    """Whether a maintainer comes too, at last, and leaves everything in the base."""
    merges: bool = False
    """Whether the table has a merge function, by which values of a key are added up."""

    def run(self, world: World) -> list[str]:
        """Set up, act, check."""
        ledger = Ledger(world, History(world), merges=self.merges)
        clients: dict[str, Client] = {}

        def client() -> Client:
            return Client(ledger, world.store(), world.session(), self.options)

        def act(name: str, script: Script) -> None:
            process = name.partition("/")[0]
            if process not in clients:
                clients[process] = client()
            script(clients[process])

        def start() -> None:
            make_table(world, automatic=self.automatic or self.merges, merges=self.merges)
            if self.before is not None:
                self.before(client())

        world.calmly("setup", start)
        world.do({name: partial(act, name, script) for name, script in self.actors.items()})
        world.perhaps_cut_power(POWER_CUT_CHANCE)
        mark = len(world.scheduler.trace)
        wrong: list[str] = world.calmly("check", partial(_check, world, ledger, self.upkeep))
        del world.scheduler.trace[mark:]
        return wrong or next_ones(world, ledger, publish=self.upkeep or not self.is_short, upkeep=self.upkeep)


def _check(world: World, ledger: Ledger, upkeep: bool) -> list[str]:
    wrong = check_shard(world, ledger, upkeep=upkeep)
    wrong += check_errors(world, ledger, TOLD_OF_EACH_OTHER)
    if wrong:
        return wrong
    log = Archive.of(world).log()
    reading = read_log(log, {each.number: each for each in ledger.writes}, ledger.merges)
    for look in ledger.looks:
        wrong += _check_look(look, reading, ledger)
    for operation, after, shown in ledger.follows:
        whole = [
            (each.entry.position, *row) for each in log if each.entry.position > after for row in each.rows
        ]
        if shown != whole[: len(shown)]:
            wrong.append(f"W11: {operation}: {shown}, the log is {whole}")
        known = [
            each for each in ledger.writes if each.done and each.durable and _ended(each, operation.begun)
        ]
        positions = {position for position, _, _ in shown}
        for each in known:
            (place,) = reading.places[each.number]
            if place.position > after and place.position not in positions:
                wrong.append(f"W11: {operation} did not show {each}")
    return wrong


# -- what was shown ------------------------------------------------------------------------------


def _ended(write: Write, by: int) -> bool:
    return write.operation.ended is not None and write.operation.ended <= by


def _published_before(ledger: Ledger, begun: int) -> Iterator[Write]:
    """Writes that a flush made visible to everybody before this point."""
    for opened in ledger.opened:
        for flush in opened.published:
            if flush.outcome is Outcome.DONE and flush.ended is not None and flush.ended <= begun:
                yield from (each for each in opened.writes if each.done and _ended(each, flush.begun))


def _check_look(look: Look, reading: Reading, ledger: Ledger) -> list[str]:
    """W11: what was shown is the log up to an entry, and perhaps what the process had put lazily."""
    wrong = []
    looked_up = {key: value for key, value in look.scanned.items() if key in KEYS}
    if look.looked_up != looked_up:
        wrong.append(f"W11: {look.operation}: a scan shows {look.scanned}, a lookup {look.looked_up}")
    known = list(_published_before(ledger, look.begun))
    lazy: list[Write] = []
    for opened in look.with_memory:
        mine = [each for each in opened.writes if each.done and _ended(each, look.begun)]
        known += [each for each in mine if each.durable]
        lazy += [each for each in mine if not each.durable]
    least = max((_entries_to(each, reading) for each in known), default=0)
    most = sum(order < look.names for order in reading.orders)
    for count in range(least, most + 1):
        missing = [each for each in lazy if not 0 < _entries_to(each, reading) <= count]
        for pending, state in _with_lazy(look, reading, count, ledger.merges):
            if state == look.scanned and all(each in pending for each in missing):
                return wrong
    told = f"after {least} to {most} entries {reading.states[least : most + 1]}"
    lazily = f"lazily put was {[each.number for each in lazy]}"
    return [*wrong, f"W11: {look.operation} shows {look.scanned}, the table was {told}, {lazily}"]


def _entries_to(write: Write, reading: Reading) -> int:
    """How many entries with rows there are up to the one with this write; 0 for one that is not there."""
    places = reading.places.get(write.number)
    return reading.count_to(places[0].position) if places else 0


def _with_lazy(look: Look, reading: Reading, count: int, merges: bool) -> Iterator[tuple[list[Write], State]]:
    """The table after some entries, and with what a writer of the process may have held beyond them."""
    yield [], reading.states[count]
    for opened in look.with_memory:
        state, pending = reading.states[count], list[Write]()
        for each in opened.writes:
            places = reading.places.get(each.number)
            in_log = places is not None and reading.count_to(places[0].position) <= count
            if in_log or each.durable or not _begun(each, look):
                continue
            state = applied(state, each.rows, merges)
            pending = [*pending, each]
            yield pending, state


def _begun(write: Write, look: Look) -> bool:
    return look.operation.ended is None or write.operation.begun <= look.operation.ended


# -- whoever comes next --------------------------------------------------------------------------


def next_ones(world: World, ledger: Ledger, *, publish: bool, upkeep: bool) -> list[str]:
    """W10."""
    log = Archive.of(world).log()
    state = read_log(log, {each.number: each for each in ledger.writes}, ledger.merges).states[-1]
    after = applied(state, [(NEXT_KEY, NEXT_VALUE)], ledger.merges)
    try:
        if upkeep:
            world.calmly("next tidier", partial(_tidy, world, state))
        if not world.calmly("next refused", partial(_refused, world)):
            world.calmly("next writer", partial(_write, world, state, after, publish))
            state = after
            if publish:
                world.calmly("next reader", partial(_read, world, state))
        if upkeep:
            world.calmly("next maintainer", partial(_maintain, world, state))
    except (TiltyardError, Behind) as error:
        return [f"W10: {type(error).__name__} for whoever comes next: {error}"]
    return []


def _refused(world: World) -> bool:
    """Whether the shard cannot be opened, for a reason that holds; what is sealed is unsealed then."""
    store, session = world.store(), world.session()
    shard = store.at(SHARD_DIR)
    found = newest(shard)
    if found is None:
        return False
    dataset = LanceDataset._made(open_latest(store, session))
    spec = streamed(dataset._snapshot).spec
    is_ours = found.shard_spec_id == (0 if spec is None else spec.spec_id)
    if is_ours and found.status != SEALED:
        return False
    before = world.names_given
    try:
        ShardWriter.open(dataset, SHARD)
    except (ShardSealed, ShardSpecMismatch) as error:
        if isinstance(error, ShardSealed) != is_ours and (is_ours or found.status != SEALED):
            raise Behind(f"the shard is of spec {found.shard_spec_id}, of status {found.status}") from error
    else:
        raise Behind(f"the shard of spec {found.shard_spec_id}, of status {found.status}, was opened")
    if world.names_given != before or newest(shard) != found:
        raise Behind("a refused claim changed the shard")
    if is_ours:
        update(shard, found, lambda now: replace(now, status=ACTIVE))
    return not is_ours


def _write(world: World, state: State, after: State, publish: bool) -> None:
    store, session = world.store(), world.session()
    writer = ShardWriter.open(LanceDataset._made(open_latest(store, session)), SHARD)
    _compare(world, session, state, "after the log was replayed", writer)
    writer.put(rows({NEXT_KEY: NEXT_VALUE}))
    if not publish:
        writer.abort()
        return
    writer.flush()
    _compare(world, session, after, "after a flush", writer)
    writer.close()


def _read(world: World, state: State) -> None:
    _compare(world, world.session(), state, "by another process")


def _tidy(world: World, state: State) -> None:
    """Finish a change of the sharding, if there is one."""
    session = world.session()
    table = LanceDataset._made(open_latest(world.store(), session))
    if streamed(table._snapshot).draining:
        tidy(table, compacted)
        _compare(world, session, state, "after the change of the sharding was finished")


def _maintain(world: World, state: State) -> None:
    """Bring everything into the base, and collect what is left behind."""
    store, session = world.store(), world.session()
    bring_in(store, session)
    _compare(world, session, state, "after a compaction")
    found, twice = state_of(LanceDataset._made(open_latest(store, session)).to_table())
    if found != state or twice:
        raise Behind(f"after a compaction the base has {found}, the log {state}")
    runtime.sleep(AGE_SECONDS)
    clear_away(store, session)
    _compare(world, world.session(), state, "after a collection")


def _compare(world: World, session: Session, state: State, when: str, *writers: ShardWriter) -> None:
    captured = capture(world.store(), session, writers)
    scanned, twice = state_of(LsmScan(captured).table())
    found, _ = state_of(Lookup(captured).find(pa.array([*KEYS, MARK], pa.int64())))
    if scanned != state or twice:
        raise Behind(f"{when}: a scan gives {scanned}, the log {state}")
    if found != {key: value for key, value in state.items() if key in KEYS}:
        raise Behind(f"{when}: a lookup gives {found}, the log {state}")


# -- scripts -------------------------------------------------------------------------------------


def steps(*each: Callable[[Client], None]) -> Script:
    """One call after the other."""

    def script(client: Client) -> None:
        for step in each:
            step(client)

    return script


def do(method: Callable[..., None], *arguments: Any, **named: Any) -> Callable[[Client], None]:
    """A call of a client with its arguments."""
    return lambda client: method(client, *arguments, **named)


def put(*keys: int) -> Callable[[Client], None]:
    """A durable put."""
    return do(Client.put, *keys)


def lazily(*keys: int) -> Callable[[Client], None]:
    """A put that does not wait for its rows to be durable."""
    return do(Client.put, *keys, durable=False)


def delete(*keys: int) -> Callable[[Client], None]:
    """A durable deletion."""
    return do(Client.delete, *keys)


OPEN, CLOSE, FLUSH, SYNC, READ = Client.open, Client.close, Client.flush, Client.sync, Client.read
ONCE = Client.open_once
COMPACT, COLLECT = Client.compact, Client.collect

BEGUN = steps(OPEN, put(0, 3), FLUSH, put(1, 4), delete(0), Client.abort)
"""A shard that somebody had: one generation, and more in its log."""

SEALED_BEFORE = steps(OPEN, put(0, 3), CLOSE, Client.seal)

ACTORS: Mapping[str, Mapping[str, Script]] = {
    "claims": {
        "a": steps(OPEN, put(0), put(1), READ),
        "b": steps(do(Client.claim, 1), OPEN, put(0), CLOSE),
        "c": steps(OPEN, delete(0), put(2)),
    },
    "identities": {
        "a": steps(do(Client.claim, 0), do(Client.claim, 1)),
        "b": steps(do(Client.claim, 1), do(Client.claim, 0)),
        "c": steps(OPEN, put(1), READ),
    },
    "take-overs": {
        "a": steps(OPEN, put(0), put(1), FLUSH, put(2), READ, OPEN, put(4)),
        "b": steps(OPEN, put(0, 4), READ, delete(1), CLOSE, READ),
        "c": steps(do(Client.wait, 0.01), OPEN, put(2), READ, delete(3), FLUSH),
    },
    "threads": {
        "a/1": steps(ONCE, put(0), put(1), READ),
        "a/2": steps(ONCE, put(0, 2), delete(1), READ),
        "a/3": steps(ONCE, delete(0), put(1), FLUSH),
        "b": steps(do(Client.wait, 0.002), OPEN, put(0), FLUSH),
    },
    "flushes": {
        "a/1": steps(ONCE, put(0, 1), put(1, 2), delete(0), READ, put(3, 4), READ),
        "a/2": steps(ONCE, READ, put(5), FLUSH, READ, put(0), CLOSE),
        "b": steps(READ, READ, READ),
    },
    "lazy": {
        "a": steps(OPEN, lazily(0), lazily(1), READ, put(0, 2), lazily(1), SYNC, lazily(3), READ, CLOSE),
        "b": steps(do(Client.wait, 0.01), OPEN, lazily(4), READ, do(Client.wait, 0.3), READ),
    },
    "seals": {
        "a": steps(OPEN, put(0), put(1), FLUSH, put(2), CLOSE),
        "b": steps(Client.seal, OPEN, Client.unseal, OPEN, put(1), READ),
        "c": steps(Client.bump, do(Client.claim, 0), OPEN, put(2)),
    },
    "collections": {
        "a": steps(OPEN, put(0), FLUSH, put(1), put(2)),
        "b": steps(OPEN, put(3), FLUSH, Client.prune, put(4), READ),
        "c": steps(Client.prune, OPEN, put(0), CLOSE),
    },
    "feeds": {
        "a": steps(OPEN, put(0), delete(0, 1), put(1, 2), CLOSE),
        "b": steps(OPEN, put(3), do(Client.follow, 0), do(Client.follow, 2)),
        "c": steps(do(Client.follow, 0), READ, do(Client.follow, 1)),
    },
    "compactions": {
        "a": steps(OPEN, put(0), FLUSH, put(1, 4), delete(2), FLUSH, READ, put(0), READ),
        "b": steps(COMPACT, READ, COMPACT, READ),
        "c": steps(COMPACT, READ, OPEN, put(3), CLOSE, COMPACT),
    },
    "zombies": {
        "a": steps(OPEN, put(0), FLUSH, put(1), put(2), READ, put(3)),
        "b": steps(OPEN, put(3), FLUSH, COMPACT, COLLECT, put(4), READ),
        "c": steps(COLLECT, OPEN, delete(0), CLOSE, COMPACT, COLLECT),
    },
    "cleanings": {
        "a": steps(OPEN, put(0), FLUSH, READ, put(1), do(Client.wait, 20.0), READ, put(2), FLUSH, READ),
        "b": steps(COMPACT, Client.clean, READ, COMPACT, Client.clean),
        "c": steps(READ, COLLECT, COMPACT, READ),
    },
    "merges": {
        "a": steps(OPEN, put(0), FLUSH, put(0, 4), delete(1), READ, put(1), FLUSH, READ, put(0), lazily(4)),
        "b": steps(COMPACT, READ, OPEN, put(0, 1), READ, FLUSH, COMPACT, READ),
        "c": steps(READ, COMPACT, READ, delete(0), COLLECT, COMPACT, READ),
    },
    "revisions": {
        "a": steps(OPEN, put(0), READ, put(1), FLUSH, put(2), OPEN, put(4), READ),
        "b": steps(Client.revise, READ),
        "c": steps(do(Client.wait, 0.01), Client.tidy, READ, COMPACT, COLLECT),
    },
    "abandonments": {
        "a": steps(OPEN, put(0), READ, put(1), FLUSH, OPEN, put(2), OPEN, put(4), READ),
        "b": steps(Client.revise, READ),
        "c": steps(do(Client.wait, 0.01), Client.abandon, READ, OPEN, put(3), Client.tidy, COMPACT),
    },
}

UPKEEP = frozenset({"merges", "compactions", "zombies", "cleanings", "revisions", "abandonments"})
"""Groups with maintainers."""

STARTS: Mapping[str, Script | None] = {"identities": None, "threads": None, "feeds": BEGUN}
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "flushes": {"max_memtable_rows": 3},
    "take-overs": {"max_memtable_rows": 4},
}


def _with_stalls(settings: Settings) -> Settings:
    return replace(settings, weather=replace(settings.weather, stalls=STALLS_SECONDS))


def stream_scenarios(settings: Callable[[Medium], Settings]) -> dict[str, Callable[[], Scenario]]:
    """Makers by name."""
    found: dict[str, Callable[[], Scenario]] = {}
    media: tuple[Medium, ...] = ("disk", "objects")
    for medium in media:
        for group, actors in ACTORS.items():
            name = f"stream-{group}-{medium}"
            found[name] = partial(
                StreamScenario,
                name,
                actors,
                _with_stalls(settings(medium)),
                STARTS.get(group, BEGUN),
                OPTIONS.get(group, {}),
                group == "identities",
                upkeep=group in UPKEEP,
                merges=group == "merges",
            )
    return found
