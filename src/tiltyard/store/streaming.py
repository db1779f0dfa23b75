"""A local object that is streamed under its final, unique name (D14 step 0): no temporary file, no link.

Small writes are gathered, large ones go to the system as they are, so that the page cache is filled in
large pieces (D48). Nothing of the caller's buffers is kept after `write` returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from tiltyard import runtime
from tiltyard.errors import ForkedHandle, InvalidInput
from tiltyard.store.content import flat
from tiltyard.store.directory import Directory
from tiltyard.store.paths import parent_of

if TYPE_CHECKING:
    from tiltyard.store.protocol import Bytes

WRITE_BYTES = 1 << 20  # bytes handed to the system in one call, at least, but for the last


class LocalWriter:
    """A new file; see `ObjectWriter`. It belongs to the process that opened it."""

    def __init__(self, directory: Directory, path: str) -> None:
        self.path = path
        self.position = 0
        self._directory = directory
        self._port = directory.port
        self._process = runtime.process_id()
        self._gathered = bytearray()
        self._fd: int | None = self._open()

    def _open(self) -> int:
        try:
            try:
                return self._port.open_new(self.path, self._directory.handle())
            except FileNotFoundError:
                self._directory.make(parent_of(self.path))
                return self._port.open_new(self.path, self._directory.handle())
        except OSError as error:
            raise self._directory.refusal(error, "write", self.path) from error

    def _handle(self) -> int:
        if self._fd is None:
            raise InvalidInput(f"the writer of {self.path} is closed")
        if runtime.process_id() != self._process:
            raise ForkedHandle(
                f"the writer of {self.path} was opened in process {self._process} and used in its forked "
                f"child {runtime.process_id()}: open a new file there"
            )
        return self._fd

    def write(self, buffers: Sequence[Bytes]) -> None:
        """Append the buffers, in order; they may be reused when the call returns."""
        fd = self._handle()
        views = [flat(buffer) for buffer in buffers]
        size = sum(map(len, views))
        gathered = self._gathered
        try:
            if size + len(gathered) >= WRITE_BYTES:
                written = self._port.write(fd, [gathered, *views])
                self._gathered = bytearray()
                if self._directory.durable:  # the disk works while the caller makes the next bytes
                    self._port.start_writeback(fd, self.position + size - written, written)
            else:
                for view in views:
                    gathered += view
        except OSError as error:
            self.abort()
            raise self._directory.refusal(error, "write", self.path) from error
        self.position += size

    def commit(self) -> int:
        """Make the file whole and durable, its name included; its size in bytes. A failure removes it."""
        fd = self._handle()
        try:
            if self._gathered:
                self._port.write(fd, [self._gathered])
            if self._directory.durable:
                self._directory.sync_content(fd)
            self._fd = None
            self._port.close(fd)
            if self._directory.durable:
                parent = parent_of(self.path)
                self._directory.settle(parent)
                self._directory.sync(parent)
        except OSError as error:
            self._remove()
            raise self._directory.refusal(error, "write", self.path) from error
        return self.position

    def abort(self) -> None:
        """Remove what was written; nothing happens after `commit` or a second time, or in a forked child."""
        if self._fd is not None and runtime.process_id() == self._process:
            self._remove()

    def _remove(self) -> None:
        """Unlink, tolerating failure: nothing names the file, so what stays is collected by age."""
        fd, self._fd = self._fd, None
        self._gathered = bytearray()
        try:
            self._port.unlink(self.path, self._directory.handle())
        except OSError:
            pass
        finally:
            if fd is not None:
                self._close_quietly(fd)

    def _close_quietly(self, fd: int) -> None:
        with suppress(OSError):
            self._port.close(fd)

    def __enter__(self) -> LocalWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()
