"""Metadata of a table's schema and of its fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tiltyard.catalog.operations.opening import opened, refuse_branch, transaction_of
from tiltyard.errors import InvalidInput
from tiltyard.format.transaction import UpdateMap

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.catalog.names import Id


@dataclass(frozen=True, slots=True)
class FieldUpdate:
    """Metadata for one field, by its dotted path; `replace`: in the place of all that it has."""

    path: str
    metadata: Mapping[str, str]
    replace: bool = False


@dataclass(frozen=True, slots=True)
class Noted:
    """The version that the update made, and the metadata after it: of the schema, or of the fields named."""

    version: int
    transaction_id: str | None
    schema: dict[str, str] = field(default_factory=dict)
    fields: dict[str, dict[str, str]] = field(default_factory=dict)


def update_schema_metadata(
    catalog: Catalog, id: Id, values: Mapping[str, str], *, branch: Any = None
) -> Noted:
    """Set keys of the schema's metadata; without any nothing is committed."""
    refuse_branch(branch, "update_table_schema_metadata")
    table = opened(catalog, id)
    if not values:
        return Noted(table._held.version, None, table.schema_metadata)
    after = table.update_schema_metadata(values)
    return Noted(table._held.version, transaction_of(table), after)


def update_field_metadata(
    catalog: Catalog, id: Id, updates: Sequence[FieldUpdate], *, branch: Any = None
) -> Noted:
    """Set metadata of fields, all in one version. Raises `FieldNotFound`, and `InvalidInput` for no update
    and for two of one field.
    """
    refuse_branch(branch, "update_field_metadata")
    if not updates:
        raise InvalidInput("update_field_metadata needs 'updates': at least one field")
    table = opened(catalog, id)
    schema = table._held.schema
    by_id: dict[int, UpdateMap] = {}
    for each in updates:
        found = schema.field(each.path)
        if found.id in by_id:
            raise InvalidInput(f"'updates' names field {each.path!r} more than once")
        by_id[found.id] = UpdateMap(tuple(each.metadata.items()), each.replace)
    after = table._update(field_metadata_updates=by_id)
    fields = {each.path: dict(after.schema.field(each.path).metadata) for each in updates}
    return Noted(after.version, transaction_of(table), fields=fields)
