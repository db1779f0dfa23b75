"""Faults on purpose: a store, and a file system, that fail at the k-th call of a kind.

`Fault` is the vocabulary; a `Plan` holds the rules and the trace of all calls; `FaultyStore` and
`FaultyPort` carry the plan out. Run once without rules to learn the calls (`plan.trace`), then once per
call with a rule for it.

A crash is a `BaseException`, and every later call under the same plan raises it again: nothing tidies up
after death (decision D55).

Some faults are more than what becomes of one call. A late duplicate, and a late request, arrive `rule.later`
calls after the call, or at `plan.deliver()`; a clock jump moves the wall clock of a runtime that goes by the
plan (`planned_clock`, `port_installed`). A machine crash is refused here: real files keep what is unsynced.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tiltyard import runtime
from tiltyard.errors import InvalidInput, StoreError, UnsupportedFeature
from tiltyard.runtime import Runtime
from tiltyard.runtime.port import Port
from tiltyard.store.content import buffers_of, flat
from tiltyard.store.protocol import Created, Listing, Names, ObjectStat, ObjectWriter, Store
from tiltyard.store.removing import OneByOne

if TYPE_CHECKING:
    import pyarrow as pa

    from tiltyard.store.protocol import Bytes

T = TypeVar("T")

DEFAULT_DELAY = 0.02  # seconds


class Fault(Enum):
    """What can happen to a call."""

    DELAY = "delay"  # it takes `seconds` longer
    FAIL_BEFORE = "fail before"  # it has no effect, and says so
    FAIL_AFTER = "fail after"  # it has its effect, then fails
    LOSE_REQUEST = "lose request"  # it has no effect, and nobody can say
    LOSE_ANSWER = "lose answer"  # it has its effect, and nobody can say
    PAUSE = "pause"  # the caller stands still before it until `rule.resume`
    PAUSE_AFTER = "pause after"  # the caller stands still after it
    CRASH = "crash"  # the process dies before it
    CRASH_AFTER = "crash after"  # the process dies after it
    LATE_DUPLICATE = "late duplicate"  # it has its effect, and the same request arrives once more later
    LATE_REQUEST = "late request"  # nobody can say, and it has its effect only later
    CLOCK_JUMP = "clock jump"  # the wall clock of the process moves, forwards or backwards
    MACHINE_CRASH = "machine crash"  # every process dies, and what was not synced is lost or not


_BEFORE = (
    *(Fault.DELAY, Fault.PAUSE, Fault.FAIL_BEFORE, Fault.LOSE_REQUEST, Fault.CRASH),
    Fault.CLOCK_JUMP,
)
_DECIDED = (Fault.FAIL_BEFORE,)
_LATE = (Fault.LATE_DUPLICATE, Fault.LATE_REQUEST)

REPEATABLE = frozenset(("create", "put", "write_hint", "copy_create", "delete", "move_dir"))
"""Calls of a store that are one request, which a network can deliver twice."""


class Crashed(BaseException):
    """The process has died; raised by the call at which it did and by every later one."""


@dataclass(eq=False)
class Rule:
    """One fault: at the `at`-th matching call (from 1) and at `times` in a row; None means all from there on.

    `call` is a method's name (`create`, `writer.commit`; for ports `fdatasync`, ...) or a pattern, `path` a
    pattern of object paths. `error` is the errno of failures, `seconds` how long a DELAY takes and how far
    the clock of a CLOCK_JUMP moves (negative: backwards), `later` how many calls a LATE_DUPLICATE or
    LATE_REQUEST is late.
    `reached` is set when the fault strikes. Raises `UnsupportedFeature` for MACHINE_CRASH.
    """

    fault: Fault
    call: str = "*"
    at: int = 1
    times: int | None = 1
    path: str = "*"
    seconds: float = DEFAULT_DELAY
    error: int = errno.EIO
    later: int = 1
    reached: runtime.Event = field(default_factory=runtime.event)
    resume: runtime.Event = field(default_factory=runtime.event)
    seen: int = 0

    def __post_init__(self) -> None:
        if self.fault is Fault.MACHINE_CRASH:
            raise UnsupportedFeature(
                "a plan cannot crash the machine: real files keep what was not synced. The simulated disk "
                "loses it: tiltyard.testing.simulation, Weather(machine_crash=True)"
            )
        if self.fault in _LATE and self.later < 1:
            raise InvalidInput(
                f"a {self.fault.value} arrives 1 call after its call or later, not {self.later}"
            )

    def strikes(self, call: str, path: str) -> bool:
        """Count a call; whether this is one to fail."""
        if not fnmatchcase(call, self.call) or not fnmatchcase(path, self.path):
            return False
        self.seen += 1
        return self.seen >= self.at and (self.times is None or self.seen < self.at + self.times)

    def failure(self, call: str, path: str) -> OSError:
        """The system's error for a failed call."""
        return OSError(self.error, f"{os.strerror(self.error)} (planned: {self.fault.value} of {call})", path)


@dataclass(eq=False)
class _Late:
    """A request that is still on its way, the first or the second time."""

    call: str
    path: str
    effect: Callable[[], object]
    calls_left: int


class Plan:
    """Rules, and what was called: `trace` holds (call, path) in order, `late:call` for what came twice.

    `skew_ns` is how far clock jumps have moved the wall clock.
    """

    def __init__(self, *rules: Rule) -> None:
        self.rules = list(rules)
        self.trace: list[tuple[str, str]] = []
        self.crashed = False
        self.skew_ns = 0
        self.moves_clock = False  # whether a runtime goes by `skew_ns`
        self._late: list[_Late] = []
        self._lock = runtime.leaf_lock()

    def calls(self, call: str = "*", path: str = "*") -> int:
        """How many matching calls were made."""
        return sum(fnmatchcase(one, call) and fnmatchcase(place, path) for one, place in self.trace)

    @property
    def repeats(self) -> bool:
        """Whether a request may be delivered later, so that its bytes have to be kept."""
        return any(rule.fault in _LATE for rule in self.rules)

    def deliver(self) -> int:
        """Let every late request arrive now; how many did. Nobody hears what becomes of them."""
        with self._lock:
            due, self._late = self._late, []
        self._arrive(due)
        return len(due)

    def _arrive(self, due: list[_Late]) -> None:
        for request in due:
            with self._lock:
                self.trace.append((f"late:{request.call}", request.path))
            with suppress(StoreError):
                request.effect()

    def _arrivals(self) -> None:
        with self._lock:
            for request in self._late:
                request.calls_left -= 1
            due = [request for request in self._late if request.calls_left <= 0]
            self._late = [request for request in self._late if request.calls_left > 0]
        self._arrive(due)

    def _again(self, rule: Rule, call: str, path: str, effect: Callable[[], object]) -> None:
        with self._lock:
            self._late.append(_Late(call, path, effect, rule.later))

    def _jump(self, rule: Rule, call: str) -> None:
        if not self.moves_clock:
            raise UnsupportedFeature(
                f"a clock jump was planned at {call}, but no clock goes by this plan: make the store and "
                "what uses it within planned_clock(plan), or port_installed(FaultyPort(plan))"
            )
        with self._lock:
            self.skew_ns += round(rule.seconds * 1e9)

    def _rule_for(self, call: str, path: str) -> Rule | None:
        self._arrivals()
        with self._lock:
            if self.crashed:
                raise Crashed(f"{call} {path} after the crash")
            self.trace.append((call, path))
            struck = [rule for rule in self.rules if rule.strikes(call, path)]
        return struck[0] if struck else None

    def _crash(self, call: str, path: str) -> None:
        self.crashed = True
        raise Crashed(f"{call} {path}")

    def run(self, call: str, path: str, effect: Callable[[], T], failed: Callable[[Rule], T]) -> T:
        """Make a call with what the plan has for it; `failed(rule)` answers, or raises, for a failing one."""
        rule = self._rule_for(call, path)
        if rule is None:
            return effect()
        if rule.fault in _LATE and call not in REPEATABLE:
            raise UnsupportedFeature(
                f"a {rule.fault.value} of {call} was planned, which is not one request of a store: name one "
                f"of {', '.join(sorted(REPEATABLE))}"
            )
        rule.reached.set()
        if rule.fault is Fault.LATE_REQUEST:
            self._again(rule, call, path, effect)
            return failed(rule)
        if rule.fault in _BEFORE:
            match rule.fault:
                case Fault.DELAY:
                    runtime.sleep(rule.seconds)
                case Fault.PAUSE:
                    rule.resume.wait()
                case Fault.CRASH:
                    self._crash(call, path)
                case Fault.CLOCK_JUMP:
                    self._jump(rule, call)
                case _:
                    return failed(rule)
            return effect()
        try:
            answer = effect()
        except Exception:
            if rule.fault is Fault.CRASH_AFTER:
                self._crash(call, path)
            raise
        match rule.fault:
            case Fault.PAUSE_AFTER:
                rule.resume.wait()
            case Fault.CRASH_AFTER:
                self._crash(call, path)
            case Fault.LATE_DUPLICATE:
                self._again(rule, call, path, effect)
            case _:
                return failed(rule)
        return answer


class FaultyStore(OneByOne):
    """A store that does what another one does, but for what the plan says.

    Failures are `StoreError`s; `create`, `copy_create` and `move_dir` answer NOT_DONE for FAIL_BEFORE and
    UNKNOWN for the others. Sub-stores and writers go by the same plan; of many removals each is a `delete`.
    `now_ns` is the store's clock, which no clock jump moves.
    """

    def __init__(self, store: Store, plan: Plan, _prefix: str = "") -> None:
        self.inner = store
        self.plan = plan
        self._prefix = _prefix
        self._failures: dict[str, BaseException] = {}

    @property
    def uri(self) -> str:
        return self.inner.uri

    @property
    def identity(self) -> str:
        return self.inner.identity

    @property
    def durable(self) -> bool:
        return self.inner.durable

    @property
    def create_mode(self) -> str:
        return self.inner.create_mode

    def _full(self, path: str) -> str:
        return f"{self._prefix}/{path}" if self._prefix and path else self._prefix or path

    def _do(self, call: str, path: str, effect: Callable[[], T]) -> T:
        full = self._full(path)

        def failed(rule: Rule) -> T:
            raise StoreError(f"cannot {call} {full}: planned {rule.fault.value}") from rule.failure(
                call, full
            )

        return self.plan.run(call, full, effect, failed)

    def _decide(self, call: str, path: str, effect: Callable[[], Created]) -> Created:
        full = self._full(path)

        def failed(rule: Rule) -> Created:
            self._failures[path] = StoreError(f"cannot {call} {full}: planned {rule.fault.value}")
            return Created.NOT_DONE if rule.fault in _DECIDED else Created.UNKNOWN

        self._failures.pop(path, None)
        return self.plan.run(call, full, effect, failed)

    # -- reading ---------------------------------------------------------------------------------

    def read(self, path: str, start: int = 0, length: int | None = None) -> pa.Buffer:
        return self._do("read", path, lambda: self.inner.read(path, start, length))

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        return self._do("read_ranges", path, lambda: self.inner.read_ranges(path, ranges))

    def map(self, path: str, size: int | None = None) -> pa.Buffer:
        return self._do("map", path, lambda: self.inner.map(path, size))

    def stat(self, path: str) -> ObjectStat:
        return self._do("stat", path, lambda: self.inner.stat(path))

    def exists(self, path: str) -> bool:
        return self._do("exists", path, lambda: self.inner.exists(path))

    def list(self, prefix: str = "", start_after: str = "") -> Listing:
        return self._do("list", prefix, lambda: self.inner.list(prefix, start_after))

    def list_names(self, directory: str = "") -> Names:
        return self._do("list_names", directory, lambda: self.inner.list_names(directory))

    def dir_stat(self, directory: str) -> int | None:
        return self._do("dir_stat", directory, lambda: self.inner.dir_stat(directory))

    def now_ns(self) -> int:
        return self.inner.now_ns()

    # -- writing ---------------------------------------------------------------------------------

    def create(self, path: str, data: Bytes | Sequence[Bytes]) -> Created:
        kept = self._kept(data)
        return self._decide("create", path, lambda: self.inner.create(path, kept))

    def _kept(self, data: Bytes | Sequence[Bytes]) -> Bytes | Sequence[Bytes]:
        """The data; a copy if it may be sent again, when the caller's buffers hold something else."""
        return b"".join([bytes(flat(each)) for each in buffers_of(data)]) if self.plan.repeats else data

    def failure(self, path: str) -> BaseException | None:
        return self._failures.get(path) or self.inner.failure(path)

    def put(self, path: str, data: Bytes | Sequence[Bytes]) -> None:
        kept = self._kept(data)
        self._do("put", path, lambda: self.inner.put(path, kept))

    def writer(self, path: str) -> ObjectWriter:
        return self._do("writer", path, lambda: FaultyWriter(self.inner.writer(path), self, path))

    def write_hint(self, path: str, data: bytes, *, sync: bool = False) -> None:
        self._do("write_hint", path, lambda: self.inner.write_hint(path, data, sync=sync))

    def copy_create(self, source: str, target: str) -> Created:
        return self._decide("copy_create", target, lambda: self.inner.copy_create(source, target))

    def move_dir(self, source: str, target: str) -> Created:
        return self._decide("move_dir", target, lambda: self.inner.move_dir(source, target))

    @contextmanager
    def together(self) -> Iterator[Self]:
        with ExitStack() as held:
            yield self._over(held.enter_context(self.inner.together()), self._prefix)
            self._do("together", "", held.close)

    def delete(self, path: str) -> bool:
        return self._do("delete", path, lambda: self.inner.delete(path))

    def delete_tree(self, directory: str) -> None:
        self._do("delete_tree", directory, lambda: self.inner.delete_tree(directory))

    def sync_dir(self, directory: str) -> None:
        self._do("sync_dir", directory, lambda: self.inner.sync_dir(directory))

    def turnstile(self, directory: str, seconds: float) -> AbstractContextManager[bool]:
        return self._do("turnstile", directory, lambda: self.inner.turnstile(directory, seconds))

    def at(self, prefix: str) -> Self:
        return self._over(self.inner.at(prefix), self._full(prefix.rstrip("/")))

    def successor(self) -> Self | None:
        inner = self.inner.successor()
        return None if inner is None else self._over(inner, self._prefix)

    def _over(self, inner: Store, prefix: str) -> Self:
        """A store over another one; one derived from this store where this one is."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        FaultyStore.__init__(other, inner, self.plan, prefix)
        return other


class FaultyWriter:
    """The writer of a `FaultyStore`; its calls are `writer.write`, `writer.commit` and `writer.abort`."""

    def __init__(self, writer: ObjectWriter, store: FaultyStore, path: str) -> None:
        self._writer = writer
        self._store = store
        self.path = path

    @property
    def position(self) -> int:
        return self._writer.position

    def write(self, buffers: Sequence[Bytes]) -> None:
        self._store._do("writer.write", self.path, lambda: self._writer.write(buffers))

    def commit(self) -> int:
        return self._store._do("writer.commit", self.path, self._writer.commit)

    def abort(self) -> None:
        self._store._do("writer.abort", self.path, self._writer.abort)

    def __enter__(self) -> FaultyWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()


class FaultyPort(Port):
    """A file-system port that goes by a plan; the calls are the port's method names.

    Failures are `OSError`s with the rule's errno; LOSE_REQUEST and LOSE_ANSWER fail like FAIL_BEFORE and
    FAIL_AFTER: a system call always answers. Calls on a handle have no path. A LATE_DUPLICATE and a
    LATE_REQUEST are refused: no system call is done twice, or after its answer.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        if plan.repeats:
            raise UnsupportedFeature(
                "late duplicates and late requests are faults of object stores: a system call is never done "
                "twice, nor after its answer; use FaultyStore"
            )
        self.plan = plan


def _planned(name: str) -> Callable[..., Any]:
    def call(self: FaultyPort, *args: Any) -> Any:
        path = next((arg for arg in args if isinstance(arg, str)), "")

        def failed(rule: Rule) -> Any:
            raise rule.failure(name, path)

        return self.plan.run(name, path, lambda: getattr(Port, name)(self, *args), failed)

    return call


PORT_CALLS = tuple(
    name
    for name, member in vars(Port).items()
    if callable(member) and not name.startswith("_") and name not in ("user_path", "release")
)
for _name in PORT_CALLS:
    setattr(FaultyPort, _name, _planned(_name))


def refusing(**errors: int) -> Plan:
    """A plan for a port on which the named calls always fail: `refusing(link_handle=errno.EPERM)`."""
    return Plan(*(Rule(Fault.FAIL_BEFORE, call, times=None, error=code) for call, code in errors.items()))


class _PlannedRuntime(Runtime):
    """A runtime whose wall clock is moved by the clock jumps of a plan."""

    def __init__(self, port: Port, plan: Plan) -> None:
        super().__init__(port)
        self._plan = plan
        plan.moves_clock = True

    def now_ns(self) -> int:
        return super().now_ns() + self._plan.skew_ns


@contextmanager
def port_installed(port: Port) -> Iterator[Runtime]:
    """Within the block, stores that are made use `port`; they keep it afterwards. The plan of a `FaultyPort`
    moves the wall clock as well.
    """
    with _installed(
        _PlannedRuntime(port, port.plan) if isinstance(port, FaultyPort) else Runtime(port)
    ) as made:
        yield made


@contextmanager
def planned_clock(plan: Plan) -> Iterator[Runtime]:
    """Within the block, the wall clock goes by the clock jumps of a plan; for plans of a `FaultyStore`."""
    with _installed(_PlannedRuntime(runtime.current().port, plan)) as made:
        yield made


@contextmanager
def _installed(changed: Runtime) -> Iterator[Runtime]:
    before = runtime.install(changed)
    try:
        yield changed
    finally:
        runtime.install(before)
