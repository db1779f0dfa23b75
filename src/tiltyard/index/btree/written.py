"""Writing B-tree indices: from values in any order, from others that are sorted already, or with other row
ids.

The files get their final names at once; nobody knows them until a commit names the directory. On failure
everything that was written is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.errors import CorruptFile, InvalidInput
from tiltyard.file import FileWriter
from tiltyard.format.index_metadata import IndexFile, TypedBytes
from tiltyard.format.schema import Schema
from tiltyard.index.btree.layout import (
    DEFAULT_PAGE_ROWS,
    DETAILS,
    LOOKUP_FILE,
    PAGES_FILE,
    ROW_ID_VERSION,
    lookup_schema,
    pages_schema,
)
from tiltyard.index.btree.search import BTree
from tiltyard.index.btree.sort import Entries, RowIds, Sorter, id_array
from tiltyard.index.order import order_of
from tiltyard.store.protocol import Store

MIB = 1 << 20

Kept = Callable[[RowIds], tuple[npt.NDArray[np.bool_] | None, RowIds]]
"""For row ids of an old index: which of them stay (None: all), and the new ids of those that stay."""


@dataclass(frozen=True, slots=True)
class BuildLimits:
    """`run_bytes`: bytes of values and row ids that are sorted at once. `held_bytes`: bytes of sorted ones
    that stay in memory; more is put aside in a file. `page_rows`: rows of a page."""

    run_bytes: int = 32 * MIB
    held_bytes: int = 256 * MIB
    page_rows: int = DEFAULT_PAGE_ROWS

    def __post_init__(self) -> None:
        for name, least in (("run_bytes", 1), ("held_bytes", 0), ("page_rows", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise InvalidInput(f"{name} must be a number of at least {least}, found {value!r}")


DEFAULT_LIMITS = BuildLimits()


@dataclass(frozen=True, slots=True)
class BuiltIndex:
    """A segment that was written: what its entry in a manifest says, and how many rows it holds."""

    files: tuple[IndexFile, ...]
    details: TypedBytes
    index_version: int
    rows: int


def build(
    store: Store,
    directory: str,
    values: Iterable[Entries],
    value_type: pa.DataType,
    *,
    index_version: int = ROW_ID_VERSION,
    limits: BuildLimits = DEFAULT_LIMITS,
) -> BuiltIndex:
    """Write an index of the given values (arrays of `value_type`) and row ids (uint64) into a directory of
    its own.

    Raises `UnsupportedFeature` for a type that cannot be indexed and store errors; then nothing is left.
    """
    return merge(
        store,
        directory,
        (),
        values,
        value_type,
        index_version=index_version,
        limits=limits,
    )


def merge(
    store: Store,
    directory: str,
    old: Sequence[tuple[BTree, Kept]],
    values: Iterable[Entries],
    value_type: pa.DataType,
    *,
    index_version: int = ROW_ID_VERSION,
    limits: BuildLimits = DEFAULT_LIMITS,
) -> BuiltIndex:
    """Write an index of what stays of some others, and of new values. See `build`; `CorruptFile` where one of
    the others is damaged."""
    order = order_of(value_type)
    for tree, _ in old:
        if tree.type != value_type:
            raise CorruptFile(f"the index holds {tree.type}, its column is {value_type}", tree.directory)
    sorter = Sorter(order, run_bytes=limits.run_bytes, held_bytes=limits.held_bytes)
    written: list[str] = []
    try:
        for array, ids in values:
            sorter.add(array, ids)
        entries = sorter.sorted([_staying(tree, kept) for tree, kept in old])
        return _write(store, directory, entries, value_type, index_version, limits.page_rows, written)
    except BaseException:
        store.delete_many(written)  # what stays is collected by age
        raise
    finally:
        sorter.discard()


def remap(
    store: Store,
    directory: str,
    tree: BTree,
    kept: Kept,
    *,
    index_version: int = ROW_ID_VERSION,
) -> BuiltIndex:
    """Write an index with other row ids: the values stay where they are, rows that do not stay leave."""
    limits = BuildLimits(page_rows=tree.page_rows)
    return merge(
        store,
        directory,
        [(tree, kept)],
        (),
        tree.type,
        index_version=index_version,
        limits=limits,
    )


def _staying(tree: BTree, kept: Kept) -> Iterable[Entries]:
    for values, ids in tree.entries():
        mask, new = kept(ids)
        if mask is None:
            yield values, new
        elif mask.any():
            yield values.filter(pa.array(mask)), new


def _write(
    store: Store,
    directory: str,
    entries: Iterable[Entries],
    value_type: pa.DataType,
    index_version: int,
    page_rows: int,
    written: list[str],
) -> BuiltIndex:
    schema = pages_schema(value_type)
    ends = _PageEnds(value_type, page_rows)
    pages_path = f"{directory}/{PAGES_FILE}"
    with FileWriter(store, pages_path, Schema.from_arrow(schema)) as file:
        for values, ids in entries:
            ends.add(values)
            file.write(pa.RecordBatch.from_arrays([values, id_array(ids)], schema=schema))
        pages_size = file.close().size
    written.append(pages_path)
    lookup_path = f"{directory}/{LOOKUP_FILE}"
    lookup = lookup_schema(value_type, page_rows)
    with FileWriter(store, lookup_path, Schema.from_arrow(lookup)) as file:
        file.write(ends.lookup(lookup))
        lookup_size = file.close().size
    written.append(lookup_path)
    assert pages_size is not None
    assert lookup_size is not None
    files = (IndexFile(PAGES_FILE, pages_size), IndexFile(LOOKUP_FILE, lookup_size))
    return BuiltIndex(files, DETAILS, index_version, ends.rows)


class _PageEnds:
    """The first and the last value of each page, and its nulls, gathered while entries pass by in order."""

    def __init__(self, value_type: pa.DataType, page_rows: int) -> None:
        self.rows = 0
        self._nulls = 0
        self._page_rows = page_rows
        none = pa.nulls(0, value_type)
        self._firsts: list[Any] = [none]
        self._lasts: list[Any] = [none]
        self._last = none

    def add(self, values: pa.Array) -> None:
        """The next values."""
        if not len(values):
            return
        size, start, stop = self._page_rows, self.rows, self.rows + len(values)
        begins = np.arange(-(-start // size) * size, stop, size) - start
        ends = np.arange(-(-(start + 1) // size) * size - 1, stop, size) - start
        self._firsts.append(values.take(pa.array(begins)))
        self._lasts.append(values.take(pa.array(ends)))
        self._last = values.slice(len(values) - 1)
        self._nulls += values.null_count
        self.rows = stop

    def lookup(self, schema: pa.Schema) -> pa.RecordBatch:
        """The page lookup."""
        if self.rows % self._page_rows:
            self._lasts.append(self._last)
        pages = -(-self.rows // self._page_rows)
        numbers = np.arange(pages, dtype=np.int64)
        inside = np.minimum(self.rows - numbers * self._page_rows, self._page_rows)
        nulls = np.clip(self._nulls - numbers * self._page_rows, 0, inside)
        columns = [
            pa.concat_arrays(self._firsts),
            pa.concat_arrays(self._lasts),
            pa.array(nulls.astype(np.uint32)),
            pa.array(numbers.astype(np.uint32)),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)
