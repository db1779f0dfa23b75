"""The probe itself: a scratch directory, processes, every promise, and nothing left behind."""

from __future__ import annotations

import errno
import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from tiltyard import runtime
from tiltyard.errors import ConditionsNotKept, InvalidInput, ObjectNotFound, StoreError
from tiltyard.store import Created, Store, open_store
from tiltyard.store.failures import translated
from tiltyard.store.local import LocalStore
from tiltyard.store.memory import MemoryStore
from tiltyard.store.remote.store import RemoteStore
from tiltyard.testing.probe.calls import file_system, try_calls
from tiltyard.testing.probe.crew import Crew
from tiltyard.testing.probe.findings import Call, Finding, Grade, Report
from tiltyard.testing.probe.promises import CHECKS, NAMES, Ground

PROCESSES = 3
SCRATCH_PREFIX = ".tiltyard-probe-"
"""How the names of scratch directories begin; no table and no lake takes one for its own."""

_STOPPING = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE),
    *(errno.EACCES, errno.EPERM),
)
"""Failures of the first write after which nothing can be told of the store."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)
"""Those that can also come later, without saying anything about the store."""

OPEN_STORE = "tiltyard.store:open_store"


def probe(uri: str | os.PathLike[str], options: Mapping[str, Any] | None = None) -> Report:
    """What becomes of each promise at a location: a directory that exists, or `memory://name`.

    Raises `ObjectNotFound` for a directory that is not there, `StoreError` for one that cannot be written or
    is full, `ConditionsNotKept` for an object store that is found out before anything is written,
    `UnsupportedFeature` and `InvalidUri` for locations that are not served.
    """
    given = dict(options or {})
    store = open_store(uri, given)
    if isinstance(store, LocalStore):
        check_directory(store.uri)
    place = store.uri
    processes = None if isinstance(store, MemoryStore) else (OPEN_STORE, [place, given])
    return probe_store(lambda: open_store(place, given), processes=processes)


def check_directory(path: str) -> None:
    port = runtime.current().port
    try:
        port.close(port.open_dir(path))
    except FileNotFoundError as error:
        raise ObjectNotFound(
            f"cannot probe {path}: there is no such directory; make it first, or probe the one above it "
            "(a probe makes none that it would have to leave behind)"
        ) from error
    except NotADirectoryError as error:
        raise InvalidInput(f"cannot probe {path}: it is a file, and a store is a directory") from error
    except OSError as error:
        raise translated(error, "probe", path, "") from error


def probe_store(make: Callable[[], Store], *, processes: tuple[str, Sequence[Any]] | None = None) -> Report:
    """What becomes of each promise of a store of any kind. `make` opens it anew, each time at the same place.

    `processes`: how another process opens it, as ("package.module:function", arguments that JSON can carry);
    None for a store that lives in one process. Works below `.tiltyard-probe-...`, which it removes.
    """
    began = time.monotonic()
    root = make()
    scratch = SCRATCH_PREFIX + uuid.uuid4().hex
    left = [name for name in root.list_names() if name.startswith(SCRATCH_PREFIX)]
    findings: list[Finding] = []
    calls: tuple[Call, ...] = ()
    try:
        store = root.at(scratch)
        _first_write(root, store, scratch)
        if isinstance(store, LocalStore):
            calls = try_calls(runtime.current().port, f"{root.uri.rstrip('/')}/{scratch}")
        with ExitStack() as ending:
            crew = None
            if processes is not None:
                opener, arguments = processes
                crew = ending.enter_context(Crew(PROCESSES, opener, arguments, scratch))
            ground = Ground(store, make().at(scratch), lambda: make().at(scratch), crew)
            for check in CHECKS:
                findings += asked(check, ground, root.uri)
    finally:
        root.delete_tree(scratch)
    findings.append(_removed(root, scratch, left))
    took = time.monotonic() - began
    return Report(root.uri, _medium(store), tuple(findings), calls, tuple(ground.facts), took)


def _first_write(root: Store, store: Store, scratch: str) -> None:
    """Refuse a location that cannot be written at all."""
    answer = store.create("first", b"1")
    cause = store.failure("first")
    if answer is Created.WON:
        return
    if isinstance(cause, ConditionsNotKept):
        raise cause
    if getattr(cause, "errno", None) in _STOPPING or scratch not in root.list_names():
        raise StoreError(f"cannot probe {root.uri}, which cannot be written: {cause}") from cause


def asked(check: Callable[[Ground], Finding | list[Finding]], ground: Ground, uri: str) -> list[Finding]:
    """What a check finds; a failure of the store is a broken promise, a full disk none."""
    try:
        found = check(ground)
    except StoreError as error:
        chain: BaseException | None = error
        while chain is not None:
            if getattr(chain, "errno", None) in _FULL:
                raise StoreError(f"cannot probe {uri}: {error}") from error
            chain = chain.__cause__
        meaning = "tables rely on it"
        return [Finding(name, Grade.BROKEN, str(error), meaning) for name in NAMES[check.__name__]]
    return found if isinstance(found, list) else [found]


REMOVED = "nothing left behind"


def _removed(root: Store, scratch: str, left: Sequence[str]) -> Finding:
    if scratch in root.list_names():
        return Finding(REMOVED, Grade.BROKEN, f"{scratch} is still there", "removed directories come back")
    if left:
        return Finding(
            REMOVED, Grade.KEPT, f"but an earlier probe left {', '.join(left)}", "remove it: nothing uses it"
        )
    return Finding(REMOVED, Grade.KEPT, "the probe's directory is gone")


def _medium(store: Store) -> str:
    if isinstance(store, MemoryStore):
        return "memory of this process"
    if isinstance(store, RemoteStore):
        return f"object store: {store.client.place}"
    if not isinstance(store, LocalStore):
        return type(store).__name__
    kind = file_system(store.uri) or "unknown kind"
    port = runtime.current().port
    above = store.uri.rpartition("/")[0] or "/"
    fd = port.open_dir(above)
    try:
        remote = port.is_remote(fd)
    finally:
        port.close(fd)
    return f"network or user-space file system ({kind})" if remote else f"local file system ({kind})"
