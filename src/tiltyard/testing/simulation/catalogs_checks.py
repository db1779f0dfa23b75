"""What must hold in the storage of a catalog after a run, whatever happened in it.

Checks, by the numbers of docs/design/008-catalog.md (K2 and K3 are about answers: `catalogs_scenarios`):
K1  In every version of the register that was ever made, an id has one row.
K4  What was refused leaves no directory.
K6  In every version the namespaces above a row are there.
K8  No two entries, dropped ones included, have one directory.
K9  The versions of the register have no gap, and none was taken away.
K10  What stands in the register without being ours is kept.
K11  After one more mutation no move of a directory is left to do.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tiltyard.table.scan import Scan, ScanRequest
from tiltyard.table.snapshot import Snapshot, open_snapshot
from tiltyard.table.versions import list_versions
from tiltyard.testing.simulation.catalogs import ROOT, Ledger
from tiltyard.testing.simulation.catalogs_model import Asked, Refused
from tiltyard.testing.simulation.chain import Chain
from tiltyard.testing.simulation.world import World

REGISTER = "__manifest"

FOREIGN_KEY, FOREIGN_VALUE = "somebody.else", "kept"
FOREIGN_ID, FOREIGN_TYPE = "strange", "view"

TRASH, MOVE = "tiltyard.trash.", "tiltyard.move."

_HASHED = re.compile("[0-9a-f]{8}_")

MAKING_CALLS = ("create", "exist_ok", "overwrite")
"""Calls that make a directory of their own first."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the register as any reader of tables sees it."""

    object_id: str
    object_type: str
    location: str | None


@dataclass(frozen=True, slots=True)
class Version:
    """One version of the register, read without the catalog."""

    rows: tuple[Row, ...]
    metadata: Mapping[str, str]

    def locations(self) -> dict[str, str]:
        """Who has which directory: rows by id, dropped entries by their key."""
        found = {each.object_id: each.location for each in self.rows if each.location is not None}
        return found | {key: record["location"] for key, record in self.records(TRASH).items()}

    def records(self, prefix: str) -> dict[str, dict[str, str]]:
        """The records of dropped tables or of moves, by key."""
        return {
            key: json.loads(text) for key, text in sorted(self.metadata.items()) if key.startswith(prefix)
        }


def read_version(snapshot: Snapshot) -> Version:
    """The rows and the metadata of a version of the register."""
    table = Scan(snapshot, ScanRequest(columns=["object_id", "object_type", "location"])).table()
    rows = tuple(Row(**each) for each in table.to_pylist())
    return Version(rows, dict(snapshot.manifest.table_metadata))


def check_versions(world: World) -> list[str]:
    """K1, K6, K9 of every version that was ever made. Run it in calm weather, in an actor."""
    store = world.store(f"{ROOT}/{REGISTER}")
    standing = sorted(each.version for each in list_versions(store))
    wrong = []
    if standing != list(range(1, len(standing) + 1)):
        wrong.append(f"K9: the register has versions {standing}")
    chain = Chain(world, f"{ROOT}/{REGISTER}")
    for number in sorted(chain.settled):
        version = read_version(chain.snapshot(number))
        wrong += _check_rows(number, version)
    wrong += [
        f"K9: version {number} of the register was never made"
        for number in standing
        if number not in chain.settled
    ]
    return wrong


def _check_rows(number: int, version: Version) -> list[str]:
    counted = Counter(each.object_id for each in version.rows)
    wrong = [
        f"K1: version {number} has {many} rows for {object_id!r}"
        for object_id, many in counted.items()
        if many > 1
    ]
    namespaces = {each.object_id for each in version.rows if each.object_type == "namespace"}
    for each in version.rows:
        parts = each.object_id.split("$")
        missing = [
            above for end in range(1, len(parts)) if (above := "$".join(parts[:end])) not in namespaces
        ]
        if missing:
            wrong.append(f"K6: version {number} has {each.object_id!r} without {missing[0]!r}")
    places = Counter(version.locations().values())
    wrong += [
        f"K8: in version {number} {many} entries have the directory {place!r}"
        for place, many in places.items()
        if many > 1
    ]
    return wrong


def check_settled(world: World) -> list[str]:
    """K10, K11 in the newest version, once another mutation has been made."""
    store = world.store(f"{ROOT}/{REGISTER}")
    newest = read_version(open_snapshot(store, world.session()))
    wrong = [f"K11: a move is left: {key}: {record}" for key, record in newest.records(MOVE).items()]
    if newest.metadata.get(FOREIGN_KEY) != FOREIGN_VALUE:
        wrong.append(f"K10: the metadata of somebody else are gone: {dict(newest.metadata)}")
    if not any(each.object_id == FOREIGN_ID and each.object_type == FOREIGN_TYPE for each in newest.rows):
        wrong.append("K10: a row of somebody else is gone")
    return wrong


def _may_leave_files(asked: Asked) -> bool:
    """Whether a call may leave a directory that no entry names: because its caller does not know what became
    of it, or on purpose.
    """
    call = asked.name.partition(": ")[2]
    if call.startswith("deregister"):
        return not isinstance(asked.answer, Refused)
    return asked.answer is None and call.startswith(MAKING_CALLS)


def check_directories(world: World, ledger: Ledger) -> list[str]:
    """K4: hashed directories that nobody has, beyond those of calls that were never answered for certain."""
    if world.storm.struck["machine crash"]:
        return []  # power loss brings back what was deleted
    store = world.store(ROOT)
    newest = read_version(open_snapshot(store.at(REGISTER), world.session()))
    named = set(newest.locations().values())
    orphans = [
        name for name in store.list_names() if _HASHED.match(name) and name not in named and store.list(name)
    ]
    unsure = sum(_may_leave_files(each) for each in ledger.asked)
    failures = sum(
        many for fault, many in world.storm.struck.items() if fault.startswith(("fail", "lose", "late"))
    )
    if len(orphans) > unsure + failures:
        return [f"K4: directories that nobody has: {orphans}"]
    return []


def check_aside(world: World, dropped: Collection[str]) -> list[str]:
    """K4, K7 of a catalog without a register: beside tables, nothing holds files but what is in the
    directories of these dropped ones.
    """
    if world.storm.struck["machine crash"]:
        return []  # power loss brings back what was deleted
    store, wrong = world.store(ROOT), []
    for name in store.list_names():
        if not _HASHED.match(name) or name in dropped:
            continue
        files = [each.path for each in store.list(name) if "/_tiltyard/" not in each.path]
        if world.storm.struck:  # who died there may have left data, but no version
            files = [each for each in files if each.endswith(".manifest")]
        wrong += [f"K4: {name} holds {files}, and no table"] if files else []
    return wrong
