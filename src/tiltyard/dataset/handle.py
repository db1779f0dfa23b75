"""What every face of a dataset stands on: a store, a session, the version it shows, and when to look for a
newer one.

A handle is a snapshot: it shows one version until told otherwise, and never changes under a reader's feet.
Two settings change that. `freshness` in seconds lets reads move on to the newest version once the last look
is older than that; `'latest'` looks before every read. Writes through a handle always build on the newest
version.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tiltyard import runtime
from tiltyard.dataset import arguments
from tiltyard.errors import CorruptFile, InvalidInput, InvalidUri, StoreError, UnsupportedFeature
from tiltyard.session import Session, default_session
from tiltyard.store import Store, open_store
from tiltyard.table.snapshot import Snapshot, open_latest
from tiltyard.table.versions import latest_or_none

if TYPE_CHECKING:
    from tiltyard.runtime import Lock

LATEST = "latest"
"""The freshness that looks for a newer version before every read."""


class Handle:
    """The state of a dataset handle. Safe to share among threads: a refresh swaps one reference."""

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        root: Store | None = None,
        freshness: float | None = None,
        storage_options: Mapping[str, Any] | None = None,
        default_scan_options: Mapping[str, Any] | None = None,
        read_params: Mapping[str, Any] | None = None,
    ) -> None:
        self._held = snapshot
        self._locks: dict[int, Lock] = {}
        self._root = snapshot.store if root is None else root
        self._freshness = freshness
        self._looked = runtime.monotonic() if freshness is not None else 0.0
        self._storage_options = _options("storage_options", storage_options)
        self._default_scan_options = _options("default_scan_options", default_scan_options)
        self._read_params = _options("read_params", read_params)

    @property
    def _snapshot(self) -> Snapshot:
        """The version to read, renewed first where the handle's freshness asks for it."""
        if self._freshness is not None and runtime.monotonic() - self._looked >= self._freshness:
            self._look()
        return self._held

    def _look(self) -> None:
        started = runtime.monotonic()
        newest = open_latest(self._held.store, self._held.session)
        self._looked = started
        self._move(newest)

    def _move(self, snapshot: Snapshot) -> None:
        """Show another version, which is the newest one as far as we know.

        Another thread may know more by now, so that this only goes forward: whoever has read a version, or
        made one, does not see the table step back. Where the table itself was replaced it follows.
        """
        while True:
            held = self._held
            if snapshot.version < held.version and self._stands(held):
                return
            with self._lock():
                if self._held is held:
                    self._held = snapshot
                    return

    def _stands(self, held: Snapshot) -> bool:
        """Whether a version is one of the table as it is now, or of one before it."""
        try:
            newest = latest_or_none(held.store, held.session)
        except (StoreError, CorruptFile):
            return True  # not known; what was just committed must not fail here
        return newest is not None and newest.version >= held.version

    def _lock(self) -> Lock:
        """A leaf lock of this process: one that another thread held at a fork is not the child's."""
        process = runtime.process_id()
        found = self._locks.get(process)
        return self._locks.setdefault(process, runtime.leaf_lock()) if found is None else found

    @property
    def _store(self) -> Store:
        return self._held.store

    @property
    def _session(self) -> Session:
        return self._held.session

    @property
    def uri(self) -> str:
        """Where the table is."""
        return self._root.uri

    @property
    def version(self) -> int:
        """The version that this handle shows."""
        return self._snapshot.version


def open_root(uri: Any, storage_options: Mapping[str, Any] | None, commit_lock: Any = None) -> Store:
    """The store at a path or URI, or the store given, with a lock around its commits. Raises `InvalidUri` for
    anything else.
    """
    if _is_store(uri):  # a table of a catalog, whose store is open
        return locked(uri, commit_lock)
    if isinstance(uri, os.PathLike):
        uri = os.fspath(uri)
    if not isinstance(uri, str) or not uri:
        raise InvalidUri(f"a table's location is a path or URI, found {arguments.shown(uri)}")
    options = None if storage_options is None else arguments.mapping("storage_options", storage_options)
    return locked(open_store(arguments.text("the location", uri), options), commit_lock)


_store_types: set[type] = set()
"""Types that were found to be stores: asking a protocol costs more than opening a file."""


def _is_store(given: Any) -> bool:
    kind = type(given)
    if kind not in _store_types:
        if kind is str or not isinstance(given, Store):
            return False
        _store_types.add(kind)
    return True


def locked(store: Store, commit_lock: Any) -> Store:
    """The store with a caller's lock around its commits: a function of the version, giving a context manager;
    None for no lock.
    """
    if commit_lock is None:
        return store
    if not callable(commit_lock):
        raise arguments.wrong(
            "commit_lock", "a function of the version that gives a context manager", commit_lock
        )
    from tiltyard.table.commit_lock import under_lock

    return under_lock(store, commit_lock)


def session_of(session: Any, index_bytes: int | None = None, metadata_bytes: int | None = None) -> Session:
    """The session given, one of its own with caches of these sizes (bytes), or the process-wide one."""
    if session is None:
        if index_bytes is None and metadata_bytes is None:
            return default_session()
        return Session(
            index_cache_size_bytes=arguments.maybe_whole("index_cache_size_bytes", index_bytes),
            metadata_cache_size_bytes=arguments.maybe_whole("metadata_cache_size_bytes", metadata_bytes),
        )
    if not isinstance(session, Session):
        raise arguments.wrong("session", "a tiltyard Session", session)
    return session


def seconds_of(freshness: Any) -> float | None:
    """A freshness setting in seconds: None (never look), a number or timedelta, or 'latest' (0)."""
    if freshness is None:
        return None
    if isinstance(freshness, str):
        if freshness != LATEST:
            raise InvalidInput(
                f"freshness must be None, a number of seconds, a timedelta or {LATEST!r}, found "
                f"{arguments.shown(freshness)}"
            )
        return 0.0
    return arguments.seconds("freshness", freshness)


def moment_of(asof: Any) -> datetime:
    """A time as `datetime`: also a date, ISO 8601 text or a pandas timestamp."""
    if isinstance(asof, datetime):
        return asof.to_pydatetime(warn=False) if hasattr(asof, "to_pydatetime") else asof
    if hasattr(asof, "year") and hasattr(asof, "month"):
        return datetime(asof.year, asof.month, asof.day)
    if isinstance(asof, str):
        try:
            return datetime.fromisoformat(asof)
        except ValueError as error:
            raise InvalidInput(f"asof must be an ISO 8601 time, found {arguments.shown(asof)}") from error
    raise arguments.wrong("asof", "a datetime or ISO 8601 text", asof)


def _options(name: str, value: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if value is None else arguments.mapping(name, value)


def refuse(**given: Any) -> None:
    """Raise `UnsupportedFeature` naming the first argument that is given (not None, not False)."""
    for name, value in given.items():
        if value is not None and value is not False:
            raise UnsupportedFeature(f"argument {name!r} is not supported by this version of tiltyard")
