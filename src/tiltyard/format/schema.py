"""Schema and fields of a table or data file, to and from Arrow (table format, section 11; file format, 3 and
4).

The tree is kept as frozen `Field` values with their ids. A `Schema` from the wire is interned by its bytes,
so that equal field lists share one Arrow schema, built once (D50).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyarrow import types

from tiltyard.errors import CorruptFile, FieldNotFound, InvalidInput, UnsupportedFeature, nearest
from tiltyard.format import wire
from tiltyard.format.logical_types import (
    EXTENSION_METADATA,
    EXTENSION_NAME,
    JSON_NAMES,
    encoding_number,
    extension_metadata,
    extension_of,
    leaf_text,
    leaf_type,
)
from tiltyard.format.protos import file_pb2
from tiltyard.format.version import FileVersion

SCHEMA_CACHE_ENTRIES = 64
MAX_DEPTH = 100
"""Levels of nesting that a schema may have."""

STRUCT_VECTOR = "fixed_size_list:struct:"
"""Logical type of a fixed-size list of structs, less its dimension."""

PRIMARY_KEY = "lance-schema:unenforced-primary-key"
PRIMARY_KEY_POSITION = "lance-schema:unenforced-primary-key:position"
CLUSTERING_KEY_POSITION = "lance-schema:unenforced-clustering-key:position"

_ONE_CHILD = ("list", "list.struct", "large_list", "large_list.struct", "map")
"""Logical types with one field below them: the item, or the entries."""

_TRUE = ("true", "1", "yes")
_NO_METADATA: Mapping[str, str] = {}
Path = str | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the tree. `parent_id` is -1 at the top; `metadata` includes the extension entries."""

    name: str
    id: int
    parent_id: int
    logical_type: str
    nullable: bool = True
    metadata: Mapping[str, str] = field(default_factory=dict)
    children: tuple[Field, ...] = ()
    extension_name: str = ""
    encoding: int = 0
    primary_key: bool = False
    primary_key_position: int = 0  # 1-based; 0 = unordered
    clustering_key: bool = False
    clustering_key_position: int = 0  # 1-based; 0 = none
    unknown: bytes = field(default=b"", repr=False)

    @property
    def is_packed(self) -> bool:
        """Whether a struct is stored as one column."""
        return self._says("lance-encoding:packed") or self._says("packed")

    @property
    def is_blob(self) -> bool:
        """Whether the column holds blob descriptors."""
        return self._says("lance-encoding:blob")

    def _says(self, key: str) -> bool:
        return bool(self.metadata) and self.metadata.get(key, "").lower() == "true"

    @property
    def is_leaf(self) -> bool:
        """Whether the field owns a column in files of version 2.1 and later."""
        return not self.children or self.is_packed or self.is_blob

    def leaves(self) -> list[Field]:
        """The fields that own columns, in pre-order (this one alone when it is a leaf)."""
        if self.is_leaf:
            return [self]
        return [leaf for child in self.children for leaf in child.leaves()]

    def walk(self) -> Iterator[Field]:
        """This field and all below it, in pre-order."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def arrow_type(self) -> Any:
        """The `pa.DataType` of the storage; extension types come back as their storage."""
        kind = self.logical_type
        if not self.children:
            return pa.struct([]) if kind == "struct" else leaf_type(kind)
        if kind == "struct":
            return pa.struct([child.arrow_field for child in self.children])
        inner = self.children[0]
        if kind in ("list", "list.struct"):
            return pa.list_(inner.arrow_field)
        if kind in ("large_list", "large_list.struct"):
            return pa.large_list(inner.arrow_field)
        if kind == "map" and len(inner.children) == 2 and inner.children[0].logical_type != "null":
            key, value = inner.children
            return pa.map_(key.arrow_field.with_nullable(False), value.arrow_field)
        if kind.startswith(STRUCT_VECTOR):
            dimension = kind[len(STRUCT_VECTOR) :]
            if dimension.isascii() and dimension.isdigit() and 0 < int(dimension) < 2**31:
                return pa.list_(inner.arrow_field, int(dimension))
        raise UnsupportedFeature(f"field {self.name!r}: logical type {kind!r} is not known to this version")

    @property
    def arrow_field(self) -> Any:
        """The `pa.Field`: name, storage type, nullability, metadata."""
        metadata = {key: value.encode("utf-8", "surrogateescape") for key, value in self.metadata.items()}
        return pa.field(
            self.name, self.arrow_type, self.nullable or self.logical_type == "null", metadata or None
        )

    def with_metadata(self, metadata: Mapping[str, str]) -> Field:
        """The same field with other metadata; the key markers follow from it (table format, section 11.4)."""
        return replace(self, metadata=dict(metadata), **_keys(metadata, self.name))


def _keys(metadata: Mapping[str, str], column: str) -> dict[str, Any]:
    """The markers of fields 12, 13 and 15 that the metadata asks for."""
    primary = _position(metadata, PRIMARY_KEY_POSITION, column)
    return {
        "primary_key": primary > 0 or metadata.get(PRIMARY_KEY, "").lower() in _TRUE,
        "primary_key_position": primary,
        "clustering_key_position": _position(metadata, CLUSTERING_KEY_POSITION, column),
    }


def _position(metadata: Mapping[str, str], key: str, column: str) -> int:
    text = metadata.get(key)
    if text is None:
        return 0
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 2**32:
        raise InvalidInput(f"column {column!r}: metadata {key!r} must be a number from 1, found {text!r}")
    return int(text)


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

    @property
    def arrow(self) -> Any:
        """The `pa.Schema`, built once."""
        if self._arrow is None:
            built = pa.schema([each.arrow_field for each in self.fields], metadata=self.metadata or None)
            object.__setattr__(self, "_arrow", built)
        return self._arrow

    @property
    def names(self) -> list[str]:
        """Names of the top-level fields."""
        return [each.name for each in self.fields]

    def leaves(self) -> list[Field]:
        """The fields that own columns in files of version 2.1 and later, in column order."""
        return [leaf for each in self.fields for leaf in each.leaves()]

    @property
    def column_types(self) -> tuple[tuple[str, ...], ...]:
        """Per column of files of version 2.1 and later the logical types in it: one, or those of a packed
        struct. Made once.
        """
        if self._column_types is None:
            object.__setattr__(self, "_column_types", tuple(map(column_type, self.leaves())))
        found: tuple[tuple[str, ...], ...] = self._column_types
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
            _headers_and_leaves(each, found)
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
        found = _child(self.fields, steps[:1]) if top is None else top
        route = [found]
        for depth, step in enumerate(steps[1:], 2):
            # Lists and maps are passed through: `points.x` means `points.item.x`.
            while not any(each.name == step for each in found.children) and _is_repeated(found):
                found = found.children[0]
                route.append(found)
            found = _child(found.children, steps[:depth])
            route.append(found)
        return route

    def _steps(self, path: Path) -> tuple[str, ...]:
        if isinstance(path, tuple):
            if not path:
                raise FieldNotFound("an empty path names no field")
            return path
        if self.has_column(path):
            return (path,)
        return _split(path)

    def project(self, paths: Iterable[Path]) -> Schema:
        """The schema of some fields, ids kept: top-level fields in the order asked for, nested ones in their
        own.

        A path to a struct, list or map keeps all below it. Raises `FieldNotFound`, listing the nearest names.
        """
        wanted: dict[int, dict[int, Any] | None] = {}
        for path in paths:
            _want(wanted, [each.id for each in self._resolve(path)])
        tops = {each.id: each for each in self.fields}
        return Schema(tuple(_pruned(tops[id], below) for id, below in wanted.items()), self.metadata)

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
        _check_names(schema.names, "the schema")
        for name in schema.names:
            if "." in name:
                raise InvalidInput(
                    f"column name {name!r} contains a dot; nested fields are written as a struct"
                )
        ids = iter(range(first_id, 2**31 - 1))
        fields = tuple(_from_arrow(each, -1, ids, "") for each in schema)
        metadata = {_text(key): value for key, value in (schema.metadata or {}).items()}
        made = cls(fields, metadata)
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
        return [_to_message(each) for each in self.walk()]

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
            object.__setattr__(self, "_wire", (_encode(messages, {}), _encode(messages, self.metadata)))
        made: tuple[bytes, bytes] = self._wire
        return made


def _encode(messages: list[Any], metadata: Mapping[str, bytes]) -> bytes:
    whole = file_pb2.Schema(fields=messages, metadata=metadata)
    return whole.SerializeToString(deterministic=True)


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
    return Schema(_tree(message.fields, unknown), dict(message.metadata))


def _tree(messages: Sequence[Any], unknown: bool) -> tuple[Field, ...]:
    """Fields from their flattened form: each belongs to the one whose id is its `parent_id`."""
    below: dict[int, list[Any]] = {}
    seen: set[int] = set()
    holder = None
    for message in messages:
        parent, id = message.parent_id, message.id
        if id < 0:
            # Files with blob v2 columns list the descriptor's parts without ids, right after their parent.
            if holder is None:
                raise CorruptFile(f"field {message.name!r} has id {id} and no parent")
            below.setdefault(holder, []).append(message)
            continue
        if parent != -1 and parent not in seen:
            raise CorruptFile(f"field {message.name!r} names parent {parent}, which does not come before it")
        if id in seen:
            raise CorruptFile(f"two fields have id {id}")
        seen.add(id)
        holder = id
        below.setdefault(parent, []).append(message)
    return tuple(_from_message(message, below, unknown, 1) for message in below.get(-1, ()))


def _from_message(message: Any, below: dict[int, list[Any]], unknown: bool, depth: int) -> Field:
    id = message.id
    if depth > MAX_DEPTH:
        raise CorruptFile(f"field {message.name!r} is nested more than {MAX_DEPTH} levels deep")
    metadata = _NO_METADATA
    if message.metadata:
        metadata = {key: value.decode("utf-8", "surrogateescape") for key, value in message.metadata.items()}
    extension = message.extension_name
    if extension and EXTENSION_NAME not in metadata:
        metadata = {**metadata, EXTENSION_NAME: extension}
    children = below.get(id) if id >= 0 else None
    kind = message.logical_type
    if (kind in _ONE_CHILD or kind.startswith(STRUCT_VECTOR)) and len(children or ()) != 1:
        raise CorruptFile(f"field {message.name!r} is a {kind} of {len(children or ())} fields, expected 1")
    return Field(
        message.name,
        id,
        message.parent_id,
        message.logical_type,
        message.nullable,
        metadata,
        tuple(_from_message(child, below, unknown, depth + 1) for child in children) if children else (),
        extension,
        message.encoding,
        message.primary_key,
        message.primary_key_position,
        message.clustering_key,
        message.clustering_key_position,
        wire.unknown_fields(message) if unknown else b"",
    )


def _to_message(each: Field) -> Any:
    message = file_pb2.Field(
        name=each.name,
        id=each.id,
        parent_id=each.parent_id,
        logical_type=each.logical_type,
        nullable=each.nullable,
        encoding=each.encoding,
        extension_name=each.extension_name,
        primary_key=each.primary_key,
        primary_key_position=each.primary_key_position,
        clustering_key=each.clustering_key,
        clustering_key_position=each.clustering_key_position,
    )
    for key, value in each.metadata.items():
        message.metadata[key] = value.encode("utf-8", "surrogateescape")
    if each.unknown:
        message.MergeFromString(each.unknown)
    return message


def _check_names(names: Sequence[str], where: str) -> None:
    seen = set()
    for name in names:
        if not name:
            raise InvalidInput(f"{where} has a column with an empty name; give every column a name")
        if "\0" in name:
            raise InvalidInput(f"{where} has a column named {name!r}; names must not contain NUL characters")
        if name in seen:
            raise InvalidInput(f"{where} has two columns named {name!r}; names must be unique")
        seen.add(name)


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "surrogateescape")


def _from_arrow(arrow: Any, parent: int, ids: Iterator[int], above: str) -> Field:
    column = f"{above}.{arrow.name}" if above else arrow.name
    id = next(ids)
    metadata = {_text(key): _text(value) for key, value in (arrow.metadata or {}).items()}
    name, storage = extension_of(arrow)
    if isinstance(arrow.type, pa.BaseExtensionType):
        metadata[EXTENSION_NAME] = name
        metadata[EXTENSION_METADATA] = extension_metadata(arrow)
    if name in JSON_NAMES:
        _check_json(storage, column)
        logical: str | None = "json"
        name = metadata[EXTENSION_NAME] = JSON_NAMES[0]
    else:
        logical = leaf_text(storage, column)
    children: tuple[Field, ...] = ()
    if logical is None:
        logical, children = _nested(storage, id, ids, column)
    keys = _keys(metadata, column)
    return Field(
        arrow.name,
        id,
        parent,
        logical,
        arrow.nullable,
        metadata,
        children,
        name,
        encoding_number(logical),
        **keys,
    )


def _check_json(storage: Any, column: str) -> None:
    if not (
        types.is_string(storage)
        or types.is_large_string(storage)
        or types.is_string_view(storage)
        or types.is_large_binary(storage)
    ):
        raise UnsupportedFeature(
            f"column {column!r}: JSON stored as {storage} has no place in the Lance format"
        )


def _nested(arrow: Any, id: int, ids: Iterator[int], column: str) -> tuple[str, tuple[Field, ...]]:
    if types.is_struct(arrow):
        below = [arrow.field(i) for i in range(arrow.num_fields)]
        _check_names([each.name for each in below], f"struct column {column!r}")
        return "struct", tuple(_from_arrow(each, id, ids, column) for each in below)
    if types.is_map(arrow):
        if arrow.keys_sorted:
            raise UnsupportedFeature(
                f"column {column!r}: {arrow} with sorted keys has no place in the Lance format"
            )
        entries = pa.field("entries", pa.struct([arrow.key_field, arrow.item_field]), False)
        return "map", (_from_arrow(entries, id, ids, column),)
    item = _from_arrow(arrow.value_field, id, ids, column)
    if types.is_fixed_size_list(arrow):
        return f"{STRUCT_VECTOR}{arrow.list_size}", (item,)
    large = "large_list" if types.is_large_list(arrow) else "list"
    return (f"{large}.struct" if item.logical_type == "struct" else large), (item,)


def column_type(leaf: Field) -> tuple[str, ...]:
    """The logical types in the column that a leaf owns: one, or those of a packed struct, in pre-order."""
    return tuple([each.logical_type for each in leaf.walk()])


def _headers_and_leaves(each: Field, found: list[Field]) -> None:
    found.append(each)
    if not each.is_leaf:
        for child in each.children:
            _headers_and_leaves(child, found)


def _is_repeated(each: Field) -> bool:
    return len(each.children) == 1 and each.logical_type != "struct"


def _child(among: Sequence[Field], steps: Sequence[str]) -> Field:
    """The field that the last step names."""
    *above, name = steps
    for each in among:
        if each.name == name:
            return each
    where = f"the struct {'.'.join(above)} has no field" if above else "there is no column"
    raise FieldNotFound(f"{where} {name!r}; {nearest(name, [each.name for each in among])}")


def _split(path: str) -> tuple[str, ...]:
    """The names of a dotted path; a part in backticks may contain dots, and two backticks stand for one."""
    steps: list[str] = []
    rest = path
    while True:
        if rest.startswith("`"):
            end = 1
            while (end := rest.find("`", end)) >= 0 and rest[end + 1 : end + 2] == "`":
                end += 2
            if end < 0 or rest[end + 1 : end + 2] not in ("", "."):
                raise FieldNotFound(f"path {path!r} has an unclosed backtick")
            steps.append(rest[1:end].replace("``", "`"))
            rest = rest[end + 1 :]
        else:
            name, _, _ = rest.partition(".")
            steps.append(name)
            rest = rest[len(name) :]
        if not rest:
            return tuple(steps)
        rest = rest[1:]


def _want(wanted: dict[int, dict[int, Any] | None], ids: list[int]) -> None:
    """Add a route of ids to the tree of wanted fields; `None` below an id means everything below it."""
    for id in ids[:-1]:
        below = wanted.setdefault(id, {})
        if below is None:
            return
        wanted = below
    wanted[ids[-1]] = None


def _pruned(each: Field, below: dict[int, Any] | None) -> Field:
    if below is None or each.is_leaf:
        return each
    if each.logical_type == "map":
        return each  # a map without its keys, or with a part of its values, is no map
    return replace(
        each, children=tuple(_pruned(child, below[child.id]) for child in each.children if child.id in below)
    )
