"""One data file of ours, and whether the official reader gives the same back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from peer import Peer
from tables_alike import difference, same
from tiltyard.file.writer import FileWriter, WriteLimits
from tiltyard.format.schema import Schema
from tiltyard.format.version import FileVersion
from tiltyard.store import open_store

READ = """
reader = lance.file.LanceFileReader(path)
whole = reader.read_all(batch_size=whole_batch).to_table()
part = reader.read_range(start, count, batch_size=333).to_table()
rows = reader.take_rows(taken).to_table()
result = [whole.replace_schema_metadata(None), part.replace_schema_metadata(None),
rows.replace_schema_metadata(None)]
"""


def write(
    table: pa.Table,
    directory: Path,
    version: str = "2.2",
    *,
    batch: int | None = None,
    page_bytes: int | None = None,
) -> Path:
    """One data file with the table; small pages where asked for."""
    limits = WriteLimits(page_bytes=page_bytes) if page_bytes else None
    name = f"{len(list(directory.iterdir())) if directory.exists() else 0}-{version}.lance"
    store = open_store(str(directory))
    schema = Schema.from_arrow(table.schema)
    with FileWriter(store, name, schema, version=FileVersion(version), limits=limits) as writer:
        for each in table.to_batches(max_chunksize=batch):
            writer.write(each)
        assert writer.rows == table.num_rows
        written = writer.close()
    path = directory / name
    assert written.size == path.stat().st_size
    assert (written.path, written.version) == (name, FileVersion(version))
    return path


def check(table: pa.Table, path: Path, peer: Peer) -> None:
    """The official reader gives the table back: in odd batches, a range, scattered rows."""
    start, count = table.num_rows // 3, table.num_rows // 3
    rng = np.random.default_rng(table.num_rows)
    taken = sorted(rng.choice(table.num_rows, min(table.num_rows, 40), replace=False).tolist())
    found = peer(
        "import lance.file" + READ, path=str(path), whole_batch=997, start=start, count=count, taken=taken
    )
    picked = pa.concat_tables([table.slice(row, 1) for row in taken])
    for got, wanted in zip(found, (table, table.slice(start, count), picked), strict=True):
        wanted = pa.table([normal(column) for column in wanted.columns], names=wanted.column_names)
        got = pa.table(got.columns, names=got.column_names)
        assert same(got, wanted), difference(got, wanted)


def normal(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Storage of extension types and plain text for views: what a file gives back."""
    if isinstance(column.type, pa.BaseExtensionType):
        return pa.chunked_array([chunk.storage for chunk in column.chunks])
    views = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return column.cast(views[column.type]) if column.type in views else column


def with_metadata(table: pa.Table, metadata: dict[str, str]) -> pa.Table:
    return table.cast(pa.schema([field.with_metadata(metadata) for field in table.schema]))
