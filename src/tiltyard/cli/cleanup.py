"""`tiltyard cleanup URI`: remove old versions, or tell what would go and why the rest stays."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tiltyard.cli.arguments import whole_number
from tiltyard.cli.text_table import count, escaped

if TYPE_CHECKING:
    from tiltyard.table.cleanup.explain import CleanupExplanation, CleanupStats, ExplainedFile

MAX_LISTED = 20
"""Lines of one kind that are shown unless all are asked for."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("uri", help="directory or URI of the table")
    parser.add_argument(
        "--older-than",
        metavar="SPAN",
        help="only versions older than this, such as 7d or 1h (default: 14 days)",
    )
    parser.add_argument(
        "--retain", metavar="N", type=whole_number, help="keep the newest N versions, whatever their age"
    )
    parser.add_argument(
        "--delete-unverified",
        action="store_true",
        help="also files that no version names and that are younger than 7 days: only where nobody writes",
    )
    parser.add_argument("--dry-run", action="store_true", help="tell what would go, and remove nothing")
    parser.add_argument("--files", action="store_true", help="with --dry-run: every file, and why it stays")


def run(arguments: argparse.Namespace) -> int:
    import tiltyard.lance as lance

    dataset = lance.dataset(arguments.uri)
    asked = {
        "older_than": arguments.older_than,
        "retain_versions": arguments.retain,
        "delete_unverified": arguments.delete_unverified,
        "error_if_tagged_old_versions": False,
    }
    if arguments.dry_run:
        explanation = dataset.explain_cleanup_old_versions(**asked)
        print("\n".join(escaped(line) for line in account(explanation, every_file=arguments.files)))
        return 0
    print(_totals("removed", dataset.cleanup_old_versions(**asked)))
    return 0


def account(explanation: CleanupExplanation, *, every_file: bool = False) -> list[str]:
    """The explanation in lines for people."""
    lines = [_totals("would remove", explanation.stats)]
    going = [each.version for each in explanation.versions if each.goes]
    if going:
        from tiltyard.table.versions import ranges

        lines.append(f"versions that would go: {ranges(going)}")
    staying = [each for each in explanation.versions if not each.goes]
    lines.append("versions that stay:")
    limit = len(staying) if every_file else MAX_LISTED
    lines += [f"  {each.version}: {each.reason}{_until(each.until)}" for each in staying[-limit:]]
    if len(staying) > limit:
        lines.append(f"  ... and {len(staying) - limit:,} older ones (--files shows all)")
    lines += _files(explanation.files, every_file)
    lines += [f"note: {each}" for each in explanation.warnings]
    return lines


def _files(files: Iterable[ExplainedFile], every_file: bool) -> list[str]:
    """Files by what happens to them, or each of them."""
    if every_file:
        return ["files:"] + [
            f"  {'goes ' if each.goes else 'stays'} {each.path} ({each.size_bytes:,} bytes): {each.reason}"
            f"{_until(each.until)}"
            for each in files
        ]
    waiting = [each for each in files if not each.goes and each.until is not None and each.kind != "manifest"]
    if not waiting:
        return []
    size = sum(each.size_bytes for each in waiting)
    last = max(each.until for each in waiting if each.until is not None)
    return [
        f"{count(len(waiting), 'file')} ({size:,} bytes) must wait, the last until {last:%Y-%m-%d %H:%M} UTC "
        "(--files tells why)"
    ]


def _until(moment: object) -> str:
    return "" if moment is None else f" (until {moment:%Y-%m-%d %H:%M:%S} UTC at least)"


def _totals(verb: str, stats: CleanupStats) -> str:
    parts = [
        count(stats.old_versions, "version"),
        count(stats.data_files_removed, "data file"),
        count(stats.deletion_files_removed, "deletion file"),
        count(stats.index_files_removed, "index file"),
        count(stats.transaction_files_removed, "transaction file"),
    ]
    told = ", ".join(part for part in parts if not part.startswith("0 ")) or "nothing"
    failed = f"; {count(stats.failed_deletes, 'file')} could not be deleted" if stats.failed_deletes else ""
    return f"{verb} {told} ({stats.bytes_removed:,} bytes){failed}"
