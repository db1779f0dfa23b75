"""Arguments that several commands share."""

from __future__ import annotations

import argparse


def add_table(parser: argparse.ArgumentParser) -> None:
    """The table's place and the version to look at."""
    parser.add_argument("uri", help="directory or URI of the table")
    parser.add_argument("--at", metavar="VERSION", help="a version number or a tag; the newest if not given")


def whole_number(text: str) -> int:
    """A number that is not negative, for `type=` of an argument."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return int(text)


def positive_number(text: str) -> int:
    """A number that is at least 1, for `type=` of an argument."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def add_age(parser: argparse.ArgumentParser, default: str | None, told: str) -> None:
    """What a cleanup goes by."""
    parser.add_argument(
        "--older-than",
        metavar="SPAN",
        default=default,
        help=f"remove only versions older than this, such as 7d or 1h (default: {told})",
    )
    parser.add_argument(
        "--retain",
        "--retain-versions",
        metavar="N",
        type=positive_number,
        help="keep the newest N versions, whatever their age",
    )


def version_of(arguments: argparse.Namespace) -> int | str | None:
    """The version asked for: a number, a tag, or None for the newest."""
    at: str | None = arguments.at
    return int(at) if at is not None and at.isdecimal() else at
