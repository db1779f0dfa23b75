"""Files that the official implementation wrote, read by ours: types, ranges, takes, projections, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from peer import Peer
from reading import agrees, read, reader_of
from tiltyard.errors import BatchTooLarge, CorruptFile, RowOutOfRange, UnsupportedFeature
from tiltyard.file import open_file
from tiltyard.format.schema import Schema
from tiltyard.session import Limits, Session
from tiltyard.store import open_store
from typematrix import Entry, entries

WRITE = """
import lance.file
with lance.file.LanceFileWriter(path, table.schema, version=version, **options) as writer:
    for batch in table.to_batches(max_chunksize=rows):
        writer.write_batch(batch)
"""

#: Shapes of the field's metadata that make the official writer choose other layouts.
HINTS: dict[str, dict[str, str]] = {
    "": {},
    "zstd": {"lance-encoding:compression": "zstd"},
    "lz4": {"lance-encoding:compression": "lz4", "lance-encoding:bss": "on"},
    "full zip": {"lance-encoding:structural-encoding": "fullzip"},
    "mini-block": {"lance-encoding:structural-encoding": "miniblock"},
}


def write(
    peer: Peer, path: Path, table: pa.Table, version: str = "2.2", rows: int = 1 << 20, **options: Any
) -> None:
    peer(WRITE, path=str(path), table=table, version=version, rows=rows, options=options)


def column(name: str, values: Any, kind: Any = None, **hints: str) -> pa.Table:
    made = values if isinstance(values, pa.Array) else pa.array(values, kind)
    return pa.table([made], schema=pa.schema([pa.field(name, made.type, metadata=hints or None)]))


SAMPLE = [entry for entry in entries() if entry.sampled]


@pytest.mark.parametrize("entry", SAMPLE, ids=str)
def test_every_type_reads_as_it_was_written(entry: Entry, peer: Peer, tmp_path: Path) -> None:
    table = entry.table
    for version in entry.versions:
        path = tmp_path / f"{version}.lance"
        # the official writer cannot take a slice of a fixed-size list of structs
        write(peer, path, table, version, rows=2000 if entry.alone else 400)
        agrees(reader_of(path), table)


@pytest.mark.parametrize("hint", [hint for hint in HINTS if hint])
def test_every_layout_that_can_be_asked_for(hint: str, kernel_form: str, peer: Peer, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    n = 3000 if kernel_form == "compiled" else 300
    words = [f"word {i}" * (i % 4) for i in rng.integers(0, 900, n)]
    mask = rng.random(n) < 0.2
    lists = [
        None if m else [int(x) for x in range(k)] for m, k in zip(mask, rng.integers(0, 5, n), strict=True)
    ]
    columns = {
        "i": pa.array(rng.integers(0, 1000, n), mask=mask),
        "f": pa.array(rng.random(n).astype(np.float32)),
        "b": pa.array(rng.random(n) < 0.5, mask=mask),
        "s": pa.array(words, mask=mask),
        "long": pa.array([word * 40 for word in words], pa.large_string()),
        "l": pa.array(lists, pa.list_(pa.int64())),
        "ls": pa.array(
            [None if x is None else [f"{i}" * 90 for i in x] for x in lists], pa.list_(pa.string())
        ),
        "v": pa.FixedSizeListArray.from_arrays(pa.array(rng.random(n * 80)), 80),
        "vn": pa.FixedSizeListArray.from_arrays(pa.array(rng.random(n * 3), mask=rng.random(n * 3) < 0.1), 3),
        "fixed": pa.array([rng.bytes(7) for _ in range(n)], pa.binary(7)),
    }
    fields = [pa.field(name, array.type, metadata=HINTS[hint]) for name, array in columns.items()]
    table = pa.table(list(columns.values()), schema=pa.schema(fields))
    for version in ("2.1", "2.2"):
        path = tmp_path / f"{version}.lance"
        write(peer, path, table, version)
        agrees(reader_of(path), table)


def test_pages_of_different_layouts_in_one_column(kernel_form: str, peer: Peer, tmp_path: Path) -> None:
    # a small cache makes a page of every batch: distinct values, few values, long ones, none, one
    rng = np.random.default_rng(3)
    n = 300
    parts = [
        pa.array([f"{i} {rng.random()}" for i in range(n)]),
        pa.array([f"w{i % 7}" for i in range(n)]),
        pa.array([f"{i}" * 100 for i in range(n)]),
        pa.nulls(n, pa.string()),
        pa.array(["same"] * n),
        pa.array([None if i % 3 else f"{i}" * 20 for i in range(n)]),
    ]
    strings = pa.chunked_array(parts)
    numbers = pa.chunked_array(
        [
            pa.array(rng.integers(-(2**60), 2**60, n)),
            pa.array(rng.integers(0, 9, n)),
            pa.nulls(n, pa.int64()),
            pa.array(np.full(n, 5)),
            pa.array(np.repeat(rng.integers(0, 2**50, 3), n // 3)),
            pa.array(rng.integers(0, 9, n), mask=rng.random(n) < 0.5),
        ]
    )
    lists = pa.chunked_array(
        [pa.array([None if i % 5 == 0 else [each] * (i % 4) for i, each in enumerate(part.to_pylist())],
                  pa.list_(pa.string())) for part in parts]
    )  # fmt: skip
    table = pa.table({"s": strings, "i": numbers, "l": lists})
    for version in ("2.1", "2.2"):
        path = tmp_path / f"{version}.lance"
        write(peer, path, table, version, rows=n, data_cache_bytes=1)
        reader = reader_of(path)
        assert len(reader._tail.columns[0]) == len(parts)  # the point of the test
        agrees(reader, table)


def test_struct_nulls_at_every_depth(kernel_form: str, peer: Peer, tmp_path: Path) -> None:
    rows = [
        {"a": {"b": 1, "l": [1, None]}},
        {"a": {"b": None, "l": None}},
        {"a": None},
        None,
        {"a": {"b": 2, "l": []}},
    ]
    kind = pa.struct([("a", pa.struct([("b", pa.int32()), ("l", pa.list_(pa.int8()))]))])
    table = column("s", rows * 30, kind)
    write(peer, tmp_path / "f.lance", table)
    agrees(reader_of(tmp_path / "f.lance"), table)


@pytest.mark.parametrize("variable", [False, True])
def test_packed_structs(variable: bool, peer: Peer, tmp_path: Path) -> None:
    fields: list[tuple[str, Any]] = [("x", pa.int32()), ("y", pa.float64()), ("z", pa.uint8())]
    rows: list[dict[str, Any]] = [{"x": i, "y": i / 3, "z": i % 200} for i in range(700)]
    if variable:
        fields += [("s", pa.string()), ("v", pa.list_(pa.float32(), 2))]
        for i, row in enumerate(rows):
            row |= {"s": f"text {i % 50}" * (i % 5), "v": [1.0, float(i)]}
    kind = pa.struct([pa.field(name, each, nullable=False) for name, each in fields])
    table = column("p", rows, kind, **{"lance-encoding:packed": "true"})
    for version in ("2.2",) if variable else ("2.1", "2.2"):
        path = tmp_path / f"{version}.lance"
        write(peer, path, table, version)
        agrees(reader_of(path), table)


def test_lists_longer_than_chunks_and_runs_of_empty_ones(
    kernel_form: str, peer: Peer, tmp_path: Path
) -> None:
    scale = 10 if kernel_form == "compiled" else 1
    lengths = [5000 * scale, 0, 3, 0, 0, 900 * scale, 1] + [0] * (700 * scale) + [2]
    lists = [list(range(k)) for k in lengths]
    table = column("l", lists, pa.list_(pa.int32()))
    write(peer, tmp_path / "f.lance", table)
    agrees(reader_of(tmp_path / "f.lance"), table)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize(
    "lists",
    [
        [None, *[list(range(10))] * 8000],
        [list(range(33_000)), []],
        [None if i % 10 == 0 else [i] * (5000 if i % 3 == 0 else 3) for i in range(60)],
    ],
    ids=["first null", "last empty", "mixed"],
)
def test_chunks_and_pages_of_lists_of_which_none_is_null_or_empty(
    lists: list[Any], version: str, kernel_form: str, peer: Peer, tmp_path: Path
) -> None:
    # Their definition levels are all zero: packed to no bits, in no bytes.
    table = column("lists", lists, pa.list_(pa.int32()))
    write(peer, tmp_path / "t.lance", table, version)
    agrees(reader_of(tmp_path / "t.lance"), table)


def test_many_empty_lists_around_few_values(peer: Peer, tmp_path: Path) -> None:
    # case E05: a chunk's level limit; one in 10,000 lists holds something, others are empty or null
    n = 200_000
    lengths = np.zeros(n, np.int64)
    lengths[::10_000] = 3
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int32)
    values = pa.array(np.arange(offsets[-1]).astype(np.int8))
    nulls = np.random.default_rng(1).random(n) < 0.3
    nulls[::10_000] = False
    for mask in (None, pa.array(nulls)):
        table = column("l", pa.ListArray.from_arrays(pa.array(offsets), values, mask=mask))
        path = tmp_path / f"{mask is None}.lance"
        write(peer, path, table)
        agrees(reader_of(path), table)


def test_empty_and_null_strings_differ(peer: Peer, tmp_path: Path) -> None:
    # case E13
    for kind in (pa.binary(), pa.large_binary(), pa.string()):
        table = column("c", [b"", None, b"x" * 10], kind)
        for version in ("2.1", "2.2"):
            path = tmp_path / f"{kind}{version}.lance"
            write(peer, path, table, version)
            agrees(reader_of(path), table)


def test_dictionaries_of_several_pages_and_all_null_ones(peer: Peer, tmp_path: Path) -> None:
    # case E07, and pages whose dictionaries differ
    kind = pa.dictionary(pa.int8(), pa.string())
    parts = [["a", None, "b"] * 50, [None] * 150, ["c", "a", "d"] * 50]
    for chosen in ([1], [0, 1, 2]):
        arrays = [pa.array(parts[i]).dictionary_encode().cast(kind) for i in chosen]
        table = pa.table({"d": pa.chunked_array(arrays, kind)})
        path = tmp_path / f"{len(chosen)}.lance"
        write(peer, path, table, rows=150, data_cache_bytes=1)
        found = read(reader_of(path))
        assert found.column(0).type == kind
        assert found.column(0).to_pylist() == [value for i in chosen for value in parts[i]]


# -- projections -----------------------------------------------------------------------------------


def test_nested_leaves_are_read_alone(peer: Peer, tmp_path: Path) -> None:
    rows = [{"a": i, "l": [{"x": i, "y": f"{i}"}] * (i % 3)} for i in range(100)]
    kind = pa.struct([("a", pa.int32()), ("l", pa.list_(pa.struct([("x", pa.int64()), ("y", pa.string())])))])
    write(peer, tmp_path / "f.lance", column("s", rows, kind))
    reader = reader_of(tmp_path / "f.lance")
    wanted = reader.schema.project([("s", "l", "y")])
    (array,) = reader.read(wanted.fields, None, slice(10, 20))
    assert array.type == wanted.arrow.field(0).type
    assert array.to_pylist() == [{"l": [{"y": each["y"]} for each in row["l"]]} for row in rows[10:20]]


def test_leaves_without_a_column_are_null(peer: Peer, tmp_path: Path) -> None:
    write(peer, tmp_path / "f.lance", column("a", [1, 2, 3]))
    reader = reader_of(tmp_path / "f.lance")
    wider = pa.schema([("a", pa.int64()), ("s", pa.struct([("l", pa.list_(pa.string()))])), ("n", pa.int8())])
    schema = Schema.from_arrow(wider)
    arrays = reader.read(schema.fields, {0: 0}, np.array([2, 0]))
    assert [array.to_pylist() for array in arrays] == [[3, 1], [None, None], [None, None]]
    assert [array.type for array in arrays] == wider.types


def test_a_struct_of_which_one_leaf_has_a_column(peer: Peer, tmp_path: Path) -> None:
    rows = [{"x": 1}, None, {"x": None}]
    write(peer, tmp_path / "f.lance", column("s", rows, pa.struct([("x", pa.int32())])))
    reader = reader_of(tmp_path / "f.lance")
    schema = Schema.from_arrow(pa.schema([("s", pa.struct([("new", pa.string()), ("x", pa.int32())]))]))
    (array,) = reader.read(schema.fields, {2: 0}, slice(None))
    assert array.to_pylist() == [{"new": None, "x": 1}, None, {"new": None, "x": None}]


def test_a_wide_file_opens_only_the_columns_it_reads(peer: Peer, tmp_path: Path) -> None:
    # case E20
    names = [f"c{i}" for i in range(3000)]
    write(peer, tmp_path / "f.lance", pa.table({name: [i] for i, name in enumerate(names)}))
    reader = reader_of(tmp_path / "f.lance")
    (array,) = reader.read(reader.schema.project(["c2345"]).fields, None, slice(None))
    assert array.to_pylist() == [2345]
    assert sum(parsed is not None for parsed in reader._tail.columns._parsed) == 1


# -- memory ------------------------------------------------------------------------------------------


def test_wide_vectors_are_slices_of_the_file(peer: Peer, tmp_path: Path) -> None:
    values = np.random.default_rng(0).random(2000 * 256).astype(np.float32)
    table = column("v", pa.FixedSizeListArray.from_arrays(pa.array(values), 256))
    write(peer, tmp_path / "f.lance", table, rows=500, data_cache_bytes=1)
    reader = reader_of(tmp_path / "f.lance")
    (array,) = reader.read(reader.schema.fields, None, slice(3, 1900))
    low = reader._buffer.address
    assert low <= array.flatten().buffers()[1].address < low + reader._buffer.size
    agrees(reader, table)


def test_a_reader_is_opened_once_and_its_size_is_checked(peer: Peer, tmp_path: Path) -> None:
    write(peer, tmp_path / "f.lance", column("a", [1]))
    store, session = open_store(str(tmp_path)), Session()
    size = (tmp_path / "f.lance").stat().st_size
    assert open_file(store, "f.lance", size=size, session=session) is open_file(
        store, "f.lance", size=size, session=session
    )
    with pytest.raises(CorruptFile):
        open_file(store, "f.lance", size=size + 1, session=session)


# -- refusals ------------------------------------------------------------------------------------------


def test_rows_outside_of_the_file_are_refused(peer: Peer, tmp_path: Path) -> None:
    write(peer, tmp_path / "f.lance", column("a", [1, 2, 3]))
    reader = reader_of(tmp_path / "f.lance")
    for rows in (slice(0, 4), slice(2, 1), slice(-1, 2), slice(0, 3, 2), np.array([0, 3]), np.array([-1])):
        with pytest.raises(RowOutOfRange, match="3 rows"):
            read(reader, rows)
    assert read(reader, np.array([], np.int64)).num_rows == 0


@pytest.mark.parametrize(
    "values",
    [
        ["x" * 30] * 20 + ["y"],
        [f"{i}" * 300 for i in range(9)],
        ["ab" * 9, "c" * 20] * 80,
        [[1] * 40, [2] * 70],
    ],
    ids=["mini-block", "full zip", "dictionary", "list"],
)
def test_a_batch_beyond_32_bit_offsets_is_refused(values: list[Any], peer: Peer, tmp_path: Path) -> None:
    # case E12 with a limit that a test can afford
    table = column("c", values)
    write(peer, tmp_path / "f.lance", table)
    reader = reader_of(tmp_path / "f.lance", Session(Limits(offset_limit=100)))
    for rows in (slice(None), np.arange(len(values))):
        with pytest.raises(BatchTooLarge, match="fewer rows"):
            read(reader, rows)


def test_other_versions_are_refused_by_name(peer: Peer, tmp_path: Path) -> None:
    write(peer, tmp_path / "f.lance", column("a", [1]), "2.3")
    with pytest.raises(UnsupportedFeature, match=r"2\.3"):
        reader_of(tmp_path / "f.lance")


def test_blob_columns_are_refused_by_name(peer: Peer, tmp_path: Path) -> None:
    hints = {"lance-encoding:blob": "true"}
    table = column("b", [b"abc", None], pa.large_binary(), **hints).append_column("i", pa.array([1, 2]))
    write(peer, tmp_path / "f.lance", table)
    reader = reader_of(tmp_path / "f.lance")
    with pytest.raises(UnsupportedFeature, match="'b'"):
        read(reader)
    (array,) = reader.read(reader.schema.project(["i"]).fields, None, slice(None))
    assert array.to_pylist() == [1, 2]


def test_a_file_without_checksums_says_so(peer: Peer, tmp_path: Path) -> None:
    write(peer, tmp_path / "f.lance", column("a", [1]))
    assert reader_of(tmp_path / "f.lance").verify() is False
