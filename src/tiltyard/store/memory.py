"""Objects in this process's memory: for tests, and for tables that need not outlive the process.

A named space is shared by everybody in the process who opens `memory://name`. A forked child has its own
copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from tiltyard import runtime
from tiltyard.errors import CorruptFile, InvalidInput, ObjectExists, ObjectNotFound
from tiltyard.store.account import READS
from tiltyard.store.content import buffers_of, flat
from tiltyard.store.paths import checked, checked_dir, joined, parent_of
from tiltyard.store.protocol import Created, Listing, Names, ObjectStat
from tiltyard.store.removing import OneByOne

if TYPE_CHECKING:
    from tiltyard.store.protocol import Bytes


@dataclass(frozen=True, slots=True)
class _Object:
    data: bytes
    time_ns: int
    tag: str


class Space:
    """The objects of one named memory store by full path, and when their directories last changed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._renew()
        self.objects: dict[str, _Object] = {}
        self.changed: dict[str, int] = {}
        self._tags = 0
        runtime.after_fork(self._renew)

    def _renew(self) -> None:
        self.lock = runtime.leaf_lock()  # another thread of the parent may have held it

    def set(self, path: str, data: bytes, now_ns: int) -> None:
        """Put an object under the lock."""
        self._tags += 1
        if path not in self.objects:
            self.touch(path, now_ns)
        self.objects[path] = _Object(data, now_ns, f"{self._tags:x}")

    def remove(self, path: str, now_ns: int) -> bool:
        """Remove an object under the lock; whether it was there."""
        found = self.objects.pop(path, None) is not None
        if found:
            self.touch(path, now_ns)
        return found

    def touch(self, path: str, now_ns: int) -> None:
        """Note that a name was made or removed in the directory of `path`, and in those above it."""
        while path:
            path = parent_of(path)
            self.changed[path] = max(now_ns, self.changed.get(path, 0))

    def below(self, directory: str) -> list[str]:
        """Full paths below a directory, under the lock; unsorted."""
        if not directory:
            return list(self.objects)
        start = directory + "/"
        return [path for path in self.objects if path.startswith(start)]


class MemoryStore(OneByOne):
    """A memory space, or a directory in one. See `protocol.py` for what is promised."""

    durable = True
    create_mode = "a dictionary under a lock"

    def __init__(self, space: Space, prefix: str = "", clock: Callable[[], int] | None = None) -> None:
        self._space = space
        self._prefix = prefix
        self._clock = clock or runtime.current().now_ns
        self.uri = joined(f"memory://{space.name}", prefix)
        self.identity = self.uri

    def __repr__(self) -> str:
        return f"MemoryStore({self.uri!r})"

    def __reduce__(self) -> tuple[object, ...]:
        raise InvalidInput(
            f"{self.uri} lives in the memory of this process and cannot be pickled: no other process could "
            "open it"
        )

    # -- reading ---------------------------------------------------------------------------------

    def _object(self, path: str) -> _Object:
        found = self._space.objects.get(joined(self._prefix, checked(path)))
        if found is None:
            raise ObjectNotFound(f"cannot read {self.uri}/{path}: there is no such object")
        return found

    def _range(self, path: str, data: bytes, start: int, length: int) -> pa.Buffer:
        if start < 0 or length < 0 or start + length > len(data):
            raise CorruptFile(
                f"bytes {start} to {start + length} were asked for, but the object has {len(data)}",
                f"{self.uri}/{path}",
            )
        READS.add(length)
        return pa.py_buffer(memoryview(data)[start : start + length])

    def read(self, path: str, start: int = 0, length: int | None = None) -> pa.Buffer:
        data = self._object(path).data
        if start < 0:
            start = max(0, len(data) + start)
        return self._range(path, data, start, len(data) - start if length is None else length)

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        data = self._object(path).data
        return [self._range(path, data, start, length) for start, length in ranges]

    def map(self, path: str, size: int | None = None) -> pa.Buffer:
        data = self._object(path).data
        READS.add(len(data))
        if size is not None and size != len(data):
            raise CorruptFile(
                f"the object has {len(data)} bytes where {size} were recorded", f"{self.uri}/{path}"
            )
        return pa.py_buffer(data)

    def stat(self, path: str) -> ObjectStat:
        return _described(path, self._object(path))

    def exists(self, path: str) -> bool:
        return joined(self._prefix, checked(path)) in self._space.objects

    def list(self, prefix: str = "", start_after: str = "") -> Listing:
        directory = joined(self._prefix, checked_dir(prefix))
        cut = len(self._prefix) + 1 if self._prefix else 0
        with self._space.lock:
            found = [
                _described(path[cut:], self._space.objects[path]) for path in self._space.below(directory)
            ]
        if start_after:
            found = [one for one in found if one.path > start_after]
        found.sort(key=lambda one: one.path)
        return found

    def list_names(self, directory: str = "") -> Names:
        full = joined(self._prefix, checked_dir(directory))
        cut = len(full) + 1 if full else 0
        with self._space.lock:
            return sorted({path[cut:].partition("/")[0] for path in self._space.below(full)})

    def dir_stat(self, directory: str) -> int | None:
        full = joined(self._prefix, checked_dir(directory))
        with self._space.lock:
            if self._space.below(full):
                return self._space.changed[full]
        raise ObjectNotFound(f"cannot find {self.uri}/{directory}: there is no such directory")

    def now_ns(self) -> int:
        return self._clock()

    # -- writing ---------------------------------------------------------------------------------

    def create(self, path: str, data: Bytes | Sequence[Bytes]) -> Created:
        full, content, now = joined(self._prefix, checked(path)), _content(data), self._clock()
        with self._space.lock:
            if full in self._space.objects or self._space.below(full):
                return Created.EXISTS
            self._space.set(full, content, now)
        return Created.WON

    def failure(self, path: str) -> BaseException | None:
        return None

    def put(self, path: str, data: Bytes | Sequence[Bytes]) -> None:
        full, content, now = joined(self._prefix, checked(path)), _content(data), self._clock()
        with self._space.lock:
            self._space.set(full, content, now)

    def writer(self, path: str) -> MemoryWriter:
        if self.exists(path):
            raise ObjectExists(f"cannot write {self.uri}/{path}: something stands there already")
        return MemoryWriter(self, path)

    def write_hint(self, path: str, data: bytes, *, sync: bool = False) -> None:
        self.put(path, data)

    def copy_create(self, source: str, target: str) -> Created:
        return self.create(target, self._object(source).data)

    def move_dir(self, source: str, target: str) -> Created:
        start, end = joined(self._prefix, checked(source)), joined(self._prefix, checked(target))
        space, now = self._space, self._clock()
        with space.lock:
            moved = [start] if start in space.objects else space.below(start)
            if not moved:
                raise ObjectNotFound(f"cannot move {self.uri}/{source}: there is nothing of this name")
            if end in space.objects or space.below(end):
                return Created.EXISTS
            for path in moved:
                below = path[len(start) :]
                space.objects[end + below] = space.objects.pop(path)
                space.touch(path, now)
                space.touch(end + below, now)
        return Created.WON

    def delete(self, path: str) -> bool:
        full, now = joined(self._prefix, checked(path)), self._clock()
        with self._space.lock:
            return self._space.remove(full, now)

    def delete_tree(self, directory: str) -> None:
        full, now = joined(self._prefix, checked_dir(directory)), self._clock()
        with self._space.lock:
            for path in self._space.below(full):
                self._space.remove(path, now)

    def sync_dir(self, directory: str) -> None:
        checked_dir(directory)

    @contextmanager
    def together(self) -> Iterator[Self]:
        yield self

    @contextmanager
    def turnstile(self, directory: str, seconds: float) -> Iterator[bool]:
        checked_dir(directory)
        yield False  # one process: its own queue is enough

    def at(self, prefix: str) -> Self:
        path = checked_dir(prefix)
        if not path:
            return self
        below = type(self).__new__(type(self))  # a store derived from this one is that below, too
        below.__dict__.update(self.__dict__)
        MemoryStore.__init__(below, self._space, joined(self._prefix, path), self._clock)
        return below

    def successor(self) -> Self | None:
        return None


class MemoryWriter:
    """A new object; see `ObjectWriter`. It becomes visible at `commit`."""

    def __init__(self, store: MemoryStore, path: str) -> None:
        self.path = path
        self._store = store
        self._data = bytearray()
        self._open = True

    @property
    def position(self) -> int:
        return len(self._data)

    def _check(self) -> None:
        if not self._open:
            raise InvalidInput(f"the writer of {self.path} is closed")

    def write(self, buffers: Sequence[Bytes]) -> None:
        """Append the buffers, in order; they may be reused when the call returns."""
        self._check()
        for buffer in buffers:
            self._data += flat(buffer)

    def commit(self) -> int:
        """Make the object visible; its size in bytes."""
        self._check()
        self._open = False
        if self._store.create(self.path, self._data) is not Created.WON:
            raise ObjectExists(f"cannot write {self._store.uri}/{self.path}: something stands there already")
        return len(self._data)

    def abort(self) -> None:
        """Forget what was written; nothing happens after `commit` or a second time."""
        self._open = False

    def __enter__(self) -> MemoryWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()


def _content(data: Bytes | Sequence[Bytes]) -> bytes:
    return b"".join([flat(buffer) for buffer in buffers_of(data)])


def _described(path: str, found: _Object) -> ObjectStat:
    return ObjectStat(path, len(found.data), found.time_ns, found.time_ns, found.tag)


_SPACES: dict[str, Space] = {}


def memory_space(name: str) -> Space:
    """The process's space of that name, made on first use; '' is always a new one."""
    if not name:
        name = f"unnamed-{runtime.uuid4().hex}"
    return _SPACES.setdefault(name, Space(name))
