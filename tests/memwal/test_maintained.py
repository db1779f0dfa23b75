"""Which indices SSTables get: B-trees; a table that keeps others for streamed rows is read, not written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from peer import Peer
from streamed import KEY, SHARD, digest, live, newest_manifest, shard_dir
from tiltyard.errors import IndexNotFound, UnsupportedFeature
from tiltyard.memwal.writer import ShardWriter

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False, KEY),
        ("v", pa.int64()),
        ("text", pa.string()),
        ("e", pa.list_(pa.float32(), 2)),
    ]
)


def rows(ids: list[int]) -> pa.Table:
    made = [{"id": i, "v": i % 3, "text": f"word{i} other", "e": [float(i), 1.0]} for i in ids]
    return pa.Table.from_pylist(made, SCHEMA)


def table(path: Path, *indices: str) -> Any:
    dataset = lance.write_dataset(rows(list(range(20))), str(path))
    for column in indices:
        dataset.create_scalar_index(column, "BTREE", name=f"by_{column}")
    return dataset


def names(path: Path) -> list[list[str]]:
    found = []
    for each in newest_manifest(path).sstables:
        described = lance.dataset(str(shard_dir(path) / each.path)).describe_indices()
        found.append(sorted(index.name for index in described))
    return found


@pytest.mark.parametrize(
    ("wanted", "expected"), [(None, ["by_id", "by_v"]), ([], []), (["by_v"], ["by_v"])], ids=str
)
def test_all_none_or_some_are_kept(tmp_path: Path, wanted: list[str] | None, expected: list[str]) -> None:
    dataset = table(tmp_path / "t", "id", "v")
    dataset.initialize_mem_wal(maintained_indexes=wanted)
    with ShardWriter.open(dataset, SHARD) as writer:
        writer.put(rows([1, 2, 50]))
        writer.put(rows([50, 51]))
    assert names(tmp_path / "t") == [expected]
    of = lance.dataset(str(shard_dir(tmp_path / "t") / newest_manifest(tmp_path / "t").sstables[0].path))
    assert sorted(of.to_table(filter="v = 2")["id"].to_pylist()) == [2, 50]


def test_an_index_that_was_dropped_since_is_left_out(tmp_path: Path) -> None:
    dataset = table(tmp_path / "t", "id", "v")
    dataset.initialize_mem_wal(maintained_indexes=["by_v", "by_id"])
    dataset.drop_index("by_v")
    with ShardWriter.open(dataset, SHARD) as writer:
        writer.put(rows([50]))
    assert names(tmp_path / "t") == [["by_id"]]


def test_a_name_that_is_no_index_is_refused(tmp_path: Path) -> None:
    dataset = table(tmp_path / "t", "v")
    with pytest.raises(IndexNotFound, match=r"'by_w' from maintained_indexes not found .* by_v"):
        dataset.initialize_mem_wal(maintained_indexes=["by_w"])
    assert dataset.mem_wal_index_details() is None


def test_a_column_that_was_dropped_takes_its_index_along(tmp_path: Path, peer: Peer) -> None:
    dataset = table(tmp_path / "t", "v")
    dataset.initialize_mem_wal(maintained_indexes=["by_v"])
    peer("ds = lance.dataset(p)\nds.drop_columns(['v'])\nresult = None", p=str(tmp_path / "t"))
    with ShardWriter.open(lance.dataset(str(tmp_path / "t")), SHARD) as writer:
        writer.put(rows([50]).drop_columns(["v"]))
    assert live(tmp_path / "t").num_rows == 21


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        ("ds.create_scalar_index('text', 'INVERTED', name='other')", "InvertedIndexDetails"),
        (
            "ds.create_index('e', 'IVF_FLAT', num_partitions=1, name='other')",
            "VectorIndexDetails",
        ),
    ],
)
def test_a_table_that_keeps_text_or_vectors_is_read_and_not_written(
    tmp_path: Path, peer: Peer, make: str, kind: str
) -> None:
    """Deferred parts of cases M06 and M09: our SSTables would lack what the official readers use."""
    path = tmp_path / "t"
    peer(
        f"""
ds = lance.write_dataset(rows, p)
{make}
ds.initialize_mem_wal(maintained_indexes=["other"])
with ds.mem_wal_writer(shard, max_wal_flush_interval_ms=5) as w:
    w.put(more)
result = None
""",
        p=str(path),
        rows=rows(list(range(20))),
        more=rows([50]),
        shard=SHARD,
    )
    before = digest(path)
    with pytest.raises(UnsupportedFeature, match=f"'other' is kept for streamed rows .*{kind}"):
        ShardWriter.open(lance.dataset(str(path)), SHARD)
    assert digest(path) == before
    assert sorted(live(path)["id"].to_pylist()) == [*range(20), 50]
