"""Damage on disk that a check must find and name (cases T01 and T02)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tiltyard.lance as lance
from peer import Peer
from tiltyard.cli import main
from tiltyard.errors import CorruptFile
from tiltyard.format.fragment import FragmentList
from tiltyard.format.manifest import Manifest, encode_manifest
from tiltyard.table import verify as verify_module
from tiltyard.table.verify import spans


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Version 1 and 2 hold a fragment each, 3 deletes from the first, 4 has an index on both."""
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": range(10)}), path)
    lance.write_dataset(pa.table({"id": range(10, 20)}), path, mode="append")
    table = lance.dataset(path)
    table.delete("id = 3")
    table.create_scalar_index("id", "BTREE")
    return path


def rewrite_newest(path: str, change: Callable[[Manifest], Manifest]) -> None:
    """Put a changed manifest in the place of the newest one, as another writer's mistake would leave it."""
    held = lance.dataset(path)._held
    data = b"".join(bytes(part) for part in encode_manifest(change(held.manifest), None))
    Path(path, held.location.path).write_bytes(data)


def file_of(version: int, fragment: int, path: str) -> Path:
    found = lance.dataset(path, version=version).get_fragment(fragment)
    assert found is not None
    return Path(path, "data", found.data_files()[0].path)


def the_finding(path: str, **how: Any) -> Any:
    (found,) = lance.dataset(path, version=1).verify(**how).findings
    return found


def test_t02_a_whole_table_is_whole(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = lance.dataset(path).verify(checksums=True)
    assert report.findings == ()
    assert (report.versions, report.checksummed, report.unsummed) == (4, 2, 0)
    lance.dataset(path).validate(checksums=True)
    assert main(["verify", path, "--checksums"]) == 0
    assert "4 versions" in capsys.readouterr().out


def test_t02_a_removed_data_file_is_named_with_its_versions(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = file_of(2, 1, path)
    lost.unlink()
    found = the_finding(path)
    assert (found.about, found.versions) == ("data file", (2, 3, 4))
    assert lost.name in found.path
    assert "missing" in found.problem
    assert "version 1" in found.remedy
    assert main(["verify", path]) == 1
    assert lost.name in capsys.readouterr().out
    assert main(["verify", path, "--at", "1"]) == 0
    with pytest.raises(CorruptFile, match=lost.name):
        lance.dataset(path).validate()
    lance.dataset(path, version=1).validate()
    with pytest.raises(CorruptFile, match="missing"):
        lance.dataset(path).get_fragments()[1].validate()
    lance.dataset(path).get_fragments()[0].validate()


def test_t02_a_cut_data_file_is_found_by_its_size(path: str) -> None:
    lance.dataset(path).to_table()  # what a session keeps of the whole file is not believed
    cut = file_of(1, 0, path)
    cut.write_bytes(cut.read_bytes()[:-1])
    assert the_finding(path).versions == (1, 2, 3, 4)


def test_t02_a_removed_deletion_file_is_named(path: str) -> None:
    lance.dataset(path).to_table()
    (lost,) = Path(path, "_deletions").iterdir()
    lost.unlink()
    found = the_finding(path)
    assert (found.about, found.versions) == ("deletion file", (3, 4))
    assert lost.name in found.path


def test_t02_a_removed_index_file_is_named_with_how_to_build_it_again(path: str) -> None:
    lost = next(Path(path, "_indices").rglob("*.lance"))
    lost.unlink()
    found = the_finding(path)
    assert (found.about, found.versions) == ("index", (4,))
    assert lost.name in found.path
    assert "drop_index('id_idx')" in found.remedy


def test_t02_a_wrong_row_count_in_the_manifest_is_found(path: str) -> None:
    def lie(manifest: Manifest) -> Manifest:
        first, *others = manifest.fragments
        return replace(manifest, fragments=FragmentList.of([replace(first, physical_rows=11), *others]))

    rewrite_newest(path, lie)
    found = the_finding(path)
    assert found.versions == (4,)
    assert "10 rows" in found.problem
    assert "11" in found.problem


def test_t02_overlapping_fragment_ids_are_found(path: str) -> None:
    def lie(manifest: Manifest) -> Manifest:
        first, second = manifest.fragments
        return replace(manifest, fragments=FragmentList.of([first, replace(second, id=first.id)]))

    rewrite_newest(path, lie)
    found = the_finding(path)
    assert (found.about, found.versions) == ("manifest", (4,))
    assert "two fragments have id 0" in found.problem


def test_t02_a_data_file_of_two_fragments_is_found(path: str) -> None:
    def lie(manifest: Manifest) -> Manifest:
        first, _ = manifest.fragments
        return replace(manifest, fragments=FragmentList.of([first, replace(first, id=1, deletion=None)]))

    rewrite_newest(path, lie)
    assert "fragments 0 and 1" in the_finding(path).problem


def test_t02_duplicate_index_names_are_found(path: str) -> None:
    rewrite_newest(path, lambda manifest: replace(manifest, indices=manifest.indices * 2))
    found = the_finding(path)
    assert (found.about, found.versions) == ("index", (4,))
    assert "there 2 times" in found.problem


def test_t02_a_damaged_manifest_is_named_and_the_others_are_looked_at(path: str) -> None:
    newest = Path(path, lance.dataset(path)._held.location.path)
    newest.write_bytes(newest.read_bytes()[:40])
    found = the_finding(path)
    assert (found.about, found.versions) == ("manifest", (4,))
    assert newest.name in found.path
    assert main(["verify", path]) == 1


def test_t01_a_flipped_bit_is_found_where_checksums_are_asked_for(tmp_path: Path) -> None:
    path = str(tmp_path / "bits.lance")
    values = np.random.default_rng(7).integers(0, 1 << 40, 100_000)
    lance.write_dataset(pa.table({"x": values}), path)
    (data,) = Path(path, "data").iterdir()
    raw = bytearray(data.read_bytes())
    raw[len(raw) // 3] ^= 1
    data.write_bytes(raw)
    assert lance.dataset(path).verify().findings == ()
    found = the_finding(path, checksums=True)
    assert found.versions == (1,)
    assert "checksum" in found.problem
    with pytest.raises(CorruptFile, match="checksum"):
        lance.dataset(path).validate(checksums=True)
    assert main(["verify", path, "--checksums"]) == 1


def test_t01_a_flipped_bit_of_an_index_is_found_where_checksums_are_asked_for(path: str) -> None:
    (file,) = Path(path, "_indices").glob("*/page_data.lance")
    data = bytearray(file.read_bytes())
    data[data.index((5).to_bytes(8, "little"))] = 6
    file.write_bytes(data)
    assert lance.dataset(path).verify().findings == ()
    (found,) = lance.dataset(path).verify(checksums=True).findings
    assert (found.about, found.versions) == ("index", (4,))
    assert "page_data.lance" in found.path
    assert "checksum" in found.problem
    assert "drop_index('id_idx')" in found.remedy


def test_a_table_of_the_official_package_is_whole_and_has_no_checksums(path: str, peer: Peer) -> None:
    other = path.replace("t.lance", "peer.lance")
    source = """
lance.write_dataset(t, p, max_rows_per_file=5)
ds = lance.dataset(p)
ds.delete('id = 7')
ds.create_scalar_index('id', 'BTREE')
ds.create_scalar_index('word', 'BITMAP')
result = None
"""
    peer(source, t=pa.table({"id": range(10), "word": ["a", "b"] * 5}), p=other)
    report = lance.dataset(other).verify(checksums=True)
    assert report.findings == ()
    assert (report.checksummed, report.unsummed) == (0, 2)


def test_t02_a_version_that_a_cleanup_takes_away_meanwhile_is_no_finding(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lance.dataset(path).insert(pa.table({"id": [1]}), mode="overwrite")
    read = verify_module.read_snapshot

    def read_then_clean(store: Any, session: Any, location: Any) -> Any:
        found = read(store, session, location)
        if location.version == 1:
            lance.dataset(path).cleanup_old_versions(timedelta(0), delete_unverified=True)
        return found

    monkeypatch.setattr(verify_module, "read_snapshot", read_then_clean)
    report = lance.dataset(path).verify()
    assert report.findings == ()
    assert report.versions == 1


def test_t02_a_detached_version_is_looked_at_too(path: str) -> None:
    fragments = lance.fragment.write_fragments(pa.table({"id": [7]}), path)
    operation = lance.LanceOperation.Append(fragments)
    apart = lance.LanceDataset.commit(path, operation, read_version=4, detached=True)
    assert lance.dataset(path).verify().versions == 5
    Path(path, "data", fragments[0].files[0].path).unlink()
    assert the_finding(path).versions == (apart.version,)


@pytest.mark.parametrize(
    ("versions", "told"),
    [((3,), "version 3"), ((1, 2, 3), "versions 1-3"), ((1, 2, 4, 6, 7), "versions 1-2, 4, 6-7")],
)
def test_versions_are_told_as_spans(versions: tuple[int, ...], told: str) -> None:
    assert spans(versions) == told
