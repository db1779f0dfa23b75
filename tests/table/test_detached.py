"""Detached versions: beside the chain, found by their number alone, by both implementations."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from peer import Peer
from tiltyard.errors import InvalidInput, UnsupportedFeature, VersionNotFound
from tiltyard.lance.fragment import write_fragments

BIT = 1 << 63
APPEND = lance.LanceOperation.Append


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"x": [0]}), path)
    return path


def appended(path: str, value: int, read_version: int) -> lance.LanceDataset:
    fragments = write_fragments(pa.table({"x": [value]}), path)
    return lance.LanceDataset.commit(path, APPEND(fragments), read_version=read_version, detached=True)


def test_a_detached_version_is_beside_the_chain(path: str, peer: Peer) -> None:
    apart = appended(path, 1, 1)
    assert apart.version & BIT
    assert apart.to_table()["x"].to_pylist() == [0, 1]
    assert lance.dataset(path).version == lance.dataset(path).latest_version == 1
    lance.write_dataset(pa.table({"x": [2]}), path, mode="append")
    further = appended(path, 3, apart.version)
    main = lance.dataset(path)
    assert main.to_table()["x"].to_pylist() == [0, 2]
    assert [each["version"] for each in main.versions()] == [1, 2]
    for version, rows in ((apart.version, [0, 1]), (further.version, [0, 1, 3])):
        assert main.checkout_version(version).to_table()["x"].to_pylist() == rows
        assert peer("lance.dataset(p, version=v).to_table()['x'].to_pylist()", p=path, v=version) == rows
    assert peer("lance.dataset(p).version", p=path) == 2


def test_detached_versions_of_the_official_package_are_read_and_built_on(path: str, peer: Peer) -> None:
    source = """
frag = lance.LanceFragment.create(p, t)
op = lance.LanceOperation.Append([frag])
result = lance.LanceDataset.commit(p, op, read_version=1, detached=True).version
"""
    version = peer(source, p=path, t=pa.table({"x": [1]}))
    assert lance.dataset(path, version=version).to_table()["x"].to_pylist() == [0, 1]
    assert appended(path, 2, version).to_table()["x"].to_pylist() == [0, 1, 2]


def test_a_cleanup_keeps_what_a_detached_version_names(path: str) -> None:
    apart = appended(path, 1, 1)
    main = lance.dataset(path)
    main.insert(pa.table({"x": [5]}), mode="overwrite")
    main.cleanup_old_versions(timedelta(0), delete_unverified=True)
    assert lance.dataset(path, version=apart.version).to_table()["x"].to_pylist() == [0, 1]


def test_what_makes_no_detached_version_is_refused_and_leaves_the_table_alone(
    path: str, tmp_path: Path
) -> None:
    fragments = write_fragments(pa.table({"x": [1]}), path)
    commit = lance.LanceDataset.commit
    with pytest.raises(VersionNotFound):
        commit(path, APPEND(fragments), read_version=7, detached=True)
    with pytest.raises(UnsupportedFeature, match="Restore"):
        commit(path, lance.LanceOperation.Restore(1), read_version=1, detached=True)
    with pytest.raises(InvalidInput, match="read_version"):
        commit(path, APPEND(fragments), read_version=BIT + 5)
    commit(path, APPEND(fragments), read_version=1)
    with pytest.raises(InvalidInput, match="already part of fragment"):
        commit(path, APPEND(fragments), read_version=2, detached=True)
    old = str(tmp_path / "old.lance")
    lance.write_dataset(pa.table({"x": [1]}), old, enable_v2_manifest_paths=False)
    with pytest.raises(UnsupportedFeature, match="old way"):
        commit(old, APPEND([]), read_version=1, detached=True)
    assert len(list(Path(path, "_versions").glob("d*"))) == 0
