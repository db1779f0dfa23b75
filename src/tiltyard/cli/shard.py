"""`tiltyard shard ACTION URI`: what is wrong with the shards of a streamed table, mending their logs, closing
them and opening them again, another sharding for the table, and what happens in them.

`check` ends with status 1 when something is damaged.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from tiltyard.cli import FAILED
from tiltyard.cli.arguments import TABLE_HELP, positive_number
from tiltyard.cli.shards import add_arguments, show
from tiltyard.cli.text_table import escaped
from tiltyard.errors import InvalidInput
from tiltyard.table.wording import counted

if TYPE_CHECKING:
    from tiltyard.dataset import LanceDataset
    from tiltyard.lake.tail import Change
    from tiltyard.table.snapshot import Snapshot

_ACTIONS = {
    "list": "the shards, as `tiltyard shards` shows them",
    "check": "what is wrong with the shards; changes nothing",
    "repair": "put sentinels where a shard's log cannot be read, so that it opens again",
    "seal": "take a shard over, publish what its log holds, and let nobody write there",
    "unseal": "let writers open a sealed shard again",
    "drop": "take a sealed shard, whose rows are all in the table, out of it",
    "revise": "share rows out among shards in another way: seal the shards, compact them, begin new ones",
    "tail": "what is put and deleted, as it becomes durable",
}
_OF_ONE = ("repair", "seal", "unseal", "drop")


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, told in _ACTIONS.items():
        action = actions.add_parser(name, help=told, description=told)
        if name == "list":
            add_arguments(action)
            continue
        action.add_argument("uri", help=TABLE_HELP)
        if name == "check":
            action.add_argument("shard", nargs="?", help="one shard's id; all if not given")
            action.add_argument(
                "--checksums",
                action="store_true",
                help="read all that was published, and compare it with its sums, its filters and key indices",
            )
        if name in _OF_ONE:
            action.add_argument("shard", help="the shard's id")
        if name in ("repair", "drop"):
            action.add_argument(
                "--yes", action="store_true", help="do it; without, only say what it would do"
            )
        if name == "drop":
            action.add_argument(
                "--discard-streamed",
                action="store_true",
                help="give up rows that are not in the table yet; seals the shard first",
            )
        if name == "revise":
            _add_sharding(action)
        if name == "tail":
            _add_tail(action)


def _add_sharding(action: argparse.ArgumentParser) -> None:
    action.add_argument("--buckets", metavar="N", type=positive_number, help="so many shards, by a hash")
    action.add_argument("--column", metavar="NAME", help="what is hashed (default: the key's first column)")
    action.add_argument("--identity", metavar="NAME", help="a shard for each value of a column")
    action.add_argument("--unsharded", action="store_true", help="one shard for all rows")
    action.add_argument(
        "--resume",
        action="store_true",
        help="finish a change that stopped half-way, and put away shards begun for an earlier sharding",
    )
    action.add_argument(
        "--abandon",
        action="store_true",
        help="call a change off that is under way: the sharding stays, and its shards take writers again",
    )


def _add_tail(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "--after",
        metavar="WHERE",
        help="`published`, `end`, or where an earlier tail ended (JSON); everything if not given",
    )
    action.add_argument("--follow", action="store_true", help="wait for more, until Ctrl-C")
    action.add_argument("--json", action="store_true", help="whole changes, a JSON object a line")


def run(arguments: argparse.Namespace) -> int:
    from tiltyard.dataset import dataset

    found = dataset(arguments.uri)
    action = arguments.action
    if action == "list":
        show(found._snapshot, arguments.json, arguments.all)
        return 0
    if action == "check":
        return _check(found._snapshot, arguments.shard, arguments.checksums)
    if action == "repair":
        return _repair(found._snapshot, arguments.shard, arguments.yes)
    if action == "drop":
        return _drop(found, arguments)
    if action == "tail":
        return _tail(arguments)
    if action == "revise":
        print(escaped(str(_revised(found, arguments))))
        return 0
    if action == "seal":
        found.seal_shard(arguments.shard)
        print(f"shard {arguments.shard} is sealed; its log is published")
        return 0
    found.unseal_shard(arguments.shard)
    print(f"shard {arguments.shard} takes writers")
    return 0


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


def _drop(found: LanceDataset, arguments: argparse.Namespace) -> int:
    if arguments.yes:
        print(found.drop_shard(arguments.shard, discard_streamed=arguments.discard_streamed))
        return 0
    from tiltyard.memwal.layout import parse_shard_id
    from tiltyard.memwal.owner import no_shard

    shard_id = parse_shard_id(arguments.shard)
    facts = {each.shard_id: each for each in found.mem_wal_shards()}.get(shard_id)
    if facts is None:
        raise no_shard(found._snapshot, shard_id)
    entries = "1 log entry" if facts.log_entries == 1 else f"{facts.log_entries:,} log entries"
    told = f"{counted(facts.waiting_rows, 'published row')} and {entries}"
    print(f"shard {facts.shard_id} ({facts.status}): {told} are not in the table")
    needs_more = facts.waiting_rows or facts.log_entries or facts.status != "sealed"
    print("nothing was changed: --yes drops it" + (", with --discard-streamed" if needs_more else ""))
    return 0


def _revised(found: LanceDataset, arguments: argparse.Namespace) -> Any:
    asked = {
        "--buckets": arguments.buckets,
        "--identity": arguments.identity,
        "--unsharded": arguments.unsharded,
        "--resume": arguments.resume,
        "--abandon": arguments.abandon,
    }
    given = [name for name, value in asked.items() if value]
    if len(given) != 1 or (arguments.column and given != ["--buckets"]):
        raise InvalidInput(f"give one of {', '.join(asked)}, and --column with --buckets alone")
    if arguments.resume:
        return found.resume_sharding()
    if arguments.abandon:
        return found.abandon_sharding()
    if arguments.unsharded:
        return found.revise_sharding(unsharded=True)
    if arguments.identity:
        return found.revise_sharding(identity_column=arguments.identity)
    key = [each.name for each in found._snapshot.schema.primary_key]
    column = arguments.column or (key[0] if key else None)
    if column is None:
        raise InvalidInput("the table has no key: name the column that is hashed with --column")
    return found.revise_sharding(bucket_column=column, num_buckets=arguments.buckets)


def _tail(arguments: argparse.Namespace) -> int:
    from tiltyard.lake import open_table

    after = arguments.after
    if after is not None and after.lstrip().startswith("{"):
        try:
            after = json.loads(after)
        except ValueError as error:
            raise InvalidInput(
                f"--after takes `published`, `end` or a JSON object, found {after!r}"
            ) from error
    feed = open_table(arguments.uri).tail(after, follow=arguments.follow)
    try:
        for change in feed:
            print(_changed(change) if arguments.json else escaped(_line(change)), flush=True)
    finally:
        print(f"--after '{json.dumps(feed.cursor)}'", file=sys.stderr)
    return 0


def _line(change: Change) -> str:
    if change.merges:
        told = f"{counted(change.rows.num_rows, 'row')} to be merged"
    else:
        gone = change.deletes.num_rows if change.key else 0
        told = f"{change.upserts.num_rows} put, {gone} deleted"
    return f"{change.shard_id} {change.position} (epoch {change.epoch}): {told}"


def _changed(change: Change) -> str:
    told: dict[str, Any] = {"shard": change.shard_id, "position": change.position, "epoch": change.epoch}
    if change.merges:
        told["rows"] = change.rows.to_pylist()
    else:
        told["put"] = change.upserts.to_pylist()
        told["deleted"] = change.deletes.to_pylist() if change.key else []
    return json.dumps(told, default=str)
