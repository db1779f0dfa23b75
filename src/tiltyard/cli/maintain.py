"""`tiltyard maintain URI`: keep a table within stated limits, once or again and again."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tiltyard.cli.arguments import TABLE_HELP, whole_number

if TYPE_CHECKING:
    from tiltyard.table.optimize import OptimizeReport

MIB = 1 << 20


def configure(parser: argparse.ArgumentParser) -> None:
    from tiltyard.table.maintain import INTERVAL_SECONDS, MAX_SMALL_FILES, MAX_UNINDEXED, PASS_BYTES

    parser.description = (
        f"Keep a table within its limits: at most {MAX_SMALL_FILES} small files, at most {MAX_UNINDEXED} "
        "fragments that an index does not know, no versions older than 7 days (they are removed, unless a "
        "tag names them, and cannot be read again; --dry-run tells which). A pass touches at most "
        f"{PASS_BYTES // MIB:,} MiB; what is left is for the next one. What was streamed into the table and "
        "published is brought into it first, then what its streams need no more is deleted: SSTables an hour "
        "after they have become part of the table, log entries a minute after they are in an SSTable. Ends "
        "with Ctrl-C, after the pass that runs."
    )
    parser.add_argument("uri", help=TABLE_HELP)
    parser.add_argument(
        "--once", action="store_true", help="one pass, then end; fails if a step of it failed"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="tell what a pass would do and remove, and change nothing"
    )
    parser.add_argument(
        "--interval",
        "--every",
        metavar="SPAN",
        default=f"{INTERVAL_SECONDS:.0f}s",
        help=f"time between passes, such as 30s or 10m (default: {INTERVAL_SECONDS:.0f}s)",
    )
    parser.add_argument(
        "--small-files",
        metavar="N",
        type=whole_number,
        default=MAX_SMALL_FILES,
        help=f"compact when there are more small files (default: {MAX_SMALL_FILES})",
    )
    parser.add_argument(
        "--unindexed",
        metavar="N",
        type=whole_number,
        default=MAX_UNINDEXED,
        help=f"index when more fragments are not indexed (default: {MAX_UNINDEXED})",
    )
    parser.add_argument(
        "--older-than", metavar="SPAN", default="7d", help="remove versions older than this (default: 7d)"
    )
    parser.add_argument(
        "--pass-mib",
        metavar="N",
        type=whole_number,
        default=PASS_BYTES // MIB,
        help=f"MiB of data that a pass may touch (default: {PASS_BYTES // MIB:,})",
    )


def run(arguments: argparse.Namespace) -> int:
    import tiltyard.lance as lance
    from tiltyard import runtime
    from tiltyard.dataset.upkeep import maintainer, span_of
    from tiltyard.table.maintain import Limits

    limits = Limits(
        arguments.small_files,
        arguments.unindexed,
        span_of("--older-than", arguments.older_than),
        arguments.pass_mib * MIB,
    )
    dataset = lance.dataset(arguments.uri)
    if arguments.dry_run:
        from tiltyard.cli.upkeep_plan import planned_upkeep

        print(planned_upkeep(dataset, {}, older_than=arguments.older_than, limits=limits))
        return 0
    if arguments.once:
        report = maintainer(dataset, interval=arguments.interval, limits=limits).run_once()
        _tell(report)
        return 0 if report.ok else 1
    keeper = maintainer(dataset, interval=arguments.interval, limits=limits, told=_tell).start()
    try:
        while keeper.status().running:
            runtime.sleep(1.0)
    except KeyboardInterrupt:
        print("ending after this pass", flush=True)
    keeper.stop()
    return 0


def _tell(outcome: OptimizeReport | Exception) -> None:
    """One pass, in a few lines."""
    from tiltyard import runtime
    from tiltyard.cli.text_table import escaped, local_time

    text = str(outcome) if not isinstance(outcome, Exception) else f"{type(outcome).__name__}: {outcome}"
    first, *rest = text.split("\n")
    print("\n".join(map(escaped, [f"{local_time(runtime.now_ns())} {first}", *rest])), flush=True)
