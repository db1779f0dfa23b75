"""Tables whose data files are of version 2.0: read, changed and shared with the official package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tiltyard as ty
import tiltyard.lance as lance
from peer import Peer
from tables_alike import difference
from tiltyard.errors import UnsupportedFeature

ROWS = 3000
WRITE = """
lance.write_dataset(rows, p, data_storage_version="2.0", max_rows_per_file=1100)
lance.dataset(p).create_scalar_index("id", "BTREE")
"""
SCAN = "lance.dataset(p).to_table(**options)"
VERSIONS = """
found = lance.dataset(p)
files = [file for fragment in found.get_fragments() for file in fragment.data_files()]
result = sorted({(file.file_major_version, file.file_minor_version) for file in files})
"""


def rows_of(start: int, count: int) -> pa.Table:
    rng = np.random.default_rng(start)
    ids = range(start, start + count)
    points = [{"x": i, "y": f"{i}", "parts": [{"q": i}] * (i % 3)} for i in ids]
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": [None if i % 7 == 0 else f"name {i}" for i in ids],
            "kind": [f"k{i % 5}" for i in ids],
            "vector": pa.FixedSizeListArray.from_arrays(
                pa.array(rng.random(count * 8).astype(np.float32)), 8
            ),
            "tags": pa.array(
                [None if i % 11 == 0 else [f"t{k}" for k in range(i % 4)] for i in ids], pa.list_(pa.string())
            ),
            "point": pa.array(points),
        }
    )


@pytest.fixture
def path(tmp_path: Path, peer: Peer) -> str:
    where = str(tmp_path / "t")
    peer(WRITE, p=where, rows=rows_of(0, ROWS))
    return where


def alike(path: str, peer: Peer, **options: Any) -> pa.Table:
    """What both readers give."""
    ours = lance.dataset(path).to_table(**options)
    assert not difference(ours, peer(SCAN, p=path, options=options)), options
    return ours


def test_scans_projections_and_filters(path: str, peer: Peer) -> None:
    assert not difference(alike(path, peer), rows_of(0, ROWS))
    options: list[dict[str, Any]] = [
        {"columns": ["point.y", "tags"]},
        {"columns": ["point.parts"], "limit": 20, "offset": 1095},
        {"filter": "id = 2071"},
        {"filter": "id >= 1090 AND id < 1110 AND kind = 'k3'"},
        {"filter": "name IS NULL AND point.x < 50"},
        {"columns": {"twice": "id * 2"}, "filter": "kind IN ('k1', 'k4') AND id % 100 = 1"},
    ]
    assert all(alike(path, peer, **each).num_rows for each in options)
    for given in ("kind = 'k2'", "id = 5 OR name = 'name 8'", None):
        assert lance.dataset(path).count_rows(given) == peer(
            "lance.dataset(p).count_rows(f)", p=path, f=given
        )
    rows, columns = [2999, 0, 1100, 1099, 1100], ["tags", "id", "point"]
    found = lance.dataset(path).take(rows, columns=columns)
    assert not difference(found, peer("lance.dataset(p).take(r, columns=c)", p=path, r=rows, c=columns))
    query = np.full(8, 0.5, np.float32)
    nearest = lance.dataset(path).to_table(nearest={"column": "vector", "q": query, "k": 5}, columns=["id"])
    assert nearest["id"].to_pylist() == alike_nearest(path, peer, query)


def alike_nearest(path: str, peer: Peer, query: Any) -> list[int]:
    source = "lance.dataset(p).to_table(nearest={'column': 'vector', 'q': q, 'k': 5}, columns=['id'])"
    ids: list[int] = peer(source, p=path, q=query)["id"].to_pylist()
    return ids


def test_deletes_need_no_new_version(path: str, peer: Peer) -> None:
    lance.dataset(path).delete("id % 10 = 3")
    peer("lance.dataset(p).delete('id % 10 = 4') and None", p=path)
    assert alike(path, peer).num_rows == ROWS * 8 // 10
    assert lance.dataset(path).to_table(filter="id = 13 OR id = 15")["id"].to_pylist() == [15]
    assert peer(VERSIONS, p=path) == [(2, 0)]
    assert not lance.dataset(path).verify(checksums=True).findings


def test_what_writes_rows_names_the_versions_to_use(path: str, peer: Peer) -> None:
    more = rows_of(ROWS - 10, 20)
    found = lance.dataset(path)

    def upsert() -> Any:
        return found.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()

    for act in (
        lambda: lance.write_dataset(more, path, mode="append"),
        lambda: found.update({"kind": "'z'"}, where="id = 5"),
        lambda: upsert().execute(more),
        lambda: found.optimize.compact_files(),
        lambda: lance.write_dataset(more, path, mode="append", data_storage_version="2.0"),
    ):
        with pytest.raises(UnsupportedFeature, match=r"2\.0 are not written.*2\.2.*2\.1"):
            act()
    assert lance.dataset(path).version == found.version
    assert not difference(alike(path, peer), rows_of(0, ROWS))
    table = ty.open_table(path)  # and what they say is what helps
    with pytest.raises(UnsupportedFeature, match=r"data_storage_version='2.2' of append, upsert"):
        table.upsert(more, on="id")
    table.compact(data_storage_version="2.2")
    assert table.upsert(more, on="id", data_storage_version="2.2") == {"inserted": 10, "updated": 10}


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_files_of_several_versions_in_one_table(path: str, peer: Peer, version: str) -> None:
    more = rows_of(ROWS - 10, 20)
    lance.write_dataset(rows_of(ROWS, 5), path, mode="append", data_storage_version=version)
    found = lance.dataset(path)
    found.update({"kind": "'z'"}, where="id = 5", data_storage_version=version)
    builder = found.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    builder.data_storage_version(version).execute(more)
    expected = {each["id"]: each for each in rows_of(0, ROWS + 10).to_pylist()}
    expected |= {each["id"]: each for each in more.to_pylist()}
    expected[5]["kind"] = "z"
    assert {each["id"]: each for each in alike(path, peer).to_pylist()} == expected
    assert peer(VERSIONS, p=path) == [(2, 0), (2, int(version[-1]))]
    peer("lance.dataset(p).update({'kind': \"'y'\"}, where='id = 6') and None", p=path)
    assert alike(path, peer, filter="id IN (5, 6)").sort_by("id")["kind"].to_pylist() == ["z", "y"]
    found = lance.dataset(path)
    found.optimize.compact_files(data_storage_version=version)
    assert peer(VERSIONS, p=path) == [(2, int(version[-1]))]
    assert alike(path, peer).num_rows == len(expected)
    assert alike(path, peer, filter="id = 2071").num_rows == 1
    assert not lance.dataset(path).verify(checksums=True).findings


def test_the_plain_face_writes_beside_files_of_2_0(path: str, peer: Peer) -> None:
    table = ty.open_table(path)
    with pytest.raises(UnsupportedFeature, match="data_storage_version"):
        table.upsert(rows_of(0, 1), "id")
    table.upsert(rows_of(ROWS - 1, 2), "id", data_storage_version="2.2")
    assert table.update({"kind": "'z'"}, "id = 5", data_storage_version="2.2") == 1
    assert alike(path, peer, filter="kind = 'z'")["id"].to_pylist() == [5]
    assert alike(path, peer).num_rows == ROWS + 1
    table.optimize(data_storage_version="2.2")
    assert peer(VERSIONS, p=path) == [(2, 2)]


def test_indices_of_version_2_0_are_used_and_extended(path: str, peer: Peer) -> None:
    found = lance.dataset(path)
    assert "id_idx" in found.scanner(filter="id = 77").explain_plan()
    lance.write_dataset(rows_of(ROWS, 50), path, mode="append", data_storage_version="2.2")
    found = lance.dataset(path)
    found.optimize.optimize_indices()
    assert alike(path, peer, filter="id = 77 OR id = 3020")["id"].to_pylist() == [77, 3020]
    assert found.stats.index_stats("id_idx")["num_unindexed_rows"] == 0


def test_a_file_of_version_2_0_becomes_a_fragment(path: str, peer: Peer) -> None:
    write = """
import lance.file
with lance.file.LanceFileWriter(p, rows.schema, version="2.0") as writer:
    writer.write_batch(rows)
"""
    more = rows_of(ROWS, 40)
    peer(write, p=f"{path}/data/more.lance", rows=more)
    found = lance.dataset(path)
    fragment = lance.fragment.LanceFragment.create_from_file("more.lance", found, 3)
    lance.LanceDataset.commit(found, lance.LanceOperation.Append([fragment]), read_version=found.version)
    assert not difference(alike(path, peer), pa.concat_tables([rows_of(0, ROWS), more]))
