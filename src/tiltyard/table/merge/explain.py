"""The plan of a merge as text, before it runs and after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tiltyard import runtime
from tiltyard.format.names import data_path
from tiltyard.table.index_segments import btree_segments
from tiltyard.table.merge.bind import Bound, bind
from tiltyard.table.merge.execute import MergeJob, Planned
from tiltyard.table.merge.lookup import index_cost
from tiltyard.table.merge.settings import Settings
from tiltyard.table.row_changes import RowChanges

if TYPE_CHECKING:
    from tiltyard.table.snapshot import Snapshot


def explain(snapshot: Snapshot, settings: Settings, source: Any) -> str:
    """What a merge of a source with this `pa.Schema` would do, one step a line, the last step first."""
    bound = bind(snapshot, settings, source)
    lines = [_merge(bound), f"  WriteRows: {_writing(bound)}"]
    depth = 2
    if bound.condition is not None:
        lines.append(f"{'  ' * depth}Condition: update_if={bound.condition.sql}")
        depth += 1
    lines.append(f"{'  ' * depth}KeyJoin: on={_pairs(bound)}, join_type={_join_type(settings)}")
    lines += ["  " * (depth + 1) + each for each in (*_target(snapshot, bound), _source(bound))]
    return "\n".join(lines) + "\n"


def analyze(job: MergeJob, snapshot: Snapshot) -> str:
    """Run the merge on a version without committing it; the plan with what it took. Files are removed."""
    began = runtime.monotonic()
    planned = job.planned(snapshot)
    decided = runtime.monotonic()
    with RowChanges(snapshot) as changes:
        operation = job.write(changes, planned)
        written = runtime.monotonic()
        new = [file for fragment in operation.new_fragments for file in fragment.files]
        if planned.by_columns:
            new += [fragment.files[-1] for fragment in operation.updated_fragments]
        files, size = len(new), sum(snapshot.store.stat(data_path(file.path)).size for file in new)
    counts = ", ".join(f"{name}={value}" for name, value in planned.plan.statistics.items())
    lines = [
        f"{_merge(planned.bound)}, elapsed={_ms(written - began)}, metrics=[bytes_written={size}, "
        f"num_files_written={files}, {counts}, num_skipped_duplicates={planned.plan.skipped}]",
        f"  WriteRows: mode={'rewrite_columns' if planned.by_columns else 'rewrite_rows'}, "
        f"elapsed={_ms(written - decided)}, metrics=[files_written={files}, bytes_written={size}]",
        f"    KeyJoin: on={_pairs(planned.bound)}, elapsed={_ms(decided - began)}, "
        f"metrics=[source_rows={planned.source.rows}, matched_rows={planned.matched_rows}]",
        f"      {_read(planned)}",
        f"      {_source(planned.bound)}, metrics=[output_rows={planned.source.rows}, "
        f"spilled={str(planned.source.source.is_spilled).lower()}]",
    ]
    return "\n".join(lines) + "\n"


def _merge(bound: Bound) -> str:
    return f"MergeInsert: on=[{', '.join(bound.key.names)}], {bound.settings.told()}"


def _writing(bound: Bound) -> str:
    mode = f"mode={bound.settings.write_mode.value}"
    if bound.updates is None and not bound.is_partial:
        return f"{mode}, whole rows of the source"
    columns = ", ".join(field.name for field in bound.columns_to_rewrite)
    return f"{mode}, columns=[{columns}] over rows of the table"


def _pairs(bound: Bound) -> str:
    return "[" + ", ".join(f"(target.{name}, source.{name})" for name in bound.key.names) + "]"


def _join_type(settings: Settings) -> str:
    if settings.by_source:
        return "Full" if settings.insert else "Left"
    return "Right" if settings.insert else "Inner"


def _target(snapshot: Snapshot, bound: Bound) -> list[str]:
    lines = []
    if bound.settings.use_index:
        for field, name in zip(bound.key.fields, bound.key.names, strict=True):
            segments = btree_segments(snapshot, field.id)
            if segments:
                covered = sum(len(each.fragments) for each in segments)
                lines.append(
                    f"BTreeLookup: index={segments[0].entry.name}, column={name}, num_fragments={covered}, "
                    f"used_for=fewer than 1 key per {index_cost(field)} rows"
                )
                break
    lines.append(
        f"LanceRead: uri={snapshot.store.uri}, projection=[{', '.join(bound.key.names)}], "
        f"num_fragments={len(snapshot.fragments)}, version={snapshot.version}"
    )
    return lines


def _source(bound: Bound) -> str:
    names = [*bound.fit.schema.names, *bound.extras]
    return f"Source: projection=[{', '.join(names)}]"


def _read(planned: Planned) -> str:
    name = planned.index
    found = f"metrics=[output_rows={planned.matched_rows}]"
    if name is not None:
        return f"BTreeLookup: index={name}, {found}"
    columns = ", ".join(planned.bound.key.names)
    return (
        f"LanceRead: uri={planned.snapshot.store.uri}, projection=[{columns}], "
        f"num_fragments={len(planned.snapshot.fragments)}, {found}"
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}ms"
