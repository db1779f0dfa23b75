"""Queueing with the other processes of this host for the right to commit next (decision D16).

It saves work and makes commits fair; safety never depends on it. Two locks: the *line*, on the table's own
directory, and the *turn*, on `_versions`. Whoever is at the head of the line, and only that one, looks for
the turn often; whoever has just had the turn must go to the end of the line. Since a hand-over costs a look
at what the others have done, a process may take the turn again for a few milliseconds without queueing.

Whoever holds a lock may have stalled. Only holders of the turn write the hint: while that rises there is
progress, and going on without a turn would waste work of theirs and ours. Else one short wait is all, and the
following commits do not wait again.
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

ATTEMPT_SECONDS = 0.003
"""Of the first attempt at the head of the line: within it the pauses between two looks stay short. Each takes
twice as long as the one before: who keeps the turn for longer is slow.
"""

AGAIN_SECONDS = 0.02
"""How long after its turn came a process may take it again without queueing."""

REMEMBERED_BYTES = 64
"""What a remembered wait or turn is accounted as in the session's cache."""

LINE = ""
TURN = names.VERSIONS_DIR


def queue_up(store: Store, session: Session, turn: ExitStack, *, lost: bool) -> bool:
    """Wait for our turn at a table's turnstile, held by `turn`; whether it came. `lost`: a version was lost
    to others since the last call.
    """
    asked = runtime.monotonic()
    began: float | None = session.cache.get(_key(store, TURN, "began"))
    if began is not None and asked - began < AGAIN_SECONDS and _enter(store, TURN, 0.0, turn):
        return True
    if not lost and _stalled(store, session, TURN, asked):
        return False
    with ExitStack() as line:
        # Without a place in the line we look for the turn all the same.
        if not _stalled(store, session, LINE, asked):
            _wait(store, session, line, LINE)
        if not _wait(store, session, turn, TURN):
            return False
    session.cache.put(_key(store, TURN, "began"), runtime.monotonic(), REMEMBERED_BYTES)
    return True


def _key(store: Store, lock: str, what: str) -> tuple[str, str, str, str]:
    return store.identity, lock, f"{what} turnstile", ""


def _stalled(store: Store, session: Session, lock: str, now: float) -> bool:
    """Whether a wait at this lock was in vain a moment ago."""
    waited_at: float | None = session.cache.get(_key(store, lock, "stalled"))
    return waited_at is not None and now - waited_at < STALLED_SECONDS


def _wait(store: Store, session: Session, stack: ExitStack, lock: str) -> bool:
    """Wait for one of the locks, while others get it and go on."""
    began = runtime.monotonic()
    step = ATTEMPT_SECONDS if lock == TURN else TURNSTILE_SECONDS
    if _enter(store, lock, step, stack):
        session.cache.drop(_key(store, lock, "stalled"))
        return True
    if runtime.monotonic() - began < step / 2:
        return False  # a store without a turnstile
    hint = _hint(store)
    for _ in range(MAX_TURNSTILE_WAITS):
        deadline = runtime.monotonic() + TURNSTILE_SECONDS
        while runtime.monotonic() < deadline:
            step = min(2 * step, TURNSTILE_SECONDS)
            if _enter(store, lock, step, stack):
                session.cache.drop(_key(store, lock, "stalled"))
                return True
        before, hint = hint, _hint(store)
        if hint == before:
            break
    session.cache.put(_key(store, lock, "stalled"), runtime.monotonic(), REMEMBERED_BYTES)
    return False


def _enter(store: Store, lock: str, seconds: float, stack: ExitStack) -> bool:
    """Try for a lock for so long; `stack` holds it then."""
    attempt = ExitStack()
    try:
        ours = attempt.enter_context(store.turnstile(lock, seconds))
    except StoreError:
        ours = False  # it only saves work
    if ours:
        stack.push(attempt)
    else:
        attempt.close()
    return ours


def _hint(store: Store) -> int | None:
    try:
        return read_hint(store)
    except StoreError:
        return None
