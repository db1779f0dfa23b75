"""Data files on their own: rows, tails, global buffers and sessions, against pylance in both directions."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from peer import Peer
from tiltyard import lance as tl
from tiltyard.errors import (
    CorruptFile,
    FieldNotFound,
    InvalidInput,
    InvalidUri,
    NothingToWrite,
    ObjectExists,
    ObjectNotFound,
    RowOutOfRange,
    UnsupportedName,
)
from tiltyard.lance.file import LanceFileReader, LanceFileSession, LanceFileWriter
from tiltyard.table import blob_scan

WRITE = """
from lance.file import LanceFileWriter
with LanceFileWriter(p, table.schema, version=version) as writer:
    writer.write_batch(table)
    writer.add_global_buffer(b"of theirs")
    writer.add_schema_metadata("more", "said")
result = writer.size_bytes
"""

TELL = """
from lance.file import LanceFileReader
reader = LanceFileReader(p)
m = reader.metadata()
pages = [[[(b.position, b.size) for b in page.buffers] for page in c.pages] for c in m.columns]
result = {
    "schema": m.schema,
    "numbers": (m.num_rows, m.num_data_bytes, m.num_column_metadata_bytes, m.num_global_buffer_bytes),
    "version": (m.major_version, m.minor_version),
    "globals": [(b.position, b.size) for b in m.global_buffers],
    "pages": pages,
    "statistics": [(c.num_pages, c.size_bytes) for c in reader.file_statistics().columns],
    "buffers": [bytes(reader.read_global_buffer(i)) for i in range(len(m.global_buffers))],
    "rows": reader.read_all(batch_size=100).to_table(),
}
"""


def _table(rows: int = 3000) -> pa.Table:
    return pa.table(
        {
            "a": pa.array(range(rows), pa.int64()),
            "s": pa.array([None if i % 7 == 0 else f"text {i}" for i in range(rows)]),
            "l": pa.array([None if i % 5 == 0 else list(range(i % 4)) for i in range(rows)]),
            "t": pa.array([{"x": i, "y": str(i)} for i in range(rows)]),
            "v": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(rows * 4, dtype=np.float32)), 4),
        }
    ).replace_schema_metadata({"kept": "yes"})


def _told(path: str) -> dict[str, Any]:
    """What our reader tells of a file, in the form of `TELL`."""
    reader = LanceFileReader(path)
    m = reader.metadata()
    return {
        "schema": m.schema,
        "numbers": (m.num_rows, m.num_data_bytes, m.num_column_metadata_bytes, m.num_global_buffer_bytes),
        "version": (m.major_version, m.minor_version),
        "globals": [(b.position, b.size) for b in m.global_buffers],
        "pages": [[[(b.position, b.size) for b in page.buffers] for page in c.pages] for c in m.columns],
        "statistics": [(c.num_pages, c.size_bytes) for c in reader.file_statistics().columns],
        "buffers": [reader.read_global_buffer(i) for i in range(len(m.global_buffers))],
        "rows": reader.read_all(batch_size=100).to_table(),
    }


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_a_file_of_pylance_tells_the_same(peer: Peer, tmp_path: Path, version: str) -> None:
    path = str(tmp_path / "f.lance")
    size = peer(WRITE, p=path, table=_table(), version=version)
    assert os.path.getsize(path) == size
    told, expected = _told(path), peer(TELL, p=path)
    assert told.pop("schema").equals(expected.pop("schema"), check_metadata=True)
    assert told.pop("rows").equals(expected.pop("rows"))
    assert told == expected
    column = LanceFileReader(path).metadata().columns[0]
    assert column.column_buffers == []
    assert column.pages[0].encoding


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_pylance_reads_a_file_of_ours(peer: Peer, tmp_path: Path, version: str) -> None:
    path, table = str(tmp_path / "f.lance"), _table()
    with LanceFileWriter(path, version=version) as writer:
        writer.write_batch(table.slice(0, 1000))
        assert writer.add_global_buffer(b"first") == 1
        writer.add_schema_metadata("more", "said")
        writer.write_batch(table.slice(1000))
        assert writer.add_global_buffer(b"") == 2
        assert writer.size_bytes is None
    assert writer.closed
    assert writer.size_bytes == os.path.getsize(path)
    told, expected = _told(path), peer(TELL, p=path)
    assert told["buffers"][1:3] == [b"first", b""]
    assert told["schema"].metadata == {b"kept": b"yes", b"more": b"said"}
    assert expected["rows"].equals(table)
    for what in ("numbers", "version", "globals", "pages", "statistics", "buffers"):
        assert told[what] == expected[what], what


def test_ranges_takes_and_columns(tmp_path: Path) -> None:
    path, table = tmp_path / "f.lance", _table()
    with LanceFileWriter(path) as writer:
        writer.write_batch(table)
    reader = LanceFileReader(path)
    assert reader.num_rows() == 3000
    results = reader.read_range(10, 25, batch_size=10)
    assert results.to_table().equals(table.slice(10, 25))
    assert [batch.num_rows for batch in reader.read_range(10, 25, batch_size=10).to_batches()] == [10, 10, 5]
    assert reader.read_range(3000, 0).to_table().num_rows == 0
    for rows in ([0, 5, 5, 2999], [], np.array([7, 8]), pa.array([1, 100])):
        taken = reader.take_rows(rows, batch_size=2).to_table()
        assert taken.to_pylist() == table.take(pa.array(rows, pa.int64())).to_pylist()
    some = LanceFileReader(str(path), columns=["v", "t.y", "a"])
    assert some.metadata().schema.names == table.schema.names  # that of the file
    found = some.read_all().to_table()
    assert found.column_names == ["v", "t", "a"]
    assert found["t"].to_pylist()[7] == {"y": "7"}
    for range_ in ((2999, 2), (3001, 0), (1 << 40, 1)):
        with pytest.raises(RowOutOfRange, match="of a file of 3000 rows"):
            reader.read_range(*range_)
    for row in (3001, 1 << 63):
        with pytest.raises(RowOutOfRange, match="of a file of 3000 rows"):
            reader.take_rows([row])
    with pytest.raises(RowOutOfRange):
        reader.take_rows([0, 3000])
    with pytest.raises(InvalidInput, match="sorted in ascending order"):
        reader.take_rows([2, 1])
    for wrong in (
        lambda: reader.read_all(batch_size=0),
        lambda: reader.take_rows([-1]),
        lambda: reader.take_rows("1"),
    ):
        with pytest.raises(InvalidInput):
            wrong()
    with pytest.raises(InvalidInput, match="global buffers 0 to 1"):
        reader.read_global_buffer(2)


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFound, match=r"nope\.lance"):
        LanceFileReader(tmp_path / "nope.lance")
    with pytest.raises(InvalidUri):
        LanceFileReader(f"{tmp_path}/")
    (tmp_path / "text.lance").write_bytes(b"text" * 100)
    with pytest.raises(CorruptFile, match=r"text\.lance"):
        LanceFileReader(tmp_path / "text.lance")
    with LanceFileWriter(tmp_path / "f.lance") as writer:
        writer.write_batch(pa.table({"a": [1]}))
    with pytest.raises(FieldNotFound, match="'b'"):
        LanceFileReader(tmp_path / "f.lance", columns=["b"])
    with pytest.raises(InvalidInput, match="names no column"):
        LanceFileReader(tmp_path / "f.lance", columns=[])


def test_a_file_made_anew_at_a_path_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "f.lance"
    for value in (1, 2):
        with LanceFileWriter(path) as writer:
            writer.write_batch(pa.table({"a": [value]}))
        assert LanceFileReader(path).read_all().to_table()["a"].to_pylist() == [value]
        with pytest.raises(ObjectExists), LanceFileWriter(path) as writer:
            writer.write_batch(pa.table({"a": [9]}))
        path.unlink()


def test_a_writer_without_columns_and_a_closed_one(tmp_path: Path) -> None:
    with pytest.raises(NothingToWrite, match="Schema is unknown and file cannot be created"):
        LanceFileWriter(tmp_path / "a.lance").close()
    with LanceFileWriter(tmp_path / "b.lance", pa.schema([("a", pa.int8())])) as writer:
        pass
    assert LanceFileReader(tmp_path / "b.lance").read_all().to_table().num_rows == 0
    assert writer.close() is None
    for late in (
        lambda: writer.write_batch(pa.table({"a": [1]})),
        lambda: writer.add_schema_metadata("a", "b"),
        lambda: writer.add_global_buffer(b""),
    ):
        with pytest.raises(InvalidInput, match="is closed"):
            late()
    early = LanceFileWriter(tmp_path / "c.lance")
    with pytest.raises(InvalidInput, match="after the first batch"):
        early.add_global_buffer(b"x")


def test_a_batch_stays_one_page_and_small_ones_gather(tmp_path: Path) -> None:
    whole = pa.table({"a": np.arange(2_000_000)})  # 16 MB
    with LanceFileWriter(tmp_path / "a.lance") as writer:
        writer.write_batch(whole)
    assert LanceFileReader(tmp_path / "a.lance").file_statistics().columns[0].num_pages == 1
    with LanceFileWriter(tmp_path / "b.lance", data_cache_bytes=80_000) as writer:
        for start in range(0, 100_000, 1000):
            writer.write_batch(whole.slice(start, 1000))
    assert LanceFileReader(tmp_path / "b.lance").file_statistics().columns[0].num_pages == 10
    assert LanceFileReader(tmp_path / "b.lance").read_all().to_table().equals(whole.slice(0, 100_000))


def test_threads_share_a_writer(tmp_path: Path) -> None:
    with LanceFileWriter(tmp_path / "f.lance") as writer:
        threads = [
            threading.Thread(
                target=lambda k=k: [writer.write_batch(pa.table({"k": [k] * 10})) for _ in range(20)]
            )
            for k in range(5)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    rows = LanceFileReader(tmp_path / "f.lance").read_all().to_table()["k"].to_pylist()
    assert sorted(rows) == sorted([k for k in range(5) for _ in range(200)])


@pytest.mark.parametrize("version", ["2.0", "2.1"])
def test_blobs_in_a_file_give_their_bytes(
    peer: Peer, tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked = {"lance-encoding:blob": "true"}
    values = [b"x" * 5000, None, b"", b"tail"]
    inner = pa.struct([pa.field("b", pa.large_binary(), metadata=marked), pa.field("i", pa.int64())])
    schema = pa.schema([pa.field("b", pa.large_binary(), metadata=marked), pa.field("s", inner)])
    rows = [{"b": each, "i": i} for i, each in enumerate(values)]
    table = pa.table([pa.array(values, pa.large_binary()), pa.array(rows, inner)], schema=schema)
    path = str(tmp_path / "f.lance")
    peer(WRITE, p=path, table=table, version=version)
    reader = LanceFileReader(path)
    assert reader.read_all(batch_size=3).to_table().equals(peer(TELL, p=path)["rows"])
    assert reader.take_rows([1, 3]).to_table().to_pylist() == table.take([1, 3]).to_pylist()
    monkeypatch.setattr(blob_scan, "READ_BYTES", 6)  # both columns count: "tail" goes past it alone
    batches = list(reader.read_all().to_batches())
    assert [batch.num_rows for batch in batches] == [3, 1]
    assert pa.Table.from_batches(batches).to_pylist() == table.to_pylist()


def test_session(tmp_path: Path) -> None:
    session = LanceFileSession(tmp_path / "place")
    with session.open_writer("deep/er/x.lance", schema=pa.schema([("a", pa.int64())])) as writer:
        writer.write_batch(pa.table({"a": [1, 2]}))
    with session.open_writer("y.lance") as writer:
        writer.write_batch(pa.table({"a": [3], "b": [4]}))
    assert session.open_reader("deep/er/x.lance").read_all().to_table()["a"].to_pylist() == [1, 2]
    assert session.open_reader("y.lance", columns=["b"]).read_all().to_table().to_pydict() == {"b": [4]}
    assert session.list() == ["deep/er/x.lance", "y.lance"]
    assert session.list("deep") == ["deep/er/x.lance"]
    assert session.list("none") == []
    found = session.list_with_delimiter()
    assert (found.common_prefixes, found.objects) == (["deep"], ["y.lance"])
    found = session.list_with_delimiter("deep/er/")
    assert (found.common_prefixes, found.objects) == ([], ["deep/er/x.lance"])
    assert [session.contains(each) for each in ("y.lance", "deep", "z")] == [True, False, False]
    size = (tmp_path / "place" / "y.lance").stat().st_size
    assert session.read_range("y.lance", size - 4, 4) == b"LANC"
    with pytest.raises(CorruptFile):
        session.read_range("y.lance", 0, size + 1)
    (tmp_path / "local").write_bytes(b"some bytes")
    session.upload_file(tmp_path / "local", "up/loaded")
    session.download_file("up/loaded", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == b"some bytes"
    session.delete_file("up/loaded")
    for missing in (
        lambda: session.delete_file("up/loaded"),
        lambda: session.download_file("up/loaded", tmp_path / "nothing"),
        lambda: session.read_range("up/loaded", 0, 1),
    ):
        with pytest.raises(ObjectNotFound, match="up/loaded"):
            missing()
    with pytest.raises(InvalidInput):
        session.read_range("../local", 0, 1)
    with pytest.raises(UnsupportedName, match="the writing of blobs"):
        _ = session.open_packed_blob_writer


def test_session_of_a_dataset(tmp_path: Path) -> None:
    ds = tl.write_dataset(pa.table({"a": [1, 2]}), tmp_path / "t")
    session = ds.new_file_session()
    file = ds.get_fragments()[0].data_files()[0].path
    assert session.open_reader(f"data/{file}").read_all().to_table()["a"].to_pylist() == [1, 2]
