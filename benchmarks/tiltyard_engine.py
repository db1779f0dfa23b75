"""Our adapter for the shared bench: `BENCH_OURS=tiltyard_engine python -m bench --engines pylance,ours`.

`TILTYARD_DURABLE=0` in the environment turns fsync off, which is how the official package always runs;
without it every commit is durable. Both ways belong into a report.
"""

from __future__ import annotations

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
