"""How incoming data fits a table's schema: columns by name, missing nullable ones left out, types changed
where every value has an equal one in the table's type.

One rule: a value comes out equal, or it is refused. Most pairs of types show that by themselves (`widens`);
of others each value is looked at when it is converted (`may_hold`), such as whole numbers for a double. What
could only be rounded, read from text or given a time zone is the caller's to ask for, with `schema=`. The
answer is a *fit*, made once per incoming schema; applying it to a batch copies nothing unless a type changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyarrow import types

from tiltyard.errors import InvalidInput, SchemaMismatch, UnsupportedFeature, nearest
from tiltyard.format.blobs import not_written
from tiltyard.format.schema import Field, Schema
from tiltyard.format.version import FileVersion
from tiltyard.table.json_form import JSON_ADVICE, in_json_form, is_text, json_form
from tiltyard.table.projection import SYSTEM_FIELDS
from tiltyard.table.wording import counted

FLOAT_DIGITS = {16: 11, 32: 24, 64: 53}  # bits of an integer that a float of this width holds exactly
CHECKED_FLOAT_BITS = 32
"""Arrow checks integers that become floats of this width or more, and rounds those of less without a word."""
UNIT_ORDER = ("s", "ms", "us", "ns")


@dataclass(frozen=True, slots=True)
class Fit:
    """`schema`: the table's fields that the data brings, in the table's order. `sources[i]`: column of field
    i.
    """

    schema: Schema
    sources: tuple[int, ...]
    unchanged: bool
    """Whether every column has the field's very type."""

    def apply(self, batch: Any) -> Any:
        """The `pa.RecordBatch` with the columns of `schema`.

        Raises `SchemaMismatch` for values that the wider type cannot take and `InvalidInput` for nulls in a
        field that is not nullable, naming the column.
        """
        arrays = [batch.column(at) for at in self.sources]
        if not self.unchanged:
            arrays = [_converted(each, field) for each, field in zip(arrays, self.schema.fields, strict=True)]
        for array, field in zip(arrays, self.schema.fields, strict=True):
            refuse_nulls(array, field, field.name)
        if arrays:
            return pa.RecordBatch.from_arrays(arrays, schema=self.schema.arrow)
        from tiltyard.table.unit_reader import batch_of

        return batch_of([], self.schema.arrow, batch.num_rows)


def new_schema(arrow: Any, version: FileVersion) -> Schema:
    """The schema of a new table for data of this Arrow schema.

    Raises `InvalidInput` for empty, duplicate, dotted and reserved names, `UnsupportedFeature` for types
    without a place in files of `version`; both name the column.
    """
    for name in arrow.names:
        if name in SYSTEM_FIELDS:
            raise InvalidInput(f"column name {name!r} is reserved for a pseudo column; rename the column")
    schema = Schema.from_arrow(arrow)
    check_version(schema, version)
    return schema


def check_version(schema: Schema, version: FileVersion) -> None:
    """Refuse types that files of `version` cannot hold (case E15)."""
    if version is FileVersion.V2_2:
        return
    for field in schema.walk():
        if field.logical_type == "map":
            raise UnsupportedFeature(
                f"column {field.name!r} is a map, which needs data files of version 2.2; this write asks for "
                f"{version.value}: write with data_storage_version='2.2'"
            )


def fit(table: Schema, arrow: Any) -> Fit:
    """Match incoming columns with the table's fields by name.

    Raises `SchemaMismatch`, showing both schemas side by side, for unknown columns, missing columns that are
    not nullable, and types that do not widen safely.
    """
    _refuse_bad_names(arrow)
    problems: list[str] = []
    fields: list[Field] = []
    sources: list[int] = []
    for field in table.fields:
        at = arrow.get_field_index(field.name)
        if at < 0:
            if not field.nullable:
                problems.append(f"column {field.name!r} is missing and may not be null")
            continue
        fitted = _fit_field(field, arrow.field(at), field.name, problems)
        if fitted is not None:
            fields.append(fitted)
            sources.append(at)
    known = [field.name for field in table.fields]
    problems += [not_there(name, known) for name in arrow.names if name not in known]
    if problems:
        raise SchemaMismatch(f"{'; '.join(problems)}\n{side_by_side(table, arrow)}")
    schema = Schema(tuple(fields), table.metadata)
    unchanged = all(
        field.arrow_type.equals(arrow.field(at).type) for field, at in zip(fields, sources, strict=True)
    )
    return Fit(schema, tuple(sources), unchanged)


def not_there(name: str, known: Sequence[str]) -> str:
    """What to say of a column that the table has not: also which names are like it."""
    hint = nearest(name, known)
    return f"column {name!r} is not in the table" + (f" ({hint})" if hint.startswith("nearest") else "")


def _refuse_bad_names(arrow: Any) -> None:
    seen: set[str] = set()
    for name in arrow.names:
        if not name:
            raise InvalidInput("the data has a column with an empty name; give every column a name")
        if name in seen:
            raise InvalidInput(f"the data has two columns named {name!r}; names must be unique")
        seen.add(name)


def side_by_side(table: Schema, arrow: Any) -> str:
    """Both schemas as text, a column a line: the table's left, the data's right, by name."""
    rows = [("table", "data")]
    for field in table.fields:
        at = arrow.get_field_index(field.name)
        ours = f"{field.name}: JSON" if field.logical_type == "json" else _shown(field.arrow_field)
        rows.append((ours, "(missing)" if at < 0 else _shown(arrow.field(at))))
    known = {field.name for field in table.fields}
    rows += [("(missing)", _shown(each)) for each in arrow if each.name not in known]
    width = max(len(left) for left, _ in rows)
    return "\n".join(f"  {left:<{width}} | {right}" for left, right in rows)


def _shown(field: Any) -> str:
    return f"{field.name}: {field.type}{'' if field.nullable else ' not null'}"


def _fit_field(field: Field, given: Any, path: str, problems: list[str]) -> Field | None:
    """The part of the field's tree that the data brings; None when it does not fit (then a problem is
    noted).
    """
    if field.is_blob:
        raise not_written(path)
    kind = _storage(given.type)
    if field.logical_type == "struct" and field.children and types.is_struct(kind) and not field.is_packed:
        return _fit_struct(field, kind, path, problems)
    wanted = field.arrow_type
    kind = _storage(json_form(kind, field.arrow_field))
    if alike(kind, wanted) or widens(kind, wanted) or may_hold(kind, wanted):
        return field
    if field.logical_type == "json":
        problems.append(f"column {path!r} holds JSON, the data has {given.type}: {JSON_ADVICE}")
        return None
    problems.append(f"column {path!r} has type {wanted}, the data has {given.type}: {_advice(kind, wanted)}")
    return None


def _advice(given: Any, wanted: Any) -> str:
    """What to do about a type that does not fit."""
    if types.is_timestamp(wanted) and (
        types.is_date(given) or (types.is_timestamp(given) and (given.tz is None) != (wanted.tz is None))
    ):
        if wanted.tz is None:
            return "take the time zone off first, as the table means its times (pandas: tz_localize(None))"
        return f"say first which zone the times are of (pandas: tz_localize({wanted.tz!r}))"
    return "convert it first, or let schema= do it, as in schema=table.schema"


def _fit_struct(field: Field, kind: Any, path: str, problems: list[str]) -> Field | None:
    children: list[Field] = []
    before = len(problems)
    for child in field.children:
        at = kind.get_field_index(child.name)
        if at < 0:
            if not child.nullable:
                problems.append(f"column {path}.{child.name!r} is missing and may not be null")
            continue
        fitted = _fit_field(child, kind.field(at), f"{path}.{child.name}", problems)
        if fitted is not None:
            children.append(fitted)
    known = {child.name for child in field.children}
    given = [kind.field(i).name for i in range(kind.num_fields)]
    problems += [f"column '{path}.{name}' is not in the table" for name in given if name not in known]
    if len(problems) > before or not children:
        if len(problems) == before:
            problems.append(f"column {path!r}: the data brings none of the struct's fields")
        return None
    fitted_children = tuple(children)
    return field if fitted_children == field.children else replace(field, children=fitted_children)


def _storage(kind: Any) -> Any:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def alike(given: Any, wanted: Any) -> bool:
    """Whether two types hold the same values in the same layout: names of list items, nullability, order of
    dictionaries, views and extension types set aside, children of structs in any order.
    """
    given, wanted = _storage(given), _storage(wanted)
    if given.equals(wanted):
        return True
    if given.id != wanted.id:
        views = (types.is_string_view, types.is_string), (types.is_binary_view, types.is_binary)
        return any(is_view(given) and is_plain(wanted) for is_view, is_plain in views)
    if types.is_struct(wanted):
        names = {wanted.field(i).name for i in range(wanted.num_fields)}
        if {given.field(i).name for i in range(given.num_fields)} != names:
            return False
        return all(alike(given.field(name).type, wanted.field(name).type) for name in names)
    if types.is_map(wanted):
        return alike(given.key_type, wanted.key_type) and alike(given.item_type, wanted.item_type)
    if types.is_fixed_size_list(wanted):
        return given.list_size == wanted.list_size and alike(given.value_type, wanted.value_type)
    if types.is_list(wanted) or types.is_large_list(wanted):
        return alike(given.value_type, wanted.value_type)
    if types.is_dictionary(wanted):  # the format has no word for an ordered one
        return bool(given.index_type == wanted.index_type and given.value_type == wanted.value_type)
    return False


def widens(given: Any, wanted: Any) -> bool:
    """Whether every value of type `given` has an equal value of type `wanted`, so that an append may
    convert.
    """
    if types.is_null(given):
        return True
    if types.is_dictionary(given):
        return bool(given.value_type.equals(wanted)) or widens(given.value_type, wanted)
    if types.is_integer(given):
        return _integer_widens(given, wanted)
    if types.is_floating(given):
        return bool(types.is_floating(wanted) and given.bit_width < wanted.bit_width)
    if types.is_decimal(given):
        if not types.is_decimal(wanted) or given.scale > wanted.scale:
            return False
        return bool(given.precision - given.scale <= wanted.precision - wanted.scale)
    if is_text(given) or _is_bytes(given):
        return is_text(wanted) if is_text(given) else _is_bytes(wanted)
    if types.is_timestamp(given) and types.is_timestamp(wanted):
        return given.tz == wanted.tz and UNIT_ORDER.index(given.unit) < UNIT_ORDER.index(wanted.unit)
    if types.is_duration(given) and types.is_duration(wanted):
        return UNIT_ORDER.index(given.unit) < UNIT_ORDER.index(wanted.unit)
    if (types.is_list(given) or types.is_large_list(given)) and (
        types.is_list(wanted) or types.is_large_list(wanted)
    ):
        return alike(given.value_type, wanted.value_type) or widens(given.value_type, wanted.value_type)
    return False


def may_hold(given: Any, wanted: Any) -> bool:
    """Whether values of type `given` may have equal ones of type `wanted`; `convert` finds out, and refuses
    those that have not.
    """
    if types.is_dictionary(wanted):
        return _comes(given.value_type if types.is_dictionary(given) else given, wanted.value_type)
    if types.is_dictionary(given):
        return may_hold(given.value_type, wanted)
    if types.is_integer(given) and types.is_floating(wanted):
        return bool(wanted.bit_width >= CHECKED_FLOAT_BITS)
    if types.is_timestamp(wanted):
        if types.is_timestamp(given):
            return (given.tz is None) == (wanted.tz is None)  # another zone shows the same instants
        return bool(types.is_date(given) and wanted.tz is None)
    if types.is_duration(wanted):
        return bool(types.is_duration(given))
    if types.is_time(wanted):
        return bool(types.is_time(given))
    if _is_list(given) and _is_list(wanted):
        if types.is_fixed_size_list(given) and types.is_fixed_size_list(wanted):
            return bool(given.list_size == wanted.list_size) and _comes(given.value_type, wanted.value_type)
        return _comes(given.value_type, wanted.value_type)
    return False


def _comes(given: Any, wanted: Any) -> bool:
    return alike(given, wanted) or widens(given, wanted) or may_hold(given, wanted)


def _is_list(kind: Any) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _integer_widens(given: Any, wanted: Any) -> bool:
    signed = types.is_signed_integer(given)
    digits = given.bit_width - signed
    if types.is_floating(wanted):
        return bool(digits <= FLOAT_DIGITS[wanted.bit_width])
    if not types.is_integer(wanted):
        return False
    if types.is_signed_integer(wanted):
        return bool(digits <= wanted.bit_width - 1)
    return bool(not signed and digits <= wanted.bit_width)


def _is_bytes(kind: Any) -> bool:
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind))


def _converted(array: Any, field: Field) -> Any:
    wanted = field.arrow_type
    array = plain(array)
    if array.type.equals(wanted):
        return array
    array = in_json_form(array, field.arrow_field, field.name)
    try:
        return convert(array, wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaMismatch(
            f"column {field.name!r}: cannot bring {array.type} to {wanted} without loss: {error}; "
            "change the values first if they may be changed"
        ) from error


def plain(array: Any) -> Any:
    """The array with every extension type replaced by its storage."""
    if isinstance(array, pa.ExtensionArray):
        return plain(array.storage)
    return array


def convert(array: Any, wanted: Any) -> Any:
    """The array as type `wanted`, which is alike or may hold its values: structs by child name, lists by
    their items. Raises `pa.ArrowInvalid` for a value that has no equal one.
    """
    array = plain(array)
    if array.type.equals(wanted):
        return array
    if types.is_struct(wanted) and types.is_struct(array.type):
        # Nulls go down first: what stands under a null struct is nobody's value, and no reason to refuse.
        parts = (
            array.flatten() if array.null_count else [array.field(at) for at in range(array.type.num_fields)]
        )
        children = [convert(parts[array.type.get_field_index(each.name)], each.type) for each in wanted]
        mask = None if array.null_count == 0 else array.is_null()
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=mask)
    if types.is_dictionary(wanted):
        coded = array if types.is_dictionary(array.type) else array.dictionary_encode()
        return pa.DictionaryArray.from_arrays(
            coded.indices.cast(wanted.index_type),
            convert(coded.dictionary, wanted.value_type),
            ordered=wanted.ordered,
            safe=False,
        )
    return array.cast(wanted)


def refuse_nulls(array: Any, field: Field, path: str) -> None:
    """Raise `InvalidInput` for a null where the schema forbids one, at any depth; what nulls hide does not
    count.
    """
    if not field.nullable and array.null_count:
        raise InvalidInput(
            f"column {path!r} has {counted(array.null_count, 'null value')}, but the schema says that it is "
            "not nullable"
        )
    if not field.children or _all_nullable(field):
        return
    if types.is_struct(array.type):
        flat = array if array.null_count == 0 else array.drop_null()
        for child in field.children:
            at = array.type.get_field_index(child.name)
            if at >= 0:
                refuse_nulls(flat.field(at), child, f"{path}.{child.name}")
    elif types.is_map(array.type):
        entries = field.children[0]
        whole = array if array.null_count == 0 else array.drop_null()
        for child, values in zip(entries.children, (whole.keys, whole.items), strict=True):
            refuse_nulls(values, child, f"{path}.{child.name}")
    elif isinstance(array, (pa.ListArray, pa.LargeListArray, pa.FixedSizeListArray)):
        refuse_nulls(array.flatten(), field.children[0], f"{path}.{field.children[0].name}")


def _all_nullable(field: Field) -> bool:
    """Whether nothing below can fail; map keys are never null in Arrow, which checks them itself."""
    if field.logical_type == "map":
        value = field.children[0].children[1]
        return value.nullable and _all_nullable(value)
    return all(child.nullable and _all_nullable(child) for child in field.children)
