"""Every version of a table that ever was, whether it is retained or not, and its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from tiltyard.format import names
from tiltyard.session import Session
from tiltyard.store.memory import MemoryStore, Space
from tiltyard.table.scan import Scan, ScanRequest
from tiltyard.table.snapshot import Snapshot, open_snapshot
from tiltyard.testing.simulation.history import Operation, Rows
from tiltyard.testing.simulation.world import World

KEY, VALUE = "id", "value"


def rows_of(snapshot: Snapshot, where: str | None = None) -> Rows:
    """The rows of a version, or those that pass a filter: values by key."""
    return by_key(Scan(snapshot, ScanRequest(columns=[KEY, VALUE], where=where)).table())


def by_key(table: pa.Table) -> Rows:
    """The rows of an Arrow table: values by key."""
    found: dict[int, list[int]] = {}
    for key, value in zip(table[KEY].to_pylist(), table[VALUE].to_pylist(), strict=True):
        found.setdefault(key, []).append(value)
    return {key: tuple(sorted(values)) for key, values in sorted(found.items())}


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest that was made: its place in the order of all names, when, and whether greater versions
    stood.
    """

    order: int
    at_ns: int
    version: int
    content: bytes
    below_another: bool


class Chain:
    """Every version of a table of a world, whether it is retained or not.

    A number may have been given more than once: after a power cut took it, or to a sleeper for whom it was
    free again after a cleanup. `settled` decides which one is the version.
    """

    def __init__(self, world: World, path: str = "table") -> None:
        self._archive = MemoryStore(Space("archive"), clock=lambda: 0)
        self._made: dict[int, list[Manifest]] = {}
        self.settled: dict[int, Manifest] = {}
        for order, place, made in world.made(path):
            version = version_of(place)
            if version is None:
                self._archive.put(place, made.data)
                continue
            below = made_below_another(version, made.beside)
            self._made.setdefault(version, []).append(Manifest(order, made.at_ns, version, made.data, below))
        for version, every in self._made.items():
            on_top = [each for each in every if not each.below_another]
            self.settle(version, (on_top or every)[-1])
        self._session = Session()
        self._rows: dict[int, Rows] = {}

    def settle(self, version: int, manifest: Manifest) -> None:
        """Let this manifest be the version."""
        self.settled[version] = manifest
        naming_path = names.manifest_path(version, "V2")
        self._archive.put(naming_path, manifest.content)

    def is_stray(self, version: int) -> bool:
        """Whether what stands as this version was made below a greater one: by a sleeper, who was told that
        its outcome is unknown. Nobody reads on from it.
        """
        return self._made[version][-1].below_another

    def acknowledged(self, operation: Operation) -> Manifest | None:
        """The manifest that an operation was told of: the newest of its number when the answer came, if it
        was made while the operation ran.
        """
        assert operation.version is not None
        stood = self._before(operation.version, operation)
        return stood[-1] if stood and stood[-1].order >= operation.made_from else None

    def _before(self, number: int, operation: Operation) -> list[Manifest]:
        return [each for each in self._made.get(number, []) if each.order < operation.made_before]

    def shown(self, number: int, operation: Operation) -> list[Rows]:
        """What an operation may have been shown as a version: what stood by that number before its end."""
        return [self._rows_of(each) for each in self._before(number, operation)]

    def _rows_of(self, manifest: Manifest) -> Rows:
        number = manifest.version
        if self.settled[number] is manifest:
            return self.rows(number)
        path = names.manifest_path(number, "V2")
        self._archive.put(path, manifest.content)
        found = rows_of(open_snapshot(self._archive, Session(), version=number))
        self._archive.put(path, self.settled[number].content)
        return found

    def keys(self) -> set[int]:
        """Every key of every version whose rows were asked for."""
        return set().union(*self._rows.values())

    def snapshot(self, number: int) -> Snapshot:
        """A version, from everything that was ever written."""
        return open_snapshot(self._archive, self._session, version=number)

    def rows(self, number: int) -> Rows:
        """The rows of a version."""
        found = self._rows.get(number)
        if found is None:
            found = self._rows[number] = rows_of(self.snapshot(number))
        return found


def version_of(place: str) -> int | None:
    """The version whose manifest has this path in a table; None for every other file."""
    directory, _, name = place.rpartition("/")
    parsed = names.parse_manifest_name(name) if directory == names.VERSIONS_DIR else None
    return None if parsed is None or parsed[1] == "detached" else parsed[0]


def made_below_another(version: int, beside: Sequence[str]) -> bool:
    """Whether a greater version stood among the names beside a manifest when it was made."""
    return any((version_of(f"{names.VERSIONS_DIR}/{name}") or 0) > version for name in beside)
