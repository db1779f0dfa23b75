"""`tiltyard shard list|check|repair URI`: the shards of a streamed table, what is wrong with them, and
mending their logs.

`check` ends with status 1 when something is damaged.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from tiltyard.cli import FAILED
from tiltyard.cli.arguments import TABLE_HELP
from tiltyard.cli.text_table import escaped, lines, terminal_width
from tiltyard.table.wording import counted

if TYPE_CHECKING:
    from tiltyard.table.snapshot import Snapshot

_COLUMNS = ("shard", "spec", "epoch", "status", "generations", "rows published", "log replayed from")


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, told in (
        ("list", "the shards, their owners' epochs and what is published"),
        ("check", "what is wrong with the shards; changes nothing"),
        ("repair", "put sentinels where a shard's log cannot be read, so that it opens again"),
    ):
        action = actions.add_parser(name, help=told, description=told)
        action.add_argument("uri", help=TABLE_HELP)
        if name == "check":
            action.add_argument("shard", nargs="?", help="one shard's id; all if not given")
            action.add_argument(
                "--checksums",
                action="store_true",
                help="read all that was published, and compare it with its sums, its filters and key indices",
            )
        if name == "repair":
            action.add_argument("shard", help="the shard's id")
            action.add_argument(
                "--yes", action="store_true", help="do it; without, only say what it would do"
            )


def run(arguments: argparse.Namespace) -> int:
    from tiltyard.dataset import dataset

    snapshot = dataset(arguments.uri)._snapshot
    if arguments.action == "list":
        return _list(snapshot)
    if arguments.action == "check":
        return _check(snapshot, arguments.shard, arguments.checksums)
    return _repair(snapshot, arguments.shard, arguments.yes)


def _list(snapshot: Snapshot) -> int:
    import pyarrow as pa

    from tiltyard.memwal import layout

    root = snapshot.store.at(layout.ROOT)
    shown = [_row(snapshot, shard_id) for shard_id in layout.shard_ids(root.list_names(""))]
    if shown:
        print("\n".join(lines(pa.Table.from_pylist(shown), terminal_width())))
    else:
        print("no shards")
    return 0


def _row(snapshot: Snapshot, shard_id: str) -> dict[str, Any]:
    """What `list` says of a shard."""
    from tiltyard.errors import CorruptFile, StoreError
    from tiltyard.format.shard_manifest import ACTIVE, SEALED
    from tiltyard.memwal import layout
    from tiltyard.memwal.life import of_this_life
    from tiltyard.memwal.manifest import newest

    try:
        manifest = newest(snapshot.store.at(layout.shard_dir(shard_id)))
        is_ours = manifest is not None and bool(of_this_life(snapshot, {shard_id: manifest}))
    except (CorruptFile, StoreError):
        return {**dict.fromkeys(_COLUMNS), "shard": shard_id, "status": "cannot be read: see `shard check`"}
    if manifest is None:
        return {**dict.fromkeys(_COLUMNS), "shard": shard_id, "status": "not claimed yet"}
    status = {ACTIVE: "active", SEALED: "sealed"}.get(manifest.status, f"unknown ({manifest.status})")
    if not is_ours:
        status = "of an earlier table at this place"
    rows = sum(each.physical_rows or 0 for each in manifest.sstables)
    values = (
        shard_id,
        manifest.shard_spec_id,
        manifest.writer_epoch,
        status,
        len(manifest.sstables),
        rows,
        manifest.replay_after + 1,
    )
    return dict(zip(_COLUMNS, values, strict=True))


def _check(snapshot: Snapshot, shard: str | None, checksums: bool) -> int:
    from tiltyard.memwal.check import check_shards

    findings = check_shards(snapshot, shard, checksums=checksums)
    for finding in findings:
        print(escaped(("damage: " if finding.is_damage else "remark: ") + str(finding)))
    damaged = sum(each.is_damage for each in findings)
    told = f"{counted(damaged, 'damage')}" if damaged else "nothing is damaged"
    print(told, file=sys.stderr if damaged else sys.stdout)
    return FAILED if damaged else 0


def _repair(snapshot: Snapshot, shard: str, is_meant: bool) -> int:
    from tiltyard.memwal.repair import plan_repair, repair

    if not is_meant:
        steps = plan_repair(snapshot, shard)
        for step in steps:
            print(escaped(str(step)))
        print("nothing was changed: --yes does it" if steps else "the log can be read: nothing to do")
        return 0
    done = repair(snapshot, shard)
    for step in done.steps:
        print(escaped(str(step)))
    print(
        f"old bytes and steps are kept in {done.kept_in}"
        if done.steps
        else "the log can be read: nothing to do"
    )
    return 0
