"""An object store of a simulation: answers can be lost, requests can arrive twice, nothing is a directory.

What it keeps is a `MemoryStore`'s, by the store's own clock. Like the object stores that it stands for it has
exclusive creation, whole objects, listings that show what was written, no turnstile and no directory times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from tiltyard.errors import ObjectExists, StoreError, UnsupportedFeature
from tiltyard.store.content import buffers_of, flat
from tiltyard.store.memory import MemoryStore
from tiltyard.store.protocol import Created, Listing, Names, ObjectStat
from tiltyard.store.removing import OneByOne
from tiltyard.testing.faults import Fault
from tiltyard.testing.simulation.storm import Kind, Storm

if TYPE_CHECKING:
    import pyarrow as pa

    from tiltyard.store.protocol import Bytes

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MadeObject:
    """An object that was put under a name once, and the names beside it at that moment."""

    path: str
    data: bytes
    beside: tuple[str, ...]
    at_ns: int


class SimulatedObjects(OneByOne):
    """A store over the objects of a run. Of many removals each is a request of its own: a request for many is
    not one step either.
    """

    durable = True
    create_mode = "put if absent"

    def __init__(self, inner: MemoryStore, storm: Storm, archive: list[MadeObject], prefix: str = "") -> None:
        self._inner = inner
        self._storm = storm
        self._archive = archive
        self._prefix = prefix
        self._failures: dict[str, BaseException] = {}
        self.uri = inner.uri
        self.identity = inner.identity

    def _do(self, kind: Kind, verb: str, path: str, effect: Callable[[], T]) -> T:
        what = f"{verb} {self._prefix}{path}"

        def failed(fault: Fault) -> T:
            raise StoreError(f"{what}: {fault.value}")

        return self._storm.call(kind, what, effect, failed)

    # -- reading ---------------------------------------------------------------------------------

    def read(self, path: str, start: int = 0, length: int | None = None) -> pa.Buffer:
        return self._do(Kind.READ, "read", path, lambda: self._inner.read(path, start, length))

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        return self._do(Kind.READ, "read_ranges", path, lambda: self._inner.read_ranges(path, ranges))

    def map(self, path: str, size: int | None = None) -> pa.Buffer:
        return self._do(Kind.READ, "map", path, lambda: self._inner.map(path, size))

    def stat(self, path: str) -> ObjectStat:
        return self._do(Kind.READ, "stat", path, lambda: self._inner.stat(path))

    def exists(self, path: str) -> bool:
        return self._do(Kind.READ, "exists", path, lambda: self._inner.exists(path))

    def list(self, prefix: str = "", start_after: str = "") -> Listing:
        return self._do(Kind.READ, "list", prefix, lambda: self._inner.list(prefix, start_after))

    def list_names(self, directory: str = "") -> Names:
        return self._do(Kind.READ, "list_names", directory, lambda: self._inner.list_names(directory))

    def dir_stat(self, directory: str) -> int | None:
        self._inner.dir_stat(directory)  # raises where nothing is
        return None

    def now_ns(self) -> int:
        return self._inner.now_ns()

    # -- writing ---------------------------------------------------------------------------------

    def create(self, path: str, data: Bytes | Sequence[Bytes]) -> Created:
        content = b"".join(flat(each) for each in buffers_of(data))
        self._failures.pop(path, None)

        def failed(fault: Fault) -> Created:
            self._failures[path] = StoreError(f"create {self._prefix}{path}: {fault.value}")
            return Created.NOT_DONE if fault is Fault.FAIL_BEFORE else Created.UNKNOWN

        def effect() -> Created:
            answer = self._inner.create(path, content)
            if answer is Created.WON:
                self._made(path, content)
            return answer

        return self._storm.call(Kind.REQUEST, f"create {self._prefix}{path}", effect, failed)

    def _made(self, path: str, content: bytes) -> None:
        beside = tuple(self._inner.list_names(path.rpartition("/")[0]))
        name = path.rpartition("/")[2]
        others = tuple(each for each in beside if each != name)
        self._archive.append(MadeObject(self._prefix + path, content, others, self._inner.now_ns()))

    def failure(self, path: str) -> BaseException | None:
        return self._failures.get(path)

    def put(self, path: str, data: Bytes | Sequence[Bytes]) -> None:
        content = b"".join(flat(each) for each in buffers_of(data))

        def effect() -> None:
            self._inner.put(path, content)
            self._made(path, content)

        self._do(Kind.REQUEST, "put", path, effect)

    def writer(self, path: str) -> SimulatedWriter:
        if self.exists(path):
            raise ObjectExists(f"cannot write {self.uri}/{path}: something stands there already")
        return SimulatedWriter(self, path)

    def write_hint(self, path: str, data: bytes, *, sync: bool = False) -> None:
        self.put(path, data)

    def copy_create(self, source: str, target: str) -> Created:
        return self.create(target, [self.map(source)])

    def move_dir(self, source: str, target: str) -> Created:
        raise UnsupportedFeature("an object store has no step that renames a directory")

    @contextmanager
    def together(self) -> Iterator[SimulatedObjects]:
        yield self

    def delete(self, path: str) -> bool:
        return self._do(Kind.REQUEST, "delete", path, lambda: self._inner.delete(path))

    def delete_tree(self, directory: str) -> None:
        for each in self.list(directory):
            self.delete(each.path)

    def sync_dir(self, directory: str) -> None:
        """Nothing is ever unsynced."""

    @contextmanager
    def turnstile(self, directory: str, seconds: float) -> Iterator[bool]:
        yield False

    def at(self, prefix: str) -> SimulatedObjects:
        below = f"{self._prefix}{prefix.rstrip('/')}/" if prefix else self._prefix
        return SimulatedObjects(self._inner.at(prefix), self._storm, self._archive, below)

    def successor(self) -> SimulatedObjects | None:
        return None


class SimulatedWriter:
    """A multi-part upload: nothing is visible before its commit."""

    def __init__(self, store: SimulatedObjects, path: str) -> None:
        self.path = path
        self._store = store
        self._parts: list[bytes] = []

    @property
    def position(self) -> int:
        return sum(map(len, self._parts))

    def write(self, buffers: Sequence[Bytes]) -> None:
        self._parts += [bytes(flat(each)) for each in buffers]

    def commit(self) -> int:
        data = b"".join(self._parts)
        self._store.put(self.path, data)
        return len(data)

    def abort(self) -> None:
        self._parts = []

    def __enter__(self) -> SimulatedWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()
