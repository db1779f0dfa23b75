"""B-tree indices answer as the values themselves would, whatever their type, order and page size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index.index_values import VALUES, answers, array_of, plain
from tiltyard.errors import CorruptFile, InvalidInput, ObjectNotFound, UnsupportedFeature
from tiltyard.expr.index_query import EVERYTHING, ColumnQuery, Range
from tiltyard.file import FileWriter, read_file
from tiltyard.format.schema import Schema
from tiltyard.index.btree import BTree, BuildLimits, build, join, merge, open_btree, remap
from tiltyard.index.btree.layout import LOOKUP_FILE, PAGES_FILE
from tiltyard.index.order import order_of
from tiltyard.session import Session
from tiltyard.store import Store
from tiltyard.store.memory import MemoryStore, Space

DIRECTORY = "_indices/one"
KINDS = list(VALUES)


def _store() -> Store:
    return MemoryStore(Space(""))


def _blocks(array: pa.Array, ids: Any, rows: int) -> Iterator[tuple[pa.Array, Any]]:
    for start in range(0, len(array), rows):
        yield array.slice(start, rows), ids[start : start + rows]


def _built(
    array: pa.Array, ids: Any = None, *, page_rows: int = 4, run_bytes: int = 1 << 20, block_rows: int = 7
) -> BTree:
    store = _store()
    ids = np.arange(len(array), dtype=np.uint64) if ids is None else ids
    limits = BuildLimits(run_bytes=run_bytes, held_bytes=2 * run_bytes, page_rows=page_rows)
    build(store, DIRECTORY, _blocks(array, ids, block_rows), array.type, limits=limits)
    return open_btree(store, DIRECTORY, Session())


@st.composite
def _questions(draw: Any, kind: pa.DataType) -> ColumnQuery:
    known = [plain(value) for value in VALUES[kind] if value is not None]
    value = st.sampled_from(known)
    if pa.types.is_fixed_size_binary(kind):
        value = st.one_of(value, st.sampled_from([b"", b"a", b"abc", b"\xff\xff\xff"]))
    if pa.types.is_integer(kind):
        value = st.one_of(value, st.sampled_from([-(2**70), 2**70]))
    end = st.one_of(st.none(), value)
    spans = st.builds(Range, end, end, st.booleans(), st.booleans())
    return ColumnQuery(
        ("c",),
        kind,
        tuple(draw(st.lists(spans, max_size=2))),
        tuple(draw(st.lists(value, max_size=draw(st.sampled_from([1, 3, 40]))))),
        draw(st.booleans()),
    )


@given(st.data())
@settings(max_examples=12)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_an_answer_is_that_of_every_value_looked_at(kind: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.sampled_from(VALUES[kind]), max_size=60))
    run_bytes = data.draw(st.sampled_from([1, 200, 1 << 20]))
    tree = _built(array_of(kind, values), page_rows=data.draw(st.integers(1, 9)), run_bytes=run_bytes)
    for _ in range(4):
        query = data.draw(_questions(kind))
        expected = [row for row, value in enumerate(values) if answers(query, value)]
        found = tree.search(query)
        assert found.dtype == np.uint64
        assert found.tolist() == expected
        assert tree.count(query) == len(expected)
        assert len(expected) <= tree.estimate(query) <= len(values)


@given(st.data())
@settings(max_examples=6)
@pytest.mark.parametrize(
    ("kind", "rows_a_key"),
    [(kind, join.ROWS_A_KEY) for kind in KINDS] + [(kind, 0) for kind in KINDS if order_of(kind).is_text],
    ids=str,
)
def test_many_keys_find_the_rows_of_each(kind: pa.DataType, rows_a_key: int, data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(join, "ROWS_A_KEY", rows_a_key)
        _check_keys(kind, data)


def _check_keys(kind: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.sampled_from(VALUES[kind]), max_size=60))
    keys = data.draw(st.lists(st.sampled_from(VALUES[kind]), max_size=60))
    tree = _built(array_of(kind, values), page_rows=data.draw(st.integers(1, 9)))
    positions, ids = tree.find(array_of(kind, keys))
    expected = [
        (position, row)
        for position, key in enumerate(keys)
        if key is not None
        for row, value in enumerate(values)
        if answers(ColumnQuery(("c",), kind, values=(plain(key),)), value)
    ]
    assert sorted(zip(positions.tolist(), ids.tolist(), strict=True)) == expected


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_entries_come_in_order_with_nulls_first_and_the_lookup_tells_the_pages(
    kind: pa.DataType,
) -> None:
    rng = np.random.default_rng(1)
    values = [VALUES[kind][i] for i in rng.integers(0, len(VALUES[kind]), 50)]
    array = array_of(kind, values)
    store = _store()
    # Runs of a few values each, so that many are merged.
    limits = BuildLimits(run_bytes=60, held_bytes=200, page_rows=8)
    built = build(store, DIRECTORY, _blocks(array, np.arange(50, dtype=np.uint64), 5), kind, limits=limits)
    assert {file.path: file.size for file in built.files} == {
        name: store.stat(f"{DIRECTORY}/{name}").size for name in (PAGES_FILE, LOOKUP_FILE)
    }
    tree = open_btree(store, DIRECTORY, Session())
    blocks = list(tree.entries())
    got = pa.concat_arrays([block for block, _ in blocks])
    ids = np.concatenate([ids for _, ids in blocks])
    assert sorted(ids.tolist()) == list(range(50))
    assert got.cast(got.type).equals(array.take(pa.array(ids))) or pa.types.is_floating(kind)
    nulls = array.null_count
    assert got.slice(0, nulls).null_count == nulls
    assert got.slice(nulls).null_count == 0
    keys: Any = order_of(kind).keys(got.slice(nulls))
    listed = [keys.at(i) for i in range(len(keys))] if hasattr(keys, "at") else keys.tolist()
    assert listed == sorted(listed)
    lookup = _read(store, LOOKUP_FILE)
    assert lookup["page_idx"].to_pylist() == list(range(7))
    assert sum(lookup["null_count"].to_pylist()) == nulls
    for page in range(7):
        rows = got.slice(page * 8, 8)
        assert repr(lookup["min"].chunk(0)[page]) == repr(rows[0])
        assert repr(lookup["max"].chunk(0)[page]) == repr(rows[len(rows) - 1])


def _read(store: Store, name: str) -> pa.Table:
    path = f"{DIRECTORY}/{name}"
    file = read_file(store.map(path), path, Session())
    arrays = file.read(file.schema.fields, None, slice(None))
    return pa.Table.from_arrays([pa.chunked_array([each]) for each in arrays], schema=file.schema.arrow)


def test_an_index_without_rows_answers_nothing() -> None:
    tree = _built(pa.array([], pa.int64()))
    query = ColumnQuery(("c",), pa.int64(), (EVERYTHING,), (1,), True)
    assert tree.search(query).tolist() == []
    assert tree.estimate(query) == 0
    assert list(tree.entries()) == []
    assert [each.tolist() for each in tree.find(pa.array([1, None]))] == [[], []]
    assert not tree.statistics.max.is_valid


def test_an_index_of_nulls_alone_finds_them_and_nothing_else() -> None:
    tree = _built(pa.nulls(20, pa.string()), page_rows=8)
    assert len(tree.search(ColumnQuery(("c",), pa.string(), nulls=True))) == 20
    assert len(tree.search(ColumnQuery(("c",), pa.string(), (EVERYTHING,), ("a",)))) == 0
    assert tree.statistics.nulls == 20


def test_rows_leave_and_move_when_an_index_is_merged_or_gets_other_row_ids() -> None:
    store, session = _store(), Session()
    build(store, "a", [(pa.array([3, None, 1]), np.array([0, 1, 2], np.uint64))], pa.int64())
    build(store, "b", [(pa.array([2, 1, None]), np.array([10, 11, 12], np.uint64))], pa.int64())
    trees = [open_btree(store, name, session) for name in "ab"]
    fresh = [(pa.array([1, 9]), np.array([20, 21], np.uint64))]
    built = merge(
        store,
        "c",
        [(trees[0], lambda ids: (ids != 0, ids[ids != 0])), (trees[1], lambda ids: (None, ids))],
        fresh,
        pa.int64(),
        index_version=1,
    )
    assert (built.rows, built.index_version) == (7, 1)
    merged = open_btree(store, "c", session)
    one = ColumnQuery(("c",), pa.int64(), values=(1,))
    assert merged.search(one).tolist() == [2, 11, 20]
    assert merged.search(ColumnQuery(("c",), pa.int64(), nulls=True)).tolist() == [1, 12]
    remap(store, "d", merged, lambda ids: (ids > 2, ids[ids > 2] + 100))
    moved = open_btree(store, "d", session)
    assert moved.search(one).tolist() == [111, 120]
    assert moved.rows == 5


def test_a_search_leaves_what_it_gave_before_alone() -> None:
    tree = _built(pa.array([5, 3, 5]))
    query = ColumnQuery(("c",), pa.int64(), values=(5,))
    first = tree.search(query)
    first[:] = 99
    assert tree.search(query).tolist() == [0, 2]


def test_a_build_that_fails_leaves_no_file() -> None:
    store = _store()

    def values() -> Iterator[tuple[pa.Array, Any]]:
        yield pa.array([1, 2]), np.array([0, 1], np.uint64)
        raise RuntimeError("the scan failed")

    with pytest.raises(RuntimeError, match="the scan failed"):
        build(store, DIRECTORY, values(), pa.int64(), limits=BuildLimits(run_bytes=1))
    assert store.list() == []


def test_types_that_have_no_order_are_refused_by_name() -> None:
    for kind in (pa.list_(pa.int64()), pa.struct([]), pa.null(), pa.dictionary(pa.int8(), pa.string())):
        with pytest.raises(UnsupportedFeature, match="a B-tree index cannot be on values of type"):
            build(_store(), DIRECTORY, [], kind)
    with pytest.raises(UnsupportedFeature, match="width 0"):
        order_of(pa.binary(0))
    with pytest.raises(InvalidInput, match="page_rows must be a number of at least 1"):
        BuildLimits(page_rows=0)


def test_questions_about_another_type_are_refused() -> None:
    tree = _built(pa.array([1]))
    with pytest.raises(InvalidInput, match="a question about string"):
        tree.search(ColumnQuery(("c",), pa.string(), values=("a",)))
    with pytest.raises(InvalidInput, match="keys of type string"):
        tree.find(pa.array(["a"]))


# -- damage ----------------------------------------------------------------------------------------


def _rewritten(store: Store, name: str, table: pa.Table) -> None:
    """Put another table in the place of a file of the index."""
    path = f"{DIRECTORY}/{name}"
    store.delete(path)
    with FileWriter(store, path, Schema.from_arrow(table.schema)) as file:
        for batch in table.to_batches():
            file.write(batch)
        file.close()


def _damaged(name: str, change: Any) -> BTree:
    store = _store()
    array = pa.array([None, 1, 2, 3, 4, 5, 6, 7])
    limits = BuildLimits(page_rows=3)
    build(store, DIRECTORY, [(array, np.arange(8, dtype=np.uint64))], array.type, limits=limits)
    _rewritten(store, name, change(_read(store, name)))
    return open_btree(store, DIRECTORY, Session())


def _with(table: pa.Table, name: str, values: list[Any]) -> pa.Table:
    at = table.schema.get_field_index(name)
    field = table.schema.field(at)
    made = table.set_column(at, field, pa.chunked_array([pa.array(values, field.type)]))
    return made.replace_schema_metadata(table.schema.metadata)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: _with(t, "page_idx", [0, 1, 1]), "does not name every page once"),
        (lambda t: _with(t, "null_count", [0, 1, 0]), "nulls do not stand before"),
        (lambda t: _with(t, "max", [2, 1, 7]), "do not ascend"),
        (lambda t: _with(t, "max", [2, None, 7]), "is null"),
        (lambda t: t.slice(0, 2), "make 3 pages, the page lookup has 2"),
        (lambda t: t.select(["min", "max", "page_idx"]), "the page lookup has columns"),
        (lambda t: t.replace_schema_metadata({"batch_size": "0"}), "batch_size must be a positive number"),
        (lambda t: t.replace_schema_metadata({"batch_size": "x"}), "batch_size must be a positive number"),
    ],
)
def test_a_page_lookup_that_cannot_be_is_named(change: Any, message: str) -> None:
    with pytest.raises(CorruptFile, match=message) as caught:
        _damaged(LOOKUP_FILE, change)
    assert str(caught.value.path) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: _with(t, "values", [None, 2, 1, 3, 4, 5, 6, 7]), "is not in order"),
        (lambda t: _with(t, "values", [None, 1, 9, 3, 4, 5, 6, 7]), "does not end with"),
        (lambda t: _with(t, "values", [None, 1, 2, 2, 4, 5, 6, 7]), "does not begin with"),
        (lambda t: _with(t, "values", [None, 1, 2, 3, None, 5, 6, 7]), "holds nulls"),
    ],
)
def test_pages_that_do_not_fit_their_lookup_are_named(change: Any, message: str) -> None:
    tree = _damaged(PAGES_FILE, change)
    with pytest.raises(CorruptFile, match=message) as caught:
        tree.search(ColumnQuery(("c",), pa.int64(), values=(1, 2, 4)))
    assert PAGES_FILE in str(caught.value)


def test_indices_in_range_partitions_are_refused_by_name() -> None:
    metadata = {"batch_size": "3", "range_partitioned": "true"}
    with pytest.raises(UnsupportedFeature, match="range partitions"):
        _damaged(LOOKUP_FILE, lambda t: t.replace_schema_metadata(metadata))


@pytest.mark.parametrize("name", [LOOKUP_FILE, PAGES_FILE])
def test_a_file_that_is_cut_short_or_missing_is_named(name: str) -> None:
    store = _store()
    build(store, DIRECTORY, [(pa.array([1, 2]), np.arange(2, dtype=np.uint64))], pa.int64())
    path = f"{DIRECTORY}/{name}"
    data = store.read(path).to_pybytes()
    store.put(path, data[: len(data) // 2])
    with pytest.raises(CorruptFile, match=name):
        open_btree(store, DIRECTORY, Session())
    store.delete(path)
    with pytest.raises(ObjectNotFound, match=name):
        open_btree(store, DIRECTORY, Session())


def test_every_byte_of_an_index_may_be_wrong() -> None:
    store = _store()
    build(store, DIRECTORY, [(pa.array([None, *range(40)]), np.arange(41, dtype=np.uint64))], pa.int64())
    query = ColumnQuery(("c",), pa.int64(), (Range(3, 20),), nulls=True)
    for name in (LOOKUP_FILE, PAGES_FILE):
        path = f"{DIRECTORY}/{name}"
        good = store.read(path).to_pybytes()
        for at in range(0, len(good), 5):
            store.put(path, good[:at] + bytes([good[at] ^ 0x5A]) + good[at + 1 :])
            try:
                open_btree(store, DIRECTORY, Session()).search(query)
            except (CorruptFile, UnsupportedFeature, ObjectNotFound, InvalidInput):
                continue
        store.put(path, good)
