"""Writing data files: how data is cut into files, fitted to the table, refused, and cleaned up after a
failure.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from peer import Peer
from tiltyard.errors import InvalidInput, SchemaMismatch, UnsupportedFeature
from tiltyard.lance.fragment import FragmentMetadata, write_fragments
from tiltyard.lance.progress import FragmentWriteProgress


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t.lance")


def table(rows: int) -> pa.Table:
    return pa.table({"id": pa.array(range(rows), pa.int64())})


def data_files(path: str) -> list[str]:
    return sorted(each.name for each in Path(path, "data").glob("*"))


def test_files_end_at_the_row_limit_whatever_the_batches_are(path: str) -> None:
    batches = [table(100).slice(i, n) for i, n in ((0, 3), (3, 30), (33, 1), (34, 66))]
    ds = lance.write_dataset(pa.concat_tables(batches), path, max_rows_per_file=25)
    assert [each.physical_rows for each in ds.get_fragments()] == [25, 25, 25, 25]
    assert ds.to_table()["id"].to_pylist() == list(range(100))


def test_files_end_near_the_byte_limit(path: str) -> None:
    wide = pa.table({"s": [str(i) * 200 for i in range(1000)]})
    ds = lance.write_dataset(
        wide.to_batches(max_chunksize=100), path, wide.schema, max_bytes_per_file=100_000
    )
    assert len(ds.get_fragments()) > 2
    assert ds.to_table().equals(wide)


@pytest.mark.parametrize("name", ["max_rows_per_file", "max_bytes_per_file"])
def test_bounds_must_be_positive(name: str, path: str) -> None:
    with pytest.raises(InvalidInput, match=name):
        lance.write_dataset(table(1), path, **{name: 0})
    assert not Path(path, "_versions").exists()


def test_no_rows_make_no_file_and_still_a_version(path: str) -> None:
    ds = lance.write_dataset(table(0), path)
    assert (ds.version, ds.count_rows(), ds.get_fragments()) == (1, 0, [])
    ds = lance.write_dataset(table(0), path, mode="append")
    assert (ds.version, ds.schema) == (2, table(0).schema)


def test_progress_is_told_about_every_file(path: str) -> None:
    told: list[tuple[str, int | None]] = []

    class Listener(FragmentWriteProgress):
        def begin(self, fragment: FragmentMetadata, **kwargs: object) -> None:
            told.append(("begin", fragment.physical_rows))

        def complete(self, fragment: FragmentMetadata, **kwargs: object) -> None:
            told.append(("complete", fragment.physical_rows))

    lance.write_dataset(table(10), path, max_rows_per_file=4, progress=Listener())
    assert told == [("begin", None), ("complete", 4)] * 2 + [("begin", None), ("complete", 2)]
    counted: list[int] = []
    lance.write_dataset(table(10), path, mode="overwrite", max_rows_per_file=4, progress=counted.append)
    assert counted == [4, 8, 10]


def test_an_append_is_fitted_by_name_and_widened_where_that_is_safe(path: str, peer: Peer) -> None:
    first = pa.table({"id": pa.array([1], pa.int64()), "x": pa.array([1.5]), "s": ["a"]})
    lance.write_dataset(first, path)
    ds = lance.write_dataset(pa.table({"s": ["b"], "id": pa.array([2], pa.int16())}), path, mode="append")
    expected = [{"id": 1, "x": 1.5, "s": "a"}, {"id": 2, "x": None, "s": "b"}]
    assert ds.to_table().to_pylist() == expected
    assert peer("lance.dataset(p).to_table().to_pylist()", p=path) == expected


def test_an_append_that_does_not_fit_leaves_everything_as_it_was(path: str) -> None:
    ds = lance.write_dataset(table(3), path)
    before = data_files(path)
    for wrong in (pa.table({"id": ["x"]}), pa.table({"id": [1], "q": [1]}), pa.table({"id": [1.5]})):
        with pytest.raises(SchemaMismatch, match=r"table +\| data"):
            lance.write_dataset(wrong, path, mode="append")
    assert data_files(path) == before
    assert ds.latest_version == 1


def test_a_stream_that_fails_midway_leaves_no_file(path: str) -> None:
    lance.write_dataset(table(3), path)
    before = data_files(path)

    def broken() -> object:
        yield table(50).to_batches()[0]
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="source broke"):
        lance.write_dataset(broken(), path, table(0).schema, mode="append", max_rows_per_file=10)
    assert data_files(path) == before
    assert lance.dataset(path).version == 1


def test_nulls_in_a_column_that_may_not_be_null_are_refused(path: str) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    bad = pa.table([pa.array([1, None], pa.int64())], schema=schema)
    with pytest.raises(InvalidInput, match="'id'"):
        lance.write_dataset(bad, path)
    assert not Path(path, "_versions").exists()
    lance.write_dataset(pa.table([pa.array([1], pa.int64())], schema=schema), path)
    with pytest.raises(InvalidInput, match="'id'"):
        lance.write_dataset(pa.table({"id": pa.array([None], pa.int64())}), path, mode="append")


def test_a_map_goes_into_files_of_2_2_and_into_no_others(path: str, peer: Peer) -> None:
    """Case E15."""
    maps = pa.table({"m": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64()))})
    ds = lance.write_dataset(maps, path)
    assert ds.to_table().equals(maps)
    assert peer("lance.dataset(p).to_table().equals(t)", p=path, t=maps)
    with pytest.raises(UnsupportedFeature, match=r"'m'.*2\.2"):
        lance.write_dataset(maps, path, mode="append", data_storage_version="2.1")
    with pytest.raises(UnsupportedFeature, match=r"2\.2"):
        lance.write_dataset(maps, path + "x", data_storage_version="2.1")
    lance.write_dataset(table(1), path + "y", data_storage_version="2.1")
    with pytest.raises(SchemaMismatch):
        lance.write_dataset(maps, path + "y", mode="append")


def test_an_append_writes_the_tables_version_unless_told_otherwise(path: str, peer: Peer) -> None:
    ds = lance.write_dataset(table(2), path, data_storage_version="2.1")
    assert ds.data_storage_version == "2.1"
    ds = lance.write_dataset(table(2), path, mode="append")
    ds = lance.write_dataset(table(2), path, mode="append", data_storage_version="2.2")
    assert [f.data_files()[0].file_minor_version for f in ds.get_fragments()] == [1, 1, 2]
    assert ds.data_storage_version == "2.1"
    assert peer("lance.dataset(p).count_rows()", p=path) == 6
    ds = lance.write_dataset(table(2), path, mode="overwrite")
    assert ds.data_storage_version == "2.2"
    for version in ("2.3", "next", "legacy", "0.1", "9.9"):
        with pytest.raises(UnsupportedFeature, match=r"2\.2"):
            lance.write_dataset(table(1), path, mode="append", data_storage_version=version)


def test_fragments_are_written_now_and_committed_later(path: str, peer: Peer) -> None:
    lance.write_dataset(table(2), path)
    fragments = write_fragments(table(3), path, max_rows_per_file=2)
    assert [each.physical_rows for each in fragments] == [2, 1]
    assert lance.dataset(path).version == 1
    ds = lance.LanceDataset.commit(path, lance.LanceOperation.Append(fragments), read_version=1)
    assert ds.to_table()["id"].to_pylist() == [0, 1, 0, 1, 2]
    transaction = write_fragments(table(1), ds, return_transaction=True)
    assert transaction.read_version == 2
    assert lance.LanceDataset.commit(ds, transaction).count_rows() == 6
    assert peer("lance.dataset(p).count_rows()", p=path) == 6


def test_fragments_travel_between_both_implementations_as_json(path: str, peer: Peer) -> None:
    lance.write_dataset(table(2), path)
    theirs = peer(
        "[__import__('json').dumps(f.to_json()) for f in lance.fragment.write_fragments(t, p)]",
        t=table(3),
        p=path,
    )
    fragments = [FragmentMetadata.from_json(each) for each in theirs]
    ds = lance.LanceDataset.commit(path, lance.LanceOperation.Append(fragments), read_version=1)
    assert ds.count_rows() == 5
    import json

    ours = [json.dumps(each.to_json()) for each in write_fragments(table(4), path)]
    peer(
        """
fragments = [lance.FragmentMetadata.from_json(each) for each in ours]
lance.LanceDataset.commit(p, lance.LanceOperation.Append(fragments), read_version=2)
""",
        ours=ours,
        p=path,
    )
    assert lance.dataset(path).count_rows() == 9


def test_a_table_can_be_made_by_committing_fragments(path: str, peer: Peer) -> None:
    fragments = write_fragments(table(3), path, mode="overwrite")
    made = lance.LanceDataset.commit(path, lance.LanceOperation.Overwrite(table(0).schema, fragments))
    assert (made.version, made.count_rows()) == (1, 3)
    assert peer("lance.dataset(p).to_table()['id'].to_pylist()", p=path) == [0, 1, 2]
