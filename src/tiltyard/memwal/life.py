"""Which shards are this table's: a table that was overwritten, or made anew at its place, may find those of
an earlier life beside it (decision D21).

A table's MemWAL names its life by a random id, and so does every shard that our writers begin. A shard that
names none is taken for the table's; one that names another, and any shard beside a table that has no MemWAL,
is not: it is neither read nor written.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from tiltyard.errors import CorruptFile, InvalidInput, TiltyardError, nearest
from tiltyard.format.shard_manifest import ShardManifest
from tiltyard.memwal import layout
from tiltyard.memwal.claim import INCARNATION
from tiltyard.memwal.manifest import of_begun, read
from tiltyard.memwal.seen import streaming
from tiltyard.table.snapshot import Snapshot, open_latest

_LIFE = re.compile(rb"[0-9a-f]{32}")

if TYPE_CHECKING:
    from tiltyard.session import Session
    from tiltyard.store import Store


def lives(manifest: ShardManifest, incarnation: str | None) -> bool:
    """Whether the shard is one of this life of the table, as far as it says."""
    theirs = dict(manifest.field_entries).get(INCARNATION)
    return theirs is None or theirs == (incarnation or "").encode()


def of_this_life(base: Snapshot, manifests: Mapping[str, ShardManifest]) -> dict[str, ShardManifest]:
    """Those shards that are this version's. Raises `CorruptFile` for a manifest that does not say so rightly:
    to leave its shard out would be to lose rows in silence.
    """
    found = streaming(base)
    if found is None:
        return {}
    for shard_id, manifest in manifests.items():
        check_names(manifest, shard_id)
    return {shard: manifest for shard, manifest in manifests.items() if lives(manifest, found.incarnation)}


def readable(
    store: Store, shards: Collection[str] | None = None
) -> tuple[dict[str, ShardManifest], dict[str, Exception]]:
    """The newest manifests of all shards at the table's place, or of those given, and what kept others from
    being read, by shard. Raises `InvalidInput` for a shard that there is not.
    """
    root = store.at(layout.ROOT)
    there = layout.shard_ids(root.list_names(""))
    wanted = there if shards is None else sorted(map(layout.parse_shard_id, shards))
    found: dict[str, ShardManifest] = {}
    problems: dict[str, Exception] = {}
    for shard_id in wanted:
        if shard_id not in there:
            raise InvalidInput(f"{store.uri} has no shard {shard_id}; {nearest(shard_id, there)}")
        try:
            manifest = of_begun(root.at(shard_id))
            if manifest is not None:
                check_names(manifest, shard_id)
        except TiltyardError as error:
            problems[shard_id] = error
        else:
            if manifest is not None:
                found[shard_id] = manifest
    return found, problems


def last_readable(shard: Store) -> ShardManifest | None:
    """The newest of a shard's manifests that can be read, where the newest one cannot; None where none can.
    What a shard is (its sharding spec, its life) never changes, so that any of them tells it.
    """
    with suppress(TiltyardError):
        for version in reversed(layout.manifest_versions(shard.list_names(layout.MANIFEST_DIR))):
            with suppress(TiltyardError):
                return read(shard, version)
    return None


def check_names(manifest: ShardManifest, shard_id: str) -> None:
    """Raise `CorruptFile` unless the manifest is that of this shard, and names a life as writers of ours do,
    or none.
    """
    theirs = dict(manifest.field_entries).get(INCARNATION)
    is_life = theirs is None or _LIFE.fullmatch(theirs) is not None
    if manifest.shard_id == shard_id and is_life:
        return
    told = (
        f"names the life {theirs!r}, which none of our writers gave"
        if manifest.shard_id == shard_id
        else f"is that of shard {manifest.shard_id or 'none'}: it was copied there"
    )
    raise CorruptFile(
        f"the manifest in the directory of shard {shard_id} {told}, or it is damaged; what was streamed "
        "cannot be told from it. `tiltyard shard check` tells what is there",
        f"{layout.shard_dir(shard_id)}/{layout.manifest_path(manifest.version)}",
    )


def manifests(root: Store) -> dict[str, ShardManifest]:
    """The newest manifest of every shard of a table; `root` is its `_mem_wal`."""
    found = {}
    for shard_id in layout.shard_ids(root.list_names("")):
        manifest = of_begun(root.at(shard_id))
        if manifest is not None:
            found[shard_id] = manifest
    return found


def shards_of(store: Store, session: Session) -> tuple[Snapshot, dict[str, ShardManifest]]:
    """The table now, and the newest manifests of its shards."""
    found = manifests(store.at(layout.ROOT))
    base = open_latest(store, session)
    return base, of_this_life(base, found)
