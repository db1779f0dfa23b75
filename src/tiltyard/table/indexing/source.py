"""What goes into an index: the values of a column with the address of each row, and the entry of a segment
that was built."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tiltyard import runtime
from tiltyard.errors import FieldNotFound, InvalidInput, OutcomeUnknown, StoreError, TiltyardError, WrongType
from tiltyard.format.flags import uses_stable_row_ids
from tiltyard.format.index_metadata import IndexMetadata
from tiltyard.format.names import index_directory
from tiltyard.format.operations import CreateIndex
from tiltyard.format.roaring import encode_roaring
from tiltyard.format.transaction import Transaction
from tiltyard.index.btree.layout import ADDRESS_VERSION, ROW_ID_VERSION
from tiltyard.index.order import order_of
from tiltyard.table.commit import commit
from tiltyard.table.projection import ROW_ADDRESS
from tiltyard.table.row_counts import live_rows_by_id
from tiltyard.table.scan import Scan, ScanRequest

if TYPE_CHECKING:
    from tiltyard.format.schema import Field, Schema
    from tiltyard.index.btree.sort import Entries
    from tiltyard.index.btree.written import BuiltIndex
    from tiltyard.store import Store
    from tiltyard.table.snapshot import Snapshot

Progress = Callable[[int, int], None]
"""Told the rows that were read so far, and how many there are."""

PLAIN_EXTENSIONS = frozenset(("arrow.uuid",))
"""Extension types whose values are ordered as what they are stored as."""

SCAN_ROWS = 1 << 16
"""Rows of a batch that the column is read in."""


def path_of(schema: Schema, field_id: int) -> str:
    """The dotted name of a field."""
    return ".".join(each.name for each in (*schema.ancestors(field_id), schema.by_id(field_id)))


def indexable(schema: Schema, column: str) -> Field:
    """The field of a column or dotted path that a B-tree index can be on.

    Raises `FieldNotFound` for a column that is not there, `WrongType` for values that cannot be indexed.
    """
    if not isinstance(column, str):
        raise WrongType(f"the column of an index is named by text, found a {type(column).__name__}")
    found = _field(schema, column)
    kind = found.arrow_type
    above = schema.ancestors(found.id)
    reason = ""
    if any(each.logical_type != "struct" for each in above):
        reason = "it lies inside a list or map"
    elif found.extension_name and found.extension_name not in PLAIN_EXTENSIONS:
        reason = f"it is of the extension type {found.extension_name}"
    elif found.is_blob:
        reason = "it is a blob column"
    else:
        try:
            order_of(kind)
        except TiltyardError:
            reason = f"its values are of type {kind}"
    if reason:
        raise WrongType(
            f"a BTREE index cannot be on column {column!r}: {reason}; it must be an integer, float, bool, "
            "text, binary, decimal, fixed-size binary, date, time, timestamp or duration"
        )
    return found


def _field(schema: Schema, column: str) -> Field:
    """The field of a dotted path; one that differs in case alone is taken where there is no other."""
    try:
        return schema.field(column)
    except FieldNotFound:
        found = [each for each in schema.walk() if path_of(schema, each.id).lower() == column.lower()]
        if len(found) != 1:
            raise
        return found[0]


def column_entries(
    snapshot: Snapshot, field: Field, fragments: Iterable[int], progress: Progress | None = None
) -> Iterator[Entries]:
    """Values of the live rows of some fragments, beside their addresses (uint64). `progress` is told the rows
    that were read and how many there are."""
    wanted = sorted(fragments)
    total = 0 if progress is None else _live_rows(snapshot, wanted)
    done = 0
    if progress is not None:
        progress(0, total)
    if not wanted:
        return
    request = ScanRequest(
        columns=[path_of(snapshot.schema, field.id)],
        fragments=wanted,
        row_address=True,
        batch_rows=SCAN_ROWS,
    )
    for batch in Scan(snapshot, request).batches():
        addresses = batch.column(batch.schema.get_field_index(ROW_ADDRESS))
        yield _storage(batch.column(0)), addresses.to_numpy()
        done += batch.num_rows
        if progress is not None:
            progress(done, total)


def _live_rows(snapshot: Snapshot, fragments: Sequence[int]) -> int:
    live = live_rows_by_id(snapshot)
    return sum(live[id] for id in fragments)


def _storage(array: pa.Array) -> pa.Array:
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def address_version(snapshot: Snapshot) -> int:
    """The version of a segment that holds row addresses."""
    return ADDRESS_VERSION if uses_stable_row_ids(snapshot.manifest) else ROW_ID_VERSION


def new_entry(
    snapshot: Snapshot,
    uuid: str,
    field_id: int,
    name: str,
    built: BuiltIndex,
    fragments: Iterable[int],
    *,
    dataset_version: int | None = None,
) -> IndexMetadata:
    """The entry of a segment that was built; `fragments` are those that it answers for."""
    covered = np.array(sorted(fragments), np.uint32)
    return IndexMetadata(
        uuid=uuid,
        fields=(field_id,),
        name=name,
        dataset_version=snapshot.version if dataset_version is None else dataset_version,
        fragment_bitmap=encode_roaring(covered),
        details=built.details,
        index_version=built.index_version,
        created_at=runtime.now_ns() // 1_000_000,
        files=built.files,
    )


@contextmanager
def written_segments(store: Store) -> Iterator[list[str]]:
    """Collects the uuids of segments that are being written; when the block fails and no version can name
    them, they are removed."""
    uuids: list[str] = []
    try:
        yield uuids
    except OutcomeUnknown:
        raise
    except TiltyardError as error:
        if not getattr(error, "files_referenced", False):
            discard_segments(store, uuids)
        raise
    except BaseException:
        discard_segments(store, uuids)
        raise


def discard_segments(store: Store, uuids: Iterable[str]) -> None:
    """Remove segments that no version names; what cannot be removed is collected by age."""
    for uuid in uuids:
        with suppress(StoreError):
            store.delete_tree(index_directory(uuid))


def commit_indices(
    snapshot: Snapshot, new: Sequence[IndexMetadata], removed: Sequence[IndexMetadata]
) -> Snapshot:
    """Commit a change of the index list that was planned on a version."""
    operation = CreateIndex(tuple(new), tuple(removed))
    transaction = Transaction(snapshot.version, str(runtime.uuid4()), operation)
    return commit(snapshot.store, transaction, session=snapshot.session, base=snapshot)


def check_name(name: str) -> None:
    """Raise `InvalidInput` for what no index can be called."""
    if not isinstance(name, str):
        raise WrongType(f"the name of an index is text, found a {type(name).__name__}")
    if not name:
        raise InvalidInput("the name of an index must not be empty")
