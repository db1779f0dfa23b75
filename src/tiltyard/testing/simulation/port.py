"""The file-system port of a simulation: each call is a scheduling point, may meet a fault, and is traced.

`tiltyard.store.local` runs over it unchanged. Faults are those of `tiltyard.testing.faults`, where a system
call can have them: failing syncs, a full disk, death before or after, a stall.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tiltyard.runtime.port import Listing, Port
from tiltyard.testing.faults import Fault
from tiltyard.testing.simulation.files import Files, Handle, Node, as_bytes, failure
from tiltyard.testing.simulation.scheduler import Process, Scheduler
from tiltyard.testing.simulation.storm import Kind, Storm

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class SimulatedPort(Port):
    """`Port` over `Files`. One for all processes of a run; what is settled is known per process.

    `lacking` names the calls that the file system does not offer (`world.FileSystem`); `remote`: a server has
    the files, so that requests for names are late or sent again.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        files: Files,
        storm: Storm,
        lacking: Collection[str] = (),
        remote: bool = False,
    ) -> None:
        super().__init__()
        self.files = files
        self._lacking = lacking
        self._naming = Kind.REMOTE_NAME if remote else Kind.NAME
        self._removal = Kind.REMOTE_REMOVAL if remote else Kind.NAME
        self._scheduler = scheduler
        self._storm = storm
        self._settled: dict[int, dict[str, Any]] = {}
        self._bad: set[int] = set()
        scheduler.on_death.append(self._died)

    def _died(self, process: Process) -> None:
        self.files.close_all(process.number)
        self._settled.pop(process.number, None)

    def restart(self) -> None:
        """After a machine crash: nothing is remembered."""
        self._settled.clear()

    @property
    def settled(self) -> dict[str, Any]:
        return self._settled.setdefault(self._owner(), {})

    @settled.setter
    def settled(self, value: dict[str, Any]) -> None:
        """Set by the base class before there is a run."""

    def _owner(self) -> int:
        running = self._scheduler.running
        return running.process.number if running is not None else 0

    # -- what every call does ----------------------------------------------------------------------

    def _call(self, kind: Kind, what: str, effect: Callable[[], T]) -> T:
        def failed(fault: Fault) -> T:
            raise failure(errno.ENOSPC if kind is Kind.WRITE else errno.EIO, what)

        return self._storm.call(kind, what, effect, failed)

    def _offered(self, call: str) -> None:
        if call in self._lacking:
            raise failure(errno.EOPNOTSUPP, call)

    def _node(self, fd: int | None) -> Node | None:
        return None if fd is None else self.files.handle(fd).node

    def _now(self) -> int:
        return self._scheduler.now_ns

    def _open(self, path: str, dir_fd: int | None, directory: bool) -> int:
        node = self.files.find(path, self._node(dir_fd))
        if directory and not node.is_directory:
            raise failure(errno.ENOTDIR, path)
        return self.files.open(node, self._owner())

    # -- handles ---------------------------------------------------------------------------------

    def open_dir(self, path: str, dir_fd: int | None = None) -> int:
        return self._call(Kind.READ, f"open_dir {path}", lambda: self._open(path, dir_fd, True))

    def open_read(self, path: str, dir_fd: int) -> int:
        return self._call(Kind.READ, f"open_read {path}", lambda: self._open(path, dir_fd, False))

    def open_tmp(self, directory: str, dir_fd: int) -> int:
        def effect() -> int:
            self._offered("open_tmp")
            above = self.files.find(directory, self._node(dir_fd))
            if not above.links and above is not self.files.root:
                raise failure(errno.ENOENT, directory)
            return self.files.open(self.files.new(False, self._now()), self._owner())

        return self._call(Kind.WRITE, f"open_tmp {directory}", effect)

    def open_scratch(self) -> int:
        def effect() -> int:
            return self.files.open(self.files.new(False, self._now()), self._owner())

        return self._call(Kind.WRITE, "open_scratch", effect)

    def open_new(self, path: str, dir_fd: int) -> int:
        def effect() -> int:
            directory, name = self.files.place(path, self._node(dir_fd))
            if name in directory.names:
                raise failure(errno.EEXIST, path)
            node = self.files.new(False, self._now())
            self.files.link(node, directory, name, self._now())
            return self.files.open(node, self._owner())

        return self._call(Kind.WRITE, f"open_new {path}", effect)

    def open_patch(self, path: str, dir_fd: int) -> int:
        def effect() -> int:
            directory, name = self.files.place(path, self._node(dir_fd))
            node = directory.names.get(name)
            if node is None:
                node = self.files.new(False, self._now())
                self.files.link(node, directory, name, self._now())
            return self.files.open(node, self._owner())

        return self._call(Kind.WRITE, f"open_patch {path}", effect)

    def close(self, fd: int) -> None:
        self._call(Kind.QUIET, "", lambda: self.files.close(fd))

    def duplicate(self, fd: int) -> int:
        return self._call(Kind.QUIET, "", lambda: self.files.open(self._handle(fd).node, self._owner()))

    def release(self, fd: int, close: Callable[[int], None] = os.close) -> None:
        if not self.files_closed(fd):
            self.files.close(fd)

    def files_closed(self, fd: int) -> bool:
        """Whether a handle was given back already, as a dead process's were."""
        try:
            self.files.handle(fd)
        except OSError:
            return True
        return False

    # -- content ---------------------------------------------------------------------------------

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        return self._call(
            Kind.READ, "pread", lambda: bytes(self._handle(fd).node.data[offset : offset + length])
        )

    def _handle(self, fd: int) -> Handle:
        return self.files.handle(fd)

    def map(self, fd: int, size: int) -> pa.Buffer:
        import pyarrow as pa

        return self._call(Kind.READ, "map", lambda: pa.py_buffer(bytes(self._handle(fd).node.data[:size])))

    def write(self, fd: int, buffers: Sequence[Any]) -> int:
        data = as_bytes(buffers)

        def effect() -> int:
            handle = self._handle(fd)
            at = handle.position
            handle.node.data[at : at + len(data)] = data
            handle.position += len(data)
            self.files.touch(handle.node, self._now())
            return len(data)

        return self._call(Kind.WRITE, f"write {len(data)}", effect)

    def start_writeback(self, fd: int, offset: int, size: int) -> None:
        """Only a hint to the system."""

    def pwrite(self, fd: int, data: bytes, offset: int) -> None:
        def effect() -> None:
            node = self._handle(fd).node
            if offset > len(node.data):
                node.data.extend(bytes(offset - len(node.data)))
            node.data[offset : offset + len(data)] = data
            self.files.touch(node, self._now())

        self._call(Kind.WRITE, f"pwrite {data[:40]!r}", effect)

    def truncate(self, fd: int, size: int) -> None:
        def effect() -> None:
            node = self._handle(fd).node
            del node.data[size:]
            self.files.touch(node, self._now())

        self._call(Kind.WRITE, f"truncate {size}", effect)

    def fdatasync(self, fd: int) -> None:
        self._call(Kind.SYNC, "fdatasync", lambda: self.files.sync(self._handle(fd).node))

    def fsync_dir(self, fd: int) -> None:
        self._call(Kind.SYNC, "fsync_dir", lambda: self.files.sync(self._handle(fd).node))

    # -- names -----------------------------------------------------------------------------------

    # Places are looked up before the call: a request that is late knows where it goes.

    def _from(self, dir_fd: int | None) -> Node | None:
        if self._scheduler.running is not None:
            self._scheduler.check_alive()
        return self._node(dir_fd)

    def _name(self, node: Node, path: str, start: Node | None) -> None:
        directory, name = self.files.place(path, start)
        if name in directory.names:
            raise failure(errno.EEXIST, path)
        self.files.link(node, directory, name, self._now())

    def link_handle(self, fd: int, path: str, dir_fd: int) -> None:
        start = self._from(dir_fd)

        def effect() -> None:
            self._offered("link_handle")
            self._name(self._handle(fd).node, path, start)

        self._call(self._naming, f"link_handle {path}", effect)

    def link(self, source: str, target: str, dir_fd: int) -> None:
        start = self._from(dir_fd)

        def effect() -> None:
            self._offered("link")
            self._name(self.files.find(source, start), target, start)

        self._call(self._naming, f"link {source} {target}", effect)

    def _rename(self, source: str, target: str, start: Node | None, replace: bool) -> None:
        from_directory, from_name = self.files.place(source, start)
        to_directory, to_name = self.files.place(target, start)
        node = from_directory.names.get(from_name)
        if node is None:
            raise failure(errno.ENOENT, source)
        there = to_directory.names.get(to_name)
        if there is not None and not replace:
            raise failure(errno.EEXIST, target)
        if there is node:
            return
        if there is not None:
            if there.is_directory and there.names:
                raise failure(errno.ENOTEMPTY, target)
            self.files.unlink(to_directory, to_name, self._now())
        node.links += 1  # never without a name
        self.files.unlink(from_directory, from_name, self._now())
        self.files.link(node, to_directory, to_name, self._now())
        node.links -= 1

    def rename(self, source: str, target: str, dir_fd: int) -> None:
        start = self._from(dir_fd)
        self._call(
            self._naming, f"rename {source} {target}", lambda: self._rename(source, target, start, True)
        )

    def rename_noreplace(self, source: str, target: str, dir_fd: int) -> None:
        start = self._from(dir_fd)

        def effect() -> None:
            self._offered("rename_noreplace")
            self._rename(source, target, start, False)

        self._call(self._naming, f"rename_noreplace {source} {target}", effect)

    def unlink(self, path: str, dir_fd: int) -> None:
        start = self._from(dir_fd)

        def effect() -> None:
            directory, name = self.files.place(path, start)
            node = directory.names.get(name)
            if node is None:
                raise failure(errno.ENOENT, path)
            if node.is_directory:
                raise failure(errno.EISDIR, path)
            self.files.unlink(directory, name, self._now())

        self._call(self._removal, f"unlink {path}", effect)

    def mkdir(self, path: str, dir_fd: int | None = None) -> None:
        start = self._from(dir_fd)

        def effect() -> None:
            directory, name = self.files.place(path, start)
            if not name or name in directory.names:
                raise failure(errno.EEXIST, path)
            self.files.link(self.files.new(True, self._now()), directory, name, self._now())

        self._call(self._naming, f"mkdir {path}", effect)

    def rmdir(self, path: str, dir_fd: int) -> None:
        start = self._from(dir_fd)

        def effect() -> None:
            directory, name = self.files.place(path, start)
            node = directory.names.get(name)
            if node is None:
                raise failure(errno.ENOENT, path)
            if not node.is_directory:
                raise failure(errno.ENOTDIR, path)
            if node.names:
                raise failure(errno.ENOTEMPTY, path)
            self.files.unlink(directory, name, self._now())

        self._call(self._removal, f"rmdir {path}", effect)

    # -- facts -----------------------------------------------------------------------------------

    def stat(self, path: str, dir_fd: int | None = None) -> os.stat_result:
        return self._call(
            Kind.READ,
            f"stat {path}",
            lambda: self.files.facts(self.files.find(path, self._node(dir_fd))),
        )

    def fstat(self, fd: int) -> os.stat_result:
        return self._call(Kind.QUIET, "", lambda: self.files.facts(self._handle(fd).node))

    def _directory(self, path: str, dir_fd: int) -> Node:
        node = self.files.find(path, self._node(dir_fd))
        if not node.is_directory:
            raise failure(errno.ENOTDIR, path)
        return node

    def list(self, path: str, dir_fd: int) -> list[str]:
        return self._call(Kind.READ, f"list {path}", lambda: sorted(self._directory(path, dir_fd).names))

    def entries(self, path: str, dir_fd: int) -> Listing:
        def effect() -> Listing:
            found = self._directory(path, dir_fd).names
            return [
                (name, node.is_directory, None if node.is_directory else self.files.facts(node))
                for name, node in sorted(found.items())
            ]

        return self._call(Kind.READ, f"entries {path}", effect)

    def is_remote(self, fd: int) -> bool:
        return self._naming is Kind.REMOTE_NAME

    def user_path(self, path: str) -> str:
        return path if path.startswith("/") else "/" + path

    # -- locks -----------------------------------------------------------------------------------

    def try_flock(self, fd: int) -> bool:
        def effect() -> bool:
            handle = self._handle(fd)
            if handle.node.lock is not None and handle.node.lock is not handle:
                return False
            handle.node.lock = handle
            return True

        return self._call(Kind.READ, "try_flock", effect)

    def unlock(self, fd: int) -> None:
        def effect() -> None:
            handle = self._handle(fd)
            if handle.node.lock is handle:
                handle.node.lock = None

        self._call(Kind.QUIET, "", effect)
