"""`tiltyard dedupe URI`: delete all rows but one of each key."""

from __future__ import annotations

import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("uri", help="directory or URI of the table")
    parser.add_argument(
        "--on",
        metavar="COLUMNS",
        help="columns of the key, separated by commas; the unique or else the primary key if not given",
    )
    parser.add_argument(
        "--keep",
        choices=("last", "first"),
        default="last",
        help="which row stays, in table order (default last)",
    )
    parser.add_argument("--dry-run", action="store_true", help="only say how many there are")


def run(arguments: argparse.Namespace) -> int:
    import tiltyard.lance as lance

    dataset = lance.dataset(arguments.uri)
    on = None
    if arguments.on is not None:
        on = [name for name in map(str.strip, arguments.on.split(",")) if name]
    if arguments.dry_run:
        found = dataset.duplicate_keys(on)
        if not found["num_keys"]:
            print("no key stands twice")
        else:
            more = found["num_rows"] - found["num_keys"]
            keys, rows = found["num_keys"], found["num_rows"]
            print(f"{keys} keys stand in {rows} rows, {more} too many, such as {found['example']}")
        return 0
    done = dataset.dedupe(on, keep=arguments.keep)
    if not done["num_keys"]:
        print("no key stands twice; nothing was changed")
    else:
        print(
            f"version {dataset.version}: deleted {done['num_deleted_rows']} rows of {done['num_keys']} keys "
            f"that stood more than once; the {arguments.keep} of each stays"
        )
    return 0
