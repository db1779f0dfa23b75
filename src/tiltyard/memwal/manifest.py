"""Reading a shard's manifest, and putting the next version in its place.

Versions are files that are created once, numbered without holes; the greatest is the truth. The hint beside
them is written for other programs and never read here.

Invariants, and their tests in tests/memwal/test_manifest.py:
1. A version is made only from the version directly below it: exclusive creation of number n + 1.
2. A change is made again on whatever other writers of the same epoch put in between, and not at all where the
   epoch has risen.
3. An answer that was lost is settled by what stands there, or told as unknown.
4. A version whose number was free only because it had been collected does not count as made.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

from tiltyard.errors import (
    CorruptFile,
    ObjectNotFound,
    OutcomeUnknown,
    ShardContention,
    ShardError,
    StoreError,
    WriterFenced,
)
from tiltyard.format.shard_manifest import ShardManifest, decode_shard_manifest, encode_shard_manifest
from tiltyard.memwal import layout
from tiltyard.memwal.settled import create_settled
from tiltyard.store import Created, Store
from tiltyard.table.back_off import back_off

MAX_UPDATES = 10
"""How often a change is made again after somebody else's."""

MAX_LOOKS = 8
"""How often a listing is repeated whose newest version is gone when it is read."""

MAX_SHOWN = 8
"""How many generations an error shows."""

Found = TypeVar("Found")
Change = Callable[[ShardManifest], ShardManifest]
"""What the next version differs in; its number is put in by `update`."""


def newest(shard: Store) -> ShardManifest | None:
    """The newest version of a shard's manifest; None where there is no shard. Raises `CorruptFile`."""
    for _ in range(MAX_LOOKS):
        versions = layout.manifest_versions(shard.list_names(layout.MANIFEST_DIR))
        if not versions:
            return None
        with suppress(ObjectNotFound):  # old ones are collected: look again
            return read(shard, versions[-1])
    raise ShardError(
        f"the newest manifest of the shard at {shard.uri} vanishes whenever it is read: manifests must not "
        "be removed from the top"
    )


def of_begun(shard: Store) -> ShardManifest | None:
    """`newest` of what may be a shard; None where none was begun there. Raises `CorruptFile` for a log
    without a manifest, which stands before the first entry: the rows would be missing in silence, and a shard
    that began anew would publish generations under numbers that the table has as compacted.
    """
    for _ in range(2):
        found = newest(shard)
        if found is not None or not layout.entry_positions(shard.list_names(layout.WAL_DIR)):
            return found
    raise CorruptFile(
        f"the shard at {shard.uri} has log entries and no manifest: its manifests were removed. Bring them "
        "back; or move its directory away, and with it what was streamed and is not in the table",
        layout.MANIFEST_DIR,
    )


def on_newest(shard: Store, known: ShardManifest, look: Callable[[ShardManifest], Found]) -> Found:
    """What a look at the log says that begins at the cursor of a manifest; `known`: the newest a moment ago.

    Entries below the cursor are collected. Where one is missing, and the cursor has gone on since the
    manifest was read, it is looked again with the manifest of now. Raises what `look` raises.
    """
    for _ in range(MAX_LOOKS):
        try:
            return look(known)
        except (CorruptFile, ObjectNotFound):
            now = newest(shard)
            if now is None or now.replay_after <= known.replay_after:
                raise
            known = now
    return look(known)


def read(shard: Store, version: int) -> ShardManifest:
    """One version. Raises `ObjectNotFound`, and `CorruptFile` where it is not the one that it is named."""
    path = layout.manifest_path(version)
    found = decode_shard_manifest(shard.read(path), f"{shard.uri}/{path}")
    if found.version != version:
        raise CorruptFile(f"the file named for version {version} says that it is {found.version}", path)
    _check_generations(found, f"{shard.uri}/{path}")
    return found


def _check_generations(found: ShardManifest, where: str) -> None:
    """Raise `CorruptFile` where what a manifest says of generations contradicts itself. It has no checksum,
    and one number that is wrong would hide rows from readers, or count them as compacted.
    """
    generations = [each.generation for each in found.sstables]
    named = [layout.sstable_generation(each.path) or each.generation for each in found.sstables]
    is_ascending = all(one < other for one, other in pairwise(generations))
    if generations and (
        generations != named or not is_ascending or generations[-1] >= found.current_generation
    ):
        shown = ", ".join(f"{each.generation} ({each.path})" for each in found.sstables[:MAX_SHOWN])
        raise CorruptFile(
            f"the manifest says that generations {shown} are published and that the next is "
            f"{found.current_generation}, which cannot be: it is damaged",
            where,
        )


def publish(shard: Store, manifest: ShardManifest) -> Created:
    """Create one version, its bytes being this caller's alone or anybody's who wants the same.

    UNKNOWN also where greater ones stand and the one below is gone: others may have built on it since, or
    made and collected this number before, so that what a sleeper made lies where nobody reads (invariant 4).
    """
    path = layout.manifest_path(manifest.version)
    answer, _ = create_settled(shard, path, encode_shard_manifest(manifest), layout.MANIFEST_DIR)
    if answer is not Created.WON or manifest.version == 1:
        return answer
    for attempt in range(MAX_LOOKS):
        try:
            return Created.WON if _is_on_top(shard, manifest) else Created.UNKNOWN
        except StoreError:
            back_off(0.0, attempt + 1)
    return Created.UNKNOWN


def _is_on_top(shard: Store, made: ShardManifest) -> bool:
    """Whether a version that was made stands where it should. Collectors take the oldest versions first, so
    while the one below is there, none above it was ever taken.
    """
    if shard.exists(layout.manifest_path(made.version - 1)):
        return True
    current = newest(shard)
    if current is None or current.version <= made.version:
        return True
    return current.writer_epoch >= made.writer_epoch and current.claim_nonce == made.claim_nonce


def write_hint(shard: Store, version: int) -> None:
    """Tell other programs where to begin to look; nothing depends on it."""
    with suppress(StoreError):
        shard.write_hint(f"{layout.MANIFEST_DIR}/{layout.HINT}", b'{"version":%d}' % version)


def update(shard: Store, known: ShardManifest, change: Change) -> ShardManifest:
    """Put `change(newest)` in place of the newest version, within the epoch of `known`; the new version.

    `change` may return what it was given: then nothing is written. Raises `WriterFenced`, `ShardContention`,
    `OutcomeUnknown`, StoreError, and what `change` raises.
    """
    current = known
    for attempt in range(MAX_UPDATES):
        wanted = change(current)
        if wanted is current:
            return current
        wanted = replace(wanted, version=current.version + 1)
        answer = publish(shard, wanted)
        if answer is Created.WON:
            write_hint(shard, wanted.version)
            return wanted
        if answer is Created.NOT_DONE:
            raise _failed(shard, wanted.version)
        if answer is Created.UNKNOWN:
            raise OutcomeUnknown(
                f"version {wanted.version} of the manifest of the shard at {shard.uri} may or may not have "
                "been made; open the shard again",
                version=wanted.version,
            )
        back_off(0.0, attempt + 1)
        current = still_ours(shard, known)
    raise ShardContention(
        f"the manifest of the shard at {shard.uri} changed {MAX_UPDATES} times while it was to be changed; "
        "nothing was done, try again"
    )


def still_ours(shard: Store, known: ShardManifest) -> ShardManifest:
    """The newest version, of the same epoch as `known`. Raises `WriterFenced`."""
    current = newest(shard)
    if current is None:
        raise ShardError(f"the shard at {shard.uri} was removed while it was open")
    if current.writer_epoch != known.writer_epoch:
        raise fenced(shard, known.writer_epoch, current.writer_epoch)
    return current


def fenced(shard: Store, ours: int, theirs: int, outcome: str = "refused") -> WriterFenced:
    """The error of a writer whose shard somebody else has claimed."""
    told = "may be in the log, where the other writer finds them" if outcome == "unknown" else "were not kept"
    return WriterFenced(
        f"Writer fenced (peer claimed epoch): local epoch {ours} < stored epoch {theirs} for the shard at "
        f"{shard.uri}: another writer has taken it over. Rows of this call {told}; what was acknowledged "
        "before is in the log, and the other writer has it. Open the shard, or another stream, to take it "
        "back",
        outcome,
    )


def _failed(shard: Store, version: int) -> StoreError:
    path = layout.manifest_path(version)
    cause = shard.failure(path)
    error = StoreError(f"Failed to write manifest version {version} of the shard at {shard.uri}: {cause}")
    error.__cause__ = cause
    return error
