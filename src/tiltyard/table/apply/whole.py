"""Operations on the whole table: Overwrite (also the first commit), Restore, Clone."""

from __future__ import annotations

from dataclasses import replace

from tiltyard.errors import InvalidInput
from tiltyard.format.base_paths import BasePath
from tiltyard.format.flags import STABLE_ROW_IDS, uses_stable_row_ids
from tiltyard.format.fragment import Fragment, FragmentList
from tiltyard.format.manifest import DataFormat, Manifest
from tiltyard.format.operations import Clone, Overwrite, Restore
from tiltyard.table.apply import mem_wal
from tiltyard.table.apply.draft import LEGACY_VERSION, Inputs, NewTable
from tiltyard.table.apply.rows import with_new_fragments


def create(operation: Overwrite, inputs: Inputs) -> Manifest:
    """Version 1 of a new table."""
    new = inputs.new_table or NewTable()
    flags = STABLE_ROW_IDS if new.stable_row_ids else 0
    empty = Manifest(
        schema=operation.schema,
        fragments=FragmentList(),
        version=inputs.version,
        reader_flags=flags,
        writer_flags=flags,
        data_format=_data_format(operation, inputs, DataFormat()),
        config={**new.config, **operation.config_upsert_values},
        table_metadata=dict(new.table_metadata),
        base_paths=tuple(_numbered(operation.initial_bases)),
    )
    return _filled(empty, operation, inputs)


def _data_format(operation: Overwrite, inputs: Inputs, default: DataFormat) -> DataFormat:
    """The version asked for, or that of the files, or the default."""
    if inputs.new_table is not None and inputs.new_table.data_version is not None:
        return DataFormat(default.file_format, inputs.new_table.data_version)
    for fragment in operation.fragments:
        for file in fragment.files:
            return DataFormat(
                default.file_format, LEGACY_VERSION if file.is_legacy else f"{file.major}.{file.minor}"
            )
    return default


def _numbered(bases: tuple[BasePath, ...]) -> list[BasePath]:
    numbered: list[BasePath] = []
    for base in bases:
        next_id = max((other.id for other in numbered), default=0) + 1
        numbered.append(base if base.id else replace(base, id=next_id))
    return numbered


def overwrite(previous: Manifest, operation: Overwrite, inputs: Inputs) -> Manifest:
    """New rows under a new schema; config, table metadata and bases stay, indices go, ids go on."""
    if operation.initial_bases:
        raise InvalidInput("bases can be given only when a table is created; register them with UpdateBases")
    emptied = replace(
        previous,
        schema=operation.schema,
        fragments=FragmentList(),
        indices=(),
        config={**previous.config, **operation.config_upsert_values},
        data_format=_data_format(operation, inputs, previous.data_format or DataFormat()),
    )
    return _filled(emptied, operation, inputs)


def _filled(empty: Manifest, operation: Overwrite, inputs: Inputs) -> Manifest:
    for fragment in operation.fragments:
        if fragment.deletion is not None:
            raise InvalidInput(
                "a fragment of an overwrite has a deletion file; rewrite it without the deleted rows"
            )
    renumbered = [replace(fragment, id=0) for fragment in operation.fragments]
    return with_new_fragments(empty, renumbered, inputs)


def restore(previous: Manifest, operation: Restore, inputs: Inputs) -> Manifest:
    """An old version again, as the newest one; high-water marks stay the highest."""
    old = inputs.restored
    if old is None or old.version != operation.version:
        raise InvalidInput(f"version {operation.version} is not there to be restored")
    if uses_stable_row_ids(previous) and not uses_stable_row_ids(old):
        raise InvalidInput(
            f"version {operation.version} is from before stable row ids were turned on and cannot be "
            "restored; copy its data into a new table"
        )
    marks = [mark for mark in (old.max_fragment_id, previous.max_fragment_id) if mark is not None]
    restored = replace(
        previous,
        schema=old.schema,
        fragments=old.fragments,
        indices=old.indices,
        config=old.config,
        table_metadata=old.table_metadata,
        data_format=old.data_format,
        base_paths=_united(old.base_paths, previous.base_paths),
        max_fragment_id=max(marks, default=None),
        next_row_id=max(old.next_row_id, previous.next_row_id),
    )
    return mem_wal.keeping_marks(restored, previous, inputs)


def _united(old: tuple[BasePath, ...], current: tuple[BasePath, ...]) -> tuple[BasePath, ...]:
    """Bases are never taken away: what any version refers to must stay resolvable."""
    known = {base.id for base in current}
    return (*current, *(base for base in old if base.id not in known))


def clone(operation: Clone, inputs: Inputs) -> Manifest:
    """The first commit of a new root that shares (shallow) or owns copies of (deep) the files of its
    source.
    """
    source = inputs.source
    if source is None or source.version != operation.ref_version:
        raise InvalidInput(
            f"version {operation.ref_version} of {operation.ref_path} is not there to be cloned"
        )
    if not operation.is_shallow:
        return replace(
            source,
            base_paths=(),
            branch=None,
            fragments=FragmentList.of(_rebased(f, None) for f in source.fragments),
            indices=tuple(replace(entry, base_id=None) for entry in source.indices),
        )
    used = {base.id for base in source.base_paths}
    new_id = next(i for i in range(len(used) + 1) if i not in used)
    base = BasePath(id=new_id, name=operation.ref_name, is_dataset_root=True, path=operation.ref_path)
    return replace(
        source,
        base_paths=(*source.base_paths, base),
        branch=operation.branch_name,
        fragments=FragmentList.of(_rebased(f, new_id) for f in source.fragments),
        indices=tuple(replace(entry, base_id=new_id) for entry in source.indices),
    )


def _rebased(fragment: Fragment, base_id: int | None) -> Fragment:
    """The fragment with its files in a base: those without one move to `base_id`; None takes bases away."""

    def moved(current: int | None) -> int | None:
        return None if base_id is None else base_id if current is None else current

    files = tuple(replace(file, base_id=moved(file.base_id)) for file in fragment.files)
    deletion = fragment.deletion
    if deletion is not None:
        deletion = replace(deletion, base_id=moved(deletion.base_id))
    return replace(fragment, files=files, deletion=deletion)
