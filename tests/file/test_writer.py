"""Files that we write, as the official reader sees them: types, shapes, versions; whole, in part, row by
row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from peer import Peer
from tables_alike import difference, same
from tiltyard.errors import InvalidInput, SchemaMismatch, UnsupportedFeature
from tiltyard.file import open_file
from tiltyard.file.writer import FileWriter, WriteLimits
from tiltyard.format.schema import Schema
from tiltyard.format.version import FileVersion
from tiltyard.session import Session
from tiltyard.store import open_store
from typematrix import Entry, sample

READ = """
reader = lance.file.LanceFileReader(path)
whole = reader.read_all(batch_size=whole_batch).to_table()
part = reader.read_range(start, count, batch_size=333).to_table()
rows = reader.take_rows(taken).to_table()
result = [whole.replace_schema_metadata(None), part.replace_schema_metadata(None),
rows.replace_schema_metadata(None)]
"""
PEER_SIZE = """
import os
with lance.file.LanceFileWriter(path, table.schema, version=version) as writer:
    for batch in table.to_batches():
        writer.write_batch(batch)
result = os.path.getsize(path)
"""


def write(
    table: pa.Table,
    directory: Path,
    version: str = "2.2",
    *,
    batch: int | None = None,
    page_bytes: int | None = None,
) -> Path:
    """One data file with the table; small pages where asked for."""
    limits = WriteLimits(page_bytes=page_bytes) if page_bytes else None
    name = f"{len(list(directory.iterdir())) if directory.exists() else 0}-{version}.lance"
    store = open_store(str(directory))
    schema = Schema.from_arrow(table.schema)
    with FileWriter(store, name, schema, version=FileVersion(version), limits=limits) as writer:
        for each in table.to_batches(max_chunksize=batch):
            writer.write(each)
        assert writer.rows == table.num_rows
        written = writer.close()
    path = directory / name
    assert written.size == path.stat().st_size
    assert (written.path, written.version) == (name, FileVersion(version))
    return path


def check(table: pa.Table, path: Path, peer: Peer) -> None:
    """The official reader gives the table back: in odd batches, a range, scattered rows."""
    start, count = table.num_rows // 3, table.num_rows // 3
    rng = np.random.default_rng(table.num_rows)
    taken = sorted(rng.choice(table.num_rows, min(table.num_rows, 40), replace=False).tolist())
    found = peer(
        "import lance.file" + READ, path=str(path), whole_batch=997, start=start, count=count, taken=taken
    )
    picked = pa.concat_tables([table.slice(row, 1) for row in taken])
    for got, wanted in zip(found, (table, table.slice(start, count), picked), strict=True):
        wanted = pa.table([normal(column) for column in wanted.columns], names=wanted.column_names)
        got = pa.table(got.columns, names=got.column_names)
        assert same(got, wanted), difference(got, wanted)


def normal(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Storage of extension types and plain text for views: what a file gives back."""
    if isinstance(column.type, pa.BaseExtensionType):
        return pa.chunked_array([chunk.storage for chunk in column.chunks])
    views = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return column.cast(views[column.type]) if column.type in views else column


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


def with_metadata(table: pa.Table, metadata: dict[str, str]) -> pa.Table:
    return table.cast(pa.schema([field.with_metadata(metadata) for field in table.schema]))


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
    from tiltyard.file.reader import FileReader
    from tiltyard.session import Session

    path = write(everything(600), tmp_path)
    good = path.read_bytes()
    assert FileReader(pa.py_buffer(good), "good", Session()).verify()
    tail = FileReader(pa.py_buffer(good), "good", Session())._tail
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
            FileReader(pa.py_buffer(bytes(damaged)), "bad", Session()).verify()


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
@pytest.mark.parametrize("shape", ["plain", "list", "dictionary", "packed"])
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
        if kind == pa.string_view():
            pytest.skip("Arrow has no such dictionaries")
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
