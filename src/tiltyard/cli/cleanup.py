"""`tiltyard cleanup URI`: remove old versions, or tell what would go and why the rest stays."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tiltyard.cli.arguments import TABLE_HELP, add_age
from tiltyard.cli.text_table import escaped

if TYPE_CHECKING:
    from tiltyard.table.cleanup.explain import CleanupExplanation


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("uri", help=TABLE_HELP)
    add_age(parser, None, "14 days; with --retain any age, but the last hour stays")
    parser.add_argument(
        "--delete-unverified",
        action="store_true",
        help="also files that no version names and that are younger than 7 days: only where nobody writes",
    )
    parser.add_argument("--dry-run", action="store_true", help="tell what would go, and remove nothing")
    parser.add_argument("--files", action="store_true", help="with --dry-run: every file, and why it stays")


def run(arguments: argparse.Namespace) -> int:
    import tiltyard.lance as lance
    from tiltyard.table.cleanup.account import account, totals

    dataset = lance.dataset(arguments.uri)
    asked = {
        "older_than": arguments.older_than,
        "retain_versions": arguments.retain,
        "delete_unverified": arguments.delete_unverified,
        "error_if_tagged_old_versions": False,
    }
    if arguments.dry_run:
        explanation = dataset.explain_cleanup_old_versions(**asked)
        lines = account(explanation, every_file=arguments.files, all_shown_by="--files")
    else:
        stats = dataset.cleanup_old_versions(**asked)
        lines = [totals("removed", stats)]
        if not stats.old_versions and not stats.bytes_removed:
            lines += _why_nothing(dataset.explain_cleanup_old_versions(**asked))
    print("\n".join(map(escaped, lines)))
    return 0


def _why_nothing(explanation: CleanupExplanation) -> list[str]:
    """Why everything stays."""
    from tiltyard.table.cleanup.account import MAX_LISTED, staying, waiting

    shown_by = "--dry-run --files"
    return [
        *staying(explanation.versions, MAX_LISTED, shown_by),
        *waiting(explanation.files, False, shown_by),
    ]
