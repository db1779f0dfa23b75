"""The smaller modules of the drop-in face, beside the official package where it has an answer to compare."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import tiltyard.lance as lance
from peer import Peer
from tiltyard.dataset.stats import FieldStatistics
from tiltyard.errors import (
    InvalidInput,
    NothingToWrite,
    ObjectExists,
    RowOutOfRange,
    SchemaMismatch,
    UnsupportedFeature,
)
from tiltyard.lance._dataset.sharded_batch_iterator import ShardedBatchIterator
from tiltyard.lance.debug import format_fragment, format_manifest, format_schema, list_transactions
from tiltyard.lance.file import LanceFileWriter, stable_version
from tiltyard.lance.fragment import FragmentMetadata, LanceFragment
from tiltyard.lance.lance import manifest_needs_migration
from tiltyard.lance.progress import FileSystemFragmentWriteProgress
from tiltyard.lance.vector import vec_to_table

SCHEMA = pa.schema(
    [
        pa.field("v", pa.list_(pa.float32(), 4), False, metadata={"k": "v"}),
        pa.field("s", pa.struct([pa.field("x", pa.int8()), pa.field("t", pa.timestamp("us", "UTC"))])),
        pa.field("l", pa.large_list(pa.decimal128(10, 2))),
        pa.field("d", pa.dictionary(pa.int8(), pa.string())),
        pa.field("b", pa.binary(3)),
        pa.field("time", pa.time64("ns")),
    ],
    metadata={"a": "b"},
)


# -- schemas as JSON ---------------------------------------------------------------------------------


def test_the_json_form_of_a_schema_is_that_of_the_official_package(peer: Peer) -> None:
    ours = lance.schema_to_json(SCHEMA)
    theirs = peer("__import__('json').dumps(lance.schema_to_json(s))", s=SCHEMA)
    assert ours == json.loads(theirs)
    assert lance.json_to_schema(json.loads(json.dumps(ours))) == SCHEMA
    assert lance.json_to_schema(ours).metadata == SCHEMA.metadata


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"fields": [{"name": "x"}]},
        {"fields": [{"name": "x", "type": {"type": "nope"}, "nullable": True}]},
        {"fields": [{"name": "x", "type": {"type": "list", "fields": []}, "nullable": True}]},
        {"fields": [{"name": "x", "type": {"type": "fixed_size_binary"}, "nullable": True}]},
    ],
)
def test_what_is_no_json_form_of_a_schema_is_refused(bad: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        lance.json_to_schema(bad)


def test_maps_have_no_json_form() -> None:
    with pytest.raises(UnsupportedFeature, match="'m'"):
        lance.schema_to_json(pa.schema({"m": pa.map_(pa.string(), pa.int8())}))


# -- vectors -----------------------------------------------------------------------------------------


def test_vectors_become_a_table_of_fixed_size_lists() -> None:
    vector = pa.list_(pa.float32(), 2)
    assert vec_to_table([[1, 2], [3, 4]]).schema == pa.schema({"vector": vector})
    assert vec_to_table(np.zeros((3, 2), np.float16)).schema == pa.schema({"vector": vector})
    found = vec_to_table({"a": [1, 2], "b": [3, 4]}, names=["key", "v"])
    assert found == pa.table({"key": ["a", "b"], "v": pa.array([[1, 2], [3, 4]], vector)})


@pytest.mark.parametrize("bad", [[[1, 2], [3]], [], {}, "abc", np.zeros(3), [["a"]], 5])
def test_what_are_no_vectors_is_refused(bad: object) -> None:
    with pytest.raises(InvalidInput):
        vec_to_table(bad)
    with pytest.raises(InvalidInput, match="2 dimensions, expected 3"):
        vec_to_table([[1, 2]], ndim=3)


# -- shards ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("granularity", ["fragment", "batch"])
def test_every_row_is_in_one_shard(granularity: str, tmp_path: Path) -> None:
    handle = lance.write_dataset(pa.table({"a": range(1000)}), tmp_path, max_rows_per_file=70)
    handle.delete("a % 3 = 0")
    found: list[int] = []
    for rank in range(3):
        shard = ShardedBatchIterator(handle, rank, 3, columns=["a"], batch_size=40, granularity=granularity)
        once = [value for batch in shard for value in batch["a"].to_pylist()]
        assert once == [value for batch in shard for value in batch["a"].to_pylist()]
        found += once
    assert sorted(found) == [value for value in range(1000) if value % 3]


def test_a_shard_stays_at_its_version_and_there_may_be_more_workers_than_fragments(tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"a": range(10)}), tmp_path)
    shards = [ShardedBatchIterator(tmp_path, rank, 2) for rank in range(2)]
    lance.write_dataset(pa.table({"a": range(10)}), tmp_path, mode="append")
    assert [sum(batch.num_rows for batch in shard) for shard in shards] == [10, 0]
    with pytest.raises(InvalidInput, match="rank must be below world_size"):
        ShardedBatchIterator(tmp_path, 2, 2)


# -- progress ----------------------------------------------------------------------------------------


def test_progress_leaves_a_mark_while_a_fragment_is_written_and_its_metadata_after(tmp_path: Path) -> None:
    place = tmp_path / "progress"
    progress = FileSystemFragmentWriteProgress(place, {"job": "7"})
    made = LanceFragment.create(tmp_path / "t", pa.table({"a": [1]}), fragment_id=3, progress=progress)
    assert sorted(each.name for each in place.iterdir()) == ["fragment_3.json"]
    found = FragmentMetadata.from_json((place / "fragment_3.json").read_text())
    assert (found.id, found.files[0].path) == (3, made.files[0].path)

    def broken() -> object:
        yield pa.record_batch({"a": [1]})
        raise RuntimeError("power")

    reader = pa.RecordBatchReader.from_batches(pa.schema({"a": pa.int64()}), broken())
    with pytest.raises(RuntimeError):
        LanceFragment.create(tmp_path / "t", reader, fragment_id=4, progress=progress)
    mark = json.loads((place / "fragment_4.in_progress").read_text())
    assert mark == {"fragment_id": 4, "metadata": {"job": "7"}}


def test_a_fragment_of_nothing_is_refused_as_an_os_error_too(tmp_path: Path) -> None:
    with pytest.raises(NothingToWrite) as caught:
        LanceFragment.create(tmp_path, pa.table({"a": pa.array([], pa.int8())}))
    assert isinstance(caught.value, OSError)


# -- data files --------------------------------------------------------------------------------------


def test_a_data_file_written_alone_becomes_a_fragment(tmp_path: Path, peer: Peer) -> None:
    place = str(tmp_path / "t.lance")
    data = pa.table({"a": range(10), "s": [{"x": i, "y": str(i)} for i in range(10)]})
    handle = lance.write_dataset([], place, schema=data.schema)
    with LanceFileWriter(f"{place}/data/one.lance") as writer:
        writer.write_batch(data.slice(0, 4))
        for batch in data.slice(4).to_batches():
            writer.write_batch(batch)
    made = LanceFragment.create_from_file("one.lance", handle, 0)
    assert made.physical_rows == 10
    handle = lance.LanceDataset.commit(
        place, lance.LanceOperation.Append([made]), read_version=handle.version
    )
    handle.validate(checksums=True)
    assert handle.to_table() == data
    assert peer("lance.dataset(p).to_table()", p=place) == data


def test_a_writer_of_data_files_refuses_what_does_not_fit_and_leaves_nothing(tmp_path: Path) -> None:
    place = tmp_path / "data"
    with pytest.raises(SchemaMismatch), LanceFileWriter(place / "a.lance", pa.schema({"a": pa.int8()})) as w:
        w.write_batch(pa.table({"b": [1]}))
    with pytest.raises(NothingToWrite):
        LanceFileWriter(place / "b.lance").close()
    assert not place.exists() or not list(place.iterdir())
    with LanceFileWriter(place / "c.lance", pa.schema({"a": pa.int8()})) as writer:
        writer.add_schema_metadata("k", "v")
        assert writer.close() == 0
        assert writer.close() is None
        with pytest.raises(InvalidInput, match="closed"):
            writer.write_batch(pa.table({"a": [1]}))
    with pytest.raises(ObjectExists), LanceFileWriter(place / "c.lance") as writer:
        writer.write_batch(pa.table({"a": [1]}))
    assert stable_version() == "2.2"


def test_a_file_whose_columns_are_of_other_types_is_no_fragment(tmp_path: Path) -> None:
    handle = lance.write_dataset(pa.table({"a": [1]}), tmp_path)
    with LanceFileWriter(tmp_path / "data" / "x.lance") as writer:
        writer.write_batch(pa.table({"a": ["text"]}))
    with pytest.raises(SchemaMismatch, match="column 'a'"):
        LanceFragment.create_from_file("x.lance", handle, 0)


# -- fragments, statistics and text --------------------------------------------------------------------


def test_a_fragment_session_takes_live_rows_by_number(tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"a": range(20), "b": range(20)}), tmp_path, max_rows_per_file=10)
    handle = lance.dataset(tmp_path)
    handle.delete("a = 11")
    session = handle.get_fragments()[1].open_session(["b"], with_row_address=True)
    found = session.take([0, 1, 8, 1])
    assert found.schema.names == ["b", "_rowaddr"]
    assert found["b"].to_pylist() == [10, 12, 19, 12]
    assert found["_rowaddr"].to_pylist() == [(1 << 32) + at for at in (0, 2, 9, 2)]
    with pytest.raises(RowOutOfRange, match="9 rows of fragment 1"):
        session.take([9])


def test_bytes_on_disk_are_those_that_the_official_package_counts(tmp_path: Path, peer: Peer) -> None:
    place = str(tmp_path / "t.lance")
    table = pa.table({"a": range(1000), "s": [{"x": 1, "y": "abc"}] * 1000, "l": [[1, 2]] * 1000})
    peer("result = lance.write_dataset(t, p) and None", t=table, p=place)
    source = "[(f.id, f.bytes_on_disk) for f in lance.dataset(p).stats.data_stats().fields]"
    theirs = [FieldStatistics(*pair) for pair in peer(source, p=place)]
    assert lance.dataset(place).stats.data_stats().fields == theirs


def test_facts_are_told_as_text(tmp_path: Path) -> None:
    handle = lance.write_dataset(pa.table({"a": [1], "s": [{"x": 1}]}), tmp_path, commit_message="first")
    text = format_fragment(handle.get_fragments()[0].metadata, handle)
    for part in ("major_version: 2", "minor_version: 2", "'s.x'", "physical_rows: 1"):
        assert part in text
    assert "2 x: int64" in format_schema(handle)
    assert "version: 1" in format_manifest(handle)
    (told,) = list_transactions(handle)
    assert told is not None
    assert "Overwrite" in told
    assert "first" in told
    assert not manifest_needs_migration(handle)


def test_the_path_of_a_data_file_can_be_called_with_a_warning(tmp_path: Path) -> None:
    made = LanceFragment.create(tmp_path, pa.table({"a": [1]}))
    with pytest.warns(DeprecationWarning, match="leave the parentheses out"):
        called = made.files[0].path()
    again = pickle.loads(pickle.dumps(made))
    assert called == made.files[0].path == again.files[0].path
    assert repr(made.files[0]).startswith(f"DataFile(path='{called}'")


def test_default_scan_options_show_in_the_schema(tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"a": [1], "b": [2]}), tmp_path)
    handle = lance.dataset(tmp_path, default_scan_options={"with_row_id": True})
    assert handle.schema == handle.to_table().schema
    assert handle.schema.names == ["a", "b", "_rowid"]


# -- sessions ----------------------------------------------------------------------------------------


def test_a_session_tells_its_size_and_takes_cache_sizes(tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"a": [1]}), tmp_path)
    session = lance.Session(metadata_cache_size_bytes=1 << 20, index_cache_size_bytes=1 << 20)
    handle = lance.dataset(tmp_path, session=session)
    handle.to_table()
    assert 0 < session.size_bytes() <= 2 << 20
    assert handle.session().is_same_as(session)
    without = lance.dataset(tmp_path, metadata_cache_size_bytes=0)
    without.to_table()
    assert without.session().size_bytes() < session.size_bytes()
    assert not without.session().is_same_as(session)


# -- the name `lance` --------------------------------------------------------------------------------

SCRIPT = """
import lance
import lance.file, lance.vector, lance.debug, lance.dataset
from lance.schema import LanceSchema
from lance._dataset.sharded_batch_iterator import ShardedBatchIterator
import tiltyard.lance
assert callable(lance.dataset) and lance is tiltyard.lance
assert lance.file is tiltyard.lance.file and lance.file.LanceFileWriter
try:
    import lance.nothing
except ModuleNotFoundError:
    print("fine")
"""


def test_modules_below_the_bound_name_are_ours_and_hide_no_function(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "tiltyard.lance", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "fine\n", done.stderr
