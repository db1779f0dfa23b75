"""The builder of merges: what it takes, what it refuses, and what it leaves on disk."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard as ty
import tiltyard.lance as lance
from peer import Peer
from tiltyard.errors import (
    AmbiguousMerge,
    FieldNotFound,
    InvalidExpression,
    InvalidInput,
    MatchedRow,
    RetryableConflict,
    SchemaMismatch,
    UnsupportedFeature,
    WrongType,
)
from tiltyard.format.operations import REWRITE_COLUMNS, REWRITE_ROWS, Update
from tiltyard.table.merge import execute
from tiltyard.table.snapshot import open_latest


@pytest.fixture
def ds(tmp_path: Path) -> Any:
    table = pa.table({"id": [1, 2, 3], "n": [10, 20, 30], "s": ["a", "b", "c"]})
    return lance.write_dataset(table, str(tmp_path / "t"))


def upsert(ds: Any, on: Any = "id") -> Any:
    return ds.merge_insert(on).when_matched_update_all().when_not_matched_insert_all()


def rows(ds: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in ds.to_table().to_pylist()), key=repr)


def operation(ds: Any) -> Update:
    found = open_latest(ds._store, ds._session).transaction()
    assert found is not None
    assert isinstance(found.operation, Update)
    return found.operation


def files(ds: Any) -> set[Path]:
    return {each for each in Path(ds.uri).rglob("*") if each.is_file()}


# -- what is refused -----------------------------------------------------------------------------------


SOURCE = pa.table({"id": [2, 4], "n": [200, 400], "s": ["B", "D"]})

REFUSED: dict[str, tuple[type[Exception], str, Callable[[Any], Any]]] = {
    "nothing to do": (InvalidInput, "not configured", lambda ds: ds.merge_insert("id").execute(SOURCE)),
    "no key": (InvalidInput, "requires join keys", lambda ds: ds.merge_insert()),
    "unknown key": (FieldNotFound, "no column 'ident' to be the key", lambda ds: ds.merge_insert("ident")),
    "key of a wrong type": (WrongType, "on", lambda ds: ds.merge_insert([1])),
    "unknown column": (
        SchemaMismatch,
        "'q' is not in the table",
        lambda ds: upsert(ds).execute(SOURCE.append_column("q", [[1, 2]])),
    ),
    "key missing in the data": (
        SchemaMismatch,
        "lacks the key column 'id'",
        lambda ds: upsert(ds).execute(SOURCE.select(["n"])),
    ),
    "type that does not widen": (
        SchemaMismatch,
        "'n' has type int64, the data has double",
        lambda ds: upsert(ds).execute(SOURCE.set_column(1, "n", pa.array([1.5, 2.5]))),
    ),
    "data that is none": (InvalidInput, "no data", lambda ds: upsert(ds).execute(object())),
    "unknown column in a condition": (
        FieldNotFound,
        "source.q",
        lambda ds: ds.merge_insert("id").when_matched_update_all("source.q > 1").execute(SOURCE),
    ),
    "condition without a side": (
        FieldNotFound,
        "source.name and target.name",
        lambda ds: ds.merge_insert("id").when_matched_update_all("n > 1").execute(SOURCE),
    ),
    "condition that is none": (
        InvalidExpression,
        "boolean",
        lambda ds: ds.merge_insert("id").when_matched_update_all("source.n").execute(SOURCE),
    ),
    "bad delete by source": (
        FieldNotFound,
        "source",
        lambda ds: ds.merge_insert("id").when_not_matched_by_source_delete("source.n > 1").execute(SOURCE),
    ),
    "unknown column to set": (
        FieldNotFound,
        "'q'",
        lambda ds: ds.merge_insert("id").when_matched_update({"q": "1"}).execute(SOURCE),
    ),
    "nothing to set": (
        InvalidInput,
        "names no column",
        lambda ds: ds.merge_insert("id").when_matched_update({}),
    ),
    "matched row": (
        MatchedRow,
        "found matching row with key values: id = 2",
        lambda ds: ds.merge_insert("id").when_matched_fail().when_not_matched_insert_all().execute(SOURCE),
    ),
    "ambiguous": (
        AmbiguousMerge,
        "several rows of the data are for one row of the table, id = 2",
        lambda ds: (
            ds.merge_insert("id").when_matched_update_all().execute(pa.concat_tables([SOURCE, SOURCE]))
        ),
    ),
    "write mode": (InvalidInput, "Expected one of", lambda ds: ds.merge_insert("id").write_mode("x")),
    "columns with inserts": (
        InvalidInput,
        "inserting",
        lambda ds: upsert(ds).write_mode("rewrite_columns").execute(SOURCE.select(["id", "n"])),
    ),
    "columns of a whole source": (
        InvalidInput,
        "covers every dataset column",
        lambda ds: (
            ds.merge_insert("id").when_matched_update_all().write_mode("rewrite_columns").execute(SOURCE)
        ),
    ),
    "columns of a key": (
        InvalidInput,
        "no whole column besides the join key",
        lambda ds: (
            ds.merge_insert("id")
            .when_matched_update_all()
            .write_mode("rewrite_columns")
            .execute(SOURCE.select(["id"]))
        ),
    ),
    "retries": (InvalidInput, "max_retries", lambda ds: ds.merge_insert("id").conflict_retries(-1)),
    "timeout": (InvalidInput, "timeout", lambda ds: ds.merge_insert("id").retry_timeout("soon")),
    "flag": (WrongType, "use_index", lambda ds: ds.merge_insert("id").use_index("yes")),
    "file version": (
        InvalidInput | UnsupportedFeature,  # type: ignore[dict-item]
        "9",
        lambda ds: ds.merge_insert("id").data_storage_version("9"),
    ),
    "dedupe": (InvalidInput, "first_seen", lambda ds: ds.merge_insert("id").source_dedupe_behavior("any")),
    "bases": (UnsupportedFeature, "target_bases", lambda ds: ds.merge_insert("id").target_bases(["x"])),
    "sstables": (WrongType, "sstables", lambda ds: ds.merge_insert("id").mark_sstables_as_compacted([1])),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_is_wrong_is_refused_before_a_file_is_written(ds: Any, name: str) -> None:
    kinds, message, act = REFUSED[name]
    before = files(ds)
    with pytest.raises(kinds if isinstance(kinds, type) else kinds.__args__) as raised:
        act(ds)
    assert message in str(raised.value)
    assert files(ds) == before
    assert rows(ds) == [(1, 10, "a"), (2, 20, "b"), (3, 30, "c")]


def test_values_that_expressions_cannot_give_leave_no_file(ds: Any) -> None:
    before = files(ds)
    with pytest.raises(InvalidExpression, match="'n' cannot be set"):
        ds.merge_insert("id").when_matched_update({"n": "CAST(source.s AS BIGINT)"}).execute(SOURCE)
    assert files(ds) == before


def test_keys_without_equality_are_refused(tmp_path: Path) -> None:
    table = pa.table(
        {"l": [[1]], "s": [{"x": 1}], "m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8()))}
    )
    ds = lance.write_dataset(table, str(tmp_path / "t"))
    for name, hint in (("l", "list"), ("s", "s.x"), ("m", "map"), ("l.item", "list")):
        with pytest.raises(UnsupportedFeature, match=hint):
            ds.merge_insert(name)


# -- what is taken ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        SOURCE,
        SOURCE.to_batches()[0],
        SOURCE.to_reader(),
        {"id": [2, 4], "n": [200, 400], "s": ["B", "D"]},
        [{"id": 2, "n": 200, "s": "B"}, {"id": 4, "n": 400, "s": "D"}],
        SOURCE.rename_columns(["ID", "N", "S"]),
        SOURCE.set_column(0, "id", pa.array([2, 4], pa.int8())),
        SOURCE.set_column(2, "s", pa.array(["B", "D"], pa.large_string())),
        SOURCE.select(["s", "n", "id"]),
        SOURCE.to_pandas(),
    ],
    ids=lambda data: type(data).__name__,
)
@pytest.mark.parametrize("on", ["id", ["id"], "ID", ("id", "id")])
def test_data_of_any_shape_is_taken(tmp_path: Path, data: Any, on: Any) -> None:
    if isinstance(data, pa.RecordBatchReader):
        data = SOURCE.to_reader()
    table = pa.table({"id": [1, 2, 3], "n": [10, 20, 30], "s": ["a", "b", "c"]})
    ds = lance.write_dataset(table, str(tmp_path / "t"))
    counts = upsert(ds, on).execute(data)
    assert counts == {"num_inserted_rows": 1, "num_updated_rows": 1, "num_deleted_rows": 0}
    assert rows(ds) == [(1, 10, "a"), (2, 200, "B"), (3, 30, "c"), (4, 400, "D")]
    assert ds.version == 2


def test_a_dataset_and_a_generator_are_sources(ds: Any, tmp_path: Path) -> None:
    other = lance.write_dataset(SOURCE, str(tmp_path / "other"))
    upsert(ds).execute(other)

    def stream() -> Iterator[pa.RecordBatch]:
        yield from pa.table({"id": [5], "n": [50], "s": ["e"]}).to_batches()

    upsert(ds).execute(stream(), schema=SOURCE.schema)
    assert [row[0] for row in rows(ds)] == [1, 2, 3, 4, 5]


def test_python_values_leave_out_fields_of_structs(tmp_path: Path) -> None:
    ds = lance.write_dataset(pa.table({"id": [1], "s": [{"x": 1, "y": 2}]}), str(tmp_path / "t"))
    upsert(ds).execute([{"id": 1, "s": {"x": 5}}, {"id": 2, "s": {"x": 6}}])
    assert rows(ds) == [(1, {"x": 5, "y": 2}), (2, {"x": 6, "y": None})]


def test_a_key_inside_a_struct(tmp_path: Path, peer: Peer) -> None:
    table = pa.table({"s": [{"k": 1, "v": 1}, None, {"k": 2, "v": 2}], "n": [1, 2, 3]})
    ds = lance.write_dataset(table, str(tmp_path / "t"))
    source = pa.table({"s": [{"k": 2, "v": 9}, None], "n": [30, 40]})
    assert upsert(ds, "s.k").execute(source)["num_updated_rows"] == 1
    found = [(None, 2), (None, 40), ({"k": 1, "v": 1}, 1), ({"k": 2, "v": 9}, 30)]
    assert rows(ds) == sorted(found, key=repr)
    assert len(peer("lance.dataset(p).to_table()", p=ds.uri)) == 4


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.float32(), [0.5, float("nan"), -0.0]),
        (pa.bool_(), [True, False, None]),
        (pa.date32(), [datetime.date(2024, 1, 1), datetime.date(1960, 1, 1), None]),
        (pa.timestamp("us", "UTC"), [0, -1, 2**40]),
        (pa.large_binary(), [b"", b"a", b"bb"]),
        (pa.binary(2), [b"ab", b"cd", None]),
        (pa.decimal128(10, 2), [1, 2, 3]),
        (pa.dictionary(pa.int8(), pa.string()), ["x", "y", None]),
        (pa.uint8(), [0, 255, 7]),
    ],
    ids=str,
)
@pytest.mark.parametrize("indexed", [False, True])
def test_keys_of_many_types_match_themselves(
    tmp_path: Path, kind: pa.DataType, values: list[Any], indexed: bool
) -> None:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    keys = pa.array(values, plain)
    if pa.types.is_dictionary(kind):
        keys = keys.dictionary_encode().cast(kind)
    table = pa.table({"k": keys, "v": [1, 2, 3]})
    ds = lance.write_dataset(table, str(tmp_path / "t"))
    can_be_indexed = not (pa.types.is_dictionary(kind) or pa.types.is_decimal(kind) or kind == pa.binary(2))
    if indexed and can_be_indexed:
        ds.create_scalar_index("k", "BTREE")
    source = table.set_column(1, "v", pa.array([7, 8, 9]))
    counts = upsert(ds, "k").execute(source)
    nulls = sum(value is None for value in values)
    assert counts["num_updated_rows"] == 3 - nulls
    assert counts["num_inserted_rows"] == nulls


def test_rows_are_found_by_index_in_covered_and_in_other_fragments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, peer: Peer
) -> None:
    monkeypatch.setattr("tiltyard.table.merge.lookup.INDEX_COST", {True: 0, False: 0})
    table = pa.table(
        {"a": [n % 10 for n in range(100)], "b": [f"{n // 10}" for n in range(100)], "v": [0] * 100}
    )
    for on in (["a", "b"], ["b", "a"]):
        place = str(tmp_path / "".join(on))
        ds = lance.write_dataset(table.slice(0, 60), place, max_rows_per_file=25)
        ds.create_scalar_index("a", "BTREE")
        ds = lance.write_dataset(table.slice(60), place, mode="append")
        ds.delete("a = 3 AND b = '1'")
        source = pa.table({"a": [3, 3, 9, 0], "b": ["1", "2", "9", "x"], "v": [1, 2, 3, 4]})
        plan = upsert(ds, on).analyze_plan(source)
        assert "BTreeLookup: index=a_idx" in plan
        assert "LanceRead" in upsert(ds, on).use_index(False).analyze_plan(source)
        counts = upsert(ds, on).execute(source)
        assert counts == {"num_inserted_rows": 2, "num_updated_rows": 2, "num_deleted_rows": 0}
        found = {(row["a"], row["b"]): row["v"] for row in ds.to_table().to_pylist() if row["v"]}
        assert found == {(3, "1"): 1, (3, "2"): 2, (9, "9"): 3, (0, "x"): 4}
        assert peer("lance.dataset(p).count_rows('v > 0')", p=place) == 4


def test_a_damaged_index_is_left_out_with_a_warning(ds: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiltyard.table.merge.lookup.INDEX_COST", {True: 0, False: 0})
    ds.create_scalar_index("id", "BTREE")
    for each in Path(ds.uri, "_indices").rglob("*.lance"):
        each.write_bytes(each.read_bytes()[:100])
    fresh = lance.dataset(ds.uri, session=lance.Session())
    with pytest.warns(UserWarning, match="reads all keys"):
        assert upsert(fresh).execute(SOURCE)["num_updated_rows"] == 1


# -- what it writes ----------------------------------------------------------------------------------------


def test_expressions_see_both_sides_and_columns_of_the_source_alone(ds: Any) -> None:
    source = pa.table({"id": [1, 2, 9], "delta": [5, 6, 7]})
    merge = ds.merge_insert("id").when_matched_update(
        {"n": "target.n + source.delta", "s": "upper(target.s)"}, "source.delta < 6"
    )
    assert merge.execute(source)["num_updated_rows"] == 1
    assert rows(ds) == [(1, 15, "A"), (2, 20, "b"), (3, 30, "c")]
    assert operation(ds).fields_for_preserving_frag_bitmap == (1, 2)
    merge = ds.merge_insert("id").when_matched_update({"n": "source.delta"}).when_not_matched_insert_all()
    merge.execute(source)
    assert rows(ds) == [(1, 5, "A"), (2, 6, "b"), (3, 30, "c"), (9, None, None)]


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("how", ["columns", "expressions"])
def test_columns_are_rewritten_beside_the_others(tmp_path: Path, peer: Peer, stable: bool, how: str) -> None:
    table = pa.table({"id": list(range(20)), "n": [0] * 20, "s": ["x"] * 20})
    ds = lance.write_dataset(table, str(tmp_path / "t"), max_rows_per_file=8, enable_stable_row_ids=stable)
    ds.create_scalar_index("n", "BTREE")
    ds.delete("id IN (2, 3)")
    source = pa.table({"id": [0, 3, 7, 9], "n": [1, 2, 3, 4]})
    merge = ds.merge_insert("id")
    merge = (
        merge.when_matched_update({"n": "source.n"})
        if how == "expressions"
        else merge.when_matched_update_all()
    )
    assert merge.write_mode("rewrite_columns").execute(source)["num_updated_rows"] == 3
    made = operation(ds)
    assert made.update_mode == REWRITE_COLUMNS
    assert made.fields_modified == (1,)
    assert [fragment.id for fragment in made.updated_fragments] == [0, 1]
    assert not made.new_fragments
    wanted = {id: {0: 1, 7: 3, 9: 4}.get(id, 0) for id in range(20) if id not in (2, 3)}
    assert dict(zip(*ds.to_table(columns=["id", "n"]).to_pydict().values(), strict=True)) == wanted
    seen = peer("lance.dataset(p).to_table(columns=['id', 'n']).to_pydict()", p=ds.uri)
    assert dict(zip(seen["id"], seen["n"], strict=True)) == wanted
    assert ds.count_rows("n = 3") == peer("lance.dataset(p).count_rows('n = 3')", p=ds.uri) == 1


def test_columns_of_dictionaries_that_have_only_room_for_what_is_left_are_rewritten(tmp_path: Path) -> None:
    kind = pa.dictionary(pa.int8(), pa.string())

    def texts(first: str, rows: int) -> Any:
        return pa.array([f"{first}{n}" for n in range(rows)]).dictionary_encode().cast(kind)

    table = pa.table({"id": range(100), "s": texts("old", 100), "n": [0] * 100})
    ds = lance.write_dataset(table, str(tmp_path / "t"))
    merge = ds.merge_insert("id").when_matched_update_all().write_mode("rewrite_columns")
    merge.execute(pa.table({"id": range(50), "s": texts("new", 50)}))
    wanted = [f"new{n}" for n in range(50)] + [f"old{n}" for n in range(50, 100)]
    assert ds.to_table()["s"].to_pylist() == wanted
    merge.execute(pa.table({"id": range(20), "s": texts("even newer", 20)}))
    assert ds.to_table()["s"].to_pylist()[:50:10] == [
        "even newer0",
        "even newer10",
        "new20",
        "new30",
        "new40",
    ]


def test_auto_rewrites_columns_where_that_writes_much_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execute, "COLUMN_REWRITE_BYTES", 1)
    wide = pa.table({"id": list(range(100)), "n": [0] * 100, "v": [[1.0] * 64] * 100})
    ds = lance.write_dataset(wide, str(tmp_path / "t"))
    upsert(ds).execute(pa.table({"id": list(range(30)), "n": [1] * 30}))
    assert operation(ds).update_mode == REWRITE_ROWS
    ds = lance.write_dataset(wide, str(tmp_path / "u"))
    upsert(ds).execute(pa.table({"id": list(range(20, 120)), "n": [1] * 100}))
    made = operation(ds)
    assert made.update_mode == REWRITE_COLUMNS
    assert [fragment.physical_rows for fragment in made.new_fragments] == [20]
    assert ds.count_rows() == 120
    assert ds.count_rows("n = 1 AND v IS NULL") == 20


def test_a_source_with_every_column_is_written_as_it_stands(ds: Any) -> None:
    upsert(ds).execute(pa.table({"id": [9, 2, 8, 1], "n": [9, 2, 8, 1], "s": list("wxyz")}))
    assert ds.to_table()["id"].to_pylist() == [3, 9, 2, 8, 1]
    assert operation(ds).fields_for_preserving_frag_bitmap == (0, 1, 2)


def test_a_fragment_without_rows_left_is_removed_and_an_empty_merge_commits(ds: Any) -> None:
    upsert(ds).execute(SOURCE.slice(0, 0))
    assert ds.version == 2
    assert operation(ds).new_fragments == ()
    ds.merge_insert("id").when_matched_delete().execute(pa.table({"id": [1, 2, 3]}))
    assert operation(ds).removed_fragment_ids == (0,)
    assert ds.count_rows() == 0


def test_an_uncommitted_merge_can_be_committed_later_with_its_keys(ds: Any, peer: Peer) -> None:
    transaction, counts = upsert(ds).execute_uncommitted(SOURCE)
    assert counts == {"num_inserted_rows": 1, "num_updated_rows": 1, "num_deleted_rows": 0}
    assert ds.version == 1
    after = lance.LanceDataset.commit(ds, transaction)
    assert after.version == 2
    assert operation(after).inserted_rows is not None
    assert sorted(peer("lance.dataset(p).to_table()['id'].to_pylist()", p=ds.uri)) == [1, 2, 3, 4]
    late, _ = upsert(after).execute_uncommitted(pa.table({"id": [9], "n": [9], "s": ["x"]}))
    upsert(after).execute(pa.table({"id": [9], "n": [1], "s": ["y"]}))
    with pytest.raises(RetryableConflict):
        lance.LanceDataset.commit(ds.uri, late)


def test_a_message_and_properties_are_kept_with_the_version(ds: Any) -> None:
    upsert(ds).execute(SOURCE, commit_message="merged", transaction_properties={"job": "7"})
    found = ds.read_transaction(ds.version).transaction_properties
    assert found == {"job": "7", "__lance_commit_message": "merged"}


def test_plans_are_told_and_write_nothing(ds: Any) -> None:
    merge = (
        upsert(ds)
        .when_matched_update_all("source.n > target.n")
        .when_not_matched_by_source_delete("n > 1")
        .conflict_retries(3)
        .retry_timeout(timedelta(seconds=1))
    )
    before = files(ds)
    told = merge.explain_plan()
    assert "MergeInsert: on=[id], when_matched=UpdateIf(source.n > target.n)" in told
    assert "KeyJoin" in told
    assert merge.explain_plan(SOURCE.select(["id", "n"]).schema, verbose=True) != told
    analysis = merge.analyze_plan(SOURCE)
    for word in ("bytes_written=", "num_files_written=1", "num_inserted_rows=1", "metrics", "elapsed="):
        assert word in analysis
    assert files(ds) == before
    assert ds.version == 1
    ds.create_scalar_index("id", "BTREE")
    assert "BTreeLookup: index=id_idx" in merge.explain_plan()
    with pytest.raises(WrongType, match="schema"):
        merge.explain_plan("id")


def test_a_stale_handle_merges_into_the_newest_version(ds: Any) -> None:
    stale = lance.dataset(ds.uri)
    ds.delete("id = 2")
    assert upsert(stale).execute(SOURCE)["num_inserted_rows"] == 2
    assert stale.version == 3


# -- the plain face ------------------------------------------------------------------------------------------


def test_the_plain_table_upserts_on_its_key(tmp_path: Path) -> None:
    key = pa.field("id", pa.int64(), False, {"lance-schema:unenforced-primary-key": "true"})
    table = ty.create_table(str(tmp_path / "t"), pa.schema([key, pa.field("v", pa.string())]))
    assert table.upsert({"id": [1, 2], "v": ["a", "b"]}) == {"inserted": 2, "updated": 0}
    assert table.upsert([{"id": 2, "v": "B"}, {"id": 3}]) == {"inserted": 1, "updated": 1}
    assert sorted(table.to_arrow()["v"].to_pylist(), key=repr) == ["B", "a", None]
    assert table.merge().when_matched_delete().execute({"id": [1]})["num_deleted_rows"] == 1
    table.append({"id": [2], "v": ["again"]})
    assert table.dedupe(keep="first") == 1
    old = table.at(version=1)
    for act in (lambda: old.upsert({"id": [1]}), lambda: old.merge(), lambda: old.dedupe()):
        with pytest.raises(InvalidInput, match="opened with at"):
            act()
