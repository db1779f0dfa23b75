"""What a rewritten group of fragments is, before and after it is committed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiltyard.format.fragment import Fragment
from tiltyard.table.write import remove_files

if TYPE_CHECKING:
    from tiltyard.store import Store


@dataclass(frozen=True, slots=True)
class Metrics:
    """Fragments and files (data and deletion files) that went and came."""

    fragments_removed: int = 0
    fragments_added: int = 0
    files_removed: int = 0
    files_added: int = 0

    def __add__(self, other: Metrics) -> Metrics:
        return Metrics(
            self.fragments_removed + other.fragments_removed,
            self.fragments_added + other.fragments_added,
            self.files_removed + other.files_removed,
            self.files_added + other.files_added,
        )


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Fragments of a version and the uncommitted ones (id 0) with their live rows, in order."""

    read_version: int
    old: tuple[Fragment, ...]
    new: tuple[Fragment, ...]

    @property
    def metrics(self) -> Metrics:
        return Metrics(len(self.old), len(self.new), _files(self.old), _files(self.new))


def remove_rewritten(store: Store, rewritten: Iterable[Rewritten]) -> None:
    """Delete the new files of groups that no version names, not even for a moment."""
    remove_files(store, [fragment for each in rewritten for fragment in each.new])


def _files(fragments: Iterable[Fragment]) -> int:
    return sum(len(each.files) + (each.deletion is not None) for each in fragments)
