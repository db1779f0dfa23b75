"""What a data file can hold in each version, and whether data fits a schema. Refusals name the column."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import types

from tiltyard.errors import InvalidInput, SchemaMismatch, UnsupportedFeature
from tiltyard.format.blobs import not_written
from tiltyard.format.schema import Field, Schema
from tiltyard.format.version import FileVersion

WRITTEN = (FileVersion.V2_1, FileVersion.V2_2)


def check_version(version: FileVersion) -> None:
    """Raise `UnsupportedFeature` for a version that is not written."""
    if version not in WRITTEN:
        raise UnsupportedFeature(
            f"data files of version {version.value} are not written; use 2.2 (the default) or 2.1. Where it "
            "is the table that has this version, each write says so: data_storage_version='2.2' of append, "
            "upsert, update, compact and optimize, .data_storage_version('2.2') of a merge; files of several "
            "versions may stand in one table"
        )


def check_schema(schema: Schema, version: FileVersion) -> None:
    """Raise `UnsupportedFeature` for a field that a file of this version cannot hold."""
    if not schema.fields:
        raise InvalidInput("a data file needs at least one column")
    for top in schema.fields:
        _check(top, top.name, version, nested=False)


def _check(field: Field, path: str, version: FileVersion, nested: bool) -> None:
    kind = field.logical_type
    if field.is_blob:
        raise not_written(path)
    if version is FileVersion.V2_1 and kind == "map":
        raise UnsupportedFeature(f"column {path!r}: map columns need file version 2.2, not 2.1")
    if version is FileVersion.V2_1 and kind.startswith("fixed_size_list:struct:"):
        raise UnsupportedFeature(
            f"column {path!r}: fixed-size lists of structs need file version 2.2, not 2.1"
        )
    if nested and kind == "struct" and not field.children:
        raise UnsupportedFeature(
            f"column {path!r}: a struct without fields can only be stored at the top level and without nulls"
        )
    if field.is_packed and field.children:
        if kind != "struct":  # the official writer takes it, and what it writes does not come back
            raise UnsupportedFeature(
                f"column {path!r}: lance-encoding:packed is for structs, not for {field.arrow_type}; leave "
                "the key out"
            )
        return
    for child in field.children:
        _check(child, f"{path}.{child.name}", version, nested=True)


def check_batch(schema: Schema, arrow: Any) -> list[int]:
    """For each field of the schema the position of its column in a batch with the Arrow schema `arrow`.

    Raises `SchemaMismatch` showing both sides unless every field is there once with the same type and
    nothing else is.
    """
    if arrow.equals(schema.arrow):  # what a fit to the table's schema brings
        return list(range(len(schema.fields)))
    names = arrow.names
    if sorted(names) != sorted(schema.names):
        given, wanted = (", ".join(map(repr, each)) for each in (names, schema.names))
        raise SchemaMismatch(f"the batch has columns {given}; the file has {wanted}")
    # Metadata of the batch's own fields is not looked at: the file's schema says what is written.
    bare = Schema.from_arrow(pa.schema([each.remove_metadata() for each in arrow]))
    positions = []
    for field in schema.fields:
        position = names.index(field.name)
        if not _fits(bare.fields[position], field):
            raise SchemaMismatch(
                f"column {field.name!r}: the batch has {arrow.field(position).type}, the file "
                f"{field.arrow_type}"
            )
        _refuse_json_text(arrow.field(position).type, field, field.name)
        positions.append(position)
    return positions


def _fits(given: Field, wanted: Field) -> bool:
    kinds = {given.logical_type, wanted.logical_type}
    if len(kinds) > 1 and kinds != {"json", "large_binary"}:  # the same storage, the name on one side only
        return False
    if len(given.children) != len(wanted.children):
        return False
    if wanted.logical_type == "struct" and [c.name for c in given.children] != [
        c.name for c in wanted.children
    ]:
        return False
    return all(map(_fits, given.children, wanted.children))


def _refuse_json_text(arrow: Any, field: Field, path: str) -> None:
    """JSON columns are written as binary JSON only; text would have to be converted."""
    if field.logical_type == "json":
        storage = getattr(arrow, "storage_type", arrow)
        if not types.is_large_binary(storage):
            raise UnsupportedFeature(
                f"column {path!r}: JSON text (arrow.json) is not converted yet; write it as string, or as "
                "lance.json with binary JSON in large_binary"
            )
        return
    storage = getattr(arrow, "storage_type", arrow)
    for index, child in enumerate(field.children):
        if types.is_struct(storage):
            below = storage.field(index).type
        elif types.is_map(storage):
            for entry, kind in zip(child.children, (storage.key_type, storage.item_type), strict=True):
                _refuse_json_text(kind, entry, f"{path}.{entry.name}")
            continue
        else:
            below = storage.value_type
        _refuse_json_text(below, child, f"{path}.{child.name}")
