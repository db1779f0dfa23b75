"""`tiltyard optimize URI`: compaction, upkeep of indices and cleanup, one after another."""

from __future__ import annotations

import argparse

from tiltyard.cli.arguments import whole_number
from tiltyard.cli.compact import ProgressLine, add_options, options_of


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("uri", help="directory or URI of the table")
    add_options(parser)
    parser.add_argument(
        "--older-than",
        metavar="SPAN",
        default="7d",
        help="remove versions older than this, such as 7d or 1h (default: 7 days)",
    )
    parser.add_argument(
        "--retain", metavar="N", type=whole_number, help="keep the newest N versions, whatever their age"
    )


def run(arguments: argparse.Namespace) -> int:
    import tiltyard.lance as lance
    from tiltyard.cli.text_table import escaped
    from tiltyard.dataset.upkeep import optimize

    with ProgressLine("rows rewritten") as told:
        report = optimize(
            lance.dataset(arguments.uri),
            older_than=arguments.older_than,
            retain_versions=arguments.retain,
            progress=told,
            compaction=options_of(arguments),
        )
    print("\n".join(escaped(line) for line in str(report).split("\n")))
    return 0 if report.ok else 1
