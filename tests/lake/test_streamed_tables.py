"""What becomes of streamed rows, and of open streams, when their table is overwritten, restored, renamed,
dropped or made again.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard as ty
import tiltyard.lance as lance
from peer import Peer
from tiltyard.errors import (
    InvalidInput,
    OutcomeUnknown,
    ShardError,
    TableNotFound,
    TiltyardError,
    UndrainedRows,
    UnsupportedFeature,
    WriterFenced,
)
from tiltyard.format.shard_manifest import encode_shard_manifest
from tiltyard.memwal import layout
from tiltyard.memwal.manifest import newest
from tiltyard.store.local import LocalStore

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.int64())])


def row(key: int) -> dict[str, int]:
    return {"id": key, "v": key}


def keys(table: Any) -> list[int]:
    return sorted(table.live().to_arrow()["id"].to_pylist())


@pytest.fixture(params=["t", "ops.t"])
def name(request: Any) -> str:
    found: str = request.param
    return found


@pytest.fixture
def lake(tmp_path: Path) -> Any:
    return ty.connect(tmp_path)


@pytest.fixture
def table(lake: Any, name: str) -> Any:
    made = lake.create_table(name, SCHEMA, key="id")
    made.append({"id": [1, 2], "v": [1, 2]})
    return made


def test_overwrite_is_refused_while_rows_would_be_lost(table: Any) -> None:
    stream = table.stream(shards=2)
    stream.put({"id": [10, 11, 12], "v": [0, 0, 0]})
    stream.flush()
    stream.put(row(13))
    stream.delete([1])
    version = table.version
    for act in (
        lambda: table.overwrite({"a": [1]}),
        lambda: lance.write_dataset(pa.table({"a": [1]}), table.uri, mode="overwrite"),
        lambda: table.at(version=2).restore(),
        lambda: lance.LanceDataset.commit(table.uri, lance.LanceOperation.Restore(2)),
    ):
        with pytest.raises(UndrainedRows, match=r"5 rows in 2 shards, .* discard_streamed=True") as told:
            act()
        assert told.value.rows == 5
    assert table.version == version
    stream.put(row(14))  # its owner was not fenced
    assert keys(table) == [2, 10, 11, 12, 13, 14]
    table.at(version=version).restore()  # keeps the streams
    stream.put(row(15))
    stream.close()
    assert keys(table) == [2, 10, 11, 12, 13, 14, 15]


@pytest.mark.filterwarnings("ignore:.*gave up:RuntimeWarning")
@pytest.mark.parametrize("way", ["overwrite", "restore"])
def test_rows_that_are_given_up_do_not_come_back(table: Any, way: str) -> None:
    stream = table.stream()
    stream.put(row(10))
    if way == "overwrite":
        table.overwrite(table.at(version=1).to_arrow(), discard_streamed=True)
    else:
        table.at(version=2).restore(discard_streamed=True)
    with pytest.raises((WriterFenced, ShardError)):
        stream.put(row(11))
    with pytest.raises((WriterFenced, ShardError)):
        stream.close()
    kept = [] if way == "overwrite" else [1, 2]
    assert keys(table) == sorted(table.to_arrow()["id"].to_pylist()) == kept
    assert list(table.tail()) == []
    with table.stream() as again:
        again.put(row(12))
        assert keys(table) == [*kept, 12]
    assert keys(table) == [*kept, 12]
    assert table.live().lookup([10]).num_rows == 0


def test_an_overwrite_that_fails_leaves_the_streams_alone(table: Any) -> None:
    with table.stream() as stream:
        with pytest.raises(InvalidInput):
            table.overwrite(3, discard_streamed=True)
        stream.put(row(10))


def test_shards_that_the_official_package_overwrote_are_neither_read_nor_written(
    table: Any, peer: Peer
) -> None:
    """It does not ask (fault 9.20 of its own): the table has no MemWAL then, and shards."""
    with table.stream() as stream:
        stream.put(row(10))
    peer(
        "result = lance.write_dataset(lance.dataset(p).to_table(), p, mode='overwrite').version", p=table.uri
    )
    assert keys(table) == [1, 2]
    assert list(table.tail()) == []
    with pytest.raises(InvalidInput, match="set_shards_aside=True"):
        table.stream()
    with table.stream(set_shards_aside=True) as stream:
        stream.put(row(11))
    assert keys(table) == [1, 2, 11]


@pytest.mark.filterwarnings("ignore:.*gave up:RuntimeWarning")
def test_where_directories_cannot_be_moved_shards_of_an_earlier_life_stay_and_are_not_read(
    table: Any, monkeypatch: Any
) -> None:
    def move_dir(*_: Any) -> Any:
        raise UnsupportedFeature("no such step")

    monkeypatch.setattr(LocalStore, "move_dir", move_dir)
    with table.stream() as stream:
        stream.put(row(10))
    table.overwrite(table.to_arrow(), discard_streamed=True)
    assert keys(table) == [1, 2]
    with table.stream(set_shards_aside=True) as stream:
        stream.put(row(11))
        assert [change.upserts.num_rows for change in table.tail()] == [1]
    assert keys(table) == [1, 2, 11]


def test_a_stream_goes_on_while_its_table_is_renamed(lake: Any, table: Any, name: str) -> None:
    stream = table.stream()
    stream.put(row(10))
    renamed = lake.rename(name, f"{name}2")
    stream.put(row(11))
    stream.close()
    assert keys(renamed) == [1, 2, 10, 11]
    with renamed.stream() as again:
        again.put(row(12))
    assert keys(lake[f"{name}2"]) == [1, 2, 10, 11, 12]


def test_a_dropped_table_comes_back_with_what_was_streamed(lake: Any, table: Any, name: str) -> None:
    stream = table.stream()
    stream.put(row(10))
    lake.drop(name)
    stream.put(row(11))  # who has it open finishes
    stream.close()
    made = lake.create_table(name, SCHEMA, key="id")
    with made.stream() as other:
        other.put(row(20))
    assert keys(made) == [20]
    with pytest.raises(UndrainedRows, match="drop is refused: 1 row in 1 shard"):
        lake.drop(name, purge=True)
    assert keys(made) == [20]
    made.drain()
    lake.drop(name, purge=True)
    assert keys(lake.undrop(name)) == [1, 2, 10, 11]


def test_a_purged_table_takes_no_more_rows(lake: Any, table: Any, name: str) -> None:
    stream = table.stream()
    stream.put(row(10))
    with pytest.warns(RuntimeWarning, match="gave up 1 row in 1 shard"):
        lake.drop(name, purge=True, discard_streamed=True)
    with pytest.raises(TiltyardError):
        stream.put(row(11))
    with pytest.raises(TiltyardError):
        stream.close()
    assert keys(lake.create_table(name, SCHEMA, key="id")) == []


def test_rows_are_counted_once_where_the_cursor_lags_behind_what_is_published(table: Any) -> None:
    """As the official writer's does: entries of generations that are published are not replayed again."""
    stream = table.stream()
    stream.put(row(10))
    stream.put(row(11))
    stream.close()
    (shard,) = (Path(table.uri) / layout.ROOT).iterdir()
    store = LocalStore(str(shard))
    manifest = newest(store)
    assert manifest is not None
    behind = replace(manifest, version=manifest.version + 1, replay_after=manifest.replay_after - 1)
    store.create(layout.manifest_path(behind.version), encode_shard_manifest(behind))
    with pytest.raises(UndrainedRows) as told:
        table.overwrite({"a": [1]})
    assert told.value.rows == 2
    assert keys(table) == [1, 2, 10, 11]


def test_a_stream_whose_table_was_purged_says_so_and_leaves_nothing(
    lake: Any, table: Any, name: str, tmp_path: Path
) -> None:
    stream = table.stream()
    stream.put(row(10))
    table.drain()
    lake.drop(name, purge=True)
    for act in (lambda: stream.put(row(11)), lambda: stream.put(row(12)), stream.close):
        with pytest.raises(TableNotFound, match="was deleted while rows were streamed into it"):
            act()
    assert not [each for each in tmp_path.rglob("*") if each.is_file() and "__manifest" not in each.parts]
    again = lake.create_table(name, SCHEMA, key="id")
    with again.stream() as other:
        other.put(row(20))
        assert keys(again) == [20]


def test_a_stream_whose_shard_alone_was_removed_cannot_tell(table: Any) -> None:
    """Somebody may have put it aside with its log."""
    stream = table.stream()
    stream.put(row(10))
    shutil.rmtree(Path(table.uri) / layout.ROOT)
    with pytest.raises((OutcomeUnknown, ShardError)):
        stream.put(row(11))
    with pytest.raises((OutcomeUnknown, ShardError)):
        stream.close()
