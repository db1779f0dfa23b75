"""What a data file can hold but no reader would give back: refused, or written in a way that they do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from one_file import check, with_metadata, write
from peer import Peer
from tiltyard.errors import InvalidInput, UnsupportedFeature
from tiltyard.file import open_file
from tiltyard.session import Session
from tiltyard.store import open_store


def numbered(low: int, high: int, index: pa.DataType) -> pa.Array:
    """A dictionary array with the items low to high, each used once."""
    numbers = pa.array(range(high - low), pa.int64()).cast(index)
    return pa.DictionaryArray.from_arrays(numbers, pa.array([f"item {n}" for n in range(low, high)]))


@pytest.mark.parametrize(("index", "most"), [(pa.int8(), 128), (pa.uint8(), 256), (pa.int16(), 32768)])
@pytest.mark.parametrize("nest", [False, True])
def test_dictionary_values_of_a_file_that_its_index_cannot_number_are_refused(
    index: pa.DataType, most: int, nest: bool, tmp_path: Path, peer: Peer
) -> None:
    def table(rows: int) -> pa.Table:
        parts = [numbered(0, most // 2, index), numbered(most // 2, rows, index)]
        if nest:
            parts = [pa.StructArray.from_arrays([part], ["d"]) for part in parts]
        return pa.table({"c": pa.chunked_array(parts)})

    found = peer(
        "import lance.file\nresult = lance.file.LanceFileReader(p).read_all(batch_size=1 << 16).to_table()",
        p=str(write(table(most), tmp_path)),
    )
    assert found["c"].to_pylist() == table(most)["c"].to_pylist()
    with pytest.raises(InvalidInput, match=rf"'{'d' if nest else 'c'}'.* {most + 1} .*{index}.*wider index"):
        write(table(most + 1), tmp_path / "refused")
    assert not (tmp_path / "refused").exists() or not list((tmp_path / "refused").iterdir())


@pytest.mark.parametrize("values", [pa.string(), pa.int64(), pa.float32(), pa.bool_()])
def test_pages_that_bring_the_same_dictionary_count_it_once(values: pa.DataType, tmp_path: Path) -> None:
    count = 2 if values == pa.bool_() else 100
    items = pa.array(range(count)).cast(values)
    rng = np.random.default_rng(5)
    picked = [None if n % 9 == 4 else int(n) for n in rng.integers(0, count, 3000)]
    column = pa.DictionaryArray.from_arrays(pa.array(picked, pa.int8()), items)
    path = write(pa.table({"c": column}), tmp_path, page_bytes=64)
    reader = open_file(open_store(str(tmp_path)), path.name, session=Session())
    assert reader.read(reader.schema.fields, None, slice(None))[0].to_pylist() == column.to_pylist()
    rows = rng.integers(0, 3000, 50)
    found = reader.read(reader.schema.fields, None, rows)[0]
    assert found.to_pylist() == column.take(pa.array(rows)).to_pylist()
    assert len(found.dictionary) <= 128


def test_dictionaries_with_null_items_become_one_page(tmp_path: Path, peer: Peer) -> None:
    parts = [
        pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 1], pa.int8()), pa.array([f"{n}", None, "x"]))
        for n in range(60)
    ]
    table = pa.table({"c": pa.chunked_array(parts)})
    found = peer(
        "import lance.file\nreader = lance.file.LanceFileReader(p)\n"
        "result = len(reader.metadata().columns[0].pages), reader.read_all().to_table()",
        p=str(write(table, tmp_path)),
    )
    assert found[0] == 1
    assert found[1]["c"].to_pylist() == table["c"].to_pylist()


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("compression", ["brotli", ""]),
        ("compression-level", ["high", "1.5", "", "23", "99999999999"]),
        ("rle-threshold", ["x", "-1", "1.5", "nan", "inf"]),
        ("dict-divisor", ["0", "-1", "1.5", ""]),
        ("dict-size-ratio", ["0", "2", "nan", "inf", "x"]),
        ("dict-values-compression-level", ["x", "23"]),
        ("minichunk-size", ["0", "-5", "x", "99999999999999999999"]),
        ("bss", ["maybe"]),
    ],
)
def test_a_wish_without_meaning_is_refused_with_column_and_key(
    key: str, values: list[str], tmp_path: Path
) -> None:
    for value in values:
        table = with_metadata(pa.table({"c": ["x"] * 200}), {f"lance-encoding:{key}": value})
        with pytest.raises(InvalidInput, match=f"'c'.*{key}"):
            write(table, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "array",
    [
        pa.array([[1]]),
        pa.array([[{"a": 1}]]),
        pa.array([{"below": [[1]]}]).field(0),
        pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())),
        pa.array([[{"a": 1}]], pa.list_(pa.struct([("a", pa.int8())]), 1)),
    ],
    ids=lambda array: str(array.type),
)
def test_packing_is_for_structs(array: pa.Array, tmp_path: Path) -> None:
    packed = {"lance-encoding:packed": "true"}
    with pytest.raises(UnsupportedFeature, match=r"'c'.*packed.*list|'c'.*packed.*map"):
        write(with_metadata(pa.table({"c": array}), packed), tmp_path)
    inner = pa.field("below", array.type, metadata=packed)
    nested = pa.table({"c": pa.StructArray.from_arrays([array], fields=[inner])})
    with pytest.raises(UnsupportedFeature, match=r"'c\.below'.*packed"):
        write(nested, tmp_path)


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        (kind, shape)
        for kind in (pa.string(), pa.large_string(), pa.string_view())
        for shape in ("plain", "list", "dictionary", "packed")
        if (kind, shape) != (pa.string_view(), "dictionary")  # Arrow has no such dictionaries
    ],
)
def test_strings_that_are_not_utf8_are_refused_with_column_and_value(
    kind: pa.DataType, shape: str, tmp_path: Path
) -> None:
    other = b"" if shape == "packed" else None
    raw = pa.array([b"good", other, b"b\xffd", b"good"], pa.large_binary())
    bad = raw.view(pa.large_string())
    if kind != pa.large_string():
        bad = bad.cast(kind)
    schema = None
    if shape == "list":
        bad = pa.ListArray.from_arrays(pa.array([0, 2, 4], pa.int32()), bad)
    elif shape == "dictionary":
        bad = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int8()), bad)
    elif shape == "packed":
        bad = pa.StructArray.from_arrays([bad], ["c"])
        schema = pa.schema([pa.field("c", bad.type, metadata={"lance-encoding:packed": "true"})])
    with pytest.raises(InvalidInput, match=r"'c.*UTF-8.*b\\xffd"):
        write(pa.table([bad], schema=schema, names=None if schema else ["c"]), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_bytes_that_no_row_shows_need_not_be_utf8(tmp_path: Path, peer: Peer) -> None:
    data = pa.py_buffer(b"good\xff\xffgood")
    offsets = pa.py_buffer(np.array([0, 4, 6, 10], np.int32))
    hidden = pa.Array.from_buffers(
        pa.string(), 3, [pa.array([True, False, True]).buffers()[1], offsets, data]
    )
    table = pa.table({"c": hidden, "after": ["ä", "€", "\U0001f600"]})
    check(table, write(table, tmp_path), peer)
    assert write(pa.table({"c": hidden.slice(2)}), tmp_path).exists()


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("structure", ["", "fullzip"])
@pytest.mark.parametrize("width", [1, 7, 8, 100, 2050, 4099])
def test_vectors_of_booleans_that_end_inside_a_byte(
    width: int, structure: str, version: str, tmp_path: Path, peer: Peer
) -> None:
    rng = np.random.default_rng(width)
    items = pa.array(rng.random(90 * width) < 0.5, mask=rng.random(90 * width) < 0.1)
    whole = pa.array(rng.random(90 * width) < 0.5)
    none = pa.nulls(90 * width, pa.bool_())
    absent = pa.array([n % 4 == 1 for n in range(90)])
    vectors = {
        name: pa.FixedSizeListArray.from_arrays(values, width, mask=absent)
        for name, values in {"items": items, "whole": whole, "none": none}.items()
    }
    if structure and width % 8 == 0:
        del vectors["items"]  # the official writer and reader fail at these themselves
    ends = pa.array(range(0, 91, 3), pa.int32())
    lists = {f"{name}s": pa.ListArray.from_arrays(ends, vector) for name, vector in vectors.items()}
    for columns in (vectors, lists):
        table = pa.table(columns)
        if structure:
            table = with_metadata(table, {"lance-encoding:structural-encoding": structure})
        check(table, write(table, tmp_path, version), peer)
