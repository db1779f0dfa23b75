"""One frozen generation as a small table beside the big one (MemWAL, sections 4.3-4.7; decision D19).

Rows stay in the order in which they came; of each key only the last lives, the others are in the deletion
file. Of a table with merge functions rows are merged first: of each key there is one that deletes, or one of
what is to be merged with older rows, or the one and then the other; its flags keep those out who would take
that for whole rows. The manifest is written once, after everything that it names and everything that readers
look for beside it; only a directory in which all of that is found may be named by a shard's manifest.

Invariants, and their tests in tests/memwal/test_sstable.py:
1. Keys are compared, not their hashes: no living row is ever taken for another.
2. A directory is named nowhere before each of its files was found again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard import runtime
from tiltyard.errors import ShardError, StoreError
from tiltyard.expr.arrays import bools_of, plain
from tiltyard.file.writer import FileWriter
from tiltyard.format import names
from tiltyard.format.deletion import encode_deletions
from tiltyard.format.flags import recomputed, with_partial_rows
from tiltyard.format.fragment import DeletionFile, Fragment, FragmentList
from tiltyard.format.manifest import Manifest, encode_manifest
from tiltyard.format.operations import Overwrite
from tiltyard.format.shard_manifest import SsTable
from tiltyard.format.transaction import Transaction
from tiltyard.format.version import FileVersion
from tiltyard.index.btree import BuildLimits, build
from tiltyard.memwal import layout
from tiltyard.memwal.folding import shortened
from tiltyard.memwal.key_hash import key_hashes
from tiltyard.memwal.keys import BATCH_BYTES, counted_bytes, sortable
from tiltyard.memwal.log_schema import TOMBSTONE
from tiltyard.memwal.memtable import Rows
from tiltyard.memwal.merge_functions import Functions
from tiltyard.store import Created, Store
from tiltyard.table.apply import NewTable, apply
from tiltyard.table.indexing.create import build_entry
from tiltyard.table.merge.join import KeyIndex
from tiltyard.table.merge.key_filter import bitmap_of
from tiltyard.table.row_changes import table_file_version
from tiltyard.table.snapshot import Snapshot
from tiltyard.table.versions import VersionLocation

if TYPE_CHECKING:
    from tiltyard.format.index_metadata import IndexMetadata
    from tiltyard.session import Session

PK_PAGE_ROWS = 8192
SHARED_ROWS = 1 << 15
"""Rows from which their files are made by several threads."""

HASHED_ROWS = 1 << 16
"""Keys hashed at a time."""

_MAX_U64 = (1 << 64) - 1


def written_version(base: Snapshot) -> FileVersion:
    """The version of the data files that streams write for a table, here and into the table: its own, where
    ours writes it. Nobody is there to be asked for another, and all readers take both.
    """
    version = table_file_version(base)
    return FileVersion.V2_2 if version is FileVersion.V2_0 else version


def write_sstable(
    shard: Store,
    name: str,
    generation: int,
    rows: Rows,
    version: FileVersion,
    session: Session,
    maintained: Sequence[IndexMetadata] = (),
    *,
    awaited: bool = True,
) -> SsTable:
    """Write a generation into the directory `name` of a shard, durably; what the shard's manifest says of it.

    `version`: see `written_version`. `maintained`: B-trees of the table that this one gets too.
    `awaited`: whether somebody waits for it; what is written beside callers leaves them a processor.
    Raises store errors; what was written then stays, named by nobody, until it is collected.
    """
    functions = rows.schema.functions
    if functions is not None:
        rows = _shortened(rows, functions)
    keys = rows.key_columns()
    directory = shard.at(name)
    with directory.together() as store:
        fragment = _fragment(store, rows, keys, version, awaited)
        transaction = _transaction(fragment, rows)
        manifest = _manifest(fragment, transaction, rows, version)
        if functions is not None:
            manifest = with_partial_rows(manifest)
        if maintained:
            manifest = _indexed(store, manifest, maintained, session)
        path = names.manifest_path(1)
        answer = store.create(path, encode_manifest(manifest, transaction))
        if answer is not Created.WON:
            raise StoreError(
                f"the manifest of generation {generation} could not be written to {store.uri}: "
                f"{answer.value} ({store.failure(path)}); it is written again under another name"
            )
    _check_complete(directory, manifest, bool(keys))
    key_bytes = sum(counted_bytes(b.column(name)) for b in rows.batches for name in rows.schema.key)
    return SsTable(
        generation,
        name,
        sum(BATCH_BYTES + sum(counted_bytes(each) for each in b.columns) for b in rows.batches),
        rows.rows,
        key_bytes if keys else None,
    )


def _fragment(store: Store, rows: Rows, keys: Sequence[Any], version: FileVersion, awaited: bool) -> Fragment:
    """Write the rows and what is found by their keys."""

    def living() -> Fragment:
        made = _data_file(store, rows, version)
        is_merged = rows.schema.functions is not None
        superseded = np.empty(0, np.uint32) if is_merged else _superseded(keys, rows.rows)
        return replace(made, deletion=_deletion_file(store, superseded)) if len(superseded) else made

    parts: list[Callable[[], Any]] = [
        living,
        lambda: _key_index(store, keys, rows.rows),
        lambda: _bloom_filter(store, keys, rows.rows),
    ]
    if getattr(store, "ranged", False):  # then they are waited for, and leave the processor alone
        made = runtime.at_once(parts)
    elif awaited and rows.rows >= SHARED_ROWS:
        made = runtime.parallel(parts)
    else:
        made = [part() for part in parts]
    return cast(Fragment, made[0])


def _shortened(rows: Rows, functions: Functions) -> Rows:
    """The rows of a table with merge functions, as few as mean the same."""
    fields = rows.schema.stored.fields
    table = pa.Table.from_batches(rows.batches, rows.schema.stored.arrow)
    codes = KeyIndex(rows.key_columns()).codes
    deletes = bools_of(plain(table.column(TOMBSTONE).combine_chunks()))
    made = shortened(table, codes, deletes, [functions.of(each) for each in fields])
    return Rows(made.combine_chunks().to_batches(), rows.schema)


def _data_file(store: Store, rows: Rows, version: FileVersion) -> Fragment:
    path = names.data_path(names.data_file_name(runtime.uuid4().bytes))
    with FileWriter(store, path, rows.schema.stored, version=version) as writer:
        for batch in rows.batches:
            writer.write(batch)
        file = writer.close()
    return Fragment(0, (replace(file, path=file.path.removeprefix(f"{names.DATA_DIR}/")),), rows.rows)


def _key_index(store: Store, keys: Sequence[Any], rows: int) -> None:
    """The B-tree of the keys of all rows, superseded ones included; none without a key."""
    if not keys:
        return
    values = sortable(keys)
    offsets = np.arange(rows, dtype=np.uint64)
    limits = BuildLimits(page_rows=PK_PAGE_ROWS)
    build(store, layout.PK_INDEX, [(values, offsets)], values.type, limits=limits)


def _bloom_filter(store: Store, keys: Sequence[Any], rows: int) -> None:
    hashed = (
        key_hashes([each.slice(at, HASHED_ROWS) for each in keys], min(HASHED_ROWS, rows - at))
        for at in range(0, rows, HASHED_ROWS)
    )
    store.put(layout.BLOOM_FILTER, bitmap_of(hashed))


def _superseded(keys: Sequence[Any], rows: int) -> npt.NDArray[np.uint32]:
    """Offsets of rows whose key comes again later, ascending."""
    if not keys:
        return np.empty(0, np.uint32)
    index = KeyIndex(keys)
    if not index.has_duplicates:
        return np.empty(0, np.uint32)
    old = np.ones(rows, np.bool_)
    old[index.last_rows()] = False
    return np.flatnonzero(old).astype(np.uint32)


def _deletion_file(store: Store, offsets: npt.NDArray[np.uint32]) -> DeletionFile:
    kind, data = encode_deletions(offsets)
    file = DeletionFile(kind, 1, runtime.uuid4().int & _MAX_U64, len(offsets))
    with store.writer(file.path(0)) as writer:
        writer.write([data])
        writer.commit()
    return file


def _transaction(fragment: Fragment, rows: Rows) -> Transaction:
    bare = replace(fragment, deletion=None)
    return Transaction(0, str(runtime.uuid4()), Overwrite((bare,), rows.schema.stored))


def _manifest(fragment: Fragment, transaction: Transaction, rows: Rows, version: FileVersion) -> Manifest:
    new = NewTable(data_version=version.value)
    made = apply(None, transaction, version=1, timestamp_ns=runtime.now_ns(), new_table=new)
    if fragment.deletion is None:
        return made
    (numbered,) = made.fragments
    deleted = replace(numbered, deletion=fragment.deletion)
    return recomputed(replace(made, fragments=FragmentList.of([deleted])), None)


def _indexed(
    store: Store, manifest: Manifest, maintained: Sequence[IndexMetadata], session: Session
) -> Manifest:
    location = VersionLocation(1, names.manifest_path(1), "V2")
    snapshot = Snapshot(store, manifest, location, session, lambda: None)
    written: list[str] = []  # on failure they stay in a directory that nobody names
    entries = [
        build_entry(snapshot, manifest.schema.by_id(each.fields[0]), each.name, [0], written)
        for each in maintained
    ]
    return replace(manifest, indices=tuple(entries))


def _check_complete(store: Store, manifest: Manifest, has_key: bool) -> None:
    """Raise `ShardError` unless everything that a reader opens is there (MemWAL, section 9.7)."""
    wanted = [layout.BLOOM_FILTER, names.manifest_path(1)]
    wanted += [layout.PK_PAGES, layout.PK_LOOKUP] if has_key else []
    for fragment in manifest.fragments:
        wanted += [names.data_path(file.path) for file in fragment.files]
        if fragment.deletion is not None:
            wanted.append(fragment.deletion.path(fragment.id))
    for entry in manifest.indices:
        wanted += [f"{names.INDICES_DIR}/{entry.uuid}/{file.path}" for file in entry.files]
    missing = [path for path in wanted if not store.exists(path)]
    if missing:
        raise ShardError(f"{store.uri} lacks {', '.join(missing)} after it was written: it is not published")
