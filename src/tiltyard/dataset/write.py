"""`write_dataset`: data of any shape becomes a version of a table, new or old."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from tiltyard import runtime
from tiltyard.dataset import arguments, bases
from tiltyard.dataset.fragment import (
    check_hints,
    check_mode,
    file_bounds,
    file_version,
    place_of,
    table_arrow,
    table_schema,
)
from tiltyard.dataset.handle import open_root, refuse
from tiltyard.dataset.progress import ToldProgress
from tiltyard.dataset.renamed import under_new_names
from tiltyard.dataset.source import read_source
from tiltyard.dataset.streams import refuse_undrained, streams_ended
from tiltyard.dataset.transaction import with_message
from tiltyard.errors import (
    CommitConflict,
    InvalidInput,
    OutcomeUnknown,
    RetryableConflict,
    TableAlreadyExists,
    TableNotFound,
    TiltyardError,
    TooMuchContention,
)
from tiltyard.format import transaction as facts
from tiltyard.format.base_paths import BasePath
from tiltyard.format.fragment import Fragment
from tiltyard.format.names import Naming
from tiltyard.format.schema import Schema
from tiltyard.table import write as table_write
from tiltyard.table.apply import NewTable
from tiltyard.table.commit import commit
from tiltyard.table.creators import OwnPlace
from tiltyard.table.group import commit_append
from tiltyard.table.snapshot import Snapshot, open_latest
from tiltyard.table.write import WriteOptions, remove_files

if TYPE_CHECKING:
    from tiltyard.dataset.lance_dataset import LanceDataset
    from tiltyard.session import Session
    from tiltyard.store import Store

MAX_RACES = 32
"""How often a write builds anew on a table that another writer just made, or just overwrote as we would."""


def write_dataset(
    data_obj: Any,
    uri: Any = None,
    schema: Any = None,
    mode: str = "create",
    *,
    max_rows_per_file: int = table_write.MAX_ROWS_PER_FILE,
    max_rows_per_group: int | None = None,
    max_bytes_per_file: int = table_write.MAX_BYTES_PER_FILE,
    data_cache_bytes: int | None = None,
    max_page_bytes: int | None = None,
    commit_lock: Any = None,
    progress: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    data_storage_version: str | None = None,
    use_legacy_format: bool | None = None,
    enable_v2_manifest_paths: bool = True,
    enable_stable_row_ids: bool = False,
    auto_cleanup_options: Any = None,
    commit_message: str | None = None,
    transaction_properties: Mapping[str, str] | None = None,
    initial_bases: Any = None,
    target_bases: Any = None,
    target_all_bases: bool | None = None,
    base_store_params: Any = None,
    external_blob_mode: str = "reference",
    allow_external_blob_outside_bases: bool = False,
    blob_pack_file_size_threshold: int | None = None,
    namespace_client: Any = None,
    table_id: Any = None,
    session: Any = None,
    discard_streamed: bool = False,
) -> LanceDataset:
    """Write data as a new version and give a handle of it.

    `data_obj`: an Arrow table, batch, reader, dataset; a pandas or Polars frame; a dict of columns; a list of
    dicts; or an iterable of record batches or dicts. An index of a pandas frame is a column if it has a name,
    else left out. `schema`: brings the data to these columns; others are refused. `uri`: a path, URI or
    dataset. `mode`: `create` (the table must not exist), `append` (fitted to the table's schema, widened
    where that is safe) or `overwrite`; the last two make a missing table. Files end at `max_rows_per_file`
    rows or `max_bytes_per_file` bytes. `progress` is a `FragmentWriteProgress` or a function of the rows
    written. `data_storage_version`: `2.1`, `2.2` or `stable`. `auto_cleanup_options`, for a new table only:
    clean up after every `interval` versions what is older than `older_than_seconds`. `namespace_client` and
    `table_id` instead of `uri`: the namespace declares the table to be created, or says where it is; where it
    manages versions, the commit goes through it. `discard_streamed`: overwrite although rows were streamed
    into the table that are not in its base yet; they are given up. `initial_bases`: other places
    (`DatasetBasePath`) that a new table may keep data files in; `target_bases`: names or paths of those that
    this write puts its files in, in turns; `target_all_bases`: all of them, and the table's own root too
    (True) or not (False).

    Everything is durable when this returns, unless `storage_options={"durable": False}`. Raises
    `TableAlreadyExists`, `SchemaMismatch` (both schemas side by side), `InvalidInput`, `UnsupportedFeature`,
    `UndrainedRows`, and what a commit raises. `max_rows_per_group`, `data_cache_bytes` and `max_page_bytes`
    have no effect.
    """
    refuse(
        use_legacy_format=use_legacy_format,
        base_store_params=base_store_params,
        blob_pack_file_size_threshold=blob_pack_file_size_threshold,
    )
    check_mode(mode)
    if uri is None and namespace_client is None and table_id is None:
        raise InvalidInput("uri says where to write the table")
    check_hints(
        max_rows_per_group=max_rows_per_group,
        data_cache_bytes=data_cache_bytes,
        max_page_bytes=max_page_bytes,
    )
    arguments.text("external_blob_mode", external_blob_mode)
    arguments.flag("allow_external_blob_outside_bases", allow_external_blob_outside_bases)
    naming: Naming = "V2" if arguments.flag("enable_v2_manifest_paths", enable_v2_manifest_paths) else "V1"
    stable_row_ids = arguments.flag("enable_stable_row_ids", enable_stable_row_ids)
    discards = arguments.flag("discard_streamed", discard_streamed)
    config = _auto_cleanup(auto_cleanup_options)
    told = None if progress is None else ToldProgress(progress)
    properties = with_message(transaction_properties, commit_message)
    rows, size = file_bounds(max_rows_per_file, max_bytes_per_file)
    source = None
    if namespace_client is not None or table_id is not None:
        from tiltyard.dataset.namespace_client import named

        if mode == "create":  # looked at first: data that is none must not leave a declared table
            source = read_source(data_obj, schema)
            table_schema(source[0], mode, None, file_version(data_storage_version, None))
        place = named(uri, namespace_client, table_id, storage_options, mode)
        assert place is not None
        storage_options = place.storage_options
        uri = place.store(open_root(place.uri, storage_options))
    store, found, snapshot = place_of(uri, storage_options, session, commit_lock)
    if mode == "create" and snapshot is not None:
        raise TableAlreadyExists(f"Dataset already exists: {store.uri}; append to or overwrite it instead")
    version = file_version(data_storage_version, None if mode == "overwrite" else snapshot)
    new_bases = bases.initial(initial_bases, mode, snapshot)
    known = new_bases if snapshot is None else snapshot.manifest.base_paths
    goals = bases.targets(store, known, target_bases, target_all_bases)
    used = {goal.base_id for goal in goals}
    write = _Write(
        store,
        found,
        mode,
        WriteOptions(rows, size, version),
        told,
        properties,
        naming,
        NewTable(data_version=version.value, stable_row_ids=stable_row_ids, config=config),
        discards,
        is_alone=isinstance(uri, OwnPlace),
        initial_bases=new_bases,
        targets=goals,
        placed={base.id: (base.path, base.is_dataset_root) for base in known if base.id in used},
    )
    arrow, batches = source or read_source(data_obj, schema, table_arrow(mode, snapshot))
    if mode == "append" and snapshot is not None:
        arrow, batches = under_new_names(arrow, batches, getattr(uri, "_held", None), snapshot)
    after = write.run(arrow, batches, snapshot)
    from tiltyard.dataset.lance_dataset import LanceDataset

    options = getattr(uri, "_storage_options", storage_options)
    return LanceDataset._made(after, storage_options=options)


def _auto_cleanup(options: Any) -> dict[str, str]:
    """The config of a new table that is to be cleaned up after commits."""
    if options is None:
        return {}
    from tiltyard.dataset.cleaning import config_of

    return config_of("auto_cleanup_options", options)


class _Write:
    """One call: where, how, and the loop around a create race."""

    def __init__(
        self,
        store: Store,
        session: Session,
        mode: str,
        options: WriteOptions,
        progress: ToldProgress | None,
        properties: dict[str, str],
        naming: Naming,
        new_table: NewTable,
        discard_streamed: bool,
        *,
        is_alone: bool,
        initial_bases: tuple[BasePath, ...],
        targets: tuple[table_write.Target, ...],
        placed: dict[int, tuple[str, bool]],
    ) -> None:
        """`placed`: path and kind of the bases among the `targets`, by id."""
        self._store = store
        self._session = session
        self._mode = mode
        self._options = options
        self._progress = progress
        self._properties = properties
        self._naming = naming
        self._new_table = new_table
        self._discard_streamed = discard_streamed
        self._is_alone = is_alone
        self._initial_bases = initial_bases
        self._targets = targets
        self._placed = placed
        self._files_referenced = False

    def run(self, arrow: Any, batches: Iterator[Any], snapshot: Snapshot | None) -> Snapshot:
        if self._mode == "overwrite" and snapshot is not None and not self._discard_streamed:
            refuse_undrained(snapshot, "overwrite")  # before data are written
        schema = table_schema(arrow, self._mode, snapshot, self._options.version)
        fragments = table_write.write_fragments(
            self._store,
            schema,
            batches,
            self._options,
            arrow_schema=arrow,
            progress=self._progress,
            targets=self._targets,
        )
        try:
            return self._committed(snapshot, fragments, schema)
        except OutcomeUnknown:
            raise  # a version may name the files
        except TiltyardError as error:
            if not (self._files_referenced or error.files_referenced):
                remove_files(self._store, fragments, self._targets)
            raise

    def _committed(self, snapshot: Snapshot | None, fragments: list[Fragment], schema: Schema) -> Snapshot:
        """Commit the files, on the versions that others make meanwhile too."""
        for _ in range(MAX_RACES):
            try:
                return self._commit(snapshot, fragments, schema)
            except (CommitConflict, TableAlreadyExists) as error:
                # A definite answer, so that the files can serve another attempt.
                self._files_referenced |= error.files_referenced
                if not self._may_replan(error):
                    raise
                try:
                    snapshot = open_latest(self._store, self._session)
                except TableNotFound:
                    if snapshot is None:  # two creators made room for each other (`table.creators`)
                        continue
                    raise
                if not self._bases_stand(snapshot):
                    raise RetryableConflict(
                        f"{self._store.uri} was replaced by another writer, without the bases that this "
                        f"{self._mode} put its files in; write again"
                    ) from error
                if self._mode == "append" and not _same_fields(schema, snapshot):
                    raise RetryableConflict(
                        f"{self._store.uri} was made or replaced by another writer, with other columns or "
                        "types than those that this append was written for; append again, and the data is "
                        "fitted to the table that stands there now"
                    ) from error
        raise TooMuchContention(
            f"{self._store.uri} was made or overwritten {MAX_RACES} times while this {self._mode} was to be "
            "committed; nothing was committed, try again"
        )

    def _bases_stand(self, snapshot: Snapshot) -> bool:
        """Whether the bases that files were put in are those of the same ids in another version."""
        there = {base.id: (base.path, base.is_dataset_root) for base in snapshot.manifest.base_paths}
        return all(there.get(id) == place for id, place in self._placed.items())

    def _may_replan(self, error: Exception) -> bool:
        """Whether the same files can be committed on the version that another writer made first (case
        O01).
        """
        if self._mode == "create" or isinstance(error, TooMuchContention):
            return False
        return self._mode == "append" or isinstance(error, (RetryableConflict, TableAlreadyExists))

    def _commit(self, snapshot: Snapshot | None, fragments: list[Fragment], schema: Schema) -> Snapshot:
        operation: facts.Operation
        read_version, uuid = (0 if snapshot is None else snapshot.version), str(runtime.uuid4())
        if self._mode == "append" and snapshot is not None:
            operation = facts.Append(tuple(fragments))
            transaction = facts.Transaction(read_version, uuid, operation, self._properties)
            return commit_append(self._store, transaction, session=self._session, base=snapshot)
        operation = facts.Overwrite(tuple(fragments), schema, initial_bases=self._initial_bases)
        with (
            nullcontext()
            if snapshot is None
            else streams_ended(snapshot, "overwrite", self._discard_streamed)
        ):
            return commit(
                self._store,
                facts.Transaction(read_version, uuid, operation, self._properties),
                session=self._session,
                base=snapshot,
                # A first append must not become an overwrite of a table that appeared after our look.
                strict=self._mode != "overwrite",
                naming=self._naming,
                new_table=self._new_table,
                is_alone=self._is_alone,
            )


def _same_fields(schema: Schema, snapshot: Snapshot) -> bool:
    """Whether files written for `schema` mean the same under the snapshot's: ids, places, names and types
    are equal.
    """

    def facts_of(given: Schema) -> list[tuple[int, int, str, str, bool]]:
        return [
            (each.id, each.parent_id, each.name, each.logical_type, each.nullable) for each in given.walk()
        ]

    return facts_of(schema) == facts_of(snapshot.schema)
