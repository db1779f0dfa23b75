"""The scheduler: actors are ordinary functions on threads of their own, of which exactly one runs at a time.

A switch can happen at scheduling points only: calls of the store or the file-system port, clock reads with a
deadline, waits, locks, spawns (decision D53). The thread that runs holds the baton; at a point it asks the
run's choices who goes on and hands the baton over. Virtual time passes a little at every point, and else
only when every actor waits; then it moves to the earliest deadline (D54).

Threads with a baton were measured against greenlets' promise: a hand-over costs 5 to 17 us, a short run has
a few hundred of them, and product code that holds a real lock by mistake shows as what it is.

A crash is a `Crashed` raised at a point; every later point of that process raises it again (D55).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tiltyard.testing.faults import Crashed
from tiltyard.testing.simulation.choices import Choices

MAX_STEPS = 200_000
"""Scheduling points of a run; more is a live-lock."""

STEP_NS = 20_000
"""Virtual time that passes at a point."""

FIRST_NS = 1_700_000_000_000_000_000
"""When a run begins: a fixed moment, ns since 1970."""

SILENCE_SECONDS = 120.0
"""Real time without a scheduling point after which the actor that runs is taken to be stuck on something
real.
"""

Predicate = Callable[[], bool]


class SimulationError(AssertionError):
    """The run itself is at fault, not what it checks: a dead-lock, a live-lock, an actor that got stuck."""


class Stopped(BaseException):
    """The run is over; raised in actors that are still on their way."""


@dataclass(eq=False)
class Process:
    """A simulated process: what a crash takes at once. `skew_ns` is how far its wall clock is off."""

    name: str
    number: int
    skew_ns: int = 0
    dead: bool = False


@dataclass(eq=False)
class Actor:
    """A thread of control of a process."""

    name: str
    process: Process
    run: Callable[[], Any]
    gate: threading.Lock = field(default_factory=threading.Lock)
    ready: Predicate | None = None
    """What it waits for; None while it can go on."""
    deadline_ns: int | None = None
    """When it stops waiting in any case."""
    done: bool = False
    result: Any = None
    error: BaseException | None = None
    error_was_told: bool = False
    """Whether somebody who joined it got the error."""
    leaf_locks: int = 0

    def waits(self, now_ns: int) -> bool:
        """Whether it cannot go on at this time."""
        if self.process.dead or self.ready is None:
            return False
        return not self.ready() and (self.deadline_ns is None or now_ns < self.deadline_ns)


class Scheduler:
    """Runs the actors of one run from the choices of one run."""

    def __init__(self, choices: Choices, *, switch_chance: float = 0.2, max_steps: int = MAX_STEPS) -> None:
        self.choices = choices
        self.now_ns = FIRST_NS
        self.steps = 0
        self.running: Actor | None = None
        self.trace: list[str] = []
        self.actors: list[Actor] = []
        self.processes: list[Process] = []
        self.on_death: list[Callable[[Process], None]] = []
        self._switch_chance = switch_chance
        self._max_steps = max_steps
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._stopping = False
        self._beat = 0

    # -- actors ----------------------------------------------------------------------------------

    def process(self, name: str, skew_ns: int = 0) -> Process:
        """A new process."""
        made = Process(name, len(self.processes) + 1, skew_ns)
        self.processes.append(made)
        return made

    def actor(self, process: Process, run: Callable[[], Any], name: str | None = None) -> Actor:
        """A new actor; it takes part from the next scheduling point on."""
        count = sum(each.process is process for each in self.actors)
        label = name or (process.name if not count else f"{process.name}.{count}")
        made = Actor(label, process, run)
        made.gate.acquire()
        self.actors.append(made)
        threading.Thread(target=self._body, args=(made,), name=label, daemon=True).start()
        return made

    def _body(self, actor: Actor) -> None:
        actor.gate.acquire()
        try:
            self._check(actor)
            actor.result = actor.run()
        except BaseException as error:  # the scenario looks at it
            actor.error = error
            if isinstance(error, SimulationError) and self._failure is None:
                self._failure = error
        finally:
            actor.done = True
            self._leave()

    def run(self) -> None:
        """Run every actor to its end. Raises SimulationError for a run that cannot go on."""
        self._over.clear()
        first = self._next(None)
        if first is None:
            return
        self._give(first)
        beat = -1
        while not self._over.wait(SILENCE_SECONDS):
            if self._beat == beat:
                raise SimulationError(f"stuck outside of every seam:\n{self._where()}")
            beat = self._beat
        self.running = None
        if self._failure is not None:
            raise self._failure

    def _where(self) -> str:
        frames = sys._current_frames()
        threads = {thread.name: thread.ident for thread in threading.enumerate()}
        name = self.running.name if self.running else ""
        frame = frames.get(threads.get(name) or 0)
        lines: list[str] = []
        while frame is not None and len(lines) < 12:
            lines.append(f"  {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")
            frame = frame.f_back
        return "\n".join([f"actor {name}", *lines])

    # -- switching -------------------------------------------------------------------------------

    def point(self, what: str = "", *, may_switch: bool = True) -> None:
        """A scheduling point of the actor that runs; `what` goes into the trace."""
        me = self._me()
        self._beat += 1
        self._check(me)
        if me.leaf_locks:
            raise SimulationError(f"{me.name} came to the scheduling point {what!r} under a leaf lock")
        self.steps += 1
        self.now_ns += STEP_NS
        if what:
            self.note(what)
        if self.steps > self._max_steps:
            self._fail(SimulationError(f"more than {self._max_steps} scheduling points: a live-lock?"))
        if may_switch:
            others = [each for each in self.actors if each is not me and self._can_run(each)]
            if others:
                answer = self.choices.choose(1 + len(others), self._switch_chance)
                if answer:
                    self._hand_over(me, others[answer - 1])
        self._check(me)

    def check_alive(self) -> None:
        """Raise if the actor that runs has died or the run is over."""
        self._check(self._me())

    def wait(self, ready: Predicate, deadline_ns: int | None = None, what: str = "") -> bool:
        """Let others run until `ready()` or the deadline; whether it is ready."""
        me = self._me()
        self.point(what)
        if me.leaf_locks:
            raise SimulationError(f"{me.name} waits under a leaf lock")
        while not ready():
            if deadline_ns is not None and self.now_ns >= deadline_ns:
                return False
            me.ready, me.deadline_ns = ready, deadline_ns
            other = self._next(me)
            if other is None:
                self._fail(SimulationError(f"dead-lock: {self._waiting()}"))
            elif other is not me:
                self._hand_over(me, other)
            me.ready = me.deadline_ns = None
            self._check(me)
        return True

    def stall(self, seconds: float, what: str) -> None:
        """The actor that runs stands still for so long while others go on."""
        self.note(f"stalls for {seconds:g} s {what}")
        self.wait(lambda: False, self.now_ns + round(seconds * 1e9))

    def kill(self, process: Process, what: str = "") -> None:
        """The process dies; if it is the one that runs, this raises."""
        if process.dead:
            return
        process.dead = True
        self.note(f"{process.name} dies {what}".rstrip())
        for each in self.on_death:
            each(process)
        me = self.running
        if me is not None and me.process is process:
            raise Crashed(what)

    def blamed(self, error: SimulationError) -> SimulationError:
        """The error, which ends the run even if somebody catches it."""
        self._failure = self._failure or error
        return error

    def note(self, text: str) -> None:
        """A line of the trace."""
        name = self.running.name if self.running else "-"
        self.trace.append(f"{name}: {text}")

    # -- inside ----------------------------------------------------------------------------------

    def _me(self) -> Actor:
        me = self.running
        if me is None:
            raise SimulationError("a scheduling point outside of every actor")
        return me

    def _check(self, me: Actor) -> None:
        if self._stopping:
            raise Stopped
        if me.process.dead:
            raise Crashed(f"{me.process.name} has died")

    def _can_run(self, actor: Actor) -> bool:
        return not actor.done and not actor.waits(self.now_ns)

    def _next(self, me: Actor | None) -> Actor | None:
        """Who goes on when `me` waits or has ended; time moves on if it must. None: nobody ever can."""
        while True:
            able = [each for each in self.actors if self._can_run(each)]
            if able:
                return able[self.choices.choose(len(able), 0.5, forced=True)]
            times = [
                each.deadline_ns for each in self.actors if not each.done and each.deadline_ns is not None
            ]
            if not times:
                return None
            self.now_ns = max(self.now_ns, min(times))

    def _hand_over(self, me: Actor, other: Actor) -> None:
        self._give(other)
        me.gate.acquire()

    def _give(self, other: Actor) -> None:
        self.running = other
        other.gate.release()

    def _leave(self) -> None:
        """The actor that runs has ended."""
        if self._failure is not None:
            self._stopping = True
        if not self._stopping:
            other = self._next(None)
            if other is not None:
                self._give(other)
                return
            if any(not each.done for each in self.actors):
                self._failure = SimulationError(f"dead-lock: {self._waiting()}")
                self._stopping = True
        left = next((each for each in self.actors if not each.done), None)
        if left is not None:
            self._give(left)  # it meets Stopped
            return
        self._over.set()

    def _fail(self, error: SimulationError) -> None:
        self._stopping = True
        raise self.blamed(error)

    def _waiting(self) -> str:
        return ", ".join(each.name for each in self.actors if not each.done)
