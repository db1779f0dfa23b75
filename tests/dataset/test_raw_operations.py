"""Operations on columns and settings, committed by hand through either package and read by both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from peer import Peer, PeerError
from tiltyard.errors import CommitConflict, IncompatibleTransaction, InvalidInput, RetryableConflict
from tiltyard.lance.file import LanceFileWriter

OP = lance.LanceOperation


@pytest.fixture(params=[False, True], ids=["addresses", "stable"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    path = str(tmp_path / "t.lance")
    table = pa.table({"a": pa.array(range(6), pa.int64()), "b": list("uvwxyz")})
    lance.write_dataset(table, path, max_rows_per_file=3, enable_stable_row_ids=request.param)
    return path


def column_file(path: str, name: str, values: Any) -> str:
    with LanceFileWriter(str(Path(path, "data", name))) as writer:
        writer.write_batch(values)
    return name


def both(path: str, peer: Peer) -> dict[str, list[Any]]:
    found = lance.dataset(path).to_table().to_pydict()
    assert peer("lance.dataset(p).to_table().to_pydict()", p=path) == found
    return found


PEER_REPLACES = """
op = lance.LanceOperation.DataReplacement([
    lance.LanceOperation.DataReplacementGroup(1, lance.fragment.DataFile(name, [1], [0], 2, 2))
])
lance.LanceDataset.commit(p, op, read_version=v)
result = None
"""


def replacement(name: str, fragment: int = 1, field: int = 1) -> Any:
    file = lance.fragment.DataFile(name, [field], [0], 2, 2)
    return OP.DataReplacement([OP.DataReplacementGroup(fragment, file)])


@pytest.mark.parametrize("ours", [True, False])
def test_a_column_of_a_fragment_is_replaced(ours: bool, path: str, peer: Peer) -> None:
    name = column_file(path, "new.lance", pa.table({"b": ["X", "Y", "Z"]}))
    if ours:
        lance.LanceDataset.commit(path, replacement(name), read_version=1)
    else:
        peer(PEER_REPLACES, p=path, name=name, v=1)
    assert both(path, peer) == {"a": list(range(6)), "b": [*"uvw", *"XYZ"]}
    ds = lance.dataset(path)
    assert isinstance(ds.read_transaction(2).operation, OP.DataReplacement)
    ds.update({"b": "b || '!'"}, "a IN (2, 3)")
    assert sorted(both(path, peer)["b"]) == sorted(["u", "v", "w!", "X!", "Y", "Z"])


def test_a_replacement_conflicts_with_what_changed_its_rows(path: str, peer: Peer) -> None:
    name = column_file(path, "new.lance", pa.table({"b": ["X", "Y", "Z"]}))
    lance.dataset(path).update({"a": "a"}, "a = 4")
    with pytest.raises(RetryableConflict):
        lance.LanceDataset.commit(path, replacement(name), read_version=1)
    with pytest.raises(PeerError, match="onflict"):
        peer(PEER_REPLACES, p=path, name=name, v=1)
    lance.dataset(path).delete("a >= 3")
    with pytest.raises(CommitConflict):
        lance.LanceDataset.commit(path, replacement(name), read_version=2)
    assert both(path, peer) == {"a": [0, 1, 2], "b": list("uvw")}


def test_a_replacement_of_the_wrong_shape_is_refused(path: str, peer: Peer) -> None:
    name = column_file(path, "new.lance", pa.table({"b": ["X", "Y", "Z"]}))
    for bad in (replacement(name, fragment=9), replacement("missing.lance")):
        with pytest.raises((InvalidInput, CommitConflict)):
            lance.LanceDataset.commit(path, bad, read_version=1)
    assert lance.dataset(path).version == 1


def test_a_column_added_by_a_raw_merge_and_dropped_by_a_raw_projection(path: str, peer: Peer) -> None:
    ds = lance.dataset(path)
    fragments = []
    for fragment in ds.get_fragments():
        name = column_file(path, f"c{fragment.fragment_id}.lance", pa.table({"c": pa.array([1, 2, 3])}))
        metadata = fragment.metadata
        metadata.files.append(lance.fragment.DataFile(name, [2], [0], 2, 2))
        fragments.append(metadata)
    schema = pa.schema([*ds.schema, pa.field("c", pa.int64())])
    lance.LanceDataset.commit(path, OP.Merge(fragments, schema), read_version=1)
    assert both(path, peer)["c"] == [1, 2, 3] * 2
    lance.dataset(path).update({"c": "a * 10"}, "a = 5")
    assert both(path, peer)["c"] == [1, 2, 3, 1, 2, 50]
    kept = lance.schema.LanceSchema.from_pyarrow(pa.schema([schema.field("a")]))
    lance.LanceDataset.commit(path, OP.Project(kept), read_version=3)
    assert both(path, peer) == {"a": list(range(6))}


SETTINGS: list[tuple[str, str, tuple[Any, ...]]] = [
    ("config", "update_config", ({"k": "1", "other": None},)),
    ("table metadata", "update_metadata", ({"k": "1"},)),
    ("schema metadata", "update_schema_metadata", ({"k": "1"},)),
    ("field metadata", "update_field_metadata", ({"a": {"k": "1"}},)),
]
READ_SETTINGS = """
ds = lance.dataset(p)
result = {
    "config": {k: v for k, v in ds.config().items() if not k.startswith("lance.")},
    "table metadata": ds.metadata, "schema": {k: v for k, v in (ds.schema.metadata or {}).items()},
    "field": dict(ds.schema.field("a").metadata or {}),
}
"""


@pytest.mark.parametrize(("kind", "method", "given"), SETTINGS, ids=[each[0] for each in SETTINGS])
def test_settings_of_both_packages_stand_beside_each_other(
    kind: str, method: str, given: tuple[Any, ...], path: str, peer: Peer
) -> None:
    getattr(lance.dataset(path), method)(*given)
    theirs = {"a": {"k2": "2"}} if kind == "field metadata" else {"k2": "2"}
    peer(f"lance.dataset(p).{method}(given) and None", p=path, given=theirs)
    scope: dict[str, Any] = {"lance": lance, "p": path}
    exec(READ_SETTINGS, scope)
    assert scope["result"] == peer(READ_SETTINGS, p=path)
    assert "k2" in str(scope["result"])
    assert "'1'" in str(scope["result"])


def test_the_same_key_set_by_two_is_a_conflict_for_both(path: str, peer: Peer) -> None:
    stale = lance.dataset(path)
    lance.dataset(path).update_config({"k": "ours", "free": "1"})
    with pytest.raises(IncompatibleTransaction, match="config key k"):
        stale.update_config({"k": "late"})
    stale = lance.dataset(path, version=1)
    stale.update_config({"another": "2"})
    assert lance.dataset(path).config() == {"k": "ours", "free": "1", "another": "2"}
    with pytest.raises(PeerError, match=r"onflict|ncompatible"):
        peer("lance.dataset(p, version=1).update_config({'k': 'theirs'}) and None", p=path)
    assert peer("lance.dataset(p).config()", p=path) == lance.dataset(path).config()


def test_settings_do_not_disturb_changes_of_rows(path: str, peer: Peer) -> None:
    stale = lance.dataset(path)
    lance.dataset(path).update({"b": "'q'"}, "a = 1")
    stale.update_config({"k": "v"})
    peer("lance.dataset(p, version=1).update_metadata({'m': 'x'}) and None", p=path)
    ds = lance.dataset(path)
    assert (ds.config(), ds.metadata) == ({"k": "v"}, {"m": "x"})
    assert sorted(both(path, peer)["b"]) == sorted("uqwxyz")
