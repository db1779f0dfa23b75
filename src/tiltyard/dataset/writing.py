"""The writing face of a dataset: deletes, inserts, restores, settings, and raw commits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tiltyard import runtime
from tiltyard.dataset import arguments
from tiltyard.dataset.handle import Handle, locked, open_root, refuse, session_of
from tiltyard.dataset.namespace_client import check_pair, managed_store
from tiltyard.dataset.operations import LanceOperation, operation_to_fact
from tiltyard.dataset.streams import (
    check_marks,
    newest_or_none,
    streams_deleted,
    streams_overwritten,
    streams_restored,
)
from tiltyard.dataset.transaction import MAX_VERSION, Transaction, with_message
from tiltyard.errors import InvalidInput, TableNotFound, UnsupportedFeature
from tiltyard.format import transaction as facts
from tiltyard.table import commit as table_commit
from tiltyard.table.apply import NewTable
from tiltyard.table.delete import delete
from tiltyard.table.replanning import CONFLICT_RETRIES, RETRY_SECONDS
from tiltyard.table.restore import restore
from tiltyard.table.snapshot import Snapshot
from tiltyard.table.versions import latest_or_none

if TYPE_CHECKING:
    from typing import Self

COMMIT_TIMEOUT = timedelta(minutes=30)
MapUpdates = Mapping[str, str | None]


class WriteFace(Handle):
    """Everything that makes a version. After it the handle shows the version that it made."""

    def delete(
        self,
        predicate: Any,
        *,
        conflict_retries: int = CONFLICT_RETRIES,
        retry_timeout: timedelta | float = RETRY_SECONDS,
    ) -> dict[str, int]:
        """Delete the rows for which `predicate` (SQL or an Arrow expression) is true, decided on the newest
        version whatever this handle shows. Gives `{"num_deleted_rows": n}`.

        A conflict with another writer on the same rows decides anew, at most `conflict_retries` times and
        until `retry_timeout` (seconds, or a `timedelta`) is over; then raises `TooMuchContention`.
        """
        if not hasattr(predicate, "to_substrait"):
            arguments.text("predicate", predicate)
        done = delete(
            self._store,
            self._session,
            predicate,
            conflict_retries=arguments.whole("conflict_retries", conflict_retries),
            retry_seconds=arguments.seconds("retry_timeout", retry_timeout),
        )
        self._move(done.snapshot)
        return {"num_deleted_rows": done.rows}

    def truncate_table(self) -> None:
        """Delete every row; schema, config and history stay."""
        self.delete("true")

    def restore(
        self, *, expected_latest: int | None = None, discard_streamed: bool = False
    ) -> dict[str, Any]:
        """Make the version shown the newest one again, as a new version; this handle then shows that one.

        Gives `{"version": new, "restored_version": shown, "superseded_versions": [...]}`: the last are those
        between the two, which the new version leaves behind (they stay readable). With `expected_latest`
        nothing happens unless that is the newest version: raises `RetryableConflict` naming what others
        committed. A version from before the table was streamed into takes what was streamed away: it is
        refused (`UndrainedRows`) while rows are not in the base, unless `discard_streamed`.
        """
        expected = arguments.maybe_whole("expected_latest", expected_latest)
        discards = arguments.flag("discard_streamed", discard_streamed)
        with streams_restored(self._held, discards):
            done = restore(self._held, expected_latest=expected)
        self._move(done.snapshot)
        return {
            "version": done.snapshot.version,
            "restored_version": done.version,
            "superseded_versions": list(done.superseded),
        }

    def insert(self, data: Any, *, mode: str = "append", **options: Any) -> None:
        """Write data into this dataset; see `write_dataset`."""
        from tiltyard.dataset.write import write_dataset

        handle: Any = self
        self._move(write_dataset(data, handle, mode=mode, **options)._held)

    # -- settings --------------------------------------------------------------------------------

    def update_config(self, values: MapUpdates, *, replace: bool = False) -> dict[str, str]:
        """Set config values (None deletes the key); gives the config after."""
        after = self._update(config_updates=_map(values, replace))
        return dict(after.manifest.config)

    def delete_config_keys(self, keys: Iterable[str]) -> None:
        """Delete config values."""
        self._update(config_updates=_map(dict.fromkeys(arguments.texts("keys", keys)), False))

    def update_metadata(self, values: MapUpdates, *, replace: bool = False) -> dict[str, str]:
        """Set the table's own metadata (None deletes the key); gives the metadata after."""
        after = self._update(table_metadata_updates=_map(values, replace))
        return dict(after.manifest.table_metadata)

    def update_schema_metadata(self, values: MapUpdates, *, replace: bool = False) -> dict[str, str]:
        """Set the schema's metadata (None deletes the key); gives the metadata after."""
        after = self._update(schema_metadata_updates=_map(values, replace))
        return {key: value.decode("utf-8", "replace") for key, value in after.schema.metadata.items()}

    def replace_schema_metadata(self, new_metadata: Mapping[str, str]) -> None:
        """Put this metadata in the place of the schema's."""
        self._update(schema_metadata_updates=_map(arguments.text_map("new_metadata", new_metadata), True))

    def update_field_metadata(
        self, field_updates: Mapping[str, MapUpdates], *, replace: bool = False
    ) -> None:
        """Set metadata of fields, named by path (None deletes the key)."""
        schema = self._snapshot.schema
        by_id = {
            schema.field(path).id: _map(values, replace, f"field_updates[{path!r}]")
            for path, values in arguments.mapping("field_updates", field_updates).items()
        }
        self._update(field_metadata_updates=by_id)

    def replace_field_metadata(self, field_name: str, new_metadata: Mapping[str, str]) -> None:
        """Put this metadata in the place of a field's."""
        metadata = arguments.text_map("new_metadata", new_metadata)
        self.update_field_metadata({arguments.text("field_name", field_name): metadata}, replace=True)

    def _update(self, **updates: Any) -> Snapshot:
        return self._commit_now(facts.UpdateConfig(**updates))

    def _commit_now(self, operation: facts.Operation) -> Snapshot:
        """Commit an operation planned on the version shown, and show the version that it makes."""
        base = self._snapshot
        transaction = facts.Transaction(base.version, str(runtime.uuid4()), operation)
        after = table_commit.commit(base.store, transaction, session=base.session, base=base)
        self._move(after)
        return after

    # -- raw commits -----------------------------------------------------------------------------

    @classmethod
    def commit(
        cls,
        base_uri: Any,
        operation: LanceOperation.BaseOperation | Transaction,
        read_version: int | None = None,
        commit_lock: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        enable_v2_manifest_paths: bool | None = None,
        detached: bool | None = False,
        max_retries: int = table_commit.MAX_RETRIES,
        *,
        commit_message: str | None = None,
        enable_stable_row_ids: bool | None = None,
        namespace_client: Any = None,
        table_id: Any = None,
        namespace_client_managed_versioning: bool = False,
        base_store_params: Any = None,
        commit_timeout: timedelta | float | None = COMMIT_TIMEOUT,
        session: Any = None,
        discard_streamed: bool = False,
    ) -> Self:
        """Commit an operation on fragments that were written before, and give a handle of the new version.

        `base_uri` is a path, URI or dataset (which stays as it is). `read_version` is the version that the
        operation was planned on, needed by all but Overwrite and Restore. Fragments whose files are part of
        the table already, or were since `read_version`, or are missing, are refused. `max_retries=0` with an
        Overwrite is strict: it becomes the version right after `read_version`, or fails. `detached`: make a
        version beside the chain, of `read_version` as it is, that only its number opens. `discard_streamed`:
        overwrite although rows were streamed into the table that are not in its base yet (`UndrainedRows`).

        Raises `RetryableConflict`, `IncompatibleTransaction`, `TooMuchContention`, `OutcomeUnknown`,
        `InvalidInput`.
        """
        refuse(base_store_params=base_store_params)
        check_pair(namespace_client, table_id)
        managed = arguments.flag("namespace_client_managed_versioning", namespace_client_managed_versioning)
        if managed and namespace_client is None:
            raise InvalidInput("namespace_client_managed_versioning needs namespace_client and table_id")
        if storage_options is not None:
            arguments.mapping("storage_options", storage_options)
        retries = arguments.whole("max_retries", max_retries)
        discards = arguments.flag("discard_streamed", discard_streamed)
        span = arguments.seconds(
            "commit_timeout", COMMIT_TIMEOUT if commit_timeout is None else commit_timeout
        )
        old_names = arguments.maybe_flag("enable_v2_manifest_paths", enable_v2_manifest_paths) is False
        stable_row_ids = bool(arguments.maybe_flag("enable_stable_row_ids", enable_stable_row_ids))
        store, found = _place(base_uri, storage_options, session, commit_lock)
        if managed:
            store = managed_store(store, namespace_client, tuple(table_id))
        apart = bool(arguments.maybe_flag("detached", detached))
        transaction = _raw_transaction(operation, read_version, commit_message)
        fact = transaction.to_fact()
        options = getattr(base_uri, "_storage_options", storage_options)
        if apart:
            from tiltyard.table.detached import commit_detached

            after = commit_detached(store, found, fact)
            return cls._made(after, storage_options=options)  # type: ignore[attr-defined]
        arguments.whole("read_version", fact.read_version, 0, MAX_VERSION)
        check_marks(store, found, fact.operation)
        with streams_overwritten(store, found, fact.operation, discards):
            after = table_commit.commit(
                store,
                fact,
                session=found,
                base=None,
                strict=retries == 0 and isinstance(fact.operation, facts.Overwrite),
                max_retries=retries,
                timeout=span,
                naming="V1" if old_names else "V2",
                foreign_fragments=True,
                new_table=NewTable(data_version=_data_version(fact.operation), stable_row_ids=stable_row_ids),
            )
        return cls._made(after, storage_options=options)  # type: ignore[attr-defined]

    @classmethod
    def commit_batch(
        cls,
        dest: Any,
        transactions: Sequence[Transaction],
        commit_lock: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        enable_v2_manifest_paths: bool | None = None,
        detached: bool | None = False,
        max_retries: int = table_commit.MAX_RETRIES,
        base_store_params: Any = None,
        commit_timeout: timedelta | float | None = COMMIT_TIMEOUT,
    ) -> dict[str, Any]:
        """Commit several appends as one version. Gives the dataset and the merged transaction."""
        transactions = arguments.items("transactions", transactions, Transaction)
        if not transactions:
            raise InvalidInput("there are no transactions to commit")
        fragments = []
        for each in transactions:
            if not isinstance(each.operation, LanceOperation.Append):
                raise UnsupportedFeature("only appends can be committed together")
            fragments += list(each.operation.fragments)
        merged = Transaction(
            min(each.read_version for each in transactions), LanceOperation.Append(fragments)
        )
        made = cls.commit(
            dest,
            merged,
            commit_lock=commit_lock,
            storage_options=storage_options,
            enable_v2_manifest_paths=enable_v2_manifest_paths,
            detached=detached,
            max_retries=max_retries,
            base_store_params=base_store_params,
            commit_timeout=commit_timeout,
        )
        return {"dataset": made, "merged": merged}

    @staticmethod
    def drop(
        base_uri: Any,
        storage_options: Mapping[str, Any] | None = None,
        ignore_not_found: bool | None = None,
        discard_streamed: bool = False,
    ) -> None:
        """Delete a table with all its versions and files. Raises `TableNotFound` unless `ignore_not_found`,
        and `UndrainedRows` where rows were streamed into the table that are not in its base, unless
        `discard_streamed`.
        """
        ignore_not_found = arguments.maybe_flag("ignore_not_found", ignore_not_found)
        discards = arguments.flag("discard_streamed", discard_streamed)
        store, session = open_root(base_uri, storage_options), session_of(None)
        if latest_or_none(store, session) is None:
            if ignore_not_found:
                return
            raise TableNotFound(f"no Lance table at {store.uri} to drop")
        with streams_deleted(newest_or_none(store, session), "drop", discards):
            store.delete_tree("")


def _place(destination: Any, storage_options: Any, session: Any, commit_lock: Any) -> tuple[Any, Any]:
    if hasattr(destination, "_held"):
        return locked(destination._store, commit_lock), destination._session
    return open_root(destination, storage_options, commit_lock), session_of(session)


def _raw_transaction(operation: Any, read_version: int | None, message: str | None) -> Transaction:
    read_version = arguments.maybe_whole("read_version", read_version)
    if isinstance(operation, Transaction):
        if read_version is not None and read_version != operation.read_version:
            raise InvalidInput(
                f"the transaction was planned on version {operation.read_version}; leave read_version out"
            )
        properties = with_message(operation.transaction_properties, message)
        return Transaction(operation.read_version, operation.operation, operation.uuid, properties)
    operation_to_fact(operation)  # refuses what is no operation
    if read_version is None:
        if not isinstance(operation, (LanceOperation.Overwrite, LanceOperation.Restore)):
            raise InvalidInput("read_version is required for all operations except Overwrite and Restore")
        read_version = 0
    return Transaction(read_version, operation, transaction_properties=with_message(None, message))


def _map(values: MapUpdates, replace: bool, name: str = "values") -> facts.UpdateMap:
    updates = arguments.text_updates(name, values)
    return facts.UpdateMap(tuple(updates.items()), arguments.flag("replace", replace))


def _data_version(operation: facts.Operation) -> str:
    """The version of the files of an Overwrite; it becomes the table's default."""
    if isinstance(operation, facts.Overwrite):
        for fragment in operation.fragments:
            for file in fragment.files:
                return f"{file.major}.{file.minor}"
    return "2.2"
