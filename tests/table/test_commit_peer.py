"""Commits of ours and of the official implementation on one table, and its verdicts against ours."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conflict_operations import index, sets
from peer import Peer, PeerError
from tiltyard import runtime
from tiltyard.errors import CommitConflict, IncompatibleTransaction, InvalidInput, RetryableConflict
from tiltyard.format.deletion import encode_deletions
from tiltyard.format.fragment import DeletionFile
from tiltyard.format.operations import (
    Append,
    CreateIndex,
    DataReplacement,
    Delete,
    Merge,
    Overwrite,
    Project,
    ReplacementFile,
    ReserveFragments,
    Restore,
    Rewrite,
    RewriteGroup,
    Update,
    UpdateConfig,
)
from tiltyard.format.row_ids import decode_row_ids, decode_versions
from tiltyard.format.schema import Schema
from tiltyard.format.transaction import Transaction
from tiltyard.session import Session
from tiltyard.store import open_store
from tiltyard.table.commit import commit
from tiltyard.table.snapshot import Snapshot, open_snapshot
from tiltyard.table.versions import read_hint


def now(path: Path) -> Snapshot:
    return open_snapshot(open_store(str(path), {"durable": False}), Session())


def make(peer: Peer, path: Path, **options: Any) -> Snapshot:
    """A table of the peer's: three fragments of ten rows, columns id and a."""
    peer(
        "data = {name: pa.array(range(30), pa.int64()) for name in ('id', 'a')}\n"
        "lance.write_dataset(pa.table(data), path, max_rows_per_file=10, **options)",
        path=str(path),
        options=options,
    )
    return now(path)


def new_fragments(peer: Peer, base: Snapshot, rows: int = 5) -> Any:
    """Fragments that the peer wrote but did not commit, as a transaction of ours names them."""
    before = {stat.path for stat in base.store.list("data")}
    peer(
        "data = {name: pa.array(range(100, 100 + rows), pa.int64()) for name in ('id', 'a')}\n"
        'lance.fragment.write_fragments(pa.table(data), path, mode="append")',
        path=base.store.uri,
        rows=rows,
    )
    (name,) = [stat for stat in base.store.list("data") if stat.path not in before]
    file = replace(base.fragments[0].files[0], path=name.path.partition("/")[2], size=name.size)
    return replace(base.fragments[0], id=0, files=(file,), physical_rows=rows, row_ids=None, deletion=None)


def on(base: Snapshot, operation: Any, **more: Any) -> Snapshot:
    transaction = Transaction(base.version, str(runtime.uuid4()), operation)
    return commit(base.store, transaction, session=Session(), base=base, **more)


def read(peer: Peer, path: Path, **more: Any) -> dict[str, Any]:
    return peer("lance.dataset(path, **more).to_table().to_pydict()", path=str(path), more=more)


def deleting(base: Snapshot, fragment_id: int, *rows: int) -> Delete:
    fragment = base.fragment(fragment_id)
    assert fragment is not None
    kind, data = encode_deletions(np.array(rows, np.uint32))
    file = DeletionFile(kind, base.version, runtime.random().getrandbits(63), len(rows))
    base.store.put(file.path(fragment_id), data)
    return Delete((replace(fragment, deletion=file),), (), "x")


# -- reading each other ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"enable_stable_row_ids": True}, {"enable_v2_manifest_paths": False}]
)
def test_the_peer_reads_and_extends_what_we_committed(peer: Peer, tmp_path: Path, options: Any) -> None:
    base = make(peer, tmp_path / "t", **options)
    made = on(base, Append((new_fragments(peer, base),)))
    assert made.version == 2
    found = read(peer, tmp_path / "t")
    assert found["id"] == [*range(30), *range(100, 105)]
    made = on(made, deleting(made, 1, 0, 3))
    made = on(made, UpdateConfig(sets(k="v"), sets(m="w")))
    assert len(read(peer, tmp_path / "t")["id"]) == 33
    assert peer("lance.dataset(p).config()", p=str(tmp_path / "t"))["k"] == "v"
    peer('lance.dataset(p).delete("id = 7") and None', p=str(tmp_path / "t"))
    peer(
        "lance.write_dataset(lance.dataset(p).to_table().slice(0, 2), p, mode='append') and None",
        p=str(tmp_path / "t"),
    )
    found_by_us = now(tmp_path / "t")
    assert found_by_us.version == made.version + 2
    assert found_by_us.manifest.num_rows == 34
    assert found_by_us.manifest.config == {"k": "v"}
    again = on(found_by_us, Delete((), (0,)))
    assert peer("lance.dataset(p).validate()", p=str(tmp_path / "t")) is None
    assert peer("lance.dataset(p).count_rows()", p=str(tmp_path / "t")) == again.manifest.num_rows
    for version in range(1, again.version + 1):
        assert len(read(peer, tmp_path / "t", version=version)["id"]) > 0


def test_the_peer_follows_our_hint_and_we_follow_its_versions(peer: Peer, tmp_path: Path) -> None:
    base = make(peer, tmp_path / "t")
    made = on(base, ReserveFragments(2))
    assert read_hint(made.store) == 2
    peer('lance.dataset(p).delete("false") and None', p=str(tmp_path / "t"))
    assert now(tmp_path / "t").version == 3


@pytest.mark.parametrize("stable", [False, True])
def test_our_apply_equals_the_peers(peer: Peer, tmp_path: Path, stable: bool) -> None:
    """Each transaction of a peer's history, applied by us to the version before it, gives its manifest."""
    path = str(tmp_path / "t")
    peer(
        """
t = pa.table({"id": pa.array(range(40), pa.int64()), "a": pa.array(range(40), pa.int64())})
ds = lance.write_dataset(t, path, max_rows_per_file=10, enable_stable_row_ids=stable)
ds = lance.write_dataset(t.slice(0, 3), path, mode="append")
ds.delete("id in (1, 2, 15)")
ds.update({"a": "a + 100"}, where="id >= 18 and id < 23")
ds.delete("id >= 30 and id < 40")
ds.update_config({"k": "v"})
ds.create_scalar_index("id", "BTREE")
ds.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(
    pa.table({"id": pa.array([3, 500], pa.int64()), "a": pa.array([-1, -2], pa.int64())}))
ds.add_columns({"b": "a * 2"})
ds.alter_columns({"path": "a", "name": "aa"})
ds.drop_columns(["b"])
ds.delete("id = 5")
ds.restore() if False else None
ds.optimize.compact_files(target_rows_per_fragment=12)
old = lance.dataset(path, version=3)
old.restore()
lance.write_dataset(t.slice(5, 4), path, mode="overwrite")
""",
        path=path,
        stable=stable,
    )
    latest = now(tmp_path / "t")
    from tiltyard.table.apply import NewTable, apply

    assert latest.version >= 14
    kinds = set()
    previous: Any = None
    snapshots = {v: open_snapshot(latest.store, Session(), version=v) for v in range(1, latest.version + 1)}
    for version, theirs in snapshots.items():
        transaction = theirs.transaction()
        assert transaction is not None
        operation = transaction.operation
        kinds.add(transaction.name)
        restored = snapshots[operation.version].manifest if isinstance(operation, Restore) else None
        mine = apply(
            previous,
            transaction,
            version=version,
            timestamp_ns=theirs.manifest.timestamp_ns,
            restored=restored,
            new_table=NewTable(data_version="2.2", stable_row_ids=stable),
        )
        expected = replace(
            theirs.manifest, transaction_file="", writer_version=mine.writer_version, unknown=mine.unknown
        )
        assert _fragments(mine) == _fragments(expected), (version, transaction.name)
        assert mine.schema == expected.schema, (version, transaction.name)
        assert _without(mine) == _without(expected), (version, transaction.name)
        previous = theirs.manifest
    assert kinds >= {
        "Overwrite",
        "Append",
        "Delete",
        "Update",
        "UpdateConfig",
        "CreateIndex",
        "Merge",
        "Project",
    }
    assert kinds >= {"Rewrite", "ReserveFragments", "Restore"}


def _fragments(manifest: Any) -> list[Any]:
    """The fragments, row lineage by what it says: the same sequence has several forms."""

    def plain(fragment: Any) -> Any:
        lineage = (
            None if fragment.row_ids is None else decode_row_ids(fragment.row_ids).tolist(),
            *(
                None if data is None else decode_versions(data).tolist()
                for data in (fragment.created_versions, fragment.last_updated_versions)
            ),
        )
        bare = replace(fragment, row_ids=None, created_versions=None, last_updated_versions=None)
        return bare, lineage

    return [plain(fragment) for fragment in manifest.fragments]


def _without(manifest: Any) -> Any:
    """What is compared besides fragments and schema: everything, bitmaps by what they hold."""
    from tiltyard.table.index_entries import covered_fragments

    indices = [(e.uuid, e.name, e.fields, covered_fragments(e)) for e in manifest.indices]
    return replace(manifest, fragments=type(manifest.fragments)(), schema=Schema(()), indices=()), indices


# -- verdicts ---------------------------------------------------------------------------------------

# Each operation in the peer's words, on a table of three fragments of ten rows; `_ours` has them in ours.
PEER_OPERATIONS = {
    "Append": "lance.LanceOperation.Append(new())",
    "Delete": 'lance.LanceOperation.Delete([frag(0)], [], "x")',
    "DeleteWhole": 'lance.LanceOperation.Delete([], [0], "x")',
    "DeleteOther": 'lance.LanceOperation.Delete([frag(2)], [], "x")',
    "Update": "lance.LanceOperation.Update(updated_fragments=[frag(0)], new_fragments=new())",
    "UpdateInsertOnly": "lance.LanceOperation.Update(new_fragments=new())",
    "Overwrite": "lance.LanceOperation.Overwrite(ds.schema, new())",
    "Rewrite": "lance.LanceOperation.Rewrite([lance.LanceOperation.RewriteGroup([frag(0)], new())], [])",
    "Merge": "lance.LanceOperation.Merge([frag(i) for i in range(3)], ds.schema)",
    "Project": "lance.LanceOperation.Project(narrow())",
    "Restore": "lance.LanceOperation.Restore(1)",
    "DataReplacement": "lance.LanceOperation.DataReplacement([column()])",
    "UpdateConfig": "CONFIG",
    "CreateIndex": "INDEX",
}
"""Text that makes the operation there; the last two go by calls of the dataset instead."""

HELPERS = """
def new():
    return lance.fragment.write_fragments(ds.to_table(limit=5), path, mode="overwrite")
def frag(i):
    return [f.metadata for f in ds.get_fragments() if f.fragment_id == i][0]
def narrow():
    return lance.schema.LanceSchema.from_pyarrow(pa.schema([ds.schema.field(0)]))
def column():
    data = pa.table({"a": pa.array(range(10), pa.int64())})
    f = lance.fragment.write_fragments(data, path, mode="overwrite")[0].files[0]
    version = f.file_major_version, f.file_minor_version
    file = lance.fragment.DataFile(f.path, [1], [0], *version, f.file_size_bytes)
    return lance.LanceOperation.DataReplacementGroup(0, file)
"""

COMMIT = """
ds = lance.dataset(path, version=1)
HELPERS
operation = OPERATION
if operation == "config":
    ds.update_config({"k": "1"})
elif operation == "index":
    ds.create_scalar_index("a", "BTREE")
else:
    lance.LanceDataset.commit(path, operation, read_version=1)
"""


def _commit_there(peer: Peer, path: Path, name: str) -> str:
    """Commit the peer's form of an operation planned at version 1: ok, R, X, or the error's text."""
    text = PEER_OPERATIONS[name].replace("CONFIG", '"config"').replace("INDEX", '"index"')
    source = COMMIT.replace("HELPERS", HELPERS).replace("OPERATION", text)
    try:
        peer(source, path=str(path))
    except PeerError as error:
        if "Retryable" in error.message or "Please retry" in error.message:
            return "R"
        if "ncompatible" in error.message:
            return "X"
        return f"{error.kind}: {error.message}"
    return "ok"


def _ours(peer: Peer, base: Snapshot, name: str) -> Any:
    f0, f2 = base.fragments[0], base.fragments[2]
    match name:
        case "Append":
            return Append((new_fragments(peer, base),))
        case "Delete":
            return Delete((f0,), (), "x")
        case "DeleteWhole":
            return Delete((), (0,), "x")
        case "DeleteOther":
            return Delete((f2,), (), "x")
        case "Update":
            return Update((), (f0,), (new_fragments(peer, base),))
        case "UpdateInsertOnly":
            return Update(new_fragments=(new_fragments(peer, base),))
        case "Overwrite":
            return Overwrite((new_fragments(peer, base),), base.schema)
        case "Rewrite":
            return Rewrite((RewriteGroup((f0,), (new_fragments(peer, base),)),))
        case "Merge":
            return Merge(tuple(base.fragments), base.schema, True)
        case "Project":
            return Project(base.schema.project(["id"]), False)  # what the peer's operation says
        case "Restore":
            return Restore(1)
        case "DataReplacement":
            file = new_fragments(peer, base, rows=10).files[0]
            return DataReplacement((ReplacementFile(0, replace(file, fields=(1,), column_indices=(1,))),))
        case "UpdateConfig":
            return UpdateConfig(sets(k="1"))
        case _:
            return CreateIndex((index("a_idx", 77, (1,), (0, 1, 2)),))


PAIRS = [
    ("Append", "Delete"),
    ("Append", "Overwrite"),
    ("Append", "Restore"),
    ("Append", "Project"),
    ("Append", "Merge"),
    ("Delete", "Delete"),
    ("Delete", "DeleteOther"),
    ("Delete", "DeleteWhole"),
    ("Delete", "Update"),
    ("Delete", "UpdateInsertOnly"),
    ("Delete", "Rewrite"),
    ("DeleteOther", "Rewrite"),
    ("Delete", "Merge"),
    ("Delete", "Project"),
    ("Delete", "DataReplacement"),
    ("DeleteOther", "DataReplacement"),
    ("Delete", "Overwrite"),
    ("Update", "Append"),
    ("Update", "Update"),
    ("Update", "CreateIndex"),
    ("UpdateInsertOnly", "UpdateInsertOnly"),
    ("Overwrite", "Append"),
    ("Overwrite", "Overwrite"),
    ("Overwrite", "UpdateConfig"),
    ("Rewrite", "Append"),
    ("Rewrite", "Delete"),
    ("Rewrite", "Rewrite"),
    ("Rewrite", "CreateIndex"),
    ("Merge", "Append"),
    ("Merge", "Delete"),
    ("Merge", "Merge"),
    ("Merge", "Project"),
    ("Project", "Merge"),
    ("Project", "Project"),
    ("Project", "Append"),
    ("Project", "Restore"),
    ("Restore", "Append"),
    ("Restore", "Restore"),
    ("DataReplacement", "Delete"),
    ("DataReplacement", "DeleteWhole"),
    ("DataReplacement", "Update"),
    ("DataReplacement", "DataReplacement"),
    ("DataReplacement", "Project"),
    ("DataReplacement", "CreateIndex"),
    ("UpdateConfig", "UpdateConfig"),
    ("UpdateConfig", "Append"),
    ("CreateIndex", "CreateIndex"),
    ("CreateIndex", "Rewrite"),
]


@pytest.mark.parametrize(("mine", "theirs"), PAIRS)
def test_verdict_is_the_peers(peer: Peer, tmp_path: Path, mine: str, theirs: str) -> None:
    """Theirs first, then mine planned on the version before: once committed by us, once by the peer."""
    verdicts = []
    for who in ("us", "peer"):
        path = tmp_path / who
        base = make(peer, path)
        planned = _ours(peer, base, mine)
        assert _commit_there(peer, path, theirs) == "ok"
        if who == "peer":
            verdicts.append(_commit_there(peer, path, mine))
            continue
        try:
            on(base, planned)
        except RetryableConflict:
            verdicts.append("R")
        except IncompatibleTransaction:
            verdicts.append("X")
        else:
            verdicts.append("ok")
            assert peer("lance.dataset(p).count_rows()", p=str(path)) == now(path).manifest.num_rows
    ours, official = verdicts
    if mine in ("UpdateConfig", "CreateIndex"):
        # The calls of the peer's dataset plan again by themselves: only ours is a single commit.
        assert ours in ("R", "X") if mine == theirs else ours in ("ok", "R")
        return
    assert ours == official


# -- at once ------------------------------------------------------------------------------------------


def test_appends_of_both_at_once_all_land(peer: Peer, tmp_path: Path) -> None:
    base = make(peer, tmp_path / "t")
    fragments = [new_fragments(peer, base) for _ in range(12)]
    failures: list[BaseException] = []

    def ours() -> None:
        try:
            for fragment in fragments:
                on(base, Append((fragment,)), foreign_fragments=True)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=ours)
    thread.start()
    peer(
        "for i in range(12): lance.write_dataset(pa.table({'id': pa.array([i], pa.int64()), "
        "'a': pa.array([i], pa.int64())}), path, mode='append')",
        path=str(tmp_path / "t"),
    )
    thread.join()
    assert failures == []
    found = now(tmp_path / "t")
    assert found.version == 25
    assert found.manifest.num_rows == 30 + 12 * 5 + 12
    assert len(read(peer, tmp_path / "t")["id"]) == found.manifest.num_rows


def test_the_peers_stale_delete_merges_over_ours(peer: Peer, tmp_path: Path) -> None:
    base = make(peer, tmp_path / "t")
    peer("kept.__setitem__('stale', lance.dataset(p))", p=str(tmp_path / "t"))
    on(base, deleting(base, 0, 1, 2))
    peer("kept['stale'].delete('id in (5, 17)') and None")
    assert read(peer, tmp_path / "t")["id"] == [n for n in range(30) if n not in (1, 2, 5, 17)]
    assert now(tmp_path / "t").manifest.num_rows == 26


def test_our_stale_delete_merges_over_the_peers(peer: Peer, tmp_path: Path) -> None:
    base = make(peer, tmp_path / "t")
    mine = deleting(base, 0, 1, 2)
    peer('lance.dataset(p).delete("id in (5, 17)") and None', p=str(tmp_path / "t"))
    on(base, mine, affected={0: np.array([1, 2], np.uint32)})
    assert read(peer, tmp_path / "t")["id"] == [n for n in range(30) if n not in (1, 2, 5, 17)]


def test_fragments_of_the_peer_cannot_be_committed_twice(peer: Peer, tmp_path: Path) -> None:
    base = make(peer, tmp_path / "t")
    operation = Append((new_fragments(peer, base),))
    on(base, operation, foreign_fragments=True)
    with pytest.raises(InvalidInput, match="already"):
        on(now(tmp_path / "t"), operation, foreign_fragments=True)


def test_conflict_is_an_oserror_as_the_peers_is() -> None:
    assert issubclass(CommitConflict, OSError)
