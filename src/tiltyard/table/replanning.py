"""Planning an operation again on the newest version after others changed the same rows (decision D14).

A commit that met a *retryable* conflict lost its meaning where it was planned, not for good: rows that it
moved were moved by another. The loop here plans and writes it anew, with a jittered wait that grows, so that
those who met once do not meet in step again. Every update, delete and merge runs in it, and each begins with
the newest version (case T08). A plan whose version a cleanup took away while it was read is made anew too:
the rows are in the newest one, which nobody takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from tiltyard import runtime
from tiltyard.errors import RetryableConflict, TooMuchContention, VersionNotFound
from tiltyard.table.back_off import back_off
from tiltyard.table.snapshot import open_latest

if TYPE_CHECKING:
    from tiltyard.session import Session
    from tiltyard.store import Store
    from tiltyard.table.snapshot import Snapshot

T = TypeVar("T")

CONFLICT_RETRIES = 10
"""How often an operation is planned again by default."""

RETRY_SECONDS = 30.0
"""Time for all plans by default; the first is never cut short."""

MAX_WAIT_SECONDS = 1.0
"""Bound of one wait."""


def replanned(
    attempt: Callable[[Snapshot], T],
    store: Store,
    session: Session,
    *,
    what: str,
    conflict_retries: int = CONFLICT_RETRIES,
    retry_seconds: float = RETRY_SECONDS,
) -> T:
    """What `attempt` gives for the newest version; after a `RetryableConflict`, or where a cleanup removed it
    meanwhile, for the then newest, anew.

    `what` names the operation in messages ("update", "delete"). At most `conflict_retries` further plans,
    none begun once `retry_seconds` are over; then raises `TooMuchContention`, which names the commit that won
    last.
    """
    started = runtime.monotonic()
    tries = 0
    while True:
        began = runtime.monotonic()
        snapshot = open_latest(store, session)
        try:
            return attempt(snapshot)
        except (RetryableConflict, VersionNotFound) as error:
            if isinstance(error, VersionNotFound) and store.exists(snapshot.location.path):
                raise
            now = runtime.monotonic()
            if tries >= conflict_retries or now - started >= retry_seconds:
                raise _given_up(store, what, tries + 1, now - started, error) from error
        back_off(now - began, tries, MAX_WAIT_SECONDS)
        tries += 1


def _given_up(
    store: Store, what: str, tries: int, seconds: float, error: RetryableConflict | VersionNotFound
) -> TooMuchContention:
    if isinstance(error, RetryableConflict):
        winner, done = error.winner, "changed the same rows"
    else:
        winner, done = None, "removed the version that it was planned on"
    won = "" if winner is None else f"; the last to win was {winner}"
    raised = TooMuchContention(
        f"Too many concurrent writers: the {what} of {store.uri} was planned {tries} times in {seconds:.1f} "
        f"s, and each time others had {done} meanwhile{won}. Nothing was changed ({error}). "
        "Try again when it is quieter, or allow more with conflict_retries and retry_timeout"
    )
    raised.winner = winner
    return raised
