"""Which faults strike in a run: asked of the run's choices at every call, each kind can be switched off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeAlias, TypeVar

from tiltyard.testing.faults import Crashed, Fault
from tiltyard.testing.simulation.scheduler import Process, Scheduler

T = TypeVar("T")
Failed: TypeAlias = Callable[[Fault], T]

STALLS_SECONDS = (0.03, 2.0, 40.0, 4_000.0, 800_000.0)
"""How long an actor may stand still: a paused scheduler, a slow disk, a suspended laptop, over night, beyond
every grace period.
"""


REQUEST_SECONDS = (0.03, 2.0, 40.0)
"""How long a request may be on its way before it arrives, or arrives once more."""


class Kind(Enum):
    """What a call does, which decides the faults that it may meet."""

    QUIET = auto()
    """Neither interesting to others nor likely to fail: no scheduling point."""
    READ = auto()
    WRITE = auto()
    NAME = auto()
    REMOTE_NAME = auto()
    """The same at a server: the request can be late; where its answer is lost, the client of the network file
    system sends it again, and the caller is told what the second one met.
    """
    REMOTE_REMOVAL = auto()
    """A name taken away at a server: late, but never sent again, which could take away another one."""
    SYNC = auto()
    REQUEST = auto()
    """Creation, replacement or deletion in an object store: a request and an answer, each of which can be
    lost, late or doubled.
    """


@dataclass(frozen=True, slots=True)
class Weather:
    """What may happen in a run. `chance` is that of a fault at a call; `most` bounds the faults of a run.

    `faults` are those allowed; `stalls` the seconds that an actor may stand still. `failing_reads`: whether
    reads and lists may fail too, now and then.
    """

    faults: frozenset[Fault] = frozenset()
    chance: float = 0.02
    most: int = 2
    stalls: tuple[float, ...] = STALLS_SECONDS
    machine_crash: bool = False
    failing_reads: bool = False


CALM = Weather()

JUMPS_NS = (7_200_000_000_000, -7_200_000_000_000)
"""How far a clock jumps: two hours, forwards or backwards."""

READ_SHARE = 0.25
"""How much rarer a fault is at a read than at what others can see."""

_OF_NAMES = (
    Fault.CRASH,
    Fault.PAUSE,
    Fault.FAIL_BEFORE,
    Fault.FAIL_AFTER,
    Fault.CRASH_AFTER,
    Fault.PAUSE_AFTER,
)

_ALLOWED: dict[Kind, tuple[Fault, ...]] = {
    Kind.QUIET: (),
    Kind.READ: (Fault.CRASH, Fault.PAUSE, Fault.CLOCK_JUMP),
    Kind.WRITE: (Fault.CRASH, Fault.PAUSE, Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.CRASH_AFTER),
    Kind.NAME: _OF_NAMES,
    Kind.REMOTE_NAME: (*_OF_NAMES, Fault.LOSE_ANSWER, Fault.LATE_REQUEST),
    Kind.REMOTE_REMOVAL: (*_OF_NAMES, Fault.LATE_REQUEST),
    Kind.SYNC: (Fault.CRASH, Fault.PAUSE, Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.CRASH_AFTER),
    Kind.REQUEST: (
        Fault.CRASH,
        Fault.PAUSE,
        Fault.FAIL_BEFORE,
        Fault.LOSE_REQUEST,
        Fault.LOSE_ANSWER,
        Fault.LATE_REQUEST,
        Fault.LATE_DUPLICATE,
        Fault.CRASH_AFTER,
        Fault.PAUSE_AFTER,
    ),
}

FAILING_READ = "failing read"
"""How failing reads are counted."""


class MachineCrash(Crashed):
    """The machine went down under an actor."""


@dataclass(eq=False)
class Storm:
    """The faults of one run, and how often each struck."""

    scheduler: Scheduler
    weather: Weather
    struck: Counter[str] = field(default_factory=Counter)
    machine_down: bool = False
    _network: Process | None = None

    def call(self, kind: Kind, what: str, effect: Callable[[], T], failed: Failed[T]) -> T:
        """Make a call: a scheduling point, then its effect or a fault. `failed(fault)` answers, or raises,
        for a call that fails.
        """
        scheduler = self.scheduler
        if scheduler.running is None:
            return effect()  # the scenario looks around before or after the run
        if kind is Kind.QUIET:
            scheduler.check_alive()
            return effect()
        scheduler.point(what)
        fault = self._fault(kind)
        if fault is None:
            return effect()
        told = FAILING_READ if kind is Kind.READ and fault is Fault.FAIL_BEFORE else fault.value
        self.struck[told] += 1
        scheduler.note(f"{told}: {what}")
        if kind is Kind.REMOTE_NAME and fault is Fault.LOSE_ANSWER:
            effect()
            return effect()
        return self._suffer(fault, what, effect, failed)

    def _fault(self, kind: Kind) -> Fault | None:
        weather = self.weather
        if sum(self.struck.values()) >= weather.most:
            return None
        allowed = [fault for fault in _ALLOWED[kind] if fault in weather.faults]
        more = []
        if kind is Kind.READ and weather.failing_reads:
            more = [Fault.FAIL_BEFORE]
        elif kind is not Kind.READ and weather.machine_crash:
            more = [Fault.MACHINE_CRASH]
        options: list[Fault | None] = [None, *allowed, *more]
        chance = weather.chance * (READ_SHARE if kind is Kind.READ else 1)
        return options[self.scheduler.choices.choose(len(options), chance)]

    def _suffer(self, fault: Fault, what: str, effect: Callable[[], T], failed: Failed[T]) -> T:
        scheduler = self.scheduler
        match fault:
            case Fault.CRASH:
                self._die(what)
            case Fault.MACHINE_CRASH:
                self.machine_down = True
                for process in scheduler.processes:
                    if scheduler.running is None or process is not scheduler.running.process:
                        scheduler.kill(process, "with the machine")
                self._die("with the machine")
            case Fault.PAUSE:
                self._stall(what)
                return effect()
            case Fault.CLOCK_JUMP:
                running = scheduler.running
                assert running is not None
                running.process.skew_ns += JUMPS_NS[scheduler.choices.choose(len(JUMPS_NS), 0.5)]
                return effect()
            case Fault.FAIL_BEFORE | Fault.LOSE_REQUEST:
                return failed(fault)
            case Fault.LATE_REQUEST:
                self._later(what, "arrives late", effect)
                return failed(fault)
            case _:
                pass
        answer = effect()
        match fault:
            case Fault.PAUSE_AFTER:
                self._stall(what)
            case Fault.CRASH_AFTER:
                self._die(f"after {what}")
            case Fault.FAIL_AFTER | Fault.LOSE_ANSWER:
                return failed(fault)
            case Fault.LATE_DUPLICATE:
                self._later(what, "arrives once more", effect)
            case _:
                pass
        return answer

    def _die(self, what: str) -> None:
        running = self.scheduler.running
        assert running is not None
        self.scheduler.kill(running.process, what)

    def _stall(self, what: str) -> None:
        stalls = self.weather.stalls
        seconds = stalls[self.scheduler.choices.choose(len(stalls), 0.7)]
        self.scheduler.stall(seconds, what)

    def _later(self, what: str, told: str, effect: Callable[[], object]) -> None:
        scheduler = self.scheduler
        seconds = REQUEST_SECONDS[scheduler.choices.choose(len(REQUEST_SECONDS), 0.7)]

        def arrive() -> None:
            scheduler.stall(seconds, f"on the way: {what}")
            scheduler.note(f"{told}: {what}")
            with suppress(OSError):  # nobody hears what becomes of it
                effect()

        if self._network is None:
            self._network = scheduler.process("network")
        scheduler.actor(self._network, arrive)
