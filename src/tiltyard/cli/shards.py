"""`tiltyard shards URI`: the shards of a streamed table at a glance."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tiltyard.cli.arguments import TABLE_HELP
from tiltyard.cli.text_table import escaped, lines, terminal_width
from tiltyard.table.wording import counted

if TYPE_CHECKING:
    from tiltyard.memwal.overview import ShardFacts, Sharding
    from tiltyard.table.snapshot import Snapshot


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "The shards of a streamed table: their epochs (how often each was claimed), generations that "
        "are published and those of them that wait to be compacted into the table, entries of the log that "
        "are in no generation, and how long the oldest of all that has waited."
    )
    add_arguments(parser)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The table, and the form of the answer."""
    parser.add_argument("uri", help=TABLE_HELP)
    parser.add_argument("--json", action="store_true", help="everything that is known, as one JSON object")
    parser.add_argument(
        "--all", action="store_true", help="also shards of earlier shardings that are sealed and in the table"
    )


def run(arguments: argparse.Namespace) -> int:
    from tiltyard.dataset import dataset

    show(dataset(arguments.uri)._snapshot, arguments.json, arguments.all)
    return 0


def show(snapshot: Snapshot, as_json: bool, every: bool) -> None:
    """Print the overview; shards that are done with are only counted, but for `every`."""
    from tiltyard.memwal.overview import shard_facts, sharding_of

    facts, sharding = shard_facts(snapshot), sharding_of(snapshot)
    if as_json:
        told = {
            "table": snapshot.store.uri,
            "sharding": None if sharding is None else asdict(sharding),
            "shards": [asdict(each) for each in facts],
        }
        print(json.dumps(told, indent=1, default=str))
        return
    if sharding is not None:
        print(escaped(_told(sharding)))
    if not facts:
        print("no shards")
        return
    import pyarrow as pa

    done = [] if every or sharding is None else [each for each in facts if _is_done(each, sharding)]
    if rows := [_row(each) for each in facts if each not in done]:
        print("\n".join(lines(pa.Table.from_pylist(rows), terminal_width(), whole=("shard",))))
    if done:
        print(
            f"{counted(len(done), 'shard')} of earlier shardings, sealed and in the table (--all shows them)"
        )


def _is_done(facts: ShardFacts, sharding: Sharding) -> bool:
    """Whether nothing comes of a shard any more: it is of an earlier sharding, and the table holds it."""
    is_earlier = facts.spec_id is not None and facts.spec_id != sharding.spec_id
    return is_earlier and facts.status == "sealed" and not facts.waiting and not facts.log_entries


def _told(sharding: Sharding) -> str:
    count = "" if sharding.count is None else f" into {counted(sharding.count, 'shard')}"
    by = "" if sharding.column is None else f" of {sharding.column}"
    told = f"sharded {'' if sharding.kind == 'by hand' else 'by '}{sharding.kind}{by}{count}"
    if sharding.kind == "unsharded":
        told = "one shard for all rows"
    told += f" (spec {sharding.spec_id})"
    if sharding.changing:
        told += ", not in force yet: shards of the sharding before are being emptied (`tiltyard shard revise "
        told += "TABLE --resume` finishes that, `--abandon` calls it off)"
    return told


def _row(facts: ShardFacts) -> dict[str, Any]:
    if facts.spec_id is None:
        names = ("spec", "value", "epoch", "published", "waiting", "rows waiting", "log entries", "lag")
        return {"shard": facts.shard_id, "status": facts.status, **dict.fromkeys(names)}
    return {
        "shard": facts.shard_id,
        "status": facts.status,
        "spec": facts.spec_id,
        "value": None if facts.value is None else str(facts.value),
        "epoch": facts.epoch,
        "published": facts.published,
        "waiting": facts.waiting,
        "rows waiting": facts.waiting_rows,
        "log entries": facts.log_entries,
        "lag": None if facts.lag_seconds is None else f"{facts.lag_seconds:.1f} s",
    }
