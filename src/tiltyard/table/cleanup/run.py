"""Removing what was selected (decision D27), so that every version that remains can be read at every moment.

1. write down what goes (`intents`)
2. make the version hint right, durable (D13)
3. read tags and branches again: what they hold by now stays
4. delete the manifests that go, durable; oldest first where the store takes one at a time
5. read versions, branches and tags once more: files that any of them names stay
6. delete the files
7. write down what is gone

Invariants, and the tests that check them (tests/table/test_cleanup_crash.py, test_cleanup_races.py):
1. No version that is listed names a file that this run has deleted: manifests go before files (4, 6), a
   version committed up to step 5 is seen there, and one committed later finds the intent
   (`intents.taken_away`).
2. A crash at any point leaves waste, never damage; the next run finishes it (1, `Survey.gone`).
3. A tag or branch made up to step 3 holds its version; a tagger of ours later than that finds the intent.
4. The newest version, and a hint that is not below a hole, stand at every moment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tiltyard import runtime
from tiltyard.errors import CleanupRefused, StoreError
from tiltyard.format import names
from tiltyard.store import Removed, Store
from tiltyard.table.cleanup import intents
from tiltyard.table.cleanup.forget import forget
from tiltyard.table.cleanup.reachable import FOLDERS, key_of
from tiltyard.table.cleanup.select import FileFate, Policy, Selection, Survey, Version, select
from tiltyard.table.cleanup.survey import Known, Place, look, look_around, needed_now
from tiltyard.table.versions import list_versions, read_hint
from tiltyard.table.wording import NS_PER_SECOND

T = TypeVar("T")

MIN_AGE_NS = 50_000_000
"""No manifest younger than this is deleted (ns): the run waits until it is older (decision D13)."""

HINT_TURN_SECONDS = 1.0
"""How long the hint waits for a turn at the turnstile."""

AT_ONCE = 1000
"""Files that go between two looks at the clock."""

RENEW_SECONDS = 300.0
"""After so long (boot clock) an intent is written again and everything is looked at once more, long before it
stops to count.
"""


@dataclass(slots=True)
class Cleaned:
    """What a run removed. `bytes_removed` counts manifests too; `files` are paths below the chain's root,
    `failed` those that could not be deleted.
    """

    versions: list[int] = field(default_factory=list)
    files: list[FileFate] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    bytes_removed: int = 0

    def count(self, kind: str) -> int:
        """Files of a kind."""
        return sum(file.kind == kind for file in self.files)


def plan(place: Place, read_version: int, policy: Policy) -> tuple[Survey, Selection]:
    """What a cleanup would do just now; changes nothing. Raises what `select` and `look` raise."""
    survey, _ = look(place, read_version, Known())
    return survey, select(survey, policy)


def clean(place: Place, read_version: int, policy: Policy, delete_rate_limit: int | None = None) -> Cleaned:
    """Remove what the policy asks for. `delete_rate_limit`: files each second at most.

    Raises `CleanupRefused` (tags on versions that would go), `CorruptFile`, `UnsupportedFeature` and
    `VersionNotFound` before anything was deleted; `StoreError` also when what goes cannot be written down.
    What cannot be deleted is counted, not raised; a version whose manifest stays keeps its files.
    """
    known = Known()
    survey, earlier = look(place, read_version, known)
    selection = select(survey, policy)
    versions = [fate.version for fate in selection.versions if fate.goes]
    files = [fate for fate in selection.files if fate.goes and fate.kind != "manifest"]
    run = _Run(place, known, delete_rate_limit)
    if versions or files:
        run.remove(versions, files)
        forget(place, [each.path for each in versions] + [each.path for each in files])
    _sweep(place.store, earlier)
    return run.done


def remove_versions(place: Place, read_version: int, versions: Collection[int]) -> list[int]:
    """Remove the manifests of these versions and say which went; the files that they name stay for a cleanup.

    The newest version stays. Raises `CleanupRefused`, before anything is removed, for one that a tag or
    branch holds, and what `look` raises.
    """
    known = Known()
    survey, earlier = look(place, read_version, known)
    _check_free(place, survey, versions)
    chosen = [each for each in survey.versions[:-1] if each.version in versions]
    run = _Run(place, known, None)
    if chosen:
        run.remove(chosen, [])
        forget(place, [each.path for each in chosen])
    _sweep(place.store, earlier)
    return run.done.versions


def check_removable(place: Place, read_version: int, versions: Collection[int]) -> None:
    """Raise `CleanupRefused` where `remove_versions` would, and what `look` raises; nothing is removed."""
    if versions:
        _check_free(place, look(place, read_version, Known())[0], versions)


def _check_free(place: Place, survey: Survey, versions: Collection[int]) -> None:
    for version in sorted(versions):
        for pin in survey.pins.get(version, ()):
            raise CleanupRefused(
                f"version {version} of {place.store.uri} is held by {pin.text}; nothing was removed"
            )


class _Run:
    """One run, from the intent to its end."""

    def __init__(self, place: Place, known: Known, rate: int | None) -> None:
        self._place = place
        self._store: Store = place.store
        self._known = known
        self._pause = 0.0 if rate is None else 1.0 / rate
        self._next_at = 0.0
        self._renewed_at = 0.0
        self._keys_gone: set[str] = set()
        self.done = Cleaned()

    def remove(self, versions: list[Version], files: list[FileFate]) -> None:
        """Steps 1 to 7."""
        self._renewed_at = runtime.monotonic()
        intent = intents.announce(
            self._store,
            [each.version for each in versions],
            {key_of(each.path) for each in files if not each.unverified},
            {key_of(each.path) for each in files if each.unverified},
        )
        try:
            if versions:
                right_hint(self._store)
        except StoreError:
            intents.withdraw(self._store, intent)
            raise
        self._delete_manifests(versions, intent)
        self._delete_files(files, intent)
        failed = {key_of(path) for path in self.done.failed} - {each.path for each in versions}
        intents.finish(self._store, intent, self.done.versions, self._keys_gone, failed)

    # -- manifests --------------------------------------------------------------------------------

    def _delete_manifests(self, versions: list[Version], intent: intents.Intent) -> None:
        if not versions:
            return
        self._wait_for_age(versions)
        pinned, newest = self._look_at_refs()
        for some in self._portions(versions):
            if self._renew_when_due(intent):
                pinned, newest = self._look_at_refs()
            going = [each for each in some if each.version not in pinned and each.version < newest]
            if not going:
                continue
            removed = self._removed([each.path for each in going])
            for each in going:
                if each.path not in removed.failed:
                    self.done.versions.append(each.version)
                    self.done.bytes_removed += each.size if each.path in removed.paths else 0
        if self.done.versions:
            self._store.sync_dir(names.VERSIONS_DIR)

    def _look_at_refs(self) -> tuple[frozenset[int], int]:
        """Versions that tags and branches hold by now, and the newest version."""
        pins = look_around(self._place, self._known)
        found = list_versions(self._store)
        return frozenset(pins), found[-1].version if found else 0

    def _wait_for_age(self, versions: list[Version]) -> None:
        """Until no manifest that goes is younger than the least age; at most that long."""
        youngest = max(max(each.mtime_ns, each.named_ns) for each in versions)
        left = min(youngest + MIN_AGE_NS - self._store.now_ns(), MIN_AGE_NS)
        if left > 0:
            runtime.sleep(left / NS_PER_SECOND)

    # -- files ------------------------------------------------------------------------------------

    def _delete_files(self, files: list[FileFate], intent: intents.Intent) -> None:
        """All but those that a version names by now: one that was committed meanwhile, or could not be
        deleted.
        """
        if not files:
            return
        needed = needed_now(self._place, self._known)
        directories: dict[str, bool] = {}
        for some in self._portions(files):
            if self._renew_when_due(intent):
                needed = needed_now(self._place, self._known)
            going = [each for each in some if each.kind == "temporary" or key_of(each.path) not in needed]
            failed = self._delete(going) if going else set()
            gone = {each.path for each in going} - failed
            for each in some:
                directory = _directory_of(each.path)
                directories[directory] = directories.get(directory, True) and each.path in gone
            self._keys_gone.update(map(key_of, gone))
        for directory, emptied in directories.items():
            if emptied and directory:
                self._drop_directory(directory)

    def _delete(self, files: Sequence[FileFate]) -> set[str]:
        """Delete files; the paths of those that could not be."""
        removed = self._removed([each.path for each in files])
        for each in files:
            if each.path in removed.paths:
                self.done.files.append(each)
                self.done.bytes_removed += each.size
        return set(removed.failed)

    def _removed(self, paths: Sequence[str]) -> Removed:
        self._in_pace()
        removed = self._store.delete_many(paths)
        self.done.failed += removed.failed
        return removed

    def _portions(self, things: Sequence[T]) -> Iterator[Sequence[T]]:
        """What goes at once: one where there is a rate to keep."""
        size = 1 if self._pause else AT_ONCE
        for first in range(0, len(things), size):
            yield things[first : first + size]

    def _drop_directory(self, directory: str) -> None:
        """Remove the directory of a segment or of blob files, if nothing has come into it."""
        if self._store.list_names(directory):
            return
        try:
            self._store.delete_tree(directory)
        except StoreError:
            self.done.failed.append(directory)

    # -- time -------------------------------------------------------------------------------------

    def _in_pace(self) -> None:
        """Wait until the rate allows another deletion."""
        if not self._pause:
            return
        now = runtime.monotonic()
        if self._next_at > now:
            runtime.sleep(self._next_at - now)
        self._next_at = max(now, self._next_at) + self._pause

    def _renew_when_due(self, intent: intents.Intent) -> bool:
        """Write the intent again after a while; whether everything is to be looked at once more."""
        now = runtime.monotonic()
        if now - self._renewed_at < RENEW_SECONDS:
            return False
        intents.renew(self._store, intent)
        self._renewed_at = runtime.monotonic()
        return True


def _directory_of(path: str) -> str:
    """The directory that goes with the file; empty for files that lie directly in a folder of the table."""
    directory = path.rpartition("/")[0]
    return directory if "/" in directory and directory not in FOLDERS else ""


def right_hint(store: Store) -> None:
    """Make the version hint name the newest version, durable, before versions below it go (history C25).

    Only upward. Without a turn at the turnstile it is done all the same: a concurrent writer's hint that it
    pulls down by some versions does no harm while those stand, and they are the newest.
    """
    with store.turnstile(names.VERSIONS_DIR, HINT_TURN_SECONDS):
        found = list_versions(store)
        newest = found[-1].version if found else 0
        known = read_hint(store)
        store.write_hint(
            names.HINT_PATH, names.hint_body(newest if known is None else max(known, newest)), sync=True
        )


def _sweep(store: Store, earlier: Iterable[intents.Intent]) -> None:
    """Remove what runs left that ended, or died, an hour ago: what they named was selected again."""
    for each in earlier:
        if each.expired:
            try:
                intents.withdraw(store, each)
            except StoreError:
                continue  # the next run's
