"""Paths in an object store as the namespace's answers and requests carry them.

A key has no scheme and no leading slash: `home/me/lake/t.lance/_versions/x.manifest` on a local disk, the key
within the bucket on an object store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiltyard.errors import InvalidInput
from tiltyard.format import names
from tiltyard.store import object_key

if TYPE_CHECKING:
    from tiltyard.store import Store


def staged_name(store: Store, key: str) -> str:
    """The name in `_versions/` of a staged manifest that a request gives by its key.

    Raises `InvalidInput` for what lies elsewhere, or is no staged manifest by its name.
    """
    folder = object_key(store, names.VERSIONS_DIR) + "/"
    name = key.lstrip("/").removeprefix(folder)
    if not key.lstrip("/").startswith(folder) or names.parse_staged_manifest(name) is None:
        raise InvalidInput(
            f"manifest_path {key!r} is no staged manifest of the table: expected "
            f"{folder}<name of the manifest>-<uuid>"
        )
    return name
