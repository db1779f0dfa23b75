"""Running a merge: plan on the newest version, write, commit; again after a conflict.

The plan is made whole before a file is written, so that what is wrong with the data leaves storage as it was.
Keys of inserted rows go into the transaction, so that of two merges that insert one key the second plans
again and finds the row of the first (decision D6; case O03).

Invariants, and the tests that check them (tests/table/merge/, tests/cases/test_g_merge.py):
1. Each row of the table is changed by at most one source row, and each new key is inserted once.
2. A null key matches nothing and is inserted each time.
3. A merge that commits saw every row that was committed before it with one of the keys it inserts, unless
   the other writer keeps no record of its keys and commits second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tiltyard.errors import MatchedRow
from tiltyard.format.operations import KeyExistenceFilter, Update
from tiltyard.format.schema import Schema
from tiltyard.table.merge.bind import Bound, bind
from tiltyard.table.merge.inserted import MAX_COMPARED_KEYS, InsertedKeys
from tiltyard.table.merge.join import KeyIndex
from tiltyard.table.merge.key_filter import has_unhashed, key_filter
from tiltyard.table.merge.keys import Key, column_at, shown_key
from tiltyard.table.merge.lookup import Found, find_rows
from tiltyard.table.merge.plan import (
    NO_PAIRS,
    MergePlan,
    by_fragment,
    check_one_each,
    pairs_of,
    refuse_duplicates,
    unmatched_rows,
    without,
)
from tiltyard.table.merge.rows import inserted_rows, new_rows, passing, rewritten_columns
from tiltyard.table.merge.settings import Duplicates, Matched, Settings, WriteMode
from tiltyard.table.merge.source import FittedSource, SourceRows
from tiltyard.table.plan import estimated_row_bytes
from tiltyard.table.replanning import replanned
from tiltyard.table.rewriting import writes_less
from tiltyard.table.row_changes import RowChanges, table_file_version
from tiltyard.table.scan import Scan, ScanRequest
from tiltyard.table.unique import KeysMeet, broken
from tiltyard.table.write import WriteOptions

if TYPE_CHECKING:
    from tiltyard.session import Session
    from tiltyard.store import Store
    from tiltyard.table.snapshot import Snapshot

KEPT_KEYS = 1 << 18
"""Source rows up to which what was made of their keys is kept in case the merge must be planned again."""

COLUMN_REWRITE_BYTES = 8 << 20
"""Estimated bytes of moved rows from which rewriting columns is thought of: it makes a merge plan again
whenever somebody else changes the same fragments.
"""


@dataclass(frozen=True, slots=True)
class Merged:
    """The version that a merge made, and its counts of rows."""

    snapshot: Snapshot
    statistics: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Planned:
    """A merge decided on one version, nothing written yet."""

    snapshot: Snapshot
    bound: Bound
    source: FittedSource
    plan: MergePlan
    by_columns: bool
    inserted_keys: KeyExistenceFilter | None
    keys_meet: KeysMeet | None
    matched_rows: int
    """Rows of the table with a key of the source, whatever becomes of them."""
    index: str | None
    """The index that found them; None where all keys were read."""


@dataclass(frozen=True, slots=True)
class _Keys:
    """What the source's keys were made into, for a key of certain types."""

    key: Key
    columns: list[Any]
    index: KeyIndex


class MergeJob:
    """One merge: settings and source. It may be planned on several versions."""

    def __init__(self, settings: Settings, source: SourceRows) -> None:
        settings.check()
        self.settings = settings
        self._source = source
        self._known: _Keys | None = None

    # -- planning ----------------------------------------------------------------------------------

    def planned(self, snapshot: Snapshot) -> Planned:
        """Decide on a version what changes.

        Raises `AmbiguousMerge`, `MatchedRow`, and what `bind` raises.
        """
        bound = bind(snapshot, self.settings, self._source.schema)
        source = FittedSource(self._source, bound.fit)
        keys = self._keyed(bound, source)
        settings = self.settings

        def show(row: int) -> str:
            return shown_key(bound.key.names, [column[row].as_py() for column in keys.columns])

        if keys.index.has_duplicates and _refuses_every_duplicate(settings):
            refuse_duplicates(keys.index.codes, np.arange(keys.index.rows), show)
        found = find_rows(snapshot, bound.key, keys.index, keys.columns, use_index=settings.use_index)
        if bound.is_unique:
            _refuse_broken(bound.key, keys, found)
        if settings.matched is Matched.FAIL and len(found.addresses):
            row = int(keys.index.first_rows()[found.codes[0]])
            raise MatchedRow(
                f"Merge insert failed: found matching row with key values: {show(row)}; nothing was changed"
            )
        pairs = NO_PAIRS
        if settings.matched in (Matched.UPDATE, Matched.DELETE):
            pairs = pairs_of(keys.index, found.addresses, found.codes, settings.duplicates)
            if bound.condition is not None and len(pairs):
                pairs = pairs.where(passing(snapshot, bound, source, pairs, bound.condition))
            check_one_each(pairs, show)
        inserted, skipped = np.empty(0, np.int64), 0
        if settings.insert:
            inserted, skipped = unmatched_rows(keys.index, found.codes, settings.duplicates, show)
        deleted = pairs.addresses if settings.matched is Matched.DELETE else np.empty(0, np.uint64)
        if settings.by_source:
            request = ScanRequest(columns=[], where=settings.by_source_condition)
            gone = without(Scan(snapshot, request).offsets(), found.addresses)
            deleted = np.sort(np.concatenate([deleted, gone]))
        updated = pairs if settings.matched is Matched.UPDATE else NO_PAIRS
        plan = MergePlan(updated, inserted, deleted, skipped)
        inserted_keys, keys_meet = None, None
        recorded = recorded_key(bound)
        if recorded is not None:
            taken = pa.array(inserted)
            by_id = dict(zip(bound.key.field_ids, keys.columns, strict=True))
            columns = [by_id[id].take(taken) for id in recorded.field_ids]
            inserted_keys = key_filter(recorded, columns)
            if len(inserted) <= MAX_COMPARED_KEYS:
                keys_meet = InsertedKeys(recorded, columns).meet
        by_columns = rewrites_columns(snapshot, bound, plan)
        return Planned(
            snapshot,
            bound,
            source,
            plan,
            by_columns,
            inserted_keys,
            keys_meet,
            len(found.addresses),
            found.index,
        )

    def _keyed(self, bound: Bound, source: FittedSource) -> _Keys:
        """The keys of the source, made once for a key. Every row is checked against the schema on the way."""
        parts: list[list[Any]] = [[] for _ in bound.key.paths]
        known = self._known
        for batch in source.batches():
            if known is None or known.key != bound.key:
                for at, path in enumerate(bound.key.paths):
                    parts[at].append(column_at(batch, path))
        if known is None or known.key != bound.key:
            columns = []
            for part, field in zip(parts, bound.key.fields, strict=True):
                columns.append(_column(part, field.arrow_type))
                part.clear()
            known = _Keys(bound.key, columns, KeyIndex(columns))
            if self._source.rows <= KEPT_KEYS:
                self._known = known
        return known

    # -- writing -----------------------------------------------------------------------------------

    def write(self, changes: RowChanges, planned: Planned) -> Update:
        """Write all files of a plan; gives the operation to commit."""
        bound, plan, snapshot = planned.bound, planned.plan, planned.snapshot
        version = self.settings.file_version or table_file_version(snapshot)
        options = WriteOptions(version=version)
        if planned.by_columns:
            columns = Schema(bound.columns_to_rewrite)
            start = 0
            for id, offsets in by_fragment(plan.updated.addresses).items():
                rows = plan.updated.rows[start : start + len(offsets)]
                start += len(offsets)
                batches = rewritten_columns(snapshot, bound, planned.source, columns, id, offsets, rows)
                changes.rewrite(id, columns, batches, offsets, version=version)
            if len(plan.inserted):
                changes.add(inserted_rows(planned.source, plan), options=options)
        else:
            taken = plan.updated.addresses
            if len(plan.deleted):
                taken = np.sort(np.concatenate([taken, plan.deleted]))
            changes.take_away(by_fragment(taken))
            if len(plan.updated) or len(plan.inserted):
                changes.add(new_rows(snapshot, bound, planned.source, plan), options=options)
        return changes.updating(
            changed_fields=() if planned.by_columns else bound.changed_fields,
            inserted_rows=planned.inserted_keys,
            compacted_sstables=self.settings.compacted_sstables,
        )

    # -- all of it ---------------------------------------------------------------------------------

    def run(self, store: Store, session: Session, properties: Mapping[str, str] | None = None) -> Merged:
        """Merge into the newest version and commit; commits also when nothing changes.

        A conflict with rows that others changed or inserted plans again, see `replanned`. Raises
        `TooMuchContention`, what `planned` raises, and what a commit raises.
        """

        def attempt(snapshot: Snapshot) -> Merged:
            planned = self.planned(snapshot)
            with RowChanges(snapshot) as changes:
                after = changes.commit(
                    self.write(changes, planned),
                    properties=properties,
                    unhashed_key=self.has_unhashed_key(planned),
                    keys_meet=planned.keys_meet,
                )
            return Merged(after, planned.plan.statistics)

        return replanned(
            attempt,
            store,
            session,
            what="merge insert",
            conflict_retries=self.settings.conflict_retries,
            retry_seconds=self.settings.retry_seconds,
        )

    def has_unhashed_key(self, planned: Planned) -> bool:
        """Whether the official writer would leave the inserted keys out of its filter."""
        return planned.inserted_keys is not None and has_unhashed(planned.bound.key)


def _refuses_every_duplicate(settings: Settings) -> bool:
    """Whether two source rows with one key are wrong whatever the table holds."""
    acts = settings.matched in (Matched.UPDATE, Matched.DELETE) and settings.condition is None
    return settings.duplicates is Duplicates.FAIL and acts and settings.insert


def recorded_key(bound: Bound) -> Key | None:
    """The key whose inserted values the transaction records, with its columns in that order; None for none.

    It does whenever rows may be inserted, and where the official writer would say that there were none: in a
    merge on the primary key. A merge on the table's unique key always does: it keeps the rule
    (`table.unique`).
    """
    key = bound.key
    if bound.is_unique:
        sets_key = bound.updates is not None and set(bound.updates.field_ids) & set(key.field_ids)
        return None if sets_key else bound.unique  # None: the commit looks at the rows themselves
    if bound.settings.insert:
        return key
    primary = tuple(field.id for field in bound.schema.primary_key)
    return key if bound.settings.matched is Matched.UPDATE and key.field_ids == primary else None


def _refuse_broken(key: Key, keys: _Keys, found: Found) -> None:
    """Raise `DuplicateKey` where two rows of the table have one of the keys, which is to be unique."""
    counts = np.bincount(found.codes, minlength=keys.index.distinct)
    if len(counts) and counts.max() > 1:
        raise broken(key, keys.columns, int(keys.index.first_rows()[int(counts.argmax())]))


def _column(parts: list[Any], kind: Any) -> Any:
    from tiltyard.expr.arrays import plain_type

    if not parts:
        return pa.nulls(0, plain_type(kind))
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def rewrites_columns(snapshot: Snapshot, bound: Bound, plan: MergePlan) -> bool:
    """Whether the changed columns are written anew rather than the changed rows (transactions, 8.3): where
    that was asked for; else where no row is deleted, many are updated, most of those of each touched
    fragment, and it writes much less.
    """
    mode = bound.settings.write_mode
    if mode is not WriteMode.AUTO:
        return mode is WriteMode.COLUMNS
    if len(plan.deleted) or not (bound.is_partial or bound.updates is not None):
        return False
    columns = bound.columns_to_rewrite
    moved = len(plan.updated) * estimated_row_bytes(snapshot.schema.fields)
    if not columns or moved < COLUMN_REWRITE_BYTES:
        return False
    return writes_less(snapshot, by_fragment(plan.updated.addresses), columns)
