"""The loop that plans again: on the newest version, within its budget, waiting longer each time."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from tiltyard import runtime
from tiltyard.errors import (
    IncompatibleTransaction,
    RetryableConflict,
    TooMuchContention,
    VersionNotFound,
    Winner,
)
from tiltyard.session import default_session
from tiltyard.store import open_store
from tiltyard.table.replanning import MAX_WAIT_SECONDS, replanned
from tiltyard.table.scan import Scan, ScanRequest


class Clock(runtime.Runtime):
    """Sleeps take no time but count."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []
        self.skipped = 0.0

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.skipped += seconds

    def monotonic(self) -> float:
        return super().monotonic() + self.skipped


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": [1]}), path)
    return path


@pytest.fixture
def clock() -> Any:
    clock = Clock()
    before = runtime.install(clock)
    yield clock
    runtime.install(before)


def lost(version: int) -> RetryableConflict:
    error = RetryableConflict("rows 1, 2")
    error.winner = Winner(version, "Delete", "a-uuid")
    return error


def run(path: str, attempt: Any, **options: Any) -> Any:
    return replanned(attempt, open_store(path), default_session(), what="update", **options)


def test_each_plan_begins_with_the_newest_version(path: str, clock: Clock) -> None:
    seen: list[int] = []

    def attempt(snapshot: Any) -> str:
        seen.append(snapshot.version)
        if len(seen) < 3:
            lance.write_dataset(pa.table({"id": [2]}), path, mode="append")
            raise lost(snapshot.version + 1)
        return "done"

    assert run(path, attempt) == "done"
    assert seen == [1, 2, 3]
    assert len(clock.waits) == 2
    assert all(0 <= wait <= MAX_WAIT_SECONDS for wait in clock.waits)


def test_a_version_that_a_cleanup_takes_while_it_is_read_is_left_for_the_newest(
    path: str, clock: Clock
) -> None:
    seen: list[int] = []

    def attempt(snapshot: Any) -> list[int]:
        seen.append(snapshot.version)
        if len(seen) == 1:
            lance.write_dataset(pa.table({"id": [2]}), path, mode="overwrite")
            lance.dataset(path).cleanup_old_versions(timedelta(0))
        return Scan(snapshot, ScanRequest()).table()["id"].to_pylist()

    assert run(path, attempt) == [2]
    assert seen == [1, 2]


def test_a_version_that_is_not_there_for_another_reason_is_told_at_once(path: str, clock: Clock) -> None:
    def attempt(snapshot: Any) -> None:
        raise VersionNotFound("version 7")

    with pytest.raises(VersionNotFound, match="version 7"):
        run(path, attempt)
    assert not clock.waits


def test_a_spent_number_of_plans_says_who_won_and_what_to_do(path: str, clock: Clock) -> None:
    plans: list[int] = []

    def attempt(snapshot: Any) -> None:
        plans.append(1)
        raise lost(7)

    with pytest.raises(TooMuchContention) as found:
        run(path, attempt, conflict_retries=4)
    assert len(plans) == 5
    message = str(found.value)
    for part in ("update", path, "planned 5 times", "the Delete of version 7", "a-uuid", "conflict_retries"):
        assert part in message
    assert found.value.winner == Winner(7, "Delete", "a-uuid")
    assert isinstance(found.value, OSError)
    assert found.value.retryable


def test_no_plan_begins_after_the_time_is_over_and_the_first_always_does(path: str, clock: Clock) -> None:
    plans: list[int] = []

    def attempt(snapshot: Any) -> None:
        plans.append(1)
        clock.skipped += 1.0
        raise lost(2)

    with pytest.raises(TooMuchContention):
        run(path, attempt, conflict_retries=1000, retry_seconds=0)
    assert len(plans) == 1
    with pytest.raises(TooMuchContention):
        run(path, attempt, conflict_retries=1000, retry_seconds=5)
    assert 2 <= len(plans) <= 7


def test_without_retries_the_first_conflict_ends_it(path: str, clock: Clock) -> None:
    with pytest.raises(TooMuchContention, match="planned 1 times"):
        run(path, lambda snapshot: (_ for _ in ()).throw(lost(2)), conflict_retries=0)
    assert clock.waits == []


def test_what_planning_cannot_mend_is_raised_at_once(path: str, clock: Clock) -> None:
    def attempt(snapshot: Any) -> None:
        raise IncompatibleTransaction("the table was overwritten")

    with pytest.raises(IncompatibleTransaction):
        run(path, attempt)
    assert clock.waits == []
