"""What a shard's log says: everything that was ever put into it, in order, and the tables that follow.

Read from the archive of a run, where also what was collected or lost is kept, without the product's replay,
scans or lookups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tiltyard.format.shard_manifest import ShardManifest, decode_shard_manifest
from tiltyard.memwal import layout
from tiltyard.memwal.entry import Entry, decode_entry
from tiltyard.testing.simulation.chain import KEY, VALUE
from tiltyard.testing.simulation.streams import FIRST_KEYS, MARK, SHARD_DIR, State, Write
from tiltyard.testing.simulation.world import World

TABLE = "table"

LogRow = tuple[int, int | None]
"""A key and its value; None where the row deletes."""


@dataclass(frozen=True, slots=True)
class MadeManifest:
    """A manifest that was made, and its place in the order of all names."""

    order: int
    manifest: ShardManifest
    below_another: bool
    """Whether a greater version stood when it was made: in the place of one that was collected."""


@dataclass(frozen=True, slots=True)
class MadeEntry:
    """A log entry that was made."""

    order: int
    entry: Entry
    stands: bool

    @property
    def rows(self) -> list[LogRow]:
        """Its rows, in order."""
        found: list[LogRow] = []
        for batch in self.entry.batches:
            columns = [batch.column(name).to_pylist() for name in (KEY, VALUE, "_tombstone")]
            found += [(key, None if gone else value) for key, value, gone in zip(*columns, strict=True)]
        return found


@dataclass(eq=False)
class Archive:
    """Everything that was ever made below a shard's directory."""

    manifests: dict[int, list[MadeManifest]] = field(default_factory=dict)
    entries: dict[int, list[MadeEntry]] = field(default_factory=dict)
    files: dict[str, dict[str, int]] = field(default_factory=dict)
    """By SSTable directory: files and their place in the order of all names."""

    @classmethod
    def of(cls, world: World) -> Archive:
        """That of a world, as it is now."""
        made = cls()
        for order, path, each in world.made(f"{TABLE}/{SHARD_DIR}"):
            directory, _, name = path.partition("/")
            if directory == layout.MANIFEST_DIR:
                for version in layout.manifest_versions([name]):
                    manifest = decode_shard_manifest(each.data, path)
                    below = max(layout.manifest_versions(list(each.beside)), default=0) > version
                    made.manifests.setdefault(version, []).append(MadeManifest(order, manifest, below))
            elif directory == layout.WAL_DIR:
                for position in layout.entry_positions([name]):
                    entry = decode_entry(each.data, position, path)
                    made.entries.setdefault(position, []).append(MadeEntry(order, entry, world.stands(each)))
            elif layout.sstable_generation(directory) is not None:
                made.files.setdefault(directory, {}).setdefault(name, order)
        return made

    def on_top(self) -> list[MadeManifest]:
        """Every version that was made above all others, also what a power cut took."""
        return [each for every in self.manifests.values() for each in every if not each.below_another]

    def chain(self) -> list[MadeManifest]:
        """The versions, ascending; of a number that a power cut freed, what was made last. What was made
        below a greater one is none.
        """
        found = []
        for _, every in sorted(self.manifests.items()):
            on_top = [each for each in every if not each.below_another]
            found += on_top[-1:]
        return found

    def log(self) -> list[MadeEntry]:
        """The log: of each position what counts. Up to the cursor that is what stood when the cursor passed
        it, and above what stands.
        """
        found = []
        chain = self.chain()
        for position in sorted(self.entries):
            every = self.entries[position]
            passed = next((each.order for each in chain if each.manifest.replay_after >= position), None)
            if passed is not None:
                before = [each for each in every if each.order < passed]
                found += before[-1:]
            elif every[-1].stands:
                found.append(every[-1])
        return found


@dataclass(eq=False)
class Place:
    """Where a write stands in the log: its position, and its place among the writes there."""

    position: int
    turn: int


@dataclass(eq=False)
class Reading:
    """The log as writes: what stands where, and what stands there that nobody wrote."""

    places: dict[int, list[Place]] = field(default_factory=dict)
    """By a write's number."""
    strange: list[str] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    """The table after no entry, after the first with rows, and so on."""
    positions: list[int] = field(default_factory=list)
    """The positions of entries with rows."""
    orders: list[int] = field(default_factory=list)
    """Their places in the order of all names."""

    def count_to(self, position: int) -> int:
        """How many entries with rows stand up to a position."""
        return sum(each <= position for each in self.positions)


def first_state() -> State:
    """The base."""
    return {key: key for key in FIRST_KEYS}


def applied(state: State, rows: Sequence[LogRow], merges: bool) -> State:
    """The table after some more rows: the last of each key counts, or (`merges`) all are added up."""
    after = dict(state)
    for key, value in rows:
        if value is None:
            after.pop(key, None)
        else:
            after[key] = value + after.get(key, 0) if merges else value
    return after


def generation_of(rows: Sequence[LogRow], merges: bool) -> list[LogRow]:
    """What a generation of these rows holds, of each key: its last row; or (`merges`) one that deletes, if
    one does, and the sum of what came later, if anything did; sorted as `repr` does.
    """
    sums = applied({}, rows, merges)
    if merges:
        deleted = {key for key, value in rows if value is None}
        return sorted([*sums.items(), *((key, None) for key in deleted)], key=repr)
    last = {key: at for at, (key, _) in enumerate(rows)}
    return [row for at, row in enumerate(rows) if last[row[0]] == at]


def read_log(log: Sequence[MadeEntry], writes: Mapping[int, Write], merges: bool) -> Reading:
    """What the log says. Each write has to stand whole and by itself."""
    found = Reading(states=[first_state()])
    for each in log:
        rows = each.rows
        if not rows:
            continue
        for turn, (number, part) in enumerate(_parts(rows)):
            write = writes.get(number)
            if write is None or tuple(part) != write.rows:
                found.strange.append(f"entry {each.entry.position} holds {part}, of {write or 'nobody'}")
            found.places.setdefault(number, []).append(Place(each.entry.position, turn))
        found.positions.append(each.entry.position)
        found.orders.append(each.order)
        found.states.append(applied(found.states[-1], rows, merges))
    return found


def _parts(rows: Sequence[LogRow]) -> Iterator[tuple[int, list[LogRow]]]:
    """The rows by write."""
    part: list[LogRow] = []
    for at, (key, value) in enumerate(rows):
        part.append((key, value))
        follows = rows[at + 1][1] if at + 1 < len(rows) else None
        if value is None and key >= MARK:
            yield key - MARK, part
        elif value is not None and follows != value:
            yield value, part
        else:
            continue
        part = []
    if part:
        yield -1, part
