"""The columns of log entries and SSTables: those of the table, and whether the row deletes its key.

Columns outside the key may be null whatever the table says, since a row that deletes has nothing in them.
Entries name the table's field ids, so that rows written before a column was renamed, dropped or added are
read right afterwards (MemWAL, sections 3.1 and 3.5).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyarrow import types

from tiltyard.errors import CorruptFile, SchemaMismatch, UnsupportedFeature
from tiltyard.format.field import Field, key_markers
from tiltyard.format.schema import Schema
from tiltyard.memwal.merge_functions import Functions

TOMBSTONE = "_tombstone"
FIELD_ID = b"lance:field_id"

MAX_KEPT = 64
"""Things that are kept with a log's schema."""


@dataclass(frozen=True, slots=True)
class LogSchema:
    """`table`: the table's schema. `stored`: that of SSTables, `_tombstone` last. `entry`: the `pa.Schema` of
    log entries, without the keys that each entry adds. `key`: names of the key's columns, in key order.
    `functions`: how rows of a key are merged; None where the newest one counts.
    """

    table: Schema
    stored: Schema
    entry: Any
    key: tuple[str, ...]
    functions: Functions | None = None
    _kept: dict[Any, Any] = dataclasses.field(default_factory=dict, repr=False, compare=False)

    @property
    def has_key(self) -> bool:
        """Whether rows have a key; without one nothing can be deleted."""
        return bool(self.key)

    def is_as(self, other: LogSchema) -> bool:
        """Whether rows of one are rows of the other as they are."""
        return self.table.encode() == other.table.encode() or self.stored == other.stored

    def kept(self, key: Any, make: Callable[[], Any]) -> Any:
        """What `make` gives, kept under a key with the schema: what is derived from it for each read."""
        found = self._kept.get(key)
        if found is None:
            found = make()
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            self._kept[key] = found
        return found

    def arrow(self, fields: Sequence[Field]) -> Any:
        """The `pa.Schema` of some of the log's columns."""
        names = tuple([each.name for each in fields])
        return self.kept(names, lambda: pa.schema([self.stored.arrow.field(name) for name in names]))

    def never_null(self) -> list[int]:
        """Where the columns stand that are never null: those of the key, and which rows delete."""
        return [*map(self.stored.arrow.get_field_index, (*self.key, TOMBSTONE))]

    def places(self, fields: Sequence[Field]) -> list[int]:
        """Where some of the log's columns stand among all of them."""
        names = tuple([each.name for each in fields])
        found: list[int] = self.kept(
            ("places", names), lambda: [*map(self.stored.arrow.get_field_index, names)]
        )
        return found


def log_schema(table: Schema, functions: Functions | None = None) -> LogSchema:
    """The log's columns for a table. Raises `UnsupportedFeature` for keys inside structs and for blobs."""
    key = table.primary_key
    tops = {each.id for each in table.fields}
    for each in key:
        if each.id not in tops:
            raise UnsupportedFeature(
                f"primary key column {each.name!r} lies inside another column; streams need "
                "top-level key columns"
            )
    for each in table.walk():
        if each.is_blob or each.extension_name == "lance.blob.v2":
            raise UnsupportedFeature(
                f"column {each.name!r} holds blobs, which streams of this version do not write"
            )
    ids = {each.id for each in key}
    fields = [each if each.id in ids else replace(each, nullable=True) for each in table.fields]
    tombstone = Field(TOMBSTONE, table.max_id + 1, -1, "bool", nullable=False)
    stored = Schema((*fields, tombstone), table.metadata)
    entry = pa.schema(
        [*(_numbered(each) for each in fields), pa.field(TOMBSTONE, pa.bool_(), nullable=False)],
        metadata=table.metadata or None,
    )
    return LogSchema(table, stored, entry, tuple(each.name for each in key), functions)


def _numbered(field: Field) -> Any:
    """The Arrow field of a column, with its id and those of the fields inside it."""
    return _with_ids(field.arrow_field, field)


def _with_ids(arrow: Any, field: Field) -> Any:
    metadata = {**(arrow.metadata or {}), FIELD_ID: b"%d" % field.id}
    return arrow.with_type(_inner_ids(arrow.type, field)).with_metadata(metadata)


def _inner_ids(kind: Any, field: Field) -> Any:
    """A nested type whose fields carry their ids."""
    inside = field.children
    if types.is_struct(kind):
        return pa.struct([_with_ids(kind.field(each.name), each) for each in inside])
    if types.is_map(kind):
        key, value = inside[0].children
        named = _with_ids(kind.key_field, key), _with_ids(kind.item_field, value)
        return pa.map_(*named, keys_sorted=kind.keys_sorted)
    if not inside:
        return kind
    if types.is_list(kind):
        return pa.list_(_with_ids(kind.value_field, inside[0]))
    if types.is_large_list(kind):
        return pa.large_list(_with_ids(kind.value_field, inside[0]))
    if types.is_fixed_size_list(kind):
        return pa.list_(_with_ids(kind.value_field, inside[0]), kind.list_size)
    return kind


# -- entries of earlier schemas -----------------------------------------------------------------


def reconciled(batch: Any, schema: LogSchema, where: str) -> Any:
    """A log entry's batch in the columns of `schema.stored`: matched by field id where the entry has ids, by
    name where no column has one; what is missing is null, what is unknown is left out.

    Raises `CorruptFile`: a key column is missing, or a column has another type than the table says; and
    `SchemaMismatch` where the rows were streamed under another key.
    """
    check_same_key(_key_ids(batch.schema), schema, f"the log entry {where}")
    made = pa.RecordBatch.from_arrays(_columns(batch, schema, where), schema=schema.stored.arrow)
    check_keys(made, schema, where)
    return made


def is_as_stored(entry: Any, schema: LogSchema) -> bool:
    """Whether an entry's columns, of this Arrow schema, are those of `schema.stored`, in order."""
    if len(entry) != len(schema.stored.fields):
        return False
    by_id = _ids(entry)
    for at, (field, arrow) in enumerate(zip(schema.stored.fields, schema.stored.arrow, strict=True)):
        named = entry.get_field_index(field.name)
        if (by_id.get(field.id, -1) if by_id and field.name != TOMBSTONE else named) != at:
            return False
        if not _fits(entry.field(at).type, arrow.type, field):
            return False
    return True


def check_keys(batch: Any, schema: LogSchema, where: str) -> None:
    """Raise `CorruptFile` for nulls where a batch, with the columns of `schema.stored`, may have none."""
    for at in schema.kept("never null", schema.never_null):
        if batch.column(at).null_count:
            name = schema.stored.fields[at].name
            raise CorruptFile(f"the log entry {where} has nulls in column `{name}`, which may have none")


def check_same_key(held: Collection[int], schema: LogSchema, what: str) -> None:
    """Raise `SchemaMismatch` unless rows that were streamed under a key, of the columns with these ids, have
    the table's key: by another one it cannot be told which rows they replace and delete.
    """
    if not held:
        return
    now = schema.kept("key ids", lambda: frozenset(each.id for each in schema.table.primary_key))
    if now != frozenset(held):
        raise SchemaMismatch(
            f"the rows of {what} were streamed under a primary key of the columns with the ids "
            f"{sorted(held)}, and the table's key is now {', '.join(schema.key) or 'none'}: which rows they "
            "replace or delete cannot be told. Restore a version of the table that has their key and drain "
            "it before the key is changed"
        )


def _key_ids(entry: Any) -> list[int]:
    """The ids of the key's columns in an entry's schema, as far as it numbers them."""
    return [id for id, at in _ids(entry).items() if _is_key(entry.field(at))]


def _is_key(field: Any) -> bool:
    told = {
        name.decode("utf-8", "replace"): text.decode("utf-8", "replace")
        for name, text in field.metadata.items()
    }
    return bool(key_markers(told, field.name)["primary_key"])


def _columns(batch: Any, schema: LogSchema, where: str) -> list[Any]:
    wanted = schema.stored.arrow
    by_id = _ids(batch.schema)
    columns = []
    for field, arrow in zip(schema.stored.fields, wanted, strict=True):
        if field.name == TOMBSTONE:
            at = batch.schema.get_field_index(TOMBSTONE)
        elif by_id:
            at = by_id.get(field.id, -1)
        else:
            at = batch.schema.get_field_index(field.name)
        if at >= 0:
            columns.append(_typed(batch.column(at), batch.schema.field(at).type, arrow.type, field, where))
        elif field.name == TOMBSTONE:
            columns.append(pa.repeat(False, batch.num_rows))
        elif field.name in schema.key:
            raise CorruptFile(
                f"the log entry {where} is missing primary key column `{field.name}` declared by the schema"
            )
        else:
            columns.append(pa.nulls(batch.num_rows, arrow.type))
    return columns


def _ids(fields: Iterable[Any]) -> dict[int, int]:
    """Position by field id, of the fields that carry one."""
    found = {}
    for at, field in enumerate(fields):
        text = (field.metadata or {}).get(FIELD_ID)
        if text is not None and text.isdigit():
            found[int(text)] = at
    return found


def _fields_in(kind: Any) -> list[Any]:
    """The fields inside a nested type; of a map its key and its value."""
    if types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.field(at) for at in range(kind.num_fields)]


def _children(field: Field, kind: Any) -> Sequence[Field]:
    return field.children[0].children if types.is_map(kind) else field.children


def _fits(held: Any, wanted: Any, field: Field) -> bool:
    """Whether what is held is what is wanted, the same fields inside: not others of the same names."""
    if not held.equals(wanted):
        return False
    inside = _fields_in(held)
    children = _children(field, wanted)
    ids = _ids(inside)
    if ids and list(ids) != [each.id for each in children]:
        return False
    into = zip(inside, _fields_in(wanted), children, strict=False)
    return all(_fits(each.type, other.type, child) for each, other, child in into)


def _typed(array: Any, held: Any, wanted: Any, field: Field, where: str) -> Any:
    """An array in the type `wanted`. `held`: its own type as the entry's schema has it, with ids inside."""
    if _fits(held, wanted, field):
        return array
    if held.id == wanted.id:
        if types.is_struct(wanted):
            return _struct(array, held, wanted, field, where)
        if types.is_map(wanted):
            parts = array.keys, array.items
            made = [
                _typed(part, mine.type, theirs.type, child, where)
                for part, mine, theirs, child in zip(
                    parts, _fields_in(held), _fields_in(wanted), _children(field, wanted), strict=True
                )
            ]
            inside = pa.StructArray.from_arrays(made, fields=_fields_in(wanted))
            return _around(array, wanted, inside)
        if types.is_list(wanted) or types.is_large_list(wanted):
            (child,) = field.children
            inside = _typed(array.values, held.value_type, wanted.value_type, child, where)
            return _around(array, wanted, inside)
        if types.is_fixed_size_list(wanted) and held.list_size == wanted.list_size:
            if field.children:
                inside = _typed(array.values, held.value_type, wanted.value_type, field.children[0], where)
                return _around(array, wanted, inside)
            if held.value_type.equals(wanted.value_type):
                return array.cast(wanted)  # the item under another name
    raise CorruptFile(
        f"in the log entry {where} column `{field.name}` is stored as {held} and the schema declares "
        f"{wanted}; a column's type cannot change on a table with a MemWAL"
    )


def _around(array: Any, kind: Any, inside: Any) -> Any:
    """The same lists, or maps, of other values."""
    own = 1 if types.is_fixed_size_list(kind) else 2
    return pa.Array.from_buffers(
        kind, len(array), array.buffers()[:own], offset=array.offset, children=[inside]
    )


def _struct(array: Any, held: Any, wanted: Any, field: Field, where: str) -> Any:
    by_id = _ids(_fields_in(held))
    made = []
    for child, arrow in zip(field.children, wanted, strict=True):
        at = by_id.get(child.id, -1) if by_id else held.get_field_index(child.name)
        if at < 0:
            made.append(pa.nulls(len(array), arrow.type))
        else:
            made.append(_typed(array.field(at), held.field(at).type, arrow.type, child, where))
    mask = array.is_null() if array.null_count else None
    if not made:
        return pa.Array.from_buffers(wanted, len(array), [array.buffers()[0]], offset=array.offset)
    return pa.StructArray.from_arrays(made, fields=list(wanted), mask=mask)
