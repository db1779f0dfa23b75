"""Writers, readers and maintainers of one shard of a streamed table: each method is one call of the product's
own code, kept as what its caller was told or shown.

What the calls should have done is `streams_model`, what must hold in storage `streams_checks`, who calls what
at the same time `streams_scenarios`.

Every put writes a number of its own as the value of its rows, and every deletion deletes, beside its keys,
one that says which it is; so each row of the log tells whose it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count
from typing import Any

import pyarrow as pa

from tiltyard import runtime
from tiltyard.dataset import LanceDataset
from tiltyard.errors import (
    ClaimLost,
    InvalidInput,
    LogTruncated,
    OutcomeUnknown,
    ShardingChanging,
    ShardSealed,
    ShardSpecMismatch,
    UnsupportedFeature,
    WriterFenced,
)
from tiltyard.format.operations import Overwrite
from tiltyard.format.schema import Schema
from tiltyard.format.shard_manifest import ACTIVE, SEALED, ShardManifest
from tiltyard.format.transaction import Transaction
from tiltyard.memwal import layout
from tiltyard.memwal.capture import capture
from tiltyard.memwal.claim import INCARNATION, Identity, claim
from tiltyard.memwal.collection import Grace, collect_streams
from tiltyard.memwal.compaction import compact_streams
from tiltyard.memwal.identity import identity_of, streamed
from tiltyard.memwal.log_schema import LogSchema, log_schema
from tiltyard.memwal.lookup import Lookup
from tiltyard.memwal.manifest import newest, publish, update
from tiltyard.memwal.resharding import abandon, compacted, revise, tidy
from tiltyard.memwal.scan import LsmScan
from tiltyard.memwal.stream import open_writers
from tiltyard.memwal.tail import tail
from tiltyard.memwal.writer import ShardWriter
from tiltyard.session import Session
from tiltyard.store import Store
from tiltyard.table.apply import NewTable
from tiltyard.table.commit import commit
from tiltyard.table.snapshot import open_latest
from tiltyard.table.write import write_fragments
from tiltyard.testing.simulation.chain import KEY, VALUE
from tiltyard.testing.simulation.history import History, Operation, Outcome
from tiltyard.testing.simulation.world import World

SHARD = "6f1f3a52-9d0e-4f7c-8a57-0c6a5d1e2b3c"
SHARD_DIR = layout.shard_dir(SHARD)

FIRST_KEYS = range(3)
"""Keys of the rows of the base; each has its own number as value."""

KEYS = range(6)
"""Keys that are written and looked up."""

MARK = 1_000
"""A deletion deletes this key plus its number too."""

FIRST_NUMBER = 100

AGE_SECONDS = 10.0
"""So long do collectors and cleaners wait before they come."""

GRACE = Grace(sstables=5.0, log=1.0, orphans=8.0)
"""What is older than this when they come is taken."""

_FIELD = {b"lance-schema:unenforced-primary-key": b"true"}
SCHEMA = pa.schema([pa.field(KEY, pa.int64(), False, _FIELD), pa.field(VALUE, pa.int64())])

State = dict[int, int]
"""Values by key."""

REFUSALS = (
    ShardSpecMismatch,
    ShardSealed,
    ShardingChanging,
    UnsupportedFeature,
    ClaimLost,
    InvalidInput,
)
"""Whoever is told this has not claimed the shard."""


@dataclass(eq=False)
class Opened:
    """A writer that was opened, and all that was asked of it."""

    writer: ShardWriter
    begun: int
    """Scheduling point at which its opening began."""
    ended: int = 0
    writes: list[Write] = field(default_factory=list)
    logged: list[Operation] = field(default_factory=list)
    """Calls after which everything before is in the log: `sync`, `flush`, `close`."""
    published: list[Operation] = field(default_factory=list)
    """Calls after which everything before is in SSTables: `flush`, `close`."""

    @property
    def epoch(self) -> int:
        """The epoch that it claimed."""
        return self.writer.epoch


@dataclass(eq=False)
class Write:
    """A put or a deletion."""

    number: int
    keys: tuple[int, ...]
    deletes: bool
    durable: bool
    opened: Opened
    operation: Operation

    @property
    def rows(self) -> tuple[tuple[int, int | None], ...]:
        """Its rows in the log: key and value, None where the row deletes."""
        if self.deletes:
            return tuple((key, None) for key in (*self.keys, MARK + self.number))
        return tuple((key, self.number) for key in self.keys)

    @property
    def done(self) -> bool:
        """Whether its caller was told that it is done."""
        return self.operation.outcome is Outcome.DONE

    @property
    def refused(self) -> bool:
        """Whether its caller was told that nothing of it was kept."""
        return self.operation.outcome is Outcome.FAILED

    def __str__(self) -> str:
        return f"{self.operation}"


@dataclass(eq=False)
class Look:
    """What somebody was shown: the table's rows, by a scan and by a lookup."""

    operation: Operation
    begun: int
    """Scheduling point after which it looked."""
    with_memory: tuple[Opened, ...]
    """Writers of its process, whose memory it saw."""
    scanned: State
    looked_up: State
    names: int
    """How many names had been given in the world when it was shown."""


@dataclass(eq=False)
class Claimed:
    """A claim: of a writer's opening, or by itself."""

    operation: Operation
    spec_id: int
    nonce: bytes = b""
    epoch: int = 0

    @property
    def is_refused(self) -> bool:
        """Whether its caller was told that the shard is not theirs."""
        return self.operation.outcome is Outcome.FAILED and isinstance(self.operation.error, REFUSALS)


@dataclass(eq=False)
class Ledger:
    """All that was asked, told and shown in a run."""

    world: World
    history: History
    writes: list[Write] = field(default_factory=list)
    opened: list[Opened] = field(default_factory=list)
    claims: list[Claimed] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    follows: list[tuple[Operation, int, list[tuple[int, int, int | None]]]] = field(default_factory=list)
    """What feeds of changes showed: the position after which, and (position, key, value) of each row."""
    wrong: list[str] = field(default_factory=list)
    pruned: bool = False
    """Whether somebody collected who keeps no fences."""
    merges: bool = False
    """Whether rows of a key are added up, else the newest counts."""
    resharded: bool = False
    """Whether somebody sealed shards, which is to claim them, for a change of the sharding."""
    numbers: count[int] = field(default_factory=lambda: count(FIRST_NUMBER))


def rows(pairs: Mapping[int, int]) -> Any:
    """A batch of keys and values."""
    columns = [pa.array(list(pairs), pa.int64()), pa.array(list(pairs.values()), pa.int64())]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def make_table(world: World, *, automatic: bool, merges: bool = False) -> None:
    """The table, streamed into: its shards named by hand, or (`automatic`) by a sharding spec. `merges`: its
    values are added up.
    """
    store, session = world.store(), world.session()
    schema = Schema.from_arrow(SCHEMA)
    fragments = write_fragments(store, schema, [rows({key: key for key in FIRST_KEYS})])
    transaction = Transaction(0, str(runtime.uuid4()), Overwrite(tuple(fragments), schema))
    commit(store, transaction, session=session, base=None, new_table=NewTable(data_version="2.2"))
    LanceDataset._made(open_latest(store, session)).initialize_mem_wal(
        unsharded=automatic, merge_functions={VALUE: "sum"} if merges else None
    )


def bring_in(store: Store, session: Session) -> None:
    """Compact what was published into the base. Raises what kept a shard from it."""
    for problem in compact_streams(store, session).problems.values():
        raise problem


def clear_away(store: Store, session: Session) -> None:
    """Collect what is older than `GRACE`. Raises what kept a shard from it."""
    for problem in collect_streams(store, session, grace=GRACE).problems.values():
        raise problem


def state_of(table: Any) -> tuple[State, list[int]]:
    """Values by key of an Arrow table, and the keys that it has more than once."""
    found: State = {}
    twice = []
    for key, value in zip(table[KEY].to_pylist(), table[VALUE].to_pylist(), strict=True):
        if key in found:
            twice.append(key)
        found[key] = value
    return found, twice


@dataclass(eq=False)
class Client:
    """One process: its view of the table, and the writers that it opens. Threads may share it.

    `options`: settings of its writers. What a script asks of a writer that could not be opened is left out.
    """

    ledger: Ledger
    store: Store
    session: Session
    options: Mapping[str, Any] = field(default_factory=dict)
    writer: Opened | None = None
    opening: Any = field(default_factory=runtime.lock)

    @property
    def shard(self) -> Store:
        """The directory of the shard."""
        return self.store.at(SHARD_DIR)

    def _perform(self, name: str, run: Callable[[Operation], Any]) -> Operation:
        history = self.ledger.history
        before = len(history.operations)
        actor = self.ledger.world.scheduler.running
        found: list[Operation] = []

        def mine() -> None:
            found.append(
                next(each for each in history.operations[before:] if each.actor == (actor and actor.name))
            )
            try:
                run(found[0])
            except WriterFenced as error:
                if error.outcome == "unknown":
                    raise OutcomeUnknown(f"fenced: {error}") from error
                raise

        history.perform(name, mine)
        return found[0]

    # -- owning ----------------------------------------------------------------------------------

    def open(self) -> None:
        """Become the owner of the shard, whoever has it."""
        self.writer = None

        def run(operation: Operation) -> None:
            table = self._table()
            spec = streamed(table._snapshot).spec
            claimed = Claimed(operation, 0 if spec is None else spec.spec_id)
            self.ledger.claims.append(claimed)
            writer = ShardWriter.open(table, SHARD, **self.options)
            manifest = writer.owned.manifest
            claimed.nonce, claimed.epoch = manifest.claim_nonce, manifest.writer_epoch
            opened = Opened(writer, operation.begun, self.ledger.world.scheduler.steps)
            self.writer = opened
            self.ledger.opened.append(opened)

        self._perform("open", run)

    def open_once(self) -> None:
        """Open the shard unless another thread of the process has."""
        with self.opening:
            if self.writer is None:
                self.open()

    def claim(self, spec_id: int) -> None:
        """Claim the shard directly, for a sharding spec that may not be its own, and die before writing."""

        def run(operation: Operation) -> None:
            claimed = Claimed(operation, spec_id)
            self.ledger.claims.append(claimed)
            found = streamed(open_latest(self.store, self.session))
            incarnation = identity_of(found, SHARD, spec_id).incarnation
            made = claim(self.shard, Identity(SHARD, spec_id, incarnation), lambda _: None)
            claimed.nonce, claimed.epoch = made.claim_nonce, made.writer_epoch

        self._perform(f"claim {spec_id}", run)

    def initialise(self, spec_id: int) -> None:
        """Make the shard for a sharding spec without owning it, as other programs do."""

        def run(_: Operation) -> None:
            found = streamed(open_latest(self.store, self.session))
            incarnation = identity_of(found, SHARD, spec_id).incarnation or ""
            fields = ((INCARNATION, incarnation.encode()),)
            publish(self.shard, ShardManifest(SHARD, shard_spec_id=spec_id, field_entries=fields))

        self._perform(f"initialise {spec_id}", run)

    # -- writing ---------------------------------------------------------------------------------

    def put(self, *keys: int, durable: bool = True) -> None:
        """Insert or replace rows."""
        self._write(keys, False, durable)

    def delete(self, *keys: int, durable: bool = True) -> None:
        """Delete rows."""
        self._write(keys, True, durable)

    def _write(self, keys: tuple[int, ...], deletes: bool, durable: bool) -> None:
        opened = self.writer
        if opened is None:
            return
        number = next(self.ledger.numbers)

        def run(operation: Operation) -> None:
            write = Write(number, keys, deletes, durable, opened, operation)
            opened.writes.append(write)
            self.ledger.writes.append(write)
            if deletes:
                gone = pa.RecordBatch.from_arrays([pa.array([*keys, MARK + number], pa.int64())], names=[KEY])
                opened.writer.delete(gone, durable=durable)
            else:
                opened.writer.put(rows(dict.fromkeys(keys, number)), durable=durable)

        told = "" if durable else " lazily"
        self._perform(f"{'delete' if deletes else 'put'} {keys} as {number}{told}", run)

    def _ask(self, name: str, call: Callable[[ShardWriter], None], *, publishes: bool = False) -> None:
        opened = self.writer
        if opened is None:
            return

        def run(operation: Operation) -> None:
            opened.logged.append(operation)
            if publishes:
                opened.published.append(operation)
            call(opened.writer)

        self._perform(name, run)

    def sync(self) -> None:
        """Put into the log what was put lazily."""
        self._ask("sync", ShardWriter.sync)

    def flush(self) -> None:
        """Publish what was put."""
        self._ask("flush", ShardWriter.flush, publishes=True)

    def close(self) -> None:
        """Publish, and give the shard up."""
        self._ask("close", ShardWriter.close, publishes=True)
        self.writer = None

    def abort(self) -> None:
        """Give the shard up as it is."""
        if self.writer is not None:
            self.writer.writer.abort()
            self.writer = None

    # -- around the owner ------------------------------------------------------------------------

    def _coordinate(self, name: str, change: Callable[[ShardManifest], ShardManifest]) -> None:
        def run(_: Operation) -> None:
            known = newest(self.shard)
            if known is not None:
                update(self.shard, known, change)

        self._perform(name, run)

    def seal(self) -> None:
        """Let nobody claim the shard any more, within its owner's epoch."""
        self._coordinate("seal", lambda now: now if now.status == SEALED else replace(now, status=SEALED))

    def unseal(self) -> None:
        """Let it be claimed again."""
        self._coordinate("unseal", lambda now: now if now.status == ACTIVE else replace(now, status=ACTIVE))

    def bump(self) -> None:
        """Make a version of the manifest that matters to nobody."""
        self._coordinate("bump", lambda now: replace(now, last_seen=now.last_seen + 1))

    def prune(self) -> None:
        """Remove the log's entries that were published, and every manifest but the newest: what a program
        may do that thinks of readers only.
        """

        def run(_: Operation) -> None:
            self.ledger.pruned = True
            known = newest(self.shard)
            if known is None:
                return
            for position in layout.entry_positions(self.shard.list_names(layout.WAL_DIR)):
                if position <= known.replay_after:
                    self.shard.delete(layout.entry_path(position))
            for version in layout.manifest_versions(self.shard.list_names(layout.MANIFEST_DIR)):
                if version < known.version:
                    self.shard.delete(layout.manifest_path(version))

        self._perform("prune", run)

    # -- upkeep ----------------------------------------------------------------------------------

    def compact(self) -> None:
        """Bring what was published into the base."""
        self._perform("compact", lambda _: bring_in(self.store, self.session))

    def collect(self) -> None:
        """Delete what nobody needs, once it is old."""
        self.wait(AGE_SECONDS)
        self._perform("collect", lambda _: clear_away(self.store, self.session))

    def clean(self) -> None:
        """Remove old versions of the base."""
        self.wait(AGE_SECONDS)

        def run(_: Operation) -> None:
            self._table().cleanup_old_versions(timedelta(seconds=GRACE.sstables))

        self._perform("clean", run)

    def revise(self) -> None:
        """Give the table a sharding spec in place of shards named by hand."""
        self.ledger.resharded = True

        def run(_: Operation) -> None:
            try:
                revise(self._table(), compacted, {"unsharded": True})
            except InvalidInput:
                if streamed(self._table()._snapshot).spec is None:
                    raise  # else somebody else has done it

        self._perform("revise", run)

    def tidy(self) -> None:
        """Finish a change of the sharding that somebody began."""
        self.ledger.resharded = True
        self._perform("tidy", lambda _: tidy(self._table(), compacted))

    def abandon(self) -> None:
        """Call a change of the sharding off, if one is under way."""
        self.ledger.resharded = True

        def run(_: Operation) -> None:
            with suppress(InvalidInput):  # none is, or it is in force already
                abandon(self._table())

        self._perform("abandon", run)

    def _table(self) -> LanceDataset:
        return LanceDataset._made(open_latest(self.store, self.session))

    # -- reading ---------------------------------------------------------------------------------

    def read(self) -> None:
        """Read the whole table with the memory of the process's writers, and look its keys up."""

        def run(operation: Operation) -> None:
            writers = open_writers(self.store, self.session)
            mine = tuple(each for each in self.ledger.opened if each.writer in writers)
            begun = self.ledger.world.scheduler.steps
            captured = capture(self.store, self.session, writers)
            scanned, twice = state_of(LsmScan(captured).table())
            if twice:
                self.ledger.wrong.append(f"W11: a scan showed rows of {twice} twice: {operation}")
            found, twice = state_of(Lookup(captured).find(pa.array([*KEYS, MARK], pa.int64())))
            if twice:
                self.ledger.wrong.append(f"W11: a lookup showed rows of {twice} twice: {operation}")
            names = self.ledger.world.names_given
            self.ledger.looks.append(Look(operation, begun, mine, scanned, found, names))

        self._perform("read", run)

    def follow(self, after: int = 0) -> None:
        """Read the shard's log as a feed of changes."""

        def run(operation: Operation) -> None:
            shown: list[tuple[int, int, int | None]] = []
            schema = _schema(self.store, self.session)
            try:
                for change in tail(self.shard, schema, after):
                    columns = (change.rows.column(name).to_pylist() for name in (KEY, VALUE))
                    deletes = change.deletes.to_pylist()
                    shown += [
                        (change.position, key, None if gone else value)
                        for key, value, gone in zip(*columns, deletes, strict=True)
                    ]
            except LogTruncated:
                return
            self.ledger.follows.append((operation, after, shown))

        self._perform(f"follow {after}", run)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        runtime.sleep(seconds)


def _schema(store: Store, session: Session) -> LogSchema:
    return log_schema(open_latest(store, session).schema)
