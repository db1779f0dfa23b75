"""The reading face of a dataset: its schema and versions, scans, takes, counts, samples."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from tiltyard import runtime
from tiltyard.dataset import arguments
from tiltyard.dataset.bitmap import Bitmap
from tiltyard.dataset.fragment import LanceFragment
from tiltyard.dataset.handle import Handle, moment_of
from tiltyard.dataset.json_text import has_json, shown_schema, shown_table
from tiltyard.dataset.lance_schema import LanceSchema
from tiltyard.dataset.packages import frame_of
from tiltyard.dataset.scanner import LanceScanner, ScannerBuilder, build
from tiltyard.dataset.stats import LanceStats
from tiltyard.dataset.tags import Tags
from tiltyard.dataset.transaction import Transaction
from tiltyard.errors import CorruptFile, InvalidInput, ObjectNotFound, VersionNotFound
from tiltyard.format.flags import uses_stable_row_ids
from tiltyard.table.row_counts import live_rows
from tiltyard.table.snapshot import Snapshot, open_snapshot, read_snapshot
from tiltyard.table.take import Taker
from tiltyard.table.versions import VersionLocation, list_versions

if TYPE_CHECKING:
    from typing import Self

    from tiltyard.dataset.file_session import LanceFileSession
    from tiltyard.session import Session
    from tiltyard.store import Store

NS_PER_S = 1_000_000_000
TAKER_BYTES = 4096
"""What a kept taker is accounted as in the session's cache, beside its fragments (bytes)."""
RECENT_TRANSACTIONS = 10
MAX_ROWS = (1 << 63) - 1
MAX_VERSION = arguments.MAX_U64
ColumnsArgument = Any


class ReadFace(Handle):
    """Everything that looks at a version and changes nothing."""

    # -- facts -----------------------------------------------------------------------------------

    @property
    def schema(self) -> Any:
        """The `pa.Schema`; with default scan options that of what a scan gives."""
        if self._default_scan_options:
            return self.scanner().projected_schema
        return shown_schema(self._snapshot.schema.arrow)

    @property
    def lance_schema(self) -> LanceSchema:
        """The schema with field ids."""
        return LanceSchema(self._snapshot.schema)

    @property
    def schema_metadata(self) -> dict[str, str]:
        """The schema's metadata."""
        return {
            key: value.decode("utf-8", "replace") for key, value in self._snapshot.schema.metadata.items()
        }

    @property
    def metadata(self) -> dict[str, str]:
        """The table's own metadata."""
        return dict(self._snapshot.manifest.table_metadata)

    def config(self) -> dict[str, str]:
        """The table's configuration."""
        return dict(self._snapshot.manifest.config)

    @property
    def data_storage_version(self) -> str:
        """The version of the data files that an append writes."""
        data_format = self._snapshot.manifest.data_format
        return "2.0" if data_format is None else data_format.version

    @property
    def has_stable_row_ids(self) -> bool:
        """Whether rows keep their `_rowid` when they move."""
        return uses_stable_row_ids(self._snapshot.manifest)

    @property
    def max_field_id(self) -> int:
        """The greatest field id of the schema."""
        return self._snapshot.schema.max_id

    def session(self) -> Session:
        """What caches for this handle; share it by `dataset(uri, session=...)`."""
        return self._session

    @property
    def _ds(self) -> Self:
        """This handle: scripts look here for what the official package keeps in its native half."""
        return self

    @property
    def tags(self) -> Tags:
        """The table's tags."""
        return Tags(self)

    @property
    def stats(self) -> LanceStats:
        """Statistics that the manifest and the files' tails give."""
        return LanceStats(self._snapshot)

    # -- versions --------------------------------------------------------------------------------

    @property
    def latest_version(self) -> int:
        """The newest version in storage, whatever this handle shows."""
        return open_snapshot(self._store, self._session).version

    def get_version(self) -> dict[str, Any]:
        """Number, time and totals of the version shown."""
        return _version_dict(self._snapshot)

    def versions(self) -> list[dict[str, Any]]:
        """Number, time (local, without zone) and totals of every version there is, oldest first.

        One whose manifest is damaged is listed with the time of that file, and what is wrong with it as
        `damaged`.
        """
        found = []
        for location in list_versions(self._store):
            try:
                found.append(_version_dict(read_snapshot(self._store, self._session, location)))
            except ObjectNotFound:
                continue  # removed while we looked
            except CorruptFile as error:
                found.append(_damaged_dict(self._store, location, error))
        return found

    def version_refs(self) -> list[dict[str, int]]:
        """The numbers of all versions, oldest first, without reading them."""
        return [{"version": location.version} for location in list_versions(self._store)]

    def checkout_version(self, version: Any) -> Self:
        """A handle that shows another version: a number, a tag, or (branch, number)."""
        snapshot = open_reference(self._root, self._held, version)
        return self._at(snapshot)

    def checkout_asof(self, asof: Any) -> Self:
        """A handle that shows the newest version committed at or before a time: a `datetime`, a date or ISO
        8601 text; local where it has no zone. Raises `VersionNotFound`.
        """
        return self._at(open_snapshot(self._store, self._session, asof=moment_of(asof)))

    def checkout_latest(self) -> None:
        """Move this handle to the newest version."""
        self._look()

    def _at(self, snapshot: Snapshot) -> Self:
        """A handle like this one, fixed at a version."""
        return type(self)._made(
            snapshot,
            root=self._root,
            storage_options=self._storage_options,
            default_scan_options=self._default_scan_options,
            read_params=self._read_params,
        )

    @classmethod
    def _made(cls, snapshot: Snapshot, **state: Any) -> Self:
        made = cls.__new__(cls)
        Handle.__init__(made, snapshot, **state)
        return made

    def read_transaction(self, version: int) -> Transaction | None:
        """What produced a version; None when it was not recorded. Raises `VersionNotFound`."""
        number = version_number(version)
        fact = open_snapshot(self._store, self._session, version=number).transaction()
        return None if fact is None else Transaction.from_fact(fact)

    def get_transactions(self, recent_transactions: int = RECENT_TRANSACTIONS) -> list[Transaction | None]:
        """What produced this version and those before it, newest first."""
        recent = arguments.whole("recent_transactions", recent_transactions)
        found = []
        last = self._snapshot.version
        for version in range(last, max(0, last - recent), -1):
            try:
                found.append(self.read_transaction(version))
            except VersionNotFound:
                break  # cleaned up, and all before it
        return found

    # -- scans -----------------------------------------------------------------------------------

    def scanner(self, columns: ColumnsArgument = None, filter: Any = None, **options: Any) -> LanceScanner:
        """A scan, set up and not yet run.

        `columns`: names and dotted paths, or a map from names to SQL expressions. `filter`: SQL text or
        an Arrow expression. Options: `limit`, `offset`, `batch_size` (rows), `batch_size_bytes`,
        `strict_batch_size`, `late_materialization`, `fragments`, `with_row_id`, `with_row_address`,
        `include_deleted_rows`, `order_by`, and hints without effect on the result.
        """
        return build(ScannerBuilder(self, self._snapshot), {"columns": columns, "filter": filter, **options})  # type: ignore[arg-type]

    def to_table(self, columns: ColumnsArgument = None, filter: Any = None, **options: Any) -> Any:
        """The rows as a `pa.Table`; see `scanner`."""
        return self.scanner(columns, filter, **options).to_table()

    def to_batches(
        self, columns: ColumnsArgument = None, filter: Any = None, **options: Any
    ) -> Iterator[Any]:
        """The rows as `pa.RecordBatch`es in bounded memory; see `scanner`."""
        return self.scanner(columns, filter, **options).to_batches()

    def to_pandas(self, columns: ColumnsArgument = None, filter: Any = None, **options: Any) -> Any:
        """The rows as a `pandas.DataFrame`; see `scanner`."""
        return frame_of(self.to_table(columns, filter, **options))

    def head(self, num_rows: int, **options: Any) -> Any:
        """The first rows as a `pa.Table`."""
        return self.scanner(limit=arguments.whole("num_rows", num_rows), **options).to_table()

    def count_rows(self, filter: Any = None, **options: Any) -> int:
        """How many rows there are, or pass the filter."""
        if filter is None and not options:
            return int(live_rows(self._snapshot).sum())
        return self.scanner([], filter, **options).count_rows()

    def __len__(self) -> int:
        return self.count_rows()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.scanner().__arrow_c_stream__(requested_schema)

    # -- takes -----------------------------------------------------------------------------------

    def take(self, indices: Any, columns: ColumnsArgument = None) -> Any:
        """Rows by number in scan order, as a `pa.Table`: any order, duplicates kept.

        `indices`: a list, an array, a range, or a slice of the rows. A dotted path in `columns` gives the
        pruned struct. Raises `RowOutOfRange`.
        """
        if isinstance(indices, slice):
            indices = range(*_slice(indices).indices(self.count_rows()))
        taker, may_hold_json = self._taker(columns)
        found = taker.rows_at(indices)
        return shown_table(found) if may_hold_json else found

    def _take_rows(
        self, row_ids: Any, columns: ColumnsArgument = None, *, ignore_deletions: bool = False, **options: Any
    ) -> Any:
        """Rows by `_rowid`, in the order given; ids of deleted rows are left out."""
        if arguments.flag("ignore_deletions", ignore_deletions):
            raise InvalidInput("ignore_deletions is not supported: deleted rows have no row id")
        row_id = arguments.flag("with_row_id", options.pop("with_row_id", False))
        if options:
            raise InvalidInput(f"unknown options {sorted(options)}")
        if row_id:
            wanted = arguments.columns("columns", columns)
            return shown_table(Taker(self._snapshot, wanted, row_id=True).rows_with_ids(row_ids))
        return shown_table(self._taker(columns)[0].rows_with_ids(row_ids))

    def _taker(self, columns: ColumnsArgument) -> tuple[Taker, bool]:
        """What takes such rows, and whether the table has JSON that must be shown as text."""
        snapshot = self._snapshot
        wanted = arguments.columns("columns", columns)
        asked: Any = (
            wanted if wanted is None else tuple(wanted.items() if isinstance(wanted, dict) else wanted)
        )
        key = (snapshot.store.identity, "taker", asked)  # one for all versions: none keeps an old manifest
        found: tuple[Taker, bool] | None = snapshot.session.cache.get(key)
        if found is None or found[0].snapshot.manifest is not snapshot.manifest:
            found = Taker(snapshot, wanted), has_json(snapshot.schema)
            snapshot.session.cache.put(key, found, TAKER_BYTES + 64 * len(snapshot.fragments))
        return found

    def sample(
        self, num_rows: int, columns: ColumnsArgument = None, randomize_order: bool = True, **options: Any
    ) -> Any:
        """So many rows chosen at random, each at most once, as a `pa.Table`; in table order unless
        randomized.
        """
        total = self.count_rows()
        num_rows = arguments.whole("num_rows", num_rows)
        randomize_order = arguments.flag("randomize_order", randomize_order)
        if options:
            raise InvalidInput(f"sample has no option {next(iter(options))!r}")
        if num_rows > total:
            raise InvalidInput(f"cannot sample {num_rows} of {total} rows")
        from tiltyard.dataset.loader_plan import chance

        chosen = chance(runtime.random().getrandbits(64)).choice(total, num_rows, replace=False)
        return self.take(chosen if randomize_order else np.sort(chosen), columns)

    def slice(self, start: int, end: int, columns: ColumnsArgument = None) -> Any:
        """Rows `start` to `end` (exclusive) as a `pa.Table`; fewer at the end of the table."""
        start, end = arguments.whole("start", start), arguments.whole("end", end)
        if end < start:
            raise InvalidInput(f"a slice needs 0 <= start <= end, found {start} and {end}")
        return self.scanner(columns, offset=start, limit=end - start).to_table()

    def new_file_session(self) -> LanceFileSession:
        """What reads and writes files at the table's place; see `lance.file.LanceFileSession`."""
        from tiltyard.dataset.file_session import LanceFileSession

        return LanceFileSession.of(self._store)

    # -- fragments -------------------------------------------------------------------------------

    def get_fragments(self, filter: Any = None) -> list[LanceFragment]:
        """The fragments of the version, by id."""
        if filter is not None:
            raise InvalidInput("get_fragments takes no filter; filter the scan instead")
        handle: Any = self._pinned(self._snapshot)
        return [LanceFragment(handle, each.id, fragment=each) for each in self._held.fragments]

    def fragment_ids(self) -> Bitmap:
        """The ids of the version's fragments, without an object for each."""
        return Bitmap(self._held.fragments.ids.tolist())

    def get_fragment(self, fragment_id: int) -> LanceFragment | None:
        """The fragment of this id, None when the version has none."""
        snapshot = self._snapshot
        fragment_id = arguments.whole("fragment_id", fragment_id)
        fragment = snapshot.fragment(fragment_id)
        if fragment is None:
            return None
        handle: Any = self._pinned(snapshot)
        return LanceFragment(handle, fragment_id, fragment=fragment)

    def _pinned(self, snapshot: Snapshot) -> Self:
        """This handle where it never moves; else a copy that does not."""
        return self if self._freshness is None and self._held is snapshot else self._at(snapshot)


def open_reference(root: Any, current: Snapshot, version: Any) -> Snapshot:
    """The snapshot that a version argument names: a number on the same branch, a tag, or (branch, number)."""
    store, session = current.store, current.session
    if isinstance(version, tuple):
        if len(version) != 2:
            raise InvalidInput(f"version as a tuple must be (branch, number), found {len(version)} values")
        branch = version[0] if version[0] is None else arguments.text("the branch of version", version[0])
        number = None if version[1] is None else version_number(version[1])
        if branch not in (None, "main"):
            from tiltyard.format import names

            store = root.at(names.branch_path(branch))
        else:
            store = root
        return open_snapshot(store, session, version=number)
    if isinstance(version, str):
        return open_snapshot(root, session, tag=arguments.text("version", version))
    return open_snapshot(store, session, version=version_number(version))


def version_number(version: Any) -> int:
    """A version's number; 0 and those that are too great are no version, which opening them says."""
    return arguments.whole("version", version, -MAX_VERSION, MAX_VERSION)


def _slice(given: slice) -> slice:
    """A slice of whole numbers."""
    parts = []
    for name in ("start", "stop", "step"):
        value = getattr(given, name)
        number = arguments.maybe_whole(f"the slice's {name}", value, -MAX_ROWS, MAX_ROWS)
        if name == "step" and number == 0:
            raise InvalidInput("the slice's step must not be zero")
        parts.append(number)
    return slice(*parts)


def _damaged_dict(store: Store, location: VersionLocation, error: CorruptFile) -> dict[str, Any]:
    moment = datetime.fromtimestamp(store.stat(location.path).mtime_ns / NS_PER_S)
    return {"version": location.version, "timestamp": moment, "metadata": {"damaged": str(error)}}


def _version_dict(snapshot: Snapshot) -> dict[str, Any]:
    fragments = snapshot.fragments
    files = [file for each in fragments for file in each.files]
    totals = {
        "total_data_file_rows": int(fragments.physical_rows.sum()),
        "total_data_files": len(files),
        "total_deletion_file_rows": int(fragments.deleted_rows.sum()),
        "total_deletion_files": int((fragments.deleted_rows > 0).sum()),
        "total_files_size": sum(file.size for file in files),
        "total_fragments": len(fragments),
        "total_rows": fragments.num_rows,
    }
    seconds, ns = divmod(snapshot.manifest.timestamp_ns, NS_PER_S)
    return {
        "version": snapshot.version,
        "timestamp": datetime.fromtimestamp(seconds).replace(microsecond=ns // 1000),
        "metadata": {key: str(value) for key, value in totals.items()},
    }
