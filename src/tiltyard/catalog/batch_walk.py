"""The steps of a batch, gone through by whoever began it and by whoever meets its intent; see `batch`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tiltyard import runtime
from tiltyard.catalog import batch_rows
from tiltyard.catalog.batch_intents import (
    BATCH_DIR,
    Intent,
    Staged,
    is_announced,
    pending,
    read_intent,
    tear,
    was_torn,
    withdraw,
)
from tiltyard.catalog.names import Id, object_id
from tiltyard.catalog.operations.versions import delete_table_versions
from tiltyard.errors import (
    BatchTorn,
    CorruptFile,
    InvalidInput,
    ObjectNotFound,
    OutcomeUnknown,
    RetryableConflict,
    StoreError,
    TiltyardError,
    TooMuchContention,
    UnsupportedFeature,
)
from tiltyard.format import names
from tiltyard.format.manifest import decode_manifest
from tiltyard.format.operations import Restore
from tiltyard.format.transaction import Transaction, decode_transaction
from tiltyard.store import Created
from tiltyard.table.commit import commit
from tiltyard.table.hint import write_hint
from tiltyard.table.hole import HOLE_CHECK_SECONDS
from tiltyard.table.landed import landed_before
from tiltyard.table.snapshot import Snapshot, read_snapshot
from tiltyard.table.turnstile import TURNSTILE_SECONDS
from tiltyard.table.versions import VersionLocation, latest_or_none, list_names, locate

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.store import Store

REMOVED_SINCE = "one that was removed since"
UNNAMED = "one that does not say which it is"


def finish_pending(catalog: Catalog) -> None:
    """Finish the batches that others began and did not end, or take them back. Every change of the catalog
    begins with it: one look where there are none.

    What becomes of them is told to whoever asked for them, not to the caller; what cannot be done now
    (storage fails, an intent is damaged) is left to the next one, and `check` shows it.
    """
    for path in list(pending(catalog.store)):
        try:
            intent = read_intent(catalog.store, path)
            if intent is not None:
                # Who wrote it may have died before it was durable, and nothing may be done without it.
                catalog.store.sync_dir(BATCH_DIR)
                Walk(catalog, intent).run()
        except TiltyardError:
            continue  # told by what it leaves: no intent, a torn file, or the intent itself


def transaction_at(store: Store, path: str, version: int | None = None) -> Transaction:
    """What a manifest says that made it. Raises `ObjectNotFound`, `CorruptFile`, `InvalidInput` (it is of
    another version than `version`, or does not say).
    """
    manifest, inline = decode_manifest(store.read(path), path)
    if version is not None and manifest.version != version:
        raise InvalidInput(f"the manifest at {path!r} is of version {manifest.version}, not of {version}")
    found = inline()
    if found is None and manifest.transaction_file:
        name = names.transaction_path(manifest.transaction_file)
        found = decode_transaction(store.read(name), name)
    if found is None:
        raise InvalidInput(
            f"the manifest at {path!r} does not say which transaction it is; a batch needs that to know it "
            "again"
        )
    return found


@dataclass(slots=True)
class Walk:
    """One walk through the steps of an intent, from wherever they stand."""

    catalog: Catalog
    intent: Intent
    landed: dict[Id, VersionLocation] = field(default_factory=dict)
    """Where the versions of the batch stand."""
    deleted: list[int] = field(default_factory=list)
    """How many manifests went, for each removal."""

    def run(self) -> None:
        """Do everything that is still to be done. Raises what refuses the batch (nothing of it stands then),
        `BatchTorn`, `OutcomeUnknown`.
        """
        try:
            for at, staged in enumerate(self.intent.versions):
                self.landed[staged.id] = self._publish(staged, first=at == 0)
            if self.intent.rows:
                self._rewrite()
        except (OutcomeUnknown, TooMuchContention, StoreError) as error:
            raise self._unknown(error) from error  # others may be at the same step
        except TiltyardError as error:
            self._take_back(error)
            raise
        self._remove_old()
        try:
            withdraw(self.catalog.store, self.intent)
        except StoreError:
            return  # everything stands; the next change of the catalog finds nothing left to do
        for staged in self.intent.versions:
            with suppress(StoreError):  # a cleanup collects it
                self.catalog.store.at(staged.location).delete(staged.path)

    def _unknown(self, error: TiltyardError) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"the batch {self.intent.uuid} is half done ({error}); the next change of the catalog "
            f"{self.catalog.store.uri} finishes it or takes it back",
            uuid=self.intent.uuid,
        )

    # -- versions --------------------------------------------------------------------------------

    def _publish(self, staged: Staged, *, first: bool) -> VersionLocation:
        """Make one version; where it stands. Raises what refuses it, `OutcomeUnknown`, `StoreError`."""
        store = self.catalog.store.at(staged.location)
        path = names.manifest_path(staged.version, staged.naming)
        location = VersionLocation(staged.version, path, staged.naming)
        theirs = _uuid_at(store, location) or self._create(store, staged, location)
        if theirs == staged.uuid:
            return location
        if first:
            raise RetryableConflict(
                f"version {staged.version} of {store.uri} was made by another commit ({theirs}) before the "
                "batch began; nothing was changed. Stage on the newest versions and try again"
            )
        return self._on_top(store, staged)

    def _create(self, store: Store, staged: Staged, location: VersionLocation) -> str:
        """Put the manifest under its name; the uuid of what stands there now."""
        looked_at = runtime.monotonic()
        newest = latest_or_none(store, self.catalog.session)
        latest = 0 if newest is None else newest.version
        if latest != staged.version - 1:
            # Taken between our two looks, or made and cleaned up long ago: others were here.
            theirs = _uuid_at(store, location)
            if theirs is None:
                theirs = REMOVED_SINCE if self._retained(store, staged) is None else staged.uuid
            return theirs
        try:
            answer = store.copy_create(staged.path, location.path)
        except ObjectNotFound as error:
            theirs = _uuid_at(store, location)
            if theirs is None:
                raise self._gone(store, staged) from error
            return theirs
        if answer is Created.NOT_DONE:
            cause = store.failure(location.path)
            raise StoreError(f"version {location.version} of {store.uri} could not be written") from cause
        theirs = staged.uuid if answer is Created.WON else _uuid_at(store, location)
        late = runtime.monotonic() - looked_at > HOLE_CHECK_SECONDS
        if theirs is None or (answer is Created.WON and late and list_names(store, above=location.version)):
            raise OutcomeUnknown(
                f"whether version {location.version} of {store.uri} was made, on top of all others, is not "
                "known",
                uuid=staged.uuid,
                version=location.version,
            )
        if answer is Created.UNKNOWN:
            store.sync_dir(names.VERSIONS_DIR)
        if answer is Created.WON:
            _leave_hint(store, location.version)
        return theirs

    def _retained(self, store: Store, staged: Staged) -> Snapshot | None:
        """The retained version that is the member, wherever it stands."""
        who = f"the batch {self.intent.uuid}"
        return landed_before(store, self.catalog.session, lambda each: each.uuid == staged.uuid, who)

    def _gone(self, store: Store, staged: Staged) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"the staged manifest {staged.path} of {store.uri} is gone: another process has gone through the "
            f"batch {self.intent.uuid}. Look at its tables again",
            uuid=self.intent.uuid,
        )

    def _on_top(self, store: Store, staged: Staged) -> VersionLocation:
        """Commit a later member over what another writer committed, where the two go together."""
        try:
            transaction = transaction_at(store, staged.path)
        except ObjectNotFound as error:
            made = self._retained(store, staged)
            if made is not None:
                return made.location  # an intent that came back when all was over
            raise self._gone(store, staged) from error
        return commit(store, transaction, session=self.catalog.session, base=None).location

    def _take_back(self, cause: TiltyardError) -> None:
        """Undo what stands, so that nothing of the batch does. Raises `BatchTorn`, `OutcomeUnknown`."""
        torn: list[str] = []
        undone: list[str] = []
        for staged in reversed(self.intent.versions):
            made = self.landed.get(staged.id)
            if made is None:
                continue
            named = f"version {made.version} of {object_id(staged.id)!r}"
            try:
                self._restore(staged, made)
                undone.append(named)
            except (OutcomeUnknown, TooMuchContention, StoreError) as error:
                raise self._unknown(error) from error
            except TiltyardError as error:
                torn.append(f"{named} ({error})")
        told = (
            f"the batch {self.intent.uuid} could be neither finished ({cause}) nor taken back: "
            f"{'; '.join(torn)} stand; taken back: {', '.join(undone) or 'nothing'}"
        )
        store = self.catalog.store
        if torn and not is_announced(store, self.intent) and not was_torn(store, self.intent):
            # Another process has gone through all of it, so long ago that its versions are gone or built on.
            raise self._unknown(cause) from cause
        batch_rows.release(self.catalog, self.intent.rows)
        if torn:
            self._tear(told)
            raise BatchTorn(told) from cause
        try:
            withdraw(store, self.intent)
        except StoreError as error:
            raise self._unknown(error) from error

    def _tear(self, told: str) -> None:
        """Leave word instead of the intent. Raises `OutcomeUnknown`."""
        try:
            tear(self.catalog.store, self.intent, told)
            withdraw(self.catalog.store, self.intent)
        except StoreError as error:
            raise self._unknown(error) from error

    def _restore(self, staged: Staged, made: VersionLocation) -> None:
        store, session = self.catalog.store.at(staged.location), self.catalog.session
        if made.version == 1:
            raise UnsupportedFeature("there is no version before it to go back to")
        base = read_snapshot(store, session, made)
        before = locate(store, made.version - 1).version
        undo = Transaction(made.version, staged.undo, Restore(before))
        commit(store, undo, session=session, base=base, strict=True, skip_auto_cleanup=True)

    # -- the register, and what goes -------------------------------------------------------------

    def _rewrite(self) -> None:
        if is_announced(self.catalog.store, self.intent):  # else another process has gone through all of it
            batch_rows.change(self.catalog, self.intent.rows, self.intent.uuid)

    def _remove_old(self) -> None:
        for removal in self.intent.removals:
            try:
                self.deleted.append(delete_table_versions(self.catalog, removal.id, removal.ranges))
            except StoreError as error:
                raise self._unknown(error) from error
            except TiltyardError as error:
                told = (
                    f"versions of {object_id(removal.id)!r} could not be removed ({error}); all else of "
                    f"the batch {self.intent.uuid} stands"
                )
                self._tear(told)
                raise BatchTorn(told) from error


def _uuid_at(store: Store, location: VersionLocation) -> str | None:
    """The uuid of the transaction that made a version; None where there is no such version."""
    try:
        return transaction_at(store, location.path).uuid
    except ObjectNotFound:
        return None
    except (CorruptFile, InvalidInput, UnsupportedFeature):
        return UNNAMED


def _leave_hint(store: Store, version: int) -> None:
    made_at = runtime.monotonic()
    with suppress(StoreError), store.turnstile(names.VERSIONS_DIR, TURNSTILE_SECONDS) as ours:
        if ours:
            write_hint(store, version, made_at)
