"""The version hint: where our commits write it, and how they notice that they fell into a hole (D13, D14a).

The hint helps readers on a local disk and peers that probe from it. Rules: only upward, only while holding
the turnstile, and not at all when more than a second has passed since the version was created.
"""

from __future__ import annotations

from tiltyard import runtime
from tiltyard.errors import ObjectNotFound, StoreError
from tiltyard.format import names
from tiltyard.store import Store
from tiltyard.table.versions import VersionLocation, list_versions, read_hint

MAX_HINT_DELAY_SECONDS = 1.0
"""A hint later than this could pull a newer one down; it is left to the next commit."""

MAX_LOOK_AGE_SECONDS = 10.0
"""A commit planned on a look at the latest version older than this looks again (boot clock, so sleep
counts).
"""


def write_hint(store: Store, version: int, created_at: float) -> None:
    """Raise the hint to `version`. Call it holding the turnstile; `created_at` is boot-clock seconds."""
    if runtime.monotonic() - created_at > MAX_HINT_DELAY_SECONDS:
        return
    current = read_hint(store)
    if current is not None and current >= version:
        return
    try:
        store.write_hint(names.HINT_PATH, names.hint_body(version))
    except StoreError:
        return  # the hint is advice: the version stands, and readers list the directory instead


def fell_into_hole(store: Store, made: VersionLocation, looked_at: float) -> int | None:
    """The latest version, if the one above the version that we just made was there before it; else None.

    A writer that slept while others committed and a cleanup removed those commits can win a number below the
    latest; nobody would ever see that version.
    """
    hint = read_hint(store)
    aged = runtime.monotonic() - looked_at > MAX_LOOK_AGE_SECONDS
    if not aged and (hint is None or hint <= made.version):
        return None
    higher = [location for location in list_versions(store) if location.version > made.version]
    if not higher:
        return None
    try:
        ours = store.stat(made.path)
        other = store.stat(higher[0].path)
    except ObjectNotFound:
        return None  # a cleanup is through with one of them: the chain was seen by others
    # Whoever continues from our version writes its content after ours got its name. Link times alone would
    # not do: removing a temporary name later moves them.
    return higher[-1].version if other.mtime_ns < ours.mtime_ns else None
