"""A merge's settings bound to one version of the table and the columns that the source brings: names found,
types fitted, expressions parsed. Everything that can be wrong without looking at rows is refused here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tiltyard.errors import FieldNotFound, SchemaMismatch
from tiltyard.format.schema import Schema
from tiltyard.table import assignments
from tiltyard.table.fit import Fit, fit, not_there, side_by_side
from tiltyard.table.merge.keys import Key, in_any_case, resolve_key
from tiltyard.table.merge.settings import Matched, Settings, WriteMode, cannot_rewrite_columns
from tiltyard.table.unique import unique_key

if TYPE_CHECKING:
    from tiltyard.expr import Expr
    from tiltyard.format.schema import Field
    from tiltyard.table.snapshot import Snapshot

SOURCE = "source"
TARGET = "target"
QUALIFIED = "a merge's columns are written source.name and target.name"


@dataclass(frozen=True, slots=True)
class Bound:
    """`names`: the source's columns as the table spells them. `fit`: those that the table has, fitted to it.
    `extras`: those that it has not, which only expressions may read. `is_partial`: whether the table has
    columns or nested fields that the source lacks.
    """

    settings: Settings
    schema: Schema
    key: Key
    names: tuple[str, ...]
    fit: Fit
    extras: tuple[str, ...]
    is_partial: bool
    scope: Any
    condition: Expr | None
    updates: assignments.Assignments | None
    by_source: Expr | None
    unique: Key | None
    """The key that the table's config declares unique."""

    @property
    def is_unique(self) -> bool:
        """Whether rows are matched on the unique key."""
        return self.unique is not None and set(self.unique.field_ids) == set(self.key.field_ids)

    @property
    def changed_fields(self) -> tuple[int, ...]:
        """Ids of the fields that updated rows may have other values in."""
        if self.updates is not None:
            return self.updates.field_ids
        return tuple(field.id for field in self.fit.schema.walk())

    @property
    def columns_to_rewrite(self) -> tuple[Field, ...]:
        """The top-level columns that an update writes anew where it rewrites columns; empty where it cannot:
        for a struct of which the source has a part, or nothing besides the key.
        """
        if self.updates is not None:
            return self.updates.columns
        whole = {field.id: field for field in self.schema.fields}
        keys = {path[0] for path in self.key.paths if len(path) == 1}
        brought = [field for field in self.fit.schema.fields if field.name not in keys]
        if any(whole[field.id] != field or field.is_blob for field in brought):
            return ()
        return tuple(brought)


def bind(snapshot: Snapshot, settings: Settings, source: Any) -> Bound:
    """Bind the settings for a source of this `pa.Schema`.

    Raises `InvalidInput`, `FieldNotFound`, `SchemaMismatch` (both schemas side by side), `InvalidExpression`
    and `UnsupportedFeature`; see the module.
    """
    settings.check()
    schema = snapshot.schema
    key = resolve_key(schema, settings.on)
    names = tuple(_spelled(schema, name) for name in source.names)
    renamed = pa.schema([field.with_name(name) for field, name in zip(source, names, strict=True)])
    brought = frozenset(names)
    extras = tuple(name for name in names if not schema.has_column(name)) if settings.updates else ()
    known = Schema(tuple(field for field in schema.fields if field.name in brought), schema.metadata)
    fitting = pa.schema([field for field in renamed if field.name not in extras])
    if not settings.updates:
        _refuse_unknown(schema, renamed)
    fitted = fit(known, fitting)
    if extras:  # positions are those of the whole source
        fitted = Fit(
            fitted.schema, tuple(names.index(f.name) for f in fitted.schema.fields), fitted.unchanged
        )
    _check_key(key, fitted, schema, renamed)
    is_partial = fitted.schema.fields != schema.fields
    if settings.insert and is_partial:
        _check_insertable(schema, brought, renamed)
    scope = _scope(schema, fitted, renamed, extras)
    condition = _predicate(settings.condition, scope) if settings.matched is Matched.UPDATE else None
    updates = None
    if settings.updates and settings.matched is Matched.UPDATE:
        try:
            updates = assignments.bind(schema, settings.updates, scope)
        except FieldNotFound as error:
            raise FieldNotFound(f"{error}; {QUALIFIED}") from error
    by_source = _predicate(settings.by_source_condition, schema.arrow)
    unique = unique_key(schema, snapshot.manifest.config)
    bound = Bound(
        settings, schema, key, names, fitted, extras, is_partial, scope, condition, updates, by_source, unique
    )
    if settings.write_mode is WriteMode.COLUMNS:
        _check_columns(bound)
    return bound


def _spelled(schema: Schema, name: str) -> str:
    """A column of the source as the table spells it: exact, or else the only one that differs in case."""
    if schema.has_column(name):
        return name
    found = in_any_case((name,), schema.fields)
    return name if found is None else found.name


def _refuse_unknown(schema: Schema, given: Any) -> None:
    unknown = [name for name in given.names if not schema.has_column(name)]
    if unknown:
        known = [field.name for field in schema.fields]
        problems = "; ".join(not_there(name, known) for name in unknown)
        raise SchemaMismatch(f"{problems}\n{side_by_side(schema, given)}")


def _check_key(key: Key, fitted: Fit, schema: Schema, given: Any) -> None:
    for field, name in zip(key.fields, key.names, strict=True):
        if not fitted.schema.has_id(field.id):
            raise SchemaMismatch(
                f"the source lacks the key column {name!r} that rows are matched on\n"
                f"{side_by_side(schema, given)}"
            )


def _check_insertable(schema: Schema, brought: frozenset[str], given: Any) -> None:
    missing = [field.name for field in schema.fields if not field.nullable and field.name not in brought]
    if missing:
        raise SchemaMismatch(
            f"Cannot insert rows with a partial-schema source: target column(s) {missing} are non-nullable "
            "and not provided by the source. Either add them to the source or leave "
            f"when_not_matched_insert_all out\n{side_by_side(schema, given)}"
        )


def _scope(schema: Schema, fitted: Fit, given: Any, extras: Sequence[str]) -> Any:
    """The schema that expressions name columns in: two structs, `source` and `target`."""
    source = [*fitted.schema.arrow, *(given.field(name) for name in extras)]
    return pa.schema([pa.field(SOURCE, pa.struct(source)), pa.field(TARGET, pa.struct(list(schema.arrow)))])


def _predicate(text: str | None, scope: Any) -> Expr | None:
    if text is None:
        return None
    from tiltyard.expr import parse_predicate

    try:
        return parse_predicate(text, scope)
    except FieldNotFound as error:
        if SOURCE not in scope.names:
            raise
        raise FieldNotFound(f"{error}; {QUALIFIED}") from error


def _check_columns(bound: Bound) -> None:
    if bound.updates is None and not bound.is_partial:
        raise cannot_rewrite_columns("the source covers every dataset column, so there is nothing to skip")
    if not bound.columns_to_rewrite:
        raise cannot_rewrite_columns(
            "the source carries no whole column besides the join key (a part of a struct is none)"
        )
