"""The creation of objects broken on purpose: what `store.exclusive` promises is what tables stand on."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any
from unittest import mock

from planting import MOST
from tiltyard.store import Created
from tiltyard.store.exclusive import ExclusiveCreator
from tiltyard.testing.faults import Fault
from tiltyard.testing.simulation.explore import explore
from tiltyard.testing.simulation.scenarios import SCENARIOS

SHRINKING_RUNS = 20


def found(planted: Any, *faults: Fault) -> list[str]:
    """What appends on a disk find with this in the place of `ExclusiveCreator._finished`."""
    made: Any = SCENARIOS["appends-disk"]()
    weather = replace(
        made.settings.weather,
        faults=frozenset(faults),
        chance=0.1,
        most=8,
        stalls=(40.0,),
        machine_crash=False,
        failing_reads=False,
    )
    made.settings = replace(made.settings, weather=weather, switch_chance=0.5)
    with mock.patch.object(ExclusiveCreator, "_finished", planted):
        report = explore(made, range(MOST), shrinking_runs=SHRINKING_RUNS)
    assert report.finding is not None, f"nothing found: {report}"
    return list(report.finding.run.wrong)


def test_planted_a_name_whose_sync_failed_counts_as_not_given() -> None:
    def hopeful(self: Any, parent: str, failed: OSError | None) -> Any:
        try:
            self._directory.sync(parent)
        except OSError as error:
            return Created.NOT_DONE, error
        return Created.WON, None

    assert found(hopeful, Fault.FAIL_BEFORE, Fault.FAIL_AFTER)[0].startswith("T3")


def test_planted_a_name_whose_sync_failed_is_taken_back() -> None:
    """Somebody may have built on it by then."""
    real = ExclusiveCreator._give_name

    def remembering(self: Any, fd: int, temporary: str | None, path: str, way: Any) -> Any:
        answer = real(self, fd, temporary, path, way)
        self.given = path
        return answer

    def tidy(self: Any, parent: str, failed: OSError | None) -> Any:
        path = self.given
        try:
            self._directory.sync(parent)
        except OSError as error:
            with suppress(OSError):
                self._port.unlink(path, self._directory.handle())
            return Created.NOT_DONE, error
        return Created.WON, None

    with mock.patch.object(ExclusiveCreator, "_give_name", remembering):
        wrong = found(tidy, Fault.FAIL_BEFORE, Fault.PAUSE_AFTER)
    assert wrong[0].startswith(("T1", "T3", "T4")), wrong
