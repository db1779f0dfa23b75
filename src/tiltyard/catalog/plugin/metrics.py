"""How often each operation was asked for, where the properties say that this is to be counted."""

from __future__ import annotations

from tiltyard import runtime


class Metrics:
    """Counts by the name of the operation. Safe to share among threads."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._counts: dict[str, int] = {}
        self._lock = runtime.leaf_lock()

    def count(self, operation: str) -> None:
        """One more call."""
        if self._enabled:
            with self._lock:
                self._counts[operation] = self._counts.get(operation, 0) + 1

    def counts(self) -> dict[str, int]:
        """The counts so far; empty where nothing is counted."""
        with self._lock:
            return dict(self._counts)

    def reset(self) -> None:
        """Begin anew."""
        with self._lock:
            self._counts.clear()
