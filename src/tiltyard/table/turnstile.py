"""Queueing with the other processes of this host for the right to commit next (decision D16).

It saves work and makes commits fair; safety never depends on it. Two locks: the *line*, on the table's own
directory, and the *turn*, on `_versions`. Whoever is at the head of the line, and only that one, looks for
the turn often; whoever has just had the turn must go to the end of the line. Since a hand-over costs a look
at what the others have done, a process may take the turn again for `AGAIN_SECONDS` without queueing.

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

TURN_SECONDS = 0.003
"""Of the first attempt at the head of the line: within it the pauses between two looks stay short. Each takes
twice as long as the one before: who keeps the turn for longer is slow.
"""

FIRST_LINE_SECONDS = 0.016
LAST_LINE_SECONDS = 0.002
"""Pauses of who stands in line: each half as long as the one before, so that who has waited long gets ahead
of who has just come, mostly from a turn.
"""

PROBE_SECONDS = 0.0002
"""A store that refuses within less than this has no turnstile."""

MAX_PROBES = 3

AGAIN_SECONDS = 0.02
AGAIN_TURNS = 4
"""How long after its turn came a process may take it again without queueing, and how often at least: on a
busy machine a commit takes long, and so does a hand-over.
"""

REMEMBERED_BYTES = 64
"""What a remembered wait or turn is accounted as in the session's cache."""

LINE = ""
TURN = names.VERSIONS_DIR


def queue_up(store: Store, session: Session, turn: ExitStack, *, lost: bool) -> bool:
    """Wait for our turn at a table's turnstile, held by `turn`; whether it came. `lost`: a version was lost
    to others since the last call.
    """
    asked = runtime.monotonic()
    key = _key(store, TURN, "own")
    if own := session.cache.get(key):
        began, turns = own
        if (asked - began < AGAIN_SECONDS or turns < AGAIN_TURNS) and _enter(store, TURN, 0.0, turn):
            session.cache.put(key, (began, turns + 1), REMEMBERED_BYTES)
            return True
    if not lost and _stalled(store, session, TURN, asked):
        return False
    with ExitStack() as line:
        # Without a place in the line we look for the turn all the same.
        if not _stalled(store, session, LINE, asked):
            _wait(store, session, line, LINE)
        if not _wait(store, session, turn, TURN):
            return False
    session.cache.put(key, (runtime.monotonic(), 1), REMEMBERED_BYTES)
    return True


def try_turn(store: Store, turn: ExitStack) -> bool:
    """Take the turn if it is free, whoever stands in line; `turn` holds it then. For those who do the work
    of others with their own.
    """
    return _enter(store, TURN, 0.0, turn)


def try_turn_first(store: Store, session: Session, turn: ExitStack) -> bool | None:
    """As `try_turn`; None where waiting for it is in vain: it stalled a moment ago, or there is none."""
    if _enter(store, TURN, 0.0, turn):
        return True
    if _stalled(store, session, TURN, runtime.monotonic()):
        return None
    for _ in range(MAX_PROBES):
        began = runtime.monotonic()
        if _enter(store, TURN, PROBE_SECONDS, turn):
            return True
        if runtime.monotonic() - began >= PROBE_SECONDS:
            return False
    return None


def stalls(store: Store, session: Session) -> None:
    """Note that a wait for the turn was in vain."""
    session.cache.put(_key(store, TURN, "stalled"), runtime.monotonic(), REMEMBERED_BYTES)


def read_progress(store: Store) -> int | None:
    """What rises while the turnstile turns: only holders of the turn write the hint."""
    try:
        return read_hint(store)
    except StoreError:
        return None


def _key(store: Store, lock: str, what: str) -> tuple[str, str, str, str]:
    return store.identity, lock, f"{what} turnstile", ""


def _stalled(store: Store, session: Session, lock: str, now: float) -> bool:
    """Whether a wait at this lock was in vain a moment ago."""
    waited_at: float | None = session.cache.get(_key(store, lock, "stalled"))
    return waited_at is not None and now - waited_at < STALLED_SECONDS


def _wait(store: Store, session: Session, stack: ExitStack, lock: str) -> bool:
    """Wait for one of the locks, while others get it and go on."""
    stalled = _key(store, lock, "stalled")
    if _enter(store, lock, 0.0, stack):
        session.cache.drop(stalled)
        return True
    for _ in range(MAX_PROBES):  # several, for this process may have been held up in one
        began = runtime.monotonic()
        if _enter(store, lock, PROBE_SECONDS, stack):
            session.cache.drop(stalled)
            return True
        if runtime.monotonic() - began < PROBE_SECONDS:
            return False  # a store without a turnstile
    step = TURN_SECONDS if lock == TURN else FIRST_LINE_SECONDS
    hint = read_progress(store)
    for _ in range(MAX_TURNSTILE_WAITS):
        deadline = runtime.monotonic() + TURNSTILE_SECONDS
        while runtime.monotonic() < deadline:
            if _attempt(store, lock, step, stack):
                session.cache.drop(stalled)
                return True
            step = min(2 * step, TURNSTILE_SECONDS) if lock == TURN else max(step / 2, LAST_LINE_SECONDS)
        before, hint = hint, read_progress(store)
        if hint == before:
            break
    session.cache.put(stalled, runtime.monotonic(), REMEMBERED_BYTES)
    return False


def _attempt(store: Store, lock: str, seconds: float, stack: ExitStack) -> bool:
    if lock == TURN:
        return _enter(store, lock, seconds, stack)
    runtime.sleep(seconds * (0.5 + runtime.random().random() / 2))
    return _enter(store, lock, 0.0, stack)


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
