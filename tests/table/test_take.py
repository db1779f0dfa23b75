"""Takes: any order, duplicates, fragments with deletions; by number, id and address (case T05)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiltyard.lance as lance
from peer import Peer
from tiltyard.errors import InvalidInput, RowOutOfRange
from tiltyard.format.fragment import FragmentList
from tiltyard.table.scan import Scan, ScanRequest
from tiltyard.table.take import Taker

ROWS = 30
DELETED = {0, 5, 6, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 29}
LEFT = [i for i in range(ROWS) if i not in DELETED]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("take") / "t.lance")
    table = pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "s": [f"text {i}" for i in range(ROWS)],
            "st": [{"a": i, "b": {"c": i / 2, "d": str(i)}} for i in range(ROWS)],
            "dict": pa.array([["x", "y", None][i % 3] for i in range(ROWS)]).dictionary_encode(),
        }
    )
    ds = lance.write_dataset(table, path, max_rows_per_file=5, storage_options={"durable": False})
    ds.delete(f"id IN ({', '.join(map(str, sorted(DELETED)))})")
    return path


@settings(max_examples=50, deadline=None)
@given(indices=st.lists(st.integers(0, len(LEFT) - 1), max_size=20))
def test_a_take_gives_the_rows_in_the_order_asked_for(indices: list[int], path: str) -> None:
    ds = lance.dataset(path)
    found = ds.take(indices, columns=["s", "id", "_rowoffset", "_rowaddr"])
    assert found["id"].to_pylist() == [LEFT[i] for i in indices]
    assert found["s"].to_pylist() == [f"text {LEFT[i]}" for i in indices]
    assert found["_rowoffset"].to_pylist() == indices
    assert found["_rowaddr"].to_pylist() == [(LEFT[i] // 5 << 32) + LEFT[i] % 5 for i in indices]
    whole = ds.take(indices)
    assert whole.schema.equals(ds.schema)
    assert whole["dict"].to_pylist() == [["x", "y", None][LEFT[i] % 3] for i in indices]


@pytest.mark.parametrize(
    "indices",
    [
        (3, 1),
        range(1, 4),
        np.array([3, 1], np.uint64),
        pa.array([3, 1]),
        pa.chunked_array([[3], [1]]),
        iter([3, 1]),
    ],
)
def test_numbers_may_come_in_any_form(indices: Any, path: str) -> None:
    wanted = [3, 1] if not isinstance(indices, range) else list(indices)
    assert lance.dataset(path).take(indices)["id"].to_pylist() == [LEFT[i] for i in wanted]


@pytest.mark.parametrize("indices", [[1.5], ["1"], [[1]], [None], [True], pa.array([1, None])])
def test_what_is_no_number_is_refused(indices: Any, path: str) -> None:
    with pytest.raises(InvalidInput):
        lance.dataset(path).take(indices)


@pytest.mark.parametrize("bad", [-1, len(LEFT), 2**40, 2**63, 2**70, -(2**70)])
def test_a_number_out_of_range_is_named(bad: int, path: str) -> None:
    with pytest.raises(RowOutOfRange, match=str(bad)):
        lance.dataset(path).take([0, bad])


def test_the_message_names_the_rows_there_are(path: str, tmp_path: Path) -> None:
    with pytest.raises(RowOutOfRange, match=f"index {len(LEFT)} out of range for {len(LEFT)} rows"):
        lance.dataset(path).take([len(LEFT)])
    empty = lance.write_dataset(pa.table({"id": pa.array([], pa.int64())}), str(tmp_path / "e.lance"))
    assert empty.take([]).num_rows == 0
    with pytest.raises(RowOutOfRange, match="index 0 out of range for 0 rows"):
        empty.take([0])


def test_nested_paths_give_pruned_structs_and_maps_give_computed_columns(path: str) -> None:
    ds = lance.dataset(path)
    assert ds.take([2, 0], columns=["st.b.c", "id"]).to_pylist() == [
        {"st": {"b": {"c": 1.5}}, "id": 3},
        {"st": {"b": {"c": 0.5}}, "id": 1},
    ]
    assert ds.take([9, 0], columns={"x": "id + 1", "c": "st.b.c"}).to_pylist() == [
        {"x": LEFT[9] + 1, "c": LEFT[9] / 2},
        {"x": 2, "c": 0.5},
    ]
    assert ds.take([3, 1], columns=[]).num_columns == 0


def test_rows_by_id_leave_deleted_ones_out_and_refuse_unknown_fragments(path: str) -> None:
    ds = lance.dataset(path)
    ids = [(4 << 32) + 2, 1, 0, (1 << 32) + 2, 1]
    assert ds._take_rows(ids, columns=["id"])["id"].to_pylist() == [22, 1, 7, 1]
    with_id = ds._take_rows(ids, columns=["id"], with_row_id=True)
    assert with_id["_rowid"].to_pylist() == [(4 << 32) + 2, 1, (1 << 32) + 2, 1]
    for bad in ((2 << 32), (77 << 32), 5, -1):
        with pytest.raises(RowOutOfRange):
            ds._take_rows([bad])
    assert ds._take_rows([]).num_rows == 0


def test_rows_are_found_by_address_where_fragments_are_listed_out_of_order(path: str) -> None:
    """As other writers may leave them."""
    snapshot = lance.dataset(path)._snapshot
    fragments = FragmentList.of(list(snapshot.fragments)[::-1])
    reversed_ = replace(snapshot, manifest=replace(snapshot.manifest, fragments=fragments))
    for found in (snapshot, reversed_):
        rows = Scan(found, ScanRequest(row_address=True)).table()
        order = np.random.default_rng(7).permutation(rows.num_rows)
        wanted = rows.take(pa.array(order))
        addresses = wanted["_rowaddr"].to_numpy()
        taker = Taker(found)
        for taken in (taker.rows_at_addresses(addresses), taker.rows_that_live(addresses)):
            assert taken.equals(wanted.drop_columns(["_rowaddr"]))
        assert taker.rows_that_live(addresses[:1]).equals(taken.slice(0, 1))


def test_stable_row_ids_find_rows_where_they_are_now(tmp_path: Path, peer: Peer) -> None:
    path = str(tmp_path / "t.lance")
    peer(
        """
ds = lance.write_dataset(pa.table({"id": list(range(12)), "v": [0] * 12}), p, max_rows_per_file=5,
    enable_stable_row_ids=True)
ds.update({"v": "7"}, where="id = 3")
ds.delete("id = 1")
""",
        p=path,
    )
    ds = lance.dataset(path)
    assert ds.has_stable_row_ids
    ids = ds.to_table(columns=["id", "_rowid"])
    assert dict(zip(ids["id"].to_pylist(), ids["_rowid"].to_pylist(), strict=True))[3] == 3
    found = ds._take_rows([3, 11, 1, 99, 0, 3], columns=["id", "v", "_rowid"])
    assert found.to_pylist() == [{"id": i, "v": 7 * (i == 3), "_rowid": i} for i in (3, 11, 0, 3)]


def test_a_single_fragment_without_deletions_is_taken_without_planning(tmp_path: Path) -> None:
    ds = lance.write_dataset(pa.table({"id": list(range(100))}), str(tmp_path / "t.lance"))
    taker, _ = ds._taker(None)
    assert ds.take([99, 0, 99])["id"].to_pylist() == [99, 0, 99]
    assert list(taker._plain) == [0]
    assert lance.dataset(str(tmp_path / "t.lance"))._taker(None)[0] is taker
    ds.delete("id = 0")
    assert ds.take([98, 0])["id"].to_pylist() == [99, 1]
    assert not ds._taker(None)[0]._plain


def test_samples_are_distinct_rows_of_the_table(path: str) -> None:
    ds = lance.dataset(path)
    found = ds.sample(8, columns=["id"])["id"].to_pylist()
    assert len(set(found)) == 8
    assert set(found) <= set(LEFT)
    ordered = ds.sample(len(LEFT), columns=["id"], randomize_order=False)
    assert ordered["id"].to_pylist() == LEFT
    with pytest.raises(InvalidInput):
        ds.sample(len(LEFT) + 1)
