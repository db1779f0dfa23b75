"""`tiltyard compact URI`: few large files instead of many small ones."""

from __future__ import annotations

import argparse
from typing import Any

from tiltyard.cli.arguments import TABLE_HELP, whole_number
from tiltyard.table.wording import counted


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("uri", help=TABLE_HELP)
    add_options(parser)
    parser.add_argument(
        "--defer-index-remap",
        action="store_true",
        help="leave indices as they are, with notes of where rows went",
    )
    parser.add_argument("--dry-run", action="store_true", help="tell what would be done, and change nothing")


def add_options(parser: argparse.ArgumentParser) -> None:
    """What `optimize` knows, too."""
    parser.add_argument(
        "--target-rows",
        "--target-rows-per-fragment",
        metavar="N",
        type=whole_number,
        help="rows of a full file (default: 1,048,576)",
    )
    parser.add_argument(
        "--max-source-bytes", metavar="N", type=whole_number, help="read at most so many bytes of data files"
    )


def options_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of a compaction that were given."""
    given = {
        "target_rows_per_fragment": arguments.target_rows,
        "max_source_bytes": arguments.max_source_bytes,
    }
    return {name: value for name, value in given.items() if value is not None}


def run(arguments: argparse.Namespace) -> int:
    import tiltyard.lance as lance
    from tiltyard.cli.text_table import escaped
    from tiltyard.cli.upkeep_plan import planned_compaction
    from tiltyard.dataset.compaction import Compaction

    dataset = lance.dataset(arguments.uri)
    options: Any = {**options_of(arguments), "defer_index_remap": arguments.defer_index_remap or None}
    plan = Compaction.plan(dataset, options)
    if arguments.dry_run:
        print(planned_compaction(plan))
    else:
        with ProgressLine("rows rewritten") as told:
            metrics = Compaction.execute(dataset, options, progress=told)
        if not metrics.fragments_removed:
            print(f"nothing to compact in {counted(len(dataset.get_fragments()), 'fragment')}")
        else:
            print(
                f"{counted(metrics.fragments_removed, 'fragment')} became {metrics.fragments_added:,}; "
                f"version {dataset.version}"
            )
    for index, left in plan.held_back().items():
        print(
            escaped(
                f"{counted(left, 'fragment')} {'stays as it is' if left == 1 else 'stay as they are'} for "
                f"index {index!r}, which cannot be carried over here; --defer-index-remap compacts them, too"
            )
        )
    return 0


class ProgressLine:
    """Shows rows done on standard error, in place, where that is a terminal."""

    def __init__(self, what: str) -> None:
        import sys

        self._what = what
        self._stream = sys.stderr if sys.stderr.isatty() else None
        self._shown = -1

    def __enter__(self) -> ProgressLine:
        return self

    def __call__(self, rows: int, of: int) -> None:
        percent = 100 * rows // max(of, 1)
        if self._stream is not None and percent != self._shown:
            self._shown = percent
            self._stream.write(f"\r{rows:,} of {of:,} {self._what} ({percent}%)\x1b[K")
            self._stream.flush()

    def __exit__(self, *_: object) -> None:
        if self._stream is not None and self._shown >= 0:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
