"""Bytes at rest: the store protocol, local directories and memory, and how a location names one of them."""

from __future__ import annotations

from tiltyard.store.protocol import MIN_MAP_BYTES, Created, ObjectStat, ObjectWriter, Removed, Store
from tiltyard.store.uri import object_key, open_other, open_store

__all__ = [
    "MIN_MAP_BYTES",
    "Created",
    "ObjectStat",
    "ObjectWriter",
    "Removed",
    "Store",
    "object_key",
    "open_other",
    "open_store",
]
