"""The log of one shard: appending, acknowledging, reading again (MemWAL, section 3; decision D18).

Entries stand at positions 1, 2, 3, ... One append is in flight at a time: with two, the second could stand
behind a hole, where nobody finds it. An append is acknowledged only if, *after* its entry stood durably, the
newest manifest still had the writer's epoch: whoever claims later finds the entry and replays it.

Invariants, and their tests in tests/memwal/test_wal.py and tests/simulation/test_streams.py:
1. An acknowledged entry is durable and will be replayed: no owner's sentinel stands below it.
2. After an answer that does not tell, no other position is tried; the log is not used again (poisoned).
   Another one is tried only above a sentinel of an earlier epoch, which stands where ours does not.
3. An entry is never put at or below the replay cursor, nor above a position that is free.
4. Reading stops with an error at a hole, never silently.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tiltyard.errors import (
    CorruptFile,
    ObjectNotFound,
    OutcomeUnknown,
    ShardContention,
    ShardError,
    StoreError,
    TableNotFound,
    TiltyardError,
    UnsupportedFeature,
    WriterFenced,
    WriterPoisoned,
)
from tiltyard.format.shard_manifest import ShardManifest
from tiltyard.memwal import layout
from tiltyard.memwal.entry import Entry, EntryHead, decode_entry, encode_sentinel
from tiltyard.memwal.manifest import fenced, newest, read, still_ours
from tiltyard.memwal.settled import create_settled, whole
from tiltyard.store import Created, Store
from tiltyard.table.back_off import back_off
from tiltyard.table.versions import list_names

MAX_SENTINELS = 1024
"""How often a sentinel is tried while the owner before goes on appending, and how many late ones of others an
entry is put above.
"""

MAX_HOLES_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Persistence:
    """How often, and after how long, a failed append is tried again (`max_wal_persist_retries`,
    `wal_persist_retry_base_delay_ms`).
    """

    retries: int = 3
    base_delay_seconds: float = 0.05


class Log:
    """The log of a shard that this process owns, from the manifest of its claim.

    Not safe for threads: its callers take turns (group commit).
    """

    def __init__(
        self,
        shard: Store,
        manifest: ShardManifest,
        position: int,
        schema: Any,
        persistence: Persistence = Persistence(),
        table: Store | None = None,
    ) -> None:
        """`table`: the table's own store, to tell a table that is gone from a log that cannot be written."""
        self._shard = shard
        self._table = table
        self._manifest = manifest
        self._next = position
        self._schema = schema
        self._persistence = persistence
        self._head: EntryHead | None = None
        self._poison: TiltyardError | None = None

    @property
    def manifest(self) -> ShardManifest:
        """The newest manifest that is known."""
        return self._manifest

    @property
    def next_position(self) -> int:
        """Where the next entry goes."""
        return self._next

    @property
    def poison(self) -> TiltyardError | None:
        """Why the log cannot be used any more; None while it can."""
        return self._poison

    def adopt(self, manifest: ShardManifest) -> None:
        """Know a newer manifest of our epoch."""
        if manifest.version > self._manifest.version:
            self._manifest = manifest

    def end(self, error: TiltyardError) -> None:
        """Use the log no more: `error` is what every later call raises."""
        if self._poison is None:
            self._poison = error

    def check(self) -> None:
        """Raise what ended the log, if anything did."""
        if self._poison is not None:
            raise self._poison

    def append(self, batch: Any, generation: int) -> int:
        """Put one batch (columns of the log's schema, at least one row) at the tip, durably; its position.

        Raises `WriterFenced`, `WriterPoisoned`, `TableNotFound` (nothing was kept), `OutcomeUnknown`; after
        each of them the log is ended.
        """
        self.check()
        data = self._head_of(generation).encoded(batch)
        stands = False
        try:
            self._put(data)
            stands = True
            self._acknowledge(self._next)
        except TiltyardError as error:
            self._poison = self._without_table(error, data, stands)
            if self._poison is error:
                raise
            raise self._poison from error
        except BaseException:  # interrupted: the entry may stand
            self._poison = self._unknown(self._next, "the call was interrupted")
            raise
        self._next += 1
        return self._next - 1

    def _head_of(self, generation: int) -> EntryHead:
        """What entries of a generation begin with, kept for the next one."""
        head, epoch = self._head, self._manifest.writer_epoch
        if head is None or (head.epoch, head.generation) != (epoch, generation):
            head = self._head = EntryHead(self._schema, epoch, generation)
        return head

    def _put(self, data: Sequence[Any]) -> None:
        """Put an entry at the tip, above sentinels of earlier epochs that came late."""
        for _ in range(MAX_SENTINELS):
            if self._put_at(self._next, data):
                return
            self._next += 1
        raise WriterPoisoned(
            f"{MAX_SENTINELS} late sentinels of earlier epochs came into the log of {self._shard.uri} before "
            "one entry; nothing of this call was kept. Open the shard again"
        )

    def _put_at(self, position: int, data: Sequence[Any]) -> bool:
        """Whether the entry stands there; False where a sentinel of an earlier epoch does."""
        path = layout.entry_path(position)
        for attempt in range(self._persistence.retries + 1):
            answer, found = create_settled(self._shard, path, data, layout.WAL_DIR)
            if answer is Created.WON:
                return True
            if answer is Created.UNKNOWN:
                raise self._unknown(position, str(self._shard.failure(path) or "no answer"))
            if answer is Created.EXISTS:
                error = self._taken(position, found)
                if error is None:
                    return False
                raise error
            still_ours(self._shard, self._manifest)
            if attempt < self._persistence.retries:
                back_off(self._persistence.base_delay_seconds, attempt + 1, 5.0)
        cause = self._shard.failure(path)
        failed = WriterPoisoned(
            f"WAL persistence failed for the shard at {self._shard.uri} at position {position} after "
            f"{self._persistence.retries} retries: {cause}. Nothing of this call was kept; the shard can be "
            "opened again, which reads its log anew"
        )
        failed.__cause__ = cause
        raise failed

    def _taken(self, position: int, found: bytes | None) -> TiltyardError | None:
        """The error for a position at which somebody else's entry stands; None where that is a sentinel of an
        earlier epoch, which a claimant that was passed has put there late: it fences nobody, and holds no
        rows.
        """
        where = f"{self._shard.uri}/{layout.entry_path(position)}"
        ours = self._manifest.writer_epoch
        try:
            entry = None if found is None else decode_entry(found, position, where)
        except TiltyardError as error:
            return WriterPoisoned(f"position {position} of the log is taken by what cannot be read: {error}")
        theirs = ours if entry is None else entry.epoch
        if theirs > ours:
            return fenced(self._shard, ours, theirs)
        try:
            still_ours(self._shard, self._manifest)
        except WriterFenced as error:
            return error
        if entry is not None and theirs < ours and not entry.batches:
            return None
        return WriterPoisoned(
            f"WAL position {position} for the shard at {self._shard.uri} holds an entry of epoch {theirs} "
            f"that this writer (epoch {ours}) did not put there; nothing of this call was kept. Open the "
            "shard again, which reads its log anew"
        )

    def _without_table(self, error: TiltyardError, data: Sequence[Any], stands: bool) -> TiltyardError:
        """What to tell of an append that failed: that the table was deleted, where no version of it is there,
        nor a manifest of the shard, and the entry is not, or not any more; else the error. `stands`: whether
        the entry does, which is then removed: a table of the same name would begin with it.
        """
        doubtful = isinstance(error, OutcomeUnknown) and not stands
        if self._table is None or doubtful or isinstance(error, WriterFenced):
            return error
        path = layout.entry_path(self._next)
        try:
            if list_names(self._table) or newest(self._shard) is not None:
                return error
            if stands:
                if bytes(self._shard.read(path)) != whole(data):
                    return error
                self._shard.delete(path)
                self._shard.sync_dir(layout.WAL_DIR)
        except ObjectNotFound:
            pass  # it was deleted with the table
        except TiltyardError:
            return error
        return TableNotFound(
            f"the table at {self._table.uri} was deleted while rows were streamed into it: nothing of this "
            "call was kept, and what was streamed before went with the table. Create it anew, and stream "
            "into that"
        )

    def _unknown(self, position: int, why: str) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"the entry at position {position} of the log at {self._shard.uri} may or may not stand ({why}). "
            "Open the shard again: if it stands, its rows are there",
            version=position,
        )

    def _acknowledge(self, position: int) -> None:
        """Make sure that the shard was still ours after the entry stood. Raises `WriterFenced`, and
        `OutcomeUnknown` where that cannot be seen.
        """
        for attempt in range(self._persistence.retries + 1):
            try:
                self._still_ours("unknown")
            except WriterFenced:
                raise
            except TiltyardError as error:
                if attempt == self._persistence.retries:
                    why = f"whether the shard is still this writer's could not be seen: {error}"
                    raise self._unknown(position, why) from error
                back_off(self._persistence.base_delay_seconds, attempt + 1, 5.0)
            else:
                return

    def _still_ours(self, outcome: str) -> None:
        """Look whether the newest manifest is of our epoch: the one above ours first, then ours.

        In this order: were ours looked at first, a claim and the removal of ours in between could hide both.
        """
        while True:
            known = self._manifest
            if self._shard.exists(layout.manifest_path(known.version + 1)):
                current = read(self._shard, known.version + 1)
                if current.writer_epoch != known.writer_epoch:
                    raise fenced(self._shard, known.writer_epoch, current.writer_epoch, outcome)
                self._manifest = current
            elif self._shard.exists(layout.manifest_path(known.version)):
                return
            else:  # old ones were collected
                try:
                    self._manifest = still_ours(self._shard, known)
                except WriterFenced as error:
                    raise WriterFenced(str(error), outcome) from error


# -- the tip ------------------------------------------------------------------------------------


def positions(shard: Store) -> list[int]:
    """The positions at which entries stand, ascending."""
    return layout.entry_positions(shard.list_names(layout.WAL_DIR))


def put_sentinel(shard: Store, manifest: ShardManifest) -> int:
    """Put a sentinel of the manifest's epoch at the tip of the log, durably; its position. A hole that has
    nothing but sentinels above it gets one too: the owner before would append there.

    From then on the owner before cannot append unnoticed. Raises `WriterFenced`, `OutcomeUnknown`,
    `ShardContention`, StoreError.
    """
    data = encode_sentinel(manifest.writer_epoch)
    for attempt in range(MAX_SENTINELS):
        position, is_tip = _free(shard, manifest.replay_after)
        path = layout.entry_path(position)
        answer, found = create_settled(shard, path, data, layout.WAL_DIR)
        if answer is Created.WON or found == data:
            if is_tip:
                return position
            continue
        if answer is Created.UNKNOWN:
            raise OutcomeUnknown(
                f"the sentinel at position {position} of the log at {shard.uri} may or may not stand; open "
                "the shard again",
                version=position,
            )
        if answer is Created.NOT_DONE:
            cause = shard.failure(path)
            raise StoreError(
                f"the shard at {shard.uri} was claimed, but its log cannot be written: {cause}; open it again"
            ) from cause
        still_ours(shard, manifest)
        back_off(0.0, min(attempt, 3))
    raise ShardContention(
        f"fence sentinel write for the shard at {shard.uri} failed after {MAX_SENTINELS} conflicts: the "
        "owner before goes on appending"
    )


def _free(shard: Store, after: int) -> tuple[int, bool]:
    """Where a sentinel goes next, and whether that is the tip."""
    standing = [each for each in positions(shard) if each > after]
    hole = first_hole(after, standing)
    if hole is not None and only_sentinels(shard, [each for each in standing if each > hole]):
        return hole, False
    return (standing[-1] if standing else after) + 1, True


# -- reading ------------------------------------------------------------------------------------


def entries(shard: Store, after: int, until: int | None = None) -> Iterator[Entry]:
    """The entries above a position, in order, as far as the log goes when this is called.

    Raises `CorruptFile` for a hole and for an entry that cannot be read.
    """
    standing = [each for each in positions(shard) if each > after and (until is None or each <= until)]
    for position in without_holes(shard, after, standing):
        yield read_entry(shard, position)


def first_hole(after: int, standing: list[int]) -> int | None:
    """The first position above `after` at which nothing stands, though something does above it."""
    if not standing or standing[-1] - after == len(standing):
        return None
    return next(at for at, each in enumerate([*standing, 0], after + 1) if at != each)


def without_holes(shard: Store, after: int, standing: list[int]) -> list[int]:
    """The positions that follow `after`, as far as the log goes. Raises `CorruptFile` for a hole below rows.

    Above a hole there may be sentinels: the official writer puts its own one too high where a dead one left a
    temporary file at the tip, and appends into the hole (MemWAL, section 3.2). The log ends there.
    """
    hole = first_hole(after, standing)
    if hole is None:
        return standing
    if only_sentinels(shard, [each for each in standing if each > hole]):
        return [each for each in standing if each < hole]
    there = set(standing)
    missing = [each for each in range(after + 1, standing[-1]) if each not in there]
    shown = ", ".join(map(str, missing[:MAX_HOLES_SHOWN])) + (
        ", ..." if len(missing) > MAX_HOLES_SHOWN else ""
    )
    raise CorruptFile(
        f"the log of the shard at {shard.uri} has no entry at position {shown}, but entries up to "
        f"{standing[-1]}: what stands above a hole cannot be put in order. `tiltyard shard check` tells what "
        "is there, `tiltyard shard repair` mends it",
        f"{shard.uri}/{layout.WAL_DIR}",
    )


def only_sentinels(shard: Store, standing: list[int]) -> bool:
    """Whether the entries at these positions can be read and hold no rows."""
    try:
        return not any(read_entry(shard, each).batches for each in standing)
    except (CorruptFile, ObjectNotFound, UnsupportedFeature):
        return False


def read_entry(shard: Store, position: int) -> Entry:
    """One entry. Raises `CorruptFile`, `ObjectNotFound`."""
    path = layout.entry_path(position)
    try:
        data = shard.read(path)
    except ObjectNotFound:
        raise
    except StoreError as error:
        raise ShardError(f"the log entry at position {position} cannot be read: {error}") from error
    return decode_entry(data, position, f"{shard.uri}/{path}")
