"""Several tables changed together: declared, deregistered, given new versions, relieved of old ones (decision
D5).

Declarations and deregistrations are one rewrite of the register, and atomic for everybody. New versions of
several tables cannot be one write; they are all-or-nothing in outcome among our writers, and **not**
isolated: a reader may see some of them before the others.

1. look: every staged manifest is there and each table stands right below it; ids are free, or taken
2. reserve the directories of declarations
3. write down the intent (`batch_intents`)
4. publish the versions, in the order of their locations, each strictly as the next one of its table
5. the rewrite
6. remove old versions; then the intent, then staged files

| lost or crashed at | outcome |
|---|---|
| 1 to 3 | nothing happened |
| 4, the first version is taken by another commit | the intent goes, nothing happened |
| 4, a later one is taken | it is committed on top, if the two go together; else those before are taken back |
| 5 refuses (an id was taken since 1) | the versions are taken back |
| anywhere, by a crash | any change of this catalog by ours that meets the intent goes on from there |

A version is taken back by a commit that restores the one before, strictly on top of it. Where somebody has
built on it already, or it was the first of its table, that cannot be: `BatchTorn` names what stands and what
does not, and a file in `_tiltyard/batch/` keeps it for `tiltyard catalog check`.

Invariants, checked by tests/catalog/test_batch.py:
1. Whoever goes through the steps, and however often, comes to the same outcome: each looks for the uuids in
   the intent first, and what refuses one refuses all.
2. Nothing is taken back, and no intent removed, after an unknown outcome.
3. A batch that was refused leaves the staged files to their client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tiltyard import runtime
from tiltyard.catalog import batch_rows
from tiltyard.catalog.batch_intents import Intent, Removal, Staged, announce
from tiltyard.catalog.batch_members import (
    CreateVersion,
    DeclareTable,
    DeleteVersions,
    DeregisterTable,
    Done,
    Member,
)
from tiltyard.catalog.batch_walk import Walk, finish_pending, transaction_at
from tiltyard.catalog.found import find_table, table_store
from tiltyard.catalog.names import Id, object_id
from tiltyard.catalog.operations.paths import staged_name
from tiltyard.catalog.operations.versions import check_deletion
from tiltyard.errors import (
    CorruptFile,
    InvalidInput,
    ObjectNotFound,
    OutcomeUnknown,
    RetryableConflict,
    StoreError,
    TiltyardError,
    UnsupportedFeature,
)
from tiltyard.format import names
from tiltyard.table.versions import VersionLocation, latest_or_none

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.format.names import Naming
    from tiltyard.store import Store

__all__ = [
    "CreateVersion",
    "DeclareTable",
    "DeleteVersions",
    "DeregisterTable",
    "Done",
    "Member",
    "commit_batch",
    "finish_pending",
]

MAX_MEMBERS = 1000
"""Operations of one batch."""

MAIN = (None, "", "main")
"""What names the main branch."""


def commit_batch(catalog: Catalog, members: Sequence[Member]) -> tuple[Done, ...]:
    """Do all of the members or none; what became of each, in their order.

    Raises what the single operations raise (then nothing stands), `RetryableConflict` where another commit
    took one of the versions, `BatchTorn`, and `OutcomeUnknown`: then the next change of this catalog finishes
    the batch or takes it back.
    """
    _check(members)
    finish_pending(catalog)
    plan = _Plan(catalog, members)
    intent = plan.intent
    reserved = batch_rows.reserve(catalog, intent.rows)
    try:
        if not intent.versions and not intent.removals:
            batch_rows.change(catalog, intent.rows)  # one rewrite: nothing to write down before it
            return plan.done({}, ())
        announce(catalog.store, intent)
    except OutcomeUnknown:
        raise
    except TiltyardError:
        batch_rows.release(catalog, reserved)
        raise
    walk = Walk(catalog, intent)
    walk.run()
    return plan.done(walk.landed, walk.deleted)


def _check(members: Sequence[Member]) -> None:
    if not members:
        raise InvalidInput("a batch has at least one operation")
    if len(members) > MAX_MEMBERS:
        raise InvalidInput(f"a batch has at most {MAX_MEMBERS} operations, found {len(members)}")
    seen: set[Id] = set()
    for member in members:
        if isinstance(member, CreateVersion | DeleteVersions) and member.branch not in MAIN:
            raise UnsupportedFeature(f"a batch changes the main branch only, found branch {member.branch!r}")
        if isinstance(member, CreateVersion):
            if member.id in seen:
                raise InvalidInput(
                    f"a batch makes one version of a table at most, found two of {object_id(member.id)!r}"
                )
            seen.add(member.id)
    gone = {member.id for member in members if isinstance(member, DeregisterTable)}
    for member in members:
        if isinstance(member, DeleteVersions) and member.id in gone:
            raise InvalidInput(
                f"a batch cannot deregister {object_id(member.id)!r} and remove versions of it: do the one "
                "before the other"
            )


class _Plan:
    """The members checked against the catalog as it is, and the intent made of them; nothing is written."""

    def __init__(self, catalog: Catalog, members: Sequence[Member]) -> None:
        self._catalog = catalog
        self._members = members
        self._staged: dict[int, tuple[Store, Staged]] = {}
        staged: list[Staged] = []
        removals: list[Removal] = []
        for at, member in enumerate(members):
            if isinstance(member, CreateVersion):
                staged.append(self._checked(at, member))
            elif isinstance(member, DeleteVersions):
                removals.append(self._removal(member))
        # First versions last: they cannot be taken back.
        staged.sort(key=lambda each: (each.version == 1, each.location))
        rows = [each for each in members if isinstance(each, DeclareTable | DeregisterTable)]
        changes = batch_rows.prepare(catalog, rows)
        self.intent = Intent(str(runtime.uuid4()), tuple(staged), changes, tuple(removals))

    def _checked(self, at: int, member: CreateVersion) -> Staged:
        found = find_table(self._catalog, member.id)
        store = table_store(self._catalog, found)
        path = f"{names.VERSIONS_DIR}/{staged_name(store, member.manifest_path)}"
        naming: Naming = "V1" if member.naming_scheme == "V1" else "V2"
        newest = latest_or_none(store, self._catalog.session)
        latest = 0 if newest is None else newest.version
        if newest is not None and newest.naming != naming:
            raise InvalidInput(
                f"the versions of {store.uri} are named by scheme {newest.naming}, not {naming}; a table has "
                "one"
            )
        if member.version != latest + 1:
            raise RetryableConflict(
                f"Version CAS failed for table at {store.uri!r}: requested {member.version}, expected "
                f"{latest + 1} (latest {latest})"
            )
        shown = member.manifest_path
        try:
            transaction = transaction_at(store, path, member.version)
        except ObjectNotFound as error:
            raise InvalidInput(f"Staging manifest not found at {shown!r}") from error
        except CorruptFile as error:
            raise InvalidInput(f"what is staged at {shown!r} is no manifest: {error}") from error
        undo = str(runtime.uuid4())
        made = Staged(member.id, found.location, member.version, naming, path, transaction.uuid, undo)
        self._staged[at] = store, made
        return made

    def _removal(self, member: DeleteVersions) -> Removal:
        found = find_table(self._catalog, member.id)
        ranges = tuple((int(start), int(end)) for start, end in member.ranges)
        made = [each for each in self._members if isinstance(each, CreateVersion) and each.id == member.id]
        check_deletion(self._catalog, member.id, ranges, made[0].version if made else None)
        return Removal(member.id, found.location, ranges)

    def done(self, landed: Mapping[Id, VersionLocation], deleted: Sequence[int]) -> tuple[Done, ...]:
        """What became of the members, in their order."""
        rows, counts = iter(self.intent.rows), iter(deleted)
        told = []
        for at, member in enumerate(self._members):
            if isinstance(member, CreateVersion):
                store, staged = self._staged[at]
                told.append(_published(store, staged, member, landed[member.id]))
            elif isinstance(member, DeleteVersions):
                told.append(Done(member, deleted=next(counts)))
            else:
                change = next(rows)
                told.append(Done(member, change.location, change.properties))
        return tuple(told)


def _published(store: Store, staged: Staged, member: Member, made: VersionLocation) -> Done:
    try:
        stat = store.stat(made.path)
    except StoreError:  # cleaned up since, or not to be seen just now: the version stands all the same
        return Done(member, staged.location, version=made.version, manifest=made.path)
    return Done(
        member,
        staged.location,
        version=made.version,
        manifest=made.path,
        manifest_size=stat.size,
        e_tag=f'"{stat.tag}"',
    )
