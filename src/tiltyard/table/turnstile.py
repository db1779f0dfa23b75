"""Queueing with the other processes of this host for the right to commit next (decision D16).

It saves work and makes commits fair; safety never depends on it. Whoever holds the turnstile may have
stalled. Only its holders write the hint: while that rises it changes hands, and going on without a turn would
waste work of theirs and ours. Else one short wait is all, and the following commits do not wait again.
"""

from __future__ import annotations

from contextlib import ExitStack

from tiltyard import runtime
from tiltyard.errors import StoreError
from tiltyard.format import names
from tiltyard.session import Session
from tiltyard.store import Store
from tiltyard.table.versions import read_hint

TURNSTILE_SECONDS = 0.1
"""How long a round queues for a turn at a turnstile that does not change hands; then it goes on without."""

MAX_TURNSTILE_WAITS = 30
"""How often it queues again while the turnstile changes hands."""

STALLED_SECONDS = 1.0
"""How long after a wait in vain a process commits without queueing first; a lost version makes it queue
again.
"""

STALLED_BYTES = 64
"""What a remembered wait is accounted as in the session's cache."""


def queue_up(store: Store, session: Session, turn: ExitStack, *, lost: bool) -> bool:
    """Wait for our turn at a table's turnstile, held by `turn`; whether it came. `lost`: a version was lost
    to others since the last call.
    """
    cache, key = session.cache, (store.identity, names.VERSIONS_DIR, "stalled turnstile", "")
    asked = runtime.monotonic()
    waited_at: float | None = cache.get(key)
    if not lost and waited_at is not None and asked - waited_at < STALLED_SECONDS:
        return False
    hint = _hint(store)
    for _ in range(MAX_TURNSTILE_WAITS):
        attempt = ExitStack()
        try:
            ours = attempt.enter_context(store.turnstile(names.VERSIONS_DIR, TURNSTILE_SECONDS))
        except StoreError:
            ours = False  # it only saves work
        if ours:
            turn.push(attempt)
            cache.drop(key)
            return True
        attempt.close()
        now = runtime.monotonic()
        if now - asked < TURNSTILE_SECONDS / 2:
            return False  # a store without a turnstile
        before, hint = hint, _hint(store)
        if hint == before:
            break
    cache.put(key, now, STALLED_BYTES)
    return False


def _hint(store: Store) -> int | None:
    try:
        return read_hint(store)
    except StoreError:
        return None
