"""Operations on columns: Merge, Project, DataReplacement, DataOverlay."""

from __future__ import annotations

from dataclasses import replace

from tiltyard.errors import InvalidInput
from tiltyard.format.flags import uses_stable_row_ids
from tiltyard.format.fragment import TOMBSTONE, DataFile, Fragment
from tiltyard.format.manifest import Manifest
from tiltyard.format.operations import DataOverlays, DataReplacement, Merge, Project
from tiltyard.format.schema import Field, Schema
from tiltyard.table.apply import indices, lineage
from tiltyard.table.apply.draft import (
    Inputs,
    check_file_versions,
    check_unique,
    live_files,
    without_dropped_files,
)
from tiltyard.table.apply.rows import with_new_fragments


def merge(previous: Manifest, operation: Merge, inputs: Inputs) -> Manifest:
    """A new schema with the complete list of fragments: the old ones first and of unchanged length, then new
    ones.
    """
    check_unique([f for f in operation.fragments if f.id], "the merge")
    old_ids = previous.fragments.ids.tolist()
    listed = {f.id: f for f in operation.fragments[: len(old_ids)]}
    if set(listed) != set(old_ids):
        missing = sorted(set(old_ids) - set(listed))
        raise InvalidInput(
            f"a merge lists all fragments of the version before it first; fragments {missing[:5]} are missing"
            if missing
            else "a merge lists all fragments of the version before it first, each once"
        )
    changed: dict[int, Fragment] = {}
    for fragment in previous.fragments:
        new = listed[fragment.id]
        if new.physical_rows != fragment.physical_rows:
            raise InvalidInput(
                f"fragment {fragment.id} has {fragment.physical_rows} rows and the merge gives it "
                f"{new.physical_rows}"
            )
        if new.files != fragment.files or new.deletion != fragment.deletion:
            changed[fragment.id] = new
    check_file_versions(operation.fragments, previous.data_format)
    _check_types(previous, operation, changed)
    if uses_stable_row_ids(previous):
        before = {fragment_id: _at(previous, fragment_id) for fragment_id in changed}
        changed = {
            fragment_id: lineage.stamp_all(new, inputs.version)
            if new.files != before[fragment_id].files
            else new
            for fragment_id, new in changed.items()
        }
    schema = operation.schema
    result = replace(
        previous,
        schema=schema,
        fragments=previous.fragments.replaced({k: live_files(v) for k, v in changed.items()}),
    )
    result = with_new_fragments(result, operation.fragments[len(old_ids) :], inputs)
    return indices.pruned(result)


def _at(manifest: Manifest, fragment_id: int) -> Fragment:
    found = manifest.fragments.by_id(fragment_id)
    if found is None:
        raise InvalidInput(f"version {manifest.version} has no fragment {fragment_id}")
    return found


def _check_types(previous: Manifest, operation: Merge, changed: dict[int, Fragment]) -> None:
    """A field that keeps its id keeps its type and stays as null-free, unless every fragment gets new data
    for it.
    """
    for field in operation.schema.walk():
        if not previous.schema.has_id(field.id):
            continue
        old = previous.schema.by_id(field.id)
        if old.parent_id != field.parent_id:
            raise InvalidInput(
                f"field {field.id} ({field.name}) moved under another parent; give it a new id"
            )
        if old.logical_type == field.logical_type and (field.nullable or not old.nullable):
            continue
        if not all(_rewrites(previous, changed, fragment, field) for fragment in previous.fragments):
            raise InvalidInput(
                f"the merge changes field {field.id} ({field.name}) from {_shown(old)} to {_shown(field)} "
                "without new data in every fragment; give the changed column a new field id"
            )


def _shown(field: Field) -> str:
    return f"{field.logical_type}{'' if field.nullable else ' not null'}"


def _rewrites(previous: Manifest, changed: dict[int, Fragment], fragment: Fragment, field: Field) -> bool:
    new = changed.get(fragment.id)
    if new is None:
        return False
    holders = {file.path for file in fragment.files if field.id in file.fields}
    return any(field.id in file.fields and file.path not in holders for file in new.files)


def project(previous: Manifest, operation: Project, inputs: Inputs) -> Manifest:
    """Another schema over the same data; files that no field is left of are taken out of their fragments."""
    schema = Schema(operation.schema.fields, previous.schema.metadata)
    for field in schema.walk():
        if not previous.schema.has_id(field.id):
            raise InvalidInput(f"the projection names field {field.id} ({field.name}), which the table lacks")
    changed = {}
    if {f.id for f in previous.schema.walk()} != {f.id for f in schema.walk()}:
        for fragment in previous.fragments:
            lighter = without_dropped_files(fragment, schema)
            if lighter is not fragment:
                changed[fragment.id] = lighter
    fragments = previous.fragments.replaced(changed) if changed else previous.fragments
    return indices.pruned(replace(previous, schema=schema, fragments=fragments))


def data_replacement(previous: Manifest, operation: DataReplacement, inputs: Inputs) -> Manifest:
    """New files for some columns of some fragments (transactions pack, section 3.4)."""
    lists = {tuple(sorted(r.new_file.fields)) for r in operation.replacements}
    if len(lists) > 1:
        raise InvalidInput(f"all replacement files must hold the same fields; found {sorted(lists)[:3]}")
    changed: dict[int, Fragment] = {}
    for replacement in operation.replacements:
        fragment = changed.get(replacement.fragment_id) or _at(previous, replacement.fragment_id)
        changed[fragment.id] = with_file(fragment, replacement.new_file)
    check_file_versions(changed.values(), previous.data_format)
    if uses_stable_row_ids(previous):
        changed = {fragment_id: lineage.stamp_all(f, inputs.version) for fragment_id, f in changed.items()}
    result = replace(previous, fragments=previous.fragments.replaced(changed)) if changed else previous
    fields = [field for r in operation.replacements for field in r.new_file.fields]
    return indices.without_fragments(result, fields, list(changed))


def with_file(fragment: Fragment, new: DataFile) -> Fragment:
    """The fragment with `new` in the place of the columns that it holds."""
    fields = frozenset(field for field in new.fields if field >= 0)
    for position, file in enumerate(fragment.files):
        if (
            file.fields == new.fields
            and (file.major, file.minor) == (new.major, new.minor)
            and not file.is_legacy
        ):
            files = (*fragment.files[:position], new, *fragment.files[position + 1 :])
            return replace(fragment, files=files)
    present = {field for file in fragment.files for field in file.fields if field >= 0}
    if not fields & present:
        return replace(fragment, files=(*fragment.files, new))
    if not fields <= present:
        raise InvalidInput(
            f"Expected to modify the fragment but no changes were made: {new.path} replaces fields "
            f"{sorted(fields)}, of which fragment {fragment.id} holds only {sorted(fields & present)}"
        )
    return live_files(
        replace(fragment, files=(*(without_fields(file, fields) for file in fragment.files), new))
    )


def without_fields(file: DataFile, fields: frozenset[int]) -> DataFile:
    """The file's entry with some fields marked as superseded."""
    if not fields.intersection(file.fields):
        return file
    return replace(file, fields=tuple(TOMBSTONE if field in fields else field for field in file.fields))


def data_overlay(previous: Manifest, operation: DataOverlays, inputs: Inputs) -> Manifest:
    """Overlays on top of those of the fragment, stamped with the new version."""
    changed: dict[int, Fragment] = {}
    for group in operation.groups:
        fragment = changed.get(group.fragment_id) or _at(previous, group.fragment_id)
        stamped = tuple(replace(overlay, committed_version=inputs.version) for overlay in group.overlays)
        fragment = replace(fragment, overlays=(*fragment.overlays, *stamped))
        if uses_stable_row_ids(previous):
            covered = lineage.covered_offsets(stamped)
            fragment = lineage.stamp_offsets(fragment, covered, inputs.version)
        changed[fragment.id] = fragment
    return replace(previous, fragments=previous.fragments.replaced(changed)) if changed else previous
