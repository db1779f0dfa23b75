"""A caller's lock around the step that makes a version, for stores whose own exclusion is not to be relied
on.

The lock is a function of the version that gives a context manager, as the official package takes it. Every
commit through the store takes it: appends, deletes, merges, upkeep. Invariants, with their tests in
tests/table/test_commit_lock.py:

1. No manifest is created while the lock is not held.
2. A lock that is not given leaves nothing committed, and says so.
3. A lock whose release fails after the version was made is an unknown outcome: nothing is cleaned up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, cast

from tiltyard.errors import CommitConflict, OutcomeUnknown, StoreError
from tiltyard.format.names import VERSIONS_DIR, parse_manifest_name
from tiltyard.store import Created, Store

if TYPE_CHECKING:
    from tiltyard.store.protocol import Bytes

CommitLock = Callable[[int], AbstractContextManager[Any]]


class LockedStore:
    """A store that creates manifests under a lock; everything else it leaves to the store below."""

    def __init__(self, store: Store, lock: CommitLock) -> None:
        self._store = store
        self._lock = lock
        self._refused: dict[str, StoreError] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @property
    def identity(self) -> str:
        """Another one than that of the store below: commits with and without the lock are not combined."""
        return f"{self._store.identity} locked by {id(self._lock)}"

    def at(self, prefix: str) -> Store:
        return under_lock(self._store.at(prefix), self._lock)

    @contextmanager
    def together(self) -> Iterator[Store]:
        with self._store.together() as store:
            yield under_lock(store, self._lock)

    def create(self, path: str, data: Bytes | Sequence[Bytes]) -> Created:
        version = _version(path)
        if version is None:
            return self._store.create(path, data)
        try:
            held = self._lock(version)
            held.__enter__()
        except Exception as error:  # whatever a caller's lock raises, it was not given
            self._refused[path] = StoreError(
                f"the commit lock for version {version} was not given: {_told(error)}"
            )
            self._refused[path].__cause__ = error
            return Created.NOT_DONE
        answer = None
        try:
            answer = self._store.create(path, data)
        finally:
            self.release_lock(held, version, answer)
        return answer

    def failure(self, path: str) -> BaseException | None:
        return self._refused.get(path) or self._store.failure(path)

    def release_lock(self, held: Any, version: int, answer: Created | None) -> None:
        """Give the lock back after an attempt to make a version with this answer (None: it raised)."""
        try:
            held.__exit__(None, None, None)
        except Exception as error:
            if answer in (Created.WON, Created.UNKNOWN):
                raise OutcomeUnknown(
                    f"version {version} of {self._store.uri} "
                    f"{'was made' if answer is Created.WON else 'may have been made'}, but its commit lock "
                    f"failed as it was given back: {_told(error)}. Nothing was cleaned up; read the table "
                    "again",
                    version=version,
                ) from error
            raise StoreError(
                f"version {version} of {self._store.uri} was not made, and its commit lock failed as it was "
                f"given back: {_told(error)}"
            ) from error


def under_lock(store: Store, lock: CommitLock | None) -> Store:
    """The store with a lock around the creation of manifests; the store itself without one."""
    return store if lock is None else cast(Store, LockedStore(store, lock))


def _version(path: str) -> int | None:
    """The version whose manifest a path is; None for every other path."""
    directory, _, name = path.rpartition("/")
    if directory.rpartition("/")[2] != VERSIONS_DIR:
        return None
    parsed = parse_manifest_name(name)
    return None if parsed is None else parsed[0]


def _told(error: Exception) -> str:
    if isinstance(error, CommitConflict):
        return f"another writer commits (CommitConflictError) {error}".rstrip()
    return f"{type(error).__name__}: {error}"
