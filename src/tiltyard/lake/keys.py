"""The key of a new table: columns declared in the schema as its primary key, as every writer of the format
knows it. The declaration alone enforces nothing; `set_unique_key` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tiltyard.dataset import arguments
from tiltyard.dataset.source import read_source
from tiltyard.errors import FieldNotFound, InvalidInput, SchemaMismatch, nearest
from tiltyard.format.field import PRIMARY_KEY, PRIMARY_KEY_POSITION

if TYPE_CHECKING:
    from tiltyard.dataset import LanceDataset


def key_columns(key: Any) -> list[str]:
    """The columns of a key as given by a caller: one name, or several. Raises `InvalidInput`."""
    if isinstance(key, str):
        return [arguments.text("key", key)]
    if not isinstance(key, Sequence) or not key:
        raise arguments.wrong("key", "the name of a column, or a list of them", key)
    names = [arguments.text(f"key[{at}]", each) for at, each in enumerate(key)]
    if len(set(names)) < len(names):
        raise InvalidInput(f"the key names a column twice: {', '.join(names)}")
    return names


def with_key(data: Any, schema: Any, key: Any) -> Any:
    """The data (or `pa.Schema`) with the key declared in its schema; its columns are never null.

    Raises `FieldNotFound`, and `InvalidInput` for a null in the key, when that comes by.
    """
    names = key_columns(key)
    if isinstance(data, pa.Schema):
        return _declared(data, names)
    found, batches = read_source(data, schema)
    return pa.RecordBatchReader.from_batches(*_keyed(found, batches, names))


def _keyed(schema: pa.Schema, batches: Any, names: list[str]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    declared = _declared(schema, names)

    def each() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for name in names:
                if batch.column(name).null_count:
                    raise InvalidInput(f"column {name!r} is part of the key and has a null")
            yield pa.RecordBatch.from_arrays(batch.columns, schema=declared)

    return declared, each()


def _declared(schema: pa.Schema, names: list[str]) -> pa.Schema:
    for name in names:
        if name not in schema.names:
            raise FieldNotFound(f"no column {name!r} to be the key; {nearest(name, schema.names)}")
    fields = []
    for field in schema:
        if field.name in names:
            position = str(names.index(field.name) + 1).encode()
            told = {PRIMARY_KEY.encode(): b"true", PRIMARY_KEY_POSITION.encode(): position}
            field = field.with_nullable(False).with_metadata({**(field.metadata or {}), **told})
        fields.append(field)
    return pa.schema(fields, schema.metadata)


def check_key(dataset: LanceDataset, key: Any) -> None:
    """Raise `SchemaMismatch` unless a table that was found has this key."""
    names = key_columns(key)
    found = [field.name for field in dataset._snapshot.schema.primary_key]
    if found != names:
        raise SchemaMismatch(
            f"the table at {dataset.uri} exists and has {_told(found)}, not {_told(names)}: open it with "
            "table(), or give it another name"
        )


def _told(names: list[str]) -> str:
    return f"the primary key {', '.join(names)}" if names else "no primary key"
