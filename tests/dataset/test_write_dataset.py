"""`write_dataset`: every shape of data, every mode, on missing and present tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pytest

import tiltyard.lance as lance
from peer import Peer
from tiltyard.errors import (
    BatchTooLarge,
    InvalidInput,
    SchemaMismatch,
    TableAlreadyExists,
    UnsupportedFeature,
)

TABLE = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "s": ["a", None, "c"]})


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t.lance")


def polars_frame() -> Any:
    return pytest.importorskip("polars").from_arrow(TABLE)


def pandas_frame() -> Any:
    return pytest.importorskip("pandas").DataFrame({"id": np.array([1, 2, 3]), "s": ["a", None, "c"]})


SOURCES = {
    "table": lambda: TABLE,
    "batch": lambda: TABLE.to_batches()[0],
    "reader": lambda: TABLE.to_reader(),
    "arrow dataset": lambda: pa.dataset.dataset(TABLE),
    "arrow scanner": lambda: pa.dataset.dataset(TABLE).scanner(),
    "pandas": pandas_frame,
    "polars": polars_frame,
    "lazy polars": lambda: polars_frame().lazy(),
    "dict of lists": lambda: TABLE.to_pydict(),
    "list of dicts": lambda: TABLE.to_pylist(),
}


@pytest.mark.parametrize("name", SOURCES)
def test_data_of_every_shape_is_taken(name: str, path: str) -> None:
    ds = lance.write_dataset(SOURCES[name](), path)
    assert ds.to_table().to_pydict() == TABLE.to_pydict()
    ds = lance.write_dataset(SOURCES[name](), path, mode="append")
    assert ds.count_rows() == 6


def test_iterables_and_generators_with_a_schema_are_taken(path: str) -> None:
    ds = lance.write_dataset(iter(TABLE.to_batches(max_chunksize=1)), path, TABLE.schema)
    ds = lance.write_dataset((t for t in [TABLE, TABLE]), ds, TABLE.schema, mode="append")
    assert ds.count_rows() == 9


def test_our_own_datasets_and_scanners_are_data(path: str) -> None:
    ds = lance.write_dataset(TABLE, path)
    copy = lance.write_dataset(ds, path + "2")
    assert copy.to_table().equals(TABLE)
    part = lance.write_dataset(ds.scanner(columns=["s"], filter="id > 1"), path + "3")
    assert part.to_table().to_pydict() == {"s": [None, "c"]}
    assert pa.table(ds).equals(TABLE)


@pytest.mark.parametrize("data", [3, "text", b"x", None, object(), []])
def test_what_is_no_data_is_refused(data: object, path: str) -> None:
    with pytest.raises(InvalidInput):
        lance.write_dataset(data, path)
    assert not Path(path).exists()


def test_a_schema_brings_the_data_to_its_types(path: str) -> None:
    schema = pa.schema(
        [("s", pa.large_string()), ("id", pa.int16()), ("extra", pa.bool_())], metadata={"k": "v"}
    )
    ds = lance.write_dataset(TABLE, path, schema)
    assert ds.schema.equals(schema, check_metadata=True)
    assert ds.to_table().to_pylist()[0] == {"s": "a", "id": 1, "extra": None}
    with pytest.raises(SchemaMismatch):
        lance.write_dataset(TABLE, path + "2", pa.schema([("s", pa.int8())]))


def test_modes_on_missing_and_present_tables(path: str) -> None:
    assert lance.write_dataset(TABLE, path, mode="append").version == 1
    with pytest.raises(TableAlreadyExists, match=r"t\.lance"):
        lance.write_dataset(TABLE, path)
    other = pa.table({"z": [1.5]})
    ds = lance.write_dataset(other, path, mode="overwrite")
    assert (ds.version, ds.to_table().to_pydict()) == (2, {"z": [1.5]})
    assert lance.write_dataset(other, path + "2", mode="overwrite").version == 1
    with pytest.raises(InvalidInput, match="mode"):
        lance.write_dataset(TABLE, path, mode="replace")
    assert lance.dataset(path, version=1).to_table().equals(TABLE)


def test_an_insert_moves_the_handle_and_a_write_into_one_does_not(path: str) -> None:
    ds = lance.write_dataset(TABLE, path)
    ds.insert(TABLE)
    assert (ds.version, ds.count_rows()) == (2, 6)
    after = lance.write_dataset(TABLE, ds, mode="append")
    assert (ds.version, after.version) == (2, 3)


def test_an_append_through_a_stale_handle_builds_on_the_newest_version(path: str) -> None:
    stale = lance.write_dataset(TABLE, path)
    lance.write_dataset(pa.table({"z": [1]}), path, mode="overwrite")
    with pytest.raises(SchemaMismatch):
        stale.insert(TABLE)
    stale.insert(pa.table({"z": [2]}))
    assert stale.to_table().to_pydict() == {"z": [1, 2]}


def test_old_naming_of_manifests_can_be_asked_for(path: str, peer: Peer) -> None:
    lance.write_dataset(TABLE, path, enable_v2_manifest_paths=False)
    lance.write_dataset(TABLE, path, mode="append")
    names = sorted(each.name for each in Path(path, "_versions").glob("*.manifest"))
    assert names == ["1.manifest", "2.manifest"]
    assert peer("lance.dataset(p).count_rows()", p=path) == 6


def test_stable_row_ids_can_be_asked_for(path: str, peer: Peer) -> None:
    lance.write_dataset(TABLE, path, enable_stable_row_ids=True, max_rows_per_file=2)
    ds = lance.write_dataset(TABLE, path, mode="append")
    ds.delete("id = 2")
    assert ds.has_stable_row_ids
    columns = ["id", "_rowid", "_row_created_at_version"]
    expected = {"id": [1, 3, 1, 3], "_rowid": [0, 2, 3, 5], "_row_created_at_version": [1, 1, 2, 2]}
    assert ds.to_table(columns=columns).to_pydict() == expected
    assert peer("lance.dataset(p).to_table(columns=c).to_pydict()", p=path, c=columns) == expected


def test_what_is_not_supported_is_refused_by_name(path: str) -> None:
    for name in ("use_legacy_format", "base_store_params"):
        with pytest.raises(UnsupportedFeature, match=name):
            lance.write_dataset(TABLE, path, **{name: object()})
    assert not Path(path).exists()


def test_memory_tables_work_alike() -> None:
    ds = lance.write_dataset(TABLE, "memory://write-dataset-test/t")
    ds.delete("id = 1")
    assert lance.dataset("memory://write-dataset-test/t").to_table()["id"].to_pylist() == [2, 3]


def test_views_are_written_as_plain_types_at_any_depth(path: str, peer: Peer) -> None:
    view = pa.array(["a", "b", "c"]).cast(pa.string_view())
    plain = pa.array(["a", "b", "c"])
    ends = pa.array([0, 1, 3], pa.int32())

    def table(leaf: pa.Array) -> pa.Table:
        struct = pa.StructArray.from_arrays([leaf], ["f"])
        return pa.table(
            {
                "list": pa.ListArray.from_arrays(ends, leaf),
                "structs": pa.ListArray.from_arrays(ends, struct),
                "map": pa.MapArray.from_arrays(ends, plain, leaf),
                "keys": pa.MapArray.from_arrays(ends, leaf, pa.array([b"x", b"y", None], pa.binary_view())),
            }
        )

    ds = lance.write_dataset(table(view), path)
    ds = lance.write_dataset(table(plain), path, mode="append")
    assert ds.to_table().to_pylist() == 2 * table(plain).to_pylist()
    assert peer("lance.dataset(p).to_table().to_pylist()", p=path) == ds.to_table().to_pylist()


def test_ordered_dictionaries_are_taken_and_their_order_is_not_kept(path: str, peer: Peer) -> None:
    def table(ordered: bool) -> pa.Table:
        indices = pa.array([0, 1, None], pa.int8())
        return pa.table({"d": pa.DictionaryArray.from_arrays(indices, pa.array(["z", "a"]), ordered=ordered)})

    ds = lance.write_dataset(table(True), path)
    ds = lance.write_dataset(table(True), path, mode="append")
    ds = lance.write_dataset(table(False), path, mode="append")
    assert ds.schema == table(False).schema
    assert ds.to_table()["d"].to_pylist() == ["z", "a", None] * 3
    assert peer("lance.dataset(p).to_table()['d'].to_pylist()", p=path) == ["z", "a", None] * 3


def test_files_whose_dictionaries_do_not_fit_together_are_read_batch_by_batch(path: str, peer: Peer) -> None:
    def table(letter: str) -> pa.Table:
        items = pa.array([f"{letter}{n}" for n in range(100)])
        return pa.table({"d": pa.DictionaryArray.from_arrays(pa.array(range(100), pa.int8()), items)})

    lance.write_dataset(table("a"), path)
    ds = lance.write_dataset(table("b"), path, mode="append")
    right = table("a")["d"].to_pylist() + table("b")["d"].to_pylist()
    assert ds.to_table()["d"].to_pylist() == right
    assert peer("lance.dataset(p).to_table()['d'].to_pylist()", p=path) == right
    assert ds.take([1, 150])["d"].to_pylist() == ["a1", "b50"]
    with pytest.raises(BatchTooLarge, match=r"'d'.*int8"):
        ds.scanner(order_by=["d"]).to_table()
    with pytest.raises(BatchTooLarge, match=r"'d'.*int8"):
        ds.take([150, 1])


@pytest.mark.parametrize("place", ["top", "struct", "list"])
def test_names_with_a_nul_character_are_refused(place: str, path: str) -> None:
    kind = pa.int32()
    if place != "top":
        kind = pa.struct([("a\0b", kind)])
    if place == "list":
        kind = pa.list_(kind)
    name = "a\0b" if place == "top" else "c"
    with pytest.raises(InvalidInput, match="NUL"):
        lance.write_dataset(pa.schema([(name, kind)]).empty_table(), path)
    assert not Path(path).exists()
