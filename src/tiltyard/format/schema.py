"""The schema of a table or data file: its fields with their ids, found by name, path or id, to and from Arrow
(table format, section 11; file format, 3 and 4).

A `Schema` from the wire is interned by its bytes, so that equal field lists share one Arrow schema, built
once (D50).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa

from tiltyard.errors import CorruptFile, FieldNotFound, InvalidInput
from tiltyard.format import wire
from tiltyard.format.blobs import described
from tiltyard.format.field import Field, column_type, headers_and_leaves
from tiltyard.format.field_paths import child, is_repeated, pruned, split, want
from tiltyard.format.protos import file_pb2
from tiltyard.format.schema_arrow import check_names, field_from_arrow, metadata_of
from tiltyard.format.schema_wire import encode_schema, message_of, tree_of
from tiltyard.format.version import FileVersion

SCHEMA_CACHE_ENTRIES = 64
Path = str | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Schema:
    """The fields of a table or file and the schema's own metadata."""

    fields: tuple[Field, ...]
    metadata: Mapping[str, bytes] = field(default_factory=dict)
    _arrow: Any = field(default=None, init=False, repr=False, compare=False)
    _by_id: Any = field(default=None, init=False, repr=False, compare=False)
    _by_name: Any = field(default=None, init=False, repr=False, compare=False)
    _column_types: Any = field(default=None, init=False, repr=False, compare=False)
    _wire: Any = field(default=None, init=False, repr=False, compare=False)
    _described: Any = field(default=None, init=False, repr=False, compare=False)

    @property
    def arrow(self) -> Any:
        """The `pa.Schema`, built once."""
        if self._arrow is None:
            built = pa.schema([each.arrow_field for each in self.fields], metadata=self.metadata or None)
            object.__setattr__(self, "_arrow", built)
        return self._arrow

    @property
    def described(self) -> Schema:
        """The schema of what a scan gives: descriptors in the place of blobs. Made once; this very schema
        where it has no blobs.
        """
        if self._described is None:
            fields = tuple([described(each) for each in self.fields])
            is_same = all(new is old for new, old in zip(fields, self.fields, strict=True))
            object.__setattr__(self, "_described", self if is_same else Schema(fields, self.metadata))
        found: Schema = self._described
        return found

    @property
    def names(self) -> list[str]:
        """Names of the top-level fields."""
        return [each.name for each in self.fields]

    def leaves(self) -> list[Field]:
        """The fields that own columns in files of version 2.1 and later, in column order."""
        return [leaf for each in self.fields for leaf in each.leaves()]

    def column_types(self, version: FileVersion) -> tuple[tuple[str, ...], ...]:
        """Per column of a file of `version` the logical types in it: one, or those of a packed struct. Made
        once.
        """
        if self._column_types is None:
            object.__setattr__(self, "_column_types", {})
        found: tuple[tuple[str, ...], ...] | None = self._column_types.get(version)
        if found is None:
            found = self._column_types[version] = tuple(map(column_type, self.columns(version)))
        return found

    def has_column(self, name: str) -> bool:
        """Whether a top-level field has this name."""
        return name in self._tops()

    def _tops(self) -> Mapping[str, Field]:
        if self._by_name is None:
            object.__setattr__(self, "_by_name", {each.name: each for each in reversed(self.fields)})
        found: Mapping[str, Field] = self._by_name
        return found

    def columns(self, version: FileVersion) -> list[Field]:
        """The fields that own columns in a file of `version`, in column order (file format, section 4)."""
        if version is not FileVersion.V2_0:
            return self.leaves()
        found: list[Field] = []
        for each in self.fields:
            headers_and_leaves(each, found)
        return found

    def walk(self) -> Iterator[Field]:
        """All fields in pre-order."""
        for each in self.fields:
            yield from each.walk()

    def by_id(self, id: int) -> Field:
        """The field of an id. Raises `FieldNotFound`."""
        found = self._ids().get(id)
        if found is None:
            raise FieldNotFound(f"no field has id {id}")
        return found

    def has_id(self, id: int) -> bool:
        """Whether a field of the schema has this id."""
        return id in self._ids()

    def _ids(self) -> Mapping[int, Field]:
        if self._by_id is None:
            object.__setattr__(self, "_by_id", {each.id: each for each in self.walk()})
        found: Mapping[int, Field] = self._by_id
        return found

    @property
    def max_id(self) -> int:
        """The greatest field id; -1 for a schema without fields."""
        return max((each.id for each in self.walk()), default=-1)

    def field(self, path: Path) -> Field:
        """The field at a path: a name, a dotted path, or a tuple of names. Raises `FieldNotFound`."""
        return self._resolve(path)[-1]

    def ancestors(self, id: int) -> tuple[Field, ...]:
        """The fields above the one with this id, outermost first."""
        above: list[Field] = []
        parent = self.by_id(id).parent_id
        while parent >= 0:
            above.append(self.by_id(parent))
            parent = above[-1].parent_id
        return tuple(reversed(above))

    def _resolve(self, path: Path) -> list[Field]:
        steps = self._steps(path)
        top = self._tops().get(steps[0])
        found = child(self.fields, steps[:1]) if top is None else top
        route = [found]
        for depth, step in enumerate(steps[1:], 2):
            # Lists and maps are passed through: `points.x` means `points.item.x`.
            while not any(each.name == step for each in found.children) and is_repeated(found):
                found = found.children[0]
                route.append(found)
            found = child(found.children, steps[:depth])
            route.append(found)
        return route

    def _steps(self, path: Path) -> tuple[str, ...]:
        if isinstance(path, tuple):
            if not path:
                raise FieldNotFound("an empty path names no field")
            return path
        if self.has_column(path):
            return (path,)
        return split(path)

    def project(self, paths: Iterable[Path]) -> Schema:
        """The schema of some fields, ids kept: top-level fields in the order asked for, nested ones in their
        own.

        A path to a struct, list or map keeps all below it. Raises `FieldNotFound`, listing the nearest names.
        """
        wanted: dict[int, dict[int, Any] | None] = {}
        for path in paths:
            want(wanted, [each.id for each in self._resolve(path)])
        tops = {each.id: each for each in self.fields}
        return Schema(tuple(pruned(tops[id], below) for id, below in wanted.items()), self.metadata)

    @property
    def primary_key(self) -> tuple[Field, ...]:
        """Fields of the primary key: those with positions by position, then the others by id."""
        keys = [each for each in self.walk() if each.primary_key]
        return tuple(sorted(keys, key=lambda each: (each.primary_key_position or 2**32, each.id)))

    # -- Arrow -----------------------------------------------------------------------------------

    @classmethod
    def from_arrow(cls, schema: Any, first_id: int = 0) -> Schema:
        """The fields of a `pa.Schema`, ids in pre-order from `first_id`.

        Raises `InvalidInput` for empty, duplicate or dotted column names and for a primary key that may be
        null, `UnsupportedFeature` for types that have no place in the format; both name the column.
        """
        check_names(schema.names, "the schema")
        for name in schema.names:
            if "." in name:
                raise InvalidInput(
                    f"column name {name!r} contains a dot; nested fields are written as a struct"
                )
        ids = iter(range(first_id, 2**31 - 1))
        fields = tuple(field_from_arrow(each, -1, ids, "") for each in schema)
        made = cls(fields, {key: value.encode() for key, value in metadata_of(schema, "the schema").items()})
        made.check_primary_key()
        return made

    def check_primary_key(self) -> None:
        """Raise `InvalidInput` unless each field of the primary key is a plain value that is never null."""
        for key in self.primary_key:
            route = (*self.ancestors(key.id), key)
            if any(each.nullable for each in route):
                raise InvalidInput(
                    f"primary key column {key.name!r} and all its ancestors must not be nullable"
                )
            if key.children or any(each.logical_type != "struct" for each in route[:-1]):
                raise InvalidInput(
                    f"primary key column {key.name!r} must be a plain value outside lists and maps"
                )

    # -- the wire --------------------------------------------------------------------------------

    @classmethod
    def from_messages(cls, messages: Sequence[Any], metadata: Mapping[str, bytes], path: str = "") -> Schema:
        """A schema from wire fields; interned by their bytes. Raises `CorruptFile` naming `path`."""
        whole = file_pb2.Schema(fields=messages, metadata=metadata)
        return decode_schema(whole.SerializeToString(deterministic=True), path)

    def to_messages(self) -> list[Any]:
        """The wire fields, flattened in pre-order."""
        return [message_of(each) for each in self.walk()]

    def encode(self) -> bytes:
        """The bytes of the wire schema (fields and metadata), made once."""
        return self._encoded()[1]

    def encode_fields(self) -> bytes:
        """The bytes of the fields alone as field 1 of a message, made once: how a wire schema and a manifest
        begin.
        """
        return self._encoded()[0]

    def _encoded(self) -> tuple[bytes, bytes]:
        if self._wire is None:
            messages = self.to_messages()
            object.__setattr__(
                self, "_wire", (encode_schema(messages, {}), encode_schema(messages, self.metadata))
            )
        made: tuple[bytes, bytes] = self._wire
        return made


def decode_schema(data: bytes, path: str = "") -> Schema:
    """A schema from the bytes of the wire schema; the same bytes give the same object while it is cached."""
    try:
        return _decode_cached(data)
    except CorruptFile as error:
        raise CorruptFile(str(error), path or None) from error


@lru_cache(maxsize=SCHEMA_CACHE_ENTRIES)
def _decode_cached(data: bytes) -> Schema:
    message = wire.parse(file_pb2.Schema, data, "", "the schema")
    unknown = wire.has_unknown_fields(message)
    return Schema(tree_of(message.fields, unknown), dict(message.metadata))


__all__ = ["Field", "Schema", "column_type", "decode_schema"]
