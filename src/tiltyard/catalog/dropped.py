"""What the register keeps of a dropped table: a record in its metadata, `tiltyard.trash.<uuid>` (D24).

Pure: nothing is read or written here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tiltyard.catalog import moves
from tiltyard.catalog.names import Id, parts
from tiltyard.catalog.rows import TABLE, Row

PREFIX = moves.TRASH_PREFIX
DROPPED = "dropped"
"""The data are there, and the table can be brought back."""
PURGING = "purging"
"""The data are being deleted."""

MAX_TIME_NS = 1 << 64
"""No time of a store is later."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A table that was dropped, as its record in the register says. Times are nanoseconds of the store's
    clock since 1970 UTC.
    """

    trash: str
    """The uuid of this drop: what undrop takes where one name was dropped several times."""
    object_id: str
    location: str
    """Where the data are."""
    dropped_ns: int
    until_ns: int
    """When the data may be given up."""
    state: str = DROPPED
    home: str | None = None
    """Where the directory was, and goes again; None where it never left."""
    metadata: str | None = None
    base_objects: tuple[str | None, ...] | None = None
    hidden: bool = False
    """Whether a marker hides the directory, which could not be moved aside."""
    emptied_ns: int | None = None
    """When the last file was deleted."""
    has_versions: bool | None = None
    """Whether it held a version when it was dropped, and not only a name; None where nobody looked."""

    @property
    def id(self) -> Id:
        """What the table was called."""
        return parts(self.object_id)

    @property
    def key(self) -> str:
        """Where the record stands in the register's metadata."""
        return PREFIX + self.trash

    @property
    def row(self) -> Row:
        """The row that brings the table back."""
        return Row(self.object_id, TABLE, self.home or self.location, self.metadata, self.base_objects)

    def text(self) -> str:
        """The value in the register's metadata."""
        bases = None if self.base_objects is None else list(self.base_objects)
        values: dict[str, Any] = {
            "id": self.object_id,
            "location": self.location,
            "metadata": self.metadata,
            "time": self.dropped_ns,
            "until": self.until_ns,
            "state": self.state,
        }
        more = {"home": self.home, "base_objects": bases, "emptied": self.emptied_ns}
        values |= {name: value for name, value in more.items() if value is not None}
        if self.hidden:
            values["hidden"] = True
        if self.has_versions is not None:
            values["versions"] = self.has_versions
        return json.dumps(values, separators=(",", ":"))


def parsed(key: str, text: str) -> Dropped | None:
    """A record from the register's metadata; None for what cannot be read."""
    try:
        values = json.loads(text)
        bases, versions = values.get("base_objects"), values.get("versions")
        if bases is not None and not isinstance(bases, list):
            return None
        found = Dropped(
            moves.uuid_of(key, PREFIX),
            moves.words(values["id"]),
            moves.words(values["location"]),
            moves.whole(values["time"], MAX_TIME_NS),
            moves.whole(values["until"], MAX_TIME_NS),
            moves.words(values["state"]),
            _maybe_words(values.get("home")),
            _maybe_words(values.get("metadata")),
            None if bases is None else tuple(map(_maybe_words, bases)),
            values.get("hidden") is True,
            None if values.get("emptied") is None else moves.whole(values["emptied"], MAX_TIME_NS),
            versions if isinstance(versions, bool) else None,
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return found if found.object_id else None


def _maybe_words(value: Any) -> str | None:
    return None if value is None else moves.words(value)


def records(metadata: Mapping[str, str]) -> tuple[Dropped, ...]:
    """Every dropped table that a register speaks of, the oldest drop first; unreadable ones are left out."""
    found = [parsed(key, metadata[key]) for key in metadata if key.startswith(PREFIX)]
    return tuple(sorted((each for each in found if each), key=lambda each: (each.dropped_ns, each.trash)))


def unreadable(metadata: Mapping[str, str]) -> tuple[str, ...]:
    """The keys of records that cannot be read."""
    return tuple(key for key in metadata if key.startswith(PREFIX) and parsed(key, metadata[key]) is None)
