"""Merge functions in plain words: what is settled by the first stream, and what is refused."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard as ty
import tiltyard.lance as lance
from streamed import digest
from tiltyard.errors import BatchTooLarge, InvalidInput, UndrainedRows, UnsupportedFeature

MERGE = {"clicks": "sum", "first_seen": "min", "last_seen": "max", "page": "keep_non_null"}
DAY = datetime.date(2026, 11, 30)
NEXT = datetime.date(2026, 12, 1)


def row(clicks: int | None, seen: Any = DAY, page: str | None = None, user: int = 1) -> dict[str, Any]:
    return {"user": user, "clicks": clicks, "first_seen": seen, "last_seen": seen, "page": page}


@pytest.fixture
def table(tmp_path: Path) -> ty.Table:
    return ty.connect(tmp_path).create_table("visits", [row(3, page="home")], key="user")


def one(rows: pa.Table) -> Any:
    (found,) = rows.to_pylist()
    return found


def test_rows_of_a_key_become_one(table: ty.Table) -> None:
    with table.stream(merge=MERGE) as stream:
        stream.put(row(2, NEXT))
        stream.put([row(4, page="shop"), row(None, None)])
        wanted = {"user": 1, "clicks": 9, "first_seen": DAY, "last_seen": NEXT, "page": "shop"}
        assert one(table.live().to_arrow()) == wanted
        assert one(table.live().lookup(1)) == wanted
        stream.flush()
        assert one(table.live().lookup(1, ["clicks"])) == {"clicks": 9}
        assert table.live().count("clicks > 8") == table.live().count() == 1
        stream.delete(1)
        assert table.live().count() == table.live().lookup(1).num_rows == 0
        stream.put(row(1))
        stream.flush()
    assert one(table.live().to_arrow()) == row(1)
    assert table.live().scan([]).to_arrow().num_rows == 1
    assert one(table.to_arrow()) == row(3, page="home")


def test_functions_are_told_and_stay(table: ty.Table) -> None:
    assert table.merge_functions is None
    with table.stream(merge=MERGE, shards=2) as stream:
        stream.put(row(1))
    assert table.merge_functions == MERGE
    with table.stream(merge=MERGE, shards=2) as stream:
        stream.put(row(1))
    with table.stream() as stream:
        stream.put(row(1))
    assert one(table.live().to_arrow())["clicks"] == 6
    with pytest.raises(InvalidInput, match="what was put already would mean something else"):
        table.stream(merge={**MERGE, "clicks": "last"})
    with pytest.raises(InvalidInput, match="among 2 shards"):
        table.stream(shards=1)


def test_a_table_that_was_streamed_into_without_takes_none(table: ty.Table) -> None:
    table.stream().close()
    with pytest.raises(InvalidInput, match="the newest row of a key counts, since it was first"):
        table.stream(merge=MERGE)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"clicks": "sum"}, "columns without a merge function: first_seen, last_seen, page"),
        ({}, "columns without a merge function: clicks"),
        ({**MERGE, "user": "last"}, "'user' is of the key"),
        ({**MERGE, "clics": "sum"}, "no column 'clics' to merge; nearest: clicks"),
        (
            {**MERGE, "clicks": "mean"},
            "'clicks' cannot be merged by 'mean': there are last, first, sum",
        ),
        ({**MERGE, "page": "sum"}, "'page' is string, which cannot be merged by 'sum'"),
        ({**MERGE, "first_seen": "sum"}, "'first_seen' is date32.*by 'sum'"),
        ({**MERGE, "clicks": 1}, "merge"),
        ("sum", "merge"),
    ],
)
def test_what_cannot_be_merged_is_refused_and_nothing_is_written(
    table: ty.Table, tmp_path: Path, given: Any, told: str
) -> None:
    before = digest(tmp_path)
    with pytest.raises(InvalidInput, match=told):
        table.stream(merge=given)
    assert digest(tmp_path) == before


@pytest.mark.parametrize(
    ("kind", "function"),
    [
        (pa.list_(pa.int32()), "max"),
        (pa.struct([("a", pa.int32())]), "min"),
        (pa.list_(pa.float32(), 2), "sum"),
        (pa.bool_(), "sum"),
        (pa.duration("us"), "sum"),
    ],
)
def test_types_without_an_order_or_a_sum_are_refused(tmp_path: Path, kind: Any, function: str) -> None:
    rows = pa.table({"k": pa.array([1]), "v": pa.array([None], kind)})
    table = ty.connect(tmp_path).create_table("t", rows, key="k")
    with pytest.raises(InvalidInput, match=f"cannot be merged by '{function}'"):
        table.stream(merge={"v": function})


def test_rows_of_a_key_have_to_meet_in_one_shard(tmp_path: Path) -> None:
    rows = pa.table({"k": pa.array([1]), "v": pa.array([2])})
    ty.connect(tmp_path).create_table("t", rows, key="k")
    ds = lance.dataset(str(tmp_path / "t.lance"))
    for sharding in ({}, {"identity_column": "v"}, {"bucket_column": "v", "num_buckets": 2}):
        with pytest.raises(InvalidInput, match="all rows of a key in one shard"):
            ds.initialize_mem_wal(**sharding, merge_functions={"v": "sum"})
    ds.initialize_mem_wal(identity_column="k", merge_functions={"v": "sum"})
    details = ds.mem_wal_index_details()
    assert details["merge_functions"] == {"v": "sum"}
    assert [each["spec_id"] for each in details["sharding_specs"]] == [1, 2]


def test_tables_without_a_key_have_no_merge_functions(tmp_path: Path) -> None:
    table = ty.connect(tmp_path).create_table("t", {"v": [1]})
    with pytest.raises(InvalidInput, match="merge functions need a primary key"):
        table.stream(merge={"v": "sum"})
    table = ty.connect(tmp_path).create_table("u", {"v": [1]}, key="v")
    with pytest.raises(InvalidInput, match="no column outside its key"):
        table.stream(merge={})


def test_a_change_is_what_is_to_be_merged(table: ty.Table) -> None:
    with table.stream(merge=MERGE) as stream:
        stream.put([row(2), row(5)])
        stream.delete(1)
    put, gone = list(table.tail())
    assert put.rows.column("clicks").to_pylist() == [2, 5]
    assert gone.rows.column("_tombstone").to_pylist() == [True]
    for look in (lambda: put.upserts, lambda: gone.deletes):
        with pytest.raises(InvalidInput, match="merge functions: which row a key has"):
            look()


def test_changes_of_the_base_under_streamed_rows_are_refused_as_ever(table: ty.Table) -> None:
    with table.stream(merge=MERGE) as stream:
        stream.put(row(2))
    with pytest.raises(UndrainedRows):
        table.delete("user = 1")


def test_sums_wrap_around_at_the_range_of_their_type(tmp_path: Path) -> None:
    rows = pa.table({"k": pa.array([1]), "v": pa.array([100], pa.int8())})
    table = ty.connect(tmp_path).create_table("t", rows, key="k")
    with table.stream(merge={"v": "sum"}) as stream:
        stream.put({"k": 1, "v": 100})
        stream.flush()
        assert one(table.live().to_arrow())["v"] == -56
        stream.put({"k": 1, "v": -100})
        assert one(table.live().to_arrow())["v"] == 100
        before = digest(tmp_path)
        with pytest.raises(InvalidInput):
            stream.put({"k": 1, "v": 1000})
        assert digest(tmp_path) == before


def test_a_function_of_a_newer_version_is_refused_by_name(
    table: ty.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with table.stream(merge=MERGE) as stream:
        stream.put(row(2))
    from tiltyard.memwal import merge_functions

    monkeypatch.setattr(merge_functions, "NAMES", ("last", "min", "max", "keep_non_null"))
    with pytest.raises(UnsupportedFeature, match="merges a column by 'sum'"):
        table.live().count()
    with pytest.raises(UnsupportedFeature, match="merges a column by 'sum'"):
        table.stream()


def test_dictionaries_that_no_index_numbers_together_are_told(tmp_path: Path) -> None:
    kind = pa.dictionary(pa.int8(), pa.string())
    table = ty.connect(tmp_path).create_table("t", pa.table({"k": [0], "v": pa.array(["x"], kind)}), key="k")
    with table.stream(merge={"v": "last"}) as stream:
        for start in (0, 100, 200):
            keys = list(range(start, start + 100))
            stream.put(pa.table({"k": keys, "v": pa.array([f"v{each}" for each in keys], kind)}))
            stream.flush()
        with pytest.raises(BatchTooLarge, match="cannot be merged into one batch"):
            table.live().to_arrow()
        assert table.live().count() == 300
        assert one(table.live().lookup(250)) == {"k": 250, "v": "v250"}
