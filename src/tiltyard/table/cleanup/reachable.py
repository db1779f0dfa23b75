"""Which files a manifest names. Pure.

A *key* stands for what lives and goes together: a data file with its blob files, the directory of an index
segment, or a single file. Keys are paths below the table's root.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
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


def named_by(manifest: Manifest, before: tuple[Manifest, Named] | None = None) -> Named:
    """Everything that a manifest names: data files, overlays, deletion files, index segments, its
    transaction. `before`: another version and what it names, which is not asked again where this one was
    appended to it.
    """
    own, elsewhere = _of_fragments(manifest, before)
    for index in manifest.indices:
        (own if index.base_id is None else elsewhere).add(names.index_directory(index.uuid))
    if manifest.transaction_file:
        own.add(names.transaction_path(manifest.transaction_file))
    return Named(frozenset(own), frozenset(elsewhere))


def _of_fragments(manifest: Manifest, before: tuple[Manifest, Named] | None) -> tuple[set[str], set[str]]:
    if before is None or not manifest.fragments.begins_as(before[0].fragments):
        return manifest.fragments.file_names()
    known, named = before
    own, elsewhere = manifest.fragments.file_names(known.fragments)
    segments = {names.index_directory(index.uuid) for index in known.indices}
    transaction = {names.transaction_path(known.transaction_file)}
    return own | (named.own - segments - transaction), elsewhere | (named.elsewhere - segments)


class NamedByVersions:
    """Which versions of a chain name a key. Versions are added in ascending order, each as what it names
    beyond the one before: a key that a thousand versions in a row name costs as much as one that one names.
    """

    def __init__(self) -> None:
        self._own = _Runs()
        self._elsewhere = _Runs()
        self.versions: list[int] = []

    def add(self, version: int, named: Named) -> None:
        """Add the next version."""
        position = len(self.versions)
        self.versions.append(version)
        self._own.add(position, named.own)
        self._elsewhere.add(position, named.elsewhere)

    def own_keys(self, among: Sequence[bool]) -> set[str]:
        """Keys that one of the versions marked (by position) names under the table's own root."""
        counts = [0, *accumulate(among)]
        return {
            key
            for key, runs in self._own.runs.items()
            if any(counts[high + 1] > counts[low] for low, high in self._own.pairs(runs, len(self.versions)))
        }

    def span(self, key: str, marked: Marked) -> tuple[int, int] | None:
        """Positions of the first and the last of the marked versions that name the key, wherever; None where
        none does.
        """
        found: list[tuple[int, int]] = []
        for side in (self._own, self._elsewhere):
            runs = side.runs.get(key)
            if runs is not None:
                for low, high in side.pairs(runs, len(self.versions)):
                    first, last = marked.following[low], marked.preceding[high]
                    if first <= high:
                        found.append((first, last))
        return (min(low for low, _ in found), max(high for _, high in found)) if found else None


class Marked:
    """Some of the versions of a chain, by position: which is the next one at or after a position, which the
    last one at or before it.
    """

    def __init__(self, marks: Sequence[bool]) -> None:
        count = len(marks)
        self.following = [count] * (count + 1)
        for position in range(count - 1, -1, -1):
            self.following[position] = position if marks[position] else self.following[position + 1]
        self.preceding = list(
            accumulate(range(count), lambda last, at: at if marks[at] else last, initial=-1)
        )[1:]


class _Runs:
    """Per key the runs of positions, as flat pairs; the last one may still be open (-1)."""

    def __init__(self) -> None:
        self.runs: dict[str, list[int]] = {}
        self._before: frozenset[str] = frozenset()

    def add(self, position: int, keys: frozenset[str]) -> None:
        for key in keys - self._before:
            self.runs.setdefault(key, []).extend((position, -1))
        for key in self._before - keys:
            self.runs[key][-1] = position - 1
        self._before = keys

    def pairs(self, runs: list[int], count: int) -> Iterator[tuple[int, int]]:
        for at in range(0, len(runs), 2):
            high = runs[at + 1]
            yield runs[at], count - 1 if high < 0 else high


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
