"""What the journals of all processes say must be in the table, and whether it is: a pure comparison.

P1  A row whose write was acknowledged is there, once; one that was deleted is not; nothing of what failed for
    certain is. What is not known to have happened has happened wholly or not at all.
P2  No key has two rows.
P3  A shared key has the value of the last acknowledged upsert, or of one whose end is not known.
P4  No process met an error that is none of the library's, and no reader a version that may not be.
P5  Every version that is listed can be read, and `verify` finds nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

ABSENT = None
Value = int | None


@dataclass(slots=True)
class Done:
    """One operation of a journal. `outcome` is `running` where its end was never written."""

    process: str
    do: str
    keys: tuple[int, ...]
    value: int
    outcome: str = "running"
    version: int | None = None
    error: str = ""

    @property
    def certain(self) -> bool:
        return self.outcome in ("done", "failed")

    def __str__(self) -> str:
        what = f"{self.do} {list(self.keys)}" if self.keys else self.do
        return f"{self.process}: {what}: {self.outcome}" + (f" ({self.error})" if self.error else "")


@dataclass(eq=False)
class Journal:
    """What one process wrote down."""

    process: str
    operations: list[Done] = field(default_factory=list)

    def add(self, line: list[Any]) -> None:
        """Take in a line of `deep_worker`."""
        if line[0] == "ready":
            return
        if line[0] == "begin":
            operation = line[2]
            keys = tuple(operation.get("keys", ()))
            self.operations.append(Done(self.process, operation["do"], keys, operation.get("value", 0)))
            return
        last = self.operations[-1]
        last.outcome = line[2]
        if isinstance(line[3], int):
            last.version = line[3]
        elif line[3] is not None:
            last.error = line[3]


def counted(journals: Iterable[Journal]) -> Counter[str]:
    """How operations ended: `append done`, `upsert failed`, ..."""
    return Counter(f"{each.do} {each.outcome}" for journal in journals for each in journal.operations)


def compare(journals: Iterable[Journal], found: Iterable[tuple[int, int]]) -> list[str]:
    """What is wrong with the (key, value) rows of the newest version; [] for nothing."""
    journals, rows = list(journals), list(found)
    keys = Counter(key for key, _ in rows)
    wrong = [f"P2: key {key} has {times} rows" for key, times in sorted(keys.items()) if times > 1]
    values = dict(rows)
    upserts: list[Done] = []
    known: set[int] = set()
    for journal in journals:
        wrong += [f"P4: {each}" for each in journal.operations if each.outcome == "error"]
        shared = [each for each in journal.operations if each.do == "upsert"]
        own = [each for each in journal.operations if each.keys and each.do != "upsert"]
        upserts += shared
        wrong += _own_keys(own, values, known)
        wrong += _groups(own, values)
    wrong += _shared_keys(upserts, values)
    known.update(key for each in upserts for key in each.keys)
    wrong += [f"P1: key {key} is there, and nobody wrote it" for key in sorted(values) if key not in known]
    return wrong


def _own_keys(operations: list[Done], values: Mapping[int, int], known: set[int]) -> list[str]:
    """Keys that one process alone writes: each has a value that the order of its operations allows."""
    allowed: dict[int, set[Value]] = {}
    last: dict[int, Done] = {}
    for each in operations:
        for key in each.keys:
            known.add(key)
            before = allowed.get(key, {ABSENT})
            after = _after(each, before)
            allowed[key] = after if each.outcome == "done" else before if each.certain else before | after
            last[key] = each
    return [
        f"P1: key {key} {_shown(values.get(key))}, though {last[key]}"
        for key, may in allowed.items()
        if values.get(key) not in may
    ]


def _after(operation: Done, before: set[Value]) -> set[Value]:
    match operation.do:
        case "append":
            return {operation.value}
        case "delete":
            return {ABSENT}
        case _:  # an update of a row that may not be there
            return {operation.value if value is not ABSENT else ABSENT for value in before}


def _shown(value: Value) -> str:
    return "is missing" if value is ABSENT else f"has the value {value}"


def _groups(operations: list[Done], values: Mapping[int, int]) -> list[str]:
    """The last append of a process, of which nobody knows: all rows or none."""
    if not operations or operations[-1].do != "append" or operations[-1].certain:
        return []
    last = operations[-1]
    there = sum(key in values for key in last.keys)
    return (
        [] if there in (0, len(last.keys)) else [f"P1: {there} of {len(last.keys)} rows are there of {last}"]
    )


def _shared_keys(upserts: list[Done], values: Mapping[int, int]) -> list[str]:
    wrong = []
    for key in sorted({key for each in upserts for key in each.keys}):
        mine = [each for each in upserts if key in each.keys]
        acknowledged = [each for each in mine if each.outcome == "done" and each.version is not None]
        newest = max(acknowledged, key=lambda each: each.version or 0, default=None)
        may: set[Value] = {each.value for each in mine if not each.certain}
        may.add(ABSENT if newest is None else newest.value)
        if values.get(key) not in may:
            wrong.append(f"P3: shared key {key} {_shown(values.get(key))}, though the last is {newest}")
    return wrong
