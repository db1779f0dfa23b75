"""Arguments that several commands share."""

from __future__ import annotations

import argparse


def add_table(parser: argparse.ArgumentParser) -> None:
    """The table's place and the version to look at."""
    parser.add_argument("uri", help="directory or URI of the table")
    parser.add_argument("--at", metavar="VERSION", help="a version number or a tag; the newest if not given")


def version_of(arguments: argparse.Namespace) -> int | str | None:
    """The version asked for: a number, a tag, or None for the newest."""
    at: str | None = arguments.at
    return int(at) if at is not None and at.isdecimal() else at
