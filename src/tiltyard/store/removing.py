"""Removing many objects where the medium removes one at a time: on disks and in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tiltyard.errors import StoreError
from tiltyard.store.paths import checked
from tiltyard.store.protocol import Removed


class _Deleting(Protocol):
    def delete(self, path: str) -> bool: ...


class OneByOne:
    """`Store.delete_many` for stores without a request for many."""

    def delete_many(self: _Deleting, paths: Sequence[str]) -> Removed:
        """Remove them in the order given, and go on after failures."""
        for path in paths:
            checked(path)
        gone: list[str] = []
        failed: dict[str, StoreError] = {}
        for path in paths:
            try:
                if self.delete(path):
                    gone.append(path)
            except StoreError as error:
                failed[path] = error
        return Removed(frozenset(gone), failed)
