"""The container of a data file. Bytes called `worked` stand in section 10 of the file format pack."""

from __future__ import annotations

import random
import struct

import pyarrow as pa
import pytest

from tiltyard.errors import CorruptFile, TiltyardError, UnsupportedFeature
from tiltyard.format.container import (
    FileVersion,
    PageEntry,
    build_tail,
    encode_column,
    parse_tail,
    tail_start,
)
from tiltyard.format.layouts import Flat, MiniBlock
from tiltyard.format.schema import Schema

PATH = "data/x.lance"
SCHEMA = Schema.from_arrow(pa.schema([("x", pa.int32())]))


def worked(text: str) -> bytes:
    return bytes.fromhex(text.replace(" ", ""))


COLUMN_HEAD = worked(
    "0a291227 0a250a1f 2f6c616e 63652e65 6e636f64 696e6773 2e436f6c 756d6e45 6e636f64 696e6712 020a00"
)
WORKED_21 = (
    worked("2000")
    + b"H" * 62
    + worked("00000c00 fefefefe 01000000 02000000 03000000 fefefefe")
    + b"H" * 40
    + worked("0a1b0a19 12017820 ffffffff ffffffff ff012a05 696e7433 32300138 011003")
    + COLUMN_HEAD
    + worked("12400a02 00401202 02181803 22341232 0a300a1d 2f6c616e 63652e65 6e636f64 696e6773 32312e50")
    + worked("6167654c 61796f75 74120f0a 0d1a040a 02082032 01013801 4803")
    + worked("9f000000 00000000 6d000000 00000000")
    + worked("80000000 00000000 1f000000 00000000")
    + worked("9f000000 00000000 0c010000 00000000 1c010000 00000000 01000000 01000000 02000100 4c414e43")
)
WORKED_EMPTY_22 = (
    worked("0a1b0a19 12017820 ffffffff ffffffff ff012a05 696e7433 32300138 01")
    + COLUMN_HEAD
    + worked("1d000000 00000000 2b000000 00000000")
    + worked("00000000 00000000 1d000000 00000000")
    + worked("1d000000 00000000 48000000 00000000 58000000 00000000 01000000 01000000 02000200 4c414e43")
)


def a_page(number: int, large: bool = False) -> PageEntry:
    layout = MiniBlock(None, None, Flat(32), None, 0, (1,), 1, 0, 3, large)
    return PageEntry(layout, [128 * number, 128 * number + 64], [2, 24], 3, 3 * number)


def a_file(pages: int = 1, version: FileVersion = FileVersion.V2_2, extra: tuple[bytes, ...] = ()) -> bytes:
    column = encode_column([a_page(i, version is not FileVersion.V2_1) for i in range(pages)])
    data = bytes(128 * pages)
    return data + build_tail(len(data), version, SCHEMA, 3 * pages, [column], extra)


def test_the_tail_of_a_small_file_is_byte_for_byte_the_official_one() -> None:
    tail = build_tail(128, FileVersion.V2_1, SCHEMA, 3, [encode_column([a_page(0)])])
    assert tail == WORKED_21[128:]


def test_a_file_without_rows_is_byte_for_byte_the_official_one() -> None:
    assert build_tail(0, FileVersion.V2_2, SCHEMA, 0, [encode_column([])]) == WORKED_EMPTY_22
    assert parse_tail(WORKED_EMPTY_22, 144, PATH).columns[0].num_rows == 0


def test_a_worked_file_is_parsed() -> None:
    tail = parse_tail(pa.py_buffer(WORKED_21), len(WORKED_21), PATH)
    assert tail.version is FileVersion.V2_1
    assert tail.length == 3
    assert tail.schema.arrow == pa.schema([("x", pa.int32())])
    assert tail.global_buffers == ((128, 31),)
    column = tail.columns[0]
    assert (column.num_rows, len(column)) == (3, 1)
    assert column.buffers(0) == [(0, 2), (64, 24)]
    assert column.layout(0) == a_page(0).layout


def test_the_page_table_of_many_pages_is_columnar_and_shares_layouts() -> None:
    data = a_file(pages=50)
    column = parse_tail(data, len(data), PATH).columns[0]
    assert column.num_rows == 150
    assert column.first_row.tolist() == list(range(0, 150, 3))
    assert column.rows.tolist() == [3] * 50
    assert len(column.layouts) == 1
    assert column.buffers(49) == [(128 * 49, 2), (128 * 49 + 64, 24)]


def test_a_column_is_parsed_once() -> None:
    data = a_file()
    tail = parse_tail(data, len(data), PATH)
    assert tail.columns[0] is tail.columns[0]
    assert tail.columns[-1] is tail.columns[0]


def test_extra_global_buffers_stand_before_the_schema_and_are_aligned() -> None:
    data = a_file(extra=(b"one", b"second"))
    tail = parse_tail(data, len(data), PATH)
    schema, one, second = tail.global_buffers
    assert data[one[0] : sum(one)] == b"one"
    assert data[second[0] : sum(second)] == b"second"
    assert one[0] < second[0] < schema[0] < tail.metadata_span[0]
    assert all(position % 64 == 0 for position, _ in tail.global_buffers)


def test_a_short_read_says_from_where_the_tail_is_needed() -> None:
    data = a_file(pages=30)
    need = tail_start(data, len(data), PATH)
    assert need == parse_tail(data, len(data), PATH).global_buffers[0][0]
    assert tail_start(data[-50:], len(data), PATH) < len(data) - 50
    assert parse_tail(data[need:], len(data), PATH).columns[0].num_rows == 90
    with pytest.raises(CorruptFile, match="metadata starts earlier"):
        parse_tail(data[-100:], len(data), PATH)


def read_all(data: bytes) -> None:
    tail = parse_tail(data, len(data), PATH)
    assert tail.schema.arrow is not None
    list(tail.columns)


def refused(data: bytes, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match) as caught:
        read_all(data)
    assert PATH in str(caught.value)


def with_footer(data: bytes, at: int, form: str, value: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(form, changed, len(data) - 40 + at, value)
    return bytes(changed)


def test_damage_is_named() -> None:
    data = a_file()
    refused(b"", CorruptFile, "has 0 bytes")
    refused(data[:39], CorruptFile, "has 39 bytes")
    refused(data[:-4] + b"PAR1", CorruptFile, "expected b'LANC' .* found b'PAR1'")
    refused(data + b"tail", CorruptFile, "a footer ends 4 bytes earlier")
    refused(with_footer(data, 24, "<I", 0), CorruptFile, "no global buffer")
    refused(with_footer(data, 28, "<I", 2**32 - 1), CorruptFile, "reaches into the footer")
    refused(with_footer(data, 8, "<Q", 2**63), CorruptFile, "reaches into the footer")
    refused(with_footer(data, 0, "<Q", 0), CorruptFile, "must end before the column metadata")


@pytest.mark.parametrize(("major", "minor", "shown"), [(0, 2, "0.2"), (2, 3, "2.3"), (9, 1, "9.1")])
def test_other_versions_are_refused_and_the_supported_ones_named(major: int, minor: int, shown: str) -> None:
    data = bytearray(a_file())
    struct.pack_into("<HH", data, len(data) - 8, major, minor)
    refused(bytes(data), UnsupportedFeature, f"{shown} is not supported: 2.1 and 2.2")


@pytest.mark.parametrize(("major", "minor"), [(0, 3), (2, 0)])
def test_files_of_version_2_0_have_array_encodings_and_may_be_unaligned(major: int, minor: int) -> None:
    layout = a_page(0, True).layout
    data = bytearray(
        bytes(64)
        + build_tail(64, FileVersion.V2_0, SCHEMA, 3, [encode_column([PageEntry(layout, [1], [2], 3)])])
    )
    struct.pack_into("<HH", data, len(data) - 8, major, minor)
    tail = parse_tail(bytes(data), len(data), PATH)
    assert tail.version is FileVersion.V2_0
    with pytest.raises(UnsupportedFeature, match=r"PageLayout.*expected .*ArrayEncoding"):
        list(tail.columns)


def test_unaligned_buffers_are_refused() -> None:
    layout = a_page(0, True).layout
    column = encode_column([PageEntry(layout, [0, 60], [2, 4], 3)])
    refused(
        bytes(64) + build_tail(64, FileVersion.V2_2, SCHEMA, 3, [column]),
        CorruptFile,
        "starts at byte 60, expected a multiple of 64",
    )
    tail = build_tail(0, FileVersion.V2_2, SCHEMA, 0, [encode_column([])], [(8, 3)])
    refused(tail, CorruptFile, "global buffer 1 starts at byte 8")


def test_a_buffer_past_the_end_is_refused_with_its_column() -> None:
    column = encode_column([PageEntry(a_page(0, True).layout, [0, 64], [2, 2**40], 3)])
    data = bytes(128) + build_tail(128, FileVersion.V2_2, SCHEMA, 3, [column])
    refused(data, CorruptFile, "column 0: a page buffer reaches past byte")


def test_random_damage_gives_a_value_or_a_typed_error() -> None:
    dice = random.Random(7)
    data = a_file(pages=3, extra=(b"checks",))
    for _ in range(2000):
        changed = bytearray(data)
        for _ in range(dice.choice((1, 1, 4))):
            changed[dice.randrange(len(data) - 400, len(data))] = dice.choice((0, 255, dice.randrange(256)))
        try:
            read_all(bytes(changed))
        except TiltyardError:
            continue


def test_the_tail_that_pylance_writes_is_parsed(peer, tmp_path) -> None:
    for version in ("2.1", "2.2"):
        file = peer(
            """
import lance.file, os
schema = pa.schema([("a", pa.int64()), ("s", pa.struct([("t", pa.string()), ("l", pa.list_(pa.int8()))]))])
with lance.file.LanceFileWriter(path, schema, version=version) as writer:
    for i in range(3):
        rows = [{"a": j, "s": {"t": str(j), "l": [1, 2]}} for j in range(100)]
        writer.write_batch(pa.RecordBatch.from_pylist(rows, schema))
    writer.add_global_buffer(b"mine")
result = open(path, "rb").read()
""",
            path=str(tmp_path / f"{version}.lance"),
            version=version,
        )
        tail = parse_tail(file, len(file), PATH)
        assert tail.version.value == version
        assert tail.length == 300
        assert [each.name for each in tail.schema.leaves()] == ["a", "t", "item"]
        assert [each.num_rows for each in tail.columns] == [300] * 3
        position, size = tail.global_buffers[1]
        assert file[position : position + size] == b"mine"


def test_pylance_reads_a_file_that_we_finish(peer, tmp_path) -> None:
    path = tmp_path / "x.lance"
    tail = build_tail(128, FileVersion.V2_1, SCHEMA, 3, [encode_column([a_page(0)])], [b"checks"])
    path.write_bytes(WORKED_21[:128] + tail)
    found = peer(
        "import lance.file\nresult = lance.file.LanceFileReader(path).read_all().to_table()", path=str(path)
    )
    assert found.column("x").to_pylist() == [1, 2, 3]
