"""Tables whose data files lie in several places: made, registered, written to; pylance reads and goes on."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from peer import Peer
from tiltyard import lance as tl
from tiltyard.errors import InvalidInput, SchemaMismatch, UnsupportedFeature
from tiltyard.lance import DatasetBasePath


def _rows(start: int, stop: int) -> pa.Table:
    return pa.table({"a": range(start, stop), "s": [f"text {i}" for i in range(start, stop)]})


def _bases(tmp_path: Path) -> list[DatasetBasePath]:
    return [
        DatasetBasePath(str(tmp_path / "one"), name="one"),
        DatasetBasePath(f"file://{tmp_path}/two", name="two", is_dataset_root=True),
    ]


def _made(tmp_path: Path, **options: Any) -> tl.LanceDataset:
    bases = _bases(tmp_path)
    return tl.write_dataset(
        _rows(0, 50), tmp_path / "t", initial_bases=bases, max_rows_per_file=10, **options
    )


def _files(directory: Path) -> int:
    return len(list(directory.glob("*.lance"))) if directory.exists() else 0


def _spread(tmp_path: Path) -> list[int]:
    """Data files at the root, in the first base, and in the second, which is laid out like a table."""
    return [_files(tmp_path / "t" / "data"), _files(tmp_path / "one"), _files(tmp_path / "two" / "data")]


def _alike(peer: Peer, ds: tl.LanceDataset, rows: int) -> None:
    found = ds.to_table()
    assert found["a"].to_pylist() == list(range(rows))
    assert peer("ds = lance.dataset(p); ds.validate(); result = ds.to_table()", p=ds.uri).equals(found)
    ds.validate()


@pytest.mark.parametrize(
    ("options", "spread"),
    [
        ({}, [5, 0, 0]),
        ({"target_bases": ["one"]}, [0, 5, 0]),
        ({"target_bases": ["two", "one"]}, [0, 2, 3]),
        ({"target_all_bases": True}, [2, 2, 1]),
        ({"target_all_bases": False}, [0, 3, 2]),
    ],
)
def test_files_go_to_the_bases_in_turns(
    peer: Peer, tmp_path: Path, options: dict[str, Any], spread: list[int]
) -> None:
    ds = _made(tmp_path, **options)
    assert _spread(tmp_path) == spread
    assert {id: (base.name, base.is_dataset_root) for id, base in ds.base_paths().items()} == {
        1: ("one", False),
        2: ("two", True),
    }
    _alike(peer, ds, 50)
    ids = peer("[f.data_files()[0].base_id for f in lance.dataset(p).get_fragments()]", p=ds.uri)
    assert ids == [fragment.data_files()[0].base_id for fragment in ds.get_fragments()]


def test_both_packages_go_on_with_each_others_bases(peer: Peer, tmp_path: Path) -> None:
    ds = _made(tmp_path, target_bases=["one"])
    ds.add_bases([DatasetBasePath(str(tmp_path / "three"), name="three")])
    assert ds.version == 2
    write = "lance.write_dataset(t, p, mode='append', target_bases=[b]); result = 0"  # by name, then by path
    peer(write, t=_rows(50, 60), p=ds.uri, b="three")
    ds = tl.write_dataset(_rows(60, 70), ds, mode="append", target_bases=[str(tmp_path / "three")])
    add = "ds = lance.dataset(p); ds.add_bases([lance.DatasetBasePath(b, name='four')]); result = 0"
    peer(add, p=ds.uri, b=str(tmp_path / "four"))
    ds = tl.write_dataset(_rows(70, 80), ds, mode="append", target_bases=["four"])
    _alike(peer, ds, 80)
    assert _files(tmp_path / "three") == 2
    assert _files(tmp_path / "four") == 1
    assert list(ds.base_paths()) == [1, 2, 3, 4]
    before = ds.to_table()
    ds.delete("a >= 75")
    ds.update({"s": "'changed'"}, "a = 3")
    ds.optimize.compact_files()
    ds.cleanup_old_versions(timedelta(0))
    assert ds.to_table().num_rows == 75
    assert _spread(tmp_path)[1] == 5  # what lies in bases stays
    assert peer("lance.dataset(p).count_rows()", p=ds.uri) == 75
    ds = tl.write_dataset(before, ds.uri, mode="overwrite", target_bases=["two"])
    _alike(peer, ds, 80)


def test_a_failed_write_leaves_nothing_in_bases(tmp_path: Path) -> None:
    ds = _made(tmp_path, target_all_bases=True)
    before = _spread(tmp_path)

    def batches() -> Any:
        yield from _rows(50, 70).to_batches(max_chunksize=5)
        raise ZeroDivisionError

    for kind, data in ((ZeroDivisionError, batches()), (SchemaMismatch, pa.table({"b": [1]}))):
        with pytest.raises(kind):
            tl.write_dataset(
                data, ds, mode="append", schema=ds.schema if kind is ZeroDivisionError else None,
                target_all_bases=True, max_rows_per_file=5,
            )  # fmt: skip
    assert _spread(tmp_path) == before
    assert ds.latest_version == 1


def test_what_is_refused(tmp_path: Path) -> None:
    bases = _bases(tmp_path)
    with pytest.raises(InvalidInput, match=r"target base 'three' not found among the bases of .*: one, two"):
        tl.write_dataset(_rows(0, 1), tmp_path / "t", initial_bases=bases, target_bases=["three"])
    assert not (tmp_path / "t").exists()
    ds = _made(tmp_path)
    refused: list[tuple[str, Any]] = [
        ("Cannot register new bases in Append mode", {"mode": "append", "initial_bases": bases}),
        ("is a table already", {"mode": "overwrite", "initial_bases": bases}),
        ("cannot be combined", {"mode": "append", "target_bases": ["one"], "target_all_bases": True}),
        ("target_bases must be a list of texts", {"mode": "append", "target_bases": "one"}),
    ]
    for message, options in refused:
        with pytest.raises(InvalidInput, match=message):
            tl.write_dataset(_rows(0, 1), ds, **options)
    with pytest.raises(InvalidInput, match=r"bases\[0\] must be a DatasetBasePath"):
        tl.write_dataset(_rows(0, 1), tmp_path / "new", initial_bases=["one"])
    plain = tl.write_dataset(_rows(0, 1), tmp_path / "plain")
    with pytest.raises(InvalidInput, match="has no bases"):
        tl.write_dataset(_rows(0, 1), plain, mode="append", target_all_bases=False)
    for twice in (
        [DatasetBasePath(str(tmp_path / "x"), name="one")],
        [DatasetBasePath(str(tmp_path / "one"))],
        [DatasetBasePath(str(tmp_path / "x"), id=2)],
        [DatasetBasePath(str(tmp_path / "x")), DatasetBasePath(str(tmp_path / "x"))],
    ):
        with pytest.raises(InvalidInput, match="exists already"):
            ds.add_bases(twice)
    with pytest.raises(InvalidInput, match="must be absolute or a URI"):
        DatasetBasePath("relative")
    with pytest.raises(UnsupportedFeature, match="base_store_params"):
        tl.write_dataset(_rows(0, 1), ds, mode="append", base_store_params={"x": {}})
    assert ds.add_bases([]) is ds
    assert ds.latest_version == 1
