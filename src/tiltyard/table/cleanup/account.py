"""What a cleanup would remove and why the rest stays, in lines for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tiltyard.table.versions import ranges
from tiltyard.table.wording import counted, sized

if TYPE_CHECKING:
    from tiltyard.table.cleanup.explain import (
        CleanupExplanation,
        CleanupStats,
        ExplainedFile,
        ExplainedVersion,
    )

MAX_LISTED = 20
"""Lines of versions that are shown unless all are asked for."""


def account(explanation: CleanupExplanation, *, every_file: bool = False, all_shown_by: str) -> list[str]:
    """The explanation; `every_file` gives a line for each file, and all versions. `all_shown_by` says how the
    reader gets those that are left out.
    """
    lines = [totals("would remove", explanation.stats)]
    going = [each.version for each in explanation.versions if each.goes]
    if going:
        lines.append(f"versions that would go: {ranges(going)}")
    lines += staying(explanation.versions, None if every_file else MAX_LISTED, all_shown_by)
    lines += waiting(explanation.files, every_file, all_shown_by)
    return lines + [f"note: {each}" for each in explanation.warnings]


def staying(versions: Iterable[ExplainedVersion], limit: int | None, all_shown_by: str) -> list[str]:
    """The versions that stay, with their reasons; neighbours that have one reason share a line."""
    runs: list[list[ExplainedVersion]] = []
    for each in versions:
        if each.goes:
            continue
        if runs and runs[-1][-1].reason == each.reason:
            runs[-1].append(each)
        else:
            runs.append([each])
    shown = runs if limit is None else runs[-limit:]
    lines = ["versions that stay:"]
    lines += [
        f"  {ranges([each.version for each in run])}: {run[-1].reason}{_until(run[-1].until)}"
        for run in shown
    ]
    if len(shown) < len(runs):
        left_out = sum(map(len, runs[: len(runs) - len(shown)]))
        lines.append(f"  ... and {left_out:,} older ones ({all_shown_by} shows all)")
    return lines


def waiting(files: Iterable[ExplainedFile], every_file: bool, all_shown_by: str) -> list[str]:
    """How many files wait for their time, or each file and its reason."""
    if every_file:
        return ["files:"] + [
            f"  {'goes ' if each.goes else 'stays'} {each.path} ({sized(each.size_bytes)}): {each.reason}"
            f"{_until(each.until)}"
            for each in files
        ]
    left = [each for each in files if not each.goes and each.until is not None and each.kind != "manifest"]
    if not left:
        return []
    last = max(each.until for each in left if each.until is not None)
    return [
        f"{counted(len(left), 'file')} ({sized(sum(each.size_bytes for each in left))}) must wait, the last "
        f"until {last:%Y-%m-%d %H:%M} UTC ({all_shown_by} tells why)"
    ]


def totals(verb: str, stats: CleanupStats) -> str:
    """`removed 2 versions, 1 data file (62.8 MB)`."""
    parts = [
        counted(number, noun)
        for number, noun in (
            (stats.old_versions, "version"),
            (stats.data_files_removed, "data file"),
            (stats.deletion_files_removed, "deletion file"),
            (stats.index_files_removed, "index file"),
            (stats.transaction_files_removed, "transaction file"),
        )
        if number
    ]
    told = f"{verb} {', '.join(parts) or 'nothing'}"
    if parts or stats.bytes_removed:
        told += f" ({sized(stats.bytes_removed)})"
    failed = f"; {counted(stats.failed_deletes, 'file')} could not be deleted" if stats.failed_deletes else ""
    return told + failed


def _until(moment: object) -> str:
    return "" if moment is None else f" (until {moment:%Y-%m-%d %H:%M:%S} UTC at least)"
