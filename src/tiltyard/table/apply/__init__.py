"""`apply(manifest, transaction) -> manifest`: what the next version looks like. Pure.

Source of the rules: transactions pack, section 3; table format, section 13. One module per family of
operations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tiltyard.errors import InvalidInput, UnsupportedFeature
from tiltyard.format import flags
from tiltyard.format.index_metadata import IndexMetadata
from tiltyard.format.manifest import Manifest, WriterVersion
from tiltyard.format.operations import (
    Append,
    Clone,
    CreateIndex,
    DataOverlays,
    DataReplacement,
    Delete,
    Merge,
    Operation,
    Overwrite,
    Project,
    ReserveFragments,
    Restore,
    Rewrite,
    Update,
    UpdateBases,
    UpdateConfig,
    UpdateMemWalState,
)
from tiltyard.format.transaction import Transaction
from tiltyard.table.apply import columns, indices, mem_wal, metadata, rewrite, rows, whole
from tiltyard.table.apply.draft import Inputs, NewTable, check_unique, name_of

__all__ = ["NewTable", "apply"]

WRITER = WriterVersion(library="tiltyard", version="0.1.0")

_Family = Callable[[Manifest, Any, Inputs], Manifest]

_FAMILIES: dict[type, _Family] = {
    Append: rows.append,
    Delete: rows.delete,
    Update: rows.update,
    Overwrite: whole.overwrite,
    Restore: whole.restore,
    CreateIndex: indices.create_index,
    Rewrite: rewrite.rewrite,
    Merge: columns.merge,
    Project: columns.project,
    DataReplacement: columns.data_replacement,
    DataOverlays: columns.data_overlay,
    ReserveFragments: metadata.reserve_fragments,
    UpdateConfig: metadata.update_config,
    UpdateBases: metadata.update_bases,
    UpdateMemWalState: mem_wal.update_mem_wal_state,
}


def apply(
    previous: Manifest | None,
    transaction: Transaction,
    *,
    version: int,
    timestamp_ns: int,
    restored: Manifest | None = None,
    source: Manifest | None = None,
    read: Manifest | None = None,
    new_table: NewTable | None = None,
    reuse_entry: IndexMetadata | None = None,
) -> Manifest:
    """The manifest of `version` that the transaction makes out of `previous` (None: the first of a new root).

    `restored`: what a Restore brings back. `source`: what a Clone copies. `read`: the manifest of the read
    version, None when it is gone (indices then earn no catch-up). `reuse_entry`: the fragment-reuse index of
    a Rewrite with deferred remapping. Raises InvalidInput for a transaction that does not fit the manifest,
    UnsupportedFeature for an operation that we do not know.
    """
    inputs = Inputs(
        version=version,
        timestamp_ns=timestamp_ns,
        restored=restored,
        source=source,
        read=read,
        new_table=new_table,
        reuse_entry=reuse_entry,
    )
    operation = transaction.operation
    if previous is None:
        return _finished(_first(operation, inputs), None, inputs)
    family = _FAMILIES.get(type(operation))
    if family is None:
        if isinstance(operation, Clone):
            raise InvalidInput("a clone can only be the first commit of a new table")
        raise UnsupportedFeature(f"operation {name_of(operation)} cannot be committed by this version")
    return _finished(family(previous, operation, inputs), previous, inputs)


def _first(operation: Operation, inputs: Inputs) -> Manifest:
    if isinstance(operation, Overwrite):
        return whole.create(operation, inputs)
    if isinstance(operation, Clone):
        return whole.clone(operation, inputs)
    raise InvalidInput(f"a table cannot begin with {name_of(operation)}; create it with an Overwrite")


def _finished(draft: Manifest, previous: Manifest | None, inputs: Inputs) -> Manifest:
    """What every commit does: order, marks, catch-up of indices, flags, who and when."""
    fragments = draft.fragments
    if previous is None or fragments is not previous.fragments:
        fragments = fragments.sorted_by_id()
        ids = fragments.ids
        if len(ids) > 1 and bool((ids[1:] == ids[:-1]).any()):
            check_unique(list(fragments), "the new version")
    stamped = replace(
        draft,
        fragments=fragments,
        version=inputs.version,
        timestamp_ns=inputs.timestamp_ns,
        writer_version=WRITER,
        transaction_file="",
        max_fragment_id=_max_id(draft.max_fragment_id, fragments.max_id),
    )
    if previous is not None:
        stamped = mem_wal.with_catch_up(stamped, previous, inputs)
    return flags.recomputed(stamped, previous)


def _max_id(mark: int | None, present: int | None) -> int | None:
    return max((each for each in (mark, present) if each is not None), default=None)
