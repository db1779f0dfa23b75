"""Old data files of the register: every change writes all rows anew, so that they would fill the disk
(decision D23).

The manifests stay: an official reader that has a version open looks whether the next one is there, and would
never see a newer one again if that were gone. It reads rows only of the version that it has just found to be
the newest, so that the files of versions long past serve nobody. Invariants, checked by
tests/catalog/test_old_files.py:

1. No file goes that one of the newest versions names, nor one younger than an hour: a writer may be about to
   name it. (A writer slower than that finds its version taken.)
2. Nothing goes where versions are tagged or branched off.
3. No change fails, or waits for other processes, because of it.
4. Of requests (`waiting`) only those go whose author and server have given them up long ago.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiltyard.catalog.names import WAITING_DIR
from tiltyard.errors import CorruptFile, ObjectNotFound, StoreError, UnsupportedFeature
from tiltyard.format import names
from tiltyard.table.snapshot import read_snapshot
from tiltyard.table.versions import VersionLocation

if TYPE_CHECKING:
    from tiltyard.catalog.register import Register
    from tiltyard.session import Session
    from tiltyard.store import Store
    from tiltyard.table.snapshot import Snapshot

KEPT_VERSIONS = 100
KEPT_NS = 3600 * 10**9
EVERY_VERSIONS = 256
"""The change that makes every so-manyth version cleans up after itself."""

MAX_REMOVED = 2048
"""Files that one change removes; the rest waits for the next."""

REFS_DIR = "_refs"


def is_due(version: int) -> bool:
    """Whether the change that made this version is to look for old files."""
    return version % EVERY_VERSIONS == 0


def remove_old_files(store: Store, session: Session, register: Register) -> int:
    """Remove data files that only old versions name; how many. What fails is left to the next time."""
    snapshot = register.snapshot
    if snapshot is None or register.version <= KEPT_VERSIONS:
        return 0
    try:
        if store.list_names(REFS_DIR):
            return 0
        kept = _named(store, session, snapshot)
        before_ns = store.now_ns() - KEPT_NS
        old = [
            each.path
            for each in store.list(names.DATA_DIR)
            if each.mtime_ns < before_ns and _name(each.path) not in kept and _is_ours(each.path)
        ]
        old += [each.path for each in store.list(WAITING_DIR) if each.mtime_ns < before_ns]
        removed = store.delete_many(old[:MAX_REMOVED]).paths
    except (StoreError, CorruptFile, UnsupportedFeature):
        return 0
    return len(removed)


def _named(store: Store, session: Session, newest: Snapshot) -> set[str]:
    """The data files that the newest versions name."""
    named = {file.path for fragment in newest.fragments for file in fragment.files}
    naming = newest.location.naming
    for version in range(newest.version - KEPT_VERSIONS + 1, newest.version):
        path = names.manifest_path(version, naming)
        try:
            older = read_snapshot(store, session, VersionLocation(version, path, naming))
        except ObjectNotFound:
            continue  # removed by somebody's cleanup
        named.update(file.path for fragment in older.fragments for file in fragment.files)
    return named


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _is_ours(path: str) -> bool:
    return path == names.data_path(_name(path)) and names.is_data_file_name(_name(path))
