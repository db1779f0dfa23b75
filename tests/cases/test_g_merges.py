"""Public bug reports about merges, tried on us (cases G01 to G13; G08 is in `soak`, G13 beside O03)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tiltyard.lance as lance
from peer import Peer
from tiltyard.errors import AmbiguousMerge, InvalidInput


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t.lance")


def upsert(ds: Any, rows: Any, on: str = "id") -> dict[str, int]:
    counts: dict[str, int] = (
        ds.merge_insert(on).when_matched_update_all().when_not_matched_insert_all().execute(rows)
    )
    return counts


def rows_of(peer: Peer, ds: Any) -> list[dict[str, Any]]:
    """The rows in no order, which both readers must agree on."""
    ours = sorted(ds.to_table().to_pylist(), key=repr)
    theirs = peer("lance.dataset(p).to_table().to_pylist()", p=ds.uri)
    assert ours == sorted(theirs, key=repr)
    return ours


def test_g01_null_keys_match_nothing_and_are_inserted(path: str, peer: Peer) -> None:
    ds = lance.write_dataset(pa.table({"id": pa.array([1, None]), "v": pa.array([1, None])}), path)
    assert upsert(ds, pa.table({"id": pa.array([None, 3]), "v": [2, 3]}))["num_inserted_rows"] == 2
    assert [row["v"] for row in rows_of(peer, ds)] == [1, 3, 2, None]
    ds.update({"v": "7"}, where="id IS NULL AND v IS NULL")
    assert [row["v"] for row in rows_of(peer, ds)] == [1, 3, 2, 7]


def test_g02_two_source_rows_with_one_key_are_refused_for_old_and_for_new_keys(path: str, peer: Peer) -> None:
    ds = lance.write_dataset(pa.table({"id": [1, 2], "v": [1, 2]}), path)
    before = sorted(str(each) for each in Path(path).rglob("*"))
    for key in (1, 5):
        with pytest.raises(AmbiguousMerge, match=f"id = {key}"):
            upsert(ds, pa.table({"id": [key, key], "v": [8, 9]}))
    insert_if_absent = ds.merge_insert("id").when_not_matched_insert_all()
    with pytest.raises(AmbiguousMerge, match="id = 5"):
        insert_if_absent.execute(pa.table({"id": [5, 5], "v": [8, 9]}))
    after = sorted(str(each) for each in Path(path).rglob("*") if "data" in each.parts)
    assert set(after) <= set(before)
    for behavior, kept in (("first_seen", 8), ("last_seen", 9)):
        builder = ds.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        builder.source_dedupe_behavior(behavior).execute(pa.table({"id": [5, 1, 5, 1], "v": [8, 8, 9, 9]}))
        assert rows_of(peer, ds) == [{"id": 1, "v": kept}, {"id": 2, "v": 2}, {"id": 5, "v": kept}]


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("indexed", [False, True])
def test_g03_the_same_keys_can_be_upserted_again_and_again(
    path: str, peer: Peer, stable: bool, indexed: bool
) -> None:
    ds = lance.write_dataset(pa.table({"id": [1, 2, 3], "v": [0, 0, 0]}), path, enable_stable_row_ids=stable)
    if indexed:
        ds.create_scalar_index("id", "BTREE")
    for n in range(5):
        assert upsert(ds, pa.table({"id": [1, 2, 3], "v": [n, n, n]}))["num_updated_rows"] == 3
    assert rows_of(peer, ds) == [{"id": i, "v": 4} for i in (1, 2, 3)]


@pytest.mark.parametrize("mode", ["auto", "rewrite_columns"])
def test_g04_an_upsert_of_an_all_null_column_with_an_index_on_the_key_updates(
    path: str, peer: Peer, mode: str
) -> None:
    vectors = pa.nulls(100, pa.list_(pa.float32(), 2))
    names = [f"p{i:03}" for i in range(100)]
    table = pa.table({"vector": vectors, "path": names, "n": list(range(100))})
    ds = lance.write_dataset(table, path)
    ds.create_scalar_index("path", "BTREE")
    some = pa.table({"vector": vectors.slice(0, 10), "path": names[:10]})
    assert ds.merge_insert("path").when_matched_update_all().write_mode(mode).execute(some) == {
        "num_inserted_rows": 0,
        "num_updated_rows": 10,
        "num_deleted_rows": 0,
    }
    assert upsert(ds, table.slice(0, 10), on="path")["num_updated_rows"] == 10
    assert len(rows_of(peer, ds)) == 100
    assert ds.count_rows("path = 'p005'") == 1


def test_g05_flags_of_nullability_do_not_count_but_nulls_do(path: str, peer: Peer) -> None:
    strict = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64(), nullable=False)]
    )
    ds = lance.write_dataset(pa.table({"id": [1], "v": [1]}, schema=strict), path)
    assert upsert(ds, pa.table({"id": [1, 2], "v": [5, 6]}))["num_updated_rows"] == 1
    lying = pa.Table.from_arrays([pa.array([1]), pa.array([None], pa.int64())], schema=strict)
    files = len(list((Path(path) / "data").iterdir()))
    with pytest.raises(InvalidInput, match=r"'v'.*not nullable"):
        upsert(ds, lying)
    assert len(list((Path(path) / "data").iterdir())) == files
    assert rows_of(peer, ds) == [{"id": 1, "v": 5}, {"id": 2, "v": 6}]


def test_g06_partial_columns_keep_old_values_and_null_new_ones_also_inside_structs(
    path: str, peer: Peer
) -> None:
    table = pa.table({"id": [1, 2], "a": [10, 20], "s": [{"x": 1, "y": 2}, {"x": 3, "y": 4}]})
    ds = lance.write_dataset(table, path)
    counts = upsert(ds, pa.table({"id": [1, 9], "s": [{"x": 100}, {"x": 900}]}))
    assert counts == {"num_inserted_rows": 1, "num_updated_rows": 1, "num_deleted_rows": 0}
    assert rows_of(peer, ds) == [
        {"id": 1, "a": 10, "s": {"x": 100, "y": 2}},
        {"id": 2, "a": 20, "s": {"x": 3, "y": 4}},
        {"id": 9, "a": None, "s": {"x": 900, "y": None}},
    ]


@pytest.mark.parametrize("columns", [["id", "v", "w"], ["id", "v"]])
def test_g09_created_and_updated_versions_after_a_mixed_upsert_and_a_rewrite_of_columns(
    path: str, peer: Peer, columns: list[str]
) -> None:
    ds = lance.write_dataset(
        pa.table({"id": [1, 2, 3], "v": [1, 2, 3], "w": [1, 2, 3]}), path, enable_stable_row_ids=True
    )
    upsert(ds, pa.table({"id": [9, 2], "v": [90, 20], "w": [9, 2]}).select(columns))
    asked = ["id", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]

    def lineage() -> dict[int, tuple[int, ...]]:
        table = ds.to_table(columns=asked)
        assert table.equals(peer("lance.dataset(p).to_table(columns=c)", p=path, c=asked))
        return {row["id"]: tuple(row[name] for name in asked[1:]) for row in table.to_pylist()}

    assert lineage() == {1: (0, 1, 1), 2: (1, 1, 2), 3: (2, 1, 1), 9: (3, 2, 2)}
    rewrite = ds.merge_insert("id").when_matched_update_all().write_mode("rewrite_columns")
    rewrite.execute(pa.table({"id": [3, 9], "v": [33, 99]}))
    assert lineage() == {1: (0, 1, 1), 2: (1, 1, 2), 3: (2, 1, 3), 9: (3, 2, 3)}


@pytest.mark.parametrize("indexed", [False, True])
def test_g11_an_upsert_across_many_fragments_equals_a_dictionary(
    path: str, peer: Peer, indexed: bool
) -> None:
    chance = np.random.default_rng(5)
    keys = chance.permutation(500)
    ds = lance.write_dataset(
        pa.table({"id": keys, "v": np.zeros(500, np.int64)}), path, max_rows_per_file=100
    )
    if indexed:
        ds.create_scalar_index("id", "BTREE")
    model = dict.fromkeys(range(500), 0)
    for n in range(1, 6):
        one_each = keys.reshape(5, 100)[:, n].tolist()
        source = [*one_each, 1000 + n, *([1001] if n > 1 else [])]
        upsert(ds, pa.table({"id": source, "v": [n] * len(source)}))
        model.update(dict.fromkeys(source, n))
        found = ds.to_table()
        assert found.num_rows == len(model)
        assert dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)) == model
    assert {row["id"]: row["v"] for row in rows_of(peer, ds)} == model


def test_g12_all_rows_with_the_key_are_updated(path: str, peer: Peer) -> None:
    ds = lance.write_dataset(pa.table({"id": [1, 1, 2], "v": [1, 2, 3]}), path)
    assert upsert(ds, pa.table({"id": [1], "v": [9]})) == {
        "num_inserted_rows": 0,
        "num_updated_rows": 2,
        "num_deleted_rows": 0,
    }
    assert rows_of(peer, ds) == [{"id": 1, "v": 9}, {"id": 1, "v": 9}, {"id": 2, "v": 3}]
