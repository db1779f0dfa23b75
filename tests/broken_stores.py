"""Stores that break one promise each, for the tests of the probe; opened by name in other processes too."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tiltyard.errors import StoreError, UnsupportedFeature
from tiltyard.store import Created, ObjectStat, Store, open_store
from tiltyard.testing.faults import FaultyStore, Plan

LAG_NS = 2_000_000_000
"""What is younger than this is not seen where a store is late."""


class Passing(FaultyStore):
    """A store that does what its inner one does, to be changed in one place."""

    def __init__(self, store: Store, plan: Plan | None = None, prefix: str = "") -> None:
        super().__init__(store, plan or Plan(), prefix)

    def at(self, prefix: str) -> Passing:
        return type(self)(self.inner.at(prefix), self.plan, self._full(prefix.rstrip("/")))

    def _young(self, path: str) -> bool:
        return self.inner.exists(path) and time.time_ns() - self.inner.stat(path).mtime_ns < LAG_NS


class Overwriting(Passing):
    def create(self, path: str, data: Any) -> Created:
        self.inner.put(path, data)
        return Created.WON


class LookingFirst(Passing):
    """Looks whether the name is free, and then takes it."""

    lock = threading.Lock()

    def create(self, path: str, data: Any) -> Created:
        if self.inner.exists(path):
            return Created.EXISTS
        time.sleep(0.002)
        self.inner.put(path, data)
        return Created.WON


class LookingFirstAlone(LookingFirst):
    """The same under a lock that other processes do not know."""

    def create(self, path: str, data: Any) -> Created:
        with LookingFirst.lock:
            return super().create(path, data)


class Unsure(Passing):
    def create(self, path: str, data: Any) -> Created:
        self.inner.create(path, data)
        return Created.UNKNOWN


class InHalves(Passing):
    def create(self, path: str, data: Any) -> Created:
        content = bytes(data)
        answer = self.inner.create(path, content[: len(content) // 2])
        if answer is Created.WON and len(content) > 1000:
            time.sleep(0.03)
        if answer is Created.WON:
            self.inner.put(path, content)
        return answer


class RemovingFirst(Passing):
    def put(self, path: str, data: Any) -> None:
        self.inner.delete(path)
        time.sleep(0.02)
        self.inner.put(path, data)


class ReadingLate(Passing):
    def exists(self, path: str) -> bool:
        return not self._young(path) and self.inner.exists(path)


class ListingLate(Passing):
    def list_names(self, directory: str = "") -> list[str]:
        names = self.inner.list_names(directory)
        return [each for each in names if not self._young(f"{directory}/{each}")]


class ListingGhosts(Passing):
    def list(self, prefix: str = "", start_after: str = "") -> list[ObjectStat]:
        found = self.inner.list(prefix, start_after)
        gone = [path for call, path in self.plan.trace if call == "delete" and path.startswith(prefix)]
        return sorted([*found, *(ObjectStat(path, 1, 1, 1, "") for path in gone)], key=lambda one: one.path)

    def delete(self, path: str) -> bool:
        self.plan.trace.append(("delete", path))
        return self.inner.delete(path)


class CuttingShort(Passing):
    def read(self, path: str, start: int = 0, length: int | None = None) -> Any:
        size = self.inner.stat(path).size
        if length is not None and start + length > size:
            length = size - start
        return self.inner.read(path, start, length)


class Wandering(Passing):
    def create(self, path: str, data: Any) -> Created:
        return self.inner.create(path.replace("../", "up/"), data)


class Unsynced(Passing):
    def sync_dir(self, directory: str) -> None:
        raise StoreError("the directory cannot be synced")


class StandingStill(Passing):
    def dir_stat(self, directory: str) -> int | None:
        return 1_700_000_000_000_000_000


class Timeless(Passing):
    def dir_stat(self, directory: str) -> int | None:
        return None


class RunningAhead(Passing):
    def now_ns(self) -> int:
        return self.inner.now_ns() + 3_600_000_000_000


class LettingAllIn(Passing):
    @contextmanager
    def turnstile(self, directory: str, seconds: float) -> Iterator[bool]:
        yield True


class LettingNobodyIn(Passing):
    @contextmanager
    def turnstile(self, directory: str, seconds: float) -> Iterator[bool]:
        yield False


class Unmoving(Passing):
    def move_dir(self, source: str, target: str) -> Created:
        raise UnsupportedFeature("there is no such step")


class MovingOver(Passing):
    def move_dir(self, source: str, target: str) -> Created:
        self.inner.delete_tree(target)
        return self.inner.move_dir(source, target)


class KeepingAll(Passing):
    def delete_tree(self, directory: str) -> None:
        """Nothing goes."""


def opened(kind: str, arguments: Sequence[Any]) -> Store:
    """A broken store on what `open_store` gives; what other processes call."""
    made: Store = globals()[kind](open_store(*arguments))
    return made
