"""Which files a manifest names. Pure.

A *key* stands for what lives and goes together: a data file with its blob files, the directory of an index
segment, or a single file. Keys are paths below the table's root.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiltyard.format import names

if TYPE_CHECKING:
    from tiltyard.format.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Named:
    """Keys that a manifest names: `own` under the table's own root, `elsewhere` under one of its base paths.

    Names are unique: one under a base path stays protected wherever it is found, without comparing places.
    """

    own: frozenset[str] = frozenset()
    elsewhere: frozenset[str] = frozenset()

    @property
    def every(self) -> frozenset[str]:
        """All keys, wherever the manifest says that they are."""
        return self.own | self.elsewhere if self.elsewhere else self.own


def named_by(manifest: Manifest) -> Named:
    """Everything that a manifest names: data files, overlays, deletion files, index segments, its
    transaction.
    """
    own, elsewhere = manifest.fragments.file_names()
    for index in manifest.indices:
        (own if index.base_id is None else elsewhere).add(names.index_directory(index.uuid))
    if manifest.transaction_file:
        own.add(names.transaction_path(manifest.transaction_file))
    return Named(frozenset(own), frozenset(elsewhere))


def key_of(path: str) -> str:
    """The key that a file belongs to."""
    owner = names.sidecar_owner(path)
    if owner is not None:
        return owner
    folder, _, rest = path.partition("/")
    if folder == names.INDICES_DIR and "/" in rest:
        return f"{folder}/{rest.partition('/')[0]}"
    return path


def kind_of(path: str) -> str | None:
    """What a file below the root is: `data`, `deletion`, `transaction`, `index`, `temporary`, `hint`, `tag`;
    None for what no writer of tables gives such a name.
    """
    folder, _, rest = path.partition("/")
    name = path.rpartition("/")[2]
    if path == names.HINT_PATH:
        return "hint"
    if folder in _TEMPORARY_FOLDERS and names.is_temporary(name):
        return "temporary"
    if folder == names.DATA_DIR:
        written = "/" not in rest and names.is_written_data_file(rest)
        owner = names.sidecar_owner(path)
        if owner is not None:
            written = names.is_written_data_file(owner.rpartition("/")[2])
        return "data" if written else None
    if folder == names.DELETIONS_DIR:
        return "deletion" if names.parse_deletion_name(rest) is not None else None
    if folder == names.TRANSACTIONS_DIR:
        return "transaction" if names.parse_transaction_name(rest) is not None else None
    if path.startswith(names.TAGS_DIR + "/"):
        return "tag" if name.endswith(".json") else None
    if folder == names.INDICES_DIR:
        segment, slash, _ = rest.partition("/")
        return "index" if slash and names.is_index_directory(segment) else None
    return None


FOLDERS = (
    names.DATA_DIR,
    names.DELETIONS_DIR,
    names.TRANSACTIONS_DIR,
    names.INDICES_DIR,
    names.VERSIONS_DIR,
    names.TAGS_DIR,
)
"""Where files of a table lie that a cleanup may remove. Everything else is none of its business."""

_TEMPORARY_FOLDERS = frozenset(folder.partition("/")[0] for folder in FOLDERS)
KIND_BY_FOLDER = {
    names.DATA_DIR: "data",
    names.DELETIONS_DIR: "deletion",
    names.TRANSACTIONS_DIR: "transaction",
    names.INDICES_DIR: "index",
}
"""What a file is that a manifest names, whatever its name looks like."""
