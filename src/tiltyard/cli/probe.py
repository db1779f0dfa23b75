"""`tiltyard probe URI`: whether a place keeps what tables rely on; `--deep` lets real processes try it.

Exit status 1 when a promise is broken that tables need.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from tiltyard.cli import FAILED
from tiltyard.cli.account import Account
from tiltyard.cli.arguments import whole_number
from tiltyard.cli.text_table import escaped
from tiltyard.table.wording import counted

if TYPE_CHECKING:
    from tiltyard.testing.probe.deep import DeepReport
    from tiltyard.testing.probe.findings import Report

SEEDS = 1 << 31
DEEP_SECONDS = 30.0
LABEL_WIDTH = 8
WRONG_SHOWN = 20


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("uri", help="directory or URI in which tables are to be; what is there is left alone")
    parser.add_argument(
        "--deep",
        action="store_true",
        help="also let writers, readers and maintainers work on a scratch table there, kill some of them, "
        "and look whether anything was lost",
    )
    parser.add_argument(
        "--seconds", type=float, help=f"how long the deep probe works ({DEEP_SECONDS:g} if not given)"
    )
    parser.add_argument(
        "--seed", type=whole_number, help="what the deep probe does and kills; a new one if not given"
    )
    parser.add_argument("--json", action="store_true", help="the report as one JSON object")


def run(arguments: argparse.Namespace) -> int:
    from tiltyard import runtime
    from tiltyard.errors import InvalidInput
    from tiltyard.testing.probe import probe
    from tiltyard.testing.probe.deep import deep_place, probe_deep

    if not arguments.deep and (arguments.seconds is not None or arguments.seed is not None):
        raise InvalidInput("--seconds and --seed say how the deep probe works: give --deep as well")
    seconds = DEEP_SECONDS if arguments.seconds is None else arguments.seconds
    if arguments.deep:
        deep_place(arguments.uri, seconds)  # refused before anything is run
    account = None if arguments.json else Account()
    report = probe(arguments.uri)
    if account is not None:
        _show(account, report)
    deep = None
    if arguments.deep and not report.broken:
        seed = runtime.random().randrange(SEEDS) if arguments.seed is None else arguments.seed
        if account is not None:
            account.title(f"\ndeep probe: {seconds:g} s, seed {seed}")
        deep = probe_deep(arguments.uri, seconds=seconds, seed=seed)
        if account is not None:
            _show_deep(account, deep)
    if account is None:
        told: dict[str, Any] = report.as_json()
        if arguments.deep:
            told["deep"] = None if deep is None else deep.as_json()
        json.dump(told, sys.stdout, indent=2)
        print()
    return FAILED if report.broken or (deep is not None and deep.wrong) else 0


def _show(account: Account, report: Report) -> None:
    account.title(f"{escaped(report.uri)}: {escaped(report.medium)}")
    widest = max(len(each.promise) for each in report.findings)
    for each in report.findings:
        grade = each.grade.value
        label = grade.upper() if each in report.broken else grade
        account.say(escaped(f"{label:<{LABEL_WIDTH}} {each.promise:<{widest}}  {each.seen}"))
        if each.meaning:
            account.say(escaped(f"{'':<{LABEL_WIDTH}} {'':<{widest}}  ({each.meaning})"))
    refused = [each for each in report.calls if not each.works]
    if report.calls and not refused:
        account.say(f"all {counted(len(report.calls), 'call')} of the file system that we use are offered")
    for call in refused:
        account.say(escaped(f"not offered: {call.name}: {call.error}; instead: {call.instead}"))
    for fact in report.facts:
        account.say(escaped(fact))
    verdict = (
        f"{counted(len(report.broken), 'promise')} broken: tables are not safe here"
        if report.broken
        else "tables are safe here"
    )
    account.title(f"{verdict} ({report.seconds:.1f} s)")


def _show_deep(account: Account, report: DeepReport) -> None:
    account.say(f"{report.processes} processes on one table")
    if report.killed:
        account.say(f"killed: {', '.join(report.killed)}")
    for name, number in sorted(report.operations.items()):
        account.say(f"{number:>8,} {escaped(name)}")
    account.say(f"left: {counted(report.rows, 'row')}, {counted(report.versions, 'version')}, all compared")
    for each in report.wrong[:WRONG_SHOWN]:
        account.say(escaped(f"WRONG    {each}"))
    verdict = (
        f"{counted(len(report.wrong), 'fault')} found" if report.wrong else "nothing lost, nothing doubled"
    )
    account.title(f"{verdict} ({report.seconds:.1f} s)")
