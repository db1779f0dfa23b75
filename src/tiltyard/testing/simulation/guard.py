"""Catches product code that reaches around the runtime during a run: time, chance, threads, files, networks.

Whatever the product does behind `tiltyard.runtime` would make two runs of one seed differ. While an actor
runs three nets hang below it:

- *doors*: functions and methods of the standard library that ask a clock or chance or begin a thread. They
  are watched where they are kept, and where the product holds them under a name of its own (`from time
  import monotonic`, a default argument, an attribute of a class);
- *methods of built-in types* (`datetime.now`), which are watched in the type itself;
- *audit events* of the interpreter: whatever opens, lists, renames or removes a file, connects, or starts a
  process, in whatever way and through however many modules.

Who knocks is the innermost caller that is not the standard library: if it is the product, or the package
that the scenario comes from, the run ends with its module and line. Everything else (Arrow, NumPy) goes
through as ever, imports too.
"""

from __future__ import annotations

import builtins
import ctypes
import datetime
import gc
import os
import random
import secrets
import socket
import sys
import threading
import time
import types
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from tiltyard.testing.simulation.scheduler import Scheduler, SimulationError

_CLOCKS = tuple(
    f"{clock}{unit}"
    for clock in ("time", "monotonic", "perf_counter", "process_time", "thread_time")
    for unit in ("", "_ns")
)

DOORS: tuple[tuple[Any, str], ...] = (
    *((time, name) for name in (*_CLOCKS, "clock_gettime", "clock_gettime_ns", "sleep")),
    *(
        (random, name)
        for name in (
            *("random", "randrange", "randint", "choice", "choices", "sample", "shuffle", "uniform"),
            *("gauss", "getrandbits", "randbytes", "seed"),
        )
    ),
    *((secrets, name) for name in ("choice", "randbelow", "token_bytes", "token_hex", "token_urlsafe")),
    *((np.random, name) for name in ("rand", "randint", "random", "choice", "permutation", "shuffle")),
    *((uuid, name) for name in ("uuid1", "uuid4", "getnode")),
    *((os, name) for name in ("urandom", "getrandom", "getpid", "open", "listdir", "scandir")),
    *((os, name) for name in ("stat", "lstat", "access", "rename", "replace", "link", "unlink", "mkdir")),
    (threading.Thread, "start"),
    (socket, "create_connection"),
    (builtins, "open"),
)
"""What product code may reach only through its runtime, and where it is kept."""

UNSEEDED: tuple[tuple[Any, str], ...] = (
    (random.Random, "__init__"),
    (np.random, "default_rng"),
    *((time, name) for name in ("localtime", "gmtime", "ctime")),
)
"""The same, where the call names nothing to go by: a seed, a moment."""

METHODS: tuple[tuple[type, str], ...] = (
    (datetime.datetime, "now"),
    (datetime.datetime, "utcnow"),
)
"""Class methods of built-in types, which cannot be replaced from outside but in the type's own dictionary."""

_AUDITED = frozenset(
    (
        *("open", "os", "shutil", "tempfile", "glob", "pathlib", "mmap", "fcntl", "sqlite3", "dbm"),
        *("socket", "ssl", "http", "urllib", "ftplib", "smtplib", "subprocess", "pty", "_thread"),
    )
)
"""Families of audit events (the part before the dot) that touch the world."""

_HARMLESS_EVENTS = frozenset(("os.putenv", "os.unsetenv", "os.listxattr"))

_PRODUCT = "tiltyard"
_ALLOWED = ("tiltyard.testing", "tiltyard.runtime")
"""The harness and the seams themselves."""

_STANDARD = sys.stdlib_module_names
_INNOCENT = frozenset(("importlib", "linecache", "traceback", "warnings", "weakref", "logging"))
"""Parts of the standard library that touch files or clocks on nobody's behalf: imports, the texts of warnings
and tracebacks, finalizers that happen to run now.
"""


class NotDeterministic(SimulationError):
    """Product code touched the real world behind its runtime."""


_watching: Scheduler | None = None
"""Whose actors are watched now. The watchers stay the same, also where somebody keeps one."""

_ours: tuple[str, ...] = (_PRODUCT,)
"""Top-level names of the packages that are watched now."""


def _culprit() -> str | None:
    """Module and line of the product that made the call which is being watched; None if it is not its."""
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        top = module.partition(".")[0]
        if top in _INNOCENT or frame.f_code.co_name == "__del__":
            return None
        if top in _ours:
            return None if module.startswith(_ALLOWED) else f"{module}:{frame.f_lineno}"
        if top not in _STANDARD:
            return None
        frame = frame.f_back
    return None


def _told(scheduler: Scheduler, place: str, what: str) -> NotDeterministic:
    error = NotDeterministic(
        f"{place} calls {what} behind the runtime; use tiltyard.runtime, which a simulation replaces"
    )
    scheduler.blamed(error)
    return error


def _watched(function: Callable[..., Any], what: str, seeded: Callable[..., bool]) -> Callable[..., Any]:
    """The function, which first looks who calls it."""

    def call(*args: Any, **kwargs: Any) -> Any:
        scheduler = _watching
        if scheduler is not None and scheduler.running is not None and not seeded(args, kwargs):
            place = _culprit()
            if place is not None:
                raise _told(scheduler, place, what)
        return function(*args, **kwargs)

    return call


def _never(args: Any, kwargs: Any) -> bool:
    return False


def _with_arguments(args: Any, kwargs: Any) -> bool:
    return any(each is not None for each in (*args, *kwargs.values()))


def _with_arguments_but_self(args: Any, kwargs: Any) -> bool:
    return _with_arguments(args[1:], kwargs)


def _every_watcher() -> dict[int, tuple[Any, str, Any, Any]]:
    """By the identity of what is watched: where it is kept, its name, itself, its watcher."""
    found = {}
    for owner, name in DOORS + UNSEEDED:
        function = getattr(owner, name, None)
        if function is None:
            continue
        seeded = _never
        if (owner, name) in UNSEEDED:
            seeded = _with_arguments_but_self if isinstance(owner, type) else _with_arguments
        told = f"{getattr(owner, '__name__', owner)}.{name}"
        found[id(function)] = (owner, name, function, _watched(function, told, seeded))
    return found


_WATCHERS = _every_watcher()
_BY_WATCHER = {id(watcher): function for _, _, function, watcher in _WATCHERS.values()}


# -- names of the product's own ----------------------------------------------------------------------

_Put = Callable[[], None]


class _Held:
    """Where the product's modules hold doors; each module is looked through once."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self.places: list[tuple[_Put, _Put]] = []
        """How to put a watcher there, and how to put back what was there."""

    def look(self) -> None:
        """Look through the modules that are new."""
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] not in _ours or name.startswith(_ALLOWED):
                continue
            if self._seen.get(name) != id(module):
                self._seen[name] = id(module)
                self._look_at(module, name)

    def _look_at(self, owner: Any, module: str) -> None:
        for name, value in list(vars(owner).items()):
            inner = value.__func__ if isinstance(value, staticmethod) else value
            function = _BY_WATCHER.get(id(inner), inner)  # bound while somebody else's run was watched
            if id(function) in _WATCHERS:
                self._attribute(owner, name, function, isinstance(value, staticmethod))
            elif isinstance(value, type) and value.__module__ == module and owner is not value:
                self._look_at(value, module)
            elif isinstance(inner, types.FunctionType) and inner.__module__ == module:
                self._defaults(inner)

    def _attribute(self, owner: Any, name: str, function: Any, static: bool) -> None:
        watcher = _WATCHERS[id(function)][3]
        old, new = (staticmethod(function), staticmethod(watcher)) if static else (function, watcher)
        self.places.append((lambda: setattr(owner, name, new), lambda: setattr(owner, name, old)))

    def _defaults(self, function: types.FunctionType) -> None:
        plain, named = function.__defaults__ or (), function.__kwdefaults__ or {}
        if not any(id(each) in _WATCHERS for each in (*plain, *named.values())):
            return

        def watched(value: Any) -> Any:
            return _WATCHERS[id(value)][3] if id(value) in _WATCHERS else value

        def put(defaults: Any, by_name: Any) -> None:
            function.__defaults__, function.__kwdefaults__ = defaults or None, by_name or None

        new_plain, new_named = tuple(map(watched, plain)), {key: watched(each) for key, each in named.items()}
        self.places.append((lambda: put(new_plain, new_named), lambda: put(plain, named)))


_held = _Held()


# -- built-in types ----------------------------------------------------------------------------------


def _put_into_type(kind: type, name: str, value: Any) -> None:
    """Replace an attribute of a built-in type, as `setattr` does for others."""
    inside = gc.get_referents(kind.__dict__)[0]
    inside[name] = value
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))


def _watched_method(kind: type, name: str) -> Any:
    real = kind.__dict__[name]

    def call(cls: type, *args: Any, **kwargs: Any) -> Any:
        scheduler = _watching
        if scheduler is not None and scheduler.running is not None:
            place = _culprit()
            if place is not None:
                raise _told(scheduler, place, f"{kind.__name__}.{name}")
        return real.__get__(None, cls)(*args, **kwargs)

    return classmethod(call)


# -- audit events ------------------------------------------------------------------------------------

_audited = False


def _audit(event: str, args: tuple[Any, ...]) -> None:
    scheduler = _watching
    if scheduler is None or scheduler.running is None:
        return
    if event.partition(".")[0] not in _AUDITED or event in _HARMLESS_EVENTS:
        return
    place = _culprit()
    if place is not None:
        named = f" of {args[0]!r}" if args and isinstance(args[0], (str, bytes, int)) else ""
        raise _told(scheduler, place, f"{event}{named}")


@contextmanager
def guarded(scheduler: Scheduler, package: str = _PRODUCT) -> Iterator[None]:
    """Within the block the doors are watched while an actor runs; who knocks ends the run. `package`: a
    module of the scenario's own, whose package is watched like the product.

    The audit hook is there from the first block to the end of the process, as Python has no way to take one
    away; outside of the blocks it looks at nothing.
    """
    global _watching, _audited, _ours
    if not _audited:
        sys.addaudithook(_audit)
        _audited = True
    before = _watching, _ours
    _ours = (_PRODUCT, package.partition(".")[0])
    _held.look()
    with ExitStack() as open_again:
        for owner, name, function, watcher in _WATCHERS.values():
            setattr(owner, name, watcher)
            open_again.callback(setattr, owner, name, function)
        for put, put_back in _held.places:
            put()
            open_again.callback(put_back)
        for kind, name in METHODS:
            real = kind.__dict__[name]
            _put_into_type(kind, name, _watched_method(kind, name))
            open_again.callback(_put_into_type, kind, name, real)
        _watching = scheduler
        try:
            yield
        finally:
            _watching, _ours = before
