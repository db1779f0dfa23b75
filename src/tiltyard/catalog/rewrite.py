"""One rewrite of the register: all rows into one data file, published as exactly the next version (namespace
pack, section 2.4; decision D23).

Invariants, checked by tests/catalog/test_round.py and test_round_faults.py:
1. The new version stands directly on the one that the rows were made from, or it does not stand.
2. A version that turns out to be our own transaction is a success, however its answer was lost.
3. After an unknown answer no file is deleted and no other version is tried.
4. Of an attempt that definitely lost nothing is left: its data file goes.
5. What stands in the manifest beside the rows (config, base paths, unknown fields) goes over; indices go, as
   they do when the official package rewrites.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tiltyard import runtime
from tiltyard.catalog import added
from tiltyard.catalog.register import Register, with_key
from tiltyard.errors import (
    CorruptFile,
    ObjectNotFound,
    OutcomeUnknown,
    StoreError,
    TableNotFound,
    UnsupportedFeature,
    VersionNotFound,
)
from tiltyard.file.writer import FileWriter
from tiltyard.format import flags, names
from tiltyard.format.fragment import Fragment, FragmentList
from tiltyard.format.manifest import DataFormat, Manifest, encode_manifest
from tiltyard.format.operations import Overwrite
from tiltyard.format.schema import Schema
from tiltyard.format.transaction import Transaction
from tiltyard.format.version import FileVersion
from tiltyard.store import Created
from tiltyard.table.apply import WRITER
from tiltyard.table.catching_up import MEMBERS_PROPERTY, made_durable
from tiltyard.table.cleanup.against_commits import check_after, check_before
from tiltyard.table.cleanup.intents import removing
from tiltyard.table.hole import HOLE_CHECK_SECONDS, fell_into_hole
from tiltyard.table.snapshot import Snapshot, committed_snapshot, read_snapshot
from tiltyard.table.versions import VersionLocation, blocked
from tiltyard.table.write import remove_files

if TYPE_CHECKING:
    from tiltyard.catalog.rows import Rows
    from tiltyard.session import Session
    from tiltyard.store import Store
    from tiltyard.table.publish import Publish

DISTINCT = ("object_id", "location", "metadata")
"""Columns whose texts, where there are any, are mostly one row's."""

MAX_LOOK_AGE_SECONDS = 10.0
"""A rewrite of a version looked at longer ago (boot clock) begins anew."""


@dataclass(slots=True)
class Rewrite:
    """One attempt to put `rows` and `metadata` on top of `base`, which was the newest version at `looked_at`
    (boot clock).
    """

    store: Store
    session: Session
    publish: Publish
    base: Register
    looked_at: float
    created_at: float = 0.0

    def run(self, rows: Rows, metadata: Mapping[str, str], served: Sequence[str] = ()) -> Register | None:
        """The new version; None when another writer took it, or may have: look again. `served`: requests of
        others (`waiting`) that it carries.

        Raises StoreError and FilesRemoved (nothing was changed), OutcomeUnknown, UnsupportedFeature.
        """
        previous = self._snapshot.manifest
        flags.check_writer(previous)
        schema = rewritten_schema(previous.schema, rows)
        data_format = written_format(previous)
        fragments = self._write(rows, schema, data_format)
        uuid = str(runtime.uuid4())
        properties = added.told(self._snapshot, rows)
        if served:
            properties[MEMBERS_PROPERTY] = json.dumps([uuid, *served])
        transaction = Transaction(previous.version, uuid, Overwrite(fragments, schema), properties)
        manifest = next_manifest(previous, schema, fragments, metadata, data_format)
        location = self._location()
        try:
            if not self._is_fresh(location.version):
                remove_files(self.store, fragments)
                return None
            check_before(self.store, self.session, manifest, previous, "this change of the catalog")
            data = encode_manifest(manifest, transaction)
        except BaseException:
            remove_files(self.store, fragments)
            raise
        answer = self.publish(self.store, location.version, location.path, data)
        made = self._settled(answer, location, manifest, transaction, fragments)
        return None if made is None else Register(made.version, rows, manifest.table_metadata, made)

    @property
    def _snapshot(self) -> Snapshot:
        assert self.base.snapshot is not None
        return self.base.snapshot

    def _location(self) -> VersionLocation:
        version, naming = self.base.version + 1, self._snapshot.location.naming
        return VersionLocation(version, names.manifest_path(version, naming), naming)

    def _write(self, rows: Rows, schema: Schema, data_format: DataFormat) -> tuple[Fragment, ...]:
        """The rows in one fragment with id 0; none without rows, as the official package has it."""
        if not len(rows):
            return ()
        path = names.data_path(names.new_data_file_name())
        version = FileVersion.parse(data_format.version)
        try:
            # Uncompressed: it is read a few times before the next version, and a change should be quick.
            with FileWriter(
                self.store, path, schema, version=version, compression="none", distinct=DISTINCT
            ) as writer:
                writer.write(rows.batch)
                return (Fragment(0, (writer.close(),), len(rows)),)
        except StoreError:
            with suppress(StoreError):  # nobody has heard of it
                self.store.delete(path)
            raise

    def _is_fresh(self, version: int) -> bool:
        """Whether our look at the newest version is young enough to build on it (decision D14a)."""
        age = runtime.monotonic() - self.looked_at
        if age > MAX_LOOK_AGE_SECONDS:
            return False
        return age <= HOLE_CHECK_SECONDS or not removing(self.store, self.session, version)

    # -- after the attempt -----------------------------------------------------------------------

    def _settled(
        self,
        answer: Created,
        location: VersionLocation,
        manifest: Manifest,
        transaction: Transaction,
        fragments: tuple[Fragment, ...],
    ) -> Snapshot | None:
        cause = self.store.failure(location.path)
        if answer is Created.WON:
            return self._standing(location, manifest, transaction)
        if answer is Created.NOT_DONE:
            remove_files(self.store, fragments)
            raise StoreError(
                f"version {location.version} of {self.store.uri} could not be written ({cause}); nothing was "
                "changed"
            ) from cause
        theirs, ours = self._found(location, transaction, cause)
        if ours is not None:
            return made_durable(ours, transaction)
        if answer is Created.UNKNOWN:
            if theirs:
                return None  # the version is another writer's, ours can never stand there; the file stays
            raise self._unknown(location, transaction, cause)
        remove_files(self.store, fragments)
        error = blocked(self.store, location)
        if error is not None:
            raise StoreError(f"nothing was changed: {error}") from error
        return None

    def _found(
        self, location: VersionLocation, transaction: Transaction, cause: BaseException | None
    ) -> tuple[bool, Snapshot | None]:
        """Whether a whole version stands at the location, and it, if it is our own transaction."""
        try:
            found = read_snapshot(self.store, self.session, location)
            theirs = found.transaction()
        except (ObjectNotFound, CorruptFile):
            return False, None
        except UnsupportedFeature:
            return True, None  # not what we would have written
        except StoreError as error:
            raise self._unknown(location, transaction, error) from cause
        return True, found if theirs is not None and theirs.uuid == transaction.uuid else None

    def _unknown(
        self, location: VersionLocation, transaction: Transaction, cause: BaseException | None
    ) -> OutcomeUnknown:
        error = OutcomeUnknown(
            f"the answer to creating version {location.version} of {self.store.uri} was lost ({cause}): the "
            "catalog may or may not have been changed. Look again at what was to be changed",
            uuid=transaction.uuid,
            version=location.version,
        )
        error.__cause__ = cause
        return error

    def _standing(
        self, location: VersionLocation, manifest: Manifest, transaction: Transaction
    ) -> Snapshot | None:
        """Our version, which has its name now. What fails from here on is no failed change."""
        self.created_at = runtime.monotonic()
        previous = self._snapshot.manifest
        try:
            hole = fell_into_hole(
                self.store,
                self.session,
                location,
                manifest,
                previous,
                looked_at=self.looked_at,
                won_at=self.created_at,
            )
            if hole is not None:
                # Nobody would see it: others went on above while we slept, and a cleanup made room. The data
                # file stays, for somebody may have built on it all the same.
                if not hole.built_on:
                    self.store.delete(location.path)
                    self.store.sync_dir(names.VERSIONS_DIR)
                return None
            check_after(self.store, self.session, location, manifest, previous, "this change of the catalog")
        except (StoreError, CorruptFile, TableNotFound, VersionNotFound, UnsupportedFeature) as error:
            raise OutcomeUnknown(
                f"version {location.version} of {self.store.uri} was created, but whether it stands on top "
                f"of the others could not be checked ({error}). Look again at what was to be changed",
                uuid=transaction.uuid,
                version=location.version,
            ) from error
        return committed_snapshot(self.store, self.session, location, manifest, transaction)


def written_format(previous: Manifest) -> DataFormat:
    """The version of the files of the next version: that of the one before. Nobody should write 2.0 any more,
    which the first programs left behind: 2.1 is next to it. Pure.
    """
    known = previous.data_format or DataFormat()
    is_old = FileVersion.parse(known.version) is FileVersion.V2_0
    return replace(known, version=FileVersion.V2_1.value) if is_old else known


def next_manifest(
    previous: Manifest,
    schema: Schema,
    fragments: tuple[Fragment, ...],
    metadata: Mapping[str, str],
    data_format: DataFormat,
) -> Manifest:
    """The manifest of the version after `previous`, with these fragments only. Pure but for the time."""
    made = replace(
        previous,
        schema=schema,
        fragments=FragmentList.of(fragments),
        data_format=data_format,
        indices=(),
        version=previous.version + 1,
        timestamp_ns=runtime.now_ns(),
        # What a foreign version promises of its fragments (row ids, unique field ids) ends with them.
        reader_flags=0,
        writer_flags=0,
        next_row_id=0,
        max_allocated_field_id=None,
        max_fragment_id=(previous.max_fragment_id or 0) if fragments else previous.max_fragment_id,
        transaction_file="",
        writer_version=WRITER,
        table_metadata=dict(metadata),
    )
    return flags.recomputed(made, previous)


def rewritten_schema(previous: Schema, rows: Rows) -> Schema:
    """The schema of the next version: that of the one before, its key marked, where it has the columns of the
    rows. Pure.
    """
    arrow, before = rows.batch.schema, previous.arrow
    same = before.names == arrow.names and before.types == arrow.types
    if not same or previous.fields[0].nullable:
        return with_key(Schema.from_arrow(arrow))
    return previous if previous.fields[0].primary_key else with_key(previous)
