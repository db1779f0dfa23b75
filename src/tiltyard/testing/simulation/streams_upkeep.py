"""What must hold of a streamed table that is compacted, collected and re-sharded; numbers as in
docs/design/009-streaming.md.

W13 Each version of the base holds the rows of the log up to the generation of its mark, each key once, and
    nothing of what came later; marks only rise, over generations that were published before.
W14 An SSTable leaves the shard's manifest after a version of the base whose mark covers it.
W15 Of the log only entries with rows go, from below the cursor, and no owner's sentinel.
W16 Manifests go from the low end, and the newest stay.
W17 A change of the sharding takes effect over a version whose mark covers a closed shard, or never, if it was
    called off.
"""

from __future__ import annotations

from itertools import pairwise

from tiltyard.memwal import layout
from tiltyard.memwal.identity import Streamed, streamed
from tiltyard.memwal.marks import marks_of
from tiltyard.memwal.routing import is_closed
from tiltyard.table.apply.mem_wal import entry_of
from tiltyard.testing.simulation.chain import Chain
from tiltyard.testing.simulation.streams import SHARD, SHARD_DIR
from tiltyard.testing.simulation.streams_model import TABLE, Archive, MadeManifest, Reading
from tiltyard.testing.simulation.world import World


def check_upkeep(world: World, archive: Archive, reading: Reading) -> list[str]:
    """Everything, where all that collect are ours."""
    shard = archive.chain()
    base = Chain(world, TABLE)
    marks = {version: marks_of(base.snapshot(version)).get(SHARD, 0) for version in sorted(base.settled)}
    wrong = _check_base(base, marks, shard, reading)
    wrong += _check_trims(base, marks, shard)
    wrong += _check_sharding(base, marks, shard)
    if shard and not world.power_cuts:
        wrong += _check_kept(world, archive, shard)
    return wrong


def _check_base(base: Chain, marks: dict[int, int], shard: list[MadeManifest], reading: Reading) -> list[str]:
    wrong = []
    last = 0
    for version, mark in marks.items():
        if mark < last:
            wrong.append(f"W13: the mark went from {last} back to {mark} in version {version} of the base")
        last = mark
        cursor = 0
        if mark:
            published = next((each for each in shard if each.manifest.current_generation > mark), None)
            if published is None or published.order > base.settled[version].order:
                wrong.append(f"W13: version {version} marks generation {mark}, which is not published")
                continue
            cursor = published.manifest.replay_after
        state = reading.states[reading.count_to(cursor)]
        rows = base.rows(version)
        if rows != {key: (value,) for key, value in state.items()}:
            wrong.append(f"W13: version {version} of the base with mark {mark} has {rows}, the log {state}")
    return wrong


def _check_trims(base: Chain, marks: dict[int, int], shard: list[MadeManifest]) -> list[str]:
    wrong = []
    for one, other in pairwise(shard):
        kept = {each.path for each in other.manifest.sstables}
        gone = [each.generation for each in one.manifest.sstables if each.path not in kept]
        covered = max(
            (marks[version] for version in marks if base.settled[version].order < other.order), default=0
        )
        if gone and gone[-1] > covered:
            wrong.append(
                f"W14: version {other.manifest.version} of the manifest gives up generations {gone}, and the "
                f"base holds them up to {covered}"
            )
    return wrong


def _check_kept(world: World, archive: Archive, shard: list[MadeManifest]) -> list[str]:
    wrong = []
    cursor = shard[-1].manifest.replay_after
    for position, every in archive.entries.items():
        if every[-1].stands:
            continue
        if not every[-1].entry.batches:
            wrong.append(f"W15: the sentinel at {position} is gone")
        elif position >= cursor:
            wrong.append(f"W15: the entry at {position} is gone, and the cursor is at {cursor}")
    standing = layout.manifest_versions(world.store(f"{TABLE}/{SHARD_DIR}").list_names(layout.MANIFEST_DIR))
    # A creation that arrives late makes a collected one again, below those that stand.
    standing = [each for each in standing if not archive.manifests[each][-1].below_another]
    newest = shard[-1].manifest.version
    if standing != list(range(newest - len(standing) + 1, newest + 1)):
        wrong.append(f"W16: of the manifests up to {newest} there are {standing}")
    return wrong


def _check_sharding(base: Chain, marks: dict[int, int], shard: list[MadeManifest]) -> list[str]:
    wrong = []
    found: list[tuple[int, Streamed]] = []
    gone: list[int] = []
    for version in marks:
        snapshot = base.snapshot(version)
        if entry_of(snapshot.manifest) is not None:
            found.append((version, streamed(snapshot)))
    for (_, before), (version, after) in pairwise(found):
        specs = {each.spec_id for each in after.details.sharding_specs}
        if any(each in specs for each in gone):
            wrong.append(f"W17: version {version} of the base has the specs {specs}; {gone} were called off")
        if not before.draining or after.draining:
            continue
        if before.coming.spec_id not in specs:
            gone.append(before.coming.spec_id)
            continue
        by_then = [each.manifest for each in shard if each.order < base.settled[version].order]
        if by_then and not is_closed(by_then[-1]):
            wrong.append(f"W17: version {version} of the base has the new sharding, and the shard was open")
        elif by_then and by_then[-1].current_generation - 1 > marks[version]:
            wrong.append(
                f"W17: version {version} of the base has the new sharding and mark {marks[version]}; "
                f"published was up to {by_then[-1].current_generation - 1}"
            )
    return wrong
