"""Before a table loses its MemWAL: an overwrite, or a restore to before it (decision D21).

Rows that were streamed and are not in the base yet go with it, so it is refused while there are any, unless
the caller gives them up. Whoever streams is fenced first, then the rows are counted anew: none that was
acknowledged before is overlooked. What is left of the shards is put where nobody looks.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from tiltyard import runtime
from tiltyard.errors import (
    ClaimLost,
    CorruptFile,
    ObjectNotFound,
    ShardSealed,
    StoreError,
    TiltyardError,
    UndrainedRows,
    UnsupportedFeature,
)
from tiltyard.format.names import PRIVATE_DIR
from tiltyard.format.shard_manifest import ShardManifest
from tiltyard.memwal import layout
from tiltyard.memwal.claim import INCARNATION, Identity, claim
from tiltyard.memwal.life import of_this_life, readable, shards_of
from tiltyard.memwal.marks import marks_of
from tiltyard.memwal.replay import is_published
from tiltyard.memwal.wal import positions, put_sentinel, read_entry
from tiltyard.store import Store
from tiltyard.table.apply.mem_wal import entry_of
from tiltyard.table.snapshot import Snapshot
from tiltyard.table.wording import counted

ASIDE = f"{PRIVATE_DIR}/shards"
MAX_CLAIMS = 8
"""How often a shard is claimed while other writers open it."""


@dataclass(frozen=True, slots=True)
class Undrained:
    """Streamed rows (puts and deletes) that are not in the base: how many, in how many shards, and how many
    log entries cannot be read, whose rows nobody can count.
    """

    rows: int
    shards: int
    unreadable: int = 0

    def __bool__(self) -> bool:
        return bool(self.rows or self.unreadable)

    def __str__(self) -> str:
        told = f"{counted(self.rows, 'row')} in {counted(self.shards, 'shard')}"
        if self.unreadable:
            told += f" and {self.unreadable} log entries that cannot be read"
        return told


def undrained(base: Snapshot, shards: Mapping[str, ShardManifest]) -> Undrained:
    """What the shards hold that this version of the table does not."""
    marks = marks_of(base)
    rows = unreadable = holding = 0
    for shard_id, manifest in shards.items():
        store = base.store.at(layout.shard_dir(shard_id))
        published = [each for each in manifest.sstables if each.generation > marks.get(shard_id, 0)]
        here = sum(each.physical_rows or 1 for each in published)
        logged, lost = _logged(store, manifest)
        here += logged
        rows, unreadable, holding = rows + here, unreadable + lost, holding + bool(here or lost)
    return Undrained(rows, holding, unreadable)


def _logged(store: Store, manifest: ShardManifest) -> tuple[int, int]:
    """Rows of a log that no SSTable has, and entries that cannot be read."""
    rows = lost = 0
    for position in positions(store):
        if position <= manifest.replay_after:
            continue
        try:
            logged = read_entry(store, position)
            rows += 0 if is_published(logged, manifest) else logged.rows
        except ObjectNotFound:
            continue  # collected since: its rows are in an SSTable
        except (CorruptFile, UnsupportedFeature):
            lost += 1
    return rows, lost


def refuse_undrained(base: Snapshot, what: str) -> None:
    """Raise `UndrainedRows` where the table has streamed rows that are not in its base."""
    if entry_of(base.manifest) is not None:
        now, shards = shards_of(base.store, base.session)
        _refuse(now, shards, what)


@contextmanager
def streams_ended(base: Snapshot, what: str, discard: bool) -> Iterator[None]:
    """Fence everybody who streams into the table, and once the block has taken its MemWAL away, put the
    shards aside. Nothing for a table that has none.

    Raises `UndrainedRows` unless `discard`: before anybody is fenced, where rows are there already.
    """
    if entry_of(base.manifest) is None:
        yield
        return
    now, shards = shards_of(base.store, base.session)
    if not discard:
        _refuse(now, shards, what)
    for shard_id, manifest in shards.items():
        _fence(now, shard_id, manifest)
    lost = undrained(*shards_of(base.store, base.session))
    if lost and not discard:
        raise _refusal(base, lost, what)
    yield
    told_lost(base, lost, what)
    for shard_id, manifest in shards.items():
        with suppress(TiltyardError):  # who opened one meanwhile has lost the table: its next call tells
            _fence(now, shard_id, manifest)
        # Where the store cannot move it, it stays, and names the life that it belongs to.
        with suppress(UnsupportedFeature, ObjectNotFound, StoreError):
            base.store.move_dir(layout.shard_dir(shard_id), f"{ASIDE}/{shard_id}-{runtime.uuid4().hex[:8]}")


def lost_with(base: Snapshot) -> Undrained:
    """What goes with the table if it goes now. Shards that cannot be read count as entries that cannot."""
    found, problems = readable(base.store)
    here = undrained(base, of_this_life(base, found))
    return replace(here, unreadable=here.unreadable + len(problems))


def told_lost(base: Snapshot, lost: Undrained, what: str) -> None:
    """Warn of streamed rows that were given up."""
    if lost:
        warnings.warn(
            f"{what} of {base.store.uri} gave up {lost} that were streamed and not in its base",
            RuntimeWarning,
            stacklevel=4,
        )


def _refuse(base: Snapshot, shards: Mapping[str, ShardManifest], what: str) -> None:
    found = undrained(base, shards)
    if found:
        raise _refusal(base, found, what)


def _refusal(base: Snapshot, found: Undrained, what: str) -> UndrainedRows:
    return UndrainedRows(
        f"{what} is refused: {found}, streamed into {base.store.uri}, are not in its base yet and would be "
        "lost; nothing was changed. table.drain() brings them in, discard_streamed=True gives them up",
        found.rows,
    )


def _fence(base: Snapshot, shard_id: str, manifest: ShardManifest) -> None:
    shard = base.store.at(layout.shard_dir(shard_id))
    incarnation = dict(manifest.field_entries).get(INCARNATION)
    told = None if incarnation is None else incarnation.decode("utf-8", "replace")
    for attempt in range(MAX_CLAIMS):
        try:
            claimed = claim(shard, Identity(shard_id, manifest.shard_spec_id, told), lambda _: None)
            put_sentinel(shard, claimed)
            return
        except ShardSealed:
            return
        except ClaimLost:
            if attempt == MAX_CLAIMS - 1:
                raise
