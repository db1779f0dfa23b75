"""B-tree indices both ways: pylance uses, describes, extends and remaps ours; we use and extend its."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from index.index_values import VALUES, array_of
from peer import Peer
from tiltyard import lance as tl
from tiltyard.table.index_segments import btree_segments
from tiltyard.table.indexing import indices, optimize_indices
from tiltyard.table.snapshot import open_latest

KINDS = list(VALUES)

FILTERS = [
    "k = 7",
    "k < 20",
    "k >= 480",
    "k BETWEEN 100 AND 120",
    "k IN (1, 5, 499, 1000)",
    "k IS NULL",
    "NOT (k > 3)",
    "k != 3 AND k < 9",
]

ASK = """
ds = lance.dataset(p)
result = []
for f in filters:
    plan = ds.scanner(filter=f).explain_plan()
    rows = ds.to_table(filter=f, columns=["n"])["n"].to_pylist()
    scanned = ds.scanner(filter=f, columns=["n"], use_scalar_index=False).to_table()["n"].to_pylist()
    result.append(("ScalarIndexQuery" in plan, rows, scanned, ds.count_rows(f)))
"""


def _table(rows: int = 3000, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    keys = [None if i % 97 == 0 else int(k) for i, k in enumerate(rng.integers(0, 500, rows))]
    return pa.table(
        {
            "n": pa.array(range(rows), pa.int64()),
            "k": pa.array(keys, pa.int64()),
            "s": pa.array([None if k is None else f"key {k:04}" for k in keys]),
            "st": pa.array([{"x": k} for k in keys], pa.struct([("x", pa.int32())])),
        }
    )


def _peer_answers(peer: Peer, path: Path, filters: list[str] = FILTERS, *, used: bool = True) -> None:
    """pylance answers every filter through the index as it does without."""
    for text, (uses, rows, scanned, count) in zip(
        filters, peer(ASK, p=str(path), filters=filters), strict=True
    ):
        assert uses is used, text
        assert sorted(rows) == sorted(scanned), text
        assert count == len(rows), text


def _our_answers(path: Path, peer: Peer, filters: list[str] = FILTERS) -> None:
    """We answer every filter as pylance does without an index."""
    ds = tl.dataset(str(path))
    for text, (_, _, scanned, _) in zip(filters, peer(ASK, p=str(path), filters=filters), strict=True):
        assert ds.to_table(filter=text, columns=["n"])["n"].to_pylist() == scanned, text
        assert ds.count_rows(text) == len(scanned), text


@pytest.mark.parametrize("stable", [False, True])
def test_the_peer_uses_an_index_of_ours_through_its_whole_life(
    tmp_path: Path, peer: Peer, stable: bool
) -> None:
    path = tmp_path / "t"
    ds = tl.write_dataset(_table(), str(path), max_rows_per_file=800, enable_stable_row_ids=stable)
    for column in ("k", "s", "st.x"):
        ds.create_scalar_index(column, "BTREE")
    filters = [*FILTERS, "s = 'key 0100'", "s LIKE 'key 01%'", "s IS NULL", "st.x = 44", "st.x < 5"]
    _peer_answers(peer, path, filters)
    stats = peer("lance.dataset(p).stats.index_stats('k_idx')", p=str(path))
    ours = tl.dataset(str(path)).stats.index_stats("k_idx")
    assert ours == stats
    # It appends, deletes, optimises and compacts; the index goes on serving.
    peer(
        """
ds = lance.write_dataset(t, p, mode="append", max_rows_per_file=400)
ds.delete("k = 5 OR n < 50")
ds = lance.dataset(p)
ds.update({"k": "k + 1000"}, where="k = 6")
ds.optimize.optimize_indices()
""",
        p=str(path),
        t=_table(700, 1),
    )
    _peer_answers(peer, path, filters)
    _our_answers(path, peer, filters)
    peer("done = lance.dataset(p).optimize.compact_files(target_rows_per_fragment=2000)", p=str(path))
    _peer_answers(peer, path, filters)
    _our_answers(path, peer, filters)
    assert tl.dataset(str(path)).stats.index_stats("k_idx") == peer(
        "lance.dataset(p).stats.index_stats('k_idx')", p=str(path)
    )


@pytest.mark.parametrize("stable", [False, True])
def test_we_use_and_extend_an_index_of_the_peers(tmp_path: Path, peer: Peer, stable: bool) -> None:
    path = tmp_path / "t"
    peer(
        """
ds = lance.write_dataset(t, p, max_rows_per_file=800, enable_stable_row_ids=stable)
for c in ("k", "s"):
    ds.create_scalar_index(c, "BTREE")
for part in parts:
    ds = lance.write_dataset(part, p, mode="append")
    ds.optimize.optimize_indices(num_indices_to_merge=0)
ds.create_scalar_index("st.x", "BTREE")
ds = lance.write_dataset(parts[0], p, mode="append")
ds.delete("k = 9")
""",
        p=str(path),
        t=_table(),
        parts=[_table(100, 5), _table(200, 6)],
        stable=stable,
    )
    snapshot = tl.dataset(str(path))._snapshot
    assert [len(each.fragments) for each in btree_segments(snapshot, 1)] == [4, 1, 1]
    filters = [*FILTERS, "s = 'key 0100'", "s LIKE 'key 01%'", "st.x = 44"]
    _our_answers(path, peer, filters)
    done = optimize_indices(snapshot.store, snapshot.session, num_indices_to_merge=2)
    assert done.updated == ("k_idx", "s_idx", "st.x_idx")
    found = indices(done.snapshot)
    covered = [[len(each.fragment_ids) for each in facts.segments] for facts in found]
    assert covered == [[4, 3], [4, 3], [7]]
    assert [each.rows_unindexed for each in found] == [0, 0, 0]
    _peer_answers(peer, path, filters)
    _our_answers(path, peer, filters)


@pytest.mark.parametrize("stable", [False, True])
def test_the_peer_and_we_bring_one_index_up_to_date_in_turns(
    tmp_path: Path, peer: Peer, stable: bool
) -> None:
    path = tmp_path / "t"
    ds = tl.write_dataset(_table(500), str(path), max_rows_per_file=200, enable_stable_row_ids=stable)
    ds.create_scalar_index("k", "BTREE")
    for turn in range(4):
        ds = tl.dataset(str(path))
        ds.insert(_table(150, turn))
        ds.delete(f"k = {turn * 3}")
        ds.update({"k": "k + 1"}, where=f"k = {turn * 7 + 1}")
        if turn % 2:
            peer("lance.dataset(p).optimize.optimize_indices(num_indices_to_merge=n)", p=str(path), n=turn)
        else:
            optimize_indices(ds._store, ds._session, num_indices_to_merge=turn)
        _peer_answers(peer, path)
        _our_answers(path, peer)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_type_is_indexed_by_both_and_read_by_both(
    tmp_path: Path, peer: Peer, kind: pa.DataType
) -> None:
    rng = np.random.default_rng(3)
    picks = rng.integers(0, len(VALUES[kind]), 300)
    array = array_of(kind, [VALUES[kind][i] for i in picks])
    path = tmp_path / "t"
    tl.write_dataset(pa.table({"n": range(300), "c": array, "d": array}), str(path), max_rows_per_file=120)
    ds = tl.dataset(str(path))
    ds.create_scalar_index("c", "BTREE")
    peer("lance.dataset(p).create_scalar_index('d', 'BTREE')", p=str(path))
    ds = tl.dataset(str(path))
    ours, theirs = (btree_segments(ds._snapshot, id)[0].tree() for id in (1, 2))
    assert (ours.rows, ours.nulls, ours.pages) == (theirs.rows, theirs.nulls, theirs.pages)
    for one, other in zip(ours.entries(), theirs.entries(), strict=True):
        # The same values in the same order; which of equal ones comes first is free.
        assert _bits(one[0]).equals(_bits(other[0]))
        assert sorted(one[1].tolist()) == sorted(other[1].tolist())
    stats = [ds.stats.index_stats(name)["segments"] for name in ("c_idx", "d_idx")]
    assert stats[0] == stats[1]
    if not pa.types.is_decimal(kind):
        told = peer(
            "[lance.dataset(p).stats.index_stats(n)['segments'] for n in ('c_idx', 'd_idx')]", p=str(path)
        )
        assert stats == told
    texts = [text for value in array.drop_null().unique().to_pylist() if (text := _literal(kind, value))]
    first, second = (peer(EACH, p=str(path), c=column, texts=texts) for column in ("c", "d"))
    assert first == second
    assert first[0] is True


EACH = """
ds = lance.dataset(p)
result = ["ScalarIndexQuery" in ds.scanner(filter=f"{c} IS NULL").explain_plan()]
for text in ["IS NULL", "IS NOT NULL"] + [f"{op} {text}" for op in ("=", "<", ">=") for text in texts]:
    result.append(ds.to_table(filter=f"{c} {text}", columns=["n"])["n"].to_pylist())
"""


def _literal(kind: pa.DataType, value: Any) -> str | None:
    """A value in SQL, where the peer takes it beside a column of the type."""
    if pa.types.is_integer(kind):
        return str(value) if abs(value) < 2**62 else None  # larger ones it reads as floats
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return f"'{value}'"
    if kind == pa.binary() or kind == pa.large_binary():
        return f"X'{value.hex()}'"
    return None


def _bits(array: pa.Array) -> pa.Array:
    """Floats by their bits: -0.0 is not 0.0 here, and a NaN is itself."""
    if pa.types.is_floating(array.type):
        return array.view({16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[array.type.bit_width])
    return array


def test_indices_that_the_peer_remapped_after_its_compactions_are_read(tmp_path: Path, peer: Peer) -> None:
    path = tmp_path / "t"
    peer(
        """
ds = lance.write_dataset(t, p, max_rows_per_file=300)
ds.create_scalar_index("k", "BTREE")
ds.delete("n % 3 = 0")
ds.optimize.compact_files()
ds = lance.write_dataset(more, p, mode="append", max_rows_per_file=300)
ds.optimize.optimize_indices()
ds.delete("n % 5 = 0")
ds.optimize.compact_files()
""",
        p=str(path),
        t=_table(),
        more=_table(900, 4),
    )
    _our_answers(path, peer)


def test_an_index_behind_a_deferred_remap_is_not_trusted_and_is_built_anew(
    tmp_path: Path, peer: Peer
) -> None:
    path = tmp_path / "t"
    peer(
        """
ds = lance.write_dataset(t, p, max_rows_per_file=300)
ds.create_scalar_index("k", "BTREE")
ds.delete("n % 3 = 0")
ds.optimize.compact_files(defer_index_remap=True)
""",
        p=str(path),
        t=_table(),
    )
    _our_answers(path, peer)
    ds = tl.dataset(str(path))
    optimize_indices(ds._store, ds._session, num_indices_to_merge=0)
    _our_answers(path, peer)
    _peer_answers(peer, path)
    described = peer(
        "[[sorted(s.fragment_ids) for s in d.segments] for d in lance.dataset(p).describe_indices() "
        "if d.name == 'k_idx']",
        p=str(path),
    )
    assert described == [[[each.fragment_id for each in tl.dataset(str(path)).get_fragments()]]]


@pytest.mark.parametrize("rows", [0, 5])
def test_an_empty_index_of_ours_is_filled_by_the_peer_and_the_other_way_round(
    tmp_path: Path, peer: Peer, rows: int
) -> None:
    table = _table().slice(0, rows)
    for number, (make, fill) in enumerate((("ours", "theirs"), ("theirs", "ours"))):
        path = tmp_path / str(number)
        ds = tl.write_dataset(table, str(path))
        if make == "ours":
            ds.create_scalar_index("k", "BTREE", train=False)
        else:
            peer("lance.dataset(p).create_scalar_index('k', 'BTREE', train=False)", p=str(path))
        _our_answers(path, peer)
        tl.dataset(str(path)).insert(_table(100))
        if fill == "ours":
            optimize_indices(ds._store, ds._session)
        else:
            peer("lance.dataset(p).optimize.optimize_indices()", p=str(path))
        _our_answers(path, peer)
        _peer_answers(peer, path)


def test_the_peer_replaces_and_drops_an_index_of_ours_and_we_its(tmp_path: Path, peer: Peer) -> None:
    path = tmp_path / "t"
    ds = tl.write_dataset(_table(100), str(path))
    ds.create_scalar_index("k", "BTREE")
    peer("lance.dataset(p).create_scalar_index('k', 'BTREE', replace=True)", p=str(path))
    tl.dataset(str(path)).create_scalar_index("k", "BTREE")
    assert len(tl.dataset(str(path)).describe_indices()) == 1
    _peer_answers(peer, path)
    peer("lance.dataset(p).drop_index('k_idx')", p=str(path))
    assert not tl.dataset(str(path)).has_index
    peer("lance.dataset(p).create_scalar_index('k', 'BTREE')", p=str(path))
    tl.dataset(str(path)).drop_index("k_idx")
    assert peer("lance.dataset(p).describe_indices()", p=str(path)) == []


def test_row_ids_in_an_index_of_a_table_with_stable_row_ids_are_translated(
    tmp_path: Path, peer: Peer
) -> None:
    """Older writers keep row ids there (version 0); the pack says that both are read."""
    from dataclasses import replace

    from tiltyard.index.btree import build
    from tiltyard.table.indexing.source import commit_indices

    path = tmp_path / "t"
    ds = tl.write_dataset(_table(400), str(path), max_rows_per_file=150, enable_stable_row_ids=True)
    ds.delete("n < 20")
    ds.create_scalar_index("k", "BTREE")
    snapshot = ds._snapshot
    (entry,) = snapshot.manifest.indices
    rows = ds.to_table(columns=["k", "_rowid"])
    values = [(rows["k"].combine_chunks(), rows["_rowid"].to_numpy().astype(np.uint64))]
    uuid = "00000000-0000-4000-8000-000000000001"
    built = build(snapshot.store, f"_indices/{uuid}", values, pa.int64())
    old = replace(entry, uuid=uuid, index_version=0, files=built.files)
    snapshot = commit_indices(snapshot, [old], [entry])
    ds = tl.dataset(str(path))
    ds.update({"k": "k + 1"}, where="k = 7")
    ds.insert(_table(50, 9))
    _our_answers(path, peer)
    _peer_answers(peer, path)
    snapshot = open_latest(snapshot.store, snapshot.session)
    assert snapshot.manifest.indices[0].index_version == 0
    optimize_indices(snapshot.store, snapshot.session)
    _our_answers(path, peer)
    _peer_answers(peer, path)
    assert tl.dataset(str(path))._snapshot.manifest.indices[0].index_version == 1


def test_an_index_that_the_peer_gave_the_wrong_addresses_is_found_out_and_mended(
    tmp_path: Path, peer: Peer
) -> None:
    """pylance 14.0.2 loses rows here: compacting where a deferred compaction left notes, it writes indices of
    the new fragments with the old addresses."""
    path = tmp_path / "t"
    peer(
        """
ds = lance.write_dataset(t, p, max_rows_per_file=300)
ds.create_scalar_index("k", "BTREE")
done = ds.optimize.compact_files(target_rows_per_fragment=1000, defer_index_remap=True)
done = ds.optimize.compact_files(target_rows_per_fragment=5000)
""",
        p=str(path),
        t=_table(),
    )
    _our_answers(path, peer)
    ds = tl.dataset(str(path))
    assert [each.num_rows_unindexed for each in ds.describe_indices()] == [3000]
    ds.optimize.optimize_indices(num_indices_to_merge=0)
    assert [each.num_rows_unindexed for each in ds.describe_indices()] == [0]
    _our_answers(path, peer)
    _peer_answers(peer, path)


def test_wrong_addresses_are_found_wherever_in_the_index_they_stand(tmp_path: Path, peer: Peer) -> None:
    """The same, where the first page is of a fragment that no compaction took."""
    path = str(tmp_path / "t")
    peer(
        """
ds = lance.write_dataset(first, p)
for start in range(6000, 8400, 300):
    ds = lance.write_dataset(rest.slice(start - 6000, 300), p, mode="append")
ds.create_scalar_index("k", "BTREE")
done = ds.optimize.compact_files(target_rows_per_fragment=600, defer_index_remap=True)
done = ds.optimize.compact_files(target_rows_per_fragment=5000)
""",
        p=path,
        first=pa.table({"k": range(6000)}),
        rest=pa.table({"k": range(6000, 8400)}),
    )
    wanted = list(range(7000, 7010))
    ds = tl.dataset(path)
    assert [each.num_rows_unindexed for each in ds.describe_indices()] == [2400]
    assert ds.to_table(filter="k >= 7000 and k < 7010")["k"].to_pylist() == wanted
    ds.optimize.compact_files()
    ds.optimize.optimize_indices()
    assert [each.num_rows_unindexed for each in ds.describe_indices()] == [0]
    assert ds.to_table(filter="k >= 7000 and k < 7010")["k"].to_pylist() == wanted
    found = peer("lance.dataset(p).to_table(filter='k >= 7000 and k < 7010')['k'].to_pylist()", p=path)
    assert found == wanted


def test_an_index_of_a_shallow_clone_is_the_clones_own_once_it_moved(tmp_path: Path, peer: Peer) -> None:
    """pylance 14.0.2 goes on looking for it in the table that was cloned, and reads fail."""
    path = tmp_path / "clone"
    peer(
        """
ds = lance.write_dataset(t, p, max_rows_per_file=800)
ds.create_scalar_index("k", "BTREE")
done = ds.shallow_clone(clone, ds.version)
""",
        p=str(tmp_path / "t"),
        clone=str(path),
        t=_table(),
    )
    _our_answers(path, peer)
    ds = tl.dataset(str(path))
    ds.insert(_table(50, 2))
    ds.optimize.optimize_indices(num_indices_to_merge=0)
    ds.optimize.compact_files()
    described = tl.dataset(str(path)).describe_indices()
    assert [[each.base_id for each in index.segments] for index in described] == [[None, None]]
    _our_answers(path, peer)
    _peer_answers(peer, path)
