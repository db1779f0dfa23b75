"""`tiltyard optimize URI`: compaction, upkeep of indices and cleanup, one after another."""

from __future__ import annotations

import argparse

from tiltyard.cli.arguments import TABLE_HELP, add_age
from tiltyard.cli.compact import ProgressLine, add_options, options_of


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Join small files, bring indices up to date, and remove versions older than 7 days (--older-than) "
        "that no tag names: they cannot be read again. --dry-run tells what would be done."
    )
    parser.add_argument("uri", help=TABLE_HELP)
    add_options(parser)
    add_age(parser, "7d", "7d")
    parser.add_argument(
        "--dry-run", action="store_true", help="tell what would be done and removed, and change nothing"
    )


def run(arguments: argparse.Namespace) -> int:
    import tiltyard.lance as lance
    from tiltyard.cli.text_table import escaped
    from tiltyard.dataset.upkeep import optimize

    if arguments.dry_run:
        from tiltyard.cli.upkeep_plan import planned_upkeep

        options = options_of(arguments)
        dataset = lance.dataset(arguments.uri)
        print(planned_upkeep(dataset, options, older_than=arguments.older_than, retain=arguments.retain))
        return 0
    with ProgressLine("rows rewritten") as told:
        report = optimize(
            lance.dataset(arguments.uri),
            older_than=arguments.older_than,
            retain_versions=arguments.retain,
            progress=told,
            compaction=options_of(arguments),
        )
    print("\n".join(escaped(line) for line in str(report).split("\n")))
    return 0 if report.ok else 1
