"""The rows of a catalog's register: one version's content, immutable (namespace pack, section 2.2).

Rows stay Arrow columns from the data file they came in to the one they go out with, so that a rewrite costs a
copy and no object per row; what is looked up by id goes through an index built at the first question.
Columns that other writers added, and rows of types that we do not know, go through rewrites untouched.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from tiltyard.catalog.names import SEPARATOR, Id, object_id
from tiltyard.errors import CatalogDamaged

NAMESPACE = "namespace"
TABLE = "table"

COLUMNS = ("object_id", "object_type", "location", "metadata", "base_objects")
REPAIR = "`tiltyard catalog repair`"
MAX_SEARCHES = 4
"""Texts looked for in the columns themselves before an index is built: most processes ask for one and end."""

MAX_HITS = 16
"""Places in the column's bytes that are looked at for one id."""

MAX_MORE = 256
"""Ids that came since the index was built."""

MAX_LISTINGS_KEPT = 256
"""Namespaces whose sorted names a version keeps."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row. `object_type` is "namespace", "table", or a word of another program. `metadata` is JSON text.

    `extra`: values of columns that other writers added; `dataclasses.replace` of a row carries them along.
    """

    object_id: str
    object_type: str
    location: str | None = None
    metadata: str | None = None
    base_objects: tuple[str | None, ...] | None = None
    extra: Mapping[str, Any] | None = field(default=None, repr=False)

    @property
    def properties(self) -> dict[str, str] | None:
        """The properties, None without any. Raises `CatalogDamaged` where they are no map of text to text."""
        if self.metadata is None:
            return None
        try:
            found = json.loads(self.metadata)
        except (ValueError, RecursionError) as error:
            raise self._damaged(f"are no JSON ({error})") from error
        if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
            raise self._damaged("are no map of text to text")
        return found

    def _damaged(self, what: str) -> CatalogDamaged:
        return CatalogDamaged(
            f"the properties of {self.object_type} {self.object_id!r} {what}; everything else of the catalog "
            "works, `tiltyard catalog check` shows the text"
        )


def properties_text(properties: Mapping[str, str] | None) -> str | None:
    """The `metadata` of a row: compact JSON, None without properties or for an empty map."""
    return json.dumps(dict(properties), separators=(",", ":"), ensure_ascii=False) if properties else None


class Rows:
    """The rows of one version, in their order. Share it freely among threads."""

    __slots__ = (
        "_at",
        "_ids",
        "_listings",
        "_more",
        "_places",
        "_searches",
        "_twice",
        "_types",
        "added",
        "batch",
    )

    def __init__(self, batch: Any) -> None:
        """`batch`: a `pa.RecordBatch` with the five columns, and any others behind them."""
        self.batch = batch
        self.added: list[Row] | None = None
        """What these are more than the rows that they were made from; None where they are not just more."""
        self._ids: list[str] | None = None
        self._types: list[str] | None = None
        self._at: dict[str, int] | None = None
        self._more: dict[str, int] = {}  # beside `_at`, which versions share; both only grow by replacement
        self._twice: dict[str, list[int]] = {}
        self._places: dict[str, list[int]] | None = None
        self._listings: dict[tuple[str, str], list[str]] = {}
        self._searches = 0

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows(range(len(self))))

    @property
    def ids(self) -> list[str]:
        """Object ids in the order of rows; duplicates come twice."""
        if self._ids is None:
            self._ids = self.batch.column(0).to_pylist()
        return self._ids

    @property
    def types(self) -> list[str]:
        """Object types in the order of rows."""
        if self._types is None:
            self._types = self.batch.column(1).to_pylist()
        return self._types

    @property
    def extra_columns(self) -> list[str]:
        """Names of the columns that other writers added."""
        return list(self.batch.schema.names[len(COLUMNS) :])

    # -- looking up ------------------------------------------------------------------------------

    def find(self, object_id: str) -> Row | None:
        """The row of an id. Raises `CatalogDamaged` where there are several."""
        at = self.positions(object_id)
        if len(at) > 1:
            raise damaged_twice(object_id, len(at))
        return self.row(at[0]) if at else None

    def all(self, object_id: str) -> tuple[Row, ...]:
        """Every row of an id: none, one, or more where the catalog is damaged."""
        return tuple(self._rows(self.positions(object_id)))

    def positions(self, object_id: str) -> Sequence[int]:
        """Where the rows of an id stand."""
        if self._at is None and self._searches < MAX_SEARCHES:
            self._searches += 1
            found = search(self.batch.column(0), object_id)
            if found is not None:
                return found
        at = self._index().get(object_id)
        if at is None:
            at = self._more.get(object_id)
        return () if at is None else self._twice.get(object_id, (at,))

    def duplicates(self) -> dict[str, int]:
        """Ids that stand in several rows, and in how many; empty in a sound catalog."""
        self._index()
        return {object_id: len(at) for object_id, at in self._twice.items()}

    def children(self, namespace: Id, object_type: str) -> list[str]:
        """Names of one type directly in a namespace, sorted; one name once."""
        prefix = object_id((*namespace, "")) if namespace else ""
        found = self._listings.get((prefix, object_type))
        if found is None:
            start = len(prefix)
            names = {
                each[start:]
                for each, kind in zip(self.ids, self.types, strict=True)
                if kind == object_type and each.startswith(prefix) and SEPARATOR not in each[start:]
            }
            if not prefix:
                names.discard("")  # an empty id is that of the root: nobody can ask for such a row
            found = sorted(names)
            if len(self._listings) < MAX_LISTINGS_KEPT:
                self._listings[prefix, object_type] = found
        return list(found)

    def below(self, object_id: str) -> list[Row]:
        """The rows whose id lies below an id, of every type."""
        prefix = object_id + SEPARATOR
        return self._rows([at for at, each in enumerate(self.ids) if each.startswith(prefix)])

    def by_location(self, location: str) -> list[Row]:
        """The table rows with this very location; sound catalogs have at most one."""
        if self._places is None and self._searches < MAX_SEARCHES:
            self._searches += 1
            found = search(self.batch.column(2), location)
            if found is not None:
                return [row for row in self._rows(found) if row.object_type == TABLE]
        if self._places is None:
            places: dict[str, list[int]] = {}
            for at, (place, kind) in enumerate(
                zip(self.batch.column(2).to_pylist(), self.types, strict=True)
            ):
                if place is not None and kind == TABLE:
                    places.setdefault(place, []).append(at)
            self._places = places
        return self._rows(self._places.get(location, ()))

    def row(self, at: int) -> Row:
        """The row at a position."""
        values = [column[at].as_py() for column in self.batch.columns]
        return _row(values, self.batch.schema.names)

    def _rows(self, positions: Iterable[int]) -> list[Row]:
        return [self.row(at) for at in positions]

    def _index(self) -> dict[str, int]:
        if self._at is None:
            ids = self.ids
            at = dict(zip(ids, range(len(ids)), strict=True))
            if len(at) < len(ids):
                every: dict[str, list[int]] = {}
                for position, each in enumerate(ids):
                    every.setdefault(each, []).append(position)
                self._twice = {each: positions for each, positions in every.items() if len(positions) > 1}
                at = {each: positions[0] for each, positions in every.items()}
            self._at = at
        return self._at

    def learn(self, before: Rows) -> None:
        """Take over what is known of an earlier version, where this one begins with its rows: most do."""
        known, at = before._ids, before._at
        if self._ids is not None or known is None or at is None or before._twice or len(before) > len(self):
            return
        ours = self.batch.column(0)
        if not ours.slice(0, len(before)).equals(before.batch.column(0)):
            return
        ids = [*known, *ours.slice(len(before)).to_pylist()]
        more = before._more | {each: len(before) + i for i, each in enumerate(ids[len(before) :])}
        if len(at) + len(more) == len(ids) and at.keys().isdisjoint(more):
            self._ids = ids
            self._keep_index(at, more)  # else some id stands twice, and an index of our own tells where

    def _keep_index(self, at: dict[str, int], more: dict[str, int]) -> None:
        """Take over the index of an earlier version with what came since: joined when that is much."""
        many = len(more) > MAX_MORE
        self._at, self._more = (at | more, {}) if many else (at, more)

    # -- the next version ------------------------------------------------------------------------

    def changed(self, changes: Mapping[str, Row | None], beside: Sequence[Row] = ()) -> Rows:
        """The rows after changes: per object id the row that takes the place of all that it has, or None.

        Rows that stay keep their order; those that are put come last, in the order of `changes`, and after
        them rows that are put `beside` others of their id.
        """
        gone = sorted(position for each in changes for position in self.positions(each))
        added = [*(row for row in changes.values() if row is not None), *beside]
        pieces = _kept(self.batch, gone)
        if added:
            pieces.append(batch_of(added, self.batch.schema))
        made = Rows(_joined(pieces, self.batch.schema))
        made.added = None if gone or beside else added
        if not self._twice and self._ids is not None and not gone and not beside:
            # Most changes put one row: what is known goes over.
            made._ids = [*self._ids, *(row.object_id for row in added)]
            if self._types is not None:
                made._types = [*self._types, *(row.object_type for row in added)]
            if self._at is not None:
                new = {row.object_id: len(self) + at for at, row in enumerate(added)}
                made._keep_index(self._at, self._more | new)
        return made


def search(column: Any, text: str) -> list[int] | None:
    """Where a text stands in a `pa.StringArray`, by its bytes; None if that takes too long."""
    wanted = text.encode()
    _, offsets, data = column.buffers()
    if not wanted or data is None:
        return None
    bounds = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    whole = data.to_pybytes()
    found: list[int] = []
    start, end = int(bounds[0]), int(bounds[-1])
    for _ in range(MAX_HITS):
        start = whole.find(wanted, start, end)
        if start < 0:
            return found
        at = int(np.searchsorted(bounds, start, "right")) - 1
        if bounds[at] == start and bounds[at + 1] == start + len(wanted) and column[at].is_valid:
            found.append(at)
        start += 1
    return None


def damaged_twice(object_id: str, count: int) -> CatalogDamaged:
    """The error for an id with several rows."""
    return CatalogDamaged(
        f"the catalog holds {count} rows for {object_id!r}, where there can be only one: an older program "
        f"wrote them. Everything else can still be read; {REPAIR} decides which one stays"
    )


def _row(values: Sequence[Any], names: Sequence[str]) -> Row:
    object_id, object_type, location, metadata, base_objects = values[: len(COLUMNS)]
    extra = dict(zip(names[len(COLUMNS) :], values[len(COLUMNS) :], strict=True)) or None
    bases = None if base_objects is None else tuple(base_objects)
    return Row(object_id, object_type, location, metadata, bases, extra)


def batch_of(rows: Sequence[Row], schema: Any) -> Any:
    """Rows as a `pa.RecordBatch` of a register's schema."""
    arrays = [
        text_array([row.object_id for row in rows]),
        text_array([row.object_type for row in rows]),
        text_array([row.location for row in rows]),
        text_array([row.metadata for row in rows]),
        _lists([row.base_objects for row in rows], schema.field(len(COLUMNS) - 1).type),
    ]
    for at in range(len(COLUMNS), len(schema)):
        field = schema.field(at)
        arrays.append(pa.array([(row.extra or {}).get(field.name) for row in rows], field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def text_array(values: Sequence[str | None]) -> Any:
    """Text as a `pa.StringArray`. Put together here, for `pa.array` would load pandas: a second."""
    nulls = values.count(None)
    if nulls == len(values):
        return pa.nulls(nulls, pa.string())
    encoded = [b"" if value is None else value.encode() for value in values]
    data = pa.py_buffer(b"".join(encoded))
    return pa.StringArray.from_buffers(len(values), _offsets(encoded), data, _validity(values), nulls)


def _lists(values: Sequence[tuple[str | None, ...] | None], arrow: Any) -> Any:
    nulls = values.count(None)
    if nulls == len(values):
        return pa.nulls(nulls, arrow)
    items = text_array([item for value in values for item in value or ()])
    buffers = [_validity(values), _offsets([value or () for value in values])]
    return pa.Array.from_buffers(arrow, len(values), buffers, nulls, children=[items])


def _validity(values: Sequence[Any]) -> Any:
    if None not in values:
        return None
    valid = np.array([value is not None for value in values], np.bool_)
    return pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())


def _offsets(values: Sequence[Sized]) -> Any:
    return pa.py_buffer(array("i", accumulate(map(len, values), initial=0)))


def _kept(batch: Any, gone: Sequence[int]) -> list[Any]:
    """The runs of rows between those that go."""
    pieces, start = [], 0
    for position in (*gone, batch.num_rows):
        if position > start:
            pieces.append(batch.slice(start, position - start))
        start = position + 1
    return pieces


def _joined(pieces: Sequence[Any], schema: Any) -> Any:
    if not pieces:
        return batch_of([], schema)
    if len(pieces) == 1:
        return pieces[0]
    columns = [pa.concat_arrays([piece.column(at) for piece in pieces]) for at in range(len(schema))]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
