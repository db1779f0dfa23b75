"""Operations on the maps around the data: UpdateConfig, UpdateBases, ReserveFragments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tiltyard.errors import InvalidInput
from tiltyard.format.fragment import MAX_FRAGMENT_ID
from tiltyard.format.manifest import Manifest
from tiltyard.format.operations import ReserveFragments, UpdateBases, UpdateConfig, UpdateMap
from tiltyard.format.schema import Field, Schema
from tiltyard.table.apply.draft import Inputs


def update_config(previous: Manifest, operation: UpdateConfig, inputs: Inputs) -> Manifest:
    """Patch config, table metadata, schema metadata and the metadata of fields (primary keys stay what they
    are).
    """
    schema = previous.schema
    if operation.schema_metadata_updates is not None:
        text = {key: value.decode("utf-8", "surrogateescape") for key, value in schema.metadata.items()}
        new = operation.schema_metadata_updates.apply(text)
        metadata = {key: value.encode("utf-8", "surrogateescape") for key, value in new.items()}
        schema = Schema(schema.fields, metadata)
    if operation.field_metadata_updates:
        before = schema
        schema = _with_field_metadata(schema, operation.field_metadata_updates)
        _check_keys_kept(before, schema)
    return replace(
        previous,
        schema=schema,
        config=_patched(previous.config, operation.config_updates),
        table_metadata=_patched(previous.table_metadata, operation.table_metadata_updates),
    )


def _patched(current: Mapping[str, str], update: UpdateMap | None) -> Mapping[str, str]:
    return current if update is None else update.apply(current)


def _with_field_metadata(schema: Schema, updates: Mapping[int, UpdateMap]) -> Schema:
    for field_id in updates:
        schema.by_id(field_id)  # an unknown id raises here, naming it

    def rebuilt(field: Field) -> Field:
        children = tuple(rebuilt(child) for child in field.children)
        if any(new is not old for new, old in zip(children, field.children, strict=True)):
            field = replace(field, children=children)
        update = updates.get(field.id)
        return field if update is None else field.with_metadata(update.apply(field.metadata))

    changed = Schema(tuple(rebuilt(field) for field in schema.fields), schema.metadata)
    changed.check_primary_key()
    return changed


def _check_keys_kept(before: Schema, after: Schema) -> None:
    keys = [(field.id, field.primary_key_position) for field in before.primary_key]
    if keys and keys != [(field.id, field.primary_key_position) for field in after.primary_key]:
        raise InvalidInput(
            "the unenforced primary key is a reserved key and cannot be changed once set; it is "
            f"{', '.join(field.name for field in before.primary_key)}"
        )
    clustering = {
        field.id: field.clustering_key_position for field in before.walk() if field.clustering_key_position
    }
    for field_id, position in clustering.items():
        if after.by_id(field_id).clustering_key_position != position:
            raise InvalidInput(
                "the unenforced clustering key is a reserved key and cannot be changed once set; it includes "
                f"{before.by_id(field_id).name}"
            )


def update_bases(previous: Manifest, operation: UpdateBases, inputs: Inputs) -> Manifest:
    """Register bases; id 0 means "give me the next unused one"."""
    bases = list(previous.base_paths)
    for new in operation.new_bases:
        for base in bases:
            if new.path == base.path:
                raise InvalidInput(f"base path {new.path!r} is already registered as base {base.id}")
            if new.name and new.name == base.name:
                raise InvalidInput(f"a base named {new.name!r} is already registered as base {base.id}")
            if new.id and new.id == base.id:
                raise InvalidInput(f"base id {new.id} is already taken by {base.path!r}")
        bases.append(replace(new, id=new.id or max((base.id for base in bases), default=0) + 1))
    return replace(previous, base_paths=tuple(bases))


def reserve_fragments(previous: Manifest, operation: ReserveFragments, inputs: Inputs) -> Manifest:
    """Move the high-water mark of fragment ids; an absent one counts as 0."""
    highest = (previous.max_fragment_id or 0) + operation.num_fragments
    if highest > MAX_FRAGMENT_ID:
        raise InvalidInput(
            f"{operation.num_fragments} more fragment ids would pass the limit of {MAX_FRAGMENT_ID}"
        )
    return replace(previous, max_fragment_id=highest)
