"""`LanceOperation`: what a transaction does, in the form that callers make, and to and from the format's
values.
"""

from __future__ import annotations

import warnings
from abc import ABC
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tiltyard.dataset import arguments
from tiltyard.dataset.lance_schema import LanceSchema
from tiltyard.dataset.metadata import DataFile, FragmentMetadata
from tiltyard.errors import UnsupportedFeature
from tiltyard.format import transaction as facts
from tiltyard.format.index_metadata import IndexMetadata, TypedBytes
from tiltyard.format.schema import Schema

MAX_FIELD_ID = (1 << 31) - 1
_UPDATE_MODES = ("rewrite_rows", "rewrite_columns")


class LanceOperation:
    """The kinds of operation that `LanceDataset.commit` takes and `read_transaction` gives."""

    class BaseOperation(ABC):  # noqa: B024 (a marker that all operations share)
        """Base of all operations."""

    @dataclass
    class Overwrite(BaseOperation):
        """Put these fragments, with this schema, in the place of everything; or make a table of them."""

        new_schema: Any
        fragments: Iterable[FragmentMetadata]
        initial_bases: list[Any] | None = None

        def __post_init__(self) -> None:
            self.fragments = _fragments("fragments", self.fragments)
            _check_schema("new_schema", self.new_schema)

    @dataclass
    class Append(BaseOperation):
        """Add these fragments at the end."""

        fragments: Iterable[FragmentMetadata]

        def __post_init__(self) -> None:
            self.fragments = _fragments("fragments", self.fragments)

    @dataclass
    class Delete(BaseOperation):
        """Replace fragments by copies with more deleted rows, and remove others whole."""

        updated_fragments: Iterable[FragmentMetadata]
        deleted_fragment_ids: Iterable[int]
        predicate: str

        def __post_init__(self) -> None:
            self.updated_fragments = _fragments("updated_fragments", self.updated_fragments)
            self.deleted_fragment_ids = arguments.wholes("deleted_fragment_ids", self.deleted_fragment_ids)
            self.predicate = arguments.text("predicate", self.predicate)

    @dataclass
    class Update(BaseOperation):
        """Rows or columns rewritten: fragments removed, changed and added."""

        removed_fragment_ids: list[int] = field(default_factory=list)
        updated_fragments: list[FragmentMetadata] = field(default_factory=list)
        new_fragments: list[FragmentMetadata] = field(default_factory=list)
        fields_modified: list[int] = field(default_factory=list)
        fields_for_preserving_frag_bitmap: list[int] = field(default_factory=list)
        update_mode: str = ""
        updated_fragment_offsets: dict[int, bytes] | None = None
        inserted_rows: Any = field(default=None, repr=False, compare=False)
        """What a merge recorded of the keys it inserts; it goes from `execute_uncommitted` to `commit`."""

        def __post_init__(self) -> None:
            self.removed_fragment_ids = arguments.wholes("removed_fragment_ids", self.removed_fragment_ids)
            self.updated_fragments = _fragments("updated_fragments", self.updated_fragments)
            self.new_fragments = _fragments("new_fragments", self.new_fragments)
            self.fields_modified = _field_ids("fields_modified", self.fields_modified)
            self.fields_for_preserving_frag_bitmap = _field_ids(
                "fields_for_preserving_frag_bitmap", self.fields_for_preserving_frag_bitmap
            )
            self.update_mode = arguments.one_of("update_mode", self.update_mode, "", *_UPDATE_MODES)
            if self.updated_fragment_offsets is not None:
                self.updated_fragment_offsets = _offsets(self.updated_fragment_offsets)
            if self.inserted_rows is not None:
                arguments.instance("inserted_rows", self.inserted_rows, facts.KeyExistenceFilter)

    @dataclass
    class Merge(BaseOperation):
        """Replace the list of fragments and the schema, for new or changed columns."""

        fragments: Iterable[FragmentMetadata]
        schema: Any
        preserves_nullability: bool = False

        def __post_init__(self) -> None:
            self.fragments = _fragments("fragments", self.fragments)
            _check_schema("schema", self.schema)
            if isinstance(self.schema, pa.Schema):
                warnings.warn(
                    "a pyarrow.Schema given to Merge has no field ids: give it the LanceSchema that merge or "
                    "merge_columns of a fragment gave",
                    DeprecationWarning,
                    stacklevel=3,
                )
            self.preserves_nullability = arguments.flag("preserves_nullability", self.preserves_nullability)

    @dataclass
    class Restore(BaseOperation):
        """Bring an old version back."""

        version: int

        def __post_init__(self) -> None:
            self.version = arguments.whole("version", self.version)

    @dataclass
    class RewriteGroup:
        """Fragments and those that take their place."""

        old_fragments: Iterable[FragmentMetadata]
        new_fragments: Iterable[FragmentMetadata]

        def __post_init__(self) -> None:
            self.old_fragments = _fragments("old_fragments", self.old_fragments)
            self.new_fragments = _fragments("new_fragments", self.new_fragments)

    @dataclass
    class RewrittenIndex:
        """An index segment and the one that takes its place."""

        old_id: str
        new_id: str
        new_details_type_url: str
        new_details_value: bytes
        new_index_version: int

        def __post_init__(self) -> None:
            for name in ("old_id", "new_id", "new_details_type_url"):
                arguments.text(name, getattr(self, name))
            self.new_details_value = bytes(
                arguments.instance("new_details_value", self.new_details_value, bytes)
            )
            self.new_index_version = arguments.whole(
                "new_index_version", self.new_index_version, 0, arguments.MAX_U32
            )

    @dataclass
    class Rewrite(BaseOperation):
        """The same rows in other fragments."""

        groups: Iterable[LanceOperation.RewriteGroup]
        rewritten_indices: Iterable[LanceOperation.RewrittenIndex]

        def __post_init__(self) -> None:
            self.groups = arguments.items("groups", self.groups, LanceOperation.RewriteGroup)
            self.rewritten_indices = arguments.items(
                "rewritten_indices", self.rewritten_indices, LanceOperation.RewrittenIndex
            )

    @dataclass
    class CreateIndex(BaseOperation):
        """Add and remove index segments."""

        new_indices: list[Any]
        removed_indices: list[Any]

        def __post_init__(self) -> None:
            self.new_indices = arguments.items("new_indices", self.new_indices, object)
            self.removed_indices = arguments.items("removed_indices", self.removed_indices, object)

    @dataclass
    class DataReplacementGroup:
        """A data file that takes the place of columns of a fragment."""

        fragment_id: int
        new_file: DataFile

        def __post_init__(self) -> None:
            self.fragment_id = arguments.whole("fragment_id", self.fragment_id)
            arguments.instance("new_file", self.new_file, DataFile)

    @dataclass
    class DataReplacement(BaseOperation):
        """Replace columns of fragments by other files."""

        replacements: list[LanceOperation.DataReplacementGroup]

        def __post_init__(self) -> None:
            self.replacements = arguments.items(
                "replacements", self.replacements, LanceOperation.DataReplacementGroup
            )

    @dataclass
    class Project(BaseOperation):
        """Change the schema only: drop, rename, reorder."""

        schema: Any
        preserves_nullability: bool = False

        def __post_init__(self) -> None:
            _check_schema("schema", self.schema)
            self.preserves_nullability = arguments.flag("preserves_nullability", self.preserves_nullability)

    @dataclass
    class Clone(BaseOperation):
        """The first version of a table that was cloned from another."""

        is_shallow: bool
        ref_name: str | None
        ref_version: int
        ref_path: str
        branch_name: str | None = None

        def __post_init__(self) -> None:
            self.is_shallow = arguments.flag("is_shallow", self.is_shallow)
            self.ref_name = arguments.maybe_text("ref_name", self.ref_name)
            self.ref_version = arguments.whole("ref_version", self.ref_version)
            self.ref_path = arguments.text("ref_path", self.ref_path)
            self.branch_name = arguments.maybe_text("branch_name", self.branch_name)

    @dataclass
    class UpdateMap:
        """Changes of a map: a value of None deletes the key; `replace` empties the map first."""

        updates: dict[str, str | None]
        replace: bool = False

        def __post_init__(self) -> None:
            self.updates = arguments.text_updates("updates", self.updates)
            self.replace = arguments.flag("replace", self.replace)

    @dataclass
    class UpdateConfig(BaseOperation):
        """Change config, table metadata, schema metadata or metadata of fields (by field id)."""

        config_updates: LanceOperation.UpdateMap | None = None
        table_metadata_updates: LanceOperation.UpdateMap | None = None
        schema_metadata_updates: LanceOperation.UpdateMap | None = None
        field_metadata_updates: dict[int, LanceOperation.UpdateMap] | None = None

        def __post_init__(self) -> None:
            for name in ("config_updates", "table_metadata_updates", "schema_metadata_updates"):
                setattr(self, name, _update_map(name, getattr(self, name)))
            if self.field_metadata_updates is not None:
                self.field_metadata_updates = _field_updates(self.field_metadata_updates)

    @dataclass
    class Other(BaseOperation):
        """An operation that has no form of its own here; it can be read and committed again, not made."""

        name: str
        fact: Any = field(repr=False)

        def __post_init__(self) -> None:
            self.name = arguments.text("name", self.name)
            if not isinstance(self.fact, facts.Operation):
                raise arguments.wrong("fact", "an operation that was read from a table", self.fact)


# -- checks of what callers give -----------------------------------------------------------------


def _fragments(name: str, fragments: Any) -> list[FragmentMetadata]:
    return arguments.items(name, fragments, FragmentMetadata)


def _field_ids(name: str, ids: Any) -> list[int]:
    return arguments.wholes(name, ids, 0, MAX_FIELD_ID)


def _check_schema(name: str, schema: Any) -> None:
    if not isinstance(schema, (pa.Schema, LanceSchema)):
        raise arguments.wrong(name, "a LanceSchema or a pyarrow schema", schema)


def _offsets(value: Any) -> dict[int, bytes]:
    name = "updated_fragment_offsets"
    if not isinstance(value, Mapping):
        raise arguments.wrong(name, "a map from fragment ids to bitmaps", value)
    return {
        arguments.whole(f"a key of {name}", id): bytes(arguments.instance(f"{name}[{id}]", each, bytes))
        for id, each in value.items()
    }


def _update_map(name: str, value: Any) -> LanceOperation.UpdateMap | None:
    if value is None or isinstance(value, LanceOperation.UpdateMap):
        if value is not None:
            value.__post_init__()
        return value
    return LanceOperation.UpdateMap(arguments.text_updates(name, value))


def _field_updates(value: Any) -> dict[int, LanceOperation.UpdateMap]:
    name = "field_metadata_updates"
    if not isinstance(value, Mapping):
        raise arguments.wrong(name, "a map from field ids to updates", value)
    found = {}
    for id, each in value.items():
        number = arguments.whole(f"a key of {name}", id, 0, MAX_FIELD_ID)
        update = _update_map(f"{name}[{number}]", each)
        if update is None:
            raise arguments.wrong(f"{name}[{number}]", "an UpdateMap", each)
        found[number] = update
    return found


# -- to the format's values ----------------------------------------------------------------------


def schema_to_fact(schema: Any) -> Schema:
    """A format schema from a `LanceSchema` (ids kept) or a `pa.Schema` (numbered from 0)."""
    _check_schema("a schema", schema)
    return schema.inner if isinstance(schema, LanceSchema) else Schema.from_arrow(schema)


def _facts(fragments: Iterable[FragmentMetadata]) -> Any:
    return tuple(each.to_fragment() for each in fragments)


def _map(update: LanceOperation.UpdateMap | None) -> facts.UpdateMap | None:
    return None if update is None else facts.UpdateMap(tuple(update.updates.items()), update.replace)


def _overwrite(op: LanceOperation.Overwrite) -> facts.Operation:
    if op.initial_bases:
        raise UnsupportedFeature("initial_bases are not supported by this version of tiltyard")
    return facts.Overwrite(_facts(op.fragments), schema_to_fact(op.new_schema))


def _update(op: LanceOperation.Update) -> facts.Operation:
    return facts.Update(
        removed_fragment_ids=tuple(op.removed_fragment_ids),
        updated_fragments=_facts(op.updated_fragments),
        new_fragments=_facts(op.new_fragments),
        fields_modified=tuple(op.fields_modified),
        fields_for_preserving_frag_bitmap=tuple(op.fields_for_preserving_frag_bitmap),
        update_mode=_UPDATE_MODES.index(op.update_mode) if op.update_mode else 0,
        inserted_rows=op.inserted_rows,
        updated_fragment_offset_bitmaps=dict(op.updated_fragment_offsets or {}),
    )


def _rewrite(op: LanceOperation.Rewrite) -> facts.Operation:
    for group in op.groups:
        group.__post_init__()
    for index in op.rewritten_indices:
        index.__post_init__()
    groups = tuple(
        facts.RewriteGroup(_facts(each.old_fragments), _facts(each.new_fragments)) for each in op.groups
    )
    rewritten = tuple(
        facts.RewrittenIndex(
            each.old_id,
            each.new_id,
            TypedBytes(each.new_details_type_url, each.new_details_value),
            each.new_index_version,
        )
        for each in op.rewritten_indices
    )
    return facts.Rewrite(groups, rewritten)


def _data_replacement(op: LanceOperation.DataReplacement) -> facts.Operation:
    for each in op.replacements:
        each.__post_init__()
    return facts.DataReplacement(
        tuple(facts.ReplacementFile(each.fragment_id, each.new_file.to_fact()) for each in op.replacements)
    )


def _create_index(op: LanceOperation.CreateIndex) -> facts.Operation:
    for each in (*op.new_indices, *op.removed_indices):
        if not isinstance(each, IndexMetadata):
            raise UnsupportedFeature(
                f"an index of type {type(each).__name__} cannot be committed by this version"
            )
    return facts.CreateIndex(tuple(op.new_indices), tuple(op.removed_indices))


def _update_config(op: LanceOperation.UpdateConfig) -> facts.Operation:
    fields = {id: each for id, update in (op.field_metadata_updates or {}).items() if (each := _map(update))}
    return facts.UpdateConfig(
        _map(op.config_updates), _map(op.table_metadata_updates), _map(op.schema_metadata_updates), fields
    )


_TO_FACT: dict[type, Callable[[Any], Any]] = {
    LanceOperation.Overwrite: _overwrite,
    LanceOperation.Append: lambda op: facts.Append(_facts(op.fragments)),
    LanceOperation.Delete: lambda op: facts.Delete(
        _facts(op.updated_fragments), tuple(op.deleted_fragment_ids), op.predicate
    ),
    LanceOperation.Update: _update,
    LanceOperation.Merge: lambda op: facts.Merge(
        _facts(op.fragments), schema_to_fact(op.schema), op.preserves_nullability
    ),
    LanceOperation.Restore: lambda op: facts.Restore(op.version),
    LanceOperation.Rewrite: _rewrite,
    LanceOperation.CreateIndex: _create_index,
    LanceOperation.DataReplacement: _data_replacement,
    LanceOperation.Project: lambda op: facts.Project(schema_to_fact(op.schema), op.preserves_nullability),
    LanceOperation.Clone: lambda op: facts.Clone(
        op.is_shallow, op.ref_name, op.ref_version, op.ref_path, op.branch_name
    ),
    LanceOperation.UpdateConfig: _update_config,
    LanceOperation.Other: lambda op: op.fact,
}


def operation_to_fact(operation: Any) -> facts.Operation:
    """The format's value of an operation, its members checked once more: they may have been set since it was
    made. Raises `WrongType` for anything else.
    """
    convert = _TO_FACT.get(type(operation))
    if convert is None:
        raise arguments.wrong("operation", "a LanceOperation", operation)
    operation.__post_init__()
    found: facts.Operation = convert(operation)
    return found


# -- from the format's values --------------------------------------------------------------------


def _seen(fragments: Any) -> list[FragmentMetadata]:
    return [FragmentMetadata.from_fragment(each) for each in fragments]


def _seen_map(update: facts.UpdateMap | None) -> LanceOperation.UpdateMap | None:
    return None if update is None else LanceOperation.UpdateMap(dict(update.update_entries), update.replace)


def _seen_rewrite(fact: facts.Rewrite) -> LanceOperation.Rewrite:
    return LanceOperation.Rewrite(
        [
            LanceOperation.RewriteGroup(_seen(each.old_fragments), _seen(each.new_fragments))
            for each in fact.groups
        ],
        [
            LanceOperation.RewrittenIndex(
                each.old_id,
                each.new_id,
                each.new_index_details.type_url if each.new_index_details else "",
                each.new_index_details.value if each.new_index_details else b"",
                each.new_index_version,
            )
            for each in fact.rewritten_indices
        ],
    )


def _seen_update(fact: facts.Update) -> LanceOperation.Update:
    return LanceOperation.Update(
        list(fact.removed_fragment_ids),
        _seen(fact.updated_fragments),
        _seen(fact.new_fragments),
        list(fact.fields_modified),
        list(fact.fields_for_preserving_frag_bitmap),
        _UPDATE_MODES[fact.update_mode] if fact.update_mode < len(_UPDATE_MODES) else "",
        dict(fact.updated_fragment_offset_bitmaps) or None,
        fact.inserted_rows,
    )


_FROM_FACT: dict[type, Callable[[Any], LanceOperation.BaseOperation]] = {
    facts.Overwrite: lambda fact: LanceOperation.Overwrite(LanceSchema(fact.schema), _seen(fact.fragments)),
    facts.Append: lambda fact: LanceOperation.Append(_seen(fact.fragments)),
    facts.Delete: lambda fact: LanceOperation.Delete(
        _seen(fact.updated_fragments), list(fact.deleted_fragment_ids), fact.predicate
    ),
    facts.Update: _seen_update,
    facts.Merge: lambda fact: LanceOperation.Merge(
        _seen(fact.fragments), LanceSchema(fact.schema), fact.preserves_nullability
    ),
    facts.Restore: lambda fact: LanceOperation.Restore(fact.version),
    facts.Rewrite: _seen_rewrite,
    facts.CreateIndex: lambda fact: LanceOperation.CreateIndex(
        list(fact.new_indices), list(fact.removed_indices)
    ),
    facts.DataReplacement: lambda fact: LanceOperation.DataReplacement(
        [
            LanceOperation.DataReplacementGroup(each.fragment_id, DataFile.from_fact(each.new_file))
            for each in fact.replacements
        ]
    ),
    facts.Project: lambda fact: LanceOperation.Project(LanceSchema(fact.schema), fact.preserves_nullability),
    facts.Clone: lambda fact: LanceOperation.Clone(
        fact.is_shallow, fact.ref_name, fact.ref_version, fact.ref_path, fact.branch_name
    ),
    facts.UpdateConfig: lambda fact: LanceOperation.UpdateConfig(
        _seen_map(fact.config_updates),
        _seen_map(fact.table_metadata_updates),
        _seen_map(fact.schema_metadata_updates),
        {id: each for id, update in fact.field_metadata_updates.items() if (each := _seen_map(update))}
        or None,
    ),
}


def operation_from_fact(fact: facts.Operation) -> LanceOperation.BaseOperation:
    """The caller's view of an operation; `Other` for those without a form of their own."""
    convert = _FROM_FACT.get(type(fact))
    if convert is None:
        return LanceOperation.Other(type(fact).__name__, fact)
    return convert(fact)
