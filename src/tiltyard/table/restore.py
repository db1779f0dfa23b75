"""Bringing an old version back as the newest one (transactions, section 3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiltyard import runtime
from tiltyard.format.transaction import Restore, Transaction
from tiltyard.table.commit import commit
from tiltyard.table.versions import list_versions

if TYPE_CHECKING:
    from tiltyard.table.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Restored:
    """The new version, the one whose content it has, and those that it leaves behind (all between the
    two).
    """

    snapshot: Snapshot
    version: int
    superseded: tuple[int, ...]


def restore(snapshot: Snapshot, base: Snapshot, *, force: bool = False) -> Restored:
    """Commit the content of `snapshot` as a new version after `base`, the newest version that the caller has
    seen.

    Where others have committed since `base`, their versions would silently be left behind (case O16): that
    raises `RetryableConflict` naming them, unless `force`. Raises what a commit raises.
    """
    transaction = Transaction(
        read_version=base.version,
        uuid=str(runtime.uuid4()),
        operation=Restore(snapshot.version),
        properties={},
    )
    after = commit(snapshot.store, transaction, session=snapshot.session, base=base, force=force)
    between = tuple(
        location.version
        for location in list_versions(snapshot.store)
        if snapshot.version < location.version < after.version
    )
    return Restored(after, snapshot.version, between)
