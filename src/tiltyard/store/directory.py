"""A local root: the handle on its directory, and the care that directories themselves survive power loss.

The handle is opened when first needed and kept, so that an open table goes on working when its directory is
renamed (D9). A directory that was *removed* is not looked up again by name: what stands there now is
another one.

Invariants, checked by tests/store/test_local_durability.py:
1. After `settle(d)` every name on the way from the root's parent to `d` is durable: those that we made, and
those
   that another process may have made a moment ago and not yet synced. A process does this once for a root,
   however many stores it opens on it: what was settled is kept together with the handle, which keeps the
   root's identity (device and inode number) from being given to another directory.
2. A failed sync is reported, never repeated: the kernel forgets what it could not write. This object then
   never claims durability again: a later sync that succeeds would say nothing about what was forgotten.
"""

from __future__ import annotations

import errno
import os.path
from collections.abc import Collection
from contextlib import suppress
from functools import partial

from tiltyard import runtime
from tiltyard.errors import StoreError
from tiltyard.runtime.port import Port
from tiltyard.store.failures import translated
from tiltyard.store.paths import parent_of

MAX_SETTLED_ROOTS = 64
"""Roots of which a process remembers that they are settled; each keeps one file handle open."""


class Directory:
    """A root directory, possibly below another one, possibly not there yet. Fails with OSErrors."""

    def __init__(
        self, port: Port, path: str, durable: bool, above: tuple[Directory, str] | None = None
    ) -> None:
        self.port = port
        self.path = path  # absolute; where it was when first named
        self.durable = durable
        self._above = above  # the root that this one was reached from, and the path in it
        self._handle: int | None = None
        self._settled: dict[str, tuple[int, int] | None] = {}
        self._lost_sync = False
        if above is not None:
            # Now, so that a later rename of the roots above does not matter. A failure shows at the first
            # use.
            with suppress(OSError):
                self.handle()

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle is not None:
            self.port.release(handle)

    def handle(self) -> int:
        """The open handle; FileNotFoundError while there is no directory."""
        handle = self._handle
        if handle is None:
            if self._above is None:
                opened = self.port.open_dir(self.path)
            else:
                root, path = self._above
                opened = self.port.open_dir(path, root.handle())
            if self._handle is None:
                self._handle = handle = opened
            else:  # another thread was first
                self.port.close(opened)
                handle = self._handle
        return handle

    def removed(self) -> bool:
        """Whether the directory that the handle is on has no name any more."""
        handle = self._handle
        if handle is None:
            return False
        try:
            return self.port.fstat(handle).st_nlink == 0
        except OSError:
            return False

    def refusal(self, error: OSError, verb: str, path: str) -> StoreError:
        """`translated`, which says so where nothing is found because the root itself was removed."""
        refused = translated(error, verb, self.path, path)
        if isinstance(error, FileNotFoundError) and self.removed():
            refused = type(refused)(
                f"cannot {verb} {self.path}/{path}: the directory was removed, and what stands at its path "
                "now, if anything, is another one; open it again"
            )
            refused.errno = error.errno
        return refused

    # -- making ----------------------------------------------------------------------------------

    def make(self, directory: str = "") -> None:
        """Make a directory below the root ('' the root itself), and those above it; `settle` syncs them."""
        if not directory:
            self._make_root()
        elif self._handle is None:
            self._make_root()
            self._make_below(directory)
        else:
            self._make_below(directory)

    def _make_root(self) -> None:
        if self._handle is not None:
            return
        if self._above is not None:
            root, path = self._above
            root.make(path)
        else:
            self._make_absolute(self.path)
        self.handle()

    def _make_absolute(self, path: str) -> None:
        try:
            self.port.mkdir(path)
        except FileExistsError:
            pass
        except FileNotFoundError:
            above = os.path.dirname(path)
            if above == path:
                raise
            self._make_absolute(above)
            with suppress(FileExistsError):
                self.port.mkdir(path)
        if self.durable and path != self.path:  # the root's own name is synced by `settle`
            self._sync_absolute(os.path.dirname(path))

    def _make_below(self, directory: str) -> None:
        handle = self.handle()
        try:
            self.port.mkdir(directory, handle)
        except FileExistsError:
            return
        except FileNotFoundError:
            above = parent_of(directory)
            if not above:
                raise  # the root itself was removed
            self._make_below(above)
            with suppress(FileExistsError):
                self.port.mkdir(directory, handle)
        self._settled.pop(directory, None)  # it may have been there, synced and removed before

    # -- syncing ---------------------------------------------------------------------------------

    def sync_content(self, fd: int) -> None:
        """Make the content of a new file durable, given by its handle, which the caller keeps."""
        self.port.fdatasync(fd)

    def sync(self, directory: str) -> None:
        """Make the names in a directory durable, whatever `durable` says."""
        self._check()
        if directory:
            self._sync_handle(self.port.open_dir(directory, self.handle()))
        else:
            self._fsync(self.handle())

    def _check(self) -> None:
        if self._lost_sync:
            raise OSError(
                errno.EIO,
                "an earlier sync of this table's directories failed, so that nothing more can be promised to "
                "survive power loss through this handle: open the table again",
            )

    def _sync_handle(self, fd: int) -> None:
        """Sync and close a directory's handle; what is synced stays so if it cannot be closed."""
        try:
            self._fsync(fd)
        finally:
            with suppress(OSError):
                self.port.close(fd)

    def _fsync(self, fd: int) -> None:
        try:
            self.port.fsync_dir(fd)
        except OSError:
            self._lost_sync = True
            if self.port.settled.get(self.path) is self:
                self.port.settled.pop(self.path, None)
            raise

    def settle(self, directory: str) -> None:
        """Make every directory name on the way to `directory` durable; once in the life of this object."""
        if not self.durable:
            return
        self._check()
        if directory in self._settled:
            return
        if not self._settled and self._above is None and self._remembered():
            self.settle(directory)
            return
        if directory:
            above = parent_of(directory)
            self.settle(above)
            self.sync(above)
        elif self._above is not None:
            root, path = self._above
            facts = self.port.fstat(self.handle())
            ours = (facts.st_dev, facts.st_ino)
            if root._settled.get(path) != ours:  # never settled, or moved away since, and made anew by others
                root._settled.pop(path, None)
                root.settle(path)
                root._settled[path] = ours
        else:
            # The root's parent may not be ours to open; then its names are not ours to make either.
            with suppress(PermissionError):
                self._sync_absolute(os.path.dirname(self.path))
            self._remember()
        self._settled[directory] = None

    def sync_all(self, files: Collection[int], directories: Collection[str]) -> None:
        """`sync_content` of files, `settle` and `sync` of directories: all at once, no directory twice."""
        names = set(directories)
        for directory in directories:
            while directory and directory not in self._settled:
                directory = parent_of(directory)
                names.add(directory)
        syncs = [partial(self.port.fdatasync, fd) for fd in files]
        syncs += [partial(self.sync, each) for each in sorted(names)]
        if names:
            syncs.append(partial(self.settle, ""))
        runtime.at_once(syncs)
        self._settled.update(dict.fromkeys(names - self._settled.keys()))

    def _remembered(self) -> bool:
        """Go on with what this process settled before at this path, if the same directory stands there."""
        known: Directory | None = self.port.settled.get(self.path)
        if known is None or known is self or not known._settled:
            return False
        theirs, ours = self.port.fstat(known.handle()), self.port.fstat(self.handle())
        if (theirs.st_dev, theirs.st_ino) != (ours.st_dev, ours.st_ino):
            return False
        self._settled = known._settled
        return True

    def _remember(self) -> None:
        kept = self.port.settled
        kept.pop(self.path, None)
        kept[self.path] = self
        while len(kept) > MAX_SETTLED_ROOTS:
            kept.pop(next(iter(kept)), None)

    def _sync_absolute(self, path: str) -> None:
        self._sync_handle(self.port.open_dir(path))
