"""Appends through a handle that has not seen a rename: the field decides where the data belongs (case O15).

The newest version's names come first. Only where the data does not fit them, columns that the handle knows
under an old name go to the field which had it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from tiltyard.table.snapshot import Snapshot


def under_new_names(
    arrow: Any, batches: Iterator[Any], held: Snapshot | None, newest: Snapshot
) -> tuple[Any, Iterator[Any]]:
    """The data (`pa.Schema` and `pa.RecordBatch`es) with columns renamed since the version `held` under the
    names that they have in the newest one. Unchanged where all names are known, or a field is gone.
    """
    known = set(newest.schema.names)
    if held is None or held.version >= newest.version or known.issuperset(arrow.names):
        return arrow, batches
    now = {field.id: field.name for field in newest.schema.fields}
    renamed = {field.name: now[field.id] for field in held.schema.fields if field.id in now}
    names = [name if name in known else renamed.get(name, name) for name in arrow.names]
    if len(set(names)) < len(names):
        return arrow, batches  # the new name is there, too: refused as a column that the table lacks
    fields = [field.with_name(name) for field, name in zip(arrow, names, strict=True)]
    schema = pa.schema(fields, metadata=arrow.metadata)
    return schema, (batch.rename_columns(names) for batch in batches)
