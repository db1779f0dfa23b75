"""What a cleanup did or would do, for callers: totals, the files that go, and for every file why it stays and
until when.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tiltyard.table import refs
from tiltyard.table.cleanup.run import Cleaned, plan
from tiltyard.table.cleanup.select import FileFate, Policy, Selection, VersionFate
from tiltyard.table.wording import NS_PER_SECOND

if TYPE_CHECKING:
    from tiltyard.table.cleanup.survey import Place

MAX_FILES = 1000
"""How many files an explanation lists unless told otherwise."""

LAST_SECOND = 253_402_214_400
"""A time that a calendar can show (s since the epoch)."""


@dataclass(frozen=True, slots=True)
class CleanupStats:
    """Totals of a cleanup. `bytes_removed` counts manifests too; `data_files_removed` blob files too."""

    bytes_removed: int = 0
    old_versions: int = 0
    data_files_removed: int = 0
    transaction_files_removed: int = 0
    index_files_removed: int = 0
    deletion_files_removed: int = 0
    failed_deletes: int = 0


@dataclass(frozen=True, slots=True)
class CleanupCandidateFile:
    """A file that goes: path below the table, kind, bytes. `unverified`: no version ever named it."""

    path: str
    kind: str
    unverified: bool
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CleanupReferencedBranch:
    """A branch that starts from a version of this table. `cleanup_candidate`: never, branches clean up
    themselves.
    """

    name: str
    referenced_version: int
    cleanup_candidate: bool = False


@dataclass(frozen=True, slots=True)
class ExplainedVersion:
    """A version: whether it goes, why, and until when it stays at least (UTC; None: not by time alone)."""

    version: int
    goes: bool
    reason: str
    until: datetime | None


@dataclass(frozen=True, slots=True)
class ExplainedFile:
    """A file below the table: kind (None: nobody's), bytes, whether it goes, why, and until when it stays at
    least (UTC; None: not by time alone).
    """

    path: str
    kind: str | None
    size_bytes: int
    goes: bool
    reason: str
    until: datetime | None


@dataclass(frozen=True, slots=True)
class CleanupExplanation:
    """What a cleanup would remove just now. `candidate_files` are listed up to `candidate_file_limit` where
    files were asked for; `stats` always counts all. `versions` and `files` tell the fate of everything that
    is there.
    """

    read_version: int
    stats: CleanupStats
    candidate_files: list[CleanupCandidateFile] = field(default_factory=list)
    candidate_files_truncated: bool = False
    candidate_file_limit: int = MAX_FILES
    referenced_branches: list[CleanupReferencedBranch] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    versions: list[ExplainedVersion] = field(default_factory=list, repr=False)
    files: list[ExplainedFile] = field(default_factory=list, repr=False)

    def __str__(self) -> str:
        from tiltyard.table.cleanup.account import account

        return "\n".join(account(self, all_shown_by="its field versions or files"))


def explain(
    place: Place,
    read_version: int,
    policy: Policy,
    *,
    include_files: bool = False,
    max_files: int = MAX_FILES,
) -> CleanupExplanation:
    """What `run.clean` would do just now; changes nothing. Raises what it raises before it deletes."""
    _, selection = plan(place, read_version, policy)
    going = [each for each in selection.files if each.goes]
    listed = going[:max_files] if include_files else []
    return CleanupExplanation(
        read_version=read_version,
        stats=_planned_stats(selection),
        candidate_files=[_candidate(each) for each in listed],
        candidate_files_truncated=include_files and len(going) > max_files,
        candidate_file_limit=max_files,
        referenced_branches=_branches(place),
        warnings=_warnings(selection),
        versions=[_version(each) for each in selection.versions],
        files=[_file(each) for each in selection.files],
    )


def stats_of(done: Cleaned) -> CleanupStats:
    """Totals of what a run removed."""
    return _stats(done.bytes_removed, len(done.versions), done.files, len(done.failed))


def _planned_stats(selection: Selection) -> CleanupStats:
    going = [each for each in selection.files if each.goes]
    versions = sum(each.goes for each in selection.versions)
    return _stats(sum(each.size for each in going), versions, going, 0)


def _stats(bytes_removed: int, versions: int, files: Iterable[FileFate], failed: int) -> CleanupStats:
    counts: dict[str | None, int] = {}
    for each in files:
        counts[each.kind] = counts.get(each.kind, 0) + 1
    return CleanupStats(
        bytes_removed=bytes_removed,
        old_versions=versions,
        data_files_removed=counts.get("data", 0),
        transaction_files_removed=counts.get("transaction", 0),
        index_files_removed=counts.get("index", 0),
        deletion_files_removed=counts.get("deletion", 0),
        failed_deletes=failed,
    )


def _candidate(fate: FileFate) -> CleanupCandidateFile:
    return CleanupCandidateFile(fate.path, fate.kind or "", fate.unverified, fate.size)


def _branches(place: Place) -> list[CleanupReferencedBranch]:
    return [
        CleanupReferencedBranch(each.name, each.parent_version)
        for each in refs.every_branch(place.root)
        if each.parent_branch == place.branch
    ]


def _warnings(selection: Selection) -> list[str]:
    foreign = sum(each.kind is None for each in selection.files)
    if not foreign:
        return []
    noun = "file has a name" if foreign == 1 else "files have names"
    return [f"{foreign} {noun} that no writer of tables gives, and will never be removed"]


def _version(fate: VersionFate) -> ExplainedVersion:
    return ExplainedVersion(fate.version.version, fate.goes, fate.reason, moment(fate.until_ns))


def _file(fate: FileFate) -> ExplainedFile:
    return ExplainedFile(fate.path, fate.kind, fate.size, fate.goes, fate.reason, moment(fate.until_ns))


def moment(ns: int | None) -> datetime | None:
    """A time of the store as a UTC time; None also for one that is in no calendar."""
    if ns is None or ns // NS_PER_SECOND > LAST_SECOND:
        return None
    return datetime.fromtimestamp(ns / NS_PER_SECOND, UTC)
