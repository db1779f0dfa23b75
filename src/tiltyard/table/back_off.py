"""Waiting after a lost round of a commit, a plan or a compaction: jittered, so that those who met do not meet
in step again.
"""

from __future__ import annotations

from tiltyard import runtime

MAX_BACKOFF_SECONDS = 0.25
"""Bound of one wait, where its caller sets no other."""

MIN_BACKOFF_UNIT_SECONDS = 0.002
"""Unit of the wait where a round took less."""

MAX_BACKOFF_DOUBLINGS = 6
"""How often the unit of the wait doubles."""


def back_off(spent: float, lost: int, longest: float = MAX_BACKOFF_SECONDS) -> None:
    """Sleep for a random while that grows with the rounds lost, in units of what a round took.

    The bound `longest` (seconds) is one of the span that the while is drawn from: those who have reached it
    are still out of step.
    """
    span = max(spent, MIN_BACKOFF_UNIT_SECONDS) * 2 ** min(lost, MAX_BACKOFF_DOUBLINGS)
    runtime.sleep(runtime.random().uniform(0, min(span, longest)))
