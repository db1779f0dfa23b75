"""`tiltyard dedupe URI`: delete all rows but one of each key."""

from __future__ import annotations

import argparse

from tiltyard.cli.arguments import TABLE_HELP


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("uri", help=TABLE_HELP)
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
    from tiltyard.table.wording import counted

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
            stand = "stands" if keys == 1 else "stand"
            print(
                f"{counted(keys, 'key')} {stand} in {counted(rows, 'row')}, {more:,} too many, such as "
                f"{found['example']}"
            )
        return 0
    done = dataset.dedupe(on, keep=arguments.keep)
    if not done["num_keys"]:
        print("no key stands twice; nothing was changed")
    else:
        print(
            f"version {dataset.version}: deleted {counted(done['num_deleted_rows'], 'row')} of "
            f"{counted(done['num_keys'], 'key')} that stood more than once; the {arguments.keep} of each "
            "stays"
        )
    return 0
