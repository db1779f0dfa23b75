"""The session object: caches, maps, arena and limits of one process; re-made in a forked child (D57)."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

from tiltyard import runtime
from tiltyard.errors import InvalidInput, WrongType
from tiltyard.session.arena import Arena
from tiltyard.session.cache import ByteCache
from tiltyard.session.limits import Limits

_default: Session | None = None


class Session:
    """What operations share: `.cache` (by key), `.maps` (whole files), `.arena` (memory), `.limits`."""

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        index_cache_size_bytes: int | None = None,
        metadata_cache_size_bytes: int | None = None,
    ) -> None:
        """`limits`, or one or both of the official package's sizes: here one cache holds both kinds."""
        if limits is not None and not isinstance(limits, Limits):
            raise WrongType(f"limits must be a Limits, found a {type(limits).__name__}")
        sizes = [size for size in (index_cache_size_bytes, metadata_cache_size_bytes) if size is not None]
        if sizes:
            if limits is not None:
                raise InvalidInput(
                    "give limits or cache sizes, not both: Limits(cache_bytes=...) says the size"
                )
            total = sum(Limits(cache_bytes=size).cache_bytes for size in sizes)  # which refuses what is none
            limits = Limits(cache_bytes=total, map_bytes=min(total, Limits().map_bytes))
        self.limits = Limits() if limits is None else limits
        self.cache = ByteCache(self.limits.cache_bytes)
        self.maps = ByteCache(self.limits.map_bytes, self.limits.map_files)
        self.arena = Arena(self.limits.arena_bytes)
        self.open_shards: dict[str, WeakSet[Any]] = {}
        """Writers of shards that are open in this process, by the identity of their table's store: what they
        hold in memory is part of the table for readers of this session.
        """
        runtime.after_fork(self._renew_after_fork)

    def size_bytes(self) -> int:
        """Bytes that the caches account for now: metadata, page tables and small files, not decoded data."""
        return self.cache.nbytes + self.maps.nbytes

    def is_same_as(self, other: Session) -> bool:
        """Whether both names stand for one session."""
        return self is other

    def _renew_after_fork(self) -> None:
        self.cache.renew_after_fork()
        self.maps.renew_after_fork()
        self.arena.renew_after_fork()
        self.open_shards = {}


def default_session() -> Session:
    """The process-wide session, made on first use."""
    global _default
    if _default is None:
        _default = Session()
    return _default
