"""`tiltyard shard list|check|repair URI`: the shards of a streamed table, what is wrong with them, and
mending their logs.

`check` ends with status 1 when something is damaged.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from tiltyard.cli import FAILED
from tiltyard.cli.text_table import escaped, lines, terminal_width
from tiltyard.table.wording import counted

if TYPE_CHECKING:
    from tiltyard.table.snapshot import Snapshot


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, told in (
        ("list", "the shards, their owners' epochs and what is published"),
        ("check", "what is wrong with the shards; changes nothing"),
        ("repair", "put sentinels where a shard's log cannot be read, so that it opens again"),
    ):
        action = actions.add_parser(name, help=told, description=told)
        action.add_argument("uri", help="directory or URI of the table")
        if name == "check":
            action.add_argument("shard", nargs="?", help="one shard's id; all if not given")
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
        return _check(snapshot, arguments.shard)
    return _repair(snapshot, arguments.shard, arguments.yes)


def _list(snapshot: Snapshot) -> int:
    import pyarrow as pa

    from tiltyard.format.shard_manifest import ACTIVE, SEALED
    from tiltyard.memwal import layout
    from tiltyard.memwal.routing import manifests

    shown = [
        {
            "shard": shard_id,
            "spec": manifest.shard_spec_id,
            "epoch": manifest.writer_epoch,
            "status": {ACTIVE: "active", SEALED: "sealed"}.get(manifest.status, str(manifest.status)),
            "generations": len(manifest.sstables),
            "rows published": sum(each.physical_rows or 0 for each in manifest.sstables),
            "log replayed from": manifest.replay_after + 1,
        }
        for shard_id, manifest in manifests(snapshot.store.at(layout.ROOT)).items()
    ]
    if shown:
        print("\n".join(lines(pa.Table.from_pylist(shown), terminal_width())))
    else:
        print("no shards")
    return 0


def _check(snapshot: Snapshot, shard: str | None) -> int:
    from tiltyard.memwal.check import check_shards

    findings = check_shards(snapshot, shard)
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
