"""What is wrong with the shards of a table: looked at, judged, nothing changed.

A finding is *damage* where rows cannot be read or the shard cannot be opened, else a remark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tiltyard.errors import (
    CorruptFile,
    InvalidInput,
    ObjectNotFound,
    SchemaMismatch,
    StoreError,
    TiltyardError,
    nearest,
)
from tiltyard.format.mem_wal import MemWalDetails
from tiltyard.format.shard_manifest import ACTIVE, SEALED, ShardManifest
from tiltyard.memwal import layout
from tiltyard.memwal.check_rows import sstable_problems
from tiltyard.memwal.claim import INCARNATION
from tiltyard.memwal.identity import LAST_SPEC, merge_functions
from tiltyard.memwal.log_schema import LogSchema, check_same_key, log_schema, reconciled
from tiltyard.memwal.manifest import newest, of_begun
from tiltyard.memwal.marks import gap, resumed
from tiltyard.memwal.routing import is_drained
from tiltyard.memwal.wal import only_sentinels, read_entry
from tiltyard.store import Store
from tiltyard.table.apply.mem_wal import entry_of
from tiltyard.table.snapshot import Snapshot, open_latest

REPAIR = "`tiltyard shard repair` mends it"
MAX_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found: the shard, what about, what it means and what to do."""

    shard_id: str
    about: str
    problem: str
    is_damage: bool

    def __str__(self) -> str:
        return f"shard {self.shard_id}: {self.about}: {self.problem}"


def check_shards(base: Snapshot, shard_id: str | None = None, *, checksums: bool = False) -> list[Finding]:
    """Everything that is to say of a table's shards, or of one of them. With `checksums` all that was
    published is read in whole, too.
    """
    root = base.store.at(layout.ROOT)
    found: list[Finding] = []
    entry = entry_of(base.manifest)
    details = None if entry is None else MemWalDetails.of(entry)
    shards = layout.shard_ids(root.list_names(""))
    if shard_id is not None:
        asked = layout.parse_shard_id(shard_id)
        if asked not in shards:
            raise InvalidInput(f"{base.store.uri} has no shard {asked}; {nearest(asked, shards)}")
        shards = [asked]
    for each in shards:
        found += _Check(root.at(each), each, base, details, checksums).run()
    return found


class _Check:
    """One shard."""

    def __init__(
        self, shard: Store, shard_id: str, base: Snapshot, details: MemWalDetails | None, checksums: bool
    ) -> None:
        self._checksums = checksums
        self._shard = shard
        self._id = shard_id
        self._base = base
        self._details = details
        self._schema = log_schema(base.schema, merge_functions(base))

    def run(self) -> list[Finding]:
        return list(self._findings())

    def _damage(self, about: str, problem: str) -> Finding:
        return Finding(self._id, about, problem, True)

    def _remark(self, about: str, problem: str) -> Finding:
        return Finding(self._id, about, problem, False)

    def _findings(self) -> Iterator[Finding]:
        versions = layout.manifest_versions(self._shard.list_names(layout.MANIFEST_DIR))
        if versions and versions[-1] - versions[0] + 1 != len(versions):
            yield self._damage("its manifests", "versions are missing between the oldest and the newest")
        try:
            manifest = of_begun(self._shard)
        except (CorruptFile, StoreError) as error:
            yield self._damage("its newest manifest", f"cannot be read: {error}")
            return
        if manifest is None:
            yield self._remark(
                "its directory", "has no manifest: a claim was begun and not made, or it is not one"
            )
            return
        yield from self._identity(manifest)
        found = list(self._log(manifest))
        now = newest(self._shard) if any(each.is_damage for each in found) else None
        if now is not None and now.replay_after > manifest.replay_after:
            manifest, found = now, list(self._log(now))  # what was missing is published, and collected
        yield from found
        yield from self._sstables(manifest)

    def _identity(self, manifest: ShardManifest) -> Iterator[Finding]:
        if manifest.shard_id != self._id:
            yield self._damage("its manifest", f"is that of shard {manifest.shard_id or 'none'}")
        if manifest.status not in (ACTIVE, SEALED):
            yield self._damage("its status", f"{manifest.status} is not known: no writer of ours opens it")
        if self._details is None:
            yield self._remark("the table", "has no MemWAL: the shard's rows belong to none of its versions")
            return
        yield from self._spec(manifest, self._details)
        theirs = dict(manifest.field_entries).get(INCARNATION)
        ours = self._details.writer_defaults.get(INCARNATION, "").encode()
        if theirs is not None and theirs != ours:
            yield self._damage("its rows", "are those of an earlier table at this place")

    def _spec(self, manifest: ShardManifest, details: MemWalDetails) -> Iterator[Finding]:
        specs = {each.spec_id for each in details.sharding_specs}
        found = manifest.shard_spec_id
        if found in (specs or {0}) or is_drained(manifest, details.marks):
            return
        last = details.writer_defaults.get(LAST_SPEC, "")
        if last.isascii() and last.isdigit() and found <= int(last):
            yield self._remark(
                "its sharding spec",
                f"is {found}, an earlier one of the table's, and it is not emptied yet: `tiltyard shard "
                "revise TABLE --resume` does that",
            )
            return
        yield self._damage("its sharding spec", f"is {found}, the table has {sorted(specs) or 'none'}")

    # -- the log ---------------------------------------------------------------------------------

    def _log(self, manifest: ShardManifest) -> Iterator[Finding]:
        names = self._shard.list_names(layout.WAL_DIR)
        standing = layout.entry_positions(names)
        strays = len(names) - len(standing)
        if strays:
            yield self._remark(
                "its log", f"has {strays} files that are no entries: left by writers that ended"
            )
        above = [each for each in standing if each > manifest.replay_after]
        if above:
            missing = sorted(set(range(manifest.replay_after + 1, above[-1])) - set(above))
            shown = ", ".join(map(str, missing[:MAX_SHOWN]))
            if missing and only_sentinels(self._shard, [each for each in above if each > missing[0]]):
                yield self._remark(
                    "its log",
                    f"has no entry at {shown}, and nothing but sentinels above: a dead writer's temporary "
                    "file was taken for an entry; the next owner closes it",
                )
            elif missing:
                yield self._damage(
                    "its log",
                    f"has no entry at {shown}, but entries up to {above[-1]}: it cannot be opened; {REPAIR}",
                )
        last = 0
        for position in above:
            about = f"log entry {position}"
            try:
                entry = read_entry(self._shard, position)
                for batch in entry.batches:
                    reconciled(batch, self._schema, about)
            except SchemaMismatch as error:
                yield self._damage(about, str(error))
                continue
            except (TiltyardError, ObjectNotFound) as error:
                yield self._damage(about, f"{error}; {REPAIR}, without its rows")
                continue
            if entry.epoch > manifest.writer_epoch + 1:
                yield self._damage(
                    about, f"is of epoch {entry.epoch}, the shard's is {manifest.writer_epoch}; {REPAIR}"
                )
            if entry.batches and entry.generation is not None:
                if entry.generation < last:
                    yield self._damage(about, f"is of generation {entry.generation}, after one of {last}")
                last = max(last, entry.generation)

    # -- SSTables --------------------------------------------------------------------------------

    def _sstables(self, manifest: ShardManifest) -> Iterator[Finding]:
        mark = 0 if self._details is None else self._details.marks.get(self._id, 0)
        if mark >= manifest.current_generation:
            yield self._damage(
                "its mark", f"says that generation {mark} was compacted, which was never published"
            )
        if missing := gap(manifest, resumed(self._base, manifest, mark)):
            yield self._damage(
                "its SSTables",
                f"have none of generation {missing}, which is not in the table, and nothing above it is "
                f"compacted; {REPAIR}, without its rows",
            )
        named = {each.path for each in manifest.sstables}
        for each in manifest.sstables:
            store = self._shard.at(each.path)
            problems = list(missing_files(store, self._base, self._schema))
            if self._checksums and not problems:
                problems += sstable_problems(store, each, self._schema)
            for problem in problems:
                yield Finding(self._id, f"SSTable {each.path}", problem, is_damage=each.generation > mark)
        for name in self._shard.list_names(""):
            generation = layout.sstable_generation(name)
            if generation is not None and generation > mark and name not in named:
                yield self._remark(
                    f"directory {name}", "is named by no manifest: a flush that was not finished"
                )


def missing_files(store: Store, base: Snapshot, schema: LogSchema) -> Iterator[str]:
    """What an SSTable lacks that readers open."""
    try:
        snapshot = open_latest(store, base.session)
    except (TiltyardError, ObjectNotFound) as error:
        yield f"cannot be opened: {error}"
        return
    try:
        check_same_key([each.id for each in snapshot.schema.primary_key], schema, "it")
    except SchemaMismatch as error:
        yield str(error)
    wanted: Mapping[str, str] = {
        layout.BLOOM_FILTER: "lookups ask it in vain",
        **({layout.PK_PAGES: "", layout.PK_LOOKUP: ""} if schema.has_key else {}),
    }
    for path, meaning in wanted.items():
        if not store.exists(path):
            yield f"lacks {path}" + (
                f": {meaning}" if meaning else ", which the official package needs to scan"
            )
    for fragment in snapshot.fragments:
        paths = [f"data/{file.path}" for file in fragment.files]
        paths += [] if fragment.deletion is None else [fragment.deletion.path(fragment.id)]
        for path in paths:
            if not store.exists(path):
                yield f"lacks {path}: its rows cannot be read"
