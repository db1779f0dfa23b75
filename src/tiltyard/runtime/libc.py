"""Calls of the C library that `os` does not offer: renameat2, fstatfs, sync_file_range, and maps without a
descriptor.

Loaded on first use; imports ctypes. Only `runtime/port.py` uses it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)

_PROT_READ = 1
_MAP_SHARED = 1
_MAP_FAILED = ctypes.c_void_p(-1).value
_RENAME_NOREPLACE = 1

_mmap: Any = _libc.mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_MADV_POPULATE_READ = 22  # Linux 5.14; older ones refuse it
_MADV_DONTNEED = 4
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_madvise: Any = _libc.madvise
_madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_munmap: Any = _libc.munmap
_munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_renameat2: Any = getattr(_libc, "renameat2", None)
if _renameat2 is not None:
    _renameat2.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
_SYNC_FILE_RANGE_WRITE = 2
_sync_file_range: Any = getattr(_libc, "sync_file_range", None)
if _sync_file_range is not None:
    _sync_file_range.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]


_maps: dict[int, int] = {}
"""Address and size (bytes) of every living `Mapping`: what may be given back without losing anything."""


def _failure(*paths: str) -> OSError:
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code), *paths[:1])


class Mapping:
    """A read-only shared map of a file's first `size` bytes at `address`; unmapped when the object dies.

    Unlike `mmap.mmap` it keeps no file descriptor, so that open maps are not bounded by the limit of open
    files.
    """

    __slots__ = ("address", "size")

    def __init__(self, fd: int, size: int) -> None:
        self.size = 0
        address = _mmap(None, size, _PROT_READ, _MAP_SHARED, fd, 0)
        if address is None or address == _MAP_FAILED:
            raise _failure()
        self.address: int = address
        self.size = size
        _maps[address] = size

    # Bound: module names die first at exit.
    def __del__(self, unmap: Any = _munmap, maps: dict[int, int] = _maps) -> None:
        if self.size:
            maps.pop(self.address, None)  # before the address is somebody else's
            unmap(self.address, self.size)


def populate(address: int, size: int) -> bool:
    """Enter the pages of a map into the process's page table; False where that is not offered or fails."""
    start = -(-address // PAGE_BYTES) * PAGE_BYTES
    end = (address + size) // PAGE_BYTES * PAGE_BYTES
    return end <= start or _madvise(start, end - start, _MADV_POPULATE_READ) == 0


def release(address: int) -> None:
    """Take the pages of the map that begins at `address` out of the process's page table: they stay in the
    page cache, and the next look at one enters it again. Nothing happens where no `Mapping` begins there, for
    other memory would lose what is in it.
    """
    size = _maps.get(address)
    if size is not None and sys.platform.startswith("linux"):
        _madvise(address, size, _MADV_DONTNEED)


def rename_noreplace(source: str, target: str, dir_fd: int) -> None:
    """Rename within `dir_fd`; FileExistsError when taken, OSError(ENOSYS, EINVAL) when not offered."""
    if _renameat2 is None:
        raise OSError(errno.ENOSYS, "renameat2 is not offered by this system", source)
    if _renameat2(dir_fd, os.fsencode(source), dir_fd, os.fsencode(target), _RENAME_NOREPLACE) != 0:
        raise _failure(source)


def start_writeback(fd: int, offset: int, size: int) -> None:
    """Have the system begin to write a range of dirty pages. Advice: what comes of it only a sync tells."""
    if _sync_file_range is not None:
        _sync_file_range(fd, offset, size, _SYNC_FILE_RANGE_WRITE)


def file_system_type(fd: int) -> int:
    """The magic number of statfs(2) for the file system of `fd`; 0 where the system has none."""
    if not sys.platform.startswith("linux"):
        return 0
    out = ctypes.create_string_buffer(256)  # struct statfs is smaller everywhere; f_type is its first word
    if _libc.fstatfs(fd, out) != 0:
        raise _failure()
    return int.from_bytes(out.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder) & 0xFFFFFFFF
