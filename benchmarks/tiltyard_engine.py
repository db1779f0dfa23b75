"""Our adapter for the shared bench: `BENCH_OURS=tiltyard_engine python -m bench --engines pylance,ours`.

`TILTYARD_DURABLE=0` in the environment turns fsync off, which is how the official package always runs;
without it every commit is durable. Both ways belong into a report.
"""

from __future__ import annotations

import glob
import io
import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from bench.engines import Engine


class BenchEngine(Engine):
    name = "ours"  # what the bench's child processes load us by
    import_statement = "import tiltyard"
    distribution = "tiltyard"

    def __init__(self) -> None:
        import tiltyard.lance as lance

        self.lance = lance

    def write_dataset(
        self, table: pa.Table, path: str, mode: str = "create", max_rows_per_file: int | None = None
    ) -> Any:
        options = {"max_rows_per_file": max_rows_per_file} if max_rows_per_file else {}
        return self.lance.write_dataset(table, path, mode=mode, **options)

    def open(self, path: str, version: int | None = None) -> Any:
        return self.lance.dataset(path, version=version)

    def scan(
        self, ds: Any, columns: list[str] | None = None, filter: str | None = None, use_index: bool = True
    ) -> pa.Table:
        if use_index:
            return ds.to_table(columns=columns, filter=filter)
        return ds.to_table(columns=columns, filter=filter, use_scalar_index=False)

    def batches(self, ds: Any, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        return ds.to_batches(columns=columns)

    def count_rows(self, ds: Any, filter: str | None = None) -> int:
        return ds.count_rows(filter)

    def take(self, ds: Any, indices: list[int], columns: list[str] | None = None) -> pa.Table:
        return ds.take(indices, columns=columns)

    def append(self, path: str, table: pa.Table) -> Any:
        return self.lance.write_dataset(table, path, mode="append")

    def commit_noop(self, ds: Any, i: int) -> None:
        ds.update_config({"bench.counter": str(i)})

    def delete(self, ds: Any, predicate: str) -> Any:
        return ds.delete(predicate)

    def update(self, ds: Any, updates: dict[str, str], where: str) -> Any:
        return ds.update(updates, where=where)

    def merge_insert(self, ds: Any, table: pa.Table, on: str) -> Any:
        return ds.merge_insert(on).when_matched_update_all().when_not_matched_insert_all().execute(table)

    def compact(self, ds: Any) -> Any:
        return ds.optimize.compact_files()

    def create_btree(self, ds: Any, column: str) -> None:
        ds.create_scalar_index(column, "BTREE")

    def search_vector(
        self,
        ds: Any,
        column: str,
        q: Any,
        k: int,
        use_index: bool,
        nprobes: int = 20,
        refine: int | None = None,
    ) -> pa.Table:
        if use_index:
            raise NotImplementedError("searches by a vector index are a later release's")
        near = {"column": column, "q": q, "k": k, "use_index": False}
        return ds.to_table(columns=["id", "_distance"], nearest=near)

    # -- catalog ---------------------------------------------------------------------------------

    catalog_statement = "import tiltyard.catalog"

    def open_catalog(self, root: str) -> Any:
        from tiltyard.lance.namespace import DirectoryNamespace

        return DirectoryNamespace(root=root)

    def create_namespace(self, cat: Any, ident: list[str]) -> None:
        import lance_namespace as n

        cat.create_namespace(n.CreateNamespaceRequest(id=ident))

    def create_table(self, cat: Any, ident: list[str], table: pa.Table) -> None:
        import lance_namespace as n

        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        cat.create_table(n.CreateTableRequest(id=ident), sink.getvalue())

    def declare_table(self, cat: Any, ident: list[str]) -> None:
        import lance_namespace as n

        cat.declare_table(n.DeclareTableRequest(id=ident))

    def describe_table(self, cat: Any, ident: list[str]) -> Any:
        import lance_namespace as n

        return cat.describe_table(n.DescribeTableRequest(id=ident)).location

    def list_tables(self, cat: Any, ident: list[str]) -> Any:
        import lance_namespace as n

        return cat.list_tables(n.ListTablesRequest(id=ident)).tables

    def drop_table(self, cat: Any, ident: list[str]) -> None:
        import lance_namespace as n

        cat.drop_table(n.DropTableRequest(id=ident))

    # -- MemWAL ----------------------------------------------------------------------------------

    def memwal_init(self, path: str) -> None:
        self.lance.dataset(path).initialize_mem_wal(unsharded=True)

    def memwal_open(self, path: str, shard: str, durable: bool = True, flush_ms: int | None = None) -> Any:
        options: dict[str, Any] = {} if durable else {"durable_write": False}
        if flush_ms is not None:
            options["max_wal_flush_interval_ms"] = flush_ms
        return self.lance.dataset(path).mem_wal_writer(shard, **options)

    def memwal_put(self, w: Any, table: pa.Table) -> None:
        w.put(table)

    def memwal_scan(self, w: Any) -> pa.Table:
        return w.lsm_scanner().to_table()

    def memwal_lookup(self, w: Any, key: int) -> pa.Table:
        return w.lsm_scanner().filter(f"id = {key}").to_table()

    def memwal_planner(self, path: str, shard: str) -> Any:
        from tiltyard.lance.mem_wal import LsmPointLookupPlanner, ShardSnapshot

        snapshot = ShardSnapshot(shard)
        for found in sorted(glob.glob(os.path.join(path, "_mem_wal", shard, "*_gen_*"))):
            snapshot = snapshot.with_sstable(int(found.rpartition("_")[2]), os.path.basename(found))
        return LsmPointLookupPlanner(self.lance.dataset(path), [snapshot])

    def memwal_planner_lookup(self, planner: Any, key: int) -> pa.Table:
        return planner.plan_lookup(pa.array([key], pa.int64())).to_table()

    def memwal_close(self, w: Any) -> None:
        w.close()

    def memwal_compact(self, path: str, shard: str) -> None:
        from tiltyard.memwal.compaction import compact_streams

        dataset = self.lance.dataset(path)
        compact_streams(dataset._store, dataset._session, shards=[shard])
