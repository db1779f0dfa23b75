"""One fragment of a dataset, and writing fragments without committing them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tiltyard.dataset import arguments
from tiltyard.dataset.arrow_class import ArrowLike
from tiltyard.dataset.fragment_session import FragmentSession
from tiltyard.dataset.handle import locked, open_root, refuse, session_of
from tiltyard.dataset.json_text import shown_schema
from tiltyard.dataset.metadata import DataFile, FragmentMetadata
from tiltyard.dataset.namespace_client import check_pair
from tiltyard.dataset.operations import LanceOperation
from tiltyard.dataset.packages import frame_of
from tiltyard.dataset.progress import ToldProgress
from tiltyard.dataset.scanner import LanceScanner, ScannerBuilder, build
from tiltyard.dataset.source import read_source
from tiltyard.dataset.transaction import Transaction
from tiltyard.errors import InvalidInput, NothingToWrite, RowOutOfRange, TableAlreadyExists, TableNotFound
from tiltyard.format.fragment import Fragment
from tiltyard.format.schema import Schema
from tiltyard.format.version import FileVersion
from tiltyard.kernels.distinct import distinct
from tiltyard.table import write as table_write
from tiltyard.table.creators import OwnPlace
from tiltyard.table.delete import offsets_of
from tiltyard.table.fit import new_schema
from tiltyard.table.plan import DEFAULT_BATCH_ROWS
from tiltyard.table.row_changes import mark_deleted
from tiltyard.table.snapshot import Snapshot, open_latest
from tiltyard.table.take import row_numbers

if TYPE_CHECKING:
    from tiltyard.dataset.lance_dataset import LanceDataset
    from tiltyard.dataset.lance_schema import LanceSchema
    from tiltyard.session import Session
    from tiltyard.store import Store
    from tiltyard.table.fragment_merge import MergedFragment

DEFAULT_VERSION = "2.2"
DEFAULT_MAX_BYTES_PER_FILE = table_write.MAX_BYTES_PER_FILE


class LanceFragment(ArrowLike):
    """A horizontal slice of one version of a dataset."""

    arrow_base = "Fragment"

    def __init__(
        self, dataset: LanceDataset, fragment_id: int | None, *, fragment: Fragment | None = None
    ) -> None:
        if fragment is None:
            if not hasattr(dataset, "_held"):
                raise arguments.wrong("dataset", "a LanceDataset", dataset)
            id = arguments.maybe_whole("fragment_id", fragment_id)
            fragment = None if id is None else dataset._held.fragment(id)
            if fragment is None:
                raise InvalidInput(f"version {dataset._held.version} has no fragment {fragment_id}")
        self._ds = dataset
        self._snapshot: Snapshot = dataset._held
        self._fragment = fragment

    def __repr__(self) -> str:
        names = [each.path for each in self._fragment.files]
        return f"LanceFragment(id={self._fragment.id}, data_files={names})"

    def __reduce__(self) -> Any:
        return LanceFragment, (self._ds._pinned(self._snapshot), self._fragment.id)

    # -- facts -----------------------------------------------------------------------------------

    @property
    def fragment_id(self) -> int:
        """Its id."""
        return self._fragment.id

    @property
    def metadata(self) -> FragmentMetadata:
        """Its facts, as a commit takes them."""
        return FragmentMetadata.from_fragment(self._fragment)

    @property
    def schema(self) -> Any:
        """The dataset's `pa.Schema`."""
        return shown_schema(self._snapshot.schema.arrow)

    @property
    def physical_schema(self) -> Any:
        """The `pa.Schema` of the fields that the fragment's files hold."""
        held = {id for file in self._fragment.files for id in file.fields}
        schema = self._snapshot.schema
        paths = [
            (*(each.name for each in schema.ancestors(leaf.id)), leaf.name)
            for leaf in schema.leaves()
            if leaf.id in held
        ]
        return schema.project(paths).arrow

    @property
    def partition_expression(self) -> Any:
        """What is true for every row: `true`, for a table has no partitions."""
        import pyarrow.compute as pc

        return pc.scalar(True)

    @property
    def physical_rows(self) -> int:
        """Rows, deleted ones included."""
        return self._fragment.physical_rows

    @property
    def num_deletions(self) -> int:
        """Deleted rows."""
        return 0 if self._fragment.deletion is None else self._fragment.deletion.rows

    def data_files(self) -> list[DataFile]:
        """Its data files."""
        return [DataFile.from_fact(each) for each in self._fragment.files]

    def deletion_file(self) -> str | None:
        """The path of its deletion file below the table's root, None when nothing is deleted."""
        deletion = self._fragment.deletion
        return None if deletion is None else deletion.path(self._fragment.id)

    # -- reading ---------------------------------------------------------------------------------

    def scanner(self, **options: Any) -> LanceScanner:
        """A scanner of this fragment; options as for `LanceDataset.scanner`."""
        builder = ScannerBuilder(None, self._snapshot)
        builder.with_fragments([self])
        return build(builder, options)

    def to_table(self, columns: Any = None, filter: Any = None, **options: Any) -> Any:
        """Its rows as a `pa.Table`."""
        return self.scanner(columns=columns, filter=filter, **options).to_table()

    def to_batches(self, **options: Any) -> Iterator[Any]:
        """Its rows as `pa.RecordBatch`es."""
        return self.scanner(**options).to_batches()

    def to_pandas(self, columns: Any = None, filter: Any = None, **options: Any) -> Any:
        """Its rows as a `pandas.DataFrame`."""
        return frame_of(self.to_table(columns, filter, **options))

    def count_rows(self, filter: str | None = None) -> int:
        """Its live rows, or those that pass the filter."""
        return self.scanner(columns=[], filter=filter).count_rows()

    def head(self, num_rows: int) -> Any:
        """Its first rows as a `pa.Table`."""
        return self.scanner(limit=arguments.whole("num_rows", num_rows)).to_table()

    def take(self, indices: Any, columns: Any = None) -> Any:
        """Rows by number within the fragment (live rows count), any order, as a `pa.Table`."""
        return self.open_session(columns).take(indices)

    def open_session(self, columns: Any = None, with_row_address: bool | None = None) -> FragmentSession:
        """What takes rows again and again: `session.take(indices)`; `_rowaddr` comes last if asked for."""
        wanted = arguments.columns("columns", columns)
        address = arguments.maybe_flag("with_row_address", with_row_address)
        return FragmentSession(self._snapshot, self._fragment, wanted, row_address=bool(address))

    def validate(self, *, checksums: bool = False) -> None:
        """Raise `CorruptFile` with all that is wrong with the fragment; see `LanceDataset.validate`."""
        from tiltyard.dataset.checking import raise_findings
        from tiltyard.table.verify import verify_snapshot

        whole = arguments.flag("checksums", checksums)
        raise_findings(verify_snapshot(self._snapshot, [self._fragment], checksums=whole), self._snapshot)

    # -- deleting --------------------------------------------------------------------------------

    def delete(self, predicate: str) -> FragmentMetadata | None:
        """The fragment with the rows that match deleted too, uncommitted; None when no row is left."""
        offsets = offsets_of(self._snapshot, self._fragment, arguments.text("predicate", predicate))
        return self._without(offsets)

    def delete_rows(self, offsets: Iterable[int]) -> FragmentMetadata | None:
        """The fragment with the rows at these physical offsets deleted too, uncommitted; None when none is
        left.
        """
        numbers = row_numbers(offsets)
        if len(numbers) and (int(numbers.min()) < 0 or int(numbers.max()) >= self.physical_rows):
            raise RowOutOfRange(
                f"offsets {int(numbers.min())} to {int(numbers.max())} do not lie within the "
                f"{self.physical_rows} rows of fragment {self._fragment.id}"
            )
        return self._without(distinct(numbers).astype(np.uint32))

    def _without(self, offsets: Any) -> FragmentMetadata | None:
        if not len(offsets):
            return self.metadata
        changed = mark_deleted(self._snapshot, self._fragment, offsets)
        return None if changed is None else FragmentMetadata.from_fragment(changed)

    # -- updating --------------------------------------------------------------------------------

    def update_columns(
        self,
        data_obj: Any,
        left_on: str = "_rowid",
        right_on: str | None = None,
        schema: Any = None,
        *,
        with_offsets: bool = False,
    ) -> Any:
        """The fragment with new values in some columns, uncommitted, and the ids of the fields that changed.

        `data_obj` brings the columns and `right_on` (by default named as `left_on`), whose values are looked
        for in this fragment's `left_on`: a column, or `_rowid` or `_rowaddr`. Rows without a partner keep
        their values, of several partners the first counts. `with_offsets` adds the physical offsets of the
        rows that had one, as a portable Roaring bitmap. Commit it with `LanceOperation.Update`.
        """
        from tiltyard.format.roaring import encode_roaring
        from tiltyard.table.fragment_update import update_columns

        left = arguments.text("left_on", left_on)
        right = left if right_on is None else arguments.text("right_on", right_on)
        with_offsets = arguments.flag("with_offsets", with_offsets)
        arrow, batches = read_source(data_obj, schema)
        data = pa.Table.from_batches(batches, arrow)
        done = update_columns(self._snapshot, self._fragment, data, left, right)
        found = FragmentMetadata.from_fragment(done.fragment), list(done.field_ids)
        return (*found, encode_roaring(done.offsets)) if with_offsets else found

    # -- adding columns --------------------------------------------------------------------------

    def merge(
        self, data_obj: Any, left_on: str, right_on: str | None = None, schema: Any = None
    ) -> tuple[FragmentMetadata, LanceSchema]:
        """The fragment with the other columns of `data_obj` beside its own, uncommitted, and the schema of a
        table with them: a left join of the rows' `left_on` (a column, or `_rowid` or `_rowaddr`) with
        `right_on` there (by default of the same name).

        Rows without a partner get nulls, of several partners the first counts. Do the same with all fragments
        of one version, then commit them with `LanceOperation.Merge`. Raises `InvalidInput` for columns that
        the table has already, `FieldNotFound`, `SchemaMismatch`.
        """
        from tiltyard.table.fragment_merge import add_joined

        left = arguments.text("left_on", left_on)
        right = left if right_on is None else arguments.text("right_on", right_on)
        arrow, batches = read_source(data_obj, schema)
        data = pa.Table.from_batches(batches, arrow)
        return self._merged(add_joined(self._snapshot, self._fragment, data, left, right))

    def merge_columns(
        self,
        value_func: Any,
        columns: Any = None,
        batch_size: int | None = None,
        reader_schema: Any = None,
    ) -> tuple[FragmentMetadata, LanceSchema]:
        """The fragment with new columns, uncommitted, and the schema of a table with them; see `merge`.

        `value_func`: a map from names to SQL expressions; a function that makes a batch of new columns of a
        `pa.RecordBatch` of `columns` (all by default) of at most `batch_size` live rows; or data with a row
        for each live row, in order, of `reader_schema` where it does not say so itself.
        """
        from tiltyard.table.fragment_merge import add_columns, add_computed

        rows = DEFAULT_BATCH_ROWS if batch_size is None else arguments.whole("batch_size", batch_size, 1)
        read = arguments.columns("columns", columns)
        if isinstance(read, dict):
            raise arguments.wrong("columns", "a list of names", columns)
        if isinstance(value_func, Mapping):
            scan = self.scanner(columns=arguments.expressions("value_func", value_func), batch_size=rows)
            made = add_columns(self._snapshot, self._fragment, scan.projected_schema, scan.to_batches())
        elif callable(value_func):
            made = add_computed(self._snapshot, self._fragment, value_func, read, rows)
        else:
            arrow, batches = read_source(value_func, reader_schema)
            made = add_columns(self._snapshot, self._fragment, arrow, batches)
        return self._merged(made)

    def _merged(self, made: MergedFragment) -> tuple[FragmentMetadata, LanceSchema]:
        from tiltyard.dataset.lance_schema import LanceSchema

        return FragmentMetadata.from_fragment(made.fragment), LanceSchema(made.schema)

    # -- making ----------------------------------------------------------------------------------

    @staticmethod
    def create_from_file(filename: str, dataset: LanceDataset, fragment_id: int) -> FragmentMetadata:
        """A fragment, uncommitted, of a data file that lies in the dataset's `data` directory already.

        Its columns are matched with the dataset's fields by name and type.
        """
        from tiltyard.dataset.data_files import fragment_of_file

        if not hasattr(dataset, "_held"):
            raise arguments.wrong("dataset", "a LanceDataset", dataset)
        return fragment_of_file(filename, dataset, arguments.whole("fragment_id", fragment_id))

    @staticmethod
    def create(
        dataset_uri: Any,
        data: Any,
        fragment_id: int | None = None,
        schema: Any = None,
        max_rows_per_group: int | None = None,
        progress: Any = None,
        mode: str = "append",
        *,
        data_storage_version: str | None = None,
        use_legacy_format: bool | None = None,
        storage_options: dict[str, Any] | None = None,
        namespace_client: Any = None,
        table_id: Any = None,
        session: Any = None,
    ) -> FragmentMetadata:
        """Write all of the data as one uncommitted fragment. `max_rows_per_group` has no meaning any more."""
        refuse(use_legacy_format=use_legacy_format)
        check_pair(namespace_client, table_id)  # they renew credentials, and local files have none
        id = arguments.maybe_whole("fragment_id", fragment_id)
        arguments.maybe_whole("max_rows_per_group", max_rows_per_group)
        found = write_fragments(
            data,
            dataset_uri,
            schema,
            mode=mode,
            max_rows_per_file=(1 << 31) - 1,
            progress=None if progress is None else ToldProgress(progress, id or 0),
            data_storage_version=data_storage_version,
            storage_options=storage_options,
            session=session,
        )
        if not found:
            raise NothingToWrite("the data has no rows, so that there is no fragment to make")
        assert isinstance(found, list)
        found[0].id = id or 0
        return found[0]


def file_version(asked: str | None, snapshot: Snapshot | None) -> FileVersion:
    """The version of new data files: the one asked for, else the table's, else the default."""
    if asked is not None:
        return FileVersion.parse(arguments.text("data_storage_version", asked))
    if snapshot is not None and snapshot.manifest.data_format is not None:
        return FileVersion.parse(snapshot.manifest.data_format.version)
    return FileVersion.parse(DEFAULT_VERSION)


def place_of(
    destination: Any, storage_options: Any, session: Any, commit_lock: Any = None
) -> tuple[Store, Session, Snapshot | None]:
    """Store, session and newest version (None: no table yet) of a URI, path or dataset."""
    if isinstance(destination, OwnPlace):
        return destination.store, session_of(session), None
    if hasattr(destination, "_held"):
        if storage_options is not None:
            arguments.mapping("storage_options", storage_options)
        store = locked(destination._store, commit_lock)
        return store, destination._session, open_latest(store, destination._session)
    store, found = open_root(destination, storage_options, commit_lock), session_of(session)
    try:
        return store, found, open_latest(store, found)
    except TableNotFound:
        return store, found, None


def write_fragments(
    data: Any,
    dataset_uri: Any,
    schema: Any = None,
    *,
    return_transaction: bool = False,
    mode: str = "append",
    max_rows_per_file: int = table_write.MAX_ROWS_PER_FILE,
    max_rows_per_group: int | None = None,
    max_bytes_per_file: int = DEFAULT_MAX_BYTES_PER_FILE,
    progress: Any = None,
    data_storage_version: str | None = None,
    use_legacy_format: bool | None = None,
    storage_options: dict[str, Any] | None = None,
    enable_stable_row_ids: bool = False,
    target_bases: Any = None,
    target_all_bases: bool | None = None,
    initial_bases: Any = None,
    base_store_params: Any = None,
    external_blob_mode: str = "reference",
    allow_external_blob_outside_bases: bool = False,
    data_cache_bytes: int | None = None,
    max_page_bytes: int | None = None,
    namespace_client: Any = None,
    table_id: Any = None,
    session: Any = None,
) -> list[FragmentMetadata] | Transaction:
    """Write data files that no version names yet, for a later `LanceDataset.commit`.

    `mode` is `append` (the data is fitted to the table's schema; a missing table is taken as a new one),
    `overwrite` or `create`. Gives the fragments, or with `return_transaction` a transaction ready to be
    committed. `max_rows_per_group`, `data_cache_bytes` and `max_page_bytes` are accepted and have no effect.
    """
    refuse(
        use_legacy_format=use_legacy_format,
        target_bases=target_bases,
        target_all_bases=target_all_bases,
        initial_bases=initial_bases,
        base_store_params=base_store_params,
    )
    check_pair(namespace_client, table_id)
    check_mode(mode)
    gives_transaction = arguments.flag("return_transaction", return_transaction)
    arguments.flag("enable_stable_row_ids", enable_stable_row_ids)
    told = progress if isinstance(progress, ToldProgress) or progress is None else ToldProgress(progress)
    check_hints(
        max_rows_per_group=max_rows_per_group,
        data_cache_bytes=data_cache_bytes,
        max_page_bytes=max_page_bytes,
    )
    arguments.text("external_blob_mode", external_blob_mode)
    arguments.flag("allow_external_blob_outside_bases", allow_external_blob_outside_bases)
    rows, size = file_bounds(max_rows_per_file, max_bytes_per_file)
    store, _, snapshot = place_of(dataset_uri, storage_options, session)
    if mode == "create" and snapshot is not None:
        raise TableAlreadyExists(f"Dataset already exists: {store.uri}; append to or overwrite it instead")
    version = file_version(data_storage_version, snapshot)
    arrow, batches = read_source(data, schema, table_arrow(mode, snapshot))
    target = table_schema(arrow, mode, snapshot, version)
    fragments = table_write.write_fragments(
        store,
        target,
        batches,
        table_write.WriteOptions(rows, size, version),
        arrow_schema=arrow,
        progress=told,
    )
    found = [FragmentMetadata.from_fragment(each) for each in fragments]
    if not gives_transaction:
        return found
    if mode == "append" and snapshot is not None:
        return Transaction(snapshot.version, LanceOperation.Append(found))
    from tiltyard.dataset.lance_schema import LanceSchema

    read_version = 0 if snapshot is None else snapshot.version
    return Transaction(read_version, LanceOperation.Overwrite(LanceSchema(target), found))


def check_mode(mode: str) -> None:
    """Raise `InvalidInput` for an unknown mode."""
    arguments.one_of("mode", mode, "create", "append", "overwrite")


def check_hints(**hints: Any) -> None:
    """Raise for settings without effect that are no whole numbers."""
    for name, value in hints.items():
        arguments.maybe_whole(name, value)


def file_bounds(max_rows: Any, max_bytes: Any) -> tuple[int, int]:
    """The bounds of a data file, checked: rows and bytes."""
    return (
        arguments.whole("max_rows_per_file", max_rows, 1),
        arguments.whole("max_bytes_per_file", max_bytes, 1),
    )


def table_arrow(mode: str, snapshot: Snapshot | None) -> Any:
    """The `pa.Schema` of the table that is appended to; None when the data makes a new one."""
    return snapshot.schema.arrow if mode == "append" and snapshot is not None else None


def table_schema(arrow: Any, mode: str, snapshot: Snapshot | None, version: FileVersion) -> Schema:
    """The schema to write to: the table's when appending to one, else a new one of the data's."""
    if mode == "append" and snapshot is not None:
        return snapshot.schema
    return new_schema(arrow, version)
