"""Files of version 2.0 as the official implementation writes them, and as older writers did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import reading
from fastlanes import pack
from old_file import (
    READ,
    Page,
    all_null,
    binary,
    blocks,
    dictionary,
    equal_lengths,
    flat,
    lists,
    old_file,
    some_null,
    stream,
    there,
    vectors,
    write_old,
)
from peer import Peer
from reading import read, reader_of
from tables_alike import difference
from tiltyard.errors import BatchTooLarge, CorruptFile, TiltyardError, UnsupportedFeature
from tiltyard.file.v20.reader import FileReader20
from tiltyard.format.protos import encodings20_pb2 as pb
from tiltyard.format.schema import Schema
from tiltyard.session import Limits, Session
from typematrix import Entry, entries

#: Entries of the matrix in which a struct is null: 2.0 has no place for that.
NULL_STRUCTS = {"sliced_list_struct", "sliced_struct_list_struct_struct", "all_null_struct"}


def has_place(entry: Entry) -> bool:
    """Whether version 2.0 can hold it: no maps, no fixed-size lists of structs, no struct that is null."""
    kind = str(entry.field.type)
    if "map<" in kind or "fixed_size_list<item: struct" in kind or entry.name in NULL_STRUCTS:
        return False
    return "struct<" not in kind or not (entry.name.endswith(("?", "_struct")) and _has_nulls(entry))


def _has_nulls(entry: Entry) -> bool:
    return entry.name.endswith("?") or entry.name.startswith("rows_")


MATRIX = [
    pytest.param(entry, marks=[] if entry.sampled else [pytest.mark.wide], id=entry.name)
    for entry in entries()
    if has_place(entry)
]


def agrees(path: Path, table: pa.Table) -> None:
    """Whole, in ranges, and in takes of any order with duplicates."""
    reader = reader_of(path)
    assert isinstance(reader, FileReader20)
    reading.agrees(reader, table)


# -- what the official writer makes ---------------------------------------------------------------


@pytest.mark.parametrize("entry", MATRIX)
def test_every_type_reads_as_it_was_written(entry: Entry, peer: Peer, tmp_path: Path) -> None:
    table = entry.table
    agrees(write_old(peer, tmp_path / "one.lance", table), table)
    # A small cache makes a page of every batch, and lists whose items lie in pages of their own. The official
    # writer fails on slices of structs right inside structs.
    rows = 2000 if entry.name.startswith("struct_struct") else 137
    agrees(write_old(peer, tmp_path / "many.lance", table, rows=rows, data_cache_bytes=1), table)


@pytest.mark.parametrize("scheme", ["zstd", "lz4", "fsst"])
def test_compressed_strings(scheme: str, kernel_form: str, peer: Peer, tmp_path: Path) -> None:
    n = 3000 if kernel_form == "compiled" else 300
    words = [None if i % 9 == 0 else f"https://example.org/page/{i}/{i % 7}" * (i % 3) for i in range(n)]
    hints = {"lance-encoding:compression": scheme}
    columns = {
        "s": pa.array(words),
        "b": pa.array(words).cast(pa.binary()),
        "few": pa.array([f"w{i % 3}" for i in range(n)]),
        "i": pa.array(range(n), pa.int16()),
        "l": pa.array([[w, w] for w in words]),
    }
    if scheme != "fsst":  # the official writer fails on it
        columns["large"] = pa.array(words, pa.large_string())
    fields = [pa.field(name, array.type, metadata=hints) for name, array in columns.items()]
    table = pa.table(list(columns.values()), schema=pa.schema(fields))
    agrees(write_old(peer, tmp_path / "f.lance", table, rows=n // 2, data_cache_bytes=1), table)


def test_packed_structs(peer: Peer, tmp_path: Path) -> None:
    n = 500
    rng = np.random.default_rng(0)
    children = {
        "i": pa.array(range(n), pa.int32()),
        "t": pa.array(range(n), pa.timestamp("us", "UTC")),
        "d": pa.array(range(n), pa.decimal128(7, 2)),
        "f": pa.array([rng.bytes(3) for _ in range(n)], pa.binary(3)),
        "v": pa.FixedSizeListArray.from_arrays(pa.array(rng.random(n * 6).astype(np.float32)), 6),
        "vv": pa.FixedSizeListArray.from_arrays(
            pa.FixedSizeListArray.from_arrays(pa.array(rng.random(n * 6)), 2), 3
        ),
    }
    rows = pa.StructArray.from_arrays(list(children.values()), names=list(children))
    hints = {"lance-encoding:packed": "true"}
    item = pa.field("item", rows.type, metadata=hints)
    ends = pa.array(np.arange(0, n + 1, 2, dtype=np.int32))
    schema = pa.schema([pa.field("p", rows.type, metadata=hints), pa.field("l", pa.list_(item))])
    listed = pa.ListArray.from_arrays(ends, rows, type=schema.field("l").type)
    table = pa.table([rows.slice(0, n // 2), listed], schema=schema)
    agrees(write_old(peer, tmp_path / "f.lance", table, rows=100), table)


def test_pages_are_split_apart_from_rows(kernel_form: str, peer: Peer, tmp_path: Path) -> None:
    """Columns of one table, and lists and their items, have pages of different lengths."""
    n = 30_000 if kernel_form == "compiled" else 3_000
    values = [None if i % 11 == 0 else i for i in range(n)]
    words = [f"{i}" * (i % 20) for i in range(n)]
    nested = [None if i % 13 == 0 else [[f"{i}"] * (i % 3), None, []][: i % 4] for i in range(n)]
    table = pa.table(
        {
            "i": pa.array(values),
            "b": pa.array([i % 3 == 0 for i in range(n)]),
            "s": words,
            "l": pa.array(nested, pa.list_(pa.list_(pa.string()))),
            "p": pa.array([{"a": [{"x": i}] * (i % 3)} for i in range(n)]),
        }
    )
    path = write_old(peer, tmp_path / "f.lance", table, max_page_bytes=4096)
    pages = {len(each) for each in reader_of(path)._tail.columns}
    assert len(pages) > 3, pages  # the point of the test
    agrees(path, table)
    together = reader_of(path, Session(Limits(parallel_bytes=1)))  # a thread for each column
    assert not difference(read(together), table)


def test_projections_below_structs_and_lists(peer: Peer, tmp_path: Path) -> None:
    rows = [{"a": i, "b": {"c": f"{i}", "d": [{"x": i, "y": i * 2}] * (i % 3)}} for i in range(200)]
    table = pa.table({"before": range(200), "s": pa.array(rows), "after": range(200)})
    reader = reader_of(write_old(peer, tmp_path / "f.lance", table))
    for path, expected in (
        ("s.a", [{"a": row["a"]} for row in rows]),
        ("s.b.c", [{"b": {"c": row["b"]["c"]}} for row in rows]),
        ("s.b.d.y", [{"b": {"d": [{"y": each["y"]} for each in row["b"]["d"]]}} for row in rows]),
        ("after", list(range(200))),
    ):
        (found,) = reader.read(reader.schema.project([path]).fields, None, slice(None))
        assert found.to_pylist() == expected


def test_a_file_without_rows(peer: Peer, tmp_path: Path) -> None:
    kinds = [pa.int64(), pa.string(), pa.list_(pa.int8()), pa.struct([("a", pa.list_(pa.string()))])]
    table = pa.schema([pa.field(f"c{i}", kind) for i, kind in enumerate(kinds)]).empty_table()
    agrees(write_old(peer, tmp_path / "f.lance", table), table)


def test_a_batch_beyond_32_bit_offsets_is_refused(peer: Peer, tmp_path: Path) -> None:
    # case E12 with a limit that a test can afford
    columns = {
        "s": pa.array(["abc" * 4] * 120 + [f"{i}" for i in range(180)]),
        "few": pa.array([f"word {i % 5}" for i in range(300)]),
        "l": pa.array([[1, 2]] * 300),
    }
    path = write_old(peer, tmp_path / "f.lance", pa.table(columns))
    reader = reader_of(path, Session(Limits(offset_limit=200)))
    for name in columns:
        (field,) = reader.schema.project([name]).fields
        for rows in (slice(None), np.arange(300)):
            with pytest.raises(BatchTooLarge, match=f"'{name}'.*fewer rows"):
                reader.read((field,), None, rows)
        assert reader.read((field,), None, slice(5, 9))[0].to_pylist() == columns[name].to_pylist()[5:9]


# -- what other writers made ----------------------------------------------------------------------


def words_of(values: list[int], width: int) -> bytes:
    """Values of `width` bits, one behind the other, least bit first."""
    whole = sum((value & ((1 << width) - 1)) << (i * width) for i, value in enumerate(values))
    return whole.to_bytes(-(-len(values) * width // 8), "little")


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("share", [0.1, 0.4, 0.9, 1.0])
def test_streams_of_bits(bits: int, share: float, peer: Peer, tmp_path: Path) -> None:
    width = max(1, int(bits * share))
    rng = np.random.default_rng(width)
    plain = (
        [int(x) for x in rng.integers(0, 2**width, 200, dtype=np.uint64, endpoint=False)]
        if width < 64
        else [int(x) for x in rng.integers(0, 2**63, 200)]
    )
    half = 1 << (width - 1)
    signed = [x % (2 * half) - half for x in plain]
    columns = {
        "u": (pa.array(plain, getattr(pa, f"uint{bits}")()), stream(width, bits)),
        "i": (pa.array(signed, getattr(pa, f"int{bits}")()), there(stream(width, bits, signed=True))),
    }
    table = pa.table({name: array for name, (array, _) in columns.items()})
    pages = [
        [Page(200, encoding, [words_of(array.to_pylist(), width)])] for array, encoding in columns.values()
    ]
    path = old_file(tmp_path / "f.lance", table.schema, 200, pages)
    agrees(path, table)
    assert not difference(peer(READ, path=str(path)), table)


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_packed_blocks(bits: int, kernel_form: str, peer: Peer, tmp_path: Path) -> None:
    n, kind = 1500, np.dtype(f"<u{bits // 8}")
    width = 5
    values = np.zeros(2048, kind)
    values[:n] = np.random.default_rng(bits).integers(0, 1 << width, n)
    data = pack(values[:1024], width).tobytes() + pack(values[1024:], width).tobytes()
    table = pa.table({"c": pa.array(values[:n])})
    path = old_file(tmp_path / "f.lance", table.schema, n, [[Page(n, there(blocks(width, bits)), [data])]])
    agrees(path, table)
    assert not difference(peer(READ, path=str(path)), table)


def test_values_of_no_bits_are_zeros(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array([0] * 50, pa.int32()), "b": pa.array([0] * 50, pa.uint8())})
    pages = [[Page(50, there(blocks(0, 32)), [b""])], [Page(50, stream(0, 8), [b""])]]
    agrees(old_file(tmp_path / "f.lance", table.schema, 50, pages), table)
    many = old_file(tmp_path / "g.lance", table.schema, 1 << 40, [[Page(1 << 40, *page)] for page in (
        (there(blocks(0, 32)), [b""]), (stream(0, 8), [b""]))])  # fmt: skip
    with pytest.raises(BatchTooLarge):
        read(reader_of(many))


def test_strings_of_one_length(peer: Peer, tmp_path: Path) -> None:
    table = pa.table({"s": ["abc", "def", "ghi"], "e": ["", "", ""]})
    pages = [
        [Page(3, equal_lengths(flat(8), 3), [b"abcdefghi"])],
        [Page(3, equal_lengths(flat(8), 0), [b""])],
    ]
    agrees(old_file(tmp_path / "f.lance", table.schema, 3, pages), table)
    path = old_file(tmp_path / "g.lance", table.schema.remove(1), 3, pages[:1])
    assert not difference(peer(READ, path=str(path)), table.select(["s"]))


def test_ends_may_be_packed(peer: Peer, tmp_path: Path) -> None:
    values = np.zeros(1024, np.uint64)
    values[:4] = [2, 2, 5, 11]  # of "ab", "", "cde", and null: 5, and 6 more
    ends = there(blocks(4, 64))
    pages = [[Page(4, binary(ends, flat(8, 1), 6), [pack(values, 4).tobytes(), b"abcde"])]]
    table = pa.table({"s": ["ab", "", "cde", None]})
    path = old_file(tmp_path / "f.lance", table.schema, 4, pages)
    agrees(path, table)
    assert not difference(peer(READ, path=str(path)), table)


@pytest.mark.parametrize("alignment", [1, 3, 8])
def test_buffers_that_are_not_aligned(alignment: int, tmp_path: Path) -> None:
    """As the first writers of version 2.0 left them."""
    table = pa.table(
        {
            "pad": pa.array([1, 2, 3], pa.int8()),
            "i": pa.array([1, None, 3], pa.int64()),
            "s": ["ab", None, "c"],
            "v": pa.array([[1.0, 2.0]] * 3, pa.list_(pa.float32(), 2)),
            "l": pa.array([[1, 2], None, []], pa.list_(pa.int32())),
        }
    )
    raw = np.array([1, 0, 3]).tobytes()
    pages = [
        [Page(3, there(flat(8)), [b"\1\2\3"])],
        [Page(3, some_null(flat(1), flat(64, 1)), [b"\5", raw])],
        [Page(3, binary(there(flat(64)), flat(8, 1), 4), [np.array([2, 6, 3]).tobytes(), b"abc"])],
        [Page(3, there(vectors(2, there(flat(32)))), [np.array([1, 2] * 3, np.float32).tobytes()])],
        [Page(3, lists(there(flat(64)), 2), [np.array([2, 5, 2]).tobytes()])],
        [Page(2, there(flat(32)), [np.array([1, 2], np.int32).tobytes()])],
    ]
    agrees(old_file(tmp_path / "f.lance", table.schema, 3, pages, alignment), table)


@pytest.mark.parametrize("scheme", ["zstd", "lz4"])
def test_any_buffer_may_be_compressed(scheme: str, tmp_path: Path) -> None:
    raw = np.arange(4000, dtype=np.int32).tobytes()
    size = len(raw).to_bytes(8 if scheme == "zstd" else 4, "little")
    codec = pa.Codec("lz4_raw" if scheme == "lz4" else scheme)
    data = size + codec.compress(raw, asbytes=True)
    table = pa.table({"i": pa.array(np.arange(4000, dtype=np.int32))})
    agrees(
        old_file(tmp_path / "f.lance", table.schema, 4000, [[Page(4000, flat(32, 0, scheme), [data])]]), table
    )


def test_nulls_in_dictionaries(peer: Peer, tmp_path: Path) -> None:
    """Null items of a dictionary column become nulls of the array; other columns count items from 1."""
    items = binary(there(flat(64, 1)), flat(8, 2), 4)
    buffers = [np.array([1, 5, 3]).tobytes(), b"abc"]  # "a", null, "bc"
    kind = pa.dictionary(pa.int8(), pa.string())
    schema = pa.schema([pa.field("d", kind), pa.field("s", pa.string())])
    pages = [
        [Page(4, dictionary(there(flat(8)), items, 3), [b"\0\1\2\1", *buffers])],
        [Page(4, dictionary(there(flat(8)), items, 3), [b"\0\1\2\3", *buffers])],
    ]
    path = old_file(tmp_path / "f.lance", schema, 4, pages)
    found = read(reader_of(path))
    assert found["d"].to_pylist() == ["a", None, "bc", None]
    assert found["d"].null_count == 2
    assert found["s"].to_pylist() == [None, "a", None, "bc"]
    assert peer(READ, path=str(path)).to_pylist() == found.to_pylist()


def test_dictionaries_of_pages_become_one(peer: Peer, tmp_path: Path) -> None:
    parts = [pa.array([f"{i} {k % 90}" for k in range(100)]).dictionary_encode() for i in range(2)]
    index = pa.dictionary(pa.int8(), pa.string())
    table = pa.table({"d": pa.chunked_array([part.cast(index) for part in parts])})
    reader = reader_of(write_old(peer, tmp_path / "f.lance", table, rows=100, data_cache_bytes=1))
    assert len(reader._tail.columns[0]) == 2
    assert read(reader, slice(0, 100))["d"].to_pylist() == table["d"].to_pylist()[:100]
    with pytest.raises(BatchTooLarge, match=r"int8 can number.*fewer rows"):  # scans go on in halves
        read(reader)


def test_the_columns_of_a_wide_file_are_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each column is checked against the file's own schema; its columns must not be listed for each anew."""
    schema = pa.schema([(f"c{i}", pa.int32()) for i in range(50)])
    path = old_file(tmp_path / "f.lance", schema, 1, [[Page(1, flat(32), [bytes(4)])]] * 50)
    reader = reader_of(path)
    listed = []
    whole = Schema.columns
    monkeypatch.setattr(Schema, "columns", lambda *given: listed.append(1) or whole(*given))
    assert read(reader).num_columns == 50
    assert len(listed) <= 2


# -- refusals --------------------------------------------------------------------------------------


def test_blobs_are_refused_by_name(peer: Peer, tmp_path: Path) -> None:
    field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    table = pa.table(
        [pa.array([b"abc", None], pa.large_binary()), [1, 2]], schema=pa.schema([field, ("i", pa.int64())])
    )
    reader = reader_of(write_old(peer, tmp_path / "f.lance", table))
    with pytest.raises(UnsupportedFeature, match="'b' holds blobs"):
        read(reader)
    (array,) = reader.read(reader.schema.project(["i"]).fields, None, slice(None))
    assert array.to_pylist() == [1, 2]


@pytest.mark.parametrize(
    ("encoding", "message"),
    [
        (b"\x6a\x00", "array encoding 'constant'"),
        (b"\xaa\x01\x00", "array encoding 'byte_stream_split'"),
        (b"\xb2\x01\x00", "array encoding number 22"),
        (flat(32, 0, "snappy"), "'snappy'"),
        (pb.ArrayEncoding(flat=pb.Flat(bits_per_value=32, buffer=pb.Buffer(buffer_type=2))), "type 2"),
    ],
)
def test_what_is_not_known_is_refused_by_name(encoding: Any, message: str, tmp_path: Path) -> None:
    table = pa.table({"c": pa.array([1], pa.int32())})
    path = old_file(tmp_path / "f.lance", table.schema, 1, [[Page(1, encoding, [bytes(4)])]])
    with pytest.raises(UnsupportedFeature, match=message):
        read(reader_of(path))


I32, STRING, NUMBERED = pa.int32(), pa.string(), pa.dictionary(pa.int8(), pa.string())
ONE = np.array([1]).tobytes()


@pytest.mark.parametrize(
    ("kind", "page", "message"),
    [
        (I32, Page(2, flat(32), [bytes(7)]), "7 bytes for 2 values of 4"),
        (I32, Page(2, flat(64), [bytes(16)]), "64 bits where the schema says 32"),
        (I32, Page(2, flat(32, 3), [bytes(8)]), "buffer 3 of a page that has 1"),
        (I32, Page(2, b"", []), "is missing where one is required"),
        (I32, Page(2, some_null(flat(1), flat(32, 1)), [b"", bytes(8)]), "bitmap of 0 bytes for 2"),
        (I32, Page(2, flat(32, 0, "zstd"), [(1 << 40).to_bytes(8, "little") + b"x"]), "claims to hold"),
        (I32, Page(2, stream(33, 32), [bytes(16)]), "packed to 33"),
        (I32, Page(2, stream(31, 32), [bytes(7)]), "2 values of 31 bits in 7 bytes"),
        (I32, Page(2, blocks(3, 32), [bytes(383)]), "in 383 bytes"),
        (I32, Page(2, binary(flat(64), flat(8, 1), 9), [bytes(16), b""]), "BinaryArray"),
        (I32, Page(2, lists(flat(64), 0), [bytes(16)]), "ListOffsets"),
        (STRING, Page(1, flat(32), [bytes(4)]), "FlatArray"),
        (STRING, Page(1, binary(flat(32), flat(8, 1), 9), [bytes(8), b""]), "32 bits"),
        (STRING, Page(1, binary(all_null(), flat(8, 1), 9), [bytes(8), b""]), "nulls among the ends"),
        (STRING, Page(1, binary(flat(64), flat(8, 1), 9), [ONE, b""]), "beyond 0"),
        (STRING, Page(2, binary(flat(64), flat(8, 1), 9), [ONE + bytes(8), b"abc"]), "decrease"),
        (STRING, Page(1, equal_lengths(flat(8), 5), [b"abc"]), "5 bytes in 3"),
        (STRING, Page(1, dictionary(flat(8), equal_lengths(flat(8, 1), 1), 1), [b"\2", b"a"]), "item 2"),
        (
            NUMBERED,
            Page(1, dictionary(flat(8), equal_lengths(flat(8, 1), 1), 1), [b"\xff", b"a"]),
            "a negative",
        ),
        (NUMBERED, Page(1, dictionary(flat(8), equal_lengths(flat(8, 1), 1), 1), [b"\1", b"a"]), "from 0"),
        (pa.list_(I32, 2), Page(1, vectors(3, flat(32)), [bytes(12)]), "vectors of 3 values"),
        (pa.list_(I32, 2), Page(1, flat(64), [bytes(8)]), "FlatArray"),
        (pa.list_(pa.bool_(), 1 << 30), Page(9, vectors(1 << 30, flat(1)), [bytes(8)]), "fewer bits"),
        (pa.null(), Page(1, flat(8), [b"a"]), "FlatArray"),
    ],
)
def test_pages_that_contradict_themselves(kind: Any, page: Page, message: str, tmp_path: Path) -> None:
    schema = pa.schema([pa.field("c", kind)])
    path = old_file(tmp_path / "f.lance", schema, page.rows, [[page]])
    for rows in (slice(None), np.zeros(1, np.int64) + page.rows - 1):
        with pytest.raises(TiltyardError, match=message) as caught:
            read(reader_of(path), rows)
        assert isinstance(caught.value, CorruptFile | UnsupportedFeature)
        assert "f.lance" in str(caught.value)


def test_values_that_share_bytes_are_damage(tmp_path: Path) -> None:
    """Of ends that go back and forth a take could be given the same bytes for each of its rows."""
    schema = pa.schema([pa.field("c", STRING), pa.field("l", pa.list_(pa.int8()))])
    ends = np.array([3, 0, 3]).tobytes()
    pages = [
        [Page(3, binary(flat(64), flat(8, 1), 9), [ends, b"abc"])],
        [Page(3, lists(flat(64), 3), [ends])],
        [Page(3, flat(8), [b"abc"])],
    ]
    reader = reader_of(old_file(tmp_path / "f.lance", schema, 3, pages))
    for name in schema.names:
        fields = reader.schema.project([name]).fields
        assert len(reader.read(fields, None, np.array([2, 2]))[0]) == 2  # one row as often as asked for
        with pytest.raises(CorruptFile, match=f"'{name}'.*decrease"):
            reader.read(fields, None, np.array([0, 2]))


def test_rows_that_no_buffer_bounds_are_bounded(tmp_path: Path) -> None:
    many = 1 << 50
    schema = pa.schema([pa.field("c", pa.int64()), pa.field("l", pa.list_(pa.null()))])
    ends = np.array([many]).tobytes()
    pages = [[Page(many, all_null())], [Page(many, all_null())], []]
    reader = reader_of(old_file(tmp_path / "f.lance", schema.remove(1), many, pages[:1]))
    with pytest.raises(BatchTooLarge, match="fewer rows"):
        read(reader)
    assert read(reader, slice(5, 7))["c"].to_pylist() == [None, None]
    pages = [[Page(1, lists(there(flat(64)), many), [ends])], [Page(many, all_null())]]
    path = old_file(tmp_path / "g.lance", schema.remove(0), 1, pages)
    with pytest.raises(BatchTooLarge, match="fewer rows"):
        read(reader_of(path))


def test_columns_of_other_lengths_are_damage(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("l", pa.list_(pa.int8()))])
    ends = Page(1, lists(there(flat(64)), 2), [np.array([2]).tobytes()])
    for rows, pages in (
        (1, [[ends], [Page(3, flat(8), [b"abc"])]]),
        (2, [[ends], [Page(2, flat(8), [b"ab"])]]),
    ):
        with pytest.raises(CorruptFile, match="rows where"):
            read(reader_of(old_file(tmp_path / f"{rows}.lance", schema, rows, pages)))


def test_columns_of_other_types_than_the_table_says_are_damage(tmp_path: Path) -> None:
    """Of lists, whose columns hold ends alone, as of values."""
    ends = Page(1, lists(there(flat(64)), 2), [np.array([2]).tobytes()])
    schema = pa.schema([pa.field("l", pa.list_(pa.int8()))])
    reader = reader_of(old_file(tmp_path / "f.lance", schema, 1, [[ends], [Page(2, flat(8), [b"ab"])]]))
    for kind, message in ((pa.large_list(pa.int8()), "'l' is list in"), (pa.list_(pa.uint8()), "is int8 in")):
        table = Schema.from_arrow(pa.schema([pa.field("l", kind)]))
        with pytest.raises(CorruptFile, match=message):
            reader.read(table.fields, None, slice(None))
