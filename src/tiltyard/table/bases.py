"""Where a fragment's files lie: below the table's own root, or below one of its base paths (table format,
10).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiltyard.errors import CorruptFile
from tiltyard.format.base_paths import base_of
from tiltyard.format.fragment import DataFile, Fragment
from tiltyard.format.names import data_path
from tiltyard.store import open_other

if TYPE_CHECKING:
    from tiltyard.format.manifest import Manifest
    from tiltyard.session import Session
    from tiltyard.store import Store

STORE_BYTES = 512
"""What one opened base is accounted as in the cache (bytes)."""


def data_place(store: Store, session: Session, manifest: Manifest, file: DataFile) -> tuple[Store, str]:
    """Store and path of a data file. Raises `CorruptFile` when the manifest lacks the file's base."""
    if file.base_id is None:
        return store, data_path(file.path)
    place, is_root = base_place(store, session, manifest, file.base_id, f"data file {file.path}")
    return place, data_path(file.path) if is_root else file.path


def deletion_place(
    store: Store, session: Session, manifest: Manifest, fragment: Fragment
) -> tuple[Store, str]:
    """Store and path of the deletion file of a fragment that has one."""
    deletion = fragment.deletion
    assert deletion is not None
    path = deletion.path(fragment.id)
    if deletion.base_id is None:
        return store, path
    place, is_root = base_place(store, session, manifest, deletion.base_id, f"deletion file {path}")
    return place, path if is_root else path.rpartition("/")[2]


def base_place(
    store: Store, session: Session, manifest: Manifest, base_id: int, what: str
) -> tuple[Store, bool]:
    try:
        base = base_of(manifest.base_paths, base_id, what)
    except CorruptFile as error:
        raise CorruptFile(f"version {manifest.version}: {error}", path=store.uri) from error
    key = (store.identity, base.path, "base", "")
    place: Store = session.cache.get_or(key, lambda: (open_other(store, base.path), STORE_BYTES))
    return place, base.is_dataset_root
