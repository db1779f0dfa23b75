"""What goes wrong in searches through every schedule, one event at a time: every kind that a medium knows."""

from __future__ import annotations

from collections.abc import Mapping

from tiltyard.testing.faults import Fault
from tiltyard.testing.simulation.storm import Weather
from tiltyard.testing.simulation.world import Medium

SLEPT = (40.0,)

ACCIDENTS: Mapping[Medium, Weather] = {
    "disk": Weather(
        frozenset({Fault.CRASH, Fault.CRASH_AFTER, Fault.FAIL_AFTER, Fault.PAUSE_AFTER}),
        stalls=SLEPT,
        machine_crash=True,
    ),
    "objects": Weather(
        frozenset(
            {Fault.CRASH, Fault.CRASH_AFTER, Fault.LOSE_ANSWER, Fault.LOSE_REQUEST, Fault.LATE_REQUEST}
        ),
        stalls=SLEPT,
    ),
}
