"""Files that we write, as the official reader sees them: types, shapes, versions; whole, in part, row by
row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from one_file import check, with_metadata, write
from peer import Peer
from tiltyard.errors import InvalidInput, SchemaMismatch, UnsupportedFeature
from tiltyard.file.writer import FileWriter, WriteLimits
from tiltyard.format.schema import Schema
from tiltyard.format.version import FileVersion
from tiltyard.session import Session
from tiltyard.store import open_store
from typematrix import Entry, sample

PEER_SIZE = """
import os
with lance.file.LanceFileWriter(path, table.schema, version=version) as writer:
    for batch in table.to_batches():
        writer.write_batch(batch)
result = os.path.getsize(path)
"""


def pairs() -> list[Any]:
    chosen = [entry for entry in sample() if entry.peer_reads]
    return [pytest.param(e, v, id=f"{e.name}-{v}") for e in chosen for v in e.versions]


@pytest.mark.parametrize(("entry", "version"), pairs())
def test_the_official_reader_gives_the_type_matrix_back(
    entry: Entry, version: str, tmp_path: Path, peer: Peer
) -> None:
    table = entry.table
    if table.num_rows:
        check(table, write(table, tmp_path, version), peer)


def everything(rows: int, nulls: bool = True, seed: int = 1) -> pa.Table:
    """Columns of every layout, with nulls at every level."""
    rng = np.random.default_rng(seed)

    def holes(values: list[Any], share: float = 0.2) -> list[Any]:
        if not nulls:
            return values
        return [None if hole else value for value, hole in zip(values, rng.random(rows) < share, strict=True)]

    numbers = rng.integers(0, 1000, rows).tolist()
    return pa.table(
        {
            "int": pa.array(holes(numbers), pa.int32()),
            "runs": pa.array(holes((np.arange(rows) // 50).tolist()), pa.uint64()),
            "float": pa.array(holes(rng.random(rows).tolist()), pa.float64()),
            "flag": pa.array(holes((rng.random(rows) < 0.5).tolist()), pa.bool_()),
            "text": pa.array(holes([f"value {n} of {n % 7}" for n in numbers])),
            "kind": pa.array(holes([f"k{n % 5}" for n in numbers])),
            "long": pa.array(holes(["x" * (n % 400) for n in numbers]), pa.large_string()),
            "vector": pa.array(holes([[float(n), 1.0, 2.0] for n in numbers]), pa.list_(pa.float32(), 3)),
            "wide": pa.array(holes([[float(n)] * 80 for n in numbers]), pa.list_(pa.float32(), 80)),
            "list": pa.array(holes([list(range(n % 4)) for n in numbers]), pa.list_(pa.int16())),
            "texts": pa.array(holes([[f"{n}"] * (n % 3) for n in numbers]), pa.list_(pa.string())),
            "coded": pa.array(holes([f"c{n % 9}" for n in numbers])).dictionary_encode(),
            "deep": pa.array(
                holes([{"a": n, "b": [{"c": [n, None]}] * (n % 3)} for n in numbers]),
                pa.struct([("a", pa.int64()), ("b", pa.list_(pa.struct([("c", pa.list_(pa.int8()))])))]),
            )
            if rows < 120
            else pa.array(
                holes([{"a": n, "b": [{"c": [n % 100, None]}] * (n % 3)} for n in numbers]),
                pa.struct([("a", pa.int64()), ("b", pa.list_(pa.struct([("c", pa.list_(pa.int8()))])))]),
            ),
        }
    ) if rows >= 120 else everything(120, nulls, seed).slice(0, rows)  # fmt: skip


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("rows", [1, 2, 1023, 1024, 1025, 4097])
def test_sizes_at_the_edges_of_blocks_and_chunks(rows: int, version: str, tmp_path: Path, peer: Peer) -> None:
    table = everything(rows)
    check(table, write(table, tmp_path, version), peer)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_many_pages_from_small_batches(version: str, tmp_path: Path, peer: Peer) -> None:
    table = everything(3000)
    check(table, write(table, tmp_path, version, batch=170, page_bytes=4000), peer)


def test_a_large_batch_is_cut_into_pages(tmp_path: Path, peer: Peer) -> None:
    table = everything(3000, nulls=False)
    check(table, write(table, tmp_path, page_bytes=3000), peer)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_slices_of_every_column(version: str, tmp_path: Path, peer: Peer) -> None:
    table = everything(700).slice(13, 501)
    check(table, write(table, tmp_path, version, batch=77), peer)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("layout", ["miniblock", "fullzip"])
def test_the_structural_encoding_can_be_asked_for(
    layout: str, version: str, tmp_path: Path, peer: Peer
) -> None:
    table = with_metadata(everything(600), {"lance-encoding:structural-encoding": layout})
    check(table, write(table, tmp_path, version), peer)


COMPRESSIONS = [
    {"compression": "none"},
    {"compression": "zstd", "compression-level": "7"},
    {"compression": "lz4"},
    {"compression": "fsst"},
    {"compression": "zstd", "bss": "on"},
    {"compression": "lz4", "bss": "off", "dict-divisor": "100000"},
    {"dict-values-compression": "zstd", "dict-size-ratio": "0.99"},
    {"dict-values-compression": "none", "rle-threshold": "0.01", "minichunk-size": "1024"},
]


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("keys", COMPRESSIONS, ids=lambda keys: "-".join(keys.values()))
def test_compression_can_be_asked_for(keys: dict[str, str], version: str, tmp_path: Path, peer: Peer) -> None:
    table = with_metadata(everything(1500), {f"lance-encoding:{key}": value for key, value in keys.items()})
    check(table, write(table, tmp_path, version), peer)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_packed_structs(version: str, tmp_path: Path, peer: Peer) -> None:
    fixed = pa.struct([("a", pa.int32()), ("b", pa.float64()), ("c", pa.uint8())])
    rows = [{"a": n, "b": n / 2, "c": n % 256} if n % 7 else None for n in range(1200)]
    columns = {"fixed": pa.array(rows, fixed)}
    if version == "2.2":
        mixed = pa.struct(
            [
                ("a", pa.int32()),
                ("s", pa.string()),
                ("v", pa.list_(pa.float32(), 3)),
                ("t", pa.large_binary()),
            ]
        )
        values = [
            {"a": n, "s": "s" * (n % 9), "v": [n, 1.0, 2.0], "t": b"t" * (n % 5)} if n % 5 else None
            for n in range(1200)
        ]
        columns["mixed"] = pa.array(values, mixed)
    table = with_metadata(pa.table(columns), {"lance-encoding:packed": "true"})
    check(table, write(table, tmp_path, version), peer)


def test_packed_structs_refuse_what_cannot_be_read_back(tmp_path: Path) -> None:
    packed = {"lance-encoding:packed": "true"}
    flags = with_metadata(pa.table({"p": pa.array([{"f": True}])}), packed)
    with pytest.raises(UnsupportedFeature, match=r"p\.f"):
        write(flags, tmp_path)
    holes = with_metadata(pa.table({"p": pa.array([{"f": 1}, {"f": None}])}), packed)
    with pytest.raises(InvalidInput, match=r"p\.f"):
        write(holes, tmp_path)
    texts = with_metadata(pa.table({"p": pa.array([{"f": "x"}])}), packed)
    with pytest.raises(UnsupportedFeature, match=r"2\.2"):
        write(texts, tmp_path, "2.1")


def test_dictionaries_that_differ_from_batch_to_batch(tmp_path: Path, peer: Peer) -> None:
    chunks = [pa.array([f"{letter}{n % 3}" for n in range(200)]).dictionary_encode() for letter in "abc"]
    check(
        pa.table({"c": pa.chunked_array(chunks)}),
        write(pa.table({"c": pa.chunked_array(chunks)}), tmp_path),
        peer,
    )


def test_a_slice_of_a_long_dictionary_keeps_only_what_it_uses(tmp_path: Path, peer: Peer) -> None:
    items = pa.array([f"item number {n}" for n in range(50_000)])
    table = pa.table({"c": pa.DictionaryArray.from_arrays(pa.array([7, 49_999, None, 7], pa.int32()), items)})
    path = write(table, tmp_path)
    assert path.stat().st_size < 4096
    check(table, path, peer)


def test_extension_types_and_views_are_written_as_their_storage(tmp_path: Path, peer: Peer) -> None:
    ids = pa.array([bytes([n % 256] * 16) for n in range(300)], pa.binary(16))
    table = pa.table(
        {
            "id": pa.ExtensionArray.from_storage(pa.uuid(), ids),
            "ids": pa.array([{"u": row} for row in ids.to_pylist()], pa.struct([("u", pa.binary(16))])),
            "view": pa.array([f"a text that is not inlined {n}" for n in range(300)], pa.string_view()),
            "bytes": pa.array([b"b", None, b""] * 100, pa.binary_view()),
        }
    )
    check(table, write(table, tmp_path), peer)


def test_the_schema_of_a_file_keeps_extension_names(tmp_path: Path, peer: Peer) -> None:
    ids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"x" * 16], pa.binary(16)))
    path = write(pa.table({"id": ids}), tmp_path)
    schema = peer("import lance.file\nresult = lance.file.LanceFileReader(p).metadata().schema", p=str(path))
    kind, metadata = schema.field("id").type, schema.field("id").metadata or {}
    assert kind == pa.uuid() or metadata[b"ARROW:extension:name"] == b"arrow.uuid"


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("item", [pa.int8(), pa.string(), pa.bool_(), pa.list_(pa.float32(), 2)], ids=str)
def test_few_values_among_very_many_empty_lists(
    item: pa.DataType, version: str, tmp_path: Path, peer: Peer
) -> None:
    # case E05: more levels between two values than the header of a chunk can count
    rows = 200_000
    value: Any = {pa.string(): "text", pa.bool_(): True}.get(
        item, [1.0, 2.0] if pa.types.is_nested(item) else 5
    )
    lengths = np.zeros(rows, np.int32)
    lengths[::50_001] = 3
    items = pa.array([value] * int(lengths.sum()), item)
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
    nulls = np.arange(rows) % 11 == 5
    table = pa.table({"c": pa.ListArray.from_arrays(offsets, items, mask=pa.array(nulls))})
    check(table, write(table, tmp_path, version), peer)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_one_row_with_more_empty_lists_than_a_chunk_can_count(
    version: str, tmp_path: Path, peer: Peer
) -> None:
    inner: list[Any] = [[1], *([[]] * 70_000), [2, 3]]
    for item in (pa.int32(), pa.bool_(), pa.string()):
        value = {pa.bool_(): True, pa.string(): "t"}.get(item, 1)
        rows = [[[value] * len(each) for each in inner], None, [[value]]]
        table = pa.table({"c": pa.array(rows, pa.list_(pa.list_(item)))})
        path = write(table, tmp_path, version)
        found = peer(
            "import lance.file\nresult = lance.file.LanceFileReader(p).read_all().to_table()", p=str(path)
        )
        assert found["c"].to_pylist() == rows


def test_files_are_no_larger_than_the_official_ones(tmp_path: Path, peer: Peer) -> None:
    ours = theirs = 0
    for seed, nulls in enumerate((True, False)):
        table = everything(4000, nulls, seed)
        for version in ("2.1", "2.2"):
            for name in table.column_names:
                one = table.select([name])
                mine = write(one, tmp_path, version).stat().st_size
                path = str(tmp_path / "peer.lance")
                official = peer("import lance.file" + PEER_SIZE, table=one, path=path, version=version)
                assert mine <= official * 1.02 + 4096, (name, version, nulls)
                ours, theirs = ours + mine, theirs + official
    assert ours <= theirs


def test_pages_of_lists_below_structs_declare_the_same(tmp_path: Path, peer: Peer) -> None:
    # The official reader gives wrong rows or fails where such pages differ in what can be null, its own too.
    kind = pa.struct([("a", pa.struct([("b", pa.list_(pa.int8()))]))])
    rows: list[Any] = [
        {"a": {"b": [1, 2]}}, {"a": {"b": []}}, None, {"a": None}, {"a": {"b": None}}, {"a": {"b": [None]}}
    ]  # fmt: skip
    order = np.random.default_rng(3).integers(0, len(rows), 90)
    table = pa.table({"c": pa.array([rows[0]] * 5 + [rows[at] for at in order], kind)})
    for version in ("2.1", "2.2"):
        check(table, write(table, tmp_path, version, batch=7, page_bytes=1), peer)


def test_a_null_struct_over_lists_that_are_not_null(tmp_path: Path, peer: Peer) -> None:
    inner = pa.StructArray.from_arrays([pa.array([[1], [None], [], [2]], pa.list_(pa.int8()))], ["b"])
    table = pa.table(
        {"c": pa.StructArray.from_arrays([inner], ["a"], mask=pa.array([False, True, False, True]))}
    )
    for version in ("2.1", "2.2"):
        check(table, write(table, tmp_path, version), peer)


# -- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [FileVersion.V2_0, FileVersion.V2_3])
def test_other_versions_are_refused_and_the_ones_to_use_named(version: FileVersion, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFeature, match=r"2\.2 .*2\.1"):
        FileWriter(
            open_store(str(tmp_path)),
            "f.lance",
            Schema.from_arrow(pa.schema([("a", pa.int8())])),
            version=version,
        )


@pytest.mark.parametrize(
    "kind",
    [pa.map_(pa.string(), pa.int8()), pa.list_(pa.struct([("a", pa.int8())]), 2)],
    ids=["map", "vector"],
)
def test_types_of_the_later_version_are_refused_in_the_earlier(kind: pa.DataType, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFeature, match=r"'m'.*2\.2"):
        write(pa.table({"m": pa.nulls(2, kind)}), tmp_path, "2.1")
    assert list(tmp_path.iterdir()) == []


def test_blobs_and_json_text_are_refused_by_name(tmp_path: Path) -> None:
    blob = with_metadata(
        pa.table({"b": pa.array([b"x"], pa.large_binary())}), {"lance-encoding:blob": "true"}
    )
    with pytest.raises(UnsupportedFeature, match=r"'b'.*blob"):
        write(blob, tmp_path)
    text = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": 1}']))
    with pytest.raises(UnsupportedFeature, match=r"'j'.*JSON text"):
        write(pa.table({"j": text}), tmp_path)
    lists = pa.ListArray.from_arrays([0, 1], text)
    with pytest.raises(UnsupportedFeature, match="JSON text"):
        write(pa.table({"j": lists}), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_structs_without_fields_are_kept_whole_or_refused(tmp_path: Path, peer: Peer) -> None:
    empty = pa.struct([])
    table = pa.table({"n": [1, 2, 3], "e": pa.array([{}, {}, {}], empty)})
    path = write(table, tmp_path)
    found = peer(
        "import lance.file\nresult = lance.file.LanceFileReader(p).read_all().to_table()", p=str(path)
    )
    assert found.to_pylist() == table.to_pylist()
    for array in (pa.array([{}, None], empty), pa.array([[{}]], pa.list_(empty)), pa.array([{"e": {}}])):
        with pytest.raises(UnsupportedFeature, match="without fields"):
            write(pa.table({"e": array}), tmp_path / "refused")


def test_batches_that_do_not_fit_the_schema_change_nothing(tmp_path: Path, peer: Peer) -> None:
    schema = Schema.from_arrow(pa.schema([("a", pa.int32()), ("b", pa.string())]))
    with FileWriter(open_store(str(tmp_path)), "f.lance", schema) as writer:
        for wrong in ({"a": [1]}, {"a": ["x"], "b": ["y"]}, {"a": [1], "b": ["y"], "c": [1]}):
            with pytest.raises(SchemaMismatch, match="'a'"):
                writer.write(pa.RecordBatch.from_pydict(wrong))
        writer.write(pa.record_batch({"b": ["y"], "a": pa.array([1], pa.int32())}))
        writer.close()
    found = peer(
        "import lance.file\nresult = lance.file.LanceFileReader(p).read_all().to_table()",
        p=str(tmp_path / "f.lance"),
    )
    assert found.to_pylist() == [{"a": 1, "b": "y"}]


def test_an_aborted_file_leaves_nothing(tmp_path: Path) -> None:
    schema = Schema.from_arrow(pa.schema([("a", pa.int64())]))
    limits = WriteLimits(page_bytes=800, write_bytes=1)
    with FileWriter(open_store(str(tmp_path)), "f.lance", schema, limits=limits) as writer:
        writer.write(pa.record_batch({"a": np.arange(1000)}))
        assert writer.estimated_bytes > 0
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InvalidInput, match="closed"):
        writer.write(pa.record_batch({"a": np.arange(1000)}))


def test_a_file_without_rows(tmp_path: Path, peer: Peer) -> None:
    table = everything(120).slice(0, 0)
    path = write(table, tmp_path)
    found = peer(
        "import lance.file\nresult = lance.file.LanceFileReader(p).read_all().to_table()", p=str(path)
    )
    assert (found.num_rows, found.column_names) == (0, table.column_names)


def test_the_gathered_bytes_stay_within_a_page_per_column(tmp_path: Path) -> None:
    schema = Schema.from_arrow(pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    limits = WriteLimits(page_bytes=8000, write_bytes=1)
    with FileWriter(open_store(str(tmp_path)), "f.lance", schema, limits=limits) as writer:
        for start in range(0, 50_000, 500):
            writer.write(pa.record_batch({"a": np.arange(start, start + 500), "b": np.arange(500)}))
            assert sum(top.nbytes for top in writer._tops) < 2 * 8000
        writer.close()


def test_a_dictionary_whose_rows_are_all_hidden_comes_back(tmp_path: Path) -> None:
    from tiltyard.file.reader import open_file

    kind = pa.struct([("d", pa.dictionary(pa.int16(), pa.string()))])
    path = write(pa.table({"c": pa.array([None, None], kind)}), tmp_path)
    reader = open_file(open_store(str(tmp_path)), path.name)
    assert reader.read(reader.schema.fields, None, slice(None))[0].to_pylist() == [None, None]


def test_every_byte_of_the_pages_is_covered_by_a_checksum(tmp_path: Path) -> None:
    from tiltyard.errors import CorruptFile
    from tiltyard.file.reader import read_file

    path = write(everything(600), tmp_path)
    good = path.read_bytes()
    assert read_file(pa.py_buffer(good), "good", Session()).verify()
    tail = read_file(pa.py_buffer(good), "good", Session())._tail
    positions = [
        (int(at), int(size))
        for column in tail.columns
        for at, size in zip(column.offsets, column.sizes, strict=True)
        if size
    ]
    for at, size in positions:
        damaged = bytearray(good)
        damaged[at + size // 2] ^= 1
        with pytest.raises(CorruptFile):
            read_file(pa.py_buffer(bytes(damaged)), "bad", Session()).verify()


def test_columns_said_to_hold_no_value_twice_get_no_dictionary(tmp_path: Path, peer: Peer) -> None:
    table = pa.table({"kind": pa.array(["some kind", "another kind", None] * 2000), "n": range(6000)})
    store, schema, sizes = open_store(str(tmp_path)), Schema.from_arrow(table.schema), []
    for distinct in ((), ("kind",)):
        name = f"{len(distinct)}.lance"
        with FileWriter(store, name, schema, distinct=distinct) as writer:
            writer.write(table.to_batches()[0])
            sizes.append(writer.close().size)
        check(table, tmp_path / name, peer)
    assert sizes[0] < sizes[1]
