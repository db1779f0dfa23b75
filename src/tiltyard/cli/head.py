"""`tiltyard head URI`: the first rows of a table."""

from __future__ import annotations

import argparse

from tiltyard.cli.arguments import add_table, version_of
from tiltyard.cli.text_table import lines

DEFAULT_ROWS = 10


def configure(parser: argparse.ArgumentParser) -> None:
    add_table(parser)
    parser.add_argument("-n", "--rows", type=int, default=DEFAULT_ROWS, help=f"rows (default {DEFAULT_ROWS})")
    parser.add_argument("-c", "--columns", help="columns, separated by commas; all if not given")
    parser.add_argument(
        "-w", "--where", help="an SQL predicate, such as \"dep_delay > 60 AND carrier = 'HA'\""
    )


def run(arguments: argparse.Namespace) -> int:
    import tiltyard.lance as lance

    dataset = lance.dataset(arguments.uri, version=version_of(arguments))
    columns = arguments.columns.split(",") if arguments.columns else None
    table = dataset.to_table(columns=columns, filter=arguments.where, limit=arguments.rows)
    print("\n".join(lines(table)))
    return 0
