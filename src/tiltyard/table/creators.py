"""Two creators of one table that use different naming schemes: their names do not exclude each other.

So each lists the names after it won. The creator under the old scheme makes room at once; the one under the
usual scheme waits for that, and makes room itself when the other one stays (an official writer, or one that
has died). In the end at most one of the two stands, and the other is told that the table exists. While both
stand, readers refuse the table by naming the two schemes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tiltyard import runtime
from tiltyard.format import names
from tiltyard.format.names import Naming
from tiltyard.store import Store
from tiltyard.table.snapshot import Snapshot
from tiltyard.table.versions import VersionLocation, list_names

ROOM_SECONDS = 1.0
"""How long a creator under the usual names waits for one under the old names to make room."""

ROOM_POLL_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class OwnPlace:
    """A directory that its creator has just named, at random, and told to nobody: there is no version in it,
    and nobody else makes one before a first version stands there.
    """

    store: Store


def other_naming(naming: Naming) -> Naming:
    """The scheme that the first version of a table does not have."""
    return "V1" if naming == "V2" else "V2"


def outlived_other_names(
    store: Store, made: VersionLocation, ours_at: Callable[[VersionLocation], Snapshot | None]
) -> bool:
    """Whether our first version stands; if not, it was removed again. `ours_at`: the version if it is ours.

    Waits for up to a second for others to make room. Raises StoreError.
    """
    deadline = runtime.monotonic() + ROOM_SECONDS
    waited = False
    while True:
        found = list_names(store)
        others = [each for each in found if each.naming != made.naming]
        if not others:
            if waited:  # durably, or power loss brings its name back beside ours
                store.sync_dir(names.VERSIONS_DIR)
            return True
        if any(each.naming == made.naming and each.version > made.version for each in found):
            return True  # somebody has built on ours
        first = others[0]
        if first.version == made.version and ours_at(first) is not None:
            return True  # a migration gave it its other name
        if made.naming == "V1" or len(others) > 1 or runtime.monotonic() >= deadline:
            store.delete(made.path)
            store.sync_dir(names.VERSIONS_DIR)
            return False
        waited = True
        runtime.sleep(ROOM_POLL_SECONDS)
