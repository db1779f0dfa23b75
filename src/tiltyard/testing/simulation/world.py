"""One run's world: the machine, its processes, their store, and everything that was ever written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, get_args

from tiltyard.errors import InvalidInput, TiltyardError
from tiltyard.session import Session
from tiltyard.store import Store
from tiltyard.store.local import LocalStore
from tiltyard.store.memory import MemoryStore, Space
from tiltyard.testing.faults import Crashed, Fault
from tiltyard.testing.simulation.choices import Choices
from tiltyard.testing.simulation.files import Files, Made
from tiltyard.testing.simulation.objects import MadeObject, SimulatedObjects
from tiltyard.testing.simulation.port import SimulatedPort
from tiltyard.testing.simulation.runtime import SimulatedRuntime, installed
from tiltyard.testing.simulation.scheduler import Actor, Process, Scheduler, Stopped
from tiltyard.testing.simulation.storm import CALM, REQUEST_SECONDS, Storm, Weather

Medium = Literal["disk", "objects"]
"""A local disk under the real local store, or an object store."""

ROOT = "/lake"

LATE_NS = round((max(REQUEST_SECONDS) + 5.0) * 1e9)
"""The longest way of a request, and the points at which its arrival may have to wait for others."""

PLACES = 4
"""Lines of code that the report of an exception names."""


class FileSystem(Enum):
    """What the disk of a run offers for giving a name, so which way of creation is taken (D12); the value is
    the calls that it lacks.
    """

    WHOLE = ()
    """A link of a file without a name."""
    NO_UNNAMED_FILES = ("open_tmp",)
    """A temporary file and a link of it."""
    NO_LINKS_OF_HANDLES = ("link_handle",)
    """The same, found out later: /proc is not there."""
    NO_LINKS = ("open_tmp", "link_handle", "link")
    """An exclusive rename of a temporary file."""
    NO_EXCLUSIVE_NAMES = ("open_tmp", "link_handle", "link", "rename_noreplace")
    """Exclusive creation under the final name."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run is made of, besides its choices."""

    medium: Medium = "disk"
    file_system: FileSystem = FileSystem.WHOLE
    network: bool = False
    """Whether a server has the disk, as a network file system; it offers no files without a name."""
    weather: Weather = CALM
    switch_chance: float = 0.2
    max_skew_ns: int = 0
    """How far wall clocks of processes may be off; the choices say which are."""

    def __post_init__(self) -> None:
        if self.medium not in get_args(Medium):
            raise InvalidInput(f"medium is {self.medium!r}; expected one of {', '.join(get_args(Medium))}")
        if not 0 <= self.switch_chance <= 1:
            raise InvalidInput(f"switch_chance is {self.switch_chance}; expected a chance, from 0 to 1")
        if self.max_skew_ns < 0:
            raise InvalidInput(f"max_skew_ns is {self.max_skew_ns}; expected 0 or more nanoseconds")


class World:
    """A run. `do` runs actors to their end; the world lives on between.

    `wrong` holds what the world itself saw go wrong: S7, an actor that ends by an exception which is not its
    death and which nobody was told of.
    """

    def __init__(self, choices: Choices, settings: Settings, seed: int = 0) -> None:
        self.settings = settings
        self.choices = choices
        self.scheduler = Scheduler(choices, switch_chance=settings.switch_chance)
        self.storm = Storm(self.scheduler, CALM)
        self.files = Files()
        lacking = {*settings.file_system.value, *(("open_tmp",) if settings.network else ())}
        self.port = SimulatedPort(self.scheduler, self.files, self.storm, lacking, settings.network)
        self.runtime = SimulatedRuntime(self.scheduler, self.port, seed)
        self.outcomes: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.power_cuts = 0
        self._objects: list[MadeObject] = []
        with self.installed():
            self.space = Space("simulated")

    def installed(self) -> AbstractContextManager[None]:
        """Within the block, what is made belongs to this world."""
        return installed(self.runtime)

    def process(self, name: str) -> Process:
        """A new process, its clock perhaps off."""
        # One machine has one clock, which stamps its files too; an object store has its own.
        limit = self.settings.max_skew_ns if self.settings.medium == "objects" else 0
        skews = (0, limit, -limit) if limit else (0,)
        return self.scheduler.process(name, skews[self.choices.choose(len(skews), 0.3)])

    def store(self, path: str = "table") -> Store:
        """A store of the process that runs, on a directory of the medium."""
        if self.settings.medium == "disk":
            return LocalStore(f"{ROOT}/{path}")
        inner = MemoryStore(self.space, clock=lambda: self.scheduler.now_ns)
        return SimulatedObjects(inner, self.storm, self._objects).at(path)

    def _every(self) -> Sequence[Made | MadeObject]:
        return self.files.archive if self.settings.medium == "disk" else self._objects

    @property
    def late_ns(self) -> int:
        """How long after its caller has given up a request may still arrive."""
        return LATE_NS if self.settings.medium == "objects" or self.settings.network else 0

    @property
    def names_given(self) -> int:
        """How many files or objects were given a name so far."""
        return len(self._every())

    def made(self, path: str = "table") -> Iterator[tuple[int, str, Made | MadeObject]]:
        """Everything that ever got a name below a directory, in order: its number and its path there."""
        start = f"{ROOT}/{path}/" if self.settings.medium == "disk" else f"{path}/"
        for number, each in enumerate(self._every()):
            if each.path.startswith(start):
                yield number, each.path[len(start) :], each

    def stands(self, made: Made | MadeObject) -> bool:
        """Whether something has that name just now; looks without being seen."""
        if isinstance(made, MadeObject):
            return made.path in self.space.objects
        try:
            return self.files.find(made.path, None) is not None
        except OSError:
            return False

    def session(self) -> Session:
        """A session of its own: what one process knows."""
        return Session()

    def do(self, actors: Mapping[str, Callable[[], Any]], *, calm: bool = False) -> list[Actor]:
        """Run these functions at once until all have ended. `a/1` and `a/2` are threads of process `a`.

        One that ends by an exception is a finding (`wrong`), unless it died, or met an error of ours in a run
        in which something failed on purpose.
        """
        began = len(self.scheduler.actors)
        made = self._done(actors, calm)
        for actor in self.scheduler.actors[began:]:
            error = actor.error
            if error is None or actor.error_was_told or isinstance(error, Crashed | Stopped):
                continue
            if not (isinstance(error, TiltyardError) and self.storm.struck):
                self.wrong.append(
                    f"S7 {type(error).__name__}: {actor.name} ended by it: {error}{place(error)}"
                )
        return made

    def _done(self, actors: Mapping[str, Callable[[], Any]], calm: bool) -> list[Actor]:
        self.storm.weather = CALM if calm else self.settings.weather
        processes: dict[str, Process] = {}
        made = []
        for name, run in actors.items():
            label = name.partition("/")[0]
            if label not in processes:
                processes[label] = self.scheduler.process(label) if calm else self.process(label)
            made.append(self.scheduler.actor(processes[label], run, name))
        try:
            self.scheduler.run()
        finally:
            self.storm.weather = CALM
        if self.storm.machine_down:
            self._restart()
        return made

    def calmly(self, name: str, run: Callable[[], Any]) -> Any:
        """What one function gives in fair weather; raises what it raises."""
        (actor,) = self._done({name: run}, calm=True)
        if actor.error is not None:
            raise actor.error
        return actor.result

    def perhaps_cut_power(self, chance: float) -> None:
        """Between runs of actors: a power cut, where the weather has those and the choices say so."""
        if self.settings.weather.machine_crash and self.choices.choose(2, chance):
            self.storm.struck[Fault.MACHINE_CRASH.value] += 1
            self.scheduler.note(f"{Fault.MACHINE_CRASH.value}: nobody at work")
            self._restart()

    def _restart(self) -> None:
        self.storm.machine_down = False
        self.power_cuts += 1
        if self.settings.medium == "disk":
            for loss in self.files.lose_power(self.choices):
                self.scheduler.note(f"lost: {loss}")
            self.port.restart()


def place(error: BaseException) -> str:
    """Where an exception was raised, innermost last, for a report: modules and lines outside of the
    simulation.
    """
    places, trace = [], error.__traceback__
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", "?"))
        if not module.startswith(__package__):
            places.append(f"{module}:{trace.tb_lineno}")
        trace = trace.tb_next
    return f" (at {', '.join(places[-PLACES:])})" if places else ""
