"""Streaming in the official package's words: writers, scanners and planners of a table with a MemWAL."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tiltyard.dataset import arguments
from tiltyard.dataset.source import read_source
from tiltyard.errors import InvalidInput
from tiltyard.expr import bind_predicate
from tiltyard.expr.equals_number import equals_number
from tiltyard.format import mem_wal as wire
from tiltyard.format.mem_wal import MemWalDetails
from tiltyard.format.shard_manifest import SsTable
from tiltyard.memwal import layout
from tiltyard.memwal import writer as base
from tiltyard.memwal.incoming import one_batch
from tiltyard.memwal.joining import joined
from tiltyard.memwal.merge_functions import functions_of
from tiltyard.table.apply.mem_wal import entry_of

if TYPE_CHECKING:  # who writes loads nothing of reading
    from tiltyard.dataset.lance_dataset import LanceDataset
    from tiltyard.memwal.capture import Captured
    from tiltyard.memwal.scan import LsmScan
    from tiltyard.table.snapshot import Snapshot

OWN_NOTES = "tiltyard."
"""What our notes among the writers' defaults begin with; they are no settings, and are not shown as such."""

NO_KEY = (
    "Dataset has no primary key. Set 'lance-schema:unenforced-primary-key' metadata on the primary key "
    "field(s)."
)


def details_of(snapshot: Snapshot) -> dict[str, Any] | None:
    """What a version says of its MemWAL, as plain values; None without one."""
    entry = entry_of(snapshot.manifest)
    if entry is None:
        return None
    details = MemWalDetails.of(entry)
    functions = functions_of(details.writer_defaults)
    return {
        "num_shards": details.num_shards,
        "maintained_indexes": list(details.maintained_indexes),
        "maintain_all_indexes": details.maintain_all_indexes,
        "writer_config_defaults": {
            name: text for name, text in details.writer_defaults.items() if not name.startswith(OWN_NOTES)
        },
        "sharding_specs": [
            {
                "spec_id": spec.spec_id,
                "fields": [
                    {
                        "field_id": each.field_id,
                        "source_ids": list(each.source_ids),
                        "transform": each.transform,
                        "expression": each.expression,
                        "result_type": each.result_type,
                        "parameters": dict(each.parameters),
                    }
                    for each in spec.fields
                ],
            }
            for spec in details.sharding_specs
        ],
        **({} if functions is None else {"merge_functions": functions.named(snapshot.schema)}),
    }


def one_batch_of(data: Any, schema: Any, table: Any) -> Any:
    """Data of any kind that can be written, as one batch; values without a type take the table's."""
    if schema is None and isinstance(data, (pa.Table, pa.RecordBatch)) and data.schema.equals(table):
        return one_batch(data)
    found, stream = read_source(data, schema, table)
    batches = list(stream)
    if not batches:
        return pa.RecordBatch.from_pylist([], found)
    return batches[0] if len(batches) == 1 else joined(batches)


class ShardWriter(base.ShardWriter):
    """The writer of one shard; see `tiltyard.memwal.writer.ShardWriter`. Takes data of every kind that can
    be written to a table.
    """

    def put(self, data: Any, *, schema: Any = None, durable: bool | None = None) -> None:
        """Insert or replace rows. `schema`: the `pa.Schema` of data that has none."""
        self._check_open()
        super().put(one_batch_of(data, schema, self.owned.base.schema.arrow), durable=durable)

    def delete(self, keys: Any, *, schema: Any = None, durable: bool | None = None) -> None:
        """Delete rows by the key's columns of `keys`."""
        self._check_open()
        super().delete(one_batch_of(keys, schema, _key_schema(self.owned)), durable=durable)

    async def aput(self, data: Any, *, schema: Any = None, durable: bool | None = None) -> None:
        """`put`, awaited: needs no thread while it waits. Where it is cancelled the rows may be in or not."""
        self._check_open()
        await super().aput(one_batch_of(data, schema, self.owned.base.schema.arrow), durable=durable)

    async def adelete(self, keys: Any, *, schema: Any = None, durable: bool | None = None) -> None:
        """`delete`, awaited, as `aput` is."""
        self._check_open()
        await super().adelete(one_batch_of(keys, schema, _key_schema(self.owned)), durable=durable)

    def lsm_scanner(self, shard_snapshots: Sequence[ShardSnapshot] | None = None) -> LsmScanner:
        """A scanner of the table with this shard's memory and SSTables, and those listed of other shards."""
        from tiltyard.memwal.capture import Captured, capture, listed

        listed_here = None if shard_snapshots is None else _snapshots(shard_snapshots)

        def captured() -> Captured:
            store, session = self.owned.base.store, self.owned.base.session
            mine = capture(store, session, [self], only=(self.shard_id,))
            if not listed_here:
                return mine
            others = [each._facts() for each in listed_here if each.shard_id != self.shard_id]
            shards = (*mine.shards, *listed(mine.base, others, mine.schema).shards)
            return Captured(mine.base, mine.schema, shards)

        return LsmScanner(captured, self.owned.base.schema.arrow)


def _key_schema(owned: Any) -> Any:
    return pa.schema([owned.base.schema.arrow.field(name) for name in owned.schema.key])


def _snapshots(given: Any) -> list[ShardSnapshot]:
    return arguments.items("shard_snapshots", given, ShardSnapshot)


class ShardSnapshot:
    """The SSTables of one shard that a reader is to use."""

    def __init__(self, shard_id: str) -> None:
        self._shard_id = layout.parse_shard_id(shard_id)
        self._spec_id = 0
        self._generation = 0
        self._sstables: list[SsTable] = []

    @property
    def shard_id(self) -> str:
        """The shard, UUID text."""
        return self._shard_id

    def with_spec_id(self, spec_id: int) -> ShardSnapshot:
        """Note the shard's sharding spec."""
        self._spec_id = arguments.whole("spec_id", spec_id, 0, arguments.MAX_U32)
        return self

    def with_current_generation(self, generation: int) -> ShardSnapshot:
        """Note the shard's current generation."""
        self._generation = arguments.whole("generation", generation)
        return self

    def with_sstable(self, generation: int, path: str) -> ShardSnapshot:
        """Use an SSTable: its generation and the name of its directory in the shard's."""
        name = arguments.text("path", path)
        self._sstables.append(SsTable(arguments.whole("generation", generation, 1), name))
        return self

    def _facts(self) -> tuple[str, list[SsTable]]:
        return self._shard_id, self._sstables

    def __repr__(self) -> str:
        return (
            f"ShardSnapshot(shard_id={self._shard_id!r}, current_gen={self._generation}, "
            f"sstables={len(self._sstables)})"
        )


class LsmScanner:
    """A scan of a streamed table, put together step by step: rows of base, SSTables and memory as one.

    SSTables that the base holds already are left out, whoever lists them.
    """

    def __init__(self, captured: Callable[[], Captured], known: Any) -> None:
        """Use `from_snapshots`, or `ShardWriter.lsm_scanner`."""
        self._captured = captured
        self._known = known
        """The `pa.Schema` of the table as it was last seen."""
        self._columns: list[str] | None = None
        self._filter: str | None = None
        self._limit: int | None = None
        self._offset = 0
        self._row_address = False
        self._generation = False

    @staticmethod
    def from_snapshots(dataset: LanceDataset, shard_snapshots: Sequence[ShardSnapshot]) -> LsmScanner:
        """A scanner of the dataset's version with these SSTables. The table needs a primary key."""
        shards = _snapshots(shard_snapshots)
        snapshot = _snapshot_of(dataset)
        if not snapshot.schema.primary_key:
            raise InvalidInput(NO_KEY)
        from tiltyard.memwal.capture import listed

        facts = [each._facts() for each in shards]
        return LsmScanner(lambda: listed(snapshot, facts), snapshot.schema.arrow)

    def project(self, columns: Sequence[str]) -> LsmScanner:
        """Give these columns; those of the key come too."""
        self._columns = arguments.texts("columns", columns)
        return self

    def filter(self, expr: str) -> LsmScanner:
        """Give rows that pass an SQL predicate, asked after the newest row of each key was chosen."""
        self._filter = arguments.text("expr", expr)
        asked = equals_number(self._filter)
        try:  # what is wrong with a number is wrong with any: those that lookups ask for are not all read
            bind_predicate(self._filter if asked is None else f"{asked[0]} = 0", self._known)
        except InvalidInput:
            self._scan()  # the table may have other columns by now; what is wrong with it is told here
        return self

    def limit(self, n: int | None = None, offset: int | None = None) -> LsmScanner:
        """Give at most `n` rows, after the first `offset`."""
        self._limit = arguments.maybe_whole("n", n)
        self._offset = arguments.maybe_whole("offset", offset) or 0
        return self

    def with_row_address(self) -> LsmScanner:
        """Give `_rowaddr` too: of rows of the base, null beside it."""
        self._row_address = True
        return self

    def with_memtable_gen(self) -> LsmScanner:
        """Give `_memtable_gen` too: the generation of each row, 0 for the base."""
        self._generation = True
        return self

    def _scan(self) -> LsmScan:
        from tiltyard.memwal.scan import LsmScan

        captured = self._captured()
        columns = self._columns
        if columns is not None:
            columns = [*columns, *(name for name in captured.schema.key if name not in columns)]
        return LsmScan(
            captured,
            columns,
            self._filter,
            self._limit,
            self._offset,
            row_address=self._row_address,
            generation=self._generation,
        )

    def to_batches(self) -> list[Any]:
        """The rows as `pa.RecordBatch`es."""
        return list(self._scan().batches())

    def to_batch(self) -> Any:
        """The rows as one `pa.RecordBatch`."""
        scan = self._scan()
        batches = list(scan.batches())
        return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], scan.schema)

    def to_table(self) -> Any:
        """The rows as a `pa.Table`."""
        return self._scan().table()

    def count_rows(self) -> int:
        """How many rows there are."""
        return self._scan().count()


class ExecutionPlan:
    """A question that can be asked: `to_table`, `to_reader` or `to_batches` answer it, each time anew."""

    def __init__(
        self, schema: Any, dataset_schema: Any, steps: Sequence[str], run: Callable[[], Any]
    ) -> None:
        self._schema = schema
        self._dataset_schema = dataset_schema
        self._steps = steps
        self._run = run

    @property
    def schema(self) -> Any:
        """The `pa.Schema` of the answer."""
        return self._schema

    @property
    def dataset_schema(self) -> Any:
        """The `pa.Schema` of the table."""
        return self._dataset_schema

    def explain(self) -> str:
        """What is done, a step a line, the last step first."""
        return "\n".join("  " * depth + step for depth, step in enumerate(self._steps)) + "\n"

    def to_table(self) -> Any:
        """The answer as a `pa.Table`."""
        return self._run()

    def to_batches(self) -> list[Any]:
        """The answer as `pa.RecordBatch`es."""
        return list(self.to_table().to_batches())

    def to_reader(self) -> Any:
        """The answer as a `pa.RecordBatchReader`."""
        return self.to_table().to_reader()


class LsmPointLookupPlanner:
    """Lookups by key in a dataset's version with the SSTables of some shards."""

    def __init__(
        self,
        dataset: LanceDataset,
        shard_snapshots: Sequence[ShardSnapshot],
        pk_columns: Sequence[str] | None = None,
    ) -> None:
        self._captured = _keyed(dataset, shard_snapshots, pk_columns)

    def plan_lookup(self, pk_value: Any, columns: Sequence[str] | None = None) -> ExecutionPlan:
        """The plan of looking up one key: an array of one value, or of one struct where the key has several
        columns.

        Raises `InvalidInput` for another number of rows.
        """
        value = arguments.instance("pk_value", pk_value, pa.Array)
        if len(value) != 1:
            raise InvalidInput(f"pk_value must contain exactly one row, got {len(value)}")
        keys = value.flatten() if pa.types.is_struct(value.type) else [value]
        from tiltyard.memwal.lookup import Lookup

        chosen = None if columns is None else arguments.texts("columns", columns)
        lookup = Lookup(self._captured, chosen)
        levels = sum(len(shard.levels) for shard in self._captured.shards)
        steps = [
            f"PointLookup: key={', '.join(self._captured.schema.key)}",
            f"NewestFirst: levels={levels}, base",
            f"Take: columns={', '.join(lookup.schema.names)}",
        ]
        return ExecutionPlan(
            lookup.schema, self._captured.base.schema.arrow, steps, lambda: lookup.find(list(keys))
        )


class LsmVectorSearchPlanner:
    """Exact searches of nearest neighbours in a dataset's version with the SSTables of some shards."""

    def __init__(
        self,
        dataset: LanceDataset,
        shard_snapshots: Sequence[ShardSnapshot],
        vector_column: str,
        pk_columns: Sequence[str] | None = None,
        distance_type: str | None = None,
        filter: str | None = None,
    ) -> None:
        self._captured = _keyed(dataset, shard_snapshots, pk_columns)
        self._column = arguments.text("vector_column", vector_column)
        self._metric = arguments.maybe_text("distance_type", distance_type)
        self._filter = arguments.maybe_text("filter", filter)

    def plan_search(
        self,
        query: Any,
        k: int = 10,
        nprobes: int = 20,
        columns: Sequence[str] | None = None,
        refine_base_table: bool = False,
        overfetch_factor: float = 1.0,
    ) -> ExecutionPlan:
        """The plan of finding the `k` nearest rows; the answer has `_distance`.

        The search is exact: `nprobes`, `refine_base_table` and `overfetch_factor` have no effect.
        """
        from tiltyard.memwal.nearest import nearest_rows, result_schema
        from tiltyard.table.nearest.query import Nearest, bind

        arguments.whole("nprobes", nprobes, 1)
        if isinstance(overfetch_factor, bool) or not isinstance(overfetch_factor, (int, float)):
            raise arguments.wrong("overfetch_factor", "a number of at least 1", overfetch_factor)
        if not 1 <= overfetch_factor < math.inf:
            raise InvalidInput(f"overfetch_factor must be finite and at least 1, found {overfetch_factor}")
        arguments.flag("refine_base_table", refine_base_table)
        chosen = None if columns is None else arguments.texts("columns", columns)
        asked = Nearest(self._column, query, arguments.whole("k", k, 1), self._metric)
        bind(self._captured.base.schema, asked)  # what is wrong is told here
        levels = sum(len(shard.levels) for shard in self._captured.shards)
        steps = [f"Nearest: column={self._column}, k={k}, exact", f"NewestOfEachKey: levels={levels}, base"]
        return ExecutionPlan(
            result_schema(self._captured, chosen),
            self._captured.base.schema.arrow,
            steps,
            lambda: nearest_rows(self._captured, asked, chosen, self._filter),
        )


def _snapshot_of(dataset: Any) -> Snapshot:
    """The version that a dataset is at."""
    from tiltyard.dataset.lance_dataset import LanceDataset

    return arguments.instance("dataset", dataset, LanceDataset)._snapshot


def _keyed(dataset: LanceDataset, snapshots: Any, pk_columns: Sequence[str] | None) -> Captured:
    from tiltyard.memwal.capture import listed

    snapshot = _snapshot_of(dataset)
    key = [each.name for each in snapshot.schema.primary_key]
    if not key:
        raise InvalidInput(NO_KEY)
    if pk_columns is not None and arguments.texts("pk_columns", pk_columns) != key:
        raise InvalidInput(f"pk_columns must be the table's primary key {key}, found {list(pk_columns)}")
    return listed(snapshot, [each._facts() for each in _snapshots(snapshots)])


@dataclass(frozen=True)
class CompactedSsTable:
    """A mark: the base holds this shard's rows up to a generation."""

    shard_id: str
    generation: int


@dataclass
class ShardingField:
    """One value that rows are shared out by."""

    field_id: str
    source_ids: list[int]
    transform: str | None = None
    expression: str | None = None
    result_type: str = ""
    parameters: dict[str, str] = field(default_factory=dict)


@dataclass
class ShardingSpec:
    """How rows are shared out among shards."""

    spec_id: int
    fields: list[ShardingField]


def evaluate_sharding_spec(batch: Any, spec: ShardingSpec | Mapping[str, Any], schema: Any) -> Any:
    """The sharding values of a batch's rows, a column for each field of the spec.

    `schema`: the `LanceSchema` of the table, which says the column of each source id.
    """
    from tiltyard.dataset.lance_schema import LanceSchema
    from tiltyard.memwal.sharding import evaluate

    rows = arguments.instance("batch", batch, pa.RecordBatch)
    fields = arguments.instance("schema", schema, LanceSchema).fields()
    names = {each.id(): each.name() for each in fields}
    return evaluate(spec_given(spec), rows, names)


def spec_given(spec: ShardingSpec | Mapping[str, Any]) -> wire.ShardingSpec:
    """A spec as the format has it. Raises `InvalidInput` for what is none."""
    if isinstance(spec, ShardingSpec):
        given = [vars(each) for each in spec.fields]
        spec_id = spec.spec_id
    else:
        told = arguments.mapping("spec", spec)
        fields = told.get("fields", ())
        if isinstance(fields, (str, Mapping)) or not isinstance(fields, Iterable):
            raise arguments.wrong("fields of a sharding spec", "a list of sharding fields", fields)
        given = [
            vars(each) if isinstance(each, ShardingField) else arguments.mapping("a sharding field", each)
            for each in fields
        ]
        spec_id = told.get("spec_id", 0)
    return wire.ShardingSpec(
        arguments.whole("spec_id", spec_id, 0, arguments.MAX_U32), tuple(map(_field_given, given))
    )


def _field_given(each: Mapping[str, Any]) -> wire.ShardingField:
    parameters = arguments.mapping("parameters of a sharding field", each.get("parameters") or {})
    return wire.ShardingField(
        arguments.text("field_id", each.get("field_id")),
        tuple(arguments.wholes("source_ids", each.get("source_ids", []))),
        arguments.maybe_text("transform", each.get("transform")),
        arguments.maybe_text("expression", each.get("expression")),
        arguments.text("result_type", each.get("result_type", "")),
        {
            arguments.text("a parameter", n): arguments.text(f"parameter {n!r}", t)
            for n, t in parameters.items()
        },
    )
