"""The session object: caches, maps, arena and limits of one process; re-made in a forked child (D57)."""

from __future__ import annotations

from tiltyard import runtime
from tiltyard.errors import WrongType
from tiltyard.session.arena import Arena
from tiltyard.session.cache import ByteCache
from tiltyard.session.limits import Limits

_default: Session | None = None


class Session:
    """What operations share: `.cache` (by key), `.maps` (whole files), `.arena` (memory), `.limits`."""

    def __init__(self, limits: Limits | None = None) -> None:
        if limits is not None and not isinstance(limits, Limits):
            raise WrongType(f"limits must be a Limits, found a {type(limits).__name__}")
        self.limits = Limits() if limits is None else limits
        self.cache = ByteCache(self.limits.cache_bytes)
        self.maps = ByteCache(self.limits.map_bytes, self.limits.map_files)
        self.arena = Arena(self.limits.arena_bytes)
        runtime.after_fork(self._renew_after_fork)

    def _renew_after_fork(self) -> None:
        self.cache.renew_after_fork()
        self.maps.renew_after_fork()
        self.arena.renew_after_fork()


def default_session() -> Session:
    """The process-wide session, made on first use."""
    global _default
    if _default is None:
        _default = Session()
    return _default
