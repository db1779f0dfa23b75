"""New columns of fragments, made one fragment at a time and committed together; pylance reads the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from peer import Peer
from tiltyard import lance as tl
from tiltyard.errors import FieldNotFound, InvalidInput, SchemaMismatch


def _table(path: Path, rows: int = 100, **options: Any) -> tl.LanceDataset:
    table = pa.table({"a": range(rows), "s": [None if i % 9 == 0 else f"k{i}" for i in range(rows)]})
    return tl.write_dataset(table, path, max_rows_per_file=40, **options)


def _merged(ds: tl.LanceDataset, add: Any) -> tl.LanceDataset:
    """The dataset after `add` has given every fragment new columns."""
    made = [add(fragment) for fragment in ds.get_fragments()]
    operation = tl.LanceOperation.Merge([fragment for fragment, _ in made], made[-1][1])
    return tl.LanceDataset.commit(ds.uri, operation, read_version=ds.version)


def _alike(peer: Peer, ds: tl.LanceDataset, expected: pa.Table) -> None:
    assert ds.to_table().equals(expected)
    theirs = peer("ds = lance.dataset(p); ds.validate(); result = ds.to_table()", p=ds.uri)
    assert theirs.combine_chunks().equals(expected.combine_chunks())
    ds.validate()


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("where", ["a < 0", "a % 3 = 0 OR a IN (38, 39, 40, 98, 99)"])
def test_columns_by_expression_function_and_data(
    peer: Peer, tmp_path: Path, stable: bool, where: str
) -> None:
    ds = _table(tmp_path / "t", enable_stable_row_ids=stable)
    ds.delete(where)
    ds = _merged(ds, lambda fragment: fragment.merge_columns({"b": "a + 1", "c": "upper(s)"}))
    expected = ds.to_table(["a", "s"])
    expected = expected.append_column("b", pc.add(expected["a"], 1))
    expected = expected.append_column("c", pc.utf8_upper(expected["s"]))
    _alike(peer, ds, expected)

    def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
        assert batch.num_rows <= 7
        assert batch.schema.names == ["b"]
        return pa.record_batch({"d": pc.multiply(batch["b"], 2)})

    ds = _merged(ds, lambda fragment: fragment.merge_columns(doubled, columns=["b"], batch_size=7))
    expected = expected.append_column("d", pc.multiply(expected["b"], 2))
    _alike(peer, ds, expected)

    def given(fragment: tl.LanceFragment) -> Any:
        rows = fragment.count_rows()
        batches = iter([pa.record_batch({"e": list(range(n, min(n + 6, rows)))}) for n in range(0, rows, 6)])
        return fragment.merge_columns(batches, reader_schema=pa.schema([("e", pa.int64())]))

    counts = [fragment.count_rows() for fragment in ds.get_fragments()]
    ds = _merged(ds, given)
    expected = expected.append_column("e", pa.array([n for count in counts for n in range(count)]))
    _alike(peer, ds, expected)
    ds.delete("e = 1")
    assert ds.take([0, 1, 2]).to_pylist() == ds.to_table().slice(0, 3).to_pylist()


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("on", ["a", "s", "_rowid", "_rowaddr"])
def test_columns_by_join(peer: Peer, tmp_path: Path, on: str, stable: bool) -> None:
    ds = _table(tmp_path / "t", enable_stable_row_ids=stable)
    ds.delete("a % 4 = 2")
    keys = ds.to_table([on], "a % 5 > 0", with_row_id=on == "_rowid", with_row_address=on == "_rowaddr")[on]
    data = pa.table(
        {"k": keys, "x": [f"of {key}" for key in keys.to_pylist()], "v": [[i] for i in range(len(keys))]}
    )
    twice = pa.concat_tables([data, data.set_column(1, "x", pa.array(["second"] * len(data)))])
    shown = ds.to_table(["a", "s"])
    found = dict(zip(keys.to_pylist(), data.drop_columns(["k"]).to_pylist(), strict=True))
    left = ds.to_table([on])[on].to_pylist()
    ds = _merged(ds, lambda fragment: fragment.merge(twice, on, "k"))
    nothing = {"x": None, "v": None}
    want = [nothing if key is None else found.get(key, nothing) for key in left]
    expected = shown.append_column("x", pa.array([each["x"] for each in want]))
    expected = expected.append_column("v", pa.array([each["v"] for each in want], pa.list_(pa.int64())))
    _alike(peer, ds, expected)


def test_ids_of_dropped_columns_are_not_given_out_again(peer: Peer, tmp_path: Path) -> None:
    ds = _table(tmp_path / "t")
    peer("ds = lance.dataset(p); ds.drop_columns(['s']); result = 0", p=ds.uri)
    ds = _merged(tl.dataset(ds.uri), lambda fragment: fragment.merge_columns({"s": "a * 2"}))
    assert [field.id() for field in ds.lance_schema.fields()] == [0, 2]
    _alike(peer, ds, pa.table({"a": range(100), "s": range(0, 200, 2)}))


COMMIT = """
import json
from lance.fragment import FragmentMetadata
from lance.schema import LanceSchema
made = [FragmentMetadata.from_json(each) for each in fragments]
operation = lance.LanceOperation.Merge(made, LanceSchema.from_pyarrow(schema))
ds = lance.LanceDataset.commit(p, operation, read_version=1)
result = ds.to_table()
"""


def test_pylance_commits_fragments_of_ours(peer: Peer, tmp_path: Path) -> None:
    ds = _table(tmp_path / "t")
    texts = []
    for fragment in ds.get_fragments():
        made, schema = fragment.merge_columns({"b": "a + 1"})
        assert made.id == fragment.fragment_id
        assert [file.fields for file in made.files] == [[0, 1], [2]]
        texts.append(json.dumps(made.to_json()))
        assert tl.FragmentMetadata.from_json(texts[-1]) == made
    assert tl.dataset(ds.uri).schema.names == ["a", "s"]
    committed = peer(COMMIT, p=ds.uri, fragments=texts, schema=schema.to_pyarrow())
    assert committed["b"].to_pylist() == list(range(1, 101))
    assert tl.dataset(ds.uri).to_table().equals(committed)


def test_what_does_not_fit_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    ds = _table(tmp_path / "t")
    ds.delete("a = 3")
    fragment = ds.get_fragments()[0]
    before = sorted(each.name for each in (tmp_path / "t" / "data").iterdir())
    one = pa.record_batch({"n": [1]})
    changing = iter(["n", "m"])
    refused: list[tuple[type[Exception], str, Any]] = [
        (InvalidInput, "column 'A' exists in the table already", lambda: fragment.merge_columns({"A": "1"})),
        (InvalidInput, "exists in the table", lambda: fragment.merge(pa.table({"a": [1], "s": ["x"]}), "a")),
        (InvalidInput, "there is no new column", lambda: fragment.merge(pa.table({"a": [1]}), "a")),
        (FieldNotFound, "no column 'k'", lambda: fragment.merge(pa.table({"a": [1]}), "a", "k")),
        (FieldNotFound, "nope", lambda: fragment.merge(pa.table({"nope": [1], "x": [1]}), "nope")),
        (FieldNotFound, "nope", lambda: fragment.merge_columns({"n": "nope + 1"})),
        (SchemaMismatch, "do not join", lambda: fragment.merge(pa.table({"a": ["x"], "n": [1]}), "a")),
        (InvalidInput, "Stream ended before", lambda: fragment.merge_columns(pa.table({"n": range(38)}))),
        (InvalidInput, "Stream produced more", lambda: fragment.merge_columns(pa.table({"n": range(40)}))),
        (InvalidInput, "gave 1 rows for 39", lambda: fragment.merge_columns(lambda batch: one)),
        (InvalidInput, "must give a pyarrow", lambda: fragment.merge_columns(lambda batch: [1])),
        (
            InvalidInput,
            "Output schema of function does not match",
            lambda: fragment.merge_columns(
                lambda batch: pa.record_batch({next(changing): batch["a"]}), batch_size=20
            ),
        ),
        (InvalidInput, "batch_size", lambda: fragment.merge_columns({"n": "1"}, batch_size=0)),
    ]
    for kind, message, attempt in refused:
        with pytest.raises(kind, match=message):
            attempt()
    assert sorted(each.name for each in (tmp_path / "t" / "data").iterdir()) == before
