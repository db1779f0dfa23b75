"""The deep probe: real processes on a scratch table, some of them killed, and what is left compared.

Appenders, mutators that update and delete, upserters of the same keys, a compactor, a cleaner and a reader
work at once on one table below the location. Now and then one of them is killed with SIGKILL and another
takes its place. The seed decides what each does and who is killed when; how they interleave is the machine's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

from tiltyard.errors import InvalidInput, TiltyardError, UnsupportedFeature
from tiltyard.store import open_store
from tiltyard.store.local import LocalStore
from tiltyard.testing.probe.deep_check import Journal, compare, counted
from tiltyard.testing.probe.deep_worker import SCHEMA, Job
from tiltyard.testing.probe.run import SCRATCH_PREFIX, check_directory

ROLES = (
    *("appender", "appender", "mutator", "mutator", "upserter", "upserter"),
    *("compactor", "cleaner", "reader"),
)
SECONDS = 30.0
LEAST_SECONDS = 1.0
SECONDS_PER_KILL = 3.0
END_SECONDS = 120.0
"""So long may a process take to finish its last operation."""

PROGRAM = "from tiltyard.testing.probe.deep_worker import main; main()"
ERROR_LINES = 3


@dataclass(frozen=True, slots=True)
class DeepReport:
    """What was run and what was found: `wrong` is empty when every promise held."""

    uri: str
    seed: int
    seconds: float
    processes: int
    killed: tuple[str, ...]
    operations: Counter[str]
    versions: int
    rows: int
    wrong: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The report in JSON's types."""
        return {
            "uri": self.uri,
            "usable": not self.wrong,
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "processes": self.processes,
            "killed": list(self.killed),
            "operations": dict(sorted(self.operations.items())),
            "versions": self.versions,
            "rows": self.rows,
            "wrong": list(self.wrong),
        }


class _Process:
    """A worker process and the thread that takes down its journal."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.name = f"{job.role} {job.number}"
        self.journal = Journal(self.name)
        path = os.pathsep.join(each for each in sys.path if each)
        described = {name: getattr(job, name) for name in Job.__slots__}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(described)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )
        self.said = b""
        self.ready = threading.Event()
        self._threads = [
            threading.Thread(target=each, daemon=True) for each in (self._listen, self._complaints)
        ]
        for thread in self._threads:
            thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.ready.set()  # the first line says so, or it has died
            with suppress(json.JSONDecodeError):  # the line that was being written when it was killed
                self.journal.add(json.loads(line))
        self.ready.set()

    def _complaints(self) -> None:
        assert self.process.stderr is not None
        self.said = self.process.stderr.read()

    def go(self, until: float) -> None:
        """Have it work until this time of the wall clock."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has died, which its status tells
            self.process.stdin.write(f"{until!r}\n".encode())
            self.process.stdin.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self, seconds: float) -> str:
        """Wait for its end; what is wrong with it, '' for nothing."""
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            status = None
        for thread in self._threads:
            thread.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        if status is None:
            return f"P4: {self.name} was still at its last operation after {seconds:g} s"
        if status in (0, -9):
            return ""
        lines = self.said.decode(errors="replace").strip().splitlines()[-ERROR_LINES:]
        return f"P4: {self.name} ended with status {status}: {' / '.join(lines)}"


def probe_deep(uri: str, *, seconds: float = SECONDS, seed: int = 0) -> DeepReport:
    """Let processes work for so long on a table below a local directory, then compare.

    Raises what `deep_place` raises, and `StoreError` for a location that cannot be written.
    """
    store = deep_place(uri, seconds)
    scratch = f"{SCRATCH_PREFIX}{uuid.uuid4().hex}"
    try:
        return _run(store.uri, f"{store.uri.rstrip('/')}/{scratch}/table", seconds, seed)
    finally:
        store.delete_tree(scratch)


def deep_place(uri: str, seconds: float) -> LocalStore:
    """The store to work in. Raises `UnsupportedFeature` for a location that other processes cannot open,
    `ObjectNotFound` for one that is not there, `InvalidInput` for too short a time.
    """
    if seconds < LEAST_SECONDS:
        raise InvalidInput(f"a deep probe needs {LEAST_SECONDS:g} s or more, not {seconds:g}")
    store = open_store(uri)
    if not isinstance(store, LocalStore):
        raise UnsupportedFeature(
            f"{uri}: a deep probe runs several processes, which need a directory to meet; use a local path"
        )
    check_directory(store.uri)
    return store


def _run(uri: str, table: str, seconds: float, seed: int) -> DeepReport:
    import tiltyard.lance as lance

    lance.write_dataset(SCHEMA.empty_table(), table)
    began = time.monotonic()
    made: list[_Process] = []
    try:
        for number, role in enumerate(ROLES, 1):
            made.append(_Process(Job(table, role, number, seed)))
        for each in made:
            each.ready.wait(END_SECONDS)
        until = time.time() + seconds
        for each in made:
            each.go(until)
        killed = _kill_some(made, table, seconds, seed, until)
        left = max(0.0, until - time.time())
        wrong = [said for each in made if (said := each.end(left + END_SECONDS))]
    finally:
        for each in made:
            if each.process.poll() is None:
                each.kill()
    journals = [each.journal for each in made]
    told, versions, rows = _state(table, journals)
    operations = counted(journals)
    took = time.monotonic() - began
    everything = (*wrong, *told)
    return DeepReport(uri, seed, took, len(made), tuple(killed), operations, versions, rows, everything)


def _kill_some(made: list[_Process], table: str, seconds: float, seed: int, until: float) -> list[str]:
    """Kill processes at moments that the seed names and start others in their place; who was killed."""
    dice = Random(f"{seed} kills")
    times = max(1, int(seconds // SECONDS_PER_KILL))
    moments = sorted(dice.uniform(0.3, 0.9) * seconds for _ in range(times))
    running, killed = list(made), []
    start = until - seconds
    for moment in moments:
        time.sleep(max(0.0, start + moment - time.time()))
        victim = running.pop(dice.randrange(len(running)))
        victim.kill()
        killed.append(victim.name)
        heir = _Process(Job(table, victim.job.role, len(made) + 1, seed))
        heir.go(until)
        made.append(heir)
        running.append(heir)
    return killed


def _state(table: str, journals: list[Journal]) -> tuple[list[str], int, int]:
    """What is wrong with what is left, how many versions and rows there are."""
    import tiltyard.lance as lance

    try:
        newest = lance.dataset(table)
        found = newest.to_table()
    except TiltyardError as error:
        return [f"P5: the newest version cannot be read: {type(error).__name__}: {error}"], 0, 0
    pairs = list(zip(found["id"].to_pylist(), found["value"].to_pylist(), strict=True))
    wrong = compare(journals, pairs)
    versions = [int(each["version"]) for each in newest.versions()]
    for version in versions:
        try:
            lance.dataset(table, version=version).to_table()
        except TiltyardError as error:
            wrong.append(f"P5: version {version} cannot be read: {type(error).__name__}: {error}")
    wrong += [f"P5: {finding}" for finding in newest.verify(checksums=True).findings]
    return wrong, len(versions), len(pairs)
