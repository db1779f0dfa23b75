"""Whether a transaction that says nothing about where to look was committed before.

An Overwrite or Restore without a read version is planned on whatever is the latest; repeated after a lost
answer it would go on top once more, over what others committed since. So every version is asked whether it is
this one.
"""

from __future__ import annotations

from collections.abc import Callable

from tiltyard.errors import CorruptFile, ObjectNotFound, StoreError, UnsupportedFeature
from tiltyard.format.transaction import Transaction
from tiltyard.session import Session
from tiltyard.store import Store
from tiltyard.table.snapshot import Snapshot, read_snapshot, read_transaction
from tiltyard.table.versions import list_versions


def landed_before(
    store: Store, session: Session, is_ours: Callable[[Transaction], bool], who: str
) -> Snapshot | None:
    """The retained version, newest first, that `is_ours` knows; None where there is none. `who`: the
    transaction, for messages.

    Raises `StoreError` where a version cannot be read just now: it may be the one.
    """
    unread: tuple[int, StoreError] | None = None
    for location in reversed(list_versions(store)):
        try:
            theirs = read_transaction(store, session, location)
            if theirs is not None and is_ours(theirs):
                return read_snapshot(store, session, location)
        except (ObjectNotFound, CorruptFile, UnsupportedFeature):
            continue  # removed meanwhile, damaged, or of a later format: not what we would have written
        except StoreError as error:
            unread = unread or (location.version, error)
    if unread is None:
        return None
    version, cause = unread
    raise StoreError(
        f"nothing was committed: version {version} of {store.uri} cannot be read ({cause}), so that nobody "
        f"can tell whether {who} was committed there before; put right what keeps it from being read, or "
        "give the version that this was planned on (read_version)"
    ) from cause
