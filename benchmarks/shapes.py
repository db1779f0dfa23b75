"""Tables for the comparison, and what is asked of the answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

PAGE_BYTES = 4096

FULL_ROWS = {
    "numbers": 2_000_000,
    "categories": 4_000_000,
    "urls": 1_000_000,
    "lists": 1_500_000,
    "structs": 1_500_000,
    "vectors": 60_000,
    "wide": 200_000,
}


def numbers(rows: int) -> pa.Table:
    """Integers and floats, from a sequence to noise."""
    rng = np.random.default_rng(11)
    return pa.table(
        {
            "sequence": np.arange(rows, dtype=np.int64),
            "small": rng.integers(0, 500_000, rows),
            "noise": rng.integers(-(2**61), 2**61, rows),
            "few": rng.integers(0, 40, rows).astype(np.float64),
            "money": np.round(rng.random(rows) * 900, 2),
            "real": rng.random(rows),
        }
    )


def categories(rows: int) -> pa.Table:
    """Sixty distinct texts."""
    names = pa.array([f"group number {i:02d}" for i in range(60)])
    return pa.table({"s": names.take(pa.array(np.random.default_rng(12).integers(0, 60, rows)))})


def urls(rows: int) -> pa.Table:
    """Distinct texts of some 40 bytes with much in common."""
    rng = np.random.default_rng(13)
    parts = zip(rng.integers(0, 5000, rows).tolist(), rng.integers(0, 2**44, rows).tolist(), strict=True)
    return pa.table({"s": pa.array([f"https://www.example.org/d{a}/{b:x}" for a, b in parts])})


def lists(rows: int) -> pa.Table:
    """Lists of up to eight integers; some null, some with null items."""
    rng = np.random.default_rng(14)
    null = rng.random(rows) < 0.1
    offsets = np.zeros(rows + 1, dtype=np.int32)
    np.cumsum(np.where(null, 0, rng.integers(0, 9, rows)), out=offsets[1:])
    count = int(offsets[-1])
    items = pa.array(rng.integers(0, 80_000, count, dtype=np.int32), mask=rng.random(count) < 0.05)
    return pa.table({"l": pa.ListArray.from_arrays(pa.array(offsets), items, mask=pa.array(null))})


def structs(rows: int) -> pa.Table:
    """A struct of a number, a float, a text and a struct; one in twenty is null."""
    rng = np.random.default_rng(15)
    text = pa.array([f"tag {i}" for i in range(800)]).take(pa.array(rng.integers(0, 800, rows)))
    inner = pa.StructArray.from_arrays([pa.array(rng.integers(0, 900, rows, dtype=np.int32))], ["e"])
    columns = [pa.array(rng.integers(0, 2**40, rows)), pa.array(rng.random(rows)), text, inner]
    mask = pa.array(rng.random(rows) < 0.05)
    return pa.table({"st": pa.StructArray.from_arrays(columns, ["a", "b", "c", "d"], mask=mask)})


def vectors(rows: int) -> pa.Table:
    """Embeddings of 768 floats."""
    values = np.random.default_rng(16).standard_normal(rows * 768, dtype=np.float32)
    return pa.table({"id": np.arange(rows), "v": pa.FixedSizeListArray.from_arrays(pa.array(values), 768)})


def wide(rows: int) -> pa.Table:
    """A hundred columns of floats."""
    rng = np.random.default_rng(17)
    return pa.table({f"c{i:03d}": rng.random(rows, dtype=np.float32) for i in range(100)})


def keys(rows: int) -> pa.Table:
    """`k`, a permutation of 0..rows-1, with a float and a text."""
    k = np.random.default_rng(18).permutation(rows)
    names = pa.array([f"name {i:05d}" for i in range(10_000)])
    return pa.table({"k": k, "f": np.sqrt(k), "s": names.take(pa.array(k % 10_000))})


def keyed(rows: int) -> pa.Table:
    """`id` with a float and a text of its own."""
    ids = np.arange(rows)
    return pa.table({"id": ids, "v": np.sqrt(ids), "s": pa.array([f"row/{i:010d}" for i in ids.tolist()])})


TABLES: dict[str, Callable[[int], pa.Table]] = {
    "numbers": numbers,
    "categories": categories,
    "urls": urls,
    "lists": lists,
    "structs": structs,
    "vectors": vectors,
    "wide": wide,
}


def touch(table: pa.Table) -> int:
    """Read a byte of every page of the result: memory that is only mapped pays for its faults here."""
    total = 0
    for column in table.columns:
        for chunk in column.chunks:
            for buffer in chunk.buffers():
                if buffer is not None and buffer.size:
                    total += int(np.frombuffer(buffer, np.uint8)[::PAGE_BYTES].sum())
    return total


def fingerprint(table: pa.Table) -> list[Any]:
    """Rows, names, and a sum over each column: equal for equal tables, cheap for large ones."""
    return [table.num_rows, *((name, _sum(table[name].combine_chunks())) for name in table.column_names)]


def _sum(column: pa.Array) -> Any:
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_struct(kind):
        return [column.null_count, *(_sum(child) for child in column.flatten())]
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return [column.null_count, _sum(column.flatten())]
    if pa.types.is_string(kind):
        return [column.null_count, pc.sum(pc.binary_length(column)).as_py()]
    if pa.types.is_integer(kind):
        return [
            column.null_count,
            int(column.drop_null().to_numpy(zero_copy_only=False).astype(np.int64).sum()),
        ]
    return [column.null_count, round(float(pc.sum(column).as_py() or 0), 3)]


def data_bytes(path: Path) -> int:
    """Bytes of a table's data files."""
    return sum(file.stat().st_size for file in (path / "data").iterdir())
