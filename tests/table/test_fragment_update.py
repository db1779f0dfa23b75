"""New values for columns of one fragment, joined by key and committed by hand, by either package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from peer import Peer
from tiltyard.errors import FieldNotFound, InvalidInput, RetryableConflict, SchemaMismatch

VERSION = "_row_last_updated_at_version"


@pytest.fixture(params=[False, True], ids=["addresses", "stable"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    path = str(tmp_path / "t.lance")
    table = pa.table(
        {
            "k": pa.array([None, 1, 2, 3, 4, 5, 6, 7], pa.int64()),
            "s": list("abcdefgh"),
            "l": pa.array([[i] if i % 2 else None for i in range(8)], pa.list_(pa.int32())),
        }
    )
    lance.write_dataset(table, path, max_rows_per_file=4, enable_stable_row_ids=request.param)
    lance.dataset(path).delete("k = 2")
    return path


def rows(path: str, peer: Peer) -> list[dict[str, Any]]:
    found = lance.dataset(path).to_table().to_pylist()
    assert peer("lance.dataset(p).to_table().to_pylist()", p=path) == found
    return found


def commit(path: str, fragment: Any, fields: list[int], offsets: bytes) -> Any:
    operation = lance.LanceOperation.Update(
        updated_fragments=[fragment],
        fields_modified=fields,
        update_mode="rewrite_columns",
        updated_fragment_offsets={fragment.id: offsets},
    )
    return lance.LanceDataset.commit(path, operation, read_version=2)


def test_rows_with_a_partner_take_its_values(path: str, peer: Peer) -> None:
    ds = lance.dataset(path)
    data = pa.table({"key": pa.array([3, None, 2, 1, 1], pa.int32()), "s": ["x", "n", "y", None, "z"]})
    done = ds.get_fragment(0).update_columns(data, "k", "key", with_offsets=True)
    assert done[1] == [1]
    ds = commit(path, *done)
    assert [row["s"] for row in rows(path, peer)] == ["a", None, "x", *"efgh"]
    if ds.has_stable_row_ids:
        assert ds.to_table(columns=[VERSION])[VERSION].to_pylist() == [1, 3, 3, 1, 1, 1, 1]


def test_by_row_id_and_several_columns(path: str, peer: Peer) -> None:
    ds = lance.dataset(path)
    ids = ds.to_table(columns=["k", "_rowid"], filter="k IN (5, 7)")["_rowid"]
    data = pa.table({"_rowid": ids, "l": pa.array([[50], None], pa.list_(pa.int32())), "s": ["v", "w"]})
    done = ds.get_fragment(1).update_columns(data, with_offsets=True)
    commit(path, *done)
    found = rows(path, peer)[3:]
    assert [(row["k"], row["s"], row["l"]) for row in found] == [
        (4, "e", None),
        (5, "v", [50]),
        (6, "g", None),
        (7, "w", None),
    ]


def test_no_partner_changes_nothing(path: str, peer: Peer) -> None:
    before = rows(path, peer)
    fragment, fields = (
        lance.dataset(path).get_fragment(0).update_columns(pa.table({"k": [99], "s": ["q"]}), "k")
    )
    operation = lance.LanceOperation.Update(updated_fragments=[fragment], fields_modified=fields)
    lance.LanceDataset.commit(path, operation, read_version=2)
    assert rows(path, peer) == before


def test_the_official_package_commits_what_we_wrote_and_we_what_it_wrote(path: str, peer: Peer) -> None:
    fragment, fields = (
        lance.dataset(path).get_fragment(0).update_columns(pa.table({"k": [3], "s": ["q"]}), "k")
    )
    peer(
        """
import json
fragment = lance.fragment.FragmentMetadata.from_json(text)
operation = lance.LanceOperation.Update(updated_fragments=[fragment], fields_modified=fields)
lance.LanceDataset.commit(p, operation, read_version=2)
result = None
""",
        p=path,
        text=json_of(fragment),
        fields=fields,
    )
    assert [row["s"] for row in rows(path, peer)] == [*"abq", *"efgh"]
    text, fields = peer(
        """
import json
found = lance.dataset(p).get_fragment(1).update_columns(pa.table({"k": [6], "s": ["r"]}), "k")
result = json.dumps(found[0].to_json()), found[1]
""",
        p=path,
    )
    theirs = lance.FragmentMetadata.from_json(text)
    operation = lance.LanceOperation.Update(updated_fragments=[theirs], fields_modified=fields)
    lance.LanceDataset.commit(path, operation, read_version=3)
    assert [row["s"] for row in rows(path, peer)] == [*"abq", *"efrh"]


def json_of(fragment: Any) -> str:
    import json

    return json.dumps(fragment.to_json())


def test_a_change_of_the_fragment_meanwhile_is_a_conflict(path: str) -> None:
    fragment, fields = (
        lance.dataset(path).get_fragment(0).update_columns(pa.table({"k": [3], "s": ["q"]}), "k")
    )
    lance.dataset(path).delete("k = 1")
    operation = lance.LanceOperation.Update(updated_fragments=[fragment], fields_modified=fields)
    with pytest.raises(RetryableConflict):
        lance.LanceDataset.commit(path, operation, read_version=2)


def test_bad_data_writes_no_file(path: str) -> None:
    fragment = lance.dataset(path).get_fragment(0)
    before = sorted(Path(path, "data").iterdir())
    for data, options, error in (
        (pa.table({"k": [1], "nope": [1]}), {"left_on": "k"}, FieldNotFound),
        (pa.table({"k": [1]}), {"left_on": "k"}, InvalidInput),
        (pa.table({"k": [1], "_rowaddr": pa.array([1], pa.uint64())}), {"left_on": "k"}, InvalidInput),
        (pa.table({"key": [1], "k": [1]}), {"left_on": "k", "right_on": "key"}, InvalidInput),
        (pa.table({"k": [1], "s": ["q"]}), {}, FieldNotFound),
        (pa.table({"x": [1], "s": ["q"]}), {"left_on": "x"}, FieldNotFound),
        (pa.table({"k": [1], "s": [1]}), {"left_on": "k"}, SchemaMismatch),
        (pa.table({"k": ["one"], "s": ["q"]}), {"left_on": "k"}, SchemaMismatch),
    ):
        with pytest.raises(error):
            fragment.update_columns(data, **options)
    assert sorted(Path(path, "data").iterdir()) == before
