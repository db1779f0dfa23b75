"""Data files read by ours: whole, in ranges and in takes, compared with what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tables_alike import difference
from tiltyard.file import FileReader, open_file
from tiltyard.session import Session
from tiltyard.store import open_store


def reader_of(path: Path, session: Session | None = None) -> FileReader:
    """The reader of a file, in a session of its own if none is given."""
    return open_file(open_store(str(path.parent)), path.name, session=session or Session())


def read(reader: FileReader, rows: Any = slice(None)) -> pa.Table:
    """Some rows of all columns, by the file's own schema."""
    arrays = reader.read(reader.schema.fields, None, rows)
    for array in arrays:
        array.validate(full=True)
        assert array.offset == 0
    return pa.Table.from_arrays(arrays, names=reader.schema.names)


def unlike(found: pa.Table, table: pa.Table) -> str:
    """What differs; dictionaries inside lists by value, since pages may have dictionaries of their own, and
    nulls may be items or none.
    """
    if "dictionary" in str(table.schema) and found.schema.types == table.schema.types:
        return "" if found.to_pylist() == table.to_pylist() else "values"
    return difference(found, table)


def agrees(reader: FileReader, table: pa.Table) -> None:
    """Whole, in ranges, and in takes of any order with duplicates."""
    n = table.num_rows
    table = table.combine_chunks()
    assert not unlike(read(reader), table)
    rows = np.random.default_rng(n).integers(0, n, 40) if n else np.empty(0, np.int64)
    assert not unlike(read(reader, rows), table.take(pa.array(rows)))
    for start, stop in ((0, 1), (n // 3, n // 2), (n - 1, n), (min(5, n), min(6, n)), (n, n)) if n else ():
        assert not unlike(read(reader, slice(start, stop)), table.slice(start, stop - start)), (start, stop)
