"""`tiltyard head URI`: the first rows of a table."""

from __future__ import annotations

import argparse

from tiltyard.cli.arguments import add_table, version_of, whole_number
from tiltyard.cli.text_table import lines, terminal_width

DEFAULT_ROWS = 10


def configure(parser: argparse.ArgumentParser) -> None:
    add_table(parser)
    parser.add_argument(
        "-n", "--rows", type=whole_number, default=DEFAULT_ROWS, help=f"how many (default {DEFAULT_ROWS})"
    )
    parser.add_argument("-c", "--columns", help="columns, separated by commas; all if not given")
    parser.add_argument(
        "-w", "--where", help="an SQL predicate, such as \"dep_delay > 60 AND carrier = 'HA'\""
    )


def run(arguments: argparse.Namespace) -> int:
    import tiltyard.lance as lance

    dataset = lance.dataset(arguments.uri, version=version_of(arguments))
    columns = None
    if arguments.columns is not None:
        columns = [name for name in map(str.strip, arguments.columns.split(",")) if name]
    table = dataset.to_table(columns=columns, filter=arguments.where, limit=arguments.rows)
    print("\n".join(lines(table, terminal_width())))
    return 0
