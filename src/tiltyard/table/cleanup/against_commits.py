"""That no version names a file which a cleanup takes away, seen from the commit (decision D27, cases K07,
K10).

A cleanup deletes files that no version names, as it sees them. A commit that was planned before may name one
all the same: a Restore of a version that goes, or files so old, or so plainly abandoned, that the cleanup
took them for waste. The cleanup wrote down what goes and looked at the versions once more before it deleted:
so of it and the commit, which publishes and then looks here, one always sees the other.
"""

from __future__ import annotations

from tiltyard.errors import FilesRemoved
from tiltyard.format import names
from tiltyard.format.manifest import Manifest
from tiltyard.session import Session
from tiltyard.store import Store
from tiltyard.table.cleanup.intents import taken_away
from tiltyard.table.snapshot import open_latest
from tiltyard.table.versions import VersionLocation, list_names


def check_before(store: Store, session: Session, made: Manifest, base: Manifest | None, who: str) -> None:
    """Refuse to publish a version that names, beyond its base, what a cleanup takes away. Raises
    `FilesRemoved`.
    """
    key = taken_away(store, session, lambda: _new(made, base))
    if key is not None:
        raise FilesRemoved(f"{_said(store, who, key)} Nothing was committed; do the whole operation again")


def check_after(
    store: Store, session: Session, at: VersionLocation, made: Manifest, base: Manifest | None, who: str
) -> None:
    """The same right after the version was published. It is taken back then, unless another was built on it.

    Waits up to some seconds for a cleanup under way, which may have seen the version. A version that is gone
    by then was followed by others before a cleanup took it with its files: the commit was done. Raises
    `FilesRemoved`.
    """
    key = taken_away(store, session, lambda: _new(made, base), settled=True)
    if key is None:
        return
    found = {each.version for each in list_names(store)}
    if at.version not in found and key not in _new(open_latest(store, session).manifest, None):
        return
    if max(found, default=0) > at.version or (base is not None and base.version not in found):
        told = f"Version {at.version} was published meanwhile and cannot be taken back: restore an older one"
    else:
        store.delete(at.path)
        told = f"Version {at.version} was published meanwhile, and taken back; do the whole operation again"
    error = FilesRemoved(f"{_said(store, who, key)} {told}")
    error.files_referenced = True
    raise error


def _new(made: Manifest, base: Manifest | None) -> frozenset[str]:
    """Keys that a version names and its base does not, or not as the same fragments. Its transaction's file
    is written by the commit itself.
    """
    own, _ = made.fragments.file_names(None if base is None else base.fragments)
    before = set() if base is None else {index.uuid for index in base.indices}
    return frozenset(own).union(
        names.index_directory(index.uuid)
        for index in made.indices
        if index.base_id is None and index.uuid not in before
    )


def _said(store: Store, who: str, key: str) -> str:
    return f"a cleanup of {store.uri} takes away {key}, which {who} names."
