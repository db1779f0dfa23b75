"""Tables in a bucket, by us and by the official package, on one S3 server."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import tiltyard.lance as ours
from peer import Peer
from s3_server import S3Server
from workers import Crew, together

ROWS = pa.table({"id": list(range(500)), "name": [f"n{i}" for i in range(500)]})

ORDER = [("id", "ascending"), ("name", "ascending")]
NAMES = [
    "ü'~&=@!().lance",
    *(pytest.param(each, marks=pytest.mark.soak) for each in ("t.lance", "a b+c.lance", "deep/er/t")),
]


CLEAN = """
lance.dataset(p, storage_options=o).cleanup_old_versions(timedelta(0))
result = lance.dataset(p, storage_options=o).count_rows()
"""


@pytest.mark.parametrize("name", NAMES)
def test_what_either_writes_the_other_reads_changes_and_cleans(
    name: str, s3: S3Server, bucket: str, peer: Peer
) -> None:
    options = s3.options()
    by_us, by_them = f"s3://{bucket}/ours/{name}", f"s3://{bucket}/peers/{name}"
    ours.write_dataset(ROWS, by_us, storage_options=options)
    peer("lance.write_dataset(t, p, storage_options=o).version", t=ROWS, p=by_them, o=options)
    for place in (by_us, by_them):
        _change(place, options, peer)
        table = ours.dataset(place, storage_options=options)
        seen = peer("lance.dataset(p, storage_options=o).to_table()", p=place, o=options)
        assert table.to_table().sort_by(ORDER) == seen.sort_by(ORDER)
        assert table.count_rows() == 900 - 6 + 2
        assert table.take([3, 500]).num_rows == 2
        assert table.to_table(filter="id = 7")["name"].to_pylist() == ["changed", "changed", "n7"]
        # The store's clock is known to the second: what was made in the last one may stay.
        assert 1 <= table.cleanup_old_versions(older_than=timedelta(0)).old_versions < table.version
        table.optimize.compact_files()
        assert peer(CLEAN, p=place, o=options, timedelta=timedelta) == 896
        found = ours.dataset(place, storage_options=options)
        found.validate(checksums=True)
        assert found.to_table().num_rows == 896
    assert s3.uploads(bucket) == 0
    assert not [key for key in s3.keys(bucket) if "/.tmp" in key]


def _change(place: str, options: dict[str, str], peer: Peer) -> None:
    """Three times the rows, of which most are deleted again, by turns."""
    ours.write_dataset(ROWS, place, mode="append", storage_options=options)
    table = ours.dataset(place, storage_options=options)
    table.update({"name": "'changed'"}, where="id = 7")
    peer("lance.write_dataset(t, p, mode='append', storage_options=o).version", t=ROWS, p=place, o=options)
    ours.dataset(place, storage_options=options).delete("id >= 400")
    peer("lance.dataset(p, storage_options=o).delete('id >= 300')", p=place, o=options)
    table = ours.dataset(place, storage_options=options)
    assert table.count_rows() == 900
    table.delete("id < 2")
    merged = pa.table({"id": [1, 1000], "name": ["merged", "new"]})
    table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(merged)


def test_tags_and_old_versions(s3: S3Server, bucket: str, peer: Peer) -> None:
    place, options = f"s3://{bucket}/t.lance", s3.options()
    table = ours.write_dataset(ROWS, place, storage_options=options)
    table.tags.create("gold", 1)
    ours.write_dataset(ROWS, place, mode="overwrite", storage_options=options)
    assert peer("lance.dataset(p, version='gold', storage_options=o).version", p=place, o=options) == 1
    assert ours.dataset(place, version="gold", storage_options=options).count_rows() == 500
    assert [each["version"] for each in ours.dataset(place, storage_options=options).versions()] == [1, 2]


APPEND = """
for step in range(appends):
    rows = pa.table({"worker": [me] * 3, "step": [step] * 3, "k": [0, 1, 2]})
    lance.write_dataset(rows, path, mode="append", storage_options=options)
result = appends
"""


def test_appenders_of_both_lose_nothing_and_leave_no_gap(
    s3: S3Server, bucket: str, tmp_path: Path, peer: Peer, crew: Crew
) -> None:
    place, options, appends = f"s3://{bucket}/t.lance", s3.options(), 4
    none = pa.schema([("worker", pa.int64()), ("step", pa.int64()), ("k", pa.int64())]).empty_table()
    ours.write_dataset(none, place, storage_options=options)
    workers = crew.ours(2) + crew.peers(1)
    together(workers, APPEND, tmp_path / "gate", path=place, appends=appends, options=options)
    right = sorted((w, s, k) for w in range(len(workers)) for s in range(appends) for k in range(3))
    table = ours.dataset(place, storage_options=options)
    for found in (
        table.to_table(),
        peer("lance.dataset(p, storage_options=o).to_table()", p=place, o=options),
    ):
        assert sorted(zip(*(found[c].to_pylist() for c in ("worker", "step", "k")), strict=True)) == right
    assert [each["version"] for each in table.versions()] == list(range(1, table.version + 1))
