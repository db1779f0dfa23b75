"""New files of a local root that become durable together: written one by one, waited for once.

A file that is synced for itself costs two waits for the file system's journal, one for its content and one
for its name. Of files that nobody looks for before all of them are there, the contents can be set under way
as they are written, and each directory be synced once for all the names in it.

Invariants, checked by tests/store/test_local_durability.py:
1. After `finish` whatever was handed to `sync_content`, `sync` and `settle` is durable.
2. A failed sync is reported, and `Directory`'s second invariant holds for the root itself.
"""

from __future__ import annotations

from contextlib import suppress

from tiltyard import runtime
from tiltyard.errors import InvalidInput
from tiltyard.store.directory import Directory


class Gathered(Directory):
    """A root whose syncs are remembered, until `finish` does them. Safe to share among threads until then.

    Of no use after `end`.
    """

    def __init__(self, root: Directory) -> None:
        super().__init__(root.port, root.path, root.durable)
        self._root = root
        self._guard = runtime.leaf_lock()
        self._files: list[int] = []  # handles of our own
        self._directories: set[str] = set()
        self._ended = False

    def handle(self) -> int:
        return self._root.handle()

    def removed(self) -> bool:
        return self._root.removed()

    def make(self, directory: str = "") -> None:
        self._root.make(directory)

    def sync_content(self, fd: int) -> None:
        self._check()
        self.port.start_writeback(fd, 0, 0)
        kept = self.port.duplicate(fd)
        with self._guard:
            self._files.append(kept)

    def sync(self, directory: str) -> None:
        self._check()
        with self._guard:
            self._directories.add(directory)

    def settle(self, directory: str) -> None:
        self.sync(directory)  # which is done for all names on the way to it

    def _check(self) -> None:
        if self._ended:
            raise InvalidInput(
                f"the block whose files in {self.path} become durable together has ended; write through the "
                "store that it was made from"
            )

    def finish(self) -> None:
        """Make everything durable. Raises what prevents it: then anything of it may be lost, or cut."""
        self._root.sync_all(self._files, self._directories)

    def end(self) -> None:
        """Give the files back."""
        self._ended = True
        files, self._files = self._files, []
        for fd in files:
            with suppress(OSError):
                self.port.close(fd)
