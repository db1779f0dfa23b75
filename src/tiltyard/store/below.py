"""A directory of a store as a store that keeps nothing open.

`Store.at` holds a handle, so that it stays with its directory when that is renamed. Where a store has very
many directories that are never renamed, such as a table's SSTables, a handle for each would use up what a
process may have open: this one goes by way of the store above it each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

from tiltyard.store.paths import checked, checked_dir, joined

if TYPE_CHECKING:
    import pyarrow as pa

    from tiltyard.store.protocol import (
        Bytes,
        Created,
        Listing,
        Names,
        ObjectStat,
        ObjectWriter,
        Removed,
        Store,
    )


class Below:
    """The directory `prefix` of `store`; see `protocol.Store` for what each method does."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store = store
        self._prefix = checked(prefix)
        self.uri = f"{store.uri.rstrip('/')}/{prefix}"
        self.identity = f"{store.identity}#{prefix}"

    def __repr__(self) -> str:
        return f"Below({self._store!r}, {self._prefix!r})"

    @property
    def durable(self) -> bool:
        return self._store.durable

    @property
    def ranged(self) -> bool:
        """As the store above."""
        return getattr(self._store, "ranged", False)

    def _path(self, path: str) -> str:
        return joined(self._prefix, checked(path))

    def _directory(self, directory: str) -> str:
        return joined(self._prefix, checked_dir(directory))

    def _named(self, facts: ObjectStat) -> ObjectStat:
        return replace(facts, path=facts.path[len(self._prefix) + 1 :])

    # -- reading ---------------------------------------------------------------------------------

    def read(self, path: str, start: int = 0, length: int | None = None) -> pa.Buffer:
        return self._store.read(self._path(path), start, length)

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        return self._store.read_ranges(self._path(path), ranges)

    def map(self, path: str, size: int | None = None) -> pa.Buffer:
        return self._store.map(self._path(path), size)

    def stat(self, path: str) -> ObjectStat:
        return self._named(self._store.stat(self._path(path)))

    def exists(self, path: str) -> bool:
        return self._store.exists(self._path(path))

    def list(self, prefix: str = "", start_after: str = "") -> Listing:
        after = joined(self._prefix, start_after) if start_after else ""
        return [self._named(each) for each in self._store.list(self._directory(prefix), after)]

    def list_names(self, directory: str = "") -> Names:
        return self._store.list_names(self._directory(directory))

    def dir_stat(self, directory: str) -> int | None:
        return self._store.dir_stat(self._directory(directory))

    def now_ns(self) -> int:
        return self._store.now_ns()

    # -- writing ---------------------------------------------------------------------------------

    def create(self, path: str, data: Bytes | Sequence[Bytes]) -> Created:
        return self._store.create(self._path(path), data)

    def failure(self, path: str) -> BaseException | None:
        return self._store.failure(self._path(path))

    @property
    def create_mode(self) -> str:
        return self._store.create_mode

    def put(self, path: str, data: Bytes | Sequence[Bytes]) -> None:
        self._store.put(self._path(path), data)

    def writer(self, path: str) -> BelowWriter:
        return BelowWriter(self._store.writer(self._path(path)), path)

    def write_hint(self, path: str, data: bytes, *, sync: bool = False) -> None:
        self._store.write_hint(self._path(path), data, sync=sync)

    def copy_create(self, source: str, target: str) -> Created:
        return self._store.copy_create(self._path(source), self._path(target))

    def move_dir(self, source: str, target: str) -> Created:
        return self._store.move_dir(self._path(source), self._path(target))

    @contextmanager
    def together(self) -> Iterator[Below]:
        with self._store.together() as store:
            yield Below(store, self._prefix)

    def delete(self, path: str) -> bool:
        return self._store.delete(self._path(path))

    def delete_many(self, paths: Sequence[str]) -> Removed:
        done = self._store.delete_many([self._path(path) for path in paths])
        cut = len(self._prefix) + 1
        return replace(
            done,
            paths=frozenset(path[cut:] for path in done.paths),
            failed={path[cut:]: error for path, error in done.failed.items()},
        )

    def delete_tree(self, directory: str) -> None:
        self._store.delete_tree(self._directory(directory))

    def sync_dir(self, directory: str) -> None:
        self._store.sync_dir(self._directory(directory))

    def turnstile(self, directory: str, seconds: float) -> AbstractContextManager[bool]:
        return self._store.turnstile(self._directory(directory), seconds)

    def at(self, prefix: str) -> Store:
        path = checked_dir(prefix)
        return Below(self._store, joined(self._prefix, path)) if path else self

    def successor(self) -> Store | None:
        return None


class BelowWriter:
    """A new object; see `protocol.ObjectWriter`."""

    def __init__(self, writer: ObjectWriter, path: str) -> None:
        self._writer = writer
        self.path = path

    @property
    def position(self) -> int:
        return self._writer.position

    def write(self, buffers: Sequence[Bytes]) -> None:
        self._writer.write(buffers)

    def commit(self) -> int:
        return self._writer.commit()

    def abort(self) -> None:
        self._writer.abort()

    def __enter__(self) -> BelowWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.__exit__(kind, error, trace)
