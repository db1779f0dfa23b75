"""Scanners: a scan set up step by step, then read as a table, as batches, as a reader, or counted."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from tiltyard import runtime
from tiltyard.dataset import arguments
from tiltyard.dataset.arrow_class import ArrowLike
from tiltyard.dataset.handle import refuse
from tiltyard.dataset.json_text import has_json, shown_batches, shown_schema, shown_table
from tiltyard.dataset.nearest import nearest_from, nearest_of
from tiltyard.dataset.not_yet import Named
from tiltyard.dataset.packages import frame_of
from tiltyard.errors import InvalidInput, RowOutOfRange, UnsupportedFeature
from tiltyard.store.account import bytes_read_counter, iops_counter
from tiltyard.table.dictionaries import united
from tiltyard.table.plan import DEFAULT_BATCH_ROWS
from tiltyard.table.scan import Scan, ScanRequest

if TYPE_CHECKING:
    from tiltyard.dataset.fragment import LanceFragment
    from tiltyard.dataset.lance_dataset import LanceDataset
    from tiltyard.table.blob_scan import BlobScan
    from tiltyard.table.nearest.query import Nearest
    from tiltyard.table.nearest.scan import NearestScan
    from tiltyard.table.snapshot import Snapshot

_BYTES = "all_binary"
_BLOB_HANDLING = (_BYTES, "blobs_descriptions", "all_descriptions")
COUNT_BYTES = 8
"""Bytes of a number of rows."""
BATCH_ROWS_VARIABLE = "LANCE_DEFAULT_BATCH_SIZE"
ColumnsArgument = Sequence[str] | Mapping[str, str] | None


@dataclass
class ColumnOrdering:
    """One key of an ordering: a column, ascending or not, nulls first or last."""

    column_name: str
    ascending: bool = True
    nulls_first: bool = False


class LanceScanner(ArrowLike):
    """A scan of one version, ready to run; it can run several times, also from several threads."""

    arrow_base = "Scanner"

    def __init__(self, scan: Scan | NearestScan | BlobScan) -> None:
        self._scan = scan
        self._has_json = has_json(scan.snapshot.schema)

    def _shown(self, table: Any) -> Any:
        return shown_table(table) if self._has_json else table

    @property
    def projected_schema(self) -> Any:
        """The `pa.Schema` of the result."""
        return shown_schema(self._scan.schema) if self._has_json else self._scan.schema

    @property
    def dataset_schema(self) -> Any:
        """The `pa.Schema` of the whole dataset."""
        return shown_schema(self._scan.snapshot.schema.arrow)

    def to_table(self) -> Any:
        """The whole result as a `pa.Table`."""
        return self._shown(self._scan.table())

    def to_batches(self) -> Iterator[Any]:
        """The result as `pa.RecordBatch`es, in bounded memory."""
        batches = self._scan.batches(apart=True)
        return shown_batches(batches) if self._has_json else batches

    def to_reader(self) -> Any:
        """The result as a `pa.RecordBatchReader`, in bounded memory."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_pandas(self, **kwargs: Any) -> Any:
        """The whole result as a `pandas.DataFrame`; `kwargs` go to `pa.Table.to_pandas`."""
        return frame_of(self.to_table(), **kwargs)

    def count_rows(self) -> int:
        """How many rows the scan gives; reads only what the filter needs."""
        return self._scan.count()

    def head(self, num_rows: int) -> Any:
        """The first rows as a `pa.Table`."""
        limit = self._scan.request.limit
        num_rows = arguments.whole("num_rows", num_rows)
        first = num_rows if limit is None else min(limit, num_rows)
        return self._shown(self._scan.limited(first).table())

    def take(self, indices: Any) -> Any:
        """Rows of the result by number, in the order given, as a `pa.Table`; reads the result up to the last
        of them. Raises `RowOutOfRange`.
        """
        from tiltyard.table.take import row_numbers

        numbers = row_numbers(indices)
        last = int(numbers.max(initial=-1))
        found = united(self.head(last + 1))
        if last >= found.num_rows or int(numbers.min(initial=0)) < 0:
            wrong = last if last >= found.num_rows else int(numbers.min())
            raise RowOutOfRange(f"index {wrong} is out of range: the scan gives {found.num_rows} rows")
        return found.take(pa.array(numbers))

    def scan_batches(self) -> Iterator[Any]:
        """The result as pairs of a batch and the fragment that it comes from (`record_batch`, `fragment`)."""
        from pyarrow.dataset import TaggedRecordBatch

        from tiltyard.dataset.fragment import LanceFragment
        from tiltyard.dataset.lance_dataset import LanceDataset

        scan, request = self._scan, self._scan.request
        if request.order_by or request.limit is not None or request.offset or not isinstance(scan, Scan):
            raise InvalidInput(
                "scan_batches tells batches apart by fragment: leave order_by, limit, offset and nearest out"
            )
        handle = LanceDataset._made(scan.snapshot)
        chosen = request.fragments
        for id in scan.snapshot.fragments.ids.tolist() if chosen is None else chosen:
            fragment = LanceFragment(handle, id)
            for batch in shown_batches(Scan(scan.snapshot, replace(request, fragments=[id])).batches()):
                yield TaggedRecordBatch(batch, fragment)

    @staticmethod
    def from_dataset(dataset: Any, **options: Any) -> LanceScanner:
        """A scanner of a dataset of ours; options as for `LanceDataset.scanner`."""
        from tiltyard.dataset.lance_dataset import LanceDataset

        return arguments.instance("dataset", dataset, LanceDataset).scanner(**options)

    @staticmethod
    def from_fragment(fragment: Any, **options: Any) -> LanceScanner:
        """A scanner of a fragment of ours; options as for `LanceDataset.scanner`."""
        from tiltyard.dataset.fragment import LanceFragment

        return arguments.instance("fragment", fragment, LanceFragment).scanner(**options)

    @staticmethod
    def from_batches(source: Any, **options: Any) -> NoReturn:
        """Refused: batches are no table, and Arrow scans them itself."""
        raise UnsupportedFeature(
            "a scanner of batches is not of this package: use pyarrow.dataset.Scanner.from_batches"
        )

    def explain_plan(self, verbose: bool = False) -> str:
        """What the scan reads and in which order, as text: also which index is used, and why one is not."""
        verbose = arguments.flag("verbose", verbose)
        request, projection = self._scan.request, self._scan.projection
        lines = [f"Scan {self._scan.snapshot.store.uri} version {self._scan.snapshot.version}"]
        lines.append(f"  columns: {', '.join(self._scan.schema.names) or '(none)'}")
        lines.append(f"  reads: {', '.join(each.name for each in projection.fields) or '(nothing)'}")
        lines += [f"  {line}" for line in self._scan.plan()]
        if request.limit is not None or request.offset:
            lines.append(f"  limit: {request.limit}, offset: {request.offset}")
        if request.order_by:
            lines.append(f"  order by: {', '.join(map(_told, request.order_by))}")
        if verbose:
            fragments = "all" if request.fragments is None else len(request.fragments)
            lines.append(f"  fragments: {fragments} of {len(self._scan.snapshot.fragments)}")
            lines.append(f"  batch rows: {request.batch_rows}")
            if request.batch_bytes is not None:
                lines.append(f"  batch bytes: {request.batch_bytes}")
            lines.append(f"  LanceRead: projection=[{', '.join(self._scan.columns_read)}]")
        return "\n".join(lines)

    def analyze_plan(self, count_rows: bool = False) -> str:
        """Run the scan and give its plan with the time that it took, the rows and their bytes; `count_rows`
        counts instead, as `count_rows()` does, which gives one row.
        """
        counts = arguments.flag("count_rows", count_rows)
        looked_at = self._scan.rows_looked_at()
        began, requests, read = runtime.monotonic(), iops_counter(), bytes_read_counter()
        rows = nbytes = 0
        if counts:
            self._scan.count()
            rows, nbytes = 1, COUNT_BYTES
        for batch in () if counts else self._scan.batches():
            rows += batch.num_rows
            nbytes += batch.nbytes
        took = (runtime.monotonic() - began) * 1e3
        requests, read = iops_counter() - requests, bytes_read_counter() - read
        return (
            f"{self.explain_plan(True)}, output_rows={rows}, rows_scanned={looked_at}, bytes_read={read}, "
            f"iops={requests}, requests={requests}\n  took: {took:.3f} ms, rows: {rows}, bytes: {nbytes}"
        )

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __reduce__(self) -> Any:
        raise InvalidInput(
            "a scanner is not pickled: send the dataset, which is, and build the scanner where it is to run; "
            "or send the rows (to_table())"
        )


def _default_batch_rows() -> int:
    """Rows of a batch where the caller names none: the environment's word, else ours."""
    told = os.environ.get(BATCH_ROWS_VARIABLE)
    if told is None:
        return DEFAULT_BATCH_ROWS
    if not (told.isascii() and told.isdigit() and int(told) > 0):
        raise InvalidInput(f"{BATCH_ROWS_VARIABLE} must be a number of rows, found {told!r}")
    return int(told)


class ScannerBuilder(Named):
    """Collects what a scan should do; every method returns the builder."""

    def __init__(self, ds: LanceDataset | None, snapshot: Snapshot | None = None) -> None:
        self._snapshot = snapshot if snapshot is not None else ds._snapshot  # type: ignore[union-attr]
        self._columns: ColumnsArgument = None
        self._where: Any = None
        self._limit: int | None = None
        self._offset = 0
        self._batch_rows = _default_batch_rows()
        self._fragments: list[int] | None = None
        self._row_id = False
        self._row_address = False
        self._strict = False
        self._late: bool | list[str] | None = None
        self._batch_bytes: int | None = None
        self._include_deleted = False
        self._order: list[tuple[str, bool, bool]] = []
        self._use_index = True
        self._prefilter = False
        self._adds_distance = True
        self._nearest: Nearest | None = None
        self._gives_bytes = False
        self._allow_external = False
        if ds is not None and ds._default_scan_options:
            self.apply_defaults(ds._default_scan_options)

    def apply_defaults(self, default_opts: Mapping[str, Any]) -> ScannerBuilder:
        """Call the method of each name in the map with its value."""
        for name, value in arguments.mapping("default_opts", default_opts).items():
            if not self._took(name, value):
                raise InvalidInput(
                    f"default scan option {name!r} is unknown; there are {', '.join(sorted(_OPTIONS))}"
                )
        return self

    def _took(self, name: str, value: Any) -> bool:
        """Set an option by its name; False where there is none of this name."""
        if name == "nearest":
            self._nearest = nearest_from(value)
        elif name in _OPTIONS:
            getattr(self, name)(value)
        return name in _OPTIONS

    def columns(self, cols: ColumnsArgument = None) -> ScannerBuilder:
        """Names and dotted paths to read, or a map from result names to SQL expressions; None for all."""
        self._columns = arguments.columns("columns", cols)
        return self

    def filter(self, filter: Any) -> ScannerBuilder:
        """What a row must satisfy: SQL text or a `pyarrow.compute.Expression`."""
        if isinstance(filter, str):
            arguments.text("filter", filter)
        elif filter is not None and not hasattr(filter, "to_substrait"):
            raise arguments.wrong("filter", "SQL text or a pyarrow expression", filter)
        self._where = filter
        return self

    def limit(self, n: int | None = None) -> ScannerBuilder:
        """At most so many rows."""
        self._limit = None if n is None else arguments.whole("Limit", n)
        return self

    def offset(self, n: int | None = None) -> ScannerBuilder:
        """Leave out so many rows first (after the filter)."""
        self._offset = 0 if n is None else arguments.whole("Offset", n)
        return self

    def batch_size(self, batch_size: int | None) -> ScannerBuilder:
        """At most so many rows in a batch."""
        if batch_size is not None:
            self._batch_rows = arguments.whole("batch_size", batch_size)
        return self

    def strict_batch_size(self, strict_batch_size: bool = False) -> ScannerBuilder:
        """Whether every batch but the last has exactly `batch_size` rows."""
        self._strict = arguments.flag("strict_batch_size", strict_batch_size)
        return self

    def with_row_id(self, with_row_id: bool = True) -> ScannerBuilder:
        """Whether the result has `_rowid`."""
        self._row_id = arguments.flag("with_row_id", with_row_id)
        return self

    def with_row_address(self, with_row_address: bool = True) -> ScannerBuilder:
        """Whether the result has `_rowaddr`."""
        self._row_address = arguments.flag("with_row_address", with_row_address)
        return self

    def with_fragments(self, fragments: Iterable[LanceFragment] | None) -> ScannerBuilder:
        """Only these fragments, in this order."""
        if fragments is not None:
            from tiltyard.dataset.fragment import LanceFragment

            found = arguments.items("fragments", fragments, LanceFragment)
            self._fragments = [each.fragment_id for each in found]
        return self

    def include_deleted_rows(self, flag: bool) -> ScannerBuilder:
        """Whether deleted rows come too, with a null row id; needs `with_row_id`."""
        self._include_deleted = arguments.flag("include_deleted_rows", flag)
        return self

    def order_by(self, orderings: Iterable[ColumnOrdering | str] | None) -> ScannerBuilder:
        """Sort the result; a name alone means ascending, nulls last."""
        if orderings is None:
            self._order = []
            return self
        if isinstance(orderings, (str, Mapping)) or not isinstance(orderings, Iterable):
            raise arguments.wrong("order_by", "a list of column names or ColumnOrdering", orderings)
        self._order = [_ordering(f"order_by[{at}]", each) for at, each in enumerate(orderings)]
        return self

    def use_scalar_index(self, use_scalar_index: bool = True) -> ScannerBuilder:
        """Whether an index on a column of the filter may say which rows to read; the rows are the same."""
        self._use_index = arguments.flag("use_scalar_index", use_scalar_index)
        return self

    def nearest(
        self,
        column: str,
        q: Any,
        k: int | None = None,
        metric: str | None = None,
        nprobes: int | None = None,
        minimum_nprobes: int | None = None,
        maximum_nprobes: int | None = None,
        refine_factor: int | None = None,
        use_index: bool = True,
        ef: int | None = None,
        query_parallelism: int | None = None,
        approx_mode: str = "normal",
        distance_range: tuple[float | None, float | None] | None = None,
        search_effort: float | None = None,
    ) -> ScannerBuilder:
        """Give the `k` rows (10 unless said) whose vectors in `column` are nearest to `q`, nearest first,
        with their `_distance` (float32). Rows that are equally near come in table order.

        `q`: one vector, or several as a list or matrix; then each has its k rows, and `query_index` comes
        first. `metric`: `l2` (squared; the default), `cosine`, `dot` (1 - product) for vectors of floats,
        `hamming` (bits) for those of uint8. `distance_range`: (from, to), the latter exclusive. The search is
        exact: no vector index is used, and what tunes one has no effect. Rows whose vector is null or holds
        NaN, and zero vectors under cosine, are never given.
        """
        self._nearest = nearest_of(
            column,
            q,
            k,
            metric,
            use_index,
            query_parallelism,
            approx_mode,
            distance_range,
            search_effort,
            nprobes=nprobes,
            minimum_nprobes=minimum_nprobes,
            maximum_nprobes=maximum_nprobes,
            refine_factor=refine_factor,
            ef=ef,
        )
        return self

    def prefilter(self, prefilter: bool) -> ScannerBuilder:
        """Whether a search looks only at rows that pass the filter. Otherwise the filter picks among the k
        nearest, may leave fewer, and may name `_distance`.
        """
        self._prefilter = arguments.flag("prefilter", prefilter)
        return self

    def disable_scoring_autoprojection(self, flag: bool = True) -> ScannerBuilder:
        """Whether a search whose columns are named gives those alone, without `_distance` unless it is among
        them.
        """
        self._adds_distance = not arguments.flag("disable_scoring_autoprojection", flag)
        return self

    # -- hints that change no result; rows always come in table order ----------------------------

    def batch_readahead(self, nbatches: int | None = None) -> ScannerBuilder:
        """A hint; reading ahead is bounded by bytes here."""
        arguments.maybe_whole("batch_readahead", nbatches, 1)
        return self

    def fragment_readahead(self, nfragments: int | None = None) -> ScannerBuilder:
        """A hint; see `batch_readahead`."""
        arguments.maybe_whole("fragment_readahead", nfragments)
        return self

    def scan_in_order(self, scan_in_order: bool = True) -> ScannerBuilder:
        """A hint; rows always come in order."""
        arguments.maybe_flag("scan_in_order", scan_in_order)
        return self

    def io_buffer_size(self, io_buffer_size: int | None) -> ScannerBuilder:
        """A hint; see `batch_readahead`."""
        arguments.maybe_whole("io_buffer_size", io_buffer_size)
        return self

    def late_materialization(self, late_materialization: Any) -> ScannerBuilder:
        """Which columns beside the filter's are read after it, for the rows that pass alone: all (True), none
        (False), or those named; None, the default, for what is cheaper by how many rows of a range pass. The
        rows are the same.
        """
        if late_materialization is None or isinstance(late_materialization, bool):
            self._late = late_materialization
        else:
            self._late = arguments.texts("late_materialization", late_materialization)
        return self

    def use_stats(self, use_stats: bool = True) -> ScannerBuilder:
        """A hint."""
        arguments.maybe_flag("use_stats", use_stats)
        return self

    def batch_size_bytes(self, batch_size_bytes: int | None) -> ScannerBuilder:
        """About so many bytes at most in a batch, beside `batch_size`; a row is never cut up."""
        self._batch_bytes = arguments.maybe_whole("batch_size_bytes", batch_size_bytes, 1)
        return self

    def blob_handling(self, blob_handling: str | None) -> ScannerBuilder:
        """What blob columns give: descriptors, which say where the bytes are (`blobs_descriptions`, which is
        the default, and `all_descriptions`), or the bytes themselves (`all_binary`).
        """
        if blob_handling is not None:
            arguments.one_of("blob_handling", blob_handling, *_BLOB_HANDLING)
            self._gives_bytes = blob_handling == _BYTES
        return self

    def allow_external_blobs(self, allow: bool = True) -> ScannerBuilder:
        """Whether `all_binary` opens blobs at URIs outside the table, too."""
        self._allow_external = arguments.flag("allow_external_blobs", allow)
        return self

    def _blob_scanner(self, request: ScanRequest) -> LanceScanner:
        from tiltyard.table.blob_scan import BlobScan

        if self._nearest is not None:
            raise InvalidInput(
                "blob_handling='all_binary' cannot be combined with a search: take the blobs of its rows"
            )
        return LanceScanner(BlobScan(self._snapshot, request, allow_external=self._allow_external))

    def to_scanner(self) -> LanceScanner:
        """The scanner. Raises for unknown columns, bad SQL and contradictions; reads nothing."""
        request = ScanRequest(
            columns=self._columns,
            where=self._where,
            limit=self._limit,
            offset=self._offset,
            batch_rows=self._batch_rows,
            fragments=self._fragments,
            row_id=self._row_id,
            row_address=self._row_address,
            full_batches=self._strict,
            include_deleted=self._include_deleted,
            order_by=tuple(self._order),
            late=self._late,
            batch_bytes=self._batch_bytes,
            use_index=self._use_index,
        )
        if self._gives_bytes:
            return self._blob_scanner(request)
        if self._nearest is None:
            return LanceScanner(Scan(self._snapshot, request))
        from tiltyard.table.nearest.scan import NearestScan

        return LanceScanner(
            NearestScan(
                self._snapshot,
                request,
                self._nearest,
                prefilter=self._prefilter,
                adds_distance=self._adds_distance or self._columns is None,
            )
        )


_HINTS = (
    "batch_readahead",
    "fragment_readahead",
    "scan_in_order",
    "io_buffer_size",
    "use_stats",
)
_HINTS_OF_ARROW = ("use_threads", "cache_metadata", "memory_pool", "fragment_scan_options")
"""What `pyarrow.dataset` has beside; engines that speak its words give them."""
_REFUSED = (
    "full_text_query",
    "index_segments",
    "fast_search",
    "scan_stats_callback",
    "row_addr_allowlist",
    "row_addr_blocklist",
)


def build(builder: ScannerBuilder, options: Mapping[str, Any]) -> LanceScanner:
    """The scanner that keyword arguments describe; those that are None keep the builder's setting."""
    for name, value in options.items():
        if value is None:
            continue
        if name in _HINTS_OF_ARROW:
            continue
        if name in _REFUSED:
            refuse(**{name: value})
        elif name == "fragments":
            builder.with_fragments(value)
        elif not builder._took(name, value):
            raise InvalidInput(f"a scan has no option {name!r}")
    return builder.to_scanner()


_OPTIONS = frozenset(
    {
        "columns",
        "filter",
        "limit",
        "offset",
        "batch_size",
        "strict_batch_size",
        "with_row_id",
        "with_row_address",
        "include_deleted_rows",
        "order_by",
        "late_materialization",
        "batch_size_bytes",
        "prefilter",
        "use_scalar_index",
        "disable_scoring_autoprojection",
        "nearest",
        "blob_handling",
        "allow_external_blobs",
        *_HINTS,
    }
)


def _ordering(name: str, given: Any) -> tuple[str, bool, bool]:
    if isinstance(given, str):
        given = ColumnOrdering(given)
    if not isinstance(given, ColumnOrdering):
        raise arguments.wrong(name, "a column name or a ColumnOrdering", given)
    return (
        arguments.text(name, given.column_name),
        arguments.flag(f"{name}.ascending", given.ascending),
        arguments.flag(f"{name}.nulls_first", given.nulls_first),
    )


def _told(ordering: tuple[str, bool, bool]) -> str:
    name, ascending, nulls_first = ordering
    return f"{name} {'asc' if ascending else 'desc'} nulls {'first' if nulls_first else 'last'}"
