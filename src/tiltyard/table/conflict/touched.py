"""What a transaction touches: fragments, fields, keys of the metadata maps. The vocabulary of the
conditions.
"""

from __future__ import annotations

from collections.abc import Iterable

from tiltyard.format.operations import (
    DataOverlays,
    DataReplacement,
    Delete,
    Operation,
    Rewrite,
    Update,
    UpdateConfig,
    UpdateMap,
)


def touched_fragments(operation: Operation) -> frozenset[int]:
    """Ids of the existing fragments that the operation replaces, removes or changes."""
    match operation:
        case Delete():
            return frozenset(f.id for f in operation.updated_fragments) | frozenset(
                operation.deleted_fragment_ids
            )
        case Update():
            return frozenset(f.id for f in operation.updated_fragments) | frozenset(
                operation.removed_fragment_ids
            )
        case Rewrite():
            return frozenset(f.id for group in operation.groups for f in group.old_fragments)
        case DataReplacement():
            return frozenset(r.fragment_id for r in operation.replacements)
        case DataOverlays():
            return frozenset(g.fragment_id for g in operation.groups)
        case _:
            return frozenset()


def removed_fragments(operation: Delete | Update) -> frozenset[int]:
    """Ids of the fragments that the operation takes out of the table whole."""
    if isinstance(operation, Delete):
        return frozenset(operation.deleted_fragment_ids)
    return frozenset(operation.removed_fragment_ids)


def replaced_fields(operation: DataReplacement) -> frozenset[int]:
    """Field ids whose values the operation replaces (tombstones and system ids left out)."""
    return frozenset(field for r in operation.replacements for field in r.new_file.fields if field >= 0)


def overlaid_fields(operation: DataOverlays, fragment_id: int) -> frozenset[int]:
    """Field ids that the overlays of one fragment cover."""
    return frozenset(
        field
        for group in operation.groups
        if group.fragment_id == fragment_id
        for overlay in group.overlays
        for field in overlay.data_file.fields
        if field >= 0
    )


def upserted(update: UpdateMap | None) -> frozenset[str]:
    """Keys that get a value."""
    if update is None:
        return frozenset()
    return frozenset(key for key, value in update.update_entries if value is not None)


def named(update: UpdateMap | None) -> frozenset[str]:
    """Keys that get a value or are deleted."""
    return frozenset() if update is None else frozenset(key for key, _ in update.update_entries)


def changes(update: UpdateMap | None) -> bool:
    """Whether the update says anything at all."""
    return update is not None and (bool(update.update_entries) or update.replace)


def touches_schema_metadata(operation: UpdateConfig) -> bool:
    """Whether schema or field metadata is changed (a `replace` with nothing counts)."""
    return changes(operation.schema_metadata_updates) or any(
        changes(update) for update in operation.field_metadata_updates.values()
    )


def name_of(operation: Operation) -> str:
    """The operation's name in the words of the format."""
    return "DataOverlay" if isinstance(operation, DataOverlays) else type(operation).__name__


def listed(ids: Iterable[int | str], limit: int = 5) -> str:
    """A short list for a message: the first few, then how many more."""
    ordered = sorted(ids)
    shown = ", ".join(str(i) for i in ordered[:limit])
    return shown if len(ordered) <= limit else f"{shown} and {len(ordered) - limit} more"
