"""The compactor: generations that shards have published become part of the table itself (decision D28).

    compact_streams(store, session, *, shards=None) -> Compaction

brings in everything that the shards' manifests name when it is called, of all shards of the table's life or
of those given, sealed ones and those of several sharding specs too; then takes what the base holds out of
the manifests. It owns no shard, fences nobody, and may run beside writers, readers and other compactors, of
other programs too. Whatever it is interrupted at, the next one goes on from what it finds.

One commit carries several generations of several shards: of each key the newest row, deletions with it, and
the marks that say so. Manifests are read before the base: what is above a mark is then there, or was brought
in by somebody else.

Invariants, and their tests in tests/memwal/test_compaction.py and tests/simulation:
1. Rows and marks are in one commit: no reader sees the one without the other.
2. Marks cover generations that were merged, contiguous from the mark before; two compactors never both
   commit one generation.
3. An SSTable leaves a manifest only after a version of the base whose mark covers it stands.
4. A manifest keeps its epoch, and what its owner published meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tiltyard import runtime
from tiltyard.errors import (
    BatchTooLarge,
    CorruptFile,
    IncompatibleTransaction,
    InvalidInput,
    ObjectNotFound,
    OutcomeUnknown,
    RetryableConflict,
    SchemaMismatch,
    ShardContention,
    StoreError,
    TableNotFound,
    TiltyardError,
    TooMuchContention,
    UnsupportedFeature,
    VersionNotFound,
    WriterFenced,
)
from tiltyard.format.operations import CompactedSsTable
from tiltyard.format.shard_manifest import ACTIVE, SEALED, ShardManifest, SsTable
from tiltyard.memwal import layout
from tiltyard.memwal.capture import open_sstable
from tiltyard.memwal.identity import NOT_INITIALIZED, merge_functions, spec_in_force
from tiltyard.memwal.life import of_this_life, readable
from tiltyard.memwal.log_schema import log_schema
from tiltyard.memwal.manifest import newest, update
from tiltyard.memwal.marks import marks_of, resumed, uncompacted
from tiltyard.memwal.sstable import written_version
from tiltyard.memwal.streamed_rows import appended, planned
from tiltyard.table.apply.mem_wal import entry_of
from tiltyard.table.back_off import back_off
from tiltyard.table.merge import Duplicates, Matched, MergeJob, Settings, WriteMode
from tiltyard.table.row_changes import RowChanges
from tiltyard.table.snapshot import Snapshot, open_latest

if TYPE_CHECKING:
    from tiltyard.session import Session
    from tiltyard.store import Store

MAX_COMMIT_ROWS = 2_000_000
"""Rows of SSTables that one commit takes in (their keys are in memory); one generation at least."""

MAX_MERGED_ROWS = 250_000
"""The same of a table with merge functions: all of their columns are in memory, with the base's rows."""

MAX_COMMIT_KEY_BYTES = 1 << 30
"""Bytes of keys that one commit takes in: what Arrow can hold in one array of text is twice that."""

MAX_CONFLICTS = 10
"""How often in a row one commit is planned again."""

MAX_TRIMS = 16
"""How often SSTables are taken out of a manifest whose shard changes hands meanwhile."""

_UNREADABLE = (CorruptFile, StoreError, TableNotFound, UnsupportedFeature, SchemaMismatch)

Generations = Mapping[str, tuple[SsTable, ...]]


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a compactor did. `version`: the base afterwards. `upserted`, `deleted`: rows of the base that were
    written, and taken away without another in their place. `problems`: what kept shards, by id, from being
    compacted; the others were.
    """

    version: int
    commits: int = 0
    generations: int = 0
    upserted: int = 0
    deleted: int = 0
    problems: Mapping[str, Exception] = field(default_factory=dict)


def compact_streams(store: Store, session: Session, *, shards: Collection[str] | None = None) -> Compaction:
    """Bring what the table's shards have published into the base.

    Raises `InvalidInput` (no MemWAL, a shard that there is not), `TooMuchContention`, `OutcomeUnknown`: the
    next compaction finds out; and what commits raise. What is wrong with one shard is in the result.
    """
    return _Compactor(store, session, shards).run()


@dataclass(frozen=True, slots=True)
class _Look:
    """Manifests, and the base as it was afterwards."""

    base: Snapshot
    manifests: Mapping[str, ShardManifest]
    marks: Mapping[str, int]


class _Compactor:
    """One run."""

    def __init__(self, store: Store, session: Session, shards: Collection[str] | None) -> None:
        self._store = store
        self._session = session
        self._wanted = shards
        self._problems: dict[str, Exception] = {}
        self._ends: dict[str, int] = {}
        """Up to which generation each shard is compacted now: what comes later is for the next run, or comes
        after one that cannot be read.
        """
        self._done = Compaction(0)

    def run(self) -> Compaction:
        look = self._look()
        self._ends |= {each: found.current_generation - 1 for each, found in look.manifests.items()}
        conflicts = 0
        most = MAX_COMMIT_ROWS if merge_functions(look.base) is None else MAX_MERGED_ROWS
        while True:
            self._trim(look)
            todo = self._todo(look)
            if not todo:
                return replace(self._done, version=look.base.version, problems=dict(self._problems))
            began = runtime.monotonic()
            try:
                self._merge(look, _chosen(todo, most))
                conflicts = 0
            except (RetryableConflict, IncompatibleTransaction, VersionNotFound) as error:
                conflicts += 1
                self._check_conflict(look, error, conflicts)
                back_off(runtime.monotonic() - began, conflicts, 1.0)
            except _UNREADABLE as error:
                self._isolate(look, todo, error)
            except (InvalidInput, BatchTooLarge):
                # Generations whose dictionaries have more values together than one file can number: each was
                # one file, and is one again.
                if most == 1:
                    raise
                most = 1
            look = self._look()

    # -- looking ---------------------------------------------------------------------------------

    def _look(self) -> _Look:
        manifests, problems = readable(self._store, self._wanted)
        self._problems |= problems
        manifests = {
            name: each for name, each in manifests.items() if name not in self._problems or name in self._ends
        }
        base = open_latest(self._store, self._session)
        if entry_of(base.manifest) is None:
            raise InvalidInput(NOT_INITIALIZED)
        ours = of_this_life(base, manifests)
        specs = {each: manifest.shard_spec_id for each, manifest in ours.items()}
        # Of a key in shards of several sharding specs the row of the one in force counts, as it does for
        # readers, then that of the newest: it comes last.
        now = spec_in_force(base) if len(set(specs.values())) > 1 else None
        ordered = sorted(ours, key=lambda each: (specs[each] == now, specs[each], each))
        return _Look(base, {each: ours[each] for each in ordered}, marks_of(base))

    def _todo(self, look: _Look) -> Generations:
        found: dict[str, tuple[SsTable, ...]] = {}
        for shard_id, manifest in look.manifests.items():
            if shard_id not in self._ends:
                continue
            try:
                mark = resumed(look.base, manifest, look.marks.get(shard_id, 0))
                waiting = uncompacted(manifest, mark)
            except TiltyardError as error:
                self._problems[shard_id] = error
                continue
            waiting = tuple(each for each in waiting if each.generation <= self._ends[shard_id])
            if waiting:
                found[shard_id] = waiting
        return found

    # -- merging ---------------------------------------------------------------------------------

    def _merge(self, look: _Look, chosen: Generations) -> None:
        """One commit. Raises what reading and committing raise; then nothing is changed."""
        base = look.base
        schema = log_schema(base.schema, merge_functions(base))
        levels = [
            open_sstable(base, shard_id, each, schema) for shard_id, facts in chosen.items() for each in facts
        ]
        marks = tuple(CompactedSsTable(shard_id, facts[-1].generation) for shard_id, facts in chosen.items())
        with RowChanges(base) as changes:
            if schema.has_key:
                settings = Settings(
                    matched=Matched.UPDATE,
                    insert=True,
                    duplicates=Duplicates.LAST,
                    write_mode=WriteMode.ROWS,
                    compacted_sstables=marks,
                    file_version=written_version(base),
                )
                plan = planned(base, levels, schema, settings)
                job = MergeJob(settings, plan.source.source)
                operation = job.write(changes, plan)
                changes.commit(operation, unhashed_key=job.has_unhashed_key(plan), keys_meet=plan.keys_meet)
                upserted = len(plan.plan.updated) + len(plan.plan.inserted)
                deleted = len(plan.plan.deleted)
            else:
                operation = appended(changes, levels, schema, marks)
                changes.commit(operation)
                upserted = sum(each.physical_rows for each in operation.new_fragments)
                deleted = 0
        done = self._done
        self._done = replace(
            done,
            commits=done.commits + 1,
            generations=done.generations + len(levels),
            upserted=done.upserted + upserted,
            deleted=done.deleted + deleted,
        )

    def _check_conflict(self, look: _Look, error: Exception, conflicts: int) -> None:
        """Raise unless planning again can help: another compactor was faster, or rows were changed."""
        if isinstance(error, VersionNotFound) and self._store.exists(look.base.location.path):
            raise error
        if isinstance(error, IncompatibleTransaction):
            now = marks_of(open_latest(self._store, self._session))
            if now == look.marks:
                raise error
        if conflicts >= MAX_CONFLICTS:
            raised = TooMuchContention(
                f"Too many concurrent writers: the compaction of streams into {self._store.uri} was planned "
                f"{conflicts} times, and each time others had changed the same rows meanwhile ({error}). "
                "Nothing is lost: compact again when it is quieter"
            )
            raised.winner = getattr(error, "winner", None)
            raise raised from error

    def _isolate(self, look: _Look, todo: Generations, error: Exception) -> None:
        """Find the shards whose SSTables cannot be read; they are left out, the others go on."""
        schema = log_schema(look.base.schema, merge_functions(look.base))
        now = self._look()
        found = False
        for shard_id, facts in todo.items():
            if now.marks.get(shard_id, 0) != look.marks.get(shard_id, 0):
                found = True  # another compactor was faster, and a collector after it
                continue
            for each in facts:
                try:
                    for _ in open_sstable(look.base, shard_id, each, schema).batches(schema.stored.fields):
                        pass
                except _UNREADABLE as failed:
                    self._problems[shard_id] = _unreadable(shard_id, each, failed)
                    self._ends[shard_id] = each.generation - 1
                    found = True
                    break
        if not found:
            raise error

    # -- what the base holds leaves the manifests ------------------------------------------------

    def _trim(self, look: _Look) -> None:
        for shard_id, manifest in look.manifests.items():
            mark = look.marks.get(shard_id, 0)
            if any(each.generation <= mark for each in manifest.sstables):
                try:
                    trim(self._store.at(layout.shard_dir(shard_id)), mark)
                except (OutcomeUnknown, ShardContention, StoreError, CorruptFile) as error:
                    self._problems[shard_id] = error  # what is left is taken out by the next run


def _unreadable(shard_id: str, fact: SsTable, failed: TiltyardError) -> TiltyardError:
    if isinstance(failed, SchemaMismatch):
        return failed  # it can be read, and says itself what to do
    if isinstance(failed, StoreError) and not isinstance(failed, ObjectNotFound):
        return failed  # it may go well the next time
    return CorruptFile(
        f"generation {fact.generation} of shard {shard_id} ({fact.path}) cannot be read, and neither it nor "
        f"what the shard holds above it is compacted: {failed}. Bring its files back, or give up all of the "
        "shard that is not in the table yet (`tiltyard shard drop TABLE SHARD --discard-streamed`)"
    )


def _chosen(todo: Generations, most: int = MAX_COMMIT_ROWS) -> Generations:
    """What one commit takes: ascending generations of each shard, up to so many rows, and
    `MAX_COMMIT_KEY_BYTES` of keys; one at least. Pure.
    """
    chosen: dict[str, tuple[SsTable, ...]] = {}
    rows = key_bytes = 0
    for shard_id, facts in todo.items():
        taken: list[SsTable] = []
        for each in facts:
            rows += each.physical_rows or most
            key_bytes += each.primary_key_bytes or 0
            if (rows > most or key_bytes > MAX_COMMIT_KEY_BYTES) and (taken or chosen):
                break
            taken.append(each)
        if taken:
            chosen[shard_id] = tuple(taken)
        if rows > most or key_bytes > MAX_COMMIT_KEY_BYTES:
            break
    return chosen


def trim(shard: Store, mark: int) -> ShardManifest | None:
    """Take the SSTables up to a mark of the base out of a shard's manifest, whoever owns the shard; the
    manifest then. None where there is no shard.

    Raises `OutcomeUnknown`, `ShardContention`, StoreError, `CorruptFile`.
    """

    def change(current: ShardManifest) -> ShardManifest:
        if current.status not in (ACTIVE, SEALED):
            return current  # of a status that we do not know nothing is changed
        kept = tuple(each for each in current.sstables if each.generation > mark)
        return current if len(kept) == len(current.sstables) else replace(current, sstables=kept)

    for attempt in range(MAX_TRIMS):
        known = newest(shard)
        if known is None:
            return None
        try:
            return update(shard, known, change)
        except WriterFenced:  # claimed meanwhile: the same on what the new owner has
            back_off(0.0, attempt + 1)
    raise ShardContention(
        f"the shard at {shard.uri} changed hands {MAX_TRIMS} times while compacted SSTables were to be taken "
        "out of its manifest; the next compaction does it"
    )


__all__ = ["Compaction", "compact_streams", "trim"]
