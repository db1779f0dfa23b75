"""What stores remember of creations that failed."""

from __future__ import annotations

from tiltyard.store.failures import MAX_KEPT, Failures


def test_the_latest_causes_are_remembered_until_a_creation_goes_well() -> None:
    failures = Failures()
    causes = [OSError(n) for n in range(MAX_KEPT + 2)]
    for n, cause in enumerate(causes):
        failures.note(f"{n}", cause)
    assert [failures.get(f"{n}") for n in range(3)] == [None, None, causes[2]]
    assert failures.get(f"{MAX_KEPT + 1}") is causes[-1]
    failures.note("2", None)
    assert failures.get("2") is None
    failures.note("3", causes[0])
    failures.note("new", causes[1])
    assert (failures.get("3"), failures.get("new"), failures.get("4")) == (causes[0], causes[1], causes[4])
