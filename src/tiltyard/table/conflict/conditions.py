"""The lettered conditions of the conflict matrix, one small function each (transactions pack, section 6).

Every function takes the operation being committed, the one already committed and what we know about our own
plan, and answers with a verdict. `CONDITIONS` maps the letters that the matrix uses to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiltyard.format.fragment import DataOverlay
from tiltyard.format.index_metadata import FRAGMENT_REUSE, MEM_WAL, IndexMetadata
from tiltyard.format.mem_wal import MemWalDetails
from tiltyard.format.operations import (
    REWRITE_COLUMNS,
    REWRITE_ROWS,
    Append,
    CompactedSsTable,
    CreateIndex,
    DataOverlays,
    DataReplacement,
    Delete,
    Merge,
    Operation,
    Overwrite,
    Project,
    Rewrite,
    Update,
    UpdateBases,
    UpdateConfig,
    UpdateMemWalState,
)
from tiltyard.table.conflict.keys import is_empty, may_share_a_key
from tiltyard.table.conflict.touched import (
    changes,
    listed,
    named,
    overlaid_fields,
    removed_fragments,
    replaced_fields,
    touched_fragments,
    touches_schema_metadata,
    upserted,
)
from tiltyard.table.conflict.verdict import OK, Verdict, refuse, retry
from tiltyard.table.index_entries import covered_fragments, kind_of


@dataclass(frozen=True, slots=True)
class Plan:
    """What the committing process knows about its own operation beyond what the transaction says.

    `affected` holds, per fragment id, the sorted uint32 physical offsets that we delete or move; None when
    unknown (a raw commit). `reuse` and `their_reuse` say whether the Rewrite carries a fragment-reuse index:
    that is not on the wire, so `their_reuse` is only ever known within one process. `unhashed_key` is true
    when the key is of a type that the official writer leaves out of its filters.
    """

    affected: Mapping[int, np.ndarray] | None = None
    reuse: bool = False
    their_reuse: bool = False
    unhashed_key: bool = False


Condition = Callable[[Any, Any, Plan], Verdict]


def worst(*verdicts: Verdict) -> Verdict:
    """The most severe verdict, the first among equals."""
    return max(verdicts, key=lambda verdict: verdict.outcome)


# -- fragments ------------------------------------------------------------------------------------


def same_rows(mine: Delete | Update, theirs: Delete | Update, plan: Plan) -> Verdict:
    """(a) Two row-level changes: fragments in common can be merged only when we know which rows are ours."""
    common = touched_fragments(mine) & touched_fragments(theirs)
    if not common:
        return OK
    if plan.affected is None:
        return retry(f"both change fragments {listed(common)}, and the rows we change are not known")
    ours = {fragment.id: fragment for fragment in mine.updated_fragments}
    other = {fragment.id: fragment for fragment in theirs.updated_fragments}
    for fragment_id in sorted(common):
        if fragment_id not in ours:
            return retry(f"we remove all of fragment {fragment_id}, which it changed")
        if fragment_id not in other:
            return retry(f"it removed all of fragment {fragment_id}, which we change")
        if ours[fragment_id].files != other[fragment_id].files:
            return retry(f"it changed the data files of fragment {fragment_id}, which we change")
    return OK  # the rows themselves are compared when the deletion vectors are merged (module rebase)


def same_fragments(mine: Operation, theirs: Operation, plan: Plan) -> Verdict:
    """(f) No fragment may be touched by both."""
    common = touched_fragments(mine) & touched_fragments(theirs)
    return retry(f"both change fragments {listed(common)}") if common else OK


def deleted_targets(mine: DataReplacement, theirs: Delete, plan: Plan) -> Verdict:
    """(g) A replacement of a fragment that is gone."""
    gone = touched_fragments(mine) & removed_fragments(theirs)
    return refuse(f"it deleted fragments {listed(gone)}, whose columns we replace") if gone else OK


def deleted_overlay_targets(mine: DataOverlays, theirs: Delete, plan: Plan) -> Verdict:
    """(g') An overlay on a fragment that is gone."""
    gone = touched_fragments(mine) & removed_fragments(theirs)
    return retry(f"it deleted fragments {listed(gone)}, which we overlay") if gone else OK


def updated_targets(mine: DataReplacement, theirs: Update, plan: Plan) -> Verdict:
    """(h) A replacement of fragments that an update removed, moved rows out of, or rewrote the same columns
    of.
    """
    targets = touched_fragments(mine)
    gone = targets & removed_fragments(theirs)
    if gone:
        return refuse(f"it removed fragments {listed(gone)}, whose columns we replace")
    shared = targets & touched_fragments(theirs)
    if not shared:
        return OK
    if theirs.new_fragments and theirs.update_mode == REWRITE_ROWS:
        return retry(f"it moved rows out of fragments {listed(shared)}, whose columns we replace")
    fields = replaced_fields(mine) & frozenset(theirs.fields_modified)
    return retry(f"it rewrote fields {listed(fields)}, which we replace") if fields else OK


def same_replacement(mine: DataReplacement, theirs: DataReplacement, plan: Plan) -> Verdict:
    """(q) Two replacements of one column of one fragment."""
    common = touched_fragments(mine) & touched_fragments(theirs)
    fields = replaced_fields(mine) & replaced_fields(theirs)
    if common and fields:
        return retry(f"both replace fields {listed(fields)} of fragments {listed(common)}")
    return OK


def dropped_field(mine: DataReplacement, theirs: Project, plan: Plan) -> Verdict:
    """(p) A replacement of a column that is gone."""
    kept = {field.id for field in theirs.schema.walk()}
    gone = replaced_fields(mine) - kept
    return refuse(f"it dropped fields {listed(gone)}, which we replace") if gone else OK


def under_overlay(mine: Update, theirs: DataOverlays, plan: Plan) -> Verdict:
    """(o) An update of cells or rows that a new overlay covers."""
    shared = touched_fragments(mine) & touched_fragments(theirs)
    for fragment_id in sorted(shared):
        if mine.update_mode == REWRITE_COLUMNS:
            fields = overlaid_fields(theirs, fragment_id) & frozenset(mine.fields_modified)
            if fields:
                return retry(
                    f"it overlaid fields {listed(fields)} of fragment {fragment_id}, which we rewrite"
                )
            continue
        rows = None if plan.affected is None else plan.affected.get(fragment_id)
        if rows is None or _covers(theirs, fragment_id, rows):
            return retry(f"it overlaid rows of fragment {fragment_id} that we move")
    return OK


def over_update(mine: DataOverlays, theirs: Update, plan: Plan) -> Verdict:
    """(o') An overlay over a fragment whose rows were moved or removed, or whose same columns were rewritten.

    Which rows they moved is not on the wire: any moved row of a shared fragment counts. The column rewrite is
    our addition: the overlay would hide it.
    """
    shared = touched_fragments(mine) & touched_fragments(theirs)
    gone = shared & removed_fragments(theirs)
    if gone:
        return retry(f"it removed fragments {listed(gone)}, which we overlay")
    for fragment_id in sorted(shared):
        if theirs.update_mode == REWRITE_ROWS:
            return retry(f"it moved rows of fragment {fragment_id}, which we overlay")
        fields = overlaid_fields(mine, fragment_id) & frozenset(theirs.fields_modified)
        if fields:
            return retry(f"it rewrote fields {listed(fields)} of fragment {fragment_id}, which we overlay")
    return OK


def _covers(overlay: DataOverlays, fragment_id: int, rows: np.ndarray) -> bool:
    from pyroaring import BitMap  # overlays are refused elsewhere: never on a hot path

    wanted = BitMap(rows.tolist())
    return any(
        bool(wanted & BitMap.deserialize(bitmap))
        for group in overlay.groups
        if group.fragment_id == fragment_id
        for entry in group.overlays
        for bitmap in _coverage(entry)
    )


def _coverage(overlay: DataOverlay) -> tuple[bytes, ...]:
    if overlay.shared_offsets is not None:
        return (overlay.shared_offsets,)
    return overlay.field_coverage or ()


# -- inserted keys ----------------------------------------------------------------------------------


def inserted_keys(mine: Update, theirs: Operation, plan: Plan) -> Verdict:
    """(k) A commit that recorded its inserted keys against rows whose keys are unknown, or may be the
    same.
    """
    if mine.inserted_rows is None:
        return OK
    if not isinstance(theirs, Update) or theirs.inserted_rows is None:
        return retry("it may have inserted keys that we insert: it recorded none")
    filter_ = theirs.inserted_rows
    if tuple(filter_.field_ids) != tuple(mine.inserted_rows.field_ids):
        return retry("it recorded inserted keys of other columns than ours")
    if plan.unhashed_key and theirs.new_fragments and is_empty(filter_):
        return retry("it inserted rows whose key type its filter cannot hold")
    if may_share_a_key(mine.inserted_rows, filter_):
        return retry("both inserted rows, and some key may be the same")
    return OK


# -- indices ----------------------------------------------------------------------------------------


def index_on_replaced_field(mine: Any, theirs: Any, plan: Plan) -> Verdict:
    """(d) A new index over a column whose data was replaced under it, in either order."""
    index, data = (mine, theirs) if isinstance(mine, CreateIndex) else (theirs, mine)
    fields = frozenset(field for entry in index.new_indices for field in entry.fields) & replaced_fields(data)
    return retry(f"one indexes fields {listed(fields)} and the other replaces their data") if fields else OK


def same_index(mine: CreateIndex, theirs: CreateIndex, plan: Plan) -> Verdict:
    """(i) Two changes of the index list that meet in a name or an entry."""
    ours = {entry.name for entry in mine.new_indices}
    other = {entry.name for entry in theirs.new_indices}
    both = ours & other
    if both:
        return retry(f"both write the index {listed(both)}")
    crossing = (ours & {e.name for e in theirs.removed_indices}) | (
        other & {e.name for e in mine.removed_indices}
    )
    if crossing:
        return retry(f"one removes entries of the index {listed(crossing)} while the other adds to it")
    replaced = {e.uuid for e in mine.removed_indices} & {e.uuid for e in theirs.removed_indices}
    if replaced and ours and other:
        return retry(f"both replace the same entry of the index {listed(_names(mine, replaced))}")
    return OK


def _names(operation: CreateIndex, uuids: set[Any]) -> set[str]:
    return {entry.name for entry in operation.removed_indices if entry.uuid in uuids}


def index_on_rewritten_fragments(mine: Any, theirs: Any, plan: Plan) -> Verdict:
    """(j) A new index over fragments that were rewritten under it, in either order."""
    index, rewrite = (mine, theirs) if isinstance(mine, CreateIndex) else (theirs, mine)
    reuse = plan.reuse if rewrite is mine else plan.their_reuse
    for entry in index.new_indices:
        verdict = _covers_group(entry, rewrite, reuse)
        if not verdict.ok:
            return verdict
    return OK


def _covers_group(entry: IndexMetadata, rewrite: Rewrite, reuse: bool) -> Verdict:
    covered = covered_fragments(entry)
    if covered is None:
        return retry(
            f"the new index {entry.name} does not say which fragments it covers, and some were rewritten"
        )
    if not reuse:
        common = covered & touched_fragments(rewrite)
        return (
            retry(f"the new index {entry.name} covers rewritten fragments {listed(common)}") if common else OK
        )
    if kind_of(entry) == "ngram":
        return retry(f"the n-gram index {entry.name} cannot be translated to rewritten fragments")
    for group in rewrite.groups:
        old = {fragment.id for fragment in group.old_fragments}
        if old & covered and not old <= covered:
            return retry(f"the new index {entry.name} covers only part of fragments rewritten together")
    return OK


def both_reuse(mine: Rewrite, theirs: Rewrite, plan: Plan) -> Verdict:
    """(r) Two rewrites that each leave a fragment-reuse index behind."""
    if plan.reuse and plan.their_reuse:
        return retry(f"both write {FRAGMENT_REUSE}")
    return OK


def mem_wal_index(mine: Any, theirs: Any, plan: Plan) -> Verdict:
    """(w) Index creation against a Merge (either order) or against progress marks of the MemWAL."""
    index = mine if isinstance(mine, CreateIndex) else theirs
    writes_mem_wal = any(entry.name == MEM_WAL for entry in index.new_indices)
    if isinstance(mine, Merge) or isinstance(theirs, Merge):
        return retry(f"one creates {MEM_WAL} and the other rewrites columns") if writes_mem_wal else OK
    if writes_mem_wal:
        return OK  # the marks are merged when the entry is rebased
    return refuse("it moved the compaction marks of the MemWAL, which an index creation cannot follow")


# -- MemWAL marks -----------------------------------------------------------------------------------


def same_shards(mine: Any, theirs: Any, plan: Plan) -> Verdict:
    """(m) Two sets of compaction marks: the same shard may only move forward, and never on a stale plan."""
    return _compare_marks(mine, _marks_of(theirs.compacted_sstables))


def marks_in_new_index(mine: UpdateMemWalState, theirs: CreateIndex, plan: Plan) -> Verdict:
    """(m') Marks against the marks of a newly written MemWAL index; other indices do not matter."""
    written: dict[str, int] = {}
    for entry in theirs.new_indices:
        if entry.name == MEM_WAL:
            written.update(MemWalDetails.of(entry).marks)
    return _compare_marks(mine, written)


def _marks_of(marks: Sequence[CompactedSsTable]) -> dict[str, int]:
    newest: dict[str, int] = {}
    for mark in marks:
        newest[mark.shard_id] = max(mark.generation, newest.get(mark.shard_id, 0))
    return newest


def _compare_marks(mine: Update | UpdateMemWalState, theirs: Mapping[str, int]) -> Verdict:
    verdict = OK
    for mark in mine.compacted_sstables:
        other = theirs.get(mark.shard_id)
        if other is None:
            continue
        if other >= mark.generation:
            return refuse(
                f"shard {mark.shard_id} is already compacted up to generation {other}, ours is "
                f"{mark.generation}"
            )
        verdict = retry(f"it moved the compaction mark of shard {mark.shard_id} to generation {other}")
    return verdict


# -- schema and metadata ----------------------------------------------------------------------------

_ADDS_DATA = (Append, DataOverlays, DataReplacement, Update)


def nullability(mine: Operation, theirs: Operation) -> Verdict:
    """(n) A schema change that may tighten nullability against data that was checked under the other
    schema.
    """
    for schema_change, other in ((mine, theirs), (theirs, mine)):
        if isinstance(schema_change, Merge | Project) and isinstance(other, _ADDS_DATA):
            if not schema_change.preserves_nullability:
                return retry("one tightens nullability while the other adds data that was not checked for it")
            return OK
    return OK


def schema_metadata(mine: Any, theirs: Any, plan: Plan) -> Verdict:
    """(s) A Merge against changed schema or field metadata, in either order."""
    config = mine if isinstance(mine, UpdateConfig) else theirs
    if touches_schema_metadata(config):
        return retry("one rewrites the schema and the other changes schema or field metadata")
    return OK


def restored_metadata(mine: Any, theirs: Any, plan: Plan) -> Verdict:
    """(t) A Restore against changed schema or field metadata, in either order."""
    config = mine if isinstance(mine, UpdateConfig) else theirs
    if touches_schema_metadata(config):
        return refuse("one restores an old schema and the other changes schema or field metadata")
    return OK


def overwritten_config(mine: Overwrite, theirs: Overwrite | UpdateConfig, plan: Plan) -> Verdict:
    """(u) An Overwrite against another Overwrite or a config change."""
    ours = frozenset(mine.config_upsert_values)
    if isinstance(theirs, Overwrite):
        common = ours & frozenset(theirs.config_upsert_values)
        if common:
            return refuse(f"both overwrite the table and set config key {listed(common)}")
        return retry("both overwrite the table")
    common = ours & named(theirs.config_updates)
    return refuse(f"both set config key {listed(common)}") if common else OK


def config_after_overwrite(mine: UpdateConfig, theirs: Overwrite, plan: Plan) -> Verdict:
    """(v) A metadata change against an Overwrite."""
    if touches_schema_metadata(mine):
        return refuse("it replaced the schema whose metadata we change")
    common = named(mine.config_updates) & frozenset(theirs.config_upsert_values)
    return refuse(f"both set config key {listed(common)}") if common else OK


def same_metadata(mine: UpdateConfig, theirs: UpdateConfig, plan: Plan) -> Verdict:
    """(c) Two metadata changes of the same key (config, table) or the same map (schema, one field)."""
    a, b = mine.config_updates, theirs.config_updates
    common = (upserted(a) & named(b)) | (named(a) & upserted(b))
    if common:
        return refuse(f"both change config key {listed(common)}")
    common = named(mine.table_metadata_updates) & named(theirs.table_metadata_updates)
    if common:
        return refuse(f"both change table metadata key {listed(common)}")
    if changes(mine.schema_metadata_updates) and changes(theirs.schema_metadata_updates):
        return refuse("both change the schema metadata")
    fields = frozenset(mine.field_metadata_updates) & frozenset(theirs.field_metadata_updates)
    return refuse(f"both change the metadata of field {listed(fields)}") if fields else OK


def same_bases(mine: UpdateBases, theirs: UpdateBases, plan: Plan) -> Verdict:
    """(x) Two registrations of one base."""
    for base in mine.new_bases:
        for other in theirs.new_bases:
            if base.id and base.id == other.id:
                return refuse(f"both register base {base.id}")
            if base.name and base.name == other.name:
                return refuse(f"both register a base named {base.name!r}")
            if base.path == other.path:
                return refuse(f"both register the base path {base.path!r}")
    return OK


CONDITIONS: dict[str, Condition] = {
    "a": same_rows,
    "c": same_metadata,
    "d": index_on_replaced_field,
    "f": same_fragments,
    "g": deleted_targets,
    "gg": deleted_overlay_targets,
    "h": updated_targets,
    "i": same_index,
    "j": index_on_rewritten_fragments,
    "k": inserted_keys,
    "m": same_shards,
    "mm": marks_in_new_index,
    "o": under_overlay,
    "oo": over_update,
    "p": dropped_field,
    "q": same_replacement,
    "r": both_reuse,
    "s": schema_metadata,
    "t": restored_metadata,
    "u": overwritten_config,
    "v": config_after_overwrite,
    "w": mem_wal_index,
    "x": same_bases,
}
