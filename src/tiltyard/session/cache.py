"""One byte-bounded store of values, least recently used first to go (D37).

Keys are tuples such as (store identity, path, kind, tag). Data, deletion and index files have random names,
so their path says which bytes they hold; objects that can be replaced under one name carry a tag in the key.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

from tiltyard import runtime


class ByteCache:
    """A map from keys to values that forgets the least recently used beyond a bound of bytes or entries.

    A value larger than the whole bound is returned to its maker but not kept. Safe among threads; two threads
    that miss at once may both make the value, and the first one stored is the one that both get.
    """

    def __init__(self, max_bytes: int, max_entries: int | None = None) -> None:
        self.max_bytes = max_bytes
        self.max_entries = max_entries
        self._lock = runtime.leaf_lock()
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._bytes = 0
        self._making: dict[Hashable, runtime.Event] = {}

    @property
    def nbytes(self) -> int:
        """Bytes that the kept values account for."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable) -> Any:
        """The value under `key`, or None."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: Hashable, value: Any, nbytes: int) -> None:
        """Keep `value`, accounted as `nbytes` bytes, in place of what stood under `key`."""
        with self._lock:
            self._store(key, value, nbytes)

    def get_or(self, key: Hashable, make: Callable[[], tuple[Any, int]]) -> Any:
        """The value under `key`; if absent, `make()` gives (value, bytes). `make` runs outside the lock."""
        found = self.get(key)
        if found is not None:
            return found
        value, nbytes = make()
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                return entry[0]
            self._store(key, value, nbytes)
        return value

    def get_or_once(self, key: Hashable, make: Callable[[], tuple[Any, int]]) -> Any:
        """The same where making is dear: of several threads that miss at once one makes the value, and the
        others wait. Where it fails, or what it made is not kept, the next one makes its own.
        """
        while True:
            with self._lock:
                entry = self._entries.get(key)
                if entry is not None:
                    self._entries.move_to_end(key)
                    return entry[0]
                made = self._making.get(key)
                if made is None:
                    mine = self._making[key] = runtime.event()
            if made is None:
                break
            made.wait()
        try:
            value, nbytes = make()
            self.put(key, value, nbytes)
            return value
        finally:
            with self._lock:
                self._making.pop(key, None)
            mine.set()

    def drop(self, key: Hashable) -> None:
        """Forget `key`; nothing happens if it is absent."""
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is not None:
                self._bytes -= entry[1]

    def drop_where(self, chosen: Callable[[Hashable], bool]) -> int:
        """Forget every key that `chosen` picks, and say how many they were. It runs outside the lock."""
        with self._lock:
            keys = list(self._entries)
        picked = [key for key in keys if chosen(key)]
        for key in picked:
            self.drop(key)
        return len(picked)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries.clear()
            self._bytes = 0

    def renew_after_fork(self) -> None:
        """A child starts empty with a lock of its own: the parent's may have been held mid-change."""
        self._lock = runtime.leaf_lock()
        self._entries = OrderedDict()
        self._bytes = 0
        self._making = {}

    def _store(self, key: Hashable, value: Any, nbytes: int) -> None:
        old = self._entries.pop(key, None)
        if old is not None:
            self._bytes -= old[1]
        if nbytes > self.max_bytes:
            return
        self._entries[key] = (value, nbytes)
        self._bytes += nbytes
        while self._bytes > self.max_bytes or (
            self.max_entries is not None and len(self._entries) > self.max_entries
        ):
            _, (_, freed) = self._entries.popitem(last=False)
            self._bytes -= freed
