"""Objects in a local directory, over the file-system port. See `protocol.py` for what is promised.

Reads open, read and close: a handle per object would cost more to keep than it saves (D40). Objects of 1
MiB and more are mapped when they are asked for whole.
"""

from __future__ import annotations

import errno
import stat as modes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from os import stat_result
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from tiltyard import runtime
from tiltyard.errors import CorruptFile, InvalidInput, ObjectNotFound, StoreError, UnsupportedFeature
from tiltyard.store.account import READS
from tiltyard.store.content import buffers_of
from tiltyard.store.directory import Directory
from tiltyard.store.exclusive import ExclusiveCreator
from tiltyard.store.failures import Failures, no_file
from tiltyard.store.paths import checked, checked_dir, joined, parent_of
from tiltyard.store.protocol import MIN_MAP_BYTES, Created, Listing, Names, ObjectStat
from tiltyard.store.removing import OneByOne
from tiltyard.store.streaming import LocalWriter
from tiltyard.store.together import Gathered

if TYPE_CHECKING:
    from tiltyard.runtime.port import Port
    from tiltyard.store.protocol import Bytes

MAX_DEPTH = 64  # directories below each other in a listing; more is a loop of links
MAX_DELETIONS = 16  # of one tree that others still write into
NO_SUCH_RENAME = (errno.ENOSYS, errno.EINVAL)
"""How a system says that it has no exclusive rename; after other failures a rename may have been done."""

# Seconds between two looks at a held turnstile. Shorter pauses hand it around after every commit, which costs
# each process a look at what the others did; these let whoever is awake do a few in a row.
_FIRST_PAUSE = 0.0005
_LONGEST_PAUSE = 0.004


class LocalStore(OneByOne):
    """A directory on this machine's file systems; it need not exist before the first write."""

    def __init__(
        self, path: str, *, durable: bool = True, mapped: bool = True, _directory: Directory | None = None
    ) -> None:
        self._runtime = runtime.current()
        self._port: Port = self._runtime.port
        self._directory = _directory or Directory(self._port, path, durable)
        self._creator = ExclusiveCreator(self._directory, self._runtime)
        self._failures = Failures()
        self._is_remote: bool | None = None
        self.uri = path
        # What is cached of mapped files must not serve who wants none.
        self.identity = "file://" + path if mapped else f"file://{path}?map=false"
        self.durable = durable
        self.mapped = mapped

    def __repr__(self) -> str:
        return f"LocalStore({self.uri!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return _reopen, (type(self), self.uri, self.durable, self.mapped)

    @property
    def storage_options(self) -> dict[str, bool]:
        """What opens another directory alike."""
        return {"durable": self.durable, "map": self.mapped}

    # -- reading ---------------------------------------------------------------------------------

    def read(self, path: str, start: int = 0, length: int | None = None) -> pa.Buffer:
        port = self._port
        fd = self._open(path)
        try:
            if start < 0 or length is None:
                size = self._size(fd, path)
                if start < 0:
                    start = max(0, size + start)
                if length is None:
                    length = size - start
            if length < 0:
                raise _outside(self.uri, path, start, max(length, 0), port.fstat(fd).st_size)
            data = port.pread(fd, length, start)
            if len(data) != length:
                raise _outside(self.uri, path, start, length, port.fstat(fd).st_size)
        except (CorruptFile, StoreError):
            raise
        except OSError as error:
            raise self._directory.refusal(error, "read", path) from error
        finally:
            self._close(fd)
        READS.add(length)
        return pa.py_buffer(data)

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        port = self._port
        out = []
        fd = self._open(path)
        try:
            for start, length in ranges:
                data = port.pread(fd, length, start) if start >= 0 and length >= 0 else b""
                if len(data) != length or start < 0:
                    raise _outside(self.uri, path, start, length, port.fstat(fd).st_size)
                READS.add(length)
                out.append(pa.py_buffer(data))
        except (CorruptFile, StoreError):
            raise
        except OSError as error:
            raise self._directory.refusal(error, "read", path) from error
        finally:
            self._close(fd)
        return out

    def map(self, path: str, size: int | None = None) -> pa.Buffer:
        port = self._port
        fd = self._open(path)
        try:
            if size is not None and size < MIN_MAP_BYTES:
                data = port.pread(fd, size + 1, 0)  # one byte more shows a longer object without a stat
                if len(data) != size:
                    raise _wrong_size(self.uri, path, size, port.fstat(fd).st_size)
                READS.add(size)
                return pa.py_buffer(data)
            found = self._size(fd, path)
            READS.add(found)
            if size is not None and found != size:
                raise _wrong_size(self.uri, path, size, found)
            if found >= MIN_MAP_BYTES and self.mapped and not self._remote():
                with suppress(OSError):  # the number of maps is limited: then read
                    return port.map(fd, found)
            data = port.pread(fd, found, 0)
            if len(data) != found:
                raise _wrong_size(self.uri, path, found, len(data))
            return pa.py_buffer(data)
        except (CorruptFile, StoreError):
            raise
        except OSError as error:
            raise self._directory.refusal(error, "read", path) from error
        finally:
            self._close(fd)

    def stat(self, path: str) -> ObjectStat:
        try:
            facts = self._port.stat(checked(path), self._directory.handle())
        except OSError as error:
            raise self._directory.refusal(error, "find", path) from error
        if modes.S_ISDIR(facts.st_mode):
            raise ObjectNotFound(f"cannot find {self.uri}/{path}: it is a directory, not an object")
        return _described(path, facts)

    def exists(self, path: str) -> bool:
        try:
            facts = self._port.stat(checked(path), self._directory.handle())
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise self._directory.refusal(error, "find", path) from error
        return not modes.S_ISDIR(facts.st_mode)

    def list(self, prefix: str = "", start_after: str = "") -> Listing:
        found: Listing = []
        try:
            self._walk(checked_dir(prefix), self._directory.handle(), found, 0)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise self._directory.refusal(error, "list", prefix) from error
        if start_after:
            found = [one for one in found if one.path > start_after]
        found.sort(key=lambda one: one.path)
        return found

    def _walk(self, directory: str, root: int, found: Listing, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise InvalidInput(
                f"{self.uri}/{directory} lies more than {MAX_DEPTH} directories deep: a loop of links?"
            )
        for name, is_directory, facts in self._port.entries(directory or ".", root):
            path = joined(directory, name)
            if is_directory:
                try:
                    self._walk(path, root, found, depth + 1)
                except FileNotFoundError:
                    continue  # removed meanwhile
            elif facts is not None:
                found.append(_described(path, facts))

    def list_names(self, directory: str = "") -> Names:
        try:
            return self._port.list(checked_dir(directory) or ".", self._directory.handle())
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise self._directory.refusal(error, "list", directory) from error

    def dir_stat(self, directory: str) -> int | None:
        try:
            facts = self._port.stat(checked_dir(directory) or ".", self._directory.handle())
            remote = self._remote()
        except OSError as error:
            raise self._directory.refusal(error, "find", directory) from error
        if not modes.S_ISDIR(facts.st_mode):
            raise ObjectNotFound(f"cannot find {self.uri}/{directory}: it is not a directory")
        return None if remote else facts.st_mtime_ns

    def now_ns(self) -> int:
        # Nothing there yet, or not ours to write: this machine's clock is the best guess.
        with suppress(OSError):
            if self._remote():
                return self._servers_clock()
        return self._runtime.now_ns()

    def _servers_clock(self) -> int:
        """The time a network file system's server gives to a file made now."""
        temporary = self._creator.temporary_name("")
        fd = self._port.open_new(temporary, self._directory.handle())
        try:
            return self._port.fstat(fd).st_mtime_ns
        finally:
            self._close(fd)
            self._creator.remove_quietly(temporary)

    # -- writing ---------------------------------------------------------------------------------

    def create(self, path: str, data: Bytes | Sequence[Bytes]) -> Created:
        checked(path)
        answer, cause = self._creator.create(path, buffers_of(data))
        return self._remember(path, answer, cause)

    def _remember(self, path: str, answer: Created, cause: BaseException | None) -> Created:
        failed = answer is Created.NOT_DONE or answer is Created.UNKNOWN
        if failed and isinstance(cause, OSError):
            cause = self._directory.refusal(cause, "create", path).with_traceback(cause.__traceback__)
        self._failures.note(path, cause if failed else None)
        return answer

    def failure(self, path: str) -> BaseException | None:
        return self._failures.get(path)

    @property
    def create_mode(self) -> str:
        return self._creator.way.value

    def put(self, path: str, data: Bytes | Sequence[Bytes]) -> None:
        parent = parent_of(checked(path))
        temporary = self._creator.temporary_name(parent)
        port, directory = self._port, self._directory
        try:
            try:
                fd = port.open_new(temporary, directory.handle())
            except FileNotFoundError:
                directory.make(parent)
                fd = port.open_new(temporary, directory.handle())
            try:
                try:
                    port.write(fd, buffers_of(data))
                    if self.durable:
                        directory.sync_content(fd)
                        directory.settle(parent)
                except OSError:
                    self._close(fd)
                    raise
                port.close(fd)  # before the name is given: unsynced, its failure says that content was lost
                port.rename(temporary, path, directory.handle())
            except OSError:
                self._creator.remove_quietly(temporary)
                raise
            if self.durable:
                directory.sync(parent)
        except OSError as error:
            raise self._directory.refusal(error, "write", path) from error

    def writer(self, path: str) -> LocalWriter:
        return LocalWriter(self._directory, checked(path))

    def write_hint(self, path: str, data: bytes, *, sync: bool = False) -> None:
        port = self._port
        checked(path)
        try:
            try:
                fd = port.open_patch(path, self._directory.handle())
            except FileNotFoundError:
                self._directory.make(parent_of(path))
                fd = port.open_patch(path, self._directory.handle())
            try:
                port.pwrite(fd, data, 0)
                if port.fstat(fd).st_size > len(data):
                    port.truncate(fd, len(data))
                if sync and self.durable:
                    port.fdatasync(fd)
            finally:
                self._close(fd)  # a hint is advice
        except OSError as error:
            raise self._directory.refusal(error, "write", path) from error

    @contextmanager
    def together(self) -> Iterator[Self]:
        if not self.durable:
            yield self
            return
        gathered = Gathered(self._directory)
        try:
            yield self._over(gathered)
            try:
                gathered.finish()
            except OSError as error:
                raise self._directory.refusal(error, "write", "") from error
        finally:
            gathered.end()

    def copy_create(self, source: str, target: str) -> Created:
        return self.create(target, [self.map(source)])

    def move_dir(self, source: str, target: str) -> Created:
        port, directory = self._port, self._directory
        checked(source)
        above = parent_of(checked(target))
        try:
            if above and not source.startswith(f"{above}/"):
                port.stat(source, directory.handle())  # where nothing is moved, nothing is made
                directory.make(above)
            directory.settle(above)
            try:
                port.rename_noreplace(source, target, directory.handle())
            except FileExistsError:
                return Created.EXISTS
            except FileNotFoundError:
                raise
            except OSError as error:
                try:
                    moved = self._move_over_own(source, target, error)
                except FileNotFoundError:
                    if error.errno in NO_SUCH_RENAME:
                        raise
                    return self._remember(target, Created.UNKNOWN, error)  # what failed may have been done
                if not moved:
                    return Created.EXISTS
        except OSError as error:
            raise self._directory.refusal(error, "move", source) from error
        if self.durable:
            try:
                directory.sync(parent_of(target))
                if parent_of(source) != parent_of(target):
                    directory.sync(parent_of(source))
            except OSError as error:
                return self._remember(target, Created.UNKNOWN, error)
        return Created.WON

    def _move_over_own(self, source: str, target: str, refusal: OSError) -> bool:
        """Where there is no exclusive rename: take the name with an empty directory and rename over that.

        A rename replaces a directory only while it is empty, so what another puts there meanwhile is kept.
        """
        port, root = self._port, self._directory.handle()
        if not modes.S_ISDIR(port.stat(source, root).st_mode):
            return self._move_by_link(source, target, refusal)
        try:
            port.mkdir(target, root)
        except FileExistsError:
            return False
        try:
            port.rename(source, target, root)
        except OSError:
            try:
                port.rmdir(target, root)
            except OSError:
                return False  # no longer empty: somebody else's now
            raise
        return True

    def _move_by_link(self, source: str, target: str, refusal: OSError) -> bool:
        """The same of an object, which gets a second name before it loses the first."""
        if refusal.errno not in NO_SUCH_RENAME:
            raise refusal
        port, root = self._port, self._directory.handle()
        try:
            port.link(source, target, root)
        except FileExistsError:
            return False
        except FileNotFoundError:
            raise
        except OSError as error:
            raise UnsupportedFeature(
                f"{self.uri}/{source} cannot be renamed without replacing what has the new name: the file "
                "system offers neither such a rename nor links"
            ) from error
        with suppress(OSError):  # it decides nothing any more
            port.unlink(source, root)
        return True

    def delete(self, path: str) -> bool:
        try:
            self._port.unlink(checked(path), self._directory.handle())
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise self._directory.refusal(error, "delete", path) from error
        return True

    def delete_tree(self, directory: str) -> None:
        path = checked_dir(directory)
        for left in reversed(range(MAX_DELETIONS)):
            try:
                root = self._directory.handle()
                self._remove_below(path, root)
                if path:
                    self._port.rmdir(path, root)
                elif self._still_named(root):
                    self._port.rmdir(self.uri, root)
            except FileNotFoundError:
                return
            except OSError as error:
                if left and error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    continue  # somebody wrote there meanwhile
                raise self._directory.refusal(error, "delete", directory) from error
            return

    def _remove_below(self, directory: str, root: int) -> None:
        for name in self._port.list(directory or ".", root):
            path = joined(directory, name)
            try:
                self._port.unlink(path, root)  # links to directories are removed, not followed
            except FileNotFoundError:
                continue
            except (IsADirectoryError, PermissionError):  # Linux and macOS say it differently
                with suppress(FileNotFoundError):  # another one deletes it, too
                    self._remove_below(path, root)
                    self._port.rmdir(path, root)

    def _still_named(self, root: int) -> bool:
        found, ours = self._port.stat(self.uri), self._port.fstat(root)
        return (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)

    def sync_dir(self, directory: str) -> None:
        if not self.durable:
            return
        try:
            self._directory.sync(checked_dir(directory))
        except OSError as error:
            raise self._directory.refusal(error, "sync", directory) from error

    @contextmanager
    def turnstile(self, directory: str, seconds: float) -> Iterator[bool]:
        try:  # a handle of its own: a lock belongs to the open handle, and forked children share those
            fd = self._port.open_dir(checked_dir(directory) or ".", self._directory.handle())
        except OSError:
            yield False
            return
        try:
            yield self._take_turn(fd, seconds)
        finally:
            with suppress(OSError):
                self._port.unlock(fd)  # closing leaves it to a child that was forked meanwhile
            self._close(fd)

    def _take_turn(self, fd: int, seconds: float) -> bool:
        deadline = self._runtime.monotonic() + seconds
        pause = _FIRST_PAUSE
        while True:
            try:
                if self._port.try_flock(fd):
                    return True
            except OSError:
                return False  # no such locks on this file system
            left = deadline - self._runtime.monotonic()
            if left <= 0:
                return False
            self._runtime.sleep(min(left, pause * (0.5 + self._runtime.random().random())))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def at(self, prefix: str) -> Self:
        path = checked_dir(prefix)
        if not path:
            return self
        place = f"{self.uri.rstrip('/')}/{path}"
        return self._over(Directory(self._port, place, self.durable, (self._directory, path)))

    def _over(self, directory: Directory) -> Self:
        """A store over another root; one derived from this store where this one is."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        LocalStore.__init__(
            other, directory.path, durable=self.durable, mapped=self.mapped, _directory=directory
        )
        return other

    def successor(self) -> Self | None:
        if not self._directory.removed():
            return None
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        LocalStore.__init__(other, self.uri, durable=self.durable, mapped=self.mapped)
        return other

    # -- inside ----------------------------------------------------------------------------------

    def _open(self, path: str) -> int:
        try:
            return self._port.open_read(checked(path), self._directory.handle())
        except OSError as error:
            raise self._directory.refusal(error, "read", path) from error

    def _size(self, fd: int, path: str) -> int:
        """Bytes of an open file; StoreError for what is none."""
        facts = self._port.fstat(fd)
        if not modes.S_ISREG(facts.st_mode):
            raise no_file(facts.st_mode, self.uri, path)
        return facts.st_size

    def _close(self, fd: int) -> None:
        """Give back a handle that was read from, locked, or whose content is safe: failing loses nothing."""
        with suppress(OSError):
            self._port.close(fd)

    def _remote(self) -> bool:
        remote = self._is_remote
        if remote is None:
            remote = self._is_remote = self._port.is_remote(self._directory.handle())
        return remote


def _described(path: str, facts: stat_result) -> ObjectStat:
    mtime, size = facts.st_mtime_ns, facts.st_size
    return ObjectStat(path, size, mtime, facts.st_ctime_ns, f"{mtime:x}-{size:x}-{facts.st_ino:x}")


def _outside(root: str, path: str, start: int, length: int, size: int) -> CorruptFile:
    return CorruptFile(
        f"bytes {start} to {start + length} were asked for, but the object has {size}: it is cut short, or "
        "what named the range is damaged",
        f"{root}/{path}",
    )


def _wrong_size(root: str, path: str, expected: int, found: int) -> CorruptFile:
    return CorruptFile(
        f"the object has {found} bytes where {expected} were recorded: it was cut short or replaced",
        f"{root}/{path}",
    )


def _reopen(kind: type[LocalStore], path: str, durable: bool, mapped: bool) -> LocalStore:
    return kind(path, durable=durable, mapped=mapped)
