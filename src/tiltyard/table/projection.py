"""Which columns an operation reads and which it gives back, decided purely from the schema.

A projection names fields (whole, or leaves below them), the pseudo columns of table format section 13, and
computed columns. It holds the pruned field trees to read and one output per column of the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tiltyard.errors import FieldNotFound, InvalidInput, UnsupportedFeature
from tiltyard.format.schema import Field, Schema

if TYPE_CHECKING:
    from tiltyard.expr import Expr

ROW_ID = "_rowid"
ROW_ADDRESS = "_rowaddr"
ROW_OFFSET = "_rowoffset"
CREATED_AT = "_row_created_at_version"
UPDATED_AT = "_row_last_updated_at_version"

SYSTEM_COLUMNS = (ROW_ID, ROW_ADDRESS, ROW_OFFSET, CREATED_AT, UPDATED_AT)
SYSTEM_FIELDS: Mapping[str, Any] = {name: pa.field(name, pa.uint64()) for name in SYSTEM_COLUMNS}

NOTHING_FOUND: Mapping[str, Any] = MappingProxyType({})

ColumnsLike = Sequence[str] | Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class Output:
    """One column of the result.

    Exactly one source: `field` (position among `Projection.fields`, then `steps` of child names below it),
    `system` (name of a pseudo column), or `expression` (evaluated over everything that is read).
    """

    name: str
    arrow_field: Any
    field: int = -1
    steps: tuple[str, ...] = ()
    system: str = ""
    expression: Expr | None = None


@dataclass(frozen=True, slots=True)
class Projection:
    """What to read (`fields`, `system`) and what to give back (`outputs`, in the order of `schema`)."""

    fields: tuple[Field, ...]
    system: tuple[str, ...]
    outputs: tuple[Output, ...]
    schema: Any
    direct: bool
    """Whether the outputs are exactly `fields`, in order: nothing to take apart or compute."""

    @property
    def has_expressions(self) -> bool:
        return any(each.expression is not None for each in self.outputs)


def project(
    schema: Schema,
    columns: ColumnsLike = None,
    *,
    row_id: bool = False,
    row_address: bool = False,
    nested_as_struct: bool = False,
    found: Mapping[str, Any] = NOTHING_FOUND,
) -> Projection:
    """Resolve `columns`: names and dotted paths, or a map from result names to SQL expressions; None is all.

    A dotted path gives a column of that very name holding the leaf (a scan's way) or, with
    `nested_as_struct`, the pruned struct (a take's way). `row_id` and `row_address` add the pseudo columns at
    the end unless they are asked for by name. `found` are further pseudo columns, which the caller computes
    (Arrow fields by name): they may be named as well. Raises `FieldNotFound` for unknown names and
    `InvalidInput` for duplicates.
    """
    schema = schema.described
    if columns is None:
        wanted: list[tuple[str, str]] = [(name, name) for name in schema.names]
    elif isinstance(columns, Mapping):
        wanted = [(_text(name), _text(sql)) for name, sql in columns.items()]
    elif isinstance(columns, str):
        raise InvalidInput(
            f"columns must be a list of names or a map of expressions, found the text {columns!r}"
        )
    else:
        wanted = [(_text(name), _text(name)) for name in columns]
    computed = isinstance(columns, Mapping)
    for name, asked in ((ROW_ID, row_id), (ROW_ADDRESS, row_address)):
        if asked:
            wanted = [pair for pair in wanted if pair[0] != name]
            wanted.append((name, name))
    # A take gives a pseudo column as often as it is named, as the official package does.
    kept = SYSTEM_FIELDS if nested_as_struct else {}
    _refuse_duplicates([name for name, _ in wanted if name not in kept])
    return _Resolver(schema, nested_as_struct, computed, found).resolve(wanted)


class _Resolver:
    """Collects paths first, then places each output on the pruned trees."""

    def __init__(
        self, schema: Schema, nested_as_struct: bool, computed: bool, found: Mapping[str, Any]
    ) -> None:
        self._schema = schema
        self._pseudo = {**SYSTEM_FIELDS, **found} if found else SYSTEM_FIELDS
        self._nested_as_struct = nested_as_struct
        self._computed = computed

    def resolve(self, wanted: list[tuple[str, str]]) -> Projection:
        paths: list[tuple[str, ...]] = []
        system: list[str] = []
        sources: list[tuple[str, tuple[str, ...] | str | Expr]] = []
        for name, source in wanted:
            found = self._source(source)
            sources.append((name, found))
            if isinstance(found, tuple):
                paths.append(found)
            elif isinstance(found, str):
                system.append(found)
            else:
                for path in found.paths:
                    if path[0] in self._pseudo and not self._is_column(path[0]):
                        system.append(path[0])
                    else:
                        paths.append(path)
        pruned = self._schema.project(paths) if paths else Schema((), self._schema.metadata)
        fields = pruned.fields
        outputs = self._outputs(sources, fields)
        direct = len(outputs) == len(fields) and all(
            each.field == i and not each.steps and each.expression is None and not each.system
            for i, each in enumerate(outputs)
        )
        arrow = pa.schema([each.arrow_field for each in outputs], metadata=self._schema.metadata or None)
        return Projection(fields, tuple(dict.fromkeys(system)), tuple(outputs), arrow, direct)

    def _is_column(self, name: str) -> bool:
        return self._schema.has_column(name)

    def _source(self, text: str) -> tuple[str, ...] | str | Expr:
        if self._is_column(text):
            return (text,)
        if text in self._pseudo:
            return text
        try:
            return self._path(text)
        except FieldNotFound as error:
            if not self._computed:
                raise _hinted(error, text) from None
        from tiltyard.expr import parse_expression

        return parse_expression(text, readable_schema(self._schema, text, self._pseudo))

    def _path(self, text: str) -> tuple[str, ...]:
        field = self._schema.field(text)
        route = (*self._schema.ancestors(field.id), field)
        for above in route[:-1]:
            if above.logical_type != "struct":
                raise UnsupportedFeature(
                    f"column {text!r} lies inside the {above.logical_type} column {route[0].name!r}; read "
                    f"{route[0].name!r} whole"
                )
        return tuple(each.name for each in route)

    def _outputs(
        self, sources: list[tuple[str, tuple[str, ...] | str | Expr]], fields: tuple[Field, ...]
    ) -> list[Output]:
        positions = {each.name: i for i, each in enumerate(fields)}
        outputs: list[Output] = []
        structs: set[str] = set()
        for name, source in sources:
            if isinstance(source, str):
                outputs.append(Output(name, self._pseudo[source].with_name(name), system=source))
            elif not isinstance(source, tuple):
                outputs.append(Output(name, pa.field(name, source.type), expression=source))
            elif len(source) == 1 or (self._nested_as_struct and not self._computed):
                if source[0] in structs:
                    continue
                top = fields[positions[source[0]]]
                shown = name if len(source) == 1 else source[0]
                if self._nested_as_struct and not self._computed:
                    structs.add(source[0])
                outputs.append(Output(shown, top.arrow_field.with_name(shown), field=positions[source[0]]))
            else:
                outputs.append(self._leaf(name, source, fields[positions[source[0]]], positions[source[0]]))
        return outputs

    def _leaf(self, name: str, path: tuple[str, ...], top: Field, position: int) -> Output:
        field, nullable = top, top.nullable
        for step in path[1:]:
            field = next(each for each in field.children if each.name == step)
            nullable = nullable or field.nullable
        arrow = field.arrow_field.with_name(name).with_nullable(nullable)
        return Output(name, arrow, field=position, steps=path[1:])


def for_expression(schema: Schema, expression: Expr, pseudo: Mapping[str, Any] = SYSTEM_FIELDS) -> Projection:
    """What evaluating `expression` reads; the outputs are the columns of the batch it is given."""
    schema = schema.described
    paths = [path for path in expression.paths if path[0] not in pseudo or schema.has_column(path[0])]
    system = [path[0] for path in expression.paths if path[0] in pseudo and not schema.has_column(path[0])]
    pruned = schema.project(paths) if paths else Schema((), schema.metadata)
    outputs = [Output(each.name, each.arrow_field, field=i) for i, each in enumerate(pruned.fields)]
    outputs += [Output(name, pseudo[name], system=name) for name in dict.fromkeys(system)]
    arrow = pa.schema([each.arrow_field for each in outputs])
    return Projection(pruned.fields, tuple(dict.fromkeys(system)), tuple(outputs), arrow, not system)


def readable_schema(schema: Schema, text: str, pseudo: Mapping[str, Any] = SYSTEM_FIELDS) -> Any:
    """The Arrow schema that an expression may name: the table's, and the pseudo columns where the text has
    one.
    """
    arrow = schema.described.arrow
    if "_row" in text or pseudo is not SYSTEM_FIELDS:
        for name, field in pseudo.items():
            if name in text and arrow.get_field_index(name) < 0:
                arrow = arrow.append(field)
    return arrow


def prune(field: Field, leaves: frozenset[int]) -> Field | None:
    """The part of a tree that leads to the leaves with these ids; None if there are none."""
    if field.is_leaf:
        return field if field.id in leaves else None
    children = tuple(kept for child in field.children if (kept := prune(child, leaves)) is not None)
    if not children:
        return None
    return (
        field
        if len(children) == len(field.children) and children == field.children
        else _with(field, children)
    )


def _with(field: Field, children: tuple[Field, ...]) -> Field:
    return replace(field, children=children)


def _hinted(error: FieldNotFound, text: str) -> FieldNotFound:
    """The error with what to do where an expression stands in a list of names."""
    if text.replace(".", "").replace("`", "").isidentifier():
        return error
    return FieldNotFound(f"{error}; to compute a column give a map, as in columns={{'name': {text!r}}}")


def _text(name: Any) -> str:
    if not isinstance(name, str):
        raise InvalidInput(f"a column is named by text, found {name!r} of type {type(name).__name__}")
    return name


def _refuse_duplicates(names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidInput(f"column {name!r} is asked for twice; name each column of the result once")
        seen.add(name)
