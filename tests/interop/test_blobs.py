"""Blob columns that pylance writes, read here: descriptors, bytes, files; damage; what is refused."""

from __future__ import annotations

import io
import struct
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard
from peer import Peer
from tiltyard import lance as tl
from tiltyard.errors import CorruptFile, FieldNotFound, InvalidInput, RowOutOfRange, UnsupportedFeature

BLOB = {"lance-encoding:blob": "true"}

VALUES: list[bytes | None] = [b"p0", None, b"", b"three", b"f" * 300, None, b"s" * 5000, b"", b"e" * 90_000]
"""Case D07: payloads after null and empty ones; with the thresholds below at every kind of place."""

MAKE = """
import pyarrow as pa
from lance.blob import blob_array, blob_field
if version == "2.2":
    field = blob_field("b", inline_size_threshold=100, dedicated_size_threshold=10_000)
    blobs, inner = blob_array(values), blob_array(values[::-1])
    parts = [pa.field("bb", inner.type), pa.field("x", pa.int64())]
    nested = pa.StructArray.from_arrays([inner, pa.array(range(n))], fields=parts)
else:
    marked = {"lance-encoding:blob": "true"}
    field = pa.field("b", pa.large_binary(), metadata=marked)
    blobs = pa.array(values, pa.large_binary())
    kind = pa.struct([pa.field("bb", pa.large_binary(), metadata=marked), pa.field("x", pa.int64())])
    rows = [{"bb": each, "x": i} for i, each in enumerate(values[::-1])]
    if version == "2.1" and n > 4:
        rows[4] = None
    nested = pa.array(rows, kind)
schema = pa.schema([pa.field("id", pa.int64()), field, pa.field("s", nested.type)])
table = pa.table([pa.array(range(n)), blobs, nested], schema=schema)
rows = 4 if n < 100 else n
ds = lance.write_dataset(
    table, p, data_storage_version=version, max_rows_per_file=rows, enable_stable_row_ids=stable
)
result = None
"""

ASK = """
ds = lance.dataset(p)
scan = ds.to_table()
whole = ds.to_table(blob_handling="all_binary")
n = ds.count_rows()
rows = list(range(n))[::-1] + [0]
ids = ds.to_table(columns=[], with_row_id=True)["_rowid"].to_pylist()
read = {c: ds.read_blobs(c, indices=rows) for c in ("b", "s.bb")}
files = {c: [f and (f.size(), f.read()) for f in ds.take_blobs(c, ids=ids)] for c in ("b", "s.bb")}
there = ds.to_table(filter="b IS NOT NULL AND id > 1", columns=["id", "b"])
result = (scan, whole, rows, read, ids, files, there)
"""


def _made(peer: Peer, path: Path, version: str, *, stable: bool = False, values: Any = VALUES) -> str:
    peer(MAKE, p=str(path), version=version, stable=stable, values=values, n=len(values))
    return str(path)


def _alike(peer: Peer, path: str) -> None:
    """Everything that pylance reads of the blobs of a table is read here, too."""
    scan, whole, rows, read, ids, files, there = peer(ASK, p=path)
    ds = tl.dataset(path)
    assert ds.to_table().schema.equals(scan.schema, check_metadata=True)
    assert ds.to_table().to_pylist() == scan.to_pylist()
    found = ds.to_table(blob_handling="all_binary")
    assert found.schema.equals(whole.schema, check_metadata=True)
    assert found.to_pylist() == whole.to_pylist()
    assert ds.take(rows).to_pylist() == [scan.to_pylist()[row] for row in rows]
    for column in ("b", "s.bb"):
        assert ds.read_blobs(column, indices=rows) == read[column]
        taken = [file and (file.size(), file.read()) for file in ds.take_blobs(column, ids=ids)]
        assert taken == files[column]
    assert ds.to_table(["id", "b"], "b IS NOT NULL AND id > 1").to_pylist() == there.to_pylist()


@pytest.mark.parametrize(
    ("version", "stable"), [("2.0", False), ("2.1", False), ("2.1", True), ("2.2", False), ("2.2", True)]
)
def test_blobs_are_read_as_pylance_reads_them(peer: Peer, tmp_path: Path, version: str, stable: bool) -> None:
    path = _made(peer, tmp_path / "t", version, stable=stable)
    _alike(peer, path)
    assert tl.dataset(path).delete("id = 3")["num_deleted_rows"] == 1
    _alike(peer, path)
    peer("ds = lance.dataset(p); ds.optimize.compact_files(); ds.delete('id = 4'); result = 0", p=path)
    _alike(peer, path)
    assert [value for _, value in tl.dataset(path).read_blobs("b", indices=range(7))] == [
        value for i, value in enumerate(VALUES) if i not in (3, 4)
    ]


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("values", [[None] * 3, [b""] * 3, [b"x"], [None, b""] * 1500])
def test_columns_of_nulls_or_empty_blobs(
    peer: Peer, tmp_path: Path, version: str, values: list[bytes | None]
) -> None:
    path = _made(peer, tmp_path / "t", version, values=values)
    scan, whole = peer(
        "ds = lance.dataset(p); result = (ds.to_table(), ds.to_table(blob_handling='all_binary'))", p=path
    )
    ds = tl.dataset(path)
    assert ds.to_table().to_pylist() == scan.to_pylist()
    assert ds.to_table(blob_handling="all_binary").to_pylist() == whole.to_pylist()
    assert [value for _, value in ds.read_blobs("b", indices=range(len(values)))] == values


def test_a_fragment_without_the_column_gives_nulls(peer: Peer, tmp_path: Path) -> None:
    path = _made(peer, tmp_path / "t", "2.2")
    ds = tl.dataset(path)
    ds.insert(pa.table({"id": [100, 101]}))
    assert ds.read_blobs("b", indices=[len(VALUES), 0])[0][1] is None
    assert ds.take_blobs("s.bb", indices=[len(VALUES)]) == [None]
    assert ds.to_table(blob_handling="all_binary")["b"].to_pylist() == [*VALUES, None, None]
    assert peer("lance.dataset(p).to_table()", p=path).to_pylist() == ds.to_table().to_pylist()


def test_a_blob_is_a_file(peer: Peer, tmp_path: Path) -> None:
    text = b"".join(b"line %d\n" % i for i in range(3000))
    ds = tl.dataset(_made(peer, tmp_path / "t", "2.2", values=[b"ab", text]))
    (light,) = ds.take_blobs("b", indices=[0])
    assert sys.getsizeof(light) < 2000  # no buffer of the default size for a few bytes
    small, file = ds.take_blobs("b", indices=[0, 1], buffer_size=1000)
    assert file is not None
    assert isinstance(file, io.BufferedIOBase)
    assert (file.size(), file.tell(), file.readable(), file.seekable()) == (len(text), 0, True, True)
    assert not file.writable()
    assert list(file) == text.splitlines(keepends=True)
    assert file.read() == b""
    assert file.seek(-6, io.SEEK_END) == len(text) - 6
    assert file.readall() == text[-6:]
    assert file.seek(7) == 7
    assert file.seek(2, io.SEEK_CUR) == 9
    assert file.read(5) == text[9:14]
    assert (file.read_range(100, 50), file.tell()) == (text[100:150], 14)
    assert file.read_ranges([(0, 4), (len(text), 0), (20_000, 9)]) == [text[:4], b"", text[20_000:20_009]]
    into = bytearray(1500)
    file.seek(10)
    assert (file.readinto(into), bytes(into)) == (1500, text[10:1510])
    file.seek(len(text) + 5)
    assert file.read() == b""
    for range_ in ((0, len(text) + 1), (len(text) + 1, 0)):
        with pytest.raises(InvalidInput, match="past the end of a blob of"):
            file.read_range(*range_)
    with pytest.raises(InvalidInput, match="lies before it"):
        file.seek(-1)
    with file:
        pass
    assert file.closed
    with pytest.raises(ValueError, match="closed"):
        file.read()
    with pytest.raises(ValueError, match="closed"):
        file.read_range(0, 1)
    assert small is not None
    assert io.TextIOWrapper(small).read() == "ab"


def test_ranges_of_many_blobs(peer: Peer, tmp_path: Path) -> None:
    path = _made(peer, tmp_path / "t", "2.2")
    requests = [(8, 10, 100), (0, 0, 1), (1, 7, 7), (4, 299, 1), (4, 0, 2), (2, 0, 0)]
    expected = peer("lance.dataset(p).read_blob_ranges('b', r, selector='indices')", p=path, r=requests)
    ds = tl.dataset(path)
    assert ds.read_blob_ranges("b", requests, selector="indices") == expected
    address = (1 << 32) + 2
    assert ds.read_blob_ranges("b", [(address, 1, 3)], selector="addresses") == [(0, address, b"sss")]
    assert ds.read_blob_ranges("b", [], selector="ids") == []
    with pytest.raises(InvalidInput, match=r"requests\[1\]: byte 3 lies past the end of a blob of 2 bytes"):
        ds.read_blob_ranges("b", [(0, 0, 1), (0, 2, 1)], selector="indices")


def test_wrong_arguments_are_refused(peer: Peer, tmp_path: Path) -> None:
    ds = tl.dataset(_made(peer, tmp_path / "t", "2.2"))
    with pytest.raises(InvalidInput, match="the column 'id' is not a blob column"):
        ds.take_blobs("id", indices=[0])
    with pytest.raises(FieldNotFound, match="nope"):
        ds.take_blobs("nope", indices=[0])
    for given in ({}, {"ids": [0], "indices": [0]}):
        with pytest.raises(InvalidInput, match="Exactly one of ids, indices, or addresses"):
            ds.read_blobs("b", **given)
    for given in ({"indices": [len(VALUES)]}, {"addresses": [9 << 32]}, {"ids": [77]}):
        with pytest.raises(RowOutOfRange):
            ds.take_blobs("b", **given)
    with pytest.raises(InvalidInput, match="selector must be 'ids', 'addresses' or 'indices'"):
        ds.read_blob_ranges("b", [(0, 0, 0)], selector="index")
    with pytest.raises(InvalidInput, match="blob_handling must be"):
        ds.scanner(blob_handling="bytes")
    ds.delete("id = 1")
    for given in ({"ids": [0, 1]}, {"addresses": [1]}):
        with pytest.raises(NotImplementedError, match="must not target deleted rows"):
            ds.take_blobs("b", **given)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_what_would_write_blobs_is_refused_and_changes_nothing(
    peer: Peer, tmp_path: Path, version: str
) -> None:
    path = _made(peer, tmp_path / "t", version)
    ds = tl.dataset(path)
    rows = ds.to_table(blob_handling="all_binary")
    before = sorted(each.name for each in (tmp_path / "t" / "data").iterdir())
    field = ds.schema.field("b")
    one: Any = b"x" if version == "2.1" else {"data": b"x"}
    more = pa.table([[9], pa.array([one], field.type)], schema=pa.schema([ds.schema.field("id"), field]))
    for change in (
        lambda: ds.update({"id": "id + 1"}, "id < 3"),
        lambda: ds.optimize.compact_files(target_rows_per_fragment=1000),
        lambda: ds.insert(more),
        lambda: ds.merge_insert("id").when_matched_update_all().execute(pa.table({"id": [1, 2]})),
        lambda: tl.write_dataset(more, tmp_path / "new"),
    ):
        with pytest.raises(UnsupportedFeature, match=r"column 'b' holds blobs.* not write"):
            change()
    assert sorted(each.name for each in (tmp_path / "t" / "data").iterdir()) == before
    assert ds.version == 1
    assert tl.dataset(path).to_table(blob_handling="all_binary").equals(rows)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_python_values_for_a_blob_column_are_told_that_it_is_one(
    version: str, peer: Peer, tmp_path: Path
) -> None:
    table = tiltyard.open_table(_made(peer, tmp_path / "t", version))
    for data in ({"id": [9], "b": [b"x"]}, [{"id": 9, "b": b"x"}], pa.table({"id": [9], "b": [b"x"]})):
        for change in (table.append, lambda rows: table.upsert(rows, on="id")):
            with pytest.raises(UnsupportedFeature, match=r"column 'b' holds blobs.* not write"):
                change(data)
    with pytest.raises(UnsupportedFeature, match=r"column 's.bb' holds blobs"):
        table.append([{"id": 9, "s": {"bb": b"x"}}])
    assert table.version == 1


def test_plain_face(peer: Peer, tmp_path: Path) -> None:
    table = tiltyard.open_table(_made(peer, tmp_path / "t", "2.2"))
    assert table.read_blobs("b", [3, 1, 2]) == [b"three", None, b""]
    file, none = table.blobs("s.bb", [0, 3])
    assert file is not None
    assert file.read() == VALUES[-1]
    assert none is None
    assert table.scan(["b"], blob_bytes=True).to_arrow()["b"].to_pylist() == VALUES
    assert table.scan(["b"], "id = 0").to_arrow()["b"].to_pylist()[0]["size"] == 2


# -- outside the table ---------------------------------------------------------------------------

EXTERNAL = """
from lance.blob import Blob, blob_array, blob_field
import pyarrow as pa
values = [Blob.from_uri(u), Blob.from_uri(u, *part), b"inside", None]
t = pa.table([blob_array(values)], schema=pa.schema([blob_field("b")]))
bases = None if base is None else [lance.DatasetBasePath(base, name="outside")]
lance.write_dataset(
    t, p, data_storage_version="2.2", initial_bases=bases, allow_external_blob_outside_bases=base is None
)
result = lance.dataset(p).read_blobs("b", indices=range(4))
"""


@pytest.mark.parametrize("registered", [False, True])
def test_blobs_outside_the_table_are_read_where_that_is_allowed(
    peer: Peer, tmp_path: Path, registered: bool
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "some file.bin").write_bytes(bytes(range(200)))
    uri = f"file://{outside}/some file.bin".replace(" ", "%20" if not registered else " ")
    base = f"file://{outside}" if registered else None
    (outside / "some%20file.bin").write_bytes(bytes(range(200)))
    path = str(tmp_path / "t")
    expected = peer(EXTERNAL, p=path, u=uri, base=base, part=(10, 20))
    ds = tl.dataset(path)
    assert ds.read_blobs("b", indices=[2, 3]) == expected[2:]
    if registered:
        assert ds.read_blobs("b", indices=range(4)) == expected
        return
    for read in (
        lambda: ds.take_blobs("b", indices=[0]),
        lambda: ds.read_blobs("b", indices=[1]),
        lambda: ds.to_table(blob_handling="all_binary"),
    ):
        with pytest.raises(UnsupportedFeature, match=r"lies outside the table, at file://.*allow_external"):
            read()
    assert ds.read_blobs("b", indices=range(4), allow_external=True) == expected
    whole = ds.to_table(blob_handling="all_binary", allow_external_blobs=True)
    assert whole["b"].to_pylist() == [value for _, value in expected]
    for each in outside.iterdir():
        each.unlink()
    with pytest.raises(CorruptFile, match="is missing"):
        ds.read_blobs("b", indices=[1], allow_external=True)
    with pytest.raises(CorruptFile, match="is missing"):
        ds.take_blobs("b", indices=[0], allow_external=True)


# -- damage --------------------------------------------------------------------------------------


def _patched(path: Path, old: bytes, new: bytes) -> None:
    """Put other bytes in the place of those that stand in exactly one data file, once."""
    for file in (path / "data").glob("*.lance"):
        data = file.read_bytes()
        if old in data:
            assert data.count(old) == 1
            file.write_bytes(data.replace(old, new))
            return
    raise AssertionError("not found")


@pytest.mark.parametrize(
    ("position", "size"), [(1 << 40, 4321), (1 << 63, 4321), (0, 1 << 62), (70, (1 << 64) - 1)]
)
def test_descriptors_of_version_1_beyond_the_file(
    peer: Peer, tmp_path: Path, position: int, size: int
) -> None:
    path = tmp_path / "t"
    _made(peer, path, "2.1", values=[b"ab", b"x" * 4321])
    ds = tl.dataset(path)
    place = ds.to_table()["b"][1].as_py()
    _patched(path, struct.pack("<QQ", place["position"], 4321), struct.pack("<QQ", position, size))
    ds = tl.dataset(path, session=tl.Session())
    assert ds.to_table(["b"])["b"][1].as_py() == {"position": position, "size": size}
    for read in (
        lambda: ds.take_blobs("b", indices=[1]),
        lambda: ds.read_blobs("b", indices=[0, 1]),
        lambda: ds.to_table(blob_handling="all_binary"),
    ):
        with pytest.raises(CorruptFile, match="column 'b': a blob of"):
            read()
    assert ds.read_blobs("b", indices=[0]) == [(0, b"ab")]


def test_a_null_descriptor_of_no_known_level(peer: Peer, tmp_path: Path) -> None:
    path = tmp_path / "t"
    _made(peer, path, "2.1", values=[b"ab", None])
    data = next((path / "data").glob("*.lance"))
    old, new = struct.pack("<QQ", 1 << 16, 0), struct.pack("<QQ", 99 << 16, 0)
    data.write_bytes(data.read_bytes().replace(old, new))
    with pytest.raises(CorruptFile, match="which is no level of its page"):
        tl.dataset(path).to_table()


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ((1, 250, 300, 1), "outside|past|bytes"),
        ((1, 0, 300, 77), "the file of a blob is missing"),
        ((1, 0, 300, 0), "numbered from 1"),
        ((2, 0, 1 << 40, 1), "ends behind the file"),
        ((0, 1 << 30, 300, 1), "a blob of 300 bytes at byte 1073741824 of a file of"),
        ((9, 0, 300, 1), "unknown kind 9"),
        ((1, 1 << 63, 300, 1), "a blob of 300 bytes at byte"),
    ],
)
def test_descriptors_of_version_2_that_name_no_place(
    peer: Peer, tmp_path: Path, new: tuple[int, ...], message: str
) -> None:
    path = tmp_path / "t"
    _made(peer, path, "2.2", values=[b"ab", b"f" * 300])
    _patched(path, struct.pack("<BQQI", 1, 0, 300, 1), struct.pack("<BQQI", *new))
    ds = tl.dataset(path)
    with pytest.raises(CorruptFile, match=message):
        ds.read_blobs("b", indices=[1])
    with pytest.raises(CorruptFile, match=message):
        ds.to_table(["b"], blob_handling="all_binary")
    assert ds.read_blobs("b", indices=[0]) == [(0, b"ab")]


@pytest.mark.parametrize("new", [b"file://\xff", b"gile:///", b"file///"])
def test_a_damaged_uri_of_a_blob(peer: Peer, tmp_path: Path, new: bytes) -> None:
    (tmp_path / "b.bin").write_bytes(b"x")
    path = tmp_path / "t"
    peer(EXTERNAL, p=str(path), u=f"file://{tmp_path}/b.bin", base=None, part=(0, 1))
    for file in (path / "data").glob("*.lance"):
        file.write_bytes(file.read_bytes().replace(b"file:///"[: len(new)], new))
    with pytest.raises(CorruptFile, match="URI of a blob"):
        tl.dataset(path).take_blobs("b", indices=[0], allow_external=True)


def test_managed_blobs_are_refused_by_name(peer: Peer, tmp_path: Path) -> None:
    path = tmp_path / "t"
    _made(peer, path, "2.2", values=[b"ab", b"f" * 300])
    _patched(path, struct.pack("<BQQI", 1, 0, 300, 1), struct.pack("<BQQI", 4, 0, 300, 1))
    with pytest.raises(UnsupportedFeature, match="managed blobs"):
        tl.dataset(path).take_blobs("b", indices=[1])
