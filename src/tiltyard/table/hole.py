"""Whether a version that we just made lies in a hole below others, where nobody would see it (decision D14a).

A writer that slept while others committed, and while a cleanup removed what they committed, can win a number
below the latest. Content was written before the sleep, so what tells is when each manifest got its *name*: a
higher version that had its name before ours was not built on ours. Where the times do not tell (a name of the
same clock tick, a clock that was set back) the content does: what was built on ours names our files.
"""

from __future__ import annotations

from dataclasses import dataclass

from tiltyard.errors import ObjectNotFound, StoreError, UnsupportedFeature
from tiltyard.format.fragment import Fragment
from tiltyard.format.manifest import Manifest
from tiltyard.format.operations import Append, ReserveFragments, Rewrite, UpdateConfig
from tiltyard.session import Session
from tiltyard.store import Store
from tiltyard.table.cleanup.intents import removing
from tiltyard.table.snapshot import Snapshot, read_snapshot
from tiltyard.table.versions import VersionLocation, list_names, read_hint

HOLE_CHECK_SECONDS = 0.010
"""From the look at the latest version to the moment after the win (boot clock): in less, nobody commits twice
and cleans up.
"""

_KEEPING = (Append, UpdateConfig, ReserveFragments)
"""Operations after which every file of the version before is still named."""

FileName = tuple[str, int, int | None]


@dataclass(frozen=True, slots=True)
class Hole:
    """Where a version lies below others: `latest` is the greatest, `built_on` whether another version was
    made on top of it all the same.
    """

    latest: int
    built_on: bool


def fell_into_hole(
    store: Store,
    session: Session,
    made: VersionLocation,
    manifest: Manifest,
    base: Manifest | None,
    *,
    looked_at: float,
    won_at: float,
) -> Hole | None:
    """Look whether others were above our new version before it was there; None if it stands on top.

    `manifest` is ours, `base` the one that it follows. Boot clock seconds: `looked_at` when the latest
    version was looked for, `won_at` after ours got its name. Raises StoreError and CorruptFile when that
    cannot be told.
    """
    if won_at - looked_at <= HOLE_CHECK_SECONDS and not _hint_is_above(store, made.version):
        return None
    higher = list_names(store, above=made.version)
    if not higher:
        return None
    try:
        ours_ns = store.stat(made.path).ctime_ns
    except ObjectNotFound:
        return None  # a cleanup is through with it: others have seen it, and followed
    suspects = [(each, when) for each in higher if (when := _named_at(store, each)) and when <= ours_ns]
    if not suspects:
        return None
    follows = _follows(store, session, suspects[0][0], manifest, base)
    earlier = any(when < ours_ns for _, when in suspects)
    if follows or (follows is None and not earlier):
        return None
    doubted = {each.version for each, _ in suspects}
    next_up = higher[0].version == made.version + 1
    if next_up and follows is None and higher[0].version in doubted:
        if removing(store, session, made.version):
            # A cleanup took the version that the next one was made on, and led the hint past it before.
            return Hole(higher[-1].version, False)
        # The name of our manifest may be older than its times say (a second, temporary one was removed after
        # it), and a version that adds no file cannot be recognised in the next: nothing may be taken back.
        raise StoreError(f"version {higher[0].version} may or may not have been built on it")
    return Hole(higher[-1].version, next_up and higher[0].version not in doubted)


def _hint_is_above(store: Store, version: int) -> bool:
    try:
        hint = read_hint(store)
    except StoreError:
        return True  # not known
    return hint is not None and hint > version


def _named_at(store: Store, location: VersionLocation) -> int | None:
    try:
        return store.stat(location.path).ctime_ns
    except ObjectNotFound:
        return None


def _follows(
    store: Store, session: Session, location: VersionLocation, ours: Manifest, base: Manifest | None
) -> bool | None:
    """Whether a version was built on ours, by the files that it names; None where that does not tell."""
    new = _files(ours) - (set() if base is None else _files(base))
    try:
        other = read_snapshot(store, session, location)
        if not new or new & _files(other.manifest):
            return True if new else None
        return _unless_it_removed(other, location.version == ours.version + 1, new)
    except (ObjectNotFound, UnsupportedFeature):
        return None


def _unless_it_removed(other: Snapshot, directly: bool, new: set[FileName]) -> bool | None:
    """False if a version that names none of our files would name them had it been built on ours."""
    transaction = other.transaction()
    operation = None if transaction is None else transaction.operation
    if isinstance(operation, Rewrite):
        old = {name for group in operation.groups for name in _of(group.old_fragments)}
        return True if old & new else None
    return False if directly and isinstance(operation, _KEEPING) else None


def _files(manifest: Manifest) -> set[FileName]:
    return _of(manifest.fragments)


def _of(fragments: object) -> set[FileName]:
    found: set[FileName] = set()
    for fragment in fragments:  # type: ignore[attr-defined]
        assert isinstance(fragment, Fragment)
        found.update((file.path, -1, file.base_id) for file in fragment.files)
        if fragment.deletion is not None:
            found.add((fragment.deletion.path(fragment.id), fragment.id, fragment.deletion.base_id))
    return found
