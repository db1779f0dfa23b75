"""The file-system port: every call to the operating system's files that the library makes is in this class.

Names are relative to a directory handle (`dir_fd`), so that an open table goes on working when its
directory is renamed. Listings are sorted. The methods are thin on purpose: what order of calls is safe, and
what an error means, is decided by `store/local.py`; a simulation or a test replaces this class and keeps
that code (decision D52).

The names of the methods are the kinds of calls that `tiltyard.testing` can refuse or crash at.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

MAX_BUFFERS_PER_WRITE = 1024  # buffers in one writev; IOV_MAX on Linux and macOS
_F_FULLFSYNC = 51  # macOS
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Without waiting for the other end of a pipe that stands where a file belongs.
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_PATCH = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
_FILE_MODE = 0o666  # less the process's umask
_DIRECTORY_MODE = 0o777

# f_type of statfs(2) where other machines change files behind this kernel's caches, or where a user-space
# server may: a map can fault there, and directory times may lag.
_REMOTE_FILE_SYSTEMS = frozenset(
    {
        0x6969,  # NFS
        0x517B,  # SMB
        0xFF534D42,  # CIFS
        0xFE534D42,  # SMB2
        0x65735546,  # FUSE, virtiofs
        0x01021997,  # 9P
        0x00C36400,  # Ceph
        0x0BD00BD0,  # Lustre
        0x47504653,  # GPFS
        0x5346414F,  # AFS
        0x7461636F,  # OCFS2
        0x01161970,  # GFS2
        0x19830326,  # BeeGFS
        0x786F4256,  # VirtualBox shared folders
    }
)


# (name, is a directory, facts of a file)
Listing: TypeAlias = list[tuple[str, bool, os.stat_result | None]]


class Port:
    """Real files. Stateless but for what kind of file system each device is.

    `settled` belongs to the store: what it made durable through this port, by path (`store.directory`). It
    ends with the port, so that a simulated crash, which starts a new one, forgets it as well.
    """

    def __init__(self) -> None:
        self._remote: dict[int, bool] = {}
        self.settled: dict[str, Any] = {}

    # -- handles ---------------------------------------------------------------------------------

    def open_dir(self, path: str, dir_fd: int | None = None) -> int:
        """A handle on a directory; FileNotFoundError, NotADirectoryError."""
        return os.open(path, _DIRECTORY, dir_fd=dir_fd)

    def open_read(self, path: str, dir_fd: int) -> int:
        """A handle for `pread`, `map` and `fstat`."""
        return os.open(path, _READ, dir_fd=dir_fd)

    def open_tmp(self, directory: str, dir_fd: int) -> int:
        """A file without a name in `directory`; `link_handle` gives it one, else it vanishes."""
        flag = getattr(os, "O_TMPFILE", 0)
        if not flag:
            raise OSError(errno.EOPNOTSUPP, "files without a name are not offered by this system", directory)
        return os.open(directory, flag | os.O_WRONLY | os.O_CLOEXEC, _FILE_MODE, dir_fd=dir_fd)

    def open_scratch(self) -> int:
        """A file without a name in the system's place for temporary files, for writing and `map`."""
        import tempfile

        directory = tempfile.gettempdir()
        flag = getattr(os, "O_TMPFILE", 0)
        if flag:
            try:
                return os.open(directory, flag | os.O_RDWR | os.O_CLOEXEC, 0o600)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
                    raise
        fd, path = tempfile.mkstemp(prefix="tiltyard-", dir=directory)
        os.unlink(path)
        return fd

    def open_new(self, path: str, dir_fd: int) -> int:
        """A new file for writing; FileExistsError when the name is taken."""
        return os.open(path, _NEW, _FILE_MODE, dir_fd=dir_fd)

    def open_patch(self, path: str, dir_fd: int) -> int:
        """A file to be changed in place; made if absent."""
        return os.open(path, _PATCH, _FILE_MODE, dir_fd=dir_fd)

    def close(self, fd: int) -> None:
        """Give a handle back."""
        os.close(fd)

    def duplicate(self, fd: int) -> int:
        """Another handle on the same open file."""
        return os.dup(fd)  # not inherited by programs that are started

    def release(self, fd: int, close: Callable[[int], None] = os.close) -> None:
        """Give a handle back when its owner is garbage: no scheduling point, no fault, no trace."""
        close(fd)

    # -- content ---------------------------------------------------------------------------------

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        """Up to `length` bytes at `offset`; fewer only at the end of the file."""
        data = os.pread(fd, length, offset)
        if len(data) == length or not data:
            return data
        parts = [data]  # the kernel caps one call near 2 GiB
        got = len(data)
        while got < length:
            data = os.pread(fd, length - got, offset + got)
            if not data:
                break
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def map(self, fd: int, size: int) -> pa.Buffer:
        """The first `size` bytes of the file, not copied; unmapped when the last slice dies."""
        import pyarrow as pa

        from tiltyard.runtime.libc import Mapping

        mapping = Mapping(fd, size)
        return pa.foreign_buffer(mapping.address, size, mapping)

    def write(self, fd: int, buffers: Sequence[Any]) -> int:
        """Write all of the buffers, in order, at the handle's position; the number of bytes."""
        views = [memoryview(buffer).cast("B") for buffer in buffers if memoryview(buffer).nbytes]
        total = 0
        while views:
            count = os.writev(fd, views[:MAX_BUFFERS_PER_WRITE])
            total += count
            whole = 0
            while whole < len(views) and count >= len(views[whole]):
                count -= len(views[whole])
                whole += 1
            del views[:whole]
            if count:
                views[0] = views[0][count:]
        return total

    def start_writeback(self, fd: int, offset: int, size: int) -> None:
        """Have the system begin to write out this range (of 0 bytes: to the file's end); a later `fdatasync`
        waits less.
        """
        from tiltyard.runtime.libc import start_writeback

        start_writeback(fd, offset, size)

    def pwrite(self, fd: int, data: bytes, offset: int) -> None:
        """Write `data` at `offset` in one call."""
        if os.pwrite(fd, data, offset) != len(data):
            raise OSError(errno.EIO, "the system wrote only a part")

    def truncate(self, fd: int, size: int) -> None:
        """Cut the file to `size` bytes."""
        os.ftruncate(fd, size)

    def fdatasync(self, fd: int) -> None:
        """Make the file's content and size survive power loss. After a failure the content is undefined."""
        if hasattr(os, "fdatasync"):
            os.fdatasync(fd)
        else:
            fcntl.fcntl(fd, _F_FULLFSYNC)  # macOS: fsync leaves data in the drive's cache

    def fsync_dir(self, fd: int) -> None:
        """Make the names in a directory (its handle) survive power loss: those made and those removed."""
        os.fsync(fd)

    # -- names -----------------------------------------------------------------------------------

    def link_handle(self, fd: int, path: str, dir_fd: int) -> None:
        """Give the file of `open_tmp` its name; FileExistsError when taken. Needs /proc."""
        # dst_dir_fd makes Python use linkat with AT_SYMLINK_FOLLOW; without it the link would be to the
        # symlink.
        os.link(f"/proc/self/fd/{fd}", path, dst_dir_fd=dir_fd, follow_symlinks=True)

    def link(self, source: str, target: str, dir_fd: int) -> None:
        """A second name for a file; FileExistsError when taken."""
        os.link(source, target, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)

    def rename(self, source: str, target: str, dir_fd: int) -> None:
        """Rename, replacing a file at the target."""
        os.rename(source, target, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)

    def rename_noreplace(self, source: str, target: str, dir_fd: int) -> None:
        """Rename; FileExistsError when the target exists. OSError(ENOSYS, EINVAL) when not offered."""
        from tiltyard.runtime.libc import rename_noreplace

        rename_noreplace(source, target, dir_fd)

    def unlink(self, path: str, dir_fd: int) -> None:
        """Remove a file's name."""
        os.unlink(path, dir_fd=dir_fd)

    def mkdir(self, path: str, dir_fd: int | None = None) -> None:
        """Make one directory; FileExistsError when it is there."""
        os.mkdir(path, _DIRECTORY_MODE, dir_fd=dir_fd)

    def rmdir(self, path: str, dir_fd: int) -> None:
        """Remove an empty directory."""
        os.rmdir(path, dir_fd=dir_fd)

    # -- facts -----------------------------------------------------------------------------------

    def stat(self, path: str, dir_fd: int | None = None) -> os.stat_result:
        """Facts of a name; symbolic links are followed."""
        return os.stat(path, dir_fd=dir_fd)

    def fstat(self, fd: int) -> os.stat_result:
        """Facts of a handle."""
        return os.fstat(fd)

    def list(self, path: str, dir_fd: int) -> list[str]:
        """Names in a directory, sorted."""
        if path == ".":
            return sorted(os.listdir(dir_fd))
        fd = os.open(path, _DIRECTORY, dir_fd=dir_fd)
        try:
            return sorted(os.listdir(fd))
        finally:
            os.close(fd)

    def entries(self, path: str, dir_fd: int) -> Listing:
        """(name, is a directory, facts of a file) for each name in a directory, sorted by name.

        Links are followed. Names that vanish meanwhile are left out; facts of directories are None.
        """
        fd = os.open(path, _DIRECTORY, dir_fd=dir_fd)
        try:
            return sorted(self._entries(fd), key=lambda entry: entry[0])
        finally:
            os.close(fd)

    def _entries(self, fd: int) -> Iterator[tuple[str, bool, os.stat_result | None]]:
        with os.scandir(fd) as found:
            for entry in found:
                try:
                    if entry.is_dir():
                        yield entry.name, True, None
                    else:
                        yield entry.name, False, entry.stat()
                except FileNotFoundError:
                    continue

    def is_remote(self, fd: int) -> bool:
        """Whether the file system is a network or user-space one; unknown kinds count as local."""
        device = os.fstat(fd).st_dev
        known = self._remote.get(device)
        if known is None:
            from tiltyard.runtime.libc import file_system_type

            known = self._remote[device] = file_system_type(fd) in _REMOTE_FILE_SYSTEMS
        return known

    def user_path(self, path: str) -> str:
        """The absolute path of what a user typed: `~` expanded, relative to the working directory."""
        return os.path.abspath(os.path.expanduser(path))

    # -- locks -----------------------------------------------------------------------------------

    def try_flock(self, fd: int) -> bool:
        """Take the advisory lock of a handle's file if it is free; closing the handle gives it back."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self, fd: int) -> None:
        """Give the advisory lock back, also for copies of the handle in forked children."""
        fcntl.flock(fd, fcntl.LOCK_UN)
