"""A table in plain words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tiltyard.dataset import LanceDataset, arguments, write_dataset
from tiltyard.dataset.handle import LATEST, seconds_of
from tiltyard.errors import InvalidInput, TableAlreadyExists, TagNotFound, TiltyardError
from tiltyard.lake.scan import Scan, vector_column
from tiltyard.lake.sources import columns_given
from tiltyard.lake.streamed import Streamed
from tiltyard.lake.taking import Taking
from tiltyard.lake.words import plain
from tiltyard.table.nearest.query import DEFAULT_K

if TYPE_CHECKING:
    from datetime import timedelta

    from tiltyard.dataset import MergeInsertBuilder
    from tiltyard.dataset.compaction import CompactionMetrics
    from tiltyard.dataset.indexing import IndexDescription
    from tiltyard.dataset.progress import FragmentWriteProgress
    from tiltyard.lake.lake import Lake
    from tiltyard.table.cleanup.explain import CleanupExplanation, CleanupStats
    from tiltyard.table.maintain import Limits, Maintainer
    from tiltyard.table.optimize import OptimizeReport

Columns = Sequence[str] | Mapping[str, str] | None

HEAD_ROWS = 10
COLUMNS_SHOWN = 20
"""How many columns the text form of a table lists."""


class Table(Taking, Streamed):
    """A table. Reads see the newest version; `at` gives one that stays at a version and is only read.

    The handle may be shared among threads and pickled.
    """

    def __init__(self, ds: LanceDataset, *, pinned: bool = False, lake: Lake | None = None) -> None:
        if not isinstance(ds, LanceDataset):
            raise InvalidInput(f"a Table is opened with open_table({ds!r}), or made with create_table")
        self._ds = ds
        self._pinned = pinned
        self._lake = lake

    def __repr__(self) -> str:
        snapshot = self._ds._held
        with suppress(TiltyardError, OSError):  # a text form tells what was known last
            snapshot = self._ds._snapshot
        lines = [f"Table({self.uri!r}, version={snapshot.version}{', read only' if self._pinned else ''})"]
        schema = snapshot.schema.arrow
        lines += [
            f"  {field.name}: {field.type}{'' if field.nullable else ' not null'}"
            for field in list(schema)[:COLUMNS_SHOWN]
        ]
        if len(schema) > COLUMNS_SHOWN:
            lines.append(f"  ... and {len(schema) - COLUMNS_SHOWN} more columns")
        return "\n".join(lines)

    @property
    def uri(self) -> str:
        """Where the table is."""
        return self._ds.uri

    @property
    def version(self) -> int:
        """The version that reads see now."""
        return self._ds.version

    @property
    def schema(self) -> Any:
        """The `pa.Schema`."""
        return self._ds.schema

    @property
    def dataset(self) -> LanceDataset:
        """The same table with every knob, in the words of the official package; of a table from `at`, a
        copy that its own writes move.
        """
        return self._ds._at(self._ds._held) if self._pinned else self._ds

    # -- writing ---------------------------------------------------------------------------------

    def append(
        self,
        data: Any,
        *,
        schema: Any = None,
        max_rows_per_file: int | None = None,
        max_bytes_per_file: int | None = None,
        data_storage_version: str | None = None,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        progress: FragmentWriteProgress | Callable[[int], None] | None = None,
    ) -> None:
        """Add rows: Arrow, pandas or Polars data, a dict of columns, a list of dicts, an iterator of
        batches or dicts.

        Columns are matched by name; those that are missing become null, unknown ones are refused. `schema`: a
        `pa.Schema` to bring the data to first. Data files end at `max_rows_per_file` rows or
        `max_bytes_per_file` bytes and have the table's `data_storage_version` unless another is given.
        `commit_message` and `transaction_properties` are kept with the version. `progress` is called with
        the number of rows written so far. Raises `SchemaMismatch`, `InvalidInput` and what a commit raises.
        """
        self._write(
            "append",
            data,
            schema=schema,
            max_rows_per_file=max_rows_per_file,
            max_bytes_per_file=max_bytes_per_file,
            data_storage_version=data_storage_version,
            commit_message=commit_message,
            transaction_properties=transaction_properties,
            progress=progress,
        )

    def overwrite(
        self,
        data: Any,
        *,
        schema: Any = None,
        max_rows_per_file: int | None = None,
        max_bytes_per_file: int | None = None,
        data_storage_version: str | None = None,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        progress: FragmentWriteProgress | Callable[[int], None] | None = None,
        discard_streamed: bool = False,
    ) -> None:
        """Put these rows and their schema in the place of all; old versions stay readable. See `append`.

        A table that was streamed into is no longer: streams into it end. Refused (`UndrainedRows`) while
        streamed rows are not in the base, unless `discard_streamed`: `scan` never sees those.
        """
        self._write(
            "overwrite",
            data,
            schema=schema,
            max_rows_per_file=max_rows_per_file,
            max_bytes_per_file=max_bytes_per_file,
            data_storage_version=data_storage_version,
            commit_message=commit_message,
            transaction_properties=transaction_properties,
            progress=progress,
            discard_streamed=discard_streamed,
        )

    def upsert(
        self,
        data: Any,
        on: str | Sequence[str] | None = None,
        *,
        schema: Any = None,
        data_storage_version: str | None = None,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
    ) -> dict[str, int]:
        """Update the rows whose key the data brings and add the others, in one version. Gives
        `{"inserted": n, "updated": n}`.

        `on`: the columns of the key; without it the table's primary or unique key. Columns that the data
        lacks keep their values in rows that are there, and are null in new ones. A key with a null in it is
        always new. Data as for `append`. Of two upserts of one new key the second finds the row of the first.
        Raises `AmbiguousMerge` where the data has a key twice, `SchemaMismatch`, and what a commit raises.
        """
        merge = self.merge(on).when_matched_update_all().when_not_matched_insert_all()
        if data_storage_version is not None:
            merge = merge.data_storage_version(data_storage_version)
        done = merge.execute(
            data,
            schema=schema,
            commit_message=commit_message,
            transaction_properties=transaction_properties,
        )
        return {"inserted": done["num_inserted_rows"], "updated": done["num_updated_rows"]}

    def merge(self, on: str | Sequence[str] | None = None) -> MergeInsertBuilder:
        """Say what happens to rows and data of one key, then `execute`; see `LanceDataset.merge_insert`."""
        self._check_writable("merge")
        self._refuse_streamed("merge")
        return self._ds.merge_insert(on)

    def dedupe(self, on: str | Sequence[str] | None = None, *, keep: str = "last") -> int:
        """Delete all rows but the last (or first) of each key; how many. See `LanceDataset.dedupe`."""
        self._check_writable("dedupe")
        self._refuse_streamed("dedupe")
        return self._ds.dedupe(on, keep=keep)["num_deleted_rows"]

    @plain
    def delete(self, where: Any) -> int:
        """Delete the rows for which the SQL (or Arrow expression) is true; how many they were."""
        self._check_writable("delete")
        self._refuse_streamed("delete")
        return self._ds.delete(where)["num_deleted_rows"]

    @plain
    def update(
        self, updates: Mapping[str, str], where: Any = None, *, data_storage_version: str | None = None
    ) -> int:
        """Set columns, `{"price": "price * 2"}`, of the rows for which the SQL is true; how many they were.
        Expressions see the row as it was; a dotted path sets a field of a struct. As with `delete` all rows
        are meant only where that is said: `where="true"`. `data_storage_version`: of the new data files.
        """
        self._check_writable("update")
        self._refuse_streamed("update")
        if where is None:
            raise InvalidInput(
                "update changes the rows that where= finds: give where='true' to change all rows"
            )
        return self._ds.update(updates, where, data_storage_version=data_storage_version)["num_rows_updated"]

    def create_index(self, column: str, *, name: str | None = None, replace: bool = True) -> None:
        """Build a B-tree index on a column or dotted path: filters, counts, deletes and updates on it then
        read only the rows they need. It is named `<column>_idx` unless `name` is given; with `replace` it
        takes the place of one of that name. Rows added later are found by scanning until `refresh_indices` or
        `optimize`.
        """
        self._check_writable("create_index")
        self._ds.create_scalar_index(column, "BTREE", name, replace=replace)

    def drop_index(self, name: str) -> None:
        """Drop an index by name. Raises `IndexNotFound`, which lists those that there are."""
        self._check_writable("drop_index")
        self._ds.drop_index(name)

    def refresh_indices(self, *names: str) -> None:
        """Index the rows that no index answers for yet: all indices, or those named. `optimize` does it, too.
        Raises `IndexNotFound`.
        """
        self._check_writable("refresh_indices")
        self._ds.optimize.optimize_indices(index_names=names or None)

    # -- keys ------------------------------------------------------------------------------------

    @property
    def unique_key(self) -> list[str] | None:
        """The columns whose values together stand in at most one row; None where none are declared."""
        from tiltyard.table.unique import unique_key

        snapshot = self._ds._snapshot
        key = unique_key(snapshot.schema, snapshot.manifest.config)
        return None if key is None else list(key.names)

    def set_unique_key(self, on: str | Sequence[str] | None) -> None:
        """Declare a column, or several, unique: from then on what would write a key twice raises
        `DuplicateKey`, and `upsert` and `dedupe` go by this key where they are given none. None takes it
        back. Other writers do not know of it. Raises `DuplicateKey` where rows share a key already, see
        `dedupe`; `FieldNotFound`.
        """
        self._check_writable("set_unique_key")
        from tiltyard.table.merge.keys import resolve_key
        from tiltyard.table.unique import UNIQUE

        names = arguments.texts("on", [on] if isinstance(on, str) else [] if on is None else on)
        if on is not None:
            resolve_key(self._ds._snapshot.schema, names)
        if on is not None and (not names or any("," in name for name in names)):
            raise InvalidInput(
                f"a unique key is one column or several, without commas in names; found {on!r}"
            )
        self._ds.update_config({UNIQUE: ",".join(names) if names else None})

    # -- upkeep ----------------------------------------------------------------------------------

    def compact(
        self, *, progress: Callable[[int, int], None] | None = None, **options: Any
    ) -> CompactionMetrics:
        """Join small files, and rewrite those with many deleted rows; gives totals. A part of `optimize`;
        options as for `dataset.optimize.compact_files`.
        """
        self._check_writable("compact")
        return self._ds.optimize.compact_files(progress=progress, **options)

    def optimize(
        self,
        *,
        older_than: timedelta | str = "7d",
        retain_versions: int | None = None,
        progress: Callable[[int, int], None] | None = None,
        **compaction: Any,
    ) -> OptimizeReport:
        """Join small files, bring indices up to date, remove versions older than `older_than` (a `timedelta`
        or text such as `"7d"`) but the newest `retain_versions`, those that are tagged and the newest: those
        that `explain_cleanup(older_than)` tells beforehand.

        Each step stands alone: the report says what each did, and `report.failed` lists those that failed.
        Other options are those of `dataset.optimize.compact_files`; `progress` is called with rows done and
        rows to do. Raises `InvalidInput` for bad options, before anything is done.
        """
        self._check_writable("optimize")
        from tiltyard.dataset.upkeep import optimize

        return optimize(
            self._ds,
            older_than=older_than,
            retain_versions=retain_versions,
            progress=progress,
            compaction=compaction,
        )

    def maintain(self, *, interval: Any = 60.0, limits: Limits | None = None) -> Maintainer:
        """Keep the table within stated limits from a thread of its own, every `interval` seconds, until
        `stop()`; `status()` says what it did last. Use it as a block. By default: at most 100 small files and
        20 fragments that an index does not know, no version older than 7 days, 1 GiB touched in a pass; see
        `tiltyard.table.maintain.Limits`.
        """
        self._check_writable("maintain")
        from tiltyard.dataset.upkeep import maintainer

        return maintainer(self._ds, interval=interval, limits=limits).start()

    def _write(self, mode: str, data: Any, **options: Any) -> None:
        self._check_writable(mode)
        if isinstance(data, pa.Schema):
            data = pa.Table.from_batches([], data)
        self._ds.insert(data, mode=mode, **given(options))

    def _check_writable(self, what: str) -> None:
        if self._pinned:
            raise InvalidInput(
                f"{what} is refused: this is version {self._ds.version} of {self.uri}, opened with at() to "
                "be read. Write through the table itself, or make this version the newest again with "
                "restore()"
            )
        self._check_standing(what)

    def _check_standing(self, what: str) -> None:
        if self._lake is not None:
            self._lake._refuse_dropped(self._ds, what)

    # -- reading ---------------------------------------------------------------------------------

    def scan(
        self,
        columns: Columns = None,
        where: Any = None,
        limit: int | None = None,
        offset: int | None = None,
        *,
        order_by: Any = None,
        blob_bytes: bool = False,
    ) -> Scan:
        """Rows for which `where` (SQL, or an Arrow expression) is true; `columns` are names and dotted
        paths, or a map from names to SQL expressions. Of the rows found the first `offset` are left out, at
        most `limit` are given. They come in table order, or sorted by `order_by`: a name, `(name, "desc")`,
        or a list of them; nulls last. Blob columns give descriptors, with `blob_bytes` their bytes.
        """
        asked = {"columns": columns, "where": where, "limit": limit, "offset": offset, "order_by": order_by}
        if arguments.flag("blob_bytes", blob_bytes):
            asked["blob_handling"] = "all_binary"
        return Scan(self._ds, asked)

    def search(
        self,
        vector: Any,
        column: str | None = None,
        k: int = DEFAULT_K,
        *,
        where: Any = None,
        columns: Columns = None,
        metric: str | None = None,
        distance_range: tuple[float | None, float | None] | None = None,
    ) -> Scan:
        """The `k` rows whose vectors are nearest to `vector`, nearest first, with their `_distance`
        (float32), among those for which `where` is true.

        `column` may be left out where the table has one column of vectors. `metric`: `l2` (squared, the
        default), `cosine`, `dot`; `hamming` for vectors of uint8. `distance_range`: (from, to), the latter
        exclusive. For several vectors at once each has its k rows, and `query_index` says whose they are. The
        search is exact. Raises `InvalidInput` and `WrongType` for what does not fit.
        """
        near = {
            "column": vector_column(self.schema, self.uri) if column is None else column,
            "q": vector,
            "k": k,
        }
        near |= given({"metric": metric, "distance_range": distance_range})
        return Scan(self._ds, {"columns": columns, "where": where, "nearest": near, "prefilter": True})

    def head(self, rows: int = HEAD_ROWS, columns: Columns = None) -> Any:
        """The first rows, as a `pa.Table`."""
        return self.scan(columns, limit=arguments.whole("rows", rows)).to_arrow()

    def to_arrow(self) -> Any:
        """The whole table as a `pa.Table`."""
        return self._ds.to_table()

    def to_pandas(self) -> Any:
        """The whole table as a `pandas.DataFrame`."""
        return self._ds.to_pandas()

    def to_polars(self) -> Any:
        """The whole table as a `polars.DataFrame`."""
        return self.scan().to_polars()

    @plain
    def count(self, where: Any = None) -> int:
        """How many rows there are, or for how many the SQL is true."""
        return self._ds.count_rows(where)

    def indices(self) -> list[IndexDescription]:
        """The indices by name: type, columns, rows that they answer for and rows that they do not yet."""
        return self._ds.describe_indices()

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        return True  # also when it has no rows: `if table:` asks whether there is one

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._ds.__arrow_c_stream__(requested_schema)

    # -- time ------------------------------------------------------------------------------------

    @plain
    def at(self, version: int | None = None, tag: str | None = None, asof: Any = None) -> Table:
        """The table as it was at a version, a tag, or a time (`datetime` or ISO 8601 text; local where it
        has no zone). It stays there and refuses writes, except `restore`.
        """
        given = [each for each in (version, tag, asof) if each is not None]
        if len(given) != 1:
            raise InvalidInput("give one of version, tag and asof")
        arguments.maybe_text("tag", tag)
        arguments.maybe_whole("version", version)
        if asof is not None:
            ds = self._ds.checkout_asof(asof)
        else:
            ds = self._ds.checkout_version(given[0])
        return Table(ds, pinned=True, lake=self._lake)

    def history(self) -> list[dict[str, Any]]:
        """Number, time (local, without zone) and totals of every version, oldest first."""
        return self._ds.versions()

    @plain
    def tag(self, name: str, version: int | str | None = None, *, move: bool = False) -> None:
        """Name a version: by number or another tag, as `--at` on the command line, or the one shown. A name
        that is taken raises `TagAlreadyExists`; with `move` it then names this version instead.
        """
        number = self._ds.version if version is None else version
        tags = self._ds.tags
        if arguments.flag("move", move):
            with suppress(TagNotFound):  # it is made then
                tags.update(name, number)
                return
        tags.create(name, number)

    def tags(self) -> dict[str, int]:
        """All tags and the versions that they name, oldest version first."""
        return {name: tag["version"] for name, tag in self._ds.tags.list_ordered("asc")}

    @plain
    def untag(self, name: str) -> None:
        """Remove a tag; its version stays until a cleanup. Raises `TagNotFound`."""
        self._ds.tags.delete(name)

    def cleanup(
        self,
        older_than: timedelta | str | None = None,
        *,
        retain_versions: int | None = None,
        delete_unverified: bool = False,
        dry_run: bool = False,
    ) -> CleanupStats:
        """Remove versions older than `older_than` (two weeks, or a `timedelta`, or text such as `"7d"`) and
        the files that only they need; gives totals. Tagged versions stay. With `dry_run` nothing is removed,
        and the totals are of what would be; `explain_cleanup` says it of every file. See
        `LanceDataset.cleanup_old_versions`.
        """
        self._check_writable("cleanup")
        if arguments.flag("dry_run", dry_run):
            told = self.explain_cleanup(
                older_than, retain_versions=retain_versions, delete_unverified=delete_unverified
            )
            return told.stats
        return self._ds.cleanup_old_versions(
            older_than,
            retain_versions,
            delete_unverified=delete_unverified,
            error_if_tagged_old_versions=False,
        )

    def explain_cleanup(
        self,
        older_than: timedelta | str | None = None,
        *,
        retain_versions: int | None = None,
        delete_unverified: bool = False,
    ) -> CleanupExplanation:
        """What `cleanup` would remove just now, and of every version and file why it stays and until when."""
        self._check_writable("explain_cleanup")
        return self._ds.explain_cleanup_old_versions(
            older_than,
            retain_versions,
            delete_unverified=delete_unverified,
            error_if_tagged_old_versions=False,
            include_files=True,
        )

    def restore(
        self, *, expected_latest: int | None = None, discard_streamed: bool = False
    ) -> dict[str, Any]:
        """Make the version shown the newest one again, as a new version.

        Gives `{"version": new, "restored_version": shown, "superseded_versions": [...]}`: those between the
        two are left behind and stay readable. With `expected_latest` nothing happens unless that is the
        newest version: raises `RetryableConflict`, which names what others committed. A version from before
        the table was streamed into is refused while that would lose rows, unless `discard_streamed`.
        """
        self._check_standing("restore")
        ds = self._ds._at(self._ds._snapshot) if self._pinned else self._ds
        return ds.restore(expected_latest=expected_latest, discard_streamed=discard_streamed)


def open_table(
    uri: Any, *, storage_options: Mapping[str, Any] | None = None, freshness: Any = LATEST
) -> Table:
    """Open the table at a path or URI. Raises `TableNotFound`. `freshness`: see `LanceDataset`."""
    return Table(LanceDataset(uri, storage_options=storage_options, freshness=freshness))


def create_table(
    uri: Any,
    data: Any = None,
    *,
    schema: Any = None,
    exist_ok: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    max_rows_per_file: int | None = None,
    max_bytes_per_file: int | None = None,
    data_storage_version: str | None = None,
    enable_stable_row_ids: bool | None = None,
    commit_message: str | None = None,
    transaction_properties: Mapping[str, str] | None = None,
    progress: FragmentWriteProgress | Callable[[int], None] | None = None,
) -> Table:
    """Make a table of data, or an empty one of a `pa.Schema` (or of `schema=` alone). Of several creators
    exactly one succeeds.

    Data and options as for `Table.append`; `data_storage_version` (`2.2` or `2.1`) and
    `enable_stable_row_ids` hold for the table's life. Raises `TableAlreadyExists`; with `exist_ok` the
    table that is there is opened instead, whatever its schema, unless there are rows to write: those are not
    added, and not dropped without a word either.
    """
    exist_ok = arguments.flag("exist_ok", exist_ok)
    data, schema = columns_given(data, schema)
    options = given(
        {
            "schema": schema,
            "max_rows_per_file": max_rows_per_file,
            "max_bytes_per_file": max_bytes_per_file,
            "data_storage_version": data_storage_version,
            "enable_stable_row_ids": enable_stable_row_ids,
            "commit_message": commit_message,
            "transaction_properties": transaction_properties,
            "progress": progress,
        }
    )
    if isinstance(data, pa.Schema):
        data = pa.Table.from_batches([], data)
    try:
        made = write_dataset(data, uri, mode="create", storage_options=storage_options, **options)
    except TableAlreadyExists as error:
        if not exist_ok:
            raise TableAlreadyExists(
                f"a table is at {uri} already: open it with open_table, or give exist_ok=True to create_table"
            ) from error
        if not is_empty(data):
            raise TableAlreadyExists(
                f"a table is at {uri} already, and create_table adds no rows to it: with exist_ok=True give "
                "the schema alone (data.schema), then append() or upsert() the data"
            ) from error
        return open_table(uri, storage_options=storage_options)
    # The handle that the write made, not a look-up by name: an unnamed space in memory has none.
    made._freshness = seconds_of(LATEST)
    return Table(made)


def is_empty(data: Any) -> bool:
    """Whether the data certainly has no rows; of streams nobody knows."""
    if isinstance(data, Mapping):
        return all(hasattr(values, "__len__") and len(values) == 0 for values in data.values())
    rows = getattr(data, "num_rows", None)  # of Arrow data
    if rows is None and hasattr(data, "__len__"):
        rows = len(data)
    return rows == 0


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a write that were given."""
    return {name: value for name, value in options.items() if value is not None}
