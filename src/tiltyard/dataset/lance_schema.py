"""The schema with field ids, as callers see it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tiltyard.dataset import arguments
from tiltyard.format.schema import Field, Schema


class LanceField:
    """A field of a `LanceSchema`."""

    def __init__(self, field: Field) -> None:
        self._field = field

    def name(self) -> str:
        """Its name."""
        return self._field.name

    def id(self) -> int:
        """Its id, which survives renaming."""
        return self._field.id

    def children(self) -> list[LanceField]:
        """Its child fields."""
        return [LanceField(each) for each in self._field.children]

    @property
    def metadata(self) -> dict[str, str]:
        """Its metadata."""
        return dict(self._field.metadata)

    def is_unenforced_primary_key(self) -> bool:
        """Whether it belongs to the primary key."""
        return self._field.primary_key

    def unenforced_primary_key_position(self) -> int | None:
        """Its 1-based position in the primary key, None when it has none."""
        return self._field.primary_key_position or None

    def to_arrow(self) -> Any:
        """The `pa.Field`."""
        return self._field.arrow_field

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LanceField) and self._field == other._field

    def __hash__(self) -> int:
        return hash((self._field.id, self._field.name))

    def __repr__(self) -> str:
        return (
            f"LanceField(name={self._field.name!r}, id={self._field.id}, type={self._field.logical_type!r})"
        )


class LanceSchema:
    """A table's schema with field ids; from a dataset, or numbered afresh from an Arrow schema."""

    def __init__(self, schema: Schema) -> None:
        self.inner = schema

    @staticmethod
    def from_pyarrow(schema: Any) -> LanceSchema:
        """Ids in pre-order from 0. Raises what making a table of this schema raises."""
        return LanceSchema(Schema.from_arrow(arguments.instance("schema", schema, pa.Schema)))

    def to_pyarrow(self) -> Any:
        """The `pa.Schema`."""
        return self.inner.arrow

    def fields(self) -> list[LanceField]:
        """Top-level fields."""
        return [LanceField(each) for each in self.inner.fields]

    def field(self, name: str) -> LanceField | None:
        """The field at a name or dotted path, None when there is none."""
        from tiltyard.errors import FieldNotFound

        try:
            return LanceField(self.inner.field(arguments.text("name", name)))
        except FieldNotFound:
            return None

    def unenforced_primary_key(self) -> list[LanceField]:
        """Fields of the primary key, in key order."""
        return [LanceField(each) for each in self.inner.primary_key]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LanceSchema) and self.inner == other.inner

    def __hash__(self) -> int:
        return hash(self.inner.encode())

    def __reduce__(self) -> Any:
        return _schema_from_bytes, (self.inner.encode(),)

    def __repr__(self) -> str:
        return f"LanceSchema({self.fields()!r})"


def _schema_from_bytes(data: bytes) -> LanceSchema:
    from tiltyard.format.schema import decode_schema

    return LanceSchema(decode_schema(data))
