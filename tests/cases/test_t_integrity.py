"""Public bug reports about time travel, damage and bad input, tried on us (cases T03-T05, T07, T08; T06 is in
`races`, because it takes processes).
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from peer import Peer
from tiltyard.errors import (
    CorruptFile,
    InvalidInput,
    RowOutOfRange,
    TagNotFound,
    TiltyardError,
    VersionNotFound,
)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t.lance")


def three_versions(path: str) -> None:
    for number in range(3):
        lance.write_dataset(pa.table({"id": [number]}), path, mode="append" if number else "create")


def files(path: str) -> dict[str, bytes]:
    return {str(f): f.read_bytes() for f in Path(path).rglob("*") if f.is_file()}


@pytest.mark.parametrize("keep", [0.5, 0.05, 0.0])
@pytest.mark.parametrize("writer", ["ours", "peer"])
def test_t03_a_truncated_newest_manifest_is_named_with_the_last_good_version(
    writer: str, keep: float, path: str, peer: Peer
) -> None:
    if writer == "ours":
        three_versions(path)
    else:
        for number in range(3):
            mode = "append" if number else "create"
            peer(
                "result = lance.write_dataset(t, p, mode=m) and None",
                t=pa.table({"id": [number]}),
                p=path,
                m=mode,
            )
    newest = min(Path(path, "_versions").glob("*.manifest"))
    newest.write_bytes(newest.read_bytes()[: int(newest.stat().st_size * keep)])
    os.utime(newest, (1, 1))  # not a file that may still be in the making
    before = files(path)
    with pytest.raises(CorruptFile) as caught:
        lance.dataset(path)
    assert newest.name in str(caught.value)
    assert "2" in str(caught.value).replace(newest.name, "")
    assert lance.dataset(path, version=2).to_table()["id"].to_pylist() == [0, 1]
    assert files(path) == before


def test_t04_a_column_without_a_name_is_refused_when_it_is_written(path: str) -> None:
    with pytest.raises(InvalidInput):
        lance.write_dataset(pa.table({"": [1]}), path)
    with pytest.raises(InvalidInput):
        lance.write_dataset(pa.table({"s": pa.array([{"": 1}], pa.struct([("", pa.int8())]))}), path)
    assert not Path(path, "_versions").exists()


def test_t04_two_columns_of_one_name_are_refused(path: str) -> None:
    with pytest.raises(InvalidInput, match="a"):
        lance.write_dataset(pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), path)
    assert not Path(path, "_versions").exists()


@pytest.mark.parametrize("rows", [[4], [-1], [0, 4], [2**40]])
def test_t05_a_row_past_the_end_is_named_with_the_number_of_rows(rows: list[int], path: str) -> None:
    lance.write_dataset(pa.table({"id": [10, 11, 12, 13]}), path)
    wrong = next(r for r in rows if not 0 <= r < 4)
    with pytest.raises(RowOutOfRange, match=rf"{wrong}.*4"):
        lance.dataset(path).take(rows)


def test_t05_takes_keep_order_and_duplicates_and_may_be_empty(path: str) -> None:
    lance.write_dataset(pa.table({"id": [10, 11, 12, 13]}), path)
    assert lance.dataset(path).take([0, 0, 3])["id"].to_pylist() == [10, 10, 13]
    assert lance.dataset(path).take([3, 1, 3])["id"].to_pylist() == [13, 11, 13]
    assert lance.dataset(path).take([]).num_rows == 0
    assert lance.dataset(path).take([]).schema == lance.dataset(path).schema


@pytest.mark.parametrize("version", [0, -1, 4, 2**63])
def test_t07_a_version_that_is_not_there_is_refused_with_the_range(version: int, path: str) -> None:
    three_versions(path)
    with pytest.raises(VersionNotFound, match=r"1.*3"):
        lance.dataset(path, version=version)


def test_t07_an_unknown_tag_is_refused_with_the_known_ones(path: str, peer: Peer) -> None:
    three_versions(path)
    peer("result = lance.dataset(p).tags.create('gold', 2)", p=path)
    with pytest.raises(TagNotFound, match="gold"):
        lance.dataset(path, version="silver")


def test_t07_a_time_before_the_first_version_is_refused_and_later_ones_work(path: str) -> None:
    three_versions(path)
    first = lance.dataset(path).versions()[0]["timestamp"]
    with pytest.raises(VersionNotFound):
        lance.dataset(path, asof=first - timedelta(days=1))
    later = datetime.now(UTC) + timedelta(days=1)
    assert lance.dataset(path, asof=later.replace(tzinfo=None)).version == 3


def test_t07_a_place_without_a_table_is_refused_and_stays_as_it_was(tmp_path: Path) -> None:
    for place in (tmp_path / "nothing", tmp_path):
        with pytest.raises(TiltyardError, match=place.name):
            lance.dataset(str(place))
    assert list(tmp_path.iterdir()) == []


def test_t08_a_long_lived_handle_is_fixed_until_told_and_its_deletes_see_the_latest(path: str) -> None:
    lance.write_dataset(pa.table({"id": [1]}), path)
    handle = lance.dataset(path)
    lance.write_dataset(pa.table({"id": [2]}), path, mode="append")
    assert handle.count_rows() == 1  # one handle, one version: a scan and a take of it agree
    handle.delete("id = 2")  # matches only what came later
    assert lance.dataset(path).to_table()["id"].to_pylist() == [1]
    assert handle.count_rows() == 1
    assert handle.version == 3
    lance.write_dataset(pa.table({"id": [5]}), path, mode="append")
    handle.checkout_latest()
    assert handle.to_table()["id"].to_pylist() == [1, 5]


def test_t08_the_freshness_of_a_handle_can_be_set(path: str) -> None:
    lance.write_dataset(pa.table({"id": [1]}), path)
    fixed, following = lance.dataset(path), lance.dataset(path, freshness="latest")
    patient = lance.dataset(path, freshness=3600)
    lance.write_dataset(pa.table({"id": [2]}), path, mode="append")
    assert fixed.count_rows() == patient.count_rows() == 1
    assert following.count_rows() == 2
    assert following.to_table()["id"].to_pylist() == [1, 2]
