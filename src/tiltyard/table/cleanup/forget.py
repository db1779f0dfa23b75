"""What a session remembers of files that are gone: nobody asks for it any more, and a table that changes in a
loop would fill the caches with it (case G08).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

from tiltyard.format.names import INDICES_DIR

if TYPE_CHECKING:
    from tiltyard.table.cleanup.survey import Place


def forget(place: Place, paths: Iterable[str]) -> None:
    """Drop what the session has cached under the names of some files of the table."""
    gone = set(paths)
    # Segments are known by their directory, or its name.
    directories = {path.rpartition("/")[0] for path in gone if path.startswith(f"{INDICES_DIR}/")}
    gone |= directories | {directory.rpartition("/")[2] for directory in directories}
    identity = place.store.identity

    def is_gone(key: Hashable) -> bool:
        return isinstance(key, tuple) and bool(key) and key[0] == identity and _names(key[1:], gone)

    place.session.cache.drop_where(is_gone)
    place.session.maps.drop_where(is_gone)


def _names(parts: tuple[Hashable, ...], gone: set[str]) -> bool:
    return any(
        part in gone if isinstance(part, str) else isinstance(part, tuple) and _names(part, gone)
        for part in parts
    )
