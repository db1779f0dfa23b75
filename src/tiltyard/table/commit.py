"""The commit loop: one for every operation (decisions D14, D14a, D15, D16).

Order of a commit, and what a crash after each step leaves:

0. data, deletion and index files under their final names, durable      unreferenced files, collected by age
1. look for the latest version L
2. read the transactions of (read version, L], check each once
3. rebase: merged deletion files, durable                                unreferenced files, collected by age
4. build the manifest of L+1
5. publish it (put if absent)                                            the version stands; the hint may lag

Invariants, and the tests that check them (tests/table/test_commit*.py):
1. A version is published only over the version directly below it.
2. The transaction's uuid never changes between attempts, so an attempt that landed unnoticed is recognised.
3. After an UNKNOWN answer no other version is tried and nothing is deleted.
4. Only files that this commit wrote itself, in attempts that definitely lost, are ever deleted; none that a
   version named which was visible for a moment (`files_referenced`).
5. No version is left in a hole below existing ones (`table.hole`).
6. Once the version stands, no failure is reported as a failed commit: those after it are OutcomeUnknown, or
   advice that is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace

import numpy as np

from tiltyard import runtime
from tiltyard.errors import (
    CommitConflict,
    CorruptFile,
    InvalidInput,
    ObjectNotFound,
    OutcomeUnknown,
    RetryableConflict,
    StoreError,
    TableAlreadyExists,
    TableNotFound,
    TiltyardError,
    TooMuchContention,
    UnsupportedFeature,
    VersionNotFound,
)
from tiltyard.format import flags, names
from tiltyard.format.index_metadata import IndexMetadata
from tiltyard.format.manifest import MAX_INLINE_TRANSACTION_BYTES, Manifest, encode_manifest
from tiltyard.format.names import Naming
from tiltyard.format.operations import Clone, Overwrite, Restore, UpdateConfig
from tiltyard.format.transaction import Transaction
from tiltyard.session import Session
from tiltyard.store import Created, Store
from tiltyard.table import foreign
from tiltyard.table.apply import NewTable, apply
from tiltyard.table.back_off import back_off
from tiltyard.table.catching_up import CatchingUp, OwnFiles, carries, made_durable
from tiltyard.table.cleanup.against_commits import check_after, check_before
from tiltyard.table.cleanup.auto import after_commit
from tiltyard.table.cleanup.intents import removing
from tiltyard.table.creators import other_naming, outlived_other_names
from tiltyard.table.hint import write_hint
from tiltyard.table.hole import HOLE_CHECK_SECONDS, Hole, fell_into_hole
from tiltyard.table.landed import landed_before
from tiltyard.table.publish import Publish, create_manifest
from tiltyard.table.snapshot import (
    Snapshot,
    committed_snapshot,
    open_latest,
    read_snapshot,
)
from tiltyard.table.turnstile import TURNSTILE_SECONDS, queue_up
from tiltyard.table.unique import UNIQUE, KeysMeet, checked, either
from tiltyard.table.versions import (
    VersionLocation,
    blocked,
    latest,
    latest_or_none,
    list_names,
    locate,
)

MAX_RETRIES = 20
"""Rounds that a commit may lose on the rows that it changes itself."""

MAX_LOST_SLOTS = 1000
"""Versions that others may take before us; losing one costs a round, nothing more."""

TIMEOUT_SECONDS = 30.0
"""Time for all rounds; the first is never cut short."""

MAX_LOOK_AGE_SECONDS = 10.0
"""A commit planned on a look at the latest version older than this looks again (boot clock, so sleep
counts).
"""


def commit(
    store: Store,
    transaction: Transaction,
    *,
    session: Session,
    base: Snapshot | None,
    affected: Mapping[int, np.ndarray] | None = None,
    publish: Publish = create_manifest,
    strict: bool = False,
    max_retries: int = MAX_RETRIES,
    timeout: float = TIMEOUT_SECONDS,
    naming: Naming = "V2",
    foreign_fragments: bool = False,
    new_table: NewTable | None = None,
    source: Snapshot | None = None,
    unhashed_key: bool = False,
    keys_meet: KeysMeet | None = None,
    skip_auto_cleanup: bool = False,
    reuse_entry: IndexMetadata | None = None,
    is_alone: bool = False,
) -> Snapshot:
    """Commit the transaction on the newest version and return the version that it made.

    `base`: the version that it was planned on; None to create a table, or for a raw commit, whose base is
    then the transaction's read version. `affected`: per fragment id the sorted uint32 physical offsets that a
    Delete or Update takes away, None when unknown. `strict`: exactly the version after `base` or nothing,
    without any check. `foreign_fragments`: the caller made the fragments; look whether their files are new
    and present. `new_table`, `naming`: for a first commit. `source`: what a Clone copies. `unhashed_key`: see
    `conflict.check`. `keys_meet`: decides where filters of inserted keys cannot. `skip_auto_cleanup`: leave
    the cleanup that the table's config may ask for to another commit. `reuse_entry`: the fragment-reuse
    index that a Rewrite leaves, made from that of `base`. `is_alone`: the place is a `creators.OwnPlace`.

    Raises TableAlreadyExists (a first commit that is strict), RetryableConflict (plan again),
    IncompatibleTransaction, TooMuchContention, OutcomeUnknown, InvalidInput, UnsupportedFeature (writer
    flags), FilesRemoved (a cleanup takes away files that it names), StoreError. Only OutcomeUnknown leaves
    open whether the commit happened; committing the same transaction again is safe while the versions since
    its read version are kept.
    """
    attempt = _Commit(
        store, session, transaction, publish, strict, naming, foreign_fragments, new_table, source
    )
    attempt.reuse_entry = reuse_entry
    if is_alone:
        attempt.is_alone = True
        return attempt.create()
    if base is None and transaction.read_version == 0:
        landed = attempt.landed_before()
        if landed is not None:
            return landed
    base = attempt.base_of(base)
    if base is None:
        return attempt.create()
    if UNIQUE in base.manifest.config or isinstance(attempt.transaction.operation, UpdateConfig):
        kept = checked(base, attempt.transaction, affected)
        attempt.transaction, unhashed_key = kept.transaction, unhashed_key or kept.unhashed_key
        keys_meet = either(keys_meet, kept.keys_meet)
    catching_up = CatchingUp(
        store,
        session,
        attempt.transaction,
        base,
        affected,
        unhashed_key,
        foreign_fragments,
        attempt.own_files,
        keys_meet,
    )
    try:
        made = attempt.run(catching_up, max_retries, timeout)
    except OutcomeUnknown:
        raise
    except TiltyardError as error:
        if attempt.unresolved is not None:
            raise attempt.unresolved from error  # an earlier round may have been won: nothing is definite
        if isinstance(error, CommitConflict | InvalidInput) and not error.files_referenced:
            attempt.own_files.drop()  # a definite answer: no version names them
        raise
    if not skip_auto_cleanup:
        after_commit(made)
    return made


@dataclass(slots=True)
class _Commit:
    """One commit: its rounds and what they share."""

    store: Store
    session: Session
    transaction: Transaction
    publish: Publish
    strict: bool
    naming: Naming
    foreign_fragments: bool
    new_table: NewTable | None
    source: Snapshot | None
    reuse_entry: IndexMetadata | None = None
    is_alone: bool = False
    """Nobody else commits here before our version stands: there is nothing to look for."""
    looked_at: float = 0.0
    """When the latest version was looked for (boot clock, seconds)."""
    created_at: float = 0.0
    """When our version was created."""
    own_files: OwnFiles = None  # type: ignore[assignment]
    unresolved: OutcomeUnknown | None = None
    """What is known of an earlier round that may have been won, until the version it tried has been read."""

    def __post_init__(self) -> None:
        self.own_files = OwnFiles(self.store)

    # -- the base ---------------------------------------------------------------------------------

    def landed_before(self) -> Snapshot | None:
        """The retained version that is this very transaction, for one that says nothing about where to
        look.
        """
        if not isinstance(self.transaction.operation, Overwrite | Restore | Clone):
            return None
        found = landed_before(self.store, self.session, self._is, self._named())
        return None if found is None else made_durable(found, self.transaction)

    def _is(self, theirs: Transaction) -> bool:
        return carries(theirs, self.transaction.uuid)

    def base_of(self, base: Snapshot | None) -> Snapshot | None:
        """The version that the transaction was planned on; None when there is no table yet."""
        read_version = self.transaction.read_version
        if base is not None and read_version in (0, base.version):
            self.transaction = replace(self.transaction, read_version=base.version)
            return base
        self.looked_at = runtime.monotonic()
        found = latest_or_none(self.store, self.session)
        operation = self.transaction.operation
        if found is None:
            if not isinstance(operation, Overwrite | Clone):
                raise TableNotFound(
                    f"no Lance table at {self.store.uri} to commit {self.transaction.name} to"
                )
            return None
        if isinstance(operation, Clone) or (self.strict and read_version == 0):
            raise self._exists()
        if read_version == 0:
            if not isinstance(operation, Overwrite | Restore):
                raise InvalidInput(
                    f"{self.transaction.name} needs the version that it was planned on (read_version)"
                )
            newest = open_latest(self.store, self.session)
            self.transaction = replace(self.transaction, read_version=newest.version)
            return newest
        if read_version > found.version:
            raise VersionNotFound(
                f"the transaction was planned on version {read_version} of {self.store.uri}, whose latest "
                f"version is {found.version}"
            )
        try:
            return read_snapshot(self.store, self.session, locate(self.store, read_version))
        except (VersionNotFound, ObjectNotFound):
            raise RetryableConflict(
                f"version {read_version} of {self.store.uri}, which {self._named()} was planned on, was "
                "removed; plan again on the latest version"
            ) from None

    def _named(self) -> str:
        return f"this {self.transaction.name} ({self.transaction.uuid})"

    def _exists(self) -> TableAlreadyExists:
        return TableAlreadyExists(
            f"Dataset already exists: {self.store.uri}; open it, or append to it or overwrite it instead"
        )

    # -- rounds -----------------------------------------------------------------------------------

    def run(self, catching_up: CatchingUp, max_retries: int, timeout: float) -> Snapshot:
        """Rounds until one version is ours."""
        before = runtime.monotonic()
        lost_slots, spent = 0, 0.0
        while True:
            made = self._round(catching_up, lost_slots)
            if made is not None:
                return made
            now = runtime.monotonic()
            lost_slots += 1
            spent += min(now - before, MAX_LOOK_AGE_SECONDS)  # a machine that slept has lost nothing by it
            before = now
            if lost_slots >= MAX_LOST_SLOTS or catching_up.rows_lost > max_retries or spent > timeout:
                won = catching_up.winner
                told = "" if won is None else f"; the last one seen was {won}"
                error = TooMuchContention(
                    f"other writers kept winning: {self._named()} lost {lost_slots} versions in "
                    f"{spent:.1f} s, and {catching_up.rows_lost} times they had changed the "
                    f"fragments that it changes{told}. Nothing was committed; try again when it is quieter"
                )
                error.winner = won
                raise error
            back_off(now - self.looked_at, lost_slots)

    def _round(self, catching_up: CatchingUp, lost_slots: int) -> Snapshot | None:
        """One round; None when another writer took the version."""
        if not self.strict and self._has_followers(catching_up):
            catching_up.read_ahead(latest(self.store, self.session).version)
        with ExitStack() as turn:
            our_turn = queue_up(self.store, self.session, turn, lost=lost_slots > 0)
            self.looked_at = runtime.monotonic()
            current = open_latest(self.store, self.session)
            if self.strict:
                if current.version != catching_up.base.version:
                    landed = self._strictly_landed(catching_up.base)
                    if landed is not None:
                        return landed
                    raise self._strict_lost(catching_up.base.version, current.version)
                flags.check_writer(current.manifest)
            else:
                landed = catching_up.to(current)
                if landed is not None:
                    return landed
                if self.unresolved is not None and current.version >= (self.unresolved.version or 0):
                    self.unresolved = None  # that version was read, and it is not ours
                self.transaction = catching_up.transaction
            return self._publish(current, catching_up.base, our_turn)

    def _has_followers(self, catching_up: CatchingUp) -> bool:
        """Whether somebody has followed the version that we know: one look, for mostly nobody has."""
        naming = catching_up.base.location.naming
        return self.store.exists(names.manifest_path(catching_up.checked + 1, naming))

    def _strictly_landed(self, base: Snapshot) -> Snapshot | None:
        """The version after `base`, if it is this very transaction."""
        try:
            return self._ours_at(locate(self.store, base.version + 1))
        except VersionNotFound:
            return None

    def _strict_lost(self, base: int, found: int) -> RetryableConflict:
        return RetryableConflict(
            f"Commit conflict for version {base + 1}: {self._named()} was to follow version {base} directly, "
            f"but version {found} exists"
        )

    def create(self) -> Snapshot:
        """The first commit of a table."""
        operation = self.transaction.operation
        if self.foreign_fragments:
            bases = operation.initial_bases if isinstance(operation, Overwrite) else ()
            foreign.check_present(self.store, foreign.check_not_committed(operation, None), bases)
        version = operation.ref_version if isinstance(operation, Clone) else 1
        manifest = apply(
            None,
            self.transaction,
            version=version,
            timestamp_ns=runtime.now_ns(),
            new_table=self.new_table,
            source=None if self.source is None else self.source.manifest,
        )
        location = VersionLocation(version, names.manifest_path(version, self.naming), self.naming)
        if not self.is_alone and self.store.exists(names.manifest_path(version, other_naming(self.naming))):
            raise self._lost_creation()
        if self._put(manifest, location) is Created.WON:
            if self.is_alone:  # the next commit leaves a hint
                return committed_snapshot(self.store, self.session, location, manifest, self.transaction)
            made = self._done(manifest, location, None)
            # Only now is there a directory to queue at. A hint that its writer could never raise again (no
            # turnstile here) must not be left behind.
            with (
                suppress(StoreError),
                self.store.turnstile(names.VERSIONS_DIR, TURNSTILE_SECONDS) as our_turn,
            ):
                self._leave_hint(location, our_turn)
            return made
        landed = self._ours_at(location)
        if landed is not None:
            return landed
        self._refuse_blocked(location)
        raise self._lost_creation()

    def _lost_creation(self) -> CommitConflict | TableAlreadyExists:
        if self.strict or isinstance(self.transaction.operation, Clone):
            return self._exists()
        return RetryableConflict(
            f"a table was created at {self.store.uri} while {self._named()} was to create it; plan again on "
            "it"
        )

    # -- the manifest -----------------------------------------------------------------------------

    def _publish(self, current: Snapshot, base: Snapshot, our_turn: bool) -> Snapshot | None:
        version, naming = current.version + 1, current.location.naming
        manifest = apply(
            current.manifest,
            self.transaction,
            version=version,
            timestamp_ns=runtime.now_ns(),
            read=base.manifest,
            restored=self._restored(),
            new_table=self.new_table,
            reuse_entry=self.reuse_entry,
        )
        location = VersionLocation(version, names.manifest_path(version, naming), naming)
        age = runtime.monotonic() - self.looked_at
        if age > MAX_LOOK_AGE_SECONDS:
            return None  # too long ago: others may have committed, and their versions may be gone already
        if age > HOLE_CHECK_SECONDS and removing(self.store, self.session, version):
            return None  # a cleanup took a version of this number away: there are greater ones
        check_before(self.store, self.session, manifest, current.manifest, self._named())
        if self._put(manifest, location) is Created.WON:
            made = self._done(manifest, location, current.manifest)
            self._leave_hint(location, our_turn)
            return made
        try:
            landed = self._ours_at(location)
        except OutcomeUnknown as error:
            if self.strict:
                raise
            self.unresolved = error
            return None  # the next round reads that version again, with all others since ours was planned
        if landed is None:
            self._refuse_blocked(location)
            if self.strict:
                raise self._strict_lost(base.version, version)
        return landed

    def _restored(self) -> Manifest | None:
        operation = self.transaction.operation
        if not isinstance(operation, Restore):
            return None
        return read_snapshot(self.store, self.session, locate(self.store, operation.version)).manifest

    def _put(self, manifest: Manifest, location: VersionLocation) -> Created:
        """Publish the manifest; WON and EXISTS come back, the other two answers are raised."""
        transaction = self.transaction
        data = transaction.encode()
        inline: bytes | None = data
        if len(data) > MAX_INLINE_TRANSACTION_BYTES:
            inline = None
            name = names.transaction_name(transaction.read_version, transaction.uuid)
            # The same transaction has the same bytes, so an earlier attempt's file is replaced by itself. It
            # is never deleted: an attempt that landed unnoticed may name it.
            self.store.put(names.transaction_path(name), data)
            manifest = replace(manifest, transaction_file=name)
        answer = self.publish(self.store, location.version, location.path, encode_manifest(manifest, inline))
        if answer is Created.UNKNOWN:
            raise OutcomeUnknown(
                f"the answer to creating version {location.version} of {self.store.uri} was lost: "
                f"{self._named()} may or may not have been committed. Read that version: if it carries this "
                "uuid, the "
                "commit happened. Committing the same transaction again is safe",
                uuid=transaction.uuid,
                version=location.version,
            ) from self.store.failure(location.path)
        if answer is Created.NOT_DONE:
            cause = self.store.failure(location.path)
            self._drop_own_files()
            raise StoreError(
                f"version {location.version} of {self.store.uri} could not be written ({cause}); nothing was "
                "committed"
            ) from cause
        return answer

    def _ours_at(self, location: VersionLocation) -> Snapshot | None:
        """The version at the location if it is our own transaction: an attempt that landed unnoticed.

        Raises OutcomeUnknown when it cannot be read just now: files of ours may be named there.
        """
        try:
            found = read_snapshot(self.store, self.session, location)
            theirs = found.transaction()
        except (ObjectNotFound, CorruptFile, UnsupportedFeature):
            return None  # removed already, or not what we would have written
        except StoreError as error:
            raise OutcomeUnknown(
                f"version {location.version} of {self.store.uri} was taken, and whether by {self._named()} "
                f"in an attempt whose answer was lost cannot be told ({error}). Committing the same "
                "transaction again is safe",
                uuid=self.transaction.uuid,
                version=location.version,
            ) from error
        if theirs is None or not self._is(theirs):
            return None
        return made_durable(found, self.transaction)

    def _drop_own_files(self) -> None:
        if self.unresolved is None:
            self.own_files.drop()

    def _refuse_blocked(self, location: VersionLocation) -> None:
        """Raise StoreError where what took our version is no file: no round gets past it."""
        error = blocked(self.store, location)
        if error is not None:
            self._drop_own_files()
            raise StoreError(f"nothing was committed: {error}") from error

    def _done(self, manifest: Manifest, location: VersionLocation, base: Manifest | None) -> Snapshot:
        """The version that is ours now. What fails from here on must not be taken for a failed commit."""
        self.created_at = runtime.monotonic()
        try:
            if base is None and not outlived_other_names(self.store, location, self._ours_at):
                raise self._withdrawn(location)
            hole = fell_into_hole(
                self.store,
                self.session,
                location,
                manifest,
                base,
                looked_at=self.looked_at,
                won_at=self.created_at,
            )
            if hole is not None:
                raise self._out_of_the_hole(location, hole)
            check_after(self.store, self.session, location, manifest, base, self._named())
        except (StoreError, CorruptFile, TableNotFound, VersionNotFound, UnsupportedFeature) as error:
            raise OutcomeUnknown(
                f"version {location.version} of {self.store.uri} was created by {self._named()}, but whether "
                f"it stands on top of the table's versions could not be checked ({error}). Read the table "
                "again",
                uuid=self.transaction.uuid,
                version=location.version,
            ) from error
        return committed_snapshot(self.store, self.session, location, manifest, self.transaction)

    def _leave_hint(self, location: VersionLocation, our_turn: bool) -> None:
        if our_turn:
            write_hint(self.store, location.version, self.created_at)

    def _withdrawn(self, location: VersionLocation) -> CommitConflict | TableAlreadyExists:
        """What to say after our first version made room for one of the other naming scheme."""
        error: CommitConflict | TableAlreadyExists
        if list_names(self.store):
            error = self._lost_creation()
        else:
            error = RetryableConflict(
                f"{self._named()} and another creator of {self.store.uri}, which names its versions in "
                "another way, made room for each other; there is no table, create it again"
            )
        error.files_referenced = True
        return error

    def _out_of_the_hole(self, location: VersionLocation, hole: Hole) -> RetryableConflict:
        """Take back a version that nobody would see, unless somebody has built on it already."""
        if not hole.built_on:
            self.store.delete(location.path)
            self.store.sync_dir(names.VERSIONS_DIR)
        error = RetryableConflict(
            f"{self._named()} slept while others committed: version {location.version} was free again after "
            f"a cleanup, below version {hole.latest}, where nobody would see it. It was not committed; plan "
            "again on the latest version"
        )
        # Whoever saw the version in the meantime may build on it at any time.
        error.files_referenced = True
        return error
