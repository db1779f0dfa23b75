"""What a cleanup is about to remove, written down before it does (decision D27).

One file for each run in `_tiltyard/cleanup/` of the chain of versions. It serves three who must see each
other:

- a tagger writes its tag and then looks here: of it and the cleanup, which writes here and then reads the
  tags, one always sees the other;
- a committer looks here before and after it publishes, so that no version names a file that goes;
- the next cleanup finishes what a dead one left.

After its end a run leaves what it removed for an hour, for those who began before it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tiltyard import runtime
from tiltyard.errors import CorruptFile, ObjectNotFound, StoreError
from tiltyard.format import names
from tiltyard.session import Session
from tiltyard.store import Created, Store
from tiltyard.table.wording import NS_PER_SECOND

INTENTS_DIR = f"{names.PRIVATE_DIR}/cleanup"

LEASE_NS = 3_600 * NS_PER_SECOND
"""How long an intent counts after it was last written (ns, store clock)."""

MAX_WAIT_SECONDS = 5.0
"""How long a committer waits for a running cleanup to tell what it removed after all."""

POLL_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class Intent:
    """One run: versions and keys (see `reachable`) that go. `verified`: a version named them; `others`: files
    that none did. `finished`: it is over, and these are gone.
    """

    path: str
    versions: frozenset[int]
    verified: frozenset[str]
    others: frozenset[str]
    finished: bool
    expired: bool = False

    @property
    def keys(self) -> frozenset[str]:
        return self.verified | self.others


def announce(store: Store, versions: Iterable[int], verified: Iterable[str], others: Iterable[str]) -> Intent:
    """Write an intent down, durable. Raises `StoreError`; nothing may be removed then."""
    path = f"{INTENTS_DIR}/{runtime.uuid4().hex}.json"
    intent = Intent(path, frozenset(versions), frozenset(verified), frozenset(others), False)
    answer = store.create(path, _encoded(intent))
    if answer is not Created.WON:
        raise StoreError(
            f"what the cleanup of {store.uri} was to remove could not be written down at {path} "
            f"({store.failure(path) or answer.value}); nothing was removed"
        )
    return intent


def renew(store: Store, intent: Intent) -> None:
    """Write it again, so that it counts for another hour."""
    store.put(intent.path, _encoded(intent))


def finish(
    store: Store, intent: Intent, versions: Iterable[int], gone: Iterable[str], failed: Iterable[str]
) -> None:
    """Replace the plan by what is gone now. With keys that could not be deleted it stays a plan, for the next
    run.
    """
    left = frozenset(failed)
    struck = left | frozenset(gone)
    done = Intent(
        intent.path, frozenset(versions), intent.verified & struck, intent.others & struck, finished=not left
    )
    store.put(intent.path, _encoded(done))


def withdraw(store: Store, intent: Intent) -> None:
    """Remove an intent of which nothing was done."""
    store.delete(intent.path)


def read_intent(store: Store, path: str) -> Intent:
    """One intent. Raises `ObjectNotFound`, `CorruptFile`."""
    return _decoded(store.read(path), path)


def read_intents(store: Store, session: Session) -> list[Intent]:
    """All intents there are, expired ones too; those that are damaged name nothing once expired.

    Raises `CorruptFile` for a fresh one that cannot be read, which says what to do; `StoreError`.
    """
    found: list[Intent] = []
    for name in store.list_names(INTENTS_DIR):
        if not name.endswith(".json") or names.is_temporary(name):
            continue
        path = f"{INTENTS_DIR}/{name}"
        try:
            stat = store.stat(path)
            expired = store.now_ns() - stat.mtime_ns > LEASE_NS
            key = (store.identity, path, "cleanup intent", stat.tag)

            def make(path: str = path, size: int = stat.size) -> tuple[Intent, int]:
                return read_intent(store, path), 4 * size

            intent: Intent = session.cache.get_or(key, make)
        except ObjectNotFound:
            continue  # swept up meanwhile
        except CorruptFile as error:
            if not expired:
                raise CorruptFile(
                    f"what a cleanup of {store.uri} removes cannot be read ({error}): until the file is an "
                    "hour old nothing is committed, tagged or cleaned up. Where no cleanup is running, "
                    "remove the file",
                    path,
                ) from error
            intent = Intent(path, frozenset(), frozenset(), frozenset(), finished=True)
        found.append(Intent(path, intent.versions, intent.verified, intent.others, intent.finished, expired))
    return found


def removing(store: Store, session: Session, version: int) -> bool:
    """Whether a cleanup that counts names this version."""
    return any(version in each.versions for each in read_intents(store, session) if not each.expired)


def taken_away(
    store: Store, session: Session, keys: Callable[[], frozenset[str]], *, settled: bool = False
) -> str | None:
    """One of the keys that a cleanup takes away; None where there is none. `keys` is called only if there are
    intents at all.

    `settled`: wait for running cleanups to end, for they may leave a file because they have seen our version.
    """
    deadline = runtime.monotonic() + MAX_WAIT_SECONDS
    wanted: frozenset[str] | None = None
    while True:
        counting = [each for each in read_intents(store, session) if not each.expired]
        if not counting:
            return None
        if wanted is None:
            wanted = keys()
        struck = [(each, each.keys & wanted) for each in counting]
        hits = [(each, hit) for each, hit in struck if hit]
        if not hits:
            return None
        ended = [hit for each, hit in hits if each.finished]
        if ended:
            return min(ended[0])
        if not settled or runtime.monotonic() > deadline:
            return min(hits[0][1])
        runtime.sleep(POLL_SECONDS)


def _encoded(intent: Intent) -> bytes:
    value = {
        "versions": sorted(intent.versions),
        "verified": sorted(intent.verified),
        "others": sorted(intent.others),
        "finished": intent.finished,
    }
    return json.dumps(value, indent=1).encode()


def _decoded(data: object, path: str) -> Intent:
    try:
        value = json.loads(bytes(memoryview(data)))  # type: ignore[arg-type]
        return Intent(
            path,
            frozenset(int(each) for each in value["versions"]),
            frozenset(str(each) for each in value["verified"]),
            frozenset(str(each) for each in value["others"]),
            bool(value["finished"]),
        )
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CorruptFile(
            f"a cleanup's plan must be a JSON object of its fields ({error!r})", path
        ) from error
