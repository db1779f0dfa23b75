"""`tiltyard versions URI`: the versions of a table, newest last."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from tiltyard.cli.arguments import whole_number
from tiltyard.errors import UnsupportedFeature, VersionNotFound

DEFAULT_SHOWN = 20  # versions


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("uri", help="directory or URI of the table")
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
    from tiltyard.cli.text_table import count, lines, terminal_width

    dataset = lance.dataset(arguments.uri)
    numbers = [each["version"] for each in dataset.version_refs()]
    chosen = numbers[-arguments.newest :] if arguments.newest else numbers
    if len(chosen) < len(numbers):
        older = count(len(numbers) - len(chosen), "older version")
        print(f"({older}: --newest 0 shows all)", file=sys.stderr)
    found = [row for row in (_row(dataset, number) for number in chosen) if row is not None]
    print("\n".join(lines(pa.Table.from_pylist(found), terminal_width())))
    return 0


def _row(dataset: Any, number: int) -> dict[str, Any] | None:
    """What is shown of a version; None when it was removed meanwhile."""
    from tiltyard.dataset.transaction import COMMIT_MESSAGE_KEY

    try:
        version = dataset.checkout_version(number).get_version()
        transaction = dataset.read_transaction(number)
    except VersionNotFound:
        return None
    except UnsupportedFeature:  # an operation of a later format
        transaction = None
    return {
        "version": number,
        "time": f"{version['timestamp']:%Y-%m-%d %H:%M:%S.%f}",
        "rows": int(version["metadata"]["total_rows"]),
        "operation": None if transaction is None else type(transaction.operation).__name__,
        "message": "" if transaction is None else _message(transaction, COMMIT_MESSAGE_KEY),
    }


def _message(transaction: Any, key: str) -> str:
    return (transaction.transaction_properties or {}).get(key, "")
