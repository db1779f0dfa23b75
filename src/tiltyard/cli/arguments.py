"""Arguments that several commands share."""

from __future__ import annotations

import argparse
from contextlib import suppress

IN_LAKE = "::"
"""Between a lake and a name in it: `lake::ops.flights`."""

TABLE_HELP = "directory or URI of the table, or LAKE::NAME, such as lake::ops.flights"


def add_table(parser: argparse.ArgumentParser) -> None:
    """The table's place and the version to look at."""
    parser.add_argument("uri", help=TABLE_HELP)
    parser.add_argument("--at", metavar="VERSION", help="a version number or a tag; the newest if not given")


def place_of(place: str) -> str:
    """The directory of a table that is named as LAKE::NAME; any other place as it is. Raises `TableNotFound`,
    which names what is near.
    """
    root, found, name = place.rpartition(IN_LAKE)
    if not found or not root:
        return place
    from tiltyard.catalog import open_catalog
    from tiltyard.catalog.found import find_table
    from tiltyard.lake.missing import dotted
    from tiltyard.lake.names import id_of

    catalog, id = open_catalog(root), id_of(name)
    with dotted(catalog, id):
        return f"{catalog.uri.rstrip('/')}/{find_table(catalog, id).location}"


def lake_hint(place: str) -> str:
    """What to type where a place is no table but a lake, or names a table of one by a path; else ''."""
    from tiltyard.catalog import open_catalog
    from tiltyard.catalog.declaring import table_exists
    from tiltyard.errors import TiltyardError
    from tiltyard.lake.names import id_of

    place = place.rstrip("/")
    above, _, name = place.rpartition("/")
    with suppress(TiltyardError):  # it is but a hint
        if open_catalog(place).register().version:
            return f"; it is a lake: `tiltyard catalog list {place}` gives names for {place}{IN_LAKE}NAME"
        if table_exists(open_catalog(above or "."), id_of(name)):
            return f"; a table of a lake is given as {above or '.'}{IN_LAKE}{name}"
    return ""


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
