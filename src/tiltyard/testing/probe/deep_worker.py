"""A process of the deep probe: does one kind of work on the scratch table until its time is over.

Its only argument is a JSON object (see `Job`). It writes a journal, one JSON array a line: `["ready"]`, then,
told until when to work, `["begin", number, operation]` before an operation and `["end", number, outcome,
version or error]` after it. A process that was killed has no end for its last operation: what became of that
is not known.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any

import pyarrow as pa

import tiltyard.lance as lance
from tiltyard.errors import OutcomeUnknown, TiltyardError

KEYS_PER_PROCESS = 1_000_000
"""A process numbered n owns the keys from n times this on."""

GROUP_ROWS = 3
"""Rows of an append: all of them are there, or none."""

OWN_ROWS = 12
"""Rows that a mutator begins with and changes."""

SHARED_KEYS = tuple(range(-6, 0))
"""Keys that all upserters write."""

CLEANUP_AGE = timedelta(seconds=2)
LONGEST_PAUSE_SECONDS = 0.02
RARE_PAUSE_SECONDS = 0.5
"""Between two compactions or cleanups."""

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("value", pa.int64())])
Operation = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """What a process is to do; its input then says until when, as a time of the wall clock (s)."""

    uri: str
    role: str
    number: int
    seed: int


def rows(keys: list[int], value: int) -> pa.Table:
    """Rows of these keys with one value."""
    return pa.table([keys, [value] * len(keys)], schema=SCHEMA)


class Worker:
    """The process; each role is a generator of operations, which `perform` does one after the other."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.dice = Random(f"{job.seed} {job.number}")
        self.first_key = job.number * KEYS_PER_PROCESS
        self.newest = 0

    def say(self, *line: Any) -> None:
        print(json.dumps(line), flush=True)

    def work(self, until: float) -> None:
        """Perform until the time is over."""
        for number, operation in enumerate(ROLES[self.job.role](self)):
            if time.time() >= until:
                return
            self.say("begin", number, operation)
            self.say("end", number, *self.outcome(operation))
            rare = self.job.role in ("compactor", "cleaner")
            time.sleep(self.dice.uniform(0, RARE_PAUSE_SECONDS if rare else LONGEST_PAUSE_SECONDS))

    def outcome(self, operation: Operation) -> tuple[str, Any]:
        try:
            return "done", self.perform(operation)
        except OutcomeUnknown as error:
            return "unknown", f"{type(error).__name__}: {error}"
        except TiltyardError as error:
            return "failed", f"{type(error).__name__}: {error}"
        except Exception as error:  # told, and found to be wrong by the one who reads it
            return "error", f"{type(error).__name__}: {error}"

    def perform(self, operation: Operation) -> int | None:
        """Do it; the version that it made."""
        keys, value = operation.get("keys", []), operation.get("value", 0)
        table = lance.dataset(self.job.uri)
        match operation["do"]:
            case "append":
                return int(lance.write_dataset(rows(keys, value), table, mode="append").version)
            case "update":
                table.update({"value": str(value)}, where=f"id = {keys[0]}")
            case "delete":
                table.delete(f"id = {keys[0]}")
            case "upsert":
                merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
                merge.execute(rows(keys, value))
            case "compact":
                table.optimize.compact_files()
            case "cleanup":
                table.cleanup_old_versions(CLEANUP_AGE)
                return None
            case "read":
                self.read(table)
        return int(table.version)

    def read(self, table: Any) -> None:
        """Read everything; AssertionError for what no version may show."""
        version = int(table.version)
        assert version >= self.newest, f"the newest version was {self.newest}, then {version}"
        self.newest = version
        wrong = faults(table.to_table()["id"].to_pylist())
        assert not wrong, f"version {version}: {wrong}"

    # -- roles -----------------------------------------------------------------------------------

    def appends(self) -> Iterator[Operation]:
        for number in range(KEYS_PER_PROCESS // GROUP_ROWS):
            first = self.first_key + GROUP_ROWS * number
            yield {"do": "append", "keys": list(range(first, first + GROUP_ROWS))}

    def changes(self) -> Iterator[Operation]:
        own = list(range(self.first_key, self.first_key + OWN_ROWS))
        yield {"do": "append", "keys": own}
        for number in range(1, KEYS_PER_PROCESS):
            if len(own) < 2:
                fresh = self.first_key + OWN_ROWS * number
                own += range(fresh, fresh + OWN_ROWS)
                yield {"do": "append", "keys": own[-OWN_ROWS:]}
            if self.dice.random() < 0.5:
                yield {"do": "delete", "keys": [own.pop(self.dice.randrange(len(own)))]}
            else:
                yield {"do": "update", "keys": [self.dice.choice(own)], "value": number}

    def upserts(self) -> Iterator[Operation]:
        for number in range(1, KEYS_PER_PROCESS):
            keys = sorted(self.dice.sample(SHARED_KEYS, 2))
            yield {"do": "upsert", "keys": keys, "value": self.first_key + number}

    def _always(self, do: str) -> Iterator[Operation]:
        while True:
            yield {"do": do}

    def compactions(self) -> Iterator[Operation]:
        return self._always("compact")

    def cleanups(self) -> Iterator[Operation]:
        return self._always("cleanup")

    def reads(self) -> Iterator[Operation]:
        return self._always("read")


def faults(keys: list[int]) -> str:
    """What is wrong with the keys of a version, whichever it is; '' for nothing."""
    if len(set(keys)) < len(keys):
        doubled = sorted({key for key in keys if keys.count(key) > 1})
        return f"keys with two rows: {doubled[:10]}"
    return ""


ROLES: dict[str, Callable[[Worker], Iterator[Operation]]] = {
    "appender": Worker.appends,
    "mutator": Worker.changes,
    "upserter": Worker.upserts,
    "compactor": Worker.compactions,
    "cleaner": Worker.cleanups,
    "reader": Worker.reads,
}


def main() -> int:
    """Do the job that the argument describes."""
    worker = Worker(Job(**json.loads(sys.argv[1])))
    lance.dataset(worker.job.uri)
    worker.say("ready")
    worker.work(float(sys.stdin.readline()))
    return 0
