"""The promises of a store, one function each: those of `tiltyard.store.protocol`, asked from outside.

Each is given the ground to stand on and returns a finding; a `StoreError` on the way is a finding too, which
`run` makes of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tiltyard.errors import CorruptFile, InvalidInput, ObjectNotFound, StoreError, UnsupportedFeature
from tiltyard.store import Created, Store
from tiltyard.store.exclusive import Way
from tiltyard.store.local import LocalStore
from tiltyard.store.memory import MemoryStore
from tiltyard.store.remote.store import RemoteStore
from tiltyard.table.versions import RACY_NS
from tiltyard.testing.probe.calls import file_system
from tiltyard.testing.probe.crew import Crew
from tiltyard.testing.probe.findings import Finding, Grade
from tiltyard.testing.probe.worker import content, look, watched

THREADS = 4
THREAD_ROUNDS = 25
RACE_ROUNDS = 40
RACE_STEPS_SECONDS = (0.004, 0.02)
"""Least and most between two rounds of a race of processes; each begins for all of them at one moment."""

RACE_LEAD_SECONDS = 0.05
SEEN_ROUNDS = 12
WHOLE_ROUNDS = 8
WHOLE_BYTES = 3 << 20
"""Objects of this size are caught half-written where that can happen."""

SMALL_BYTES = 100
CHANGES = 4
QUIET_SECONDS = 2 * RACY_NS / 1e9
"""After so long without a change, the next one has to show in the directory's time."""

MAX_SKEW_NS = RACY_NS
"""How far a local file's time may be off the clock that it is compared with."""

STAMP_NS = 1_000_000_000 + MAX_SKEW_NS
"""The same for an object store."""

TURN_SECONDS = 0.05
START_SECONDS = 10.0


@dataclass(eq=False)
class Ground:
    """What a probe works with: `store` and `other` are handles on one directory, `crew` processes on it."""

    store: Store
    other: Store
    make: Callable[[], Store]
    crew: Crew | None
    facts: list[str] = field(default_factory=list)

    @property
    def lookers(self) -> str:
        return "another handle" if self.crew is None else "another handle and another process"


def kept(promise: str, seen: str, meaning: str = "") -> Finding:
    return Finding(promise, Grade.KEPT, seen, meaning)


def broken(promise: str, seen: str, meaning: str) -> Finding:
    return Finding(promise, Grade.BROKEN, seen, meaning)


def _won(store: Store, path: str, data: bytes) -> None:
    """Create an object that nobody else creates."""
    answer = store.create(path, data)
    if answer is not Created.WON:
        cause = store.failure(path)
        raise StoreError(
            f"create of {path} answered {answer.value!r}" + (f": {cause}" if cause else "")
        ) from cause


# -- exclusive creation --------------------------------------------------------------------------

EXCLUSIVE = "exclusive creation"
AMONG_PROCESSES = "exclusive creation among processes"
LOST_COMMITS = "two writers can both be told that they made one version: commits are lost"


def exclusive(ground: Ground) -> Finding:
    """Of all that create one name, one wins: twice in a row, then threads at once."""
    _won(ground.store, "twice", b"first")
    for store in (ground.store, ground.other):
        answer = store.create("twice", b"second")
        if answer is not Created.EXISTS:
            return broken(EXCLUSIVE, f"a second create answered {answer.value!r}, not 'exists'", LOST_COMMITS)
    if ground.other.read("twice").to_pybytes() != b"first":
        return broken(EXCLUSIVE, "a second create replaced the object", LOST_COMMITS)
    gate = threading.Barrier(THREADS)
    answers: list[list[Created]] = [[] for _ in range(THREADS)]

    def run(me: int) -> None:
        store = ground.make()
        for number in range(THREAD_ROUNDS):
            gate.wait(START_SECONDS)
            answers[me].append(store.create(f"threads/{number}", content(me, SMALL_BYTES)))

    _together([lambda me=me: run(me) for me in range(THREADS)])  # type: ignore[misc]
    wrong = _race_fault(ground, "threads", [[each.value for each in row] for row in answers])
    if wrong:
        return broken(EXCLUSIVE, f"{THREADS} threads at once: {wrong}", LOST_COMMITS)
    return kept(
        EXCLUSIVE, f"twice in a row; {THREADS} threads at once, {THREAD_ROUNDS} times: one won each time"
    )


def _together(runs: list[Callable[[], None]]) -> None:
    errors: list[BaseException] = []

    def guarded(run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException as error:  # raised below, in the thread that asked
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise next((each for each in errors if not isinstance(each, threading.BrokenBarrierError)), errors[0])


def _race_fault(ground: Ground, directory: str, answers: list[list[str]]) -> str:
    """What is wrong with the answers of the racers, by round; '' when nothing is."""
    for number, told in enumerate(zip(*answers, strict=True)):
        winners = [me for me, answer in enumerate(told) if answer == Created.WON.value]
        others = sorted({*told} - {Created.WON.value, Created.EXISTS.value})
        if others:
            return f"answers {', '.join(map(repr, others))} in round {number}, without a fault"
        if len(winners) != 1:
            return f"{len(winners)} of them won round {number}"
        if ground.other.read(f"{directory}/{number}").to_pybytes() != content(winners[0], SMALL_BYTES):
            return f"the object of round {number} is not the winner's"
    return ""


def among_processes(ground: Ground) -> Finding:
    """The same with processes, each round at one moment."""
    if ground.crew is None:
        return Finding(AMONG_PROCESSES, Grade.UNTRIED, "the store lives in one process")
    workers = ground.crew.workers
    before = time.monotonic()
    _won(ground.store, "race/measured", b"1")
    least, most = RACE_STEPS_SECONDS
    step = min(most, max(least, 2 * (time.monotonic() - before)))
    start = time.time() + RACE_LEAD_SECONDS
    for me, worker in enumerate(workers):
        worker.begin("race", me=me, rounds=RACE_ROUNDS, start=start, step=step)
    answers = [worker.answer() for worker in workers]
    wrong = _race_fault(ground, "race", answers)
    if wrong:
        return broken(AMONG_PROCESSES, f"{len(workers)} processes at once: {wrong}", LOST_COMMITS)
    won = [sum(each == Created.WON.value for each in told) for told in answers]
    shares = ", ".join(map(str, won))
    seen = f"{len(workers)} processes at once, {RACE_ROUNDS} times: one won each time ({shares})"
    return kept(AMONG_PROCESSES, seen)


# -- whole objects -------------------------------------------------------------------------------

WHOLE = "whole objects"
REPLACED = "replacement in one step"


@contextmanager
def _watched(ground: Ground, directory: str, names: list[str]) -> Iterator[dict[str, Any]]:
    """Somebody reads these objects while the block runs; afterwards the dictionary says what was seen."""
    told: dict[str, Any] = {}
    paths = [f"{directory}/{each}" for each in names]
    if ground.crew is not None:
        worker = ground.crew.workers[0]
        worker.begin("watch", paths=paths, size=WHOLE_BYTES)
        worker.answer()  # it has begun
        try:
            yield told
        finally:
            worker.begin("stop")
            told.update(worker.answer())
        return
    over = threading.Event()

    def run() -> None:
        try:
            told.update(watched(ground.make(), paths, WHOLE_BYTES, over.is_set))
        except StoreError as error:
            told.update(wrong=[str(error)], reads=0, last=[])

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield told
    finally:
        over.set()
        thread.join()


def whole(ground: Ground) -> Finding:
    """Who reads while an object is created sees nothing or all of it."""
    names = [f"{number}" for number in range(WHOLE_ROUNDS)]
    with _watched(ground, "whole", names) as told:
        for number, name in enumerate(names):
            _won(ground.store, f"whole/{name}", content(number, WHOLE_BYTES))
    megabytes = f"{WHOLE_ROUNDS} objects of {WHOLE_BYTES >> 20} MiB"
    if told["wrong"]:
        direct = ground.store.create_mode == Way.DIRECT.value
        meaning = (
            "neither links nor an exclusive rename are offered: a manifest that is cut short and younger "
            "than 10 s is taken for one in flight"
            if direct
            else "readers can take half a manifest for a damaged table"
        )
        return Finding(WHOLE, Grade.SLOWER if direct else Grade.BROKEN, told["wrong"][0], meaning)
    seen = f"{megabytes}, read {told['reads']:,} times while they were made"
    if ground.store.create_mode == Way.DIRECT.value:
        return Finding(
            WHOLE, Grade.SLOWER, f"{seen}: never caught half", "but the way of creation here allows it"
        )
    return kept(WHOLE, seen)


def replaced(ground: Ground) -> Finding:
    """Who reads while an object is replaced sees the old or the new one, and never the old one again."""
    ground.store.put("replaced/x", content(0, WHOLE_BYTES))
    with _watched(ground, "replaced", ["x"]) as told:
        for number in range(1, WHOLE_ROUNDS + 1):
            ground.store.put("replaced/x", content(number, WHOLE_BYTES))
    if told["wrong"]:
        return broken(REPLACED, told["wrong"][0], "tags and cleanup plans can be read half, or be missed")
    if told["last"] != [WHOLE_ROUNDS]:
        return broken(REPLACED, f"the last content seen is {told['last']}, not {WHOLE_ROUNDS}", STALE)
    return kept(REPLACED, f"{WHOLE_ROUNDS} times while it was read {told['reads']:,} times")


# -- what was written is seen --------------------------------------------------------------------

READ = "read after write"
LISTED = "list after write"
GONE = "list after delete"
STALE = "readers and writers work from old versions; a cleanup can miss what others need"


def seen_at_once(ground: Ground) -> list[Finding]:
    """What one wrote, listed or removed, everybody sees at once; both ways between processes."""
    faults: dict[str, str] = {}
    for number in range(SEEN_ROUNDS):
        path, data = f"seen/{number % 3}/{number}", content(number, SMALL_BYTES)
        by_other = ground.crew is not None and number % 2 == 1
        if by_other:
            assert ground.crew is not None
            told = ground.crew.workers[0].ask("create", path=path, number=number, size=SMALL_BYTES)
            if told != Created.WON.value:
                raise StoreError(f"create of {path} in another process answered {told!r}")
        else:
            _won(ground.store, path, data)
        for who, there in _looks(ground, path, by_other):
            if there["data"] != data.hex() or not there["exists"]:
                faults.setdefault(READ, f"{who} did not see {path} right after its creation")
            if not there["listed"] or not there["named"]:
                faults.setdefault(LISTED, f"{who} did not find {path} listed right after its creation")
        if by_other:
            assert ground.crew is not None
            ground.crew.workers[0].ask("delete", path=path)
        elif not ground.store.delete(path):
            faults.setdefault(GONE, f"delete of {path} says that there was nothing")
        for who, there in _looks(ground, path, by_other):
            if there["data"] is not None or there["exists"] or there["listed"] or there["named"]:
                faults.setdefault(GONE, f"{who} still saw {path} after its removal")
    found = []
    for promise in (READ, LISTED, GONE):
        fault = faults.get(promise)
        seen = f"{SEEN_ROUNDS} times, by {ground.lookers}"
        found.append(broken(promise, fault, STALE) if fault else kept(promise, seen))
    return found


def _looks(ground: Ground, path: str, by_other: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "the same handle" if not by_other else "this process", look(ground.store, path=path)
    yield "another handle", look(ground.other, path=path)
    if ground.crew is not None:
        yield "another process", ground.crew.workers[-1].ask("look", path=path)


# -- durability, times, locks, names -------------------------------------------------------------

DURABLE = "durable creation"
IN_MEMORY = ("tmpfs", "ramfs")
"""File systems on which nothing outlives the machine, whatever is synced."""


def durable(ground: Ground) -> Finding:
    """Every step that makes an object survive power loss is done without an error."""
    store = ground.make()  # one whose syncs have never failed
    took = []
    for number in range(5):
        before = time.perf_counter()
        _won(store, f"durable/{number}", b"x" * SMALL_BYTES)
        took.append(time.perf_counter() - before)
    ground.facts.append(f"a creation takes {1e3 * sorted(took)[len(took) // 2]:.2f} ms")
    if isinstance(ground.store, MemoryStore):
        return Finding(DURABLE, Grade.UNTRIED, "memory ends with its process")
    if isinstance(store, LocalStore) and file_system(store.uri) in IN_MEMORY:
        return Finding(
            DURABLE, Grade.UNTRIED, "this file system is memory", "a power cut takes everything that is on it"
        )
    if not store.durable:
        return Finding(
            DURABLE,
            Grade.UNTRIED,
            "turned off (TILTYARD_DURABLE=0, or the option 'durable')",
            "a power cut can take what was acknowledged",
        )
    with store.writer("durable/streamed") as writer:
        writer.write([b"x" * SMALL_BYTES])
        writer.commit()
    store.delete("durable/0")
    store.sync_dir("durable")
    return kept(
        DURABLE,
        "every step was done without an error",
        "that the device keeps what it says it keeps, only a power cut can show",
    )


NAMED = "how names are given"
_WAYS = {
    Way.LINK.value: "a crash can leave a `.tmp` file behind, which a cleanup takes",
    Way.RENAME.value: "a crash can leave a `.tmp` file behind, which a cleanup takes",
    Way.DIRECT.value: "an object can be seen cut short: readers wait up to 10 s for a manifest in flight",
}


def named(ground: Ground) -> Finding:
    """By the best of the ways that create knows, or by one further down."""
    _won(ground.store, "named", b"1")
    way = ground.store.create_mode
    meaning = _WAYS.get(way)
    return kept(NAMED, way) if meaning is None else Finding(NAMED, Grade.SLOWER, way, meaning)


TIMES = "directory times"


def directory_times(ground: Ground) -> Finding:
    """A change of a directory's names shows in its time, if there was none in the 20 ms before."""
    for number in range(CHANGES):
        for verb in ("creation", "removal"):
            if verb == "creation":
                _won(ground.other, f"times/kept{number}", b"1")
            time.sleep(QUIET_SECONDS)
            before = ground.store.dir_stat("times")
            if verb == "creation":
                _won(ground.other, f"times/{number}", b"1")
            else:
                ground.other.delete(f"times/{number}")
            after = ground.store.dir_stat("times")
            if before is None or after is None:
                return Finding(
                    TIMES,
                    Grade.SLOWER,
                    "none that can be relied on",
                    "each look for the newest version lists",
                )
            if after == before:
                return broken(
                    TIMES,
                    f"a {verb} {QUIET_SECONDS * 1e3:.0f} ms after the last change left the time as it was",
                    "a process that has the table open can miss newer versions",
                )
    return kept(TIMES, f"changed with each of {2 * CHANGES} names made and removed")


CLOCK = "the store's clock"


def clock(ground: Ground) -> Finding:
    """The clock that ages are told by is the one that stamps objects."""
    host, before = time.time_ns(), ground.store.now_ns()
    _won(ground.store, "clock", b"1")
    stamped, after = ground.store.stat("clock").mtime_ns, ground.store.now_ns()
    ahead = (before - host) / 1e9
    told = "the host's" if abs(ahead) < MAX_SKEW_NS / 1e9 else f"{abs(ahead):.2f} s {_side(ahead)} the host's"
    # An object store tells times to the second, and its clock never ahead of them.
    most = STAMP_NS if isinstance(ground.store, RemoteStore) else MAX_SKEW_NS
    if not before - most <= stamped <= after + most:
        off = (stamped - before) / 1e9
        return broken(
            CLOCK,
            f"a new object is stamped {abs(off):.2f} s {_side(off)} the clock that ages are told by",
            "a cleanup can take young files for old ones; open tables can miss newer versions",
        )
    if after < before:
        return broken(CLOCK, "it went backwards", "a cleanup can take young files for old ones")
    meaning = (
        "" if told == "the host's" else "ages are told by the store's clock only; the host's is not asked"
    )
    return kept(CLOCK, f"stamps objects, and is {told}", meaning)


def _side(seconds: float) -> str:
    return "ahead of" if seconds > 0 else "behind"


TURNSTILE = "turnstile"


def turnstile(ground: Ground) -> Finding:
    """Writers of one host queue up for a directory. Safety never depends on it."""
    alone = "writers of one host do not queue up, and repeat commits more often"
    if ground.crew is None:
        return Finding(TURNSTILE, Grade.UNTRIED, "the store lives in one process")
    worker = ground.crew.workers[0]
    with ground.store.turnstile("", TURN_SECONDS) as ours:
        if not ours:
            return Finding(TURNSTILE, Grade.SLOWER, "advisory locks are not offered", alone)
        if worker.ask("turn", seconds=TURN_SECONDS):
            return Finding(TURNSTILE, Grade.SLOWER, "two processes were let in at once", alone)
    if not worker.ask("turn", seconds=START_SECONDS):
        return Finding(TURNSTILE, Grade.SLOWER, "it stays shut after its holder went", alone)
    return kept(TURNSTILE, "one process at a time")


MOVED = "renamed directories"


def moved(ground: Ground) -> Finding:
    """A directory is renamed in one step to a name that is free, and open handles on it go on working."""
    store = ground.store
    _won(store, "move/from/a", b"1")
    _won(store, "move/taken/b", b"2")
    inside = store.at("move/from")
    try:
        if store.move_dir("move/from", "move/taken") is not Created.EXISTS:
            return broken(
                MOVED, "a directory was put over another", "a table can be replaced by renaming one"
            )
        answer = store.move_dir("move/from", "move/to")
    except UnsupportedFeature:
        return Finding(MOVED, Grade.SLOWER, "not offered", "a table that a catalog renames keeps its place")
    if answer is not Created.WON:
        raise StoreError(f"a rename answered {answer.value!r}: {store.failure('move/to')}")
    names = ground.other.list_names("move/to"), ground.other.exists("move/from/a")
    if names != (["a"], False):
        return broken(
            MOVED, f"after the rename there is {names[0]} at its target", "tables get lost in a rename"
        )
    try:
        follows = inside.read("a").to_pybytes() == b"1"
    except ObjectNotFound:
        follows = False
    if not follows:
        return Finding(MOVED, Grade.SLOWER, "in one step", "open tables have to be opened again after it")
    return kept(MOVED, "in one step; open handles follow")


RANGES = "ranges and paths"


def ranges(ground: Ground) -> Finding:
    """A read gives all bytes asked for or fails, and paths that lead elsewhere are refused."""
    _won(ground.store, "ranges/x", bytes(range(100)))
    if ground.other.read("ranges/x", 10, 5).to_pybytes() != bytes(range(10, 15)):
        return broken(RANGES, "a range holds other bytes", "tables cannot be read")
    try:
        data = ground.other.read("ranges/x", 90, 20)
    except CorruptFile:
        pass
    else:
        return broken(
            RANGES, f"a range of 20 bytes gave {data.size}", "files that are cut short read as garbage"
        )
    for path in ("../x", "/x", "a//x"):
        try:
            ground.store.create(path, b"1")
        except InvalidInput:
            continue
        return broken(RANGES, f"{path!r} was taken for a path", "files can be written outside of the table")
    return kept(RANGES, "whole or refused")


CHECKS: tuple[Callable[[Ground], Finding | list[Finding]], ...] = (
    *(exclusive, among_processes, whole, replaced, seen_at_once, ranges, named, durable, directory_times),
    *(clock, turnstile, moved),
)
"""In the order in which they are asked."""

NAMES = {
    "exclusive": (EXCLUSIVE,),
    "among_processes": (AMONG_PROCESSES,),
    "whole": (WHOLE,),
    "replaced": (REPLACED,),
    "seen_at_once": (READ, LISTED, GONE),
    "ranges": (RANGES,),
    "named": (NAMED,),
    "durable": (DURABLE,),
    "directory_times": (TIMES,),
    "clock": (CLOCK,),
    "turnstile": (TURNSTILE,),
    "moved": (MOVED,),
}
"""What each of them is called in a report."""
