"""Public bug reports about encodings and types, tried on us (cases E01-E07, E11-E18, E20).

Each table is written by both implementations and read by both, whole and row by row.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import tiltyard.lance as lance
from peer import Peer
from tables_alike import difference
from tiltyard.errors import BatchTooLarge, TiltyardError
from tiltyard.session import Limits, Session
from typematrix import random_array

VERSIONS = ("2.1", "2.2")
READ = "result = (lance.dataset(p).to_table(), lance.dataset(p).take(rows))"


def identical_everywhere(
    table: pa.Table, place: Path, peer: Peer, versions: tuple[str, ...] = VERSIONS
) -> None:
    """Both writers, both readers: the whole table, and single rows from the start, the middle and the end."""
    rows = sorted({0, table.num_rows // 2, table.num_rows - 1}) if table.num_rows else []
    few = pa.concat_tables([table.slice(i, 1) for i in rows]) if rows else table.slice(0, 0)
    for version in versions:
        for writer in ("ours", "peer"):
            path = str(place / f"{writer}-{version}.lance")
            if writer == "ours":
                lance.write_dataset(table, path, data_storage_version=version)
            else:
                source = "result = lance.write_dataset(t, p, data_storage_version=v) and None"
                peer(source, t=table, p=path, v=version)
            scope: dict[str, object] = {"lance": lance, "p": path, "rows": rows}
            exec(READ, scope)
            for reader, answer in (("we", scope["result"]), ("the peer", peer(READ, p=path, rows=rows))):
                whole, taken = answer  # type: ignore[misc]
                assert not difference(table, whole), f"{writer} wrote {version}, {reader} read"
                assert not difference(few, taken), f"{writer} wrote {version}, {reader} took {rows}"


def one(column: pa.Array) -> pa.Table:
    return pa.table({"c": column})


STRUCT = pa.struct([("x", pa.int64())])


@pytest.mark.parametrize("tail", [[], [[]], [[], None, [None]]], ids=["alone", "empty list", "empty, null"])
def test_e01_null_structs_inside_lists(tail: list[object], tmp_path: Path, peer: Peer) -> None:
    rows = [[{"x": 1}, None, {"x": 4}], *tail]
    identical_everywhere(one(pa.array(rows, type=pa.list_(STRUCT))), tmp_path, peer)


def test_e02_a_list_of_structs_with_a_child_that_is_null_everywhere(tmp_path: Path, peer: Peer) -> None:
    kind = pa.list_(pa.struct([("x", pa.int32()), ("y", pa.string())]))
    rows = [[{"x": 1, "y": None}, {"x": 2, "y": None}], [{"x": 3, "y": None}]]
    identical_everywhere(one(pa.array(rows, type=kind)), tmp_path, peer)


def test_e03_a_null_struct_over_a_list_with_items(tmp_path: Path, peer: Peer) -> None:
    lists = pa.array([[1, 2], [3], None, [], [4, 5, 6]], type=pa.list_(pa.int32()))
    mask = pa.array([False, True, True, False, True])
    identical_everywhere(one(pa.StructArray.from_arrays([lists], ["l"], mask=mask)), tmp_path, peer)


def test_e03_lists_of_lists_that_are_all_null(tmp_path: Path, peer: Peer) -> None:
    identical_everywhere(one(pa.nulls(50, pa.list_(pa.list_(pa.int32())))), tmp_path, peer)


def test_e03_a_nested_array_that_was_sliced_before_it_was_written(tmp_path: Path, peer: Peer) -> None:
    kind = pa.list_(pa.struct([("x", pa.list_(pa.string())), ("y", pa.int8())]))
    whole = random_array(kind, 20, np.random.default_rng(3), 0.3)
    identical_everywhere(one(whole.slice(4, 3)), tmp_path, peer)


def test_e04_only_null_lists_of_items_that_must_not_be_null(tmp_path: Path, peer: Peer) -> None:
    kind = pa.list_(pa.field("item", pa.int64(), nullable=False))
    identical_everywhere(one(pa.nulls(1000, kind)), tmp_path, peer)


@pytest.mark.parametrize("nulls", [False, True], ids=["empty only", "nulls mixed in"])
def test_e05_few_values_among_very_many_empty_lists(nulls: bool, tmp_path: Path, peer: Peer) -> None:
    rows = 200_000
    lengths = np.zeros(rows, dtype=np.int32)
    lengths[::10_000] = 2
    offsets = np.zeros(rows + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    items = pa.array(np.arange(int(offsets[-1])) % 100, type=pa.int8())
    mask = pa.array((np.arange(rows) % 3 == 1) & (lengths == 0)) if nulls else None
    identical_everywhere(one(pa.ListArray.from_arrays(pa.array(offsets), items, mask=mask)), tmp_path, peer)


def test_e06_nullable_lists_in_many_fragments(tmp_path: Path, peer: Peer) -> None:
    path, rng = str(tmp_path / "t.lance"), np.random.default_rng(6)
    parts = []
    for number in range(28):
        rows = 2000
        mask = rng.random(rows) < 0.3
        offsets = np.zeros(rows + 1, dtype=np.int32)
        np.cumsum(np.where(mask, 0, 4), out=offsets[1:])
        items = pa.array(rng.random(int(offsets[-1]), dtype=np.float32))
        part = one(pa.ListArray.from_arrays(pa.array(offsets), items, mask=pa.array(mask)))
        writer = lance.write_dataset if number % 2 else None
        mode = "append" if parts else "create"
        if writer:
            writer(part, path, mode=mode)
        else:
            peer("result = lance.write_dataset(t, p, mode=m) and None", t=part, p=path, m=mode)
        parts.append(part)
    right = pa.concat_tables(parts)
    assert not difference(right, lance.dataset(path).to_table())
    assert not difference(right, peer("lance.dataset(p).to_table()", p=path))
    picks = rng.integers(0, right.num_rows, 100).tolist()
    assert not difference(right.take(picks), lance.dataset(path).take(picks))


def test_e07_an_all_null_dictionary_column_beside_one_with_values(tmp_path: Path, peer: Peer) -> None:
    kind = pa.dictionary(pa.int8(), pa.string())
    nothing = one(pa.array([None, None], type=kind))
    identical_everywhere(nothing, tmp_path, peer)
    path = str(tmp_path / "ours-2.2.lance")
    lance.write_dataset(one(pa.array(["a", None, "b"], type=kind)), path, mode="append")
    right = [None, None, "a", None, "b"]
    assert lance.dataset(path).to_table()["c"].to_pylist() == right
    peer("result = lance.dataset(p).optimize.compact_files() and None", p=path)
    assert lance.dataset(path).to_table()["c"].to_pylist() == right
    assert peer("lance.dataset(p).to_table()['c'].to_pylist()", p=path) == right


VECTORS = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(40, dtype=np.float32)), 4)


def test_e11_a_slice_of_vectors_keeps_its_rows(tmp_path: Path, peer: Peer) -> None:
    identical_everywhere(one(VECTORS.slice(3, 4)), tmp_path, peer)


@pytest.mark.parametrize("null_rows", [(0, 1, 2), (7, 8, 9), (4,)], ids=["start", "end", "middle"])
def test_e11_null_vectors_do_not_shift_the_others(
    null_rows: tuple[int, ...], tmp_path: Path, peer: Peer
) -> None:
    index = pa.array([None if i in null_rows else i for i in range(10)], type=pa.int32())
    identical_everywhere(one(VECTORS.take(index)), tmp_path, peer)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string()], ids=str)
def test_e13_empty_and_null_stay_apart(kind: pa.DataType, tmp_path: Path, peer: Peer) -> None:
    values = [b"", None, b"x" * 10]
    if kind == pa.string():
        values = ["", None, "x" * 10]
    identical_everywhere(one(pa.array(values, type=kind)), tmp_path, peer)
    identical_everywhere(one(pa.array(values[:2] * 600, type=kind)), tmp_path / "many", peer)


def test_e14_an_empty_struct_is_kept_or_refused_before_writing(tmp_path: Path) -> None:
    """2.1 and 2.2 have no place for the difference of null and empty: with a null it is refused by name."""
    path = str(tmp_path / "t.lance")
    lance.write_dataset(one(pa.array([{}, {}], type=pa.struct([]))), path)
    assert lance.dataset(path).to_table()["c"].to_pylist() == [{}, {}]
    other = str(tmp_path / "u.lance")
    with pytest.raises(TiltyardError, match="c"):
        lance.write_dataset(one(pa.array([{}, None], type=pa.struct([]))), other)
    assert not Path(other, "_versions").exists()


MAP = pa.array([[("k", 1)], None, []], type=pa.map_(pa.string(), pa.int64()))


def test_e15_maps_are_written_at_2_2_and_refused_below_with_the_version_to_use(
    tmp_path: Path, peer: Peer
) -> None:
    identical_everywhere(one(MAP), tmp_path, peer, versions=("2.2",))
    with pytest.raises(TiltyardError, match=r"2\.2"):
        lance.write_dataset(one(MAP), str(tmp_path / "old.lance"), data_storage_version="2.1")


REFUSED = {
    "list_view": pa.array([[1]], type=pa.list_view(pa.int32())),
    "union": pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]),
    "interval": pa.array([pa.scalar((1, 2, 3), pa.month_day_nano_interval())]),
    "inside a list": pa.array([[[1]]], type=pa.list_(pa.list_view(pa.int32()))),
    "run_end_encoded": pa.RunEndEncodedArray.from_arrays([1], ["a"]),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_e16_types_without_a_place_are_refused_and_the_column_is_named(name: str, tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    with pytest.raises(TiltyardError, match="misfit"):
        lance.write_dataset(
            pa.table({"id": pa.array([1] * len(REFUSED[name])), "misfit": REFUSED[name]}), str(path)
        )
    assert not path.exists() or not list(path.rglob("*.manifest"))


def test_e16_nanosecond_durations_keep_their_unit_and_views_come_back_plain(tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    table = pa.table(
        {
            "d": pa.array([1, 1_000_001, None], type=pa.duration("ns")),
            "s": pa.array(["a", None, "a text of more than twelve bytes"], type=pa.string_view()),
            "b": pa.array([b"a", None, b"some bytes, more than twelve"], type=pa.binary_view()),
        }
    )
    lance.write_dataset(table, path)
    found = lance.dataset(path).to_table()
    assert found["d"].equals(table["d"])
    assert found.schema.field("s").type == pa.string()
    assert found.schema.field("b").type == pa.binary()
    assert found.to_pylist() == table.to_pylist()


def test_e12_text_beyond_the_offsets_of_a_batch_is_split(tmp_path: Path) -> None:
    """The limit of 2 GiB, made small: no batch holds more, and nothing is lost."""
    path = str(tmp_path / "t.lance")
    table = pa.table({"n": list(range(40)), "text": [f"{i:04d}" * 250 for i in range(40)]})
    lance.write_dataset(table, path)
    small = Session(Limits(offset_limit=6000))
    dataset = lance.dataset(path, session=small)
    batches = list(dataset.to_batches(batch_size=40))
    assert len(batches) > 1
    for batch in batches:
        assert sum(len(text) for text in batch["text"].to_pylist()) <= 6000
    assert pa.Table.from_batches(batches).equals(table)
    assert not difference(table, dataset.to_table())
    assert not difference(table.slice(3, 30), dataset.to_table(offset=3, limit=30))
    assert not difference(table.take([39, 2, 20, 2]), dataset.take([39, 2, 20, 2]))
    with pytest.raises(BatchTooLarge, match=r"text.*fewer rows"):  # a take is one batch
        dataset.take(list(range(39, -1, -1)))
    assert dataset.to_table(filter="n % 2 = 0")["n"].to_pylist() == list(range(0, 40, 2))


def test_e12_one_value_beyond_the_offsets_is_an_error_that_names_the_column(tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"text": ["x" * 7000, "y"]}), path)
    with pytest.raises(BatchTooLarge, match="text"):
        lance.dataset(path, session=Session(Limits(offset_limit=6000))).to_table()


@pytest.mark.parametrize("version", VERSIONS)
def test_e17_json_inside_structs_inside_lists(version: str, tmp_path: Path, peer: Peer) -> None:
    """What the official writer stored is read; what we write it reads, or we refuse it by name."""
    texts = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a":1}', "[1,2]", None, '"x"']))
    lists = pa.ListArray.from_arrays([0, 2, 2, 4], pa.StructArray.from_arrays([texts], ["j"]))
    table, path = one(lists), str(tmp_path / "peer.lance")
    peer("result = lance.write_dataset(t, p, data_storage_version=v) and None", t=table, p=path, v=version)
    found = lance.dataset(path).to_table()["c"].to_pylist()
    assert [len(row) for row in found] == [2, 0, 2]
    assert [item["j"] is None for row in found for item in row] == [False, False, True, False]
    assert [len(r) for r in lance.dataset(path).take([2, 0])["c"].to_pylist()] == [2, 2]
    ours = str(tmp_path / "ours.lance")
    try:
        lance.write_dataset(table, ours, data_storage_version=version)
    except TiltyardError as refused:
        assert "json" in str(refused).lower()  # noqa: PT017
        assert not Path(ours, "_versions").exists()
    else:
        assert peer("lance.dataset(p).to_table()['c'].to_pylist()", p=ours) == table["c"].to_pylist()


EDGES = (0, 1, 1023, 1024, 1025, 2741, 4095, 4096, 4097)


@pytest.mark.parametrize("rows", EDGES)
def test_e18_sizes_at_the_edge_of_a_block(rows: int, tmp_path: Path, peer: Peer) -> None:
    rng = np.random.default_rng(rows)
    kinds = {
        "integers": pa.int32(),
        "texts": pa.string(),
        "lists": pa.list_(pa.int16()),
        "lists_of_binary": pa.list_(pa.binary(32)),
        "bools": pa.bool_(),
        "dictionary": pa.dictionary(pa.int16(), pa.string()),
    }
    table = pa.table({name: random_array(kind, rows, rng, 0.1) for name, kind in kinds.items()})
    identical_everywhere(table, tmp_path, peer)


def test_e20_one_column_of_five_thousand(tmp_path: Path, peer: Peer) -> None:
    path = str(tmp_path / "t.lance")
    table = pa.table({f"c{i}": pa.array([i], pa.int32()) for i in range(5000)})
    lance.write_dataset(table, path)
    assert lance.dataset(path).to_table(columns=["c4711"]).to_pydict() == {"c4711": [4711]}
    assert peer("lance.dataset(p).to_table(columns=['c4711', 'c0']).to_pydict()", p=path) == {
        "c4711": [4711],
        "c0": [0],
    }
    theirs = str(tmp_path / "u.lance")
    peer("result = lance.write_dataset(t, p) and None", t=table, p=theirs)
    assert lance.dataset(theirs).take([0], columns=["c4999"]).to_pydict() == {"c4999": [4999]}
