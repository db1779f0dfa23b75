"""Bringing an old version back as the newest one (transactions, section 3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiltyard import runtime
from tiltyard.errors import CommitConflict, CorruptFile, RetryableConflict, StoreError, TooMuchContention
from tiltyard.format.transaction import Restore, Transaction
from tiltyard.table.commit import commit
from tiltyard.table.snapshot import open_latest
from tiltyard.table.versions import list_versions, ranges

if TYPE_CHECKING:
    from tiltyard.table.snapshot import Snapshot

MAX_PLANS = 8
"""How often a restore is planned again because a concurrent commit does not go with it."""


@dataclass(frozen=True, slots=True)
class Restored:
    """The new version, the one whose content it has, and those that it leaves behind (all between the
    two).
    """

    snapshot: Snapshot
    version: int
    superseded: tuple[int, ...]


def restore(snapshot: Snapshot, *, expected_latest: int | None = None) -> Restored:
    """Commit the content of `snapshot` as a new version after the newest one.

    What others committed since `snapshot` is left behind, and named in the answer (case O16). With
    `expected_latest` the new version follows that one directly: where others have committed since, it raises
    `RetryableConflict` naming their versions. Raises what a commit raises.
    """
    after = _replace(snapshot) if expected_latest is None else _follow(snapshot, expected_latest)
    try:
        superseded = tuple(_between(snapshot, snapshot.version, after.version))
    except (StoreError, CorruptFile):  # the version stands, whatever fails now: some of these may be removed
        superseded = tuple(range(snapshot.version + 1, after.version))
    return Restored(after, snapshot.version, superseded)


def _replace(snapshot: Snapshot) -> Snapshot:
    for plan in range(MAX_PLANS):
        base = open_latest(snapshot.store, snapshot.session)
        try:
            return commit(snapshot.store, _planned(snapshot, base), session=snapshot.session, base=base)
        except TooMuchContention:
            raise
        except CommitConflict:  # with a change of metadata that came in between: the next plan has seen it
            if plan == MAX_PLANS - 1:
                raise
    raise AssertionError("the last plan returns or raises")


def _follow(snapshot: Snapshot, expected_latest: int) -> Snapshot:
    base = open_latest(snapshot.store, snapshot.session)
    if base.version == expected_latest:
        try:
            planned = _planned(snapshot, base)
            return commit(snapshot.store, planned, session=snapshot.session, base=base, strict=True)
        except RetryableConflict:
            base = open_latest(snapshot.store, snapshot.session)
    unseen = _between(snapshot, expected_latest, base.version + 1)
    word = "version" if len(unseen) == 1 else "versions"
    told = f"{word} {ranges(unseen)} committed since" if unseen else "which does not exist"
    raise RetryableConflict(
        f"version {snapshot.version} of {snapshot.store.uri} was not restored: the latest version was "
        f"expected to be {expected_latest} ({told}), but is {base.version}; look at what is new and restore "
        "again"
    )


def _planned(snapshot: Snapshot, base: Snapshot) -> Transaction:
    return Transaction(
        read_version=base.version,
        uuid=str(runtime.uuid4()),
        operation=Restore(snapshot.version),
        properties={},
    )


def _between(snapshot: Snapshot, low: int, high: int) -> list[int]:
    return [each.version for each in list_versions(snapshot.store) if low < each.version < high]
