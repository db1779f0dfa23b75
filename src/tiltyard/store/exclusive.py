"""Exclusive creation on a file system (D10, D12): a whole, durable object under a free name, or nothing.

Four ways, the best that the file system offers; which one it is turns out at the first creation:

    LINK_HANDLE  unnamed file (O_TMPFILE) -> write -> fdatasync -> link -> fsync(directory)
    LINK         the same with a `.tmp` name, which is removed afterwards
    RENAME       `.tmp` file -> write -> fdatasync -> renameat2(RENAME_NOREPLACE) -> fsync(directory)
    DIRECT       O_EXCL under the final name -> write -> fdatasync -> fsync(directory): the object can be
    seen cut
                 short; readers of manifests allow for that

A way is given up only on a refusal that leaves nothing visible, so exclusion holds also among processes
that use different ways. Invariants, checked by tests/store/test_local_create.py:
1. NOT_DONE only if the name was never given. In particular DIRECT never takes a visible name away again:
   somebody may have built on what stood there, or have repaired it and hold the name by now.
2. After a failed fsync of a directory the answer is UNKNOWN, nothing is tried again, and what the same root
   is asked to create later is NOT_DONE (`Directory.settle`).
3. A handle that cannot be closed does not change an answer that is durable already.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING

from tiltyard.runtime import Runtime
from tiltyard.runtime.port import Port
from tiltyard.store.content import flat
from tiltyard.store.directory import Directory
from tiltyard.store.paths import joined, parent_of
from tiltyard.store.protocol import Created

if TYPE_CHECKING:
    from tiltyard.store.protocol import Bytes

TEMPORARY_PREFIX = ".tmp"  # the official implementation ignores and, after 7 days, collects such names (D3)


class Way(Enum):
    """How an object gets its name."""

    LINK_HANDLE = "link of an unnamed file"
    LINK = "link of a temporary file"
    RENAME = "exclusive rename of a temporary file"
    DIRECT = "exclusive creation under the final name"


_NEXT = {Way.LINK_HANDLE: Way.LINK, Way.LINK: Way.RENAME, Way.RENAME: Way.DIRECT}

# What file systems answer when they do not have an operation. EACCES and EPERM count because the temporary
# file could be made in the same directory; ENOENT because /proc may be missing.
_REFUSALS = frozenset(
    (
        errno.EPERM,
        errno.EACCES,
        errno.EOPNOTSUPP,
        errno.ENOTSUP,
        errno.ENOSYS,
        errno.EINVAL,
        errno.EMLINK,
        errno.EXDEV,
        errno.ENOTTY,
    )
)
_NO_UNNAMED_FILES = frozenset((errno.EOPNOTSUPP, errno.ENOTSUP, errno.EISDIR, errno.EINVAL, errno.ENOSYS))

Answer = tuple[Created, BaseException | None]


class _Refused(Exception):
    """The file system does not offer the way that was tried; nothing is visible."""


class ExclusiveCreator:
    """Creates objects below one root. Remembers which way works there."""

    def __init__(self, directory: Directory, runtime: Runtime) -> None:
        self._directory = directory
        self._port: Port = directory.port
        self._runtime = runtime
        self.way = Way.LINK_HANDLE

    def create(self, path: str, buffers: Sequence[Bytes]) -> Answer:
        """The answer, and the failure behind NOT_DONE and UNKNOWN."""
        made_parent = False
        while True:
            way = self.way
            try:
                if way is Way.DIRECT:
                    return self._direct(path, buffers)
                return self._prepared(path, buffers, way)
            except _Refused:
                self.way = _NEXT[way]
            except FileNotFoundError as error:  # no such directory yet
                if made_parent:
                    return Created.NOT_DONE, error
                made_parent = True
                try:
                    self._directory.make(parent_of(path))
                except OSError as failure:
                    return Created.NOT_DONE, failure
            except OSError as error:
                return Created.NOT_DONE, error

    # -- a finished file that gets its name ------------------------------------------------------

    def _prepared(self, path: str, buffers: Sequence[Bytes], way: Way) -> Answer:
        port, root, parent = self._port, self._directory.handle(), parent_of(path)
        temporary: str | None = None
        if way is Way.LINK_HANDLE:
            try:
                fd = port.open_tmp(parent or ".", root)
            except OSError as error:
                if error.errno in _NO_UNNAMED_FILES:
                    raise _Refused from error
                raise
        else:
            temporary = self.temporary_name(parent)
            fd = port.open_new(temporary, root)
        failed: OSError | None = None
        try:
            try:
                port.write(fd, buffers)
                if self._directory.durable:
                    self._directory.sync_content(fd)
                    self._directory.settle(parent)
            except OSError as error:
                return Created.NOT_DONE, error
            answer = self._give_name(fd, temporary, path, way)
        finally:
            failed = self._close(fd)
            if temporary is not None:
                self.remove_quietly(temporary)
        return self._finished(parent, failed) if answer[0] is Created.WON else answer

    def _give_name(self, fd: int, temporary: str | None, path: str, way: Way) -> Answer:
        port, root = self._port, self._directory.handle()
        try:
            if temporary is None:
                port.link_handle(fd, path, root)
            elif way is Way.LINK:
                port.link(temporary, path, root)
            else:
                port.rename_noreplace(temporary, path, root)
        except FileExistsError as error:
            # A network server may have done it, lost its answer, and refused the repetition.
            ours = self._is_ours(fd, path)
            if ours is None:
                return Created.UNKNOWN, error
            return (Created.WON, None) if ours else (Created.EXISTS, error)
        except OSError as error:
            if error.errno in _REFUSALS or (temporary is None and error.errno == errno.ENOENT):
                raise _Refused from error
            return self._after_lost_answer(fd, path, error)
        return Created.WON, None

    def _is_ours(self, fd: int, path: str) -> bool | None:
        """Whether the name leads to the file of the handle: decides as a nonce would. None: unknown."""
        try:
            found, ours = self._port.stat(path, self._directory.handle()), self._port.fstat(fd)
        except FileNotFoundError:
            return False
        except OSError:
            return None
        return (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)

    def _after_lost_answer(self, fd: int, path: str, error: OSError) -> Answer:
        ours = self._is_ours(fd, path)
        if ours is not False:
            return (Created.WON, None) if ours else (Created.UNKNOWN, error)
        try:
            if self._port.is_remote(self._directory.handle()):
                return Created.UNKNOWN, error  # the server may still do it
        except OSError:
            return Created.UNKNOWN, error
        return Created.NOT_DONE, error

    def _close(self, fd: int) -> OSError | None:
        """Give the handle back; the failure to."""
        try:
            self._port.close(fd)
        except OSError as error:
            return error
        return None

    def _finished(self, parent: str, close_failure: OSError | None) -> Answer:
        """The answer for content that has its name: WON when both are as durable as was asked for."""
        if not self._directory.durable:
            # Nothing was synced: a network file system may report a lost write here for the first time.
            return (Created.WON, None) if close_failure is None else (Created.UNKNOWN, close_failure)
        try:
            self._directory.sync(parent)
        except OSError as error:
            return Created.UNKNOWN, error
        return Created.WON, None

    # -- under the final name --------------------------------------------------------------------

    def _direct(self, path: str, buffers: Sequence[Bytes]) -> Answer:
        port, root, parent = self._port, self._directory.handle(), parent_of(path)
        if self._directory.durable:
            try:
                self._directory.settle(parent)
            except FileNotFoundError:
                raise  # made by the caller, which tries again
            except OSError as error:
                return Created.NOT_DONE, error
        try:
            fd = port.open_new(path, root)
        except FileExistsError as error:
            return Created.EXISTS, error
        failed: OSError | None = None
        try:
            port.write(fd, buffers)
            if self._directory.durable:
                self._directory.sync_content(fd)
        except OSError as error:
            return Created.UNKNOWN, error
        except BaseException:  # interrupted: the name is visible, so its content is finished first
            with suppress(OSError):
                port.pwrite(fd, b"".join(map(flat, buffers)), 0)
            raise
        finally:
            failed = self._close(fd)
        return self._finished(parent, failed)

    # -- temporary files -------------------------------------------------------------------------

    def temporary_name(self, parent: str) -> str:
        """A name in `parent` that no reader takes for an object."""
        return joined(parent, TEMPORARY_PREFIX + self._runtime.uuid4().hex)

    def remove_quietly(self, temporary: str) -> None:
        """Remove a temporary name if it is still there; its staying does no harm."""
        with suppress(OSError):
            self._port.unlink(temporary, self._directory.handle())
