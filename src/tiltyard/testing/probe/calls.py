"""The calls of a file system that ways of creation are built from, each tried by itself (D12)."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from tiltyard.runtime.port import Port
from tiltyard.testing.probe.findings import Call

FILE_SYSTEMS = "/proc/self/mounts"


def file_system(path: str) -> str:
    """The kind of file system that a directory is on, in the system's words; '' where it does not say."""
    best, kind = "", ""
    try:
        with open(FILE_SYSTEMS, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                _, place, name = line.split(" ")[:3]
                place = place.replace("\\040", " ")
                inside = path == place or path.startswith(place.rstrip("/") + "/")
                if inside and len(place) >= len(best):
                    best, kind = place, name
    except OSError:
        return ""
    return kind


def try_calls(port: Port, directory: str) -> tuple[Call, ...]:
    """What the file system offers in a directory, which holds nothing of these names and will be removed."""
    root = port.open_dir(directory)
    try:
        return tuple(_tried(name, port, root, run, instead) for name, run, instead in _CALLS)
    finally:
        port.close(root)


def _tried(name: str, port: Port, root: int, run: Callable[[Port, int], None], instead: str) -> Call:
    try:
        run(port, root)
    except OSError as error:
        code = errno.errorcode.get(error.errno or 0, str(error))
        return Call(name, False, f"{code}: {os.strerror(error.errno or 0)}", instead)
    return Call(name, True)


def _unnamed(port: Port, root: int) -> None:
    port.close(port.open_tmp(".", root))


def _link_handle(port: Port, root: int) -> None:
    fd = port.open_tmp(".", root)
    try:
        port.link_handle(fd, "calls-handle", root)
        try:
            port.link_handle(fd, "calls-handle", root)
        except FileExistsError:
            return
        raise OSError(errno.EEXIST, "a taken name was given twice")
    finally:
        port.close(fd)


def _new(port: Port, root: int, name: str) -> None:
    port.close(port.open_new(name, root))


def _link(port: Port, root: int) -> None:
    _new(port, root, "calls-a")
    port.link("calls-a", "calls-b", root)


def _rename_noreplace(port: Port, root: int) -> None:
    _new(port, root, "calls-c")
    port.rename_noreplace("calls-c", "calls-d", root)


def _fdatasync(port: Port, root: int) -> None:
    fd = port.open_new("calls-e", root)
    try:
        port.write(fd, [b"1"])
        port.fdatasync(fd)
    finally:
        port.close(fd)


def _flock(port: Port, root: int) -> None:
    fd = port.open_dir(".", root)
    try:
        if not port.try_flock(fd):
            raise OSError(errno.EAGAIN, "somebody holds it")
        port.unlock(fd)
    finally:
        port.close(fd)


def _map(port: Port, root: int) -> None:
    fd = port.open_new("calls-f", root)
    try:
        port.write(fd, [b"1" * 4096])
    finally:
        port.close(fd)
    fd = port.open_read("calls-f", root)
    try:
        port.map(fd, 4096)
    finally:
        port.close(fd)


_CALLS: tuple[tuple[str, Callable[[Port, int], None], str], ...] = (
    ("files without a name (O_TMPFILE)", _unnamed, "a `.tmp` file, which a crash can leave behind"),
    ("link of an open file (linkat)", _link_handle, "a `.tmp` file and a link of it"),
    ("link", _link, "an exclusive rename"),
    ("exclusive rename (renameat2)", _rename_noreplace, "for objects, creation under the final name"),
    ("sync of a file (fdatasync)", _fdatasync, "nothing: what is acknowledged may be lost"),
    ("sync of a directory (fsync)", lambda port, root: port.fsync_dir(root), "nothing, likewise"),
    ("advisory lock (flock)", _flock, "writers do not queue up"),
    ("map (mmap)", _map, "large files are read"),
)
