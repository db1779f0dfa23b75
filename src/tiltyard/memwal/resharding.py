"""Another sharding for a table that is streamed into, in four steps (decision D31).

1. One commit gives the MemWAL both specs, the old and the new, and notes the old one as draining. From then
   on nobody opens a writer: ours tell `ShardingChanging`, other programs refuse a table of two specs.
2. Each shard of the old spec is sealed (`memwal.sealing`), which fences whoever has it open.
3. What the sealed shards hold is compacted into the base.
4. One commit leaves the new spec alone. Only now writers of it begin: before, a key could be in two shards.

Each step is found again from what stands: the note says that 2 to 4 are to be done, a shard's manifest
whether it is closed, the table's marks whether it is in the base. So anybody goes on where somebody stopped
(`tidy`), and several at once do no harm.

Until step 4 the change may be called off (`abandon`): one commit takes the new spec out again, which step 4
cannot meet any more, and the shards that were sealed for it take writers again. Each says which spec that
was, so that also what a reviser seals that wakes up later is opened by whoever comes next.

Another program that read the old spec before step 1 may begin a shard of it after step 2 has looked: a stray.
Readers count its rows; whoever calls `tidy` seals and drains it.

Invariants, and their tests in tests/memwal/test_resharding.py:
1. What cannot be done is refused before anything is written.
2. No id of a spec is given twice.
3. Step 4 is done only over a version whose marks cover every shard of the old spec, all of them closed.
4. Readers see each acknowledged row of each key once, at every moment.
5. What is called off is the table's sharding never again, and no shard of it was ever begun; shards that were
   sealed for another reason stay sealed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tiltyard import runtime
from tiltyard.errors import (
    CorruptFile,
    InvalidInput,
    RetryableConflict,
    ShardContention,
    ShardingChanging,
    StoreError,
    UnsupportedFeature,
)
from tiltyard.format.mem_wal import MemWalDetails, ShardingField, ShardingSpec
from tiltyard.format.operations import CreateIndex
from tiltyard.format.schema import Schema
from tiltyard.format.shard_manifest import ShardManifest
from tiltyard.format.transaction import Transaction
from tiltyard.memwal import layout
from tiltyard.memwal.claim import INCARNATION
from tiltyard.memwal.compaction import compact_streams
from tiltyard.memwal.identity import ACTIVE_SPEC, DRAINING_SPEC, LAST_SPEC, Streamed, streamed
from tiltyard.memwal.initialise import wanted_sharding
from tiltyard.memwal.life import last_readable, lives, manifests, of_this_life, readable, shards_of
from tiltyard.memwal.manifest import on_newest
from tiltyard.memwal.owner import Streamable, rehearse
from tiltyard.memwal.routing import is_closed, is_drained, sealed_for
from tiltyard.memwal.sealing import seal, unseal
from tiltyard.memwal.sharding import BUCKET, UNSHARDED, num_buckets
from tiltyard.table.apply.mem_wal import entry_of
from tiltyard.table.back_off import back_off
from tiltyard.table.commit import commit
from tiltyard.table.snapshot import Snapshot, open_latest
from tiltyard.table.wording import counted

Drain = Callable[[Streamable, Sequence[str]], object]
"""Compacts everything that these shards have published into the table's base."""

MAX_PLANS = 16
"""How often a commit is planned anew because others changed the table."""

MAX_ROUNDS = 64
"""How often shards are looked for anew while somebody goes on making them."""

BY_HAND = ShardingSpec(0, ())
"""What stands for shards named by hand while they are drained: two specs are needed to close the table."""

MAX_SPEC_ID = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Tidied:
    """What `tidy` did: shards sealed and drained, and the spec that took effect, if one did."""

    shards: tuple[str, ...]
    activated: int | None = None

    def __str__(self) -> str:
        told = f"{counted(len(self.shards), 'shard')} of earlier shardings sealed and drained"
        if self.activated is None:
            return told if self.shards else "nothing is left to do: the table's sharding is in force"
        force = f"sharding spec {self.activated} is in force"
        return f"{told}; {force}" if self.shards else f"{force}; no shard was to be emptied"


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A change of the sharding that was called off: the spec that was to come, in words, or None where that
    had been done and only shards were left to be opened; and these.
    """

    coming: str | None
    shards: tuple[str, ...]

    def __str__(self) -> str:
        told = "" if self.coming is None else f"the change to {self.coming} is called off; "
        return f"{told}shards that it had sealed and that take writers again: {len(self.shards)}"


def revise(
    table: Streamable, drain: Drain, sharding: Mapping[str, Any] | ShardingSpec, *, to_the_end: bool = True
) -> Tidied:
    """Give the table another sharding: all four steps, or with `to_the_end=False` the first alone.

    `sharding`: arguments as of `initialise`, or a spec, whose id does not count. Where the same change is
    under way already it is finished. Raises, before anything is written: `InvalidInput` for a sharding that
    the table has, or cannot have; `ShardingChanging` where it is being changed to another one;
    `UnsupportedFeature`, `CorruptFile` where a shard cannot be emptied. After an error of a later step call
    it, or `tidy`, again.
    """
    _begin(table, sharding)
    return tidy(table, drain) if to_the_end else Tidied(())


def compacted(table: Streamable, shards: Sequence[str]) -> None:
    """The usual `Drain`. Raises what kept one of the shards from being compacted."""
    done = compact_streams(table._store, table._session, shards=shards)
    for shard_id in shards:
        if shard_id in done.problems:
            raise done.problems[shard_id]


# -- step 1 -------------------------------------------------------------------------------------


def _begin(table: Streamable, sharding: Mapping[str, Any] | ShardingSpec) -> None:
    for attempt in range(MAX_PLANS):
        known = manifests(table._store.at(layout.ROOT))
        base = open_latest(table._store, table._session)
        found = streamed(base)
        wanted = wanted_sharding(base, sharding)
        if found.draining:
            _check_same(base, found, wanted)
            return
        active = found.spec
        if active is not None and active.fields == wanted.fields:
            raise InvalidInput(f"{base.store.uri} is sharded like this already: {shown(active, base.schema)}")
        for manifest in of_this_life(base, known).values():
            if not is_closed(manifest):
                shard = base.store.at(layout.shard_dir(manifest.shard_id))
                on_newest(shard, manifest, partial(rehearse, base))
        details = _with_both(found, active or BY_HAND, wanted.fields, _next_id(found, known))
        if _committed(base, details):
            return
        back_off(0.0, attempt + 1)
    raise ShardContention(
        f"the sharding of {table._store.uri} was not changed: others committed to its MemWAL {MAX_PLANS} "
        "times meanwhile; try again"
    )


def _check_same(base: Snapshot, found: Streamed, wanted: ShardingSpec) -> None:
    """Raise `ShardingChanging` where the change that is under way is another one."""
    coming = found.coming
    if coming.fields != wanted.fields:
        raise ShardingChanging(
            f"the table's sharding is being changed to {shown(coming, base.schema)} already, and "
            f"{shown(wanted, base.schema)} was asked for; nothing was changed. Finish that first (`tiltyard "
            "shard revise TABLE --resume`), or call it off (`--abandon`)"
        )


def _next_id(found: Streamed, known: Mapping[str, ShardManifest]) -> int:
    """An id that no spec ever had: greater than any that is noted, in the table, or in a shard's manifest (a
    table that another program restored has forgotten its last ones).
    """
    noted = found.details.writer_defaults.get(LAST_SPEC, "0")
    ids = [each.spec_id for each in found.details.sharding_specs]
    ids += [each.shard_spec_id for each in known.values()]
    last = max([int(noted) if noted.isascii() and noted.isdigit() else 0, *ids])
    if last >= MAX_SPEC_ID:
        raise InvalidInput(f"the table's sharding specs have used up their ids: the last is {last}")
    return last + 1


def _with_both(
    found: Streamed, old: ShardingSpec, fields: tuple[ShardingField, ...], new_id: int
) -> MemWalDetails:
    details = found.details
    specs = (*(details.sharding_specs or (old,)), ShardingSpec(new_id, fields))
    notes = {**details.writer_defaults, LAST_SPEC: str(new_id), DRAINING_SPEC: str(old.spec_id)}
    return details.resharded(specs, details.num_shards, notes)


# -- steps 2 to 4 -------------------------------------------------------------------------------


def tidy(table: Streamable, drain: Drain) -> Tidied:
    """Do what is left of a change of the sharding, and put away shards of earlier specs that were begun
    since. Nothing, and no byte changed, where there is neither.

    To be called before shards of the present spec are compacted: rows of a stray are older. Raises
    `ShardContention` where others go on making shards, and what sealing, `drain` and commits raise.
    """
    done: dict[str, None] = {}
    for attempt in range(MAX_ROUNDS):
        shards, problems = readable(table._store)
        base = open_latest(table._store, table._session)
        if entry_of(base.manifest) is None:
            return Tidied(tuple(done))
        found = streamed(base)
        left = _left(base, found, shards)
        broken = {each: problems[each] for each in problems if not _is_present(base, found, each)}
        if left or broken:
            _emptied(table, drain, found, left, broken)
            done |= dict.fromkeys(left)
        elif not found.draining:
            _opened_again(table, found, of_this_life(base, shards))
            return Tidied(tuple(done))
        elif _committed(base, _with_new(found)):
            return Tidied(tuple(done), found.coming.spec_id)
        back_off(0.0, min(attempt, 3))
    raise ShardContention(
        f"the shards of earlier shardings of {table._store.uri} could not all be emptied in {MAX_ROUNDS} "
        "rounds: others go on writing to them, or nothing was compacted; call it again"
    )


def told_left(base: Snapshot, shards: Mapping[str, ShardManifest]) -> str:
    """What `tidy` would do, in words; empty where there is nothing."""
    found = streamed(base)
    left = _left(base, found, shards)
    told = f"would seal and empty {counted(len(left), 'shard')} of earlier shardings" if left else ""
    if not found.draining:
        return told
    return (f"{told}; " if told else "") + f"would put {shown(found.coming, base.schema)} in force"


def _is_present(base: Snapshot, found: Streamed, shard_id: str) -> bool:
    """Whether a shard that cannot be read is one of the sharding in force, or of another table: what was
    streamed since an earlier sharding need not wait for it.
    """
    manifest = last_readable(base.store.at(layout.shard_dir(shard_id)))
    if manifest is None or found.draining:
        return False
    spec = found.spec
    is_ours = lives(manifest, found.details.writer_defaults.get(INCARNATION))
    return not is_ours or manifest.shard_spec_id == (0 if spec is None else spec.spec_id)


def _emptied(
    table: Streamable, drain: Drain, found: Streamed, left: Sequence[str], broken: dict[str, Exception]
) -> None:
    """Seal and drain these shards; where some cannot be, the others. Raises what keeps one from it.
    `broken`: what kept others, which may be to be emptied too, from being read.
    """
    coming = found.coming.spec_id if found.draining else None
    for shard_id in left:
        try:
            seal(table, shard_id, coming=coming)
        except (CorruptFile, StoreError, UnsupportedFeature) as error:
            broken[shard_id] = error
    sound = [each for each in left if each not in broken]
    if sound:
        try:
            drain(table, sound)
        except CorruptFile as error:
            raise _waited_for(
                error, "`tiltyard shard drop TABLE SHARD --discard-streamed` gives its rows up"
            ) from error
    for shard_id, problem in broken.items():
        if isinstance(problem, CorruptFile):
            raise _waited_for(problem, f"`tiltyard shard repair TABLE {shard_id}` mends its log") from problem
        raise problem


def _waited_for(error: CorruptFile, remedy: str) -> CorruptFile:
    return CorruptFile(
        f"a shard of an earlier sharding cannot be emptied, and everything that was streamed since waits for "
        f"it, since its rows are older: {error}. {remedy}",
        error.path,
    )


def _left(base: Snapshot, found: Streamed, shards: Mapping[str, ShardManifest]) -> list[str]:
    """Shards that are of another spec than the one in force or to come, and not in the base yet."""
    if found.draining:
        kept = found.coming.spec_id
    else:
        spec = found.spec
        kept = 0 if spec is None else spec.spec_id
    marks = found.details.marks
    return sorted(
        shard_id
        for shard_id, manifest in of_this_life(base, shards).items()
        if manifest.shard_spec_id != kept and not is_drained(manifest, marks)
    )


def _with_new(found: Streamed) -> MemWalDetails:
    details, coming = found.details, found.coming
    specs = tuple(each for each in details.sharding_specs if each.spec_id not in found.draining)
    notes = {name: text for name, text in details.writer_defaults.items() if name != DRAINING_SPEC}
    return details.resharded(specs, _num_shards(coming), {**notes, ACTIVE_SPEC: str(coming.spec_id)})


# -- calling it off -----------------------------------------------------------------------------


def abandon(table: Streamable) -> Abandoned:
    """Call a change of the sharding off, which is under way: the table's sharding stays as it was, and shards
    that were sealed for the change take writers again. What was compacted stays compacted.

    After an error call it, or `tidy`, again. Raises, changing nothing, `InvalidInput` where none is under
    way (it may have come into force just before), or where shards of the new sharding were begun (a version
    from the time of the change was restored): it can only be finished then.
    """
    for attempt in range(MAX_PLANS):
        base, shards = shards_of(table._store, table._session)
        found = streamed(base)
        if not found.draining:
            opened = _opened_again(table, found, shards)
            if opened:
                return Abandoned(None, opened)
            raise InvalidInput(
                f"no change of the sharding of {base.store.uri} is under way; it has "
                f"{shown(found.spec, base.schema)}"
            )
        coming = found.coming
        begun = [each for each, manifest in shards.items() if manifest.shard_spec_id == coming.spec_id]
        if begun:
            raise InvalidInput(
                f"the change of {base.store.uri} to {shown(coming, base.schema)} cannot be called off: shard "
                f"{begun[0]} of it was begun already. Finish it (`tiltyard shard revise TABLE --resume`)"
            )
        if _committed(base, _with_old(found)):
            base, shards = shards_of(table._store, table._session)
            opened = _opened_again(table, streamed(base), shards)
            return Abandoned(shown(coming, base.schema), opened)
        back_off(0.0, attempt + 1)
    raise ShardContention(
        f"the change of the sharding of {table._store.uri} was not called off: others committed to its "
        f"MemWAL {MAX_PLANS} times meanwhile; try again"
    )


def _with_old(found: Streamed) -> MemWalDetails:
    """The MemWAL without the spec that was to come. Its id stays noted as the last one: it is given to no
    other.
    """
    details, coming = found.details, found.coming.spec_id
    specs = tuple(each for each in details.sharding_specs if each != BY_HAND and each.spec_id != coming)
    notes = {name: text for name, text in details.writer_defaults.items() if name != DRAINING_SPEC}
    return details.resharded(specs, details.num_shards, notes)


def _opened_again(table: Streamable, found: Streamed, shards: Mapping[str, ShardManifest]) -> tuple[str, ...]:
    """Open shards of the spec in force that were sealed for one which there is not any more."""
    spec = found.spec
    here = {each.spec_id for each in found.details.sharding_specs}
    active = 0 if spec is None else spec.spec_id
    opened = []
    for shard_id, manifest in sorted(shards.items()):
        coming = sealed_for(manifest)
        if coming is not None and coming not in here and manifest.shard_spec_id == active:
            with suppress(InvalidInput):  # another shard has taken its rows since: it stays sealed
                unseal(table, shard_id)
                opened.append(shard_id)
    return tuple(opened)


def _num_shards(spec: ShardingSpec) -> int:
    """How many shards a spec makes; 0 where that is open."""
    if any(each.transform == UNSHARDED for each in spec.fields):
        return 1
    return max((num_buckets(each) for each in spec.fields if each.transform == BUCKET), default=0)


def _committed(base: Snapshot, details: MemWalDetails) -> bool:
    """Put another entry in place of the MemWAL's; False where others changed it meanwhile."""
    entry = entry_of(base.manifest)
    assert entry is not None  # `details` is made from it
    changed = replace(
        entry, uuid=str(runtime.uuid4()), dataset_version=base.version, details=details.encode()
    )
    transaction = Transaction(base.version, str(runtime.uuid4()), CreateIndex((changed,), (entry,)))
    try:
        commit(base.store, transaction, session=base.session, base=base)
    except RetryableConflict:
        return False
    return True


def shown(spec: ShardingSpec | None, schema: Schema) -> str:
    """A spec in words."""
    if spec is None or not spec.fields:
        return "shards named by hand"
    names = {each.id: each.name for each in schema.fields}
    parts = []
    for each in spec.fields:
        columns = ", ".join(names.get(id, f"field {id}") for id in each.source_ids)
        told = "" if each.transform != BUCKET else f" into {num_buckets(each)}"
        parts.append(f"{each.transform}" + (f" of {columns}{told}" if columns else ""))
    told = "; ".join(parts)
    return f"spec {spec.spec_id} ({told})" if spec.spec_id else told
