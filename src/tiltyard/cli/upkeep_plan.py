"""What `optimize` and `maintain` would do to a table as it stands, told without changing it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tiltyard.cli.text_table import escaped
from tiltyard.table.apply.mem_wal import entry_of
from tiltyard.table.wording import counted

if TYPE_CHECKING:
    from tiltyard.table.snapshot import Snapshot


def planned_compaction(plan: Any) -> str:
    """A plan of a compaction, in words."""
    fragments = sum(len(task.fragments) for task in plan.tasks)
    rows = sum(each.num_rows for task in plan.tasks for each in task.fragments)
    if not fragments:
        return "nothing to rewrite"
    return (
        f"would rewrite {counted(fragments, 'fragment')} ({counted(rows, 'row')}) in "
        f"{counted(len(plan.tasks), 'task')}"
    )


def planned_streams(snapshot: Snapshot) -> str:
    """What a maintainer would bring into the table, in words."""
    from tiltyard.memwal.lag import lag

    found = lag(snapshot.store, snapshot.session)
    told = (
        f"would compact {counted(found.generations, 'generation')} ({counted(found.rows, 'row')}) of "
        f"{counted(len(found.shards), 'shard')}"
        if found.generations
        else "nothing to compact"
    )
    broken = [f"; shard {name} cannot be read: {error}" for name, error in sorted(found.problems.items())]
    return escaped(told + "".join(broken))


def planned_sharding(snapshot: Snapshot) -> str:
    """What a maintainer would do for a change of the sharding, in words; empty where that is nothing."""
    from tiltyard.memwal.life import readable
    from tiltyard.memwal.resharding import told_left
    from tiltyard.table.snapshot import open_latest

    shards, _ = readable(snapshot.store)
    return escaped(told_left(open_latest(snapshot.store, snapshot.session), shards))


def planned_upkeep(
    dataset: Any,
    options: Mapping[str, Any],
    *,
    older_than: str,
    retain: int | None = None,
    limits: Any = None,
) -> str:
    """The three steps, a line each. `limits` of a maintainer: what is within them would be left."""
    from tiltyard.dataset.compaction import Compaction
    from tiltyard.table.cleanup.account import account
    from tiltyard.table.compact import CompactionOptions
    from tiltyard.table.maintain import bounded_options, condition_of

    snapshot = dataset._snapshot
    given: Any = dict(options)
    if limits is not None:
        given |= bounded_options(snapshot, limits.pass_bytes)
    condition = condition_of(snapshot, CompactionOptions.of(given, snapshot.manifest.config))
    lines = [f"version {snapshot.version} as it stands; nothing is changed"]
    if limits is not None and entry_of(snapshot.manifest) is not None:
        sharding = planned_sharding(snapshot)
        lines += [f"  sharding: {sharding}"] if sharding else []
        lines.append(f"  streams: {planned_streams(snapshot)}")
    if limits is not None and condition.small <= limits.small_files:
        compaction = f"{counted(condition.small, 'small fragment')} (at most {limits.small_files:,}): left"
    else:
        compaction = planned_compaction(Compaction.plan(dataset, given))
    lines.append(f"  compaction: {compaction}")
    most = 0 if limits is None else limits.unindexed
    beyond = {name: each[0] for name, each in condition.unindexed.items() if each[0] > most}
    indices = ", ".join(f"{name} would take in {counted(left, 'fragment')}" for name, left in beyond.items())
    if not beyond and condition.unindexed:
        left = max(each[0] for each in condition.unindexed.values())
        indices = f"{counted(left, 'fragment')} not indexed (at most {most:,}): left"
    lines.append(f"  indices: {escaped(indices or 'up to date')}")
    explanation = dataset.explain_cleanup_old_versions(older_than, retain, error_if_tagged_old_versions=False)
    told = account(explanation, all_shown_by="tiltyard cleanup --dry-run --files")
    lines += [f"  cleanup: {escaped(told[0])}", *(f"    {escaped(each)}" for each in told[1:])]
    return "\n".join(lines)
