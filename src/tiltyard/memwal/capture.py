"""What a streamed table is at one moment: memory, SSTables and base, captured in the order in which rows move
(decision D20).

Rows go from memory to an SSTable to the base. So memory is looked at first, then the shards' manifests, then
the base: a row that moves meanwhile is seen twice, never not at all. Of two generations of one number the
published one counts, which is whole: beside an older, partial one, later SSTables would show what came after
rows that are left out. SSTables that the base's marks cover are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from tiltyard.errors import CorruptFile, ObjectNotFound, TableNotFound
from tiltyard.memwal import layout, seen
from tiltyard.memwal.identity import spec_in_force
from tiltyard.memwal.levels import Level, MemoryLevel, SsTableLevel
from tiltyard.memwal.life import check_names, lives, of_this_life
from tiltyard.memwal.log_schema import LogSchema, log_schema
from tiltyard.store.below import Below
from tiltyard.table.back_off import back_off
from tiltyard.table.snapshot import Snapshot, open_latest

if TYPE_CHECKING:
    from tiltyard.format.shard_manifest import ShardManifest, SsTable
    from tiltyard.memwal.memtable import View
    from tiltyard.session import Session
    from tiltyard.store import Store

MAX_CAPTURES = 8
"""How often a capture is repeated that names an SSTable which was collected meanwhile."""


class OpenShard(Protocol):
    """A shard that is open in this process."""

    @property
    def shard_id(self) -> str: ...
    def view(self) -> Any:
        """A `ShardView`: memory, newest first, then the manifest."""
        ...

    @property
    def owned(self) -> Any: ...


LEVEL_BYTES = 4096
"""What an open SSTable is accounted as."""


@dataclass(frozen=True, slots=True)
class ShardLevels:
    """One shard's levels, newest first; SSTables that the base holds already are not among them."""

    shard_id: str
    levels: tuple[Level, ...]
    manifest: ShardManifest | None = None

    @property
    def spec_id(self) -> int:
        """The sharding spec that the shard was made for; 0 for those named by hand."""
        return 0 if self.manifest is None else self.manifest.shard_spec_id


@dataclass(frozen=True)
class Captured:
    """A streamed table at one moment. Reads of it agree with each other."""

    base: Snapshot
    schema: LogSchema
    shards: tuple[ShardLevels, ...]
    """Those of the sharding in force first, then of later ones first: of a key in shards of two specs the
    first one's row counts.
    """

    _winners: list[Any] = field(default_factory=list, repr=False, compare=False)

    @property
    def winners(self) -> Any:
        """Which rows of the levels count (`winners.Winners`), kept. Threads that ask at once may each work it
        out: a lock, which a cached property of Python has, would let all readers wait for one.
        """
        if not self._winners:
            from tiltyard.memwal.winners import winners

            self._winners.append(winners(self))
        return self._winners[0]


def capture(
    store: Store,
    session: Session,
    open_shards: Iterable[OpenShard] = (),
    *,
    with_logs: bool = False,
    only: Collection[str] | None = None,
) -> Captured:
    """The table now: with the memory of shards that are open here, and every shard's published rows.

    `with_logs`: also what stands in the logs of shards that are not open here. `only`: the shards that are
    looked at; None for all that there are. Raises `CorruptFile` for an SSTable that is named and not there,
    and for a log that cannot be read; and what opening the table raises.
    """
    shards = list(open_shards)
    failed: Exception | None = None
    for attempt in range(MAX_CAPTURES):
        views = {each.shard_id: (each.view(), each.owned.schema) for each in shards}
        if with_logs:
            others = [each for each in seen.shards(store, session) if each not in views]
            views |= _logged(store, session, others)
        manifests = {}
        for shard_id in seen.shards(store, session) if only is None else only:
            found = seen.newest_manifest(store, session, shard_id)
            if found is not None:
                manifests[shard_id] = found
        if with_logs:
            passed = [
                each
                for each, (view, _) in views.items()
                if each in manifests and manifests[each].writer_epoch > view.manifest.writer_epoch
            ]
            # Taken over, and our writer does not know yet: what its successor has is in the log.
            views |= _logged(store, session, passed)
            manifests |= {
                each: found
                for each in passed
                if (found := seen.newest_manifest(store, session, each)) is not None
            }
        base = open_latest(store, session)
        schema = _log_schema(base)
        try:
            return _captured(base, schema, views, manifests)
        except (ObjectNotFound, TableNotFound) as error:
            failed = error  # collected between the two looks: its rows are in a newer base
            back_off(0.0, attempt + 1)
    raise CorruptFile(f"an SSTable of {store.uri} that its shard names is not there: {failed}") from failed


def _logged(store: Store, session: Session, shards: Iterable[str]) -> dict[str, tuple[Any, LogSchema]]:
    """What stands in the logs of shards that are not open here, as if they were."""
    asked = {
        each: found for each in shards if (found := seen.newest_manifest(store, session, each)) is not None
    }
    if not asked:
        return {}
    from tiltyard.memwal.logged import logged_view

    base = open_latest(store, session)
    schema = _log_schema(base)
    root = store.at(layout.ROOT)
    views = {each: logged_view(root.at(each), each, schema, session) for each in of_this_life(base, asked)}
    return {each: (view, schema) for each, view in views.items() if view is not None}


def _log_schema(base: Snapshot) -> LogSchema:
    """That of the base, kept in the session: reads ask for it each time."""
    cache, key = base.session.cache, (base.store.identity, "log schema")
    known: tuple[Any, LogSchema] | None = cache.get(key)
    if known is not None and known[0] is base.manifest:
        return known[1]
    schema = _made_log_schema(base)
    cache.put(key, (base.manifest, schema), LEVEL_BYTES)
    return schema


def _made_log_schema(base: Snapshot) -> LogSchema:
    """One for all versions of like columns and merge functions: what is kept of levels goes by it."""
    encoded = base.schema.encode()
    functions, merged = seen.merging(base)
    found: LogSchema = base.session.cache.get_or(
        ("log schema", encoded, merged),
        lambda: (log_schema(base.schema, functions), LEVEL_BYTES + len(encoded)),
    )
    return found


def _captured(
    base: Snapshot,
    schema: LogSchema,
    views: Mapping[str, tuple[Any, LogSchema]],
    manifests: Mapping[str, ShardManifest],
) -> Captured:
    shards: list[ShardLevels] = []
    for shard_id in sorted({*manifests, *views}):
        view, written = views.get(shard_id, (None, schema))
        known = _known(
            base, shard_id, manifests.get(shard_id), None if view is None else view.manifest, schema
        )
        if known is None:
            continue
        memory: Sequence[View] = () if view is None or not known.view_lives else view.memtables
        in_memory = [MemoryLevel(each, written, schema) for each in memory if each.generation > known.covered]
        shards.append(ShardLevels(shard_id, (*in_memory, *known.levels), known.manifest))
    if len({each.spec_id for each in shards}) > 1:
        now = spec_in_force(base)
        shards.sort(key=lambda each: (each.spec_id != now, -each.spec_id))
    return Captured(base, schema, tuple(shards))


@dataclass(frozen=True, slots=True)
class _Known:
    """What follows for a shard from a version of the table and the shard's manifests, as long as those are
    the same objects.
    """

    base: Any
    schema: LogSchema
    seen: ShardManifest | None
    viewed: ShardManifest | None
    """As the writer that is open here knows it."""
    manifest: ShardManifest
    """The newer of the two, of those that are of this life of the table."""
    view_lives: bool
    covered: int
    """The generation up to which rows are in SSTables or in the base."""
    levels: tuple[SsTableLevel, ...]


def _known(
    base: Snapshot,
    shard_id: str,
    seen_here: ShardManifest | None,
    viewed: ShardManifest | None,
    schema: LogSchema,
) -> _Known | None:
    """What counts of a shard beside memory, kept in the session; None for one that is not this table's."""
    cache, key = base.session.cache, (base.store.identity, shard_id, "levels", "")
    known: _Known | None = cache.get(key)
    if (
        known is not None
        and known.base is base.manifest
        and known.seen is seen_here
        and known.viewed is viewed
        and known.schema is schema
    ):
        return known
    streaming = seen.streaming(base)
    if streaming is None:
        return None
    living = []
    for each in (seen_here, viewed):
        if each is not None:
            check_names(each, shard_id)
            if lives(each, streaming.incarnation):
                living.append(each)
    if not living:
        return None
    manifest = max(living, key=lambda each: each.version)
    mark = streaming.marks.get(shard_id, 0)
    levels = _published(base, shard_id, manifest, mark, schema)
    # What was published since memory was looked at is whole in its SSTable or in the base, and may hold
    # more: where another process has taken the shard over, its rows too.
    covered = max(mark, manifest.current_generation - 1)
    made = _Known(
        base.manifest,
        schema,
        seen_here,
        viewed,
        manifest,
        any(each is viewed for each in living),
        covered,
        levels,
    )
    cache.put(key, made, LEVEL_BYTES * (1 + len(levels)))
    return made


def _published(
    base: Snapshot, shard_id: str, manifest: ShardManifest, mark: int, schema: LogSchema
) -> tuple[SsTableLevel, ...]:
    """The SSTables that a shard's manifest names and the base does not hold, newest first."""
    return tuple(
        open_sstable(base, shard_id, fact, schema)
        for fact in reversed(manifest.sstables)
        if fact.generation > mark
    )


def open_sstable(base: Snapshot, shard_id: str, fact: SsTable, schema: LogSchema) -> SsTableLevel:
    """A published generation of a shard. Raises `TableNotFound`, `CorruptFile`."""
    if "/" in fact.path or fact.path in ("", ".", ".."):
        raise CorruptFile(
            f"shard {shard_id} names an SSTable {fact.path!r}, which is no directory of its own"
        )
    path = f"{layout.shard_dir(shard_id)}/{fact.path}"

    def made() -> tuple[SsTableLevel, int]:
        return SsTableLevel(open_latest(Below(base.store, path), base.session), fact, schema), LEVEL_BYTES

    # Published SSTables never change, and their names are random.
    key = (base.store.identity, path, "sstable", schema.table.encode())
    found: SsTableLevel = base.session.cache.get_or(key, made)
    return found


def listed(
    base: Snapshot, shards: Iterable[tuple[str, Sequence[SsTable]]], schema: LogSchema | None = None
) -> Captured:
    """A table with exactly these SSTables: what a caller lists. Those that the base holds are left out."""
    wanted = _log_schema(base) if schema is None else schema
    streaming = seen.streaming(base)
    marks: Mapping[str, int] = {} if streaming is None else streaming.marks
    found = []
    for shard_id, facts in shards:
        newest_first = sorted(facts, key=lambda each: each.generation, reverse=True)
        levels = tuple(
            open_sstable(base, shard_id, each, wanted)
            for each in newest_first
            if each.generation > marks.get(shard_id, 0)
        )
        found.append(ShardLevels(shard_id, levels))
    return Captured(base, wanted, tuple(found))
