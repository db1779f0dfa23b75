"""Being told about files as they are written."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tiltyard.dataset import arguments

if TYPE_CHECKING:
    from tiltyard.dataset.metadata import FragmentMetadata
    from tiltyard.format.fragment import Fragment


@dataclass(frozen=True)
class IndexProgress:
    """How far a build of an index is. `event`: "start", "progress" or "complete"; `completed` of `total`
    (None where not known) are counted in `unit`."""

    event: str
    stage: str
    completed: int | None = None
    total: int | None = None
    unit: str = ""

    @property
    def fraction(self) -> float | None:
        """The part that is done, from 0 to 1; None where it is not known."""
        if self.completed is None or not self.total:
            return None
        return self.completed / self.total


class FragmentWriteProgress(ABC):
    """Called when a data file is begun and when it is complete; subclass it and pass it as `progress`."""

    @abstractmethod
    def begin(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """A file is begun; the fragment has no files and unknown rows yet."""

    @abstractmethod
    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """A file is complete and durable; no version names it yet."""


class NoopFragmentWriteProgress(FragmentWriteProgress):
    """Does nothing."""

    def begin(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        return None

    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        return None


class ToldProgress:
    """Passes the table layer's calls on to a `FragmentWriteProgress`, or to a plain function of the rows so
    far.
    """

    def __init__(self, target: Any, fragment_id: int = 0) -> None:
        """`fragment_id`: the id that the fragments are told with; a commit gives them others."""
        if not (callable(target) or hasattr(target, "begin") or hasattr(target, "complete")):
            raise arguments.wrong(
                "progress", "a FragmentWriteProgress or a function of the rows written", target
            )
        self._target = target
        self._rows = 0
        self._id = fragment_id

    def begin(self, fragment: Fragment) -> None:
        from tiltyard.dataset.metadata import FragmentMetadata

        if isinstance(self._target, FragmentWriteProgress) or hasattr(self._target, "begin"):
            self._target.begin(
                FragmentMetadata.from_fragment(replace(fragment, id=self._id), rows_known=False)
            )

    def complete(self, fragment: Fragment) -> None:
        from tiltyard.dataset.metadata import FragmentMetadata

        self._rows += fragment.physical_rows
        if isinstance(self._target, FragmentWriteProgress) or hasattr(self._target, "complete"):
            self._target.complete(FragmentMetadata.from_fragment(replace(fragment, id=self._id)))
        else:
            self._target(self._rows)


class FileSystemFragmentWriteProgress(FragmentWriteProgress):
    """Leaves a trace of each fragment in a directory: what it holds, and a mark for as long as it is written.

    `fragment_N.json` is the fragment's JSON form, `fragment_N.in_progress` the mark: a JSON object with
    `fragment_id` and the `metadata` given here. A mark that stays is a write that did not end.
    """

    PROGRESS_EXT = ".in_progress"

    def __init__(self, base_uri: Any, metadata: Mapping[str, str] | None = None) -> None:
        from tiltyard.dataset.handle import open_root

        self._store = open_root(base_uri, None)
        self._metadata = {} if metadata is None else arguments.text_map("metadata", metadata)

    def begin(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        mark = {"fragment_id": fragment.id, "metadata": self._metadata}
        self._store.put(self._mark(fragment), json.dumps(mark).encode())
        self._describe(fragment)

    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        self._describe(fragment)
        self._store.delete(self._mark(fragment))

    def _mark(self, fragment: FragmentMetadata) -> str:
        return f"fragment_{fragment.id}{self.PROGRESS_EXT}"

    def _describe(self, fragment: FragmentMetadata) -> None:
        self._store.put(f"fragment_{fragment.id}.json", json.dumps(fragment.to_json()).encode())
