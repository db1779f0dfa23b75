"""The columns of log entries and SSTables: those of the table, and whether the row deletes its key.

Columns outside the key may be null whatever the table says, since a row that deletes has nothing in them.
Entries name the table's field ids, so that rows written before a column was renamed, dropped or added are
read right afterwards (MemWAL, sections 3.1 and 3.5).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tiltyard.errors import CorruptFile, UnsupportedFeature
from tiltyard.format.field import Field
from tiltyard.format.schema import Schema

TOMBSTONE = "_tombstone"
FIELD_ID = b"lance:field_id"


@dataclass(frozen=True, slots=True)
class LogSchema:
    """`table`: the table's schema. `stored`: that of SSTables, `_tombstone` last. `entry`: the `pa.Schema` of
    log entries, without the keys that each entry adds. `key`: names of the key's columns, in key order.
    """

    table: Schema
    stored: Schema
    entry: Any
    key: tuple[str, ...]

    @property
    def has_key(self) -> bool:
        """Whether rows have a key; without one nothing can be deleted."""
        return bool(self.key)


def log_schema(table: Schema) -> LogSchema:
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
    return LogSchema(table, stored, entry, tuple(each.name for each in key))


def _numbered(field: Field) -> Any:
    """The Arrow field of a column, with its id and those of the fields inside it."""
    found = field.arrow_field
    return _with_ids(found, field)


def _with_ids(arrow: Any, field: Field) -> Any:
    metadata = {**(arrow.metadata or {}), FIELD_ID: b"%d" % field.id}
    return arrow.with_metadata(metadata)


# -- entries of earlier schemas -----------------------------------------------------------------


def reconciled(batch: Any, schema: LogSchema, where: str) -> Any:
    """A log entry's batch in the columns of `schema.stored`: matched by field id where the entry has ids, by
    name where no column has one; what is missing is null, what is unknown is left out.

    Raises `CorruptFile`: a key column is missing, or a column has another type than the table says.
    """
    wanted = schema.stored.arrow
    made = pa.RecordBatch.from_arrays(_columns(batch, schema, where), schema=wanted)
    for name in (*schema.key, TOMBSTONE):
        if made.column(name).null_count:
            raise CorruptFile(f"the log entry {where} has nulls in column `{name}`, which may have none")
    return made


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
            columns.append(_typed(batch.column(at), arrow, field, where))
        elif field.name == TOMBSTONE:
            columns.append(pa.repeat(False, batch.num_rows))
        elif field.name in schema.key:
            raise CorruptFile(
                f"the log entry {where} is missing primary key column `{field.name}` declared by the schema"
            )
        else:
            columns.append(pa.nulls(batch.num_rows, arrow.type))
    return columns


def _ids(schema: Any) -> dict[int, int]:
    """Position by field id, of the columns that carry one."""
    found = {}
    for at, field in enumerate(schema):
        text = (field.metadata or {}).get(FIELD_ID)
        if text is not None and text.isdigit():
            found[int(text)] = at
    return found


def _typed(array: Any, wanted: Any, field: Field, where: str) -> Any:
    if array.type.equals(wanted.type):
        return array
    if pa.types.is_struct(array.type) and pa.types.is_struct(wanted.type):
        return _struct(array, wanted, field, where)
    if _same_storage(array.type, wanted.type):
        return array.cast(wanted.type)  # a list's item or a map's entry under another name
    raise CorruptFile(
        f"in the log entry {where} column `{field.name}` is stored as {array.type} and the schema declares "
        f"{wanted.type}; a column's type cannot change on a table with a MemWAL"
    )


def _struct(array: Any, wanted: Any, field: Field, where: str) -> Any:
    by_id = _ids([array.type.field(at) for at in range(array.type.num_fields)])
    children = []
    for child in field.children:
        arrow = wanted.type.field(child.name)
        at = by_id.get(child.id, -1) if by_id else array.type.get_field_index(child.name)
        if at < 0:
            children.append(pa.nulls(len(array), arrow.type))
        else:
            children.append(_typed(array.field(at), arrow, child, where))
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(wanted.type), mask=mask)


def _same_storage(left: Any, right: Any) -> bool:
    return (
        left.id == right.id
        and left.num_fields == right.num_fields == 1
        and (left.value_type.equals(right.value_type))
        and pa.types.is_list(left) | pa.types.is_large_list(left)
    )
