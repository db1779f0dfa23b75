"""Being told about files as they are written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from tiltyard.dataset import arguments

if TYPE_CHECKING:
    from tiltyard.dataset.metadata import FragmentMetadata
    from tiltyard.format.fragment import Fragment


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

    def __init__(self, target: Any) -> None:
        if not (callable(target) or hasattr(target, "begin") or hasattr(target, "complete")):
            raise arguments.wrong(
                "progress", "a FragmentWriteProgress or a function of the rows written", target
            )
        self._target = target
        self._rows = 0

    def begin(self, fragment: Fragment) -> None:
        from tiltyard.dataset.metadata import FragmentMetadata

        if isinstance(self._target, FragmentWriteProgress) or hasattr(self._target, "begin"):
            self._target.begin(FragmentMetadata.from_fragment(fragment, rows_known=False))

    def complete(self, fragment: Fragment) -> None:
        from tiltyard.dataset.metadata import FragmentMetadata

        self._rows += fragment.physical_rows
        if isinstance(self._target, FragmentWriteProgress) or hasattr(self._target, "complete"):
            self._target.complete(FragmentMetadata.from_fragment(fragment))
        else:
            self._target(self._rows)
