"""Rows taken away, moved and added in one version: what deletes, updates and merges share.

Rows are never changed where they stand. A row that is deleted or moved is marked in a new deletion file of
its fragment; a fragment whose last row goes is removed whole; moved and inserted rows are written into new
fragments (transactions pack, sections 4, 7 and 8.3). The other way, `rewrite`, puts new columns beside the
old ones of a fragment. Nothing is visible before `commit`.

Invariants, and the tests that check them (tests/table/test_row_changes.py):
1. Files are whole and durable before the commit that names them begins (D14, step 0).
2. Files are removed after a definite failure, and only then; a deletion file that a rebase replaced is
   removed once the version stands without it.
3. With stable row ids the moved rows come first in the new fragments and keep their ids; the commit gives
   ids to the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tiltyard import runtime
from tiltyard.errors import InvalidInput, OutcomeUnknown, StoreError, TiltyardError, UnsupportedFeature
from tiltyard.file.writer import FileWriter
from tiltyard.format.deletion import encode_deletions
from tiltyard.format.flags import uses_stable_row_ids
from tiltyard.format.fragment import DeletionFile, Fragment
from tiltyard.format.names import data_file_name, data_path
from tiltyard.format.operations import (
    REWRITE_COLUMNS,
    REWRITE_ROWS,
    CompactedSsTable,
    Delete,
    KeyExistenceFilter,
    Update,
)
from tiltyard.format.roaring import encode_roaring
from tiltyard.format.row_ids import encode_row_ids
from tiltyard.format.transaction import Transaction
from tiltyard.format.version import FileVersion
from tiltyard.table.apply.columns import without_fields
from tiltyard.table.apply.draft import live_files
from tiltyard.table.commit import commit
from tiltyard.table.deletions import load_deletions, union
from tiltyard.table.fragment_columns import FragmentColumns
from tiltyard.table.replanning import CONFLICT_RETRIES, RETRY_SECONDS, replanned
from tiltyard.table.system_columns import FRAGMENT_SHIFT, row_ids
from tiltyard.table.write import Progress, WriteOptions, remove_files, write_fragments

if TYPE_CHECKING:
    from tiltyard.format.schema import Schema
    from tiltyard.table.snapshot import Snapshot
    from tiltyard.table.unique import KeysMeet

PARALLEL_FRAGMENTS = 8
"""Deletion files from which several are written at a time; before that a hand-over costs more."""

_MAX_U64 = (1 << 64) - 1
_OFFSET_MASK = np.uint64((1 << FRAGMENT_SHIFT) - 1)

Offsets = npt.NDArray[np.uint32]
Addresses = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class NewRows:
    """A `pa.RecordBatch` of rows for new fragments. `moved_from`: the address (uint64) that each row had;
    None for rows that are new to the table.
    """

    batch: Any
    moved_from: Addresses | None = None


def table_file_version(snapshot: Snapshot) -> FileVersion:
    """The version that the table's data files are written in."""
    data_format = snapshot.manifest.data_format
    return FileVersion.V2_2 if data_format is None else FileVersion.parse(data_format.version)


class RowChanges:
    """The files of one change to a version's rows, until `commit` publishes them.

    Use it as a block: left without a commit, it removes what it wrote.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._taken: dict[int, Offsets] = {}
        self._new: list[Fragment] = []
        self._rewritten: dict[int, Fragment] = {}
        self._rewritten_offsets: dict[int, Offsets] = {}
        self._rewritten_fields: dict[int, None] = {}
        self._deletions: list[tuple[int, str]] = []
        self._columns: list[str] = []
        self._settled = False

    def __enter__(self) -> RowChanges:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()

    # -- what changes ------------------------------------------------------------------------------

    @property
    def rows_taken(self) -> int:
        """Rows that `take_away` was told of."""
        return sum(map(len, self._taken.values()))

    def take_away(self, taken: Mapping[int, Offsets]) -> None:
        """Rows that leave their place, deleted or moved: sorted physical offsets (uint32) by fragment id."""
        for id, offsets in taken.items():
            if len(offsets):
                known = self._taken.get(id)
                self._taken[id] = offsets if known is None else union(known, offsets)

    def add(
        self,
        rows: Iterable[NewRows],
        *,
        options: WriteOptions | None = None,
        arrow_schema: Any = None,
        progress: Progress | None = None,
    ) -> None:
        """Write rows into new fragments as they come: all moved rows first, then inserted ones. Call it once.

        Columns are fitted to the table's schema (`table.fit`); nullable ones that are missing are null.
        Raises `SchemaMismatch` and `InvalidInput`, which name the column, and store errors.
        """
        if self._new:
            raise InvalidInput("the new rows of one change are written in one stream")
        if options is None:
            options = WriteOptions(version=table_file_version(self.snapshot))
        carried: list[Addresses] = []
        fragments = write_fragments(
            self.snapshot.store,
            self.snapshot.schema,
            self._noting_ids(rows, carried),
            options,
            arrow_schema=arrow_schema,
            progress=progress,
        )
        self._new = fragments
        if carried:
            self._new = _with_row_ids(fragments, np.concatenate(carried))

    def _noting_ids(self, rows: Iterable[NewRows], carried: list[Addresses]) -> Iterator[Any]:
        """The batches; the stable ids of their moved rows are put into `carried` on the way."""
        stable = uses_stable_row_ids(self.snapshot.manifest)
        inserting = False
        for each in rows:
            if each.moved_from is None:
                inserting = inserting or each.batch.num_rows > 0
            elif len(each.moved_from) != each.batch.num_rows:
                raise InvalidInput(
                    f"{each.batch.num_rows} moved rows come with {len(each.moved_from)} addresses"
                )
            elif inserting and each.batch.num_rows:
                raise InvalidInput("moved rows must be written before inserted ones")
            elif stable:
                carried.append(stable_ids(self.snapshot, each.moved_from))
            yield each.batch

    def rewrite(
        self,
        fragment_id: int,
        fields: Schema,
        batches: Iterable[Any],
        offsets: Offsets,
        *,
        version: FileVersion | None = None,
    ) -> None:
        """Write some columns of a fragment anew, beside the others.

        `fields`: top-level fields of the table's schema. `batches`: `pa.RecordBatch`es of exactly these
        columns for *all* physical rows of the fragment in order, deleted ones included. `offsets`: sorted
        physical offsets (uint32) of the rows whose values differ. `version`: of the file; the
        table's by default.
        """
        fragment = self._rewritten.get(fragment_id) or self._fragment(fragment_id)
        version = version or table_file_version(self.snapshot)
        copy = rewritten_fragment(self.snapshot, fragment, fields, batches, version)
        self._columns.append(data_path(copy.files[-1].path))
        self._rewritten[fragment_id] = copy
        known = self._rewritten_offsets.get(fragment_id)
        self._rewritten_offsets[fragment_id] = union(known, offsets)
        self._rewritten_fields.update(dict.fromkeys(field.id for field in fields.walk()))

    # -- what is committed -------------------------------------------------------------------------

    def deleting(self, predicate: str) -> Delete:
        """The operation that deletes the rows taken away; their deletion files are durable."""
        if self._new or self._rewritten:
            raise InvalidInput("a delete neither adds nor rewrites rows")
        updated, removed = self._marked()
        return Delete(updated, removed, predicate)

    def updating(
        self,
        *,
        changed_fields: Sequence[int] = (),
        inserted_rows: KeyExistenceFilter | None = None,
        compacted_sstables: tuple[CompactedSsTable, ...] = (),
    ) -> Update:
        """The operation of an update or merge; all its files are durable.

        `changed_fields`: ids of the columns whose values the moved rows changed (not for rewritten columns).
        """
        updated, removed = self._marked()
        offsets: dict[int, bytes] = {}
        if self._rewritten and uses_stable_row_ids(self.snapshot.manifest):
            gone = set(removed)
            offsets = {
                id: encode_roaring(each) for id, each in self._rewritten_offsets.items() if id not in gone
            }
        return Update(
            removed_fragment_ids=removed,
            updated_fragments=updated,
            new_fragments=tuple(self._new),
            fields_modified=tuple(self._rewritten_fields),
            compacted_sstables=compacted_sstables,
            fields_for_preserving_frag_bitmap=tuple(changed_fields),
            update_mode=REWRITE_COLUMNS if self._rewritten else REWRITE_ROWS,
            inserted_rows=inserted_rows,
            updated_fragment_offset_bitmaps=offsets,
        )

    def _marked(self) -> tuple[tuple[Fragment, ...], tuple[int, ...]]:
        """Copies of the fragments that change, and ids of those that no row is left of."""
        work = [partial(self._mark, id, offsets) for id, offsets in self._taken.items()]
        marked = runtime.parallel(work) if len(work) >= PARALLEL_FRAGMENTS else [each() for each in work]
        copies = dict(self._rewritten)
        removed = []
        for id, copy in zip(self._taken, marked, strict=True):
            copies.pop(id, None)
            if copy is None:
                removed.append(id)
            else:
                copies[id] = copy
        return tuple(copies[id] for id in sorted(copies)), tuple(removed)

    def _mark(self, fragment_id: int, offsets: Offsets) -> Fragment | None:
        fragment = self._rewritten.get(fragment_id) or self._fragment(fragment_id)
        copy = mark_deleted(self.snapshot, fragment, offsets)
        if copy is not None and copy.deletion is not None:
            self._deletions.append((fragment_id, copy.deletion.path(fragment_id)))
        return copy

    def _fragment(self, fragment_id: int) -> Fragment:
        found = self.snapshot.fragment(fragment_id)
        if found is None:
            raise InvalidInput(
                f"version {self.snapshot.version} of {self.snapshot.store.uri} has no fragment {fragment_id}"
            )
        return found

    def commit(
        self,
        operation: Delete | Update,
        *,
        properties: Mapping[str, str] | None = None,
        unhashed_key: bool = False,
        keys_meet: KeysMeet | None = None,
    ) -> Snapshot:
        """Publish the operation on the newest version and give the version that it made.

        Raises what `commit.commit` raises; after a definite failure the files are removed. Rows that others
        deleted or moved meanwhile, of ours, are a `RetryableConflict`; others are merged.
        """
        snapshot = self.snapshot
        transaction = Transaction(
            read_version=snapshot.version,
            uuid=str(runtime.uuid4()),
            operation=operation,
            properties=dict(properties or {}),
        )
        self._settled = True  # whatever else ends the commit, a version may name the files
        try:
            after = commit(
                snapshot.store,
                transaction,
                session=snapshot.session,
                base=snapshot,
                # Of columns that we rewrote no row can be left to another (transactions pack, section 8.3).
                affected=None if self._rewritten else self._taken,
                unhashed_key=unhashed_key,
                keys_meet=keys_meet,
            )
        except OutcomeUnknown:
            raise
        except TiltyardError as error:
            if not error.files_referenced:
                self._settled = False
                self.discard()
            raise
        self._drop_replaced(after)
        return after

    def _drop_replaced(self, after: Snapshot) -> None:
        """Remove deletion files that the rebase merged into others: no version ever named them."""
        replaced: list[str] = []
        for id, path in self._deletions:
            fragment = after.fragment(id)
            if fragment is None or fragment.deletion is None or fragment.deletion.path(id) != path:
                replaced.append(path)
        after.store.delete_many(replaced)  # what stays is collected by age

    def keep(self) -> None:
        """Leave the files to whoever commits the operation later; one that never is, is collected by age."""
        self._settled = True

    def discard(self) -> None:
        """Remove what was written, unless a version may name it."""
        if self._settled:
            return
        self._settled = True
        remove_files(self.snapshot.store, self._new)
        paths = [*self._columns, *(path for _, path in self._deletions)]
        self.snapshot.store.delete_many(paths)  # what stays is collected by age


def _with_row_ids(fragments: Sequence[Fragment], ids: Addresses) -> list[Fragment]:
    """The new fragments with the ids of their moved rows, which come first over all of them."""
    start, stamped = 0, []
    for fragment in fragments:
        mine = ids[start : start + fragment.physical_rows]
        start += fragment.physical_rows
        stamped.append(replace(fragment, row_ids=encode_row_ids(mine)) if len(mine) else fragment)
    return stamped


def stable_ids(snapshot: Snapshot, addresses: Addresses) -> Addresses:
    """The stable row ids (uint64) of the rows at these addresses, in their order."""
    ids = np.empty(len(addresses), np.uint64)
    holders = (addresses >> np.uint64(FRAGMENT_SHIFT)).astype(np.int64)
    offsets = (addresses & _OFFSET_MASK).astype(np.int64)
    for holder in np.unique(holders):
        fragment = snapshot.fragment(int(holder))
        if fragment is not None and fragment.spilled_row_ids:
            raise UnsupportedFeature(
                f"fragment {holder} keeps the ids of its rows in a data file (config "
                "lance.row_lineage.spill), which this version does not read: its rows cannot be moved with "
                "their ids; update them with the program that wrote them"
            )
        known = None if fragment is None else row_ids(snapshot, fragment)
        if known is None:
            raise InvalidInput(
                f"version {snapshot.version} of {snapshot.store.uri} has no row ids for fragment {holder}"
            )
        here = holders == holder
        ids[here] = known[offsets[here]]
    return ids


def rewritten_fragment(
    snapshot: Snapshot, fragment: Fragment, fields: Schema, batches: Iterable[Any], version: FileVersion
) -> Fragment:
    """The fragment with some columns from a new data file, the last of its files; see
    `RowChanges.rewrite`.
    """
    path = data_path(data_file_name(runtime.uuid4().bytes))
    with FileWriter(snapshot.store, path, fields, version=version) as writer:
        for batch in batches:
            writer.write(batch)
        if writer.rows != fragment.physical_rows:
            raise InvalidInput(
                f"{writer.rows} rows were given to rewrite columns of fragment {fragment.id}, which has "
                f"{fragment.physical_rows}"
            )
        file = writer.close()
    ids = frozenset(field.id for field in fields.walk())
    files = (*(without_fields(each, ids) for each in fragment.files), file)
    return live_files(replace(fragment, files=files))


def mark_deleted(snapshot: Snapshot, fragment: Fragment, offsets: Offsets) -> Fragment | None:
    """The fragment with these rows deleted too, its new deletion file durable; None when no row is left.

    `offsets` are sorted physical offsets (uint32).
    """
    deleted = union(load_deletions(snapshot, fragment), offsets)
    if len(deleted) >= _rows_of(snapshot, fragment):
        return None
    kind, data = encode_deletions(deleted)
    deletion = DeletionFile(
        kind=kind,
        read_version=snapshot.version,
        id=runtime.uuid4().int & _MAX_U64,
        rows=len(deleted),
    )
    path = deletion.path(fragment.id)
    try:
        with snapshot.store.writer(path) as writer:
            writer.write([data])
            writer.commit()
    except StoreError as error:
        raise StoreError(
            f"deletion file {path} of {snapshot.store.uri} could not be written ({error}); nothing was "
            "changed"
        ) from error
    return replace(fragment, deletion=deletion)


def _rows_of(snapshot: Snapshot, fragment: Fragment) -> int:
    """Physical rows; very old manifests do not say, then the file does."""
    if fragment.physical_rows or not fragment.files:
        return fragment.physical_rows
    return FragmentColumns(snapshot, ()).open(fragment, fragment.files[0]).num_rows


__all__ = [
    "CONFLICT_RETRIES",
    "RETRY_SECONDS",
    "NewRows",
    "RowChanges",
    "mark_deleted",
    "replanned",
    "rewritten_fragment",
    "stable_ids",
    "table_file_version",
]
