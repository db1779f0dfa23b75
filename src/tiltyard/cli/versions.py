"""`tiltyard versions URI`: the versions of a table, newest last."""

from __future__ import annotations

import argparse
import sys

DEFAULT_SHOWN = 20  # versions


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("uri", help="directory or URI of the table")
    parser.add_argument(
        "-n",
        "--newest",
        type=int,
        default=DEFAULT_SHOWN,
        help=f"how many to show (default {DEFAULT_SHOWN}; 0: all)",
    )


def run(arguments: argparse.Namespace) -> int:
    import tiltyard.lance as lance

    versions = lance.dataset(arguments.uri).versions()
    shown = versions[-arguments.newest :] if arguments.newest > 0 else versions
    if len(shown) < len(versions):
        print(f"({len(versions) - len(shown)} older versions: --newest 0 shows all)", file=sys.stderr)
    for version in shown:
        print(f"{version['version']:>8}  {version['timestamp']:%Y-%m-%d %H:%M:%S.%f}")
    return 0
