"""The collector: what streams leave behind is deleted when nobody can need it (decisions D29, D30).

    collect_streams(store, session, *, shards=None, grace=Grace()) -> Collected

deletes directories of SSTables, log entries and old manifests, of all shards of the table's life or of those
given. It may run beside everything, other collectors and other programs included. Ages are those of the
store's clock. What it is interrupted at is gone on with by the next one.

Why the log keeps its fences: a writer that was passed and sleeps can only write its next position, and that
is where its successor's sentinel stands. So no sentinel is ever deleted, nor the entry at the cursor, by
which the tip is found, nor anything above it.

Invariants, and their tests in tests/memwal/test_collection.py and tests/simulation:
1. A log entry goes only if it holds rows, stands below the cursor (of `Grace.log` ago), and the newest epoch
   is the first or has its sentinel.
2. Manifests go from the low end only, one after the other; the newest ones stay.
3. A published SSTable's directory goes only after its manifest did not name it for `Grace.sstables`, the base
   holds it, and every index of the base has caught up with it.
4. A directory that no manifest named goes only where no flush can name it any more, however long one may have
   slept: its generation is published, the shard is closed, or it was made before its owner's claim.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from tiltyard.errors import CorruptFile, InvalidInput, ObjectNotFound, TiltyardError
from tiltyard.format.mem_wal import MemWalDetails
from tiltyard.format.shard_manifest import ShardManifest
from tiltyard.memwal import layout
from tiltyard.memwal.entry import Head, decode_head
from tiltyard.memwal.life import of_this_life, readable
from tiltyard.memwal.manifest import read, write_hint
from tiltyard.memwal.routing import is_closed
from tiltyard.memwal.wal import positions
from tiltyard.table.apply.mem_wal import entry_of
from tiltyard.table.snapshot import Snapshot, open_latest
from tiltyard.table.wording import NS_PER_SECOND

if TYPE_CHECKING:
    from tiltyard.session import Session
    from tiltyard.store import Store
    from tiltyard.store.protocol import Listing

KEPT_MANIFESTS = 4
"""Newest manifests of a shard that stay however old they are."""

AT_ONCE = 1000
"""Log entries that are deleted at once."""

HEAD_BYTES = 160
"""What the kept facts of a log entry are accounted as."""


@dataclass(frozen=True, slots=True)
class Grace:
    """How long things stay, in seconds: `sstables` after a manifest has ceased to name them, for readers that
    have begun before, and old manifests; `log` entries after their rows are in an SSTable, for feeds that
    follow and for writers of other programs, which do not sync; `orphans`, what a flush or a put that failed
    has left.
    """

    sstables: float = 3600.0
    log: float = 60.0
    orphans: float = 7 * 86_400.0

    def __post_init__(self) -> None:
        for name in ("sstables", "log", "orphans"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e11:
                raise InvalidInput(f"{name} must be a number of seconds from 0, found {value!r:.60}")


USUAL_GRACE = Grace()


@dataclass(frozen=True, slots=True)
class Collected:
    """What was deleted, over all shards. `held`: by index, how many directories wait for it to catch up.
    `problems`: what kept shards, by id, from being looked through.
    """

    directories: int = 0
    entries: int = 0
    entry_bytes: int = 0
    manifests: int = 0
    temporary: int = 0
    held: Mapping[str, int] = field(default_factory=dict)
    problems: Mapping[str, Exception] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.directories or self.entries or self.manifests or self.temporary)


def collect_streams(
    store: Store, session: Session, *, shards: Collection[str] | None = None, grace: Grace = USUAL_GRACE
) -> Collected:
    """Delete what nobody needs any more of the table's shards.

    Raises `InvalidInput` for a shard that there is not, and what opening the table raises; what is wrong with
    one shard is in the result.
    """
    found, problems = readable(store, shards)
    base = open_latest(store, session)
    held: dict[str, int] = {}
    done = Collected()
    for shard_id, manifest in of_this_life(base, found).items():
        shard = store.at(layout.shard_dir(shard_id))
        try:
            for part in _Shard(shard, session, base, shard_id, manifest, grace, held).parts():
                done = _added(done, part)
        except TiltyardError as error:
            problems[shard_id] = error
    return replace(done, held=held, problems=problems)


def _added(one: Collected, other: Collected) -> Collected:
    return Collected(
        one.directories + other.directories,
        one.entries + other.entries,
        one.entry_bytes + other.entry_bytes,
        one.manifests + other.manifests,
        one.temporary + other.temporary,
    )


class _Shard:
    """One shard of a table, as it was when its newest manifest was read."""

    def __init__(
        self,
        shard: Store,
        session: Session,
        base: Snapshot,
        shard_id: str,
        manifest: ShardManifest,
        grace: Grace,
        held: dict[str, int],
    ) -> None:
        self._shard = shard
        self._session = session
        self._manifest = manifest
        self._grace = grace
        self._held = held
        self._now = shard.now_ns()
        self._versions = _manifest_stats(shard)
        entry = entry_of(base.manifest)
        details = None if entry is None else MemWalDetails.of(entry)
        self._mark = 0 if details is None else details.marks.get(shard_id, 0)
        self._caught_up = {
            each.name: 0 if details is None else details.catch_up.get(each.name, {}).get(shard_id, 0)
            for each in base.manifest.indices
            if not each.is_system
        }

    def parts(self) -> Iterator[Collected]:
        """Delete, kind by kind: what a manifest says is used before the manifest goes."""
        yield from self._directories()
        yield from self._entries()
        yield from self._manifests()
        yield from self._temporary()

    def _is_old(self, time_ns: int, seconds: float) -> bool:
        return self._now - time_ns >= seconds * NS_PER_SECOND

    # -- SSTables --------------------------------------------------------------------------------

    def _directories(self) -> Iterator[Collected]:
        named = {each.path for each in self._manifest.sstables}
        unnamed = {
            name: generation
            for name in self._shard.list_names("")
            if (generation := layout.sstable_generation(name)) is not None and name not in named
        }
        if not unnamed:
            return
        lately = self._named_lately(unnamed)
        for name, generation in sorted(unnamed.items(), key=lambda each: each[1]):
            if name not in lately and self._is_needless(name, generation):
                self._shard.delete_tree(name)
                yield Collected(directories=1)

    def _named_lately(self, unnamed: Collection[str]) -> set[str]:
        """Those that a manifest named within the grace, or may have."""
        recent: set[str] = set()
        newest_first = self._versions[::-1]
        for (version, made), below in pairwise(newest_first):
            if self._is_old(made, self._grace.sstables) or recent.issuperset(unnamed):
                return recent  # what the one below named was given up longer ago than that
            if below[0] != version - 1:
                return set(unnamed)
            try:
                recent |= {each.path for each in read(self._shard, below[0]).sstables}
            except ObjectNotFound:
                return set(unnamed)
        version, made = newest_first[-1] if newest_first else (0, self._now)
        is_known = version == 1 or self._is_old(made, self._grace.sstables)
        return recent if is_known else set(unnamed)  # manifests of the time in question are gone

    def _is_needless(self, name: str, generation: int) -> bool:
        """Whether nobody needs a directory that no manifest names, nor has named lately."""
        # A flush names the manifest's generation only: a smaller one can be named no more, by nobody.
        may_come = generation >= self._manifest.current_generation
        seconds = self._grace.orphans if may_come else self._grace.sstables
        files = self._shard.list(name)
        if not all(self._is_old(each.ctime_ns, seconds) for each in files):
            return False
        if generation <= self._mark:
            waiting = [index for index, reached in self._caught_up.items() if reached < generation]
            for index in waiting:
                self._held[index] = self._held.get(index, 0) + 1
            return not waiting
        return not may_come or (self._is_passed(files) and not self._may_be_target())

    def _is_passed(self, files: Listing) -> bool:
        """Whether no flush can name a directory of these files, however long one has slept: the shard is
        closed, or they were made before it was claimed for its epoch. Where there is none yet, a flush of the
        owner may have begun.
        """
        if is_closed(self._manifest):
            return True
        if not len(files):
            return False
        claimed_ns = 0
        for version, made in reversed(self._versions):
            try:
                if read(self._shard, version).writer_epoch != self._manifest.writer_epoch:
                    return all(each.ctime_ns < claimed_ns for each in files)
            except ObjectNotFound:
                break
            claimed_ns = made
        return False

    def _may_be_target(self) -> bool:
        """Whether the log says, or may say, into which directory rows above the cursor are to be flushed."""
        try:
            return any(
                self._head(each).has_target
                for each in positions(self._shard)
                if each > self._manifest.replay_after
            )
        except (CorruptFile, ObjectNotFound):
            return True

    # -- the log ---------------------------------------------------------------------------------

    def _entries(self) -> Iterator[Collected]:
        cursor = self._cursor()
        standing = positions(self._shard)
        below = [each for each in standing if each < cursor]
        rows = [each for each in below if (head := self._readable(each)) is not None and head.has_rows]
        if not rows or not self._is_fenced(standing):
            return
        sizes = {each.path: each.size for each in self._shard.list(layout.WAL_DIR)}
        going = [path for each in rows if (path := layout.entry_path(each)) in sizes]
        for first in range(0, len(going), AT_ONCE):
            removed = self._shard.delete_many(going[first : first + AT_ONCE])
            gone = removed.paths
            yield Collected(entries=len(gone), entry_bytes=sum(sizes[path] for path in gone))
            removed.check()

    def _cursor(self) -> int:
        """Up to where rows have been in SSTables for `Grace.log`; 0 for nowhere."""
        for version, made in reversed(self._versions):
            if version <= self._manifest.version and self._is_old(made, self._grace.log):
                if version == self._manifest.version:
                    return self._manifest.replay_after
                try:
                    return min(read(self._shard, version).replay_after, self._manifest.replay_after)
                except ObjectNotFound:
                    return 0
        return 0

    def _is_fenced(self, standing: Sequence[int]) -> bool:
        """Whether the newest owner's sentinel stands, below which nobody writes any more; the first owner
        needs none.
        """
        epoch = self._manifest.writer_epoch
        if epoch <= 1:
            return True
        for position in standing:
            head = self._readable(position)
            if head is not None and head.epoch == epoch and not head.has_rows:
                return True
        return False

    def _readable(self, position: int) -> Head | None:
        """What an entry is; None for one that is gone, and for one that cannot be read, which stays."""
        try:
            return self._head(position)
        except (CorruptFile, ObjectNotFound):
            return None

    def _head(self, position: int) -> Head:
        """What an entry is, kept in the session: entries do not change, but where one is repaired its file is
        another.
        """
        path = layout.entry_path(position)
        tag = self._shard.stat(path).tag

        def made() -> tuple[Head, int]:
            return decode_head(self._shard.map(path), position, f"{self._shard.uri}/{path}"), HEAD_BYTES

        key = (self._shard.identity, str(position), "log entry's head", tag)
        found: Head = self._session.cache.get_or(key, made)
        return found

    # -- manifests -------------------------------------------------------------------------------

    def _manifests(self) -> Iterator[Collected]:
        """Old ones, the lowest first, each removal durable before the next: no gap, whatever is cut off."""
        seconds = max(self._grace.sstables, self._grace.log)
        given_up = pairwise(self._versions)
        old = [version for (version, _), (_, made) in given_up if self._is_old(made, seconds)]
        old = old[: max(len(self._versions) - KEPT_MANIFESTS, 0)]
        if not old:
            return
        write_hint(self._shard, self._versions[-1][0])
        for version, expected in zip(old, range(old[0], self._manifest.version), strict=False):
            if version != expected:
                return
            removed = self._shard.delete_many([layout.manifest_path(version)])  # and no more: see the top
            removed.check()
            if removed.paths:
                self._shard.sync_dir(layout.MANIFEST_DIR)
                yield Collected(manifests=1)

    def _temporary(self) -> Iterator[Collected]:
        """Files that writers which died have left: the official package takes them for log entries."""
        for directory in (layout.WAL_DIR, layout.MANIFEST_DIR):
            for name in self._shard.list_names(directory):
                path = f"{directory}/{name}"
                if layout.is_temporary(name) and self._is_abandoned(path) and self._shard.delete(path):
                    yield Collected(temporary=1)

    def _is_abandoned(self, path: str) -> bool:
        try:
            return self._is_old(self._shard.stat(path).ctime_ns, self._grace.orphans)
        except ObjectNotFound:
            return False


def _manifest_stats(shard: Store) -> list[tuple[int, int]]:
    """Version of each manifest, ascending, and when it got its name (nanoseconds, store clock)."""
    found = []
    for each in shard.list(layout.MANIFEST_DIR):
        versions = layout.manifest_versions([each.path.rpartition("/")[2]])
        found += [(version, each.ctime_ns) for version in versions]
    return sorted(found)
