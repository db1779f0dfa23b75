"""Accessors of datasets, fragments and scanners that the other files do not touch."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from peer import Peer
from tiltyard.errors import InvalidInput, RowOutOfRange, UnsupportedFeature
from tiltyard.lance.dataset import LanceSchema, ScannerBuilder

TABLE = pa.table(
    {"id": pa.array(range(7), pa.int64()), "st": [{"a": i, "b": str(i)} for i in range(7)]}
).replace_schema_metadata({"k": "v"})


@pytest.fixture
def ds(tmp_path: Path) -> lance.LanceDataset:
    ds = lance.write_dataset(TABLE, str(tmp_path / "t.lance"), max_rows_per_file=3)
    ds.delete("id = 1")
    return ds


def test_a_dataset_tells_about_itself_as_the_official_one_does(ds: lance.LanceDataset, peer: Peer) -> None:
    names = (
        "uri",
        "version",
        "schema",
        "schema_metadata",
        "metadata",
        "data_storage_version",
        "max_field_id",
    )
    theirs = peer("[getattr(lance.dataset(p), n) for n in names]", p=ds.uri, names=names)
    assert [getattr(ds, name) for name in names] == theirs
    assert ds.stats.dataset_stats() == peer("dict(lance.dataset(p).stats.dataset_stats())", p=ds.uri)
    assert ds.base_paths() == {}
    assert "t.lance" in repr(ds)
    ds.validate()


def test_heads_and_slices(ds: lance.LanceDataset) -> None:
    assert ds.head(2)["id"].to_pylist() == [0, 2]
    assert ds.head(3, columns=["st.a"]).to_pydict() == {"st.a": [0, 2, 3]}
    assert ds.slice(1, 4)["id"].to_pylist() == [2, 3, 4]
    assert ds.slice(5, 50)["id"].to_pylist() == [6]
    with pytest.raises(InvalidInput):
        ds.slice(4, 1)
    assert ds.to_pandas(columns=["id"], limit=2)["id"].tolist() == [0, 2]


def test_a_fragment_is_a_small_dataset(ds: lance.LanceDataset) -> None:
    first, second, third = ds.get_fragments()
    assert (first.fragment_id, first.physical_rows, first.num_deletions, first.count_rows()) == (0, 3, 1, 2)
    assert first.to_table(columns=["id"], filter="id > 0")["id"].to_pylist() == [2]
    assert first.count_rows("id > 0") == 1
    assert second.head(2)["id"].to_pylist() == [3, 4]
    assert second.take([2, 0], columns=["id"])["id"].to_pylist() == [5, 3]
    assert [batch.num_rows for batch in second.to_batches(batch_size=2)] == [2, 1]
    assert second.to_pandas(columns=["id"])["id"].tolist() == [3, 4, 5]
    assert third.scanner(with_row_id=True, columns=[]).to_table().to_pydict() == {"_rowid": [2 << 32]}
    assert third.schema.equals(TABLE.schema)
    assert third.physical_schema.equals(TABLE.schema)
    with pytest.raises(RowOutOfRange, match="2 rows of fragment 0"):
        first.take([2])
    assert ds.get_fragment(2).fragment_id == 2
    assert ds.get_fragment(9) is None
    with pytest.raises(InvalidInput):
        lance.LanceFragment(ds, 9)


def test_a_fragment_made_alone_has_all_the_rows(ds: lance.LanceDataset) -> None:
    made = lance.LanceFragment.create(ds.uri, TABLE, fragment_id=11)
    assert (made.id, made.physical_rows) == (11, 7)


def test_a_builder_makes_the_scanner_step_by_step(ds: lance.LanceDataset) -> None:
    builder = ScannerBuilder(ds).columns(["id"]).filter("id > 2").limit(2).offset(1).with_row_address(True)
    scanner = builder.batch_size(1).scan_in_order(True).prefilter(True).to_scanner()
    assert scanner.to_table().to_pydict() == {"id": [4, 5], "_rowaddr": [(1 << 32) + 1, (1 << 32) + 2]}
    assert [batch.num_rows for batch in scanner.to_batches()] == [1, 1]
    assert scanner.projected_schema.names == ["id", "_rowaddr"]
    assert scanner.dataset_schema.equals(TABLE.schema)
    assert scanner.count_rows() == 2
    assert scanner.head(1)["id"].to_pylist() == [4]
    assert "id > 2" in scanner.explain_plan(verbose=True)
    assert pa.table(scanner).num_rows == 2


def test_default_scan_options_hold_until_a_scan_says_otherwise(ds: lance.LanceDataset) -> None:
    held = lance.dataset(ds.uri, default_scan_options={"columns": ["id"], "with_row_id": True})
    assert held.to_table().column_names == ["id", "_rowid"]
    assert held.to_table(with_row_id=False).column_names == ["id"]
    with pytest.raises(InvalidInput, match="nonsense"):
        lance.dataset(ds.uri, default_scan_options={"nonsense": 1}).to_table()


@pytest.mark.parametrize("name", ["full_text_query", "index_segments", "row_addr_allowlist"])
def test_searches_are_refused_by_name(name: str, ds: lance.LanceDataset) -> None:
    with pytest.raises(UnsupportedFeature, match=name):
        ds.to_table(**{name: object()})


def test_filters_may_be_arrow_expressions(ds: lance.LanceDataset) -> None:
    import pyarrow.compute as pc

    assert ds.to_table(columns=["id"], filter=pc.field("id") > 3)["id"].to_pylist() == [4, 5, 6]
    assert ds.count_rows(pc.field("id") > 3) == 3


def test_the_schema_with_ids(ds: lance.LanceDataset) -> None:
    import pickle

    schema = ds.lance_schema
    assert [(each.name(), each.id()) for each in schema.fields()] == [("id", 0), ("st", 1)]
    assert [each.id() for each in schema.fields()[1].children()] == [2, 3]
    assert schema.field("st.b").to_arrow() == pa.field("b", pa.string())
    assert schema.field("zz") is None
    assert schema.to_pyarrow().equals(TABLE.schema, check_metadata=True)
    assert LanceSchema.from_pyarrow(TABLE.schema) == schema == pickle.loads(pickle.dumps(schema))


def test_fragment_ids_are_a_set_in_order_as_there(peer: Peer, tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    dataset = lance.write_dataset(pa.table({"n": range(10)}), path, max_rows_per_file=3)
    dataset.delete("n < 3")
    found = dataset.fragment_ids()
    assert list(found) == [1, 2, 3]
    assert repr(found) == peer("repr(lance.dataset(p).fragment_ids())", p=path)
    assert list(found | {0}) == peer("list(lance.dataset(p).fragment_ids() | {0})", p=path)
    assert found - {2} == {1, 3}
    assert len(found) == 3
    assert isinstance(found, lance.bitmap.Bitmap)
    assert list(dataset.checkout_version(1).fragment_ids()) == [0, 1, 2, 3]
