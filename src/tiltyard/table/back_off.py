"""Waiting after a lost round of a commit: jittered, so that those who met do not meet in step again."""

from __future__ import annotations

from tiltyard import runtime

MAX_BACKOFF_SECONDS = 0.25
MIN_BACKOFF_UNIT_SECONDS = 0.002
MAX_BACKOFF_DOUBLINGS = 6


def back_off(spent: float, lost: int) -> None:
    """Sleep for a random while that grows with the rounds lost, in units of what a round took after its turn
    had come.
    """
    span = max(spent, MIN_BACKOFF_UNIT_SECONDS) * 2 ** min(lost, MAX_BACKOFF_DOUBLINGS)
    runtime.sleep(min(runtime.random().uniform(0, span), MAX_BACKOFF_SECONDS))
