"""`tiltyard versions URI`: the versions of a table, newest last; one that is damaged is listed and marked."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from tiltyard.cli.arguments import TABLE_HELP, whole_number
from tiltyard.errors import CorruptFile, ObjectNotFound, UnsupportedFeature

if TYPE_CHECKING:
    from tiltyard.session import Session
    from tiltyard.store import Store
    from tiltyard.table.snapshot import Snapshot
    from tiltyard.table.versions import VersionLocation

DEFAULT_SHOWN = 20  # versions
FIRST_VERSION = 1
RESERVED = "(numbers for the files of a compaction)"
DAMAGED = "(damaged)"
UNSUPPORTED = "(unsupported)"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("uri", help=TABLE_HELP)
    parser.add_argument(
        "-n",
        "--newest",
        type=whole_number,
        default=DEFAULT_SHOWN,
        help=f"how many to show (default {DEFAULT_SHOWN}; 0: all)",
    )


def run(arguments: argparse.Namespace) -> int:
    import pyarrow as pa

    import tiltyard.lance as lance
    from tiltyard.cli.text_table import lines, terminal_width
    from tiltyard.dataset.handle import open_root, session_of
    from tiltyard.table.versions import list_versions
    from tiltyard.table.wording import counted

    store, session = open_root(arguments.uri, None), session_of(None)
    locations = list_versions(store)
    if not locations:
        lance.dataset(arguments.uri)  # says what is there instead
    chosen = locations[-arguments.newest :] if arguments.newest else locations
    if len(chosen) < len(locations):
        older = counted(len(locations) - len(chosen), "older version")
        print(f"({older}: --newest 0 shows all)", file=sys.stderr)
    found = [row for row in (_row(store, session, each) for each in chosen) if row is not None]
    whole = ("time", "rows", "operation")
    print("\n".join(lines(pa.Table.from_pylist(found), terminal_width(), right=("rows",), whole=whole)))
    return 0


def _row(store: Store, session: Session, location: VersionLocation) -> dict[str, Any] | None:
    """What is shown of a version; None when it was removed meanwhile."""
    from tiltyard.table.snapshot import read_snapshot

    try:
        return _described(read_snapshot(store, session, location))
    except ObjectNotFound:
        return None
    except CorruptFile as error:
        return _marked(store, location, DAMAGED, error)
    except UnsupportedFeature as error:
        return _marked(store, location, UNSUPPORTED, error)


def _described(snapshot: Snapshot) -> dict[str, Any]:
    from tiltyard.cli.text_table import local_time

    try:
        transaction = snapshot.transaction()
    except UnsupportedFeature:  # an operation of a later format
        transaction = None
    operation = None if transaction is None else transaction.name
    message = "" if transaction is None else _message(transaction.properties)
    if operation == "Overwrite" and snapshot.version == FIRST_VERSION:
        operation = "Create"
    if operation == "ReserveFragments" and not message:
        message = RESERVED
    return {
        "version": snapshot.version,
        "time": local_time(snapshot.manifest.timestamp_ns),
        "rows": f"{snapshot.manifest.num_rows:,}",
        "operation": operation,
        "message": message,
    }


def _marked(store: Store, location: VersionLocation, mark: str, error: Exception) -> dict[str, Any] | None:
    """A version that cannot be read, with the time of its file."""
    from tiltyard.cli.text_table import local_time

    try:
        moment = store.stat(location.path).mtime_ns
    except ObjectNotFound:
        return None
    return {
        "version": location.version,
        "time": local_time(moment),
        "rows": None,
        "operation": mark,
        "message": str(error),
    }


def _message(properties: Any) -> str:
    from tiltyard.dataset.transaction import COMMIT_MESSAGE_KEY

    return str((properties or {}).get(COMMIT_MESSAGE_KEY, ""))
