"""A streamed table shared out among shards, in plain words: who has which keys, and other shards for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard as ty
from streamed import digest
from tiltyard.errors import (
    InvalidInput,
    SchemaMismatch,
    ShardingChanging,
    TiltyardError,
    WriterFenced,
    WrongType,
)
from tiltyard.memwal.overview import Sharding

KEYS = list(range(40))


@pytest.fixture
def readings(tmp_path: Path) -> Any:
    return ty.connect(tmp_path).create_table("readings", {"sensor": [0], "value": [0.5]}, key="sensor")


def rows(keys: list[int], value: float = 1.0) -> dict[str, Any]:
    return {"sensor": keys, "value": [value] * len(keys)}


def values(table: Any) -> dict[int, float]:
    found = table.live().to_arrow().to_pydict()
    assert len(set(found["sensor"])) == len(found["sensor"])
    return dict(zip(found["sensor"], found["value"], strict=True))


def path_of(table: Any) -> Path:
    return Path(str(table.uri))


def test_which_shard_a_key_goes_to(readings: Any) -> None:
    assert readings.sharding is None
    with pytest.raises(InvalidInput, match="nobody has streamed into"):
        readings.shard_of([1])
    with readings.stream(shards=4):
        pass
    assert readings.sharding == Sharding("bucket", "sensor", 4, 1, False)
    found = readings.shard_of(KEYS)
    assert found.type == pa.int32()
    assert set(found.to_pylist()) == {0, 1, 2, 3}
    assert readings.shard_of(7).to_pylist() == readings.shard_of([7]).to_pylist() == [found[7].as_py()]
    assert readings.shard_of({"sensor": [7, 7]}).to_pylist() == [found[7].as_py()] * 2
    with readings.stream() as stream:
        stream.put(rows(KEYS))
    shards = readings.shards()
    assert sorted(each.value for each in shards) == [0, 1, 2, 3]
    held = {each.value: each.waiting_rows for each in shards}
    assert held == {number: found.to_pylist().count(number) for number in range(4)}
    with pytest.raises(SchemaMismatch):
        readings.shard_of({"value": [1.0]})


def test_a_stream_for_some_shards_takes_the_rows_of_these(readings: Any) -> None:
    with readings.stream(shards=4):
        pass
    shard = readings.shard_of(KEYS).to_pylist()
    mine = [key for key in KEYS if shard[key] in (0, 2)]
    with readings.stream(only=[0, 2]) as stream, readings.stream(only={1, 3}) as other:
        stream.put(rows(mine))
        before = digest(path_of(readings))
        for call in (lambda: stream.put(rows(KEYS)), lambda: stream.delete(KEYS)):
            with pytest.raises(InvalidInput, match="rows belong to shards that this stream was not") as told:
                call()
            assert f"{len(KEYS) - len(mine)} of {len(KEYS)} rows" in str(told.value)
            assert ": 1, 3." in str(told.value)
        assert digest(path_of(readings)) == before
        other.put(rows([key for key in KEYS if key not in mine], 2.0))
        stream.delete(mine[:1])
        assert len(stream.shards) == len(other.shards) == 2
    expected = {key: 1.0 if key in mine else 2.0 for key in KEYS}
    del expected[mine[0]]
    assert values(readings) == expected


async def _put(stream: Any, keys: list[int]) -> None:
    await stream.aput(rows(keys))


def test_coroutines_are_told_too(readings: Any) -> None:
    import asyncio

    with readings.stream(shards=4) as all_of_it:
        assert all_of_it.shards == ()
    shard = readings.shard_of(KEYS).to_pylist()
    with readings.stream(only=[0]) as stream:
        with pytest.raises(InvalidInput, match="was not opened for"):
            asyncio.run(_put(stream, KEYS))
        asyncio.run(_put(stream, [key for key in KEYS if shard[key] == 0]))


@pytest.mark.parametrize(
    ("only", "error"),
    [
        ([4], InvalidInput),
        ([-1], InvalidInput),
        ([True], InvalidInput),
        (["a"], InvalidInput),
        ([None], InvalidInput),
        ("01", WrongType),
        (3, WrongType),
    ],
    ids=repr,
)
def test_shards_that_there_are_not_open_no_stream(readings: Any, only: Any, error: type[Exception]) -> None:
    with readings.stream(shards=4):
        pass
    before = digest(path_of(readings))
    with pytest.raises(error):
        readings.stream(only=only)
    assert digest(path_of(readings)) == before


def test_shards_of_values_are_named_by_them(tmp_path: Path) -> None:
    table = ty.connect(tmp_path).create_table(
        "t", {"region": ["a"], "id": [0], "value": [0.5]}, key=["region", "id"]
    )
    table._ds.initialize_mem_wal(identity_column="region")
    assert table.sharding == Sharding("identity", "region", None, 1, False)
    assert table.shard_of([("a", 1), ("b", 2)]).to_pylist() == ["a", "b"]
    with table.stream(only=["b"]) as stream:
        stream.put({"region": "b", "id": 1, "value": 1.0})
        with pytest.raises(InvalidInput, match="'a'"):
            stream.put({"region": "a", "id": 1, "value": 1.0})
    assert [each.value for each in table.shards()] == ["b"]
    with pytest.raises(InvalidInput, match="a shard for each string"):
        table.stream(only=[3])


def test_shards_named_by_hand_have_no_rows_of_their_own(tmp_path: Path) -> None:
    table = ty.connect(tmp_path).create_table("t", {"id": [0]}, key="id")
    table._ds.initialize_mem_wal()
    assert table.sharding == Sharding("by hand", None, None, 0, False)
    with pytest.raises(InvalidInput, match="named by hand"):
        table.shard_of([1])
    with pytest.raises(InvalidInput, match="named by hand"):
        table.stream(only=[0])


# -- another number -----------------------------------------------------------------------------


def test_a_table_gets_more_shards_and_keeps_its_rows(readings: Any) -> None:
    with pytest.raises(InvalidInput, match="nobody has streamed"):
        readings.reshard(4)
    stream = readings.stream(shards=2)
    stream.put(rows(KEYS))
    with pytest.raises(InvalidInput, match=r"change the table with reshard\(4\)"):
        readings.stream(shards=4)
    done = readings.reshard(4)
    assert done.activated == 2
    with pytest.raises(WriterFenced):
        stream.put(rows([1], 2.0))
    with pytest.raises(TiltyardError):
        stream.close()
    assert readings.sharding == Sharding("bucket", "sensor", 4, 2, False)
    with readings.stream(shards=4) as again:
        again.put(rows([1], 3.0))
    assert values(readings) == {**dict.fromkeys(KEYS, 1.0), 1: 3.0}
    assert readings.reshard().shards == ()
    assert readings.reshard(1).activated == 3
    assert readings.sharding.kind == "unsharded"
    assert values(readings) == {**dict.fromkeys(KEYS, 1.0), 1: 3.0}


def test_what_is_merged_is_merged_over_the_change(readings: Any) -> None:
    with readings.stream(shards=2, merge={"value": "sum"}) as stream:
        stream.put(rows(KEYS))
        stream.flush()
        stream.put(rows(KEYS))
    assert readings.reshard(3).activated == 3
    assert readings.sharding == Sharding("bucket", "sensor", 3, 3, False)
    assert sorted(readings.shard_of(KEYS).to_pylist())[-1] == 2
    with readings.stream() as stream:
        stream.put(rows(KEYS, 4.0))
        assert values(readings) == {**dict.fromkeys(KEYS, 6.0), 0: 6.5}
    readings.drain()
    assert values(readings) == {**dict.fromkeys(KEYS, 6.0), 0: 6.5}


def test_a_change_that_stopped_is_finished_by_anybody(readings: Any) -> None:
    from tiltyard.memwal.resharding import compacted, revise

    with readings.stream(shards=2) as stream:
        stream.put(rows(KEYS))
    wanted = {"bucket_column": "sensor", "num_buckets": 4}
    revise(readings._ds, compacted, wanted, to_the_end=False)
    assert readings.sharding == Sharding("bucket", "sensor", 4, 2, True)
    with pytest.raises(ShardingChanging, match="open the writer again when that is done"):
        readings.stream()
    with pytest.raises(ShardingChanging):
        readings.reshard(8)
    assert values(readings) == dict.fromkeys(KEYS, 1.0)
    again = ty.open_table(readings.uri)
    assert str(again.abandon_reshard()).startswith("the change to spec 2 ")
    with again.stream() as stream:
        stream.put({"sensor": 3, "value": 1.0})
    assert again.sharding.count == 2
    with pytest.raises(InvalidInput, match="no change of the sharding"):
        again.abandon_reshard()
    revise(again._ds, compacted, wanted, to_the_end=False)
    assert again.reshard().activated == 3
    with again.stream() as stream:
        stream.put(rows([1], 2.0))
    assert values(readings) == {**dict.fromkeys(KEYS, 1.0), 1: 2.0}


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ({"shards": 0}, InvalidInput, "shards"),
        ({"shards": 2000}, InvalidInput, "shards"),
        ({"shards": "4"}, WrongType, "shards"),
        ({"shards": 2}, InvalidInput, "already"),
        ({"shards": 4, "by": "value"}, InvalidInput, "a column of their key"),
        ({"shards": 4, "by": "nothing"}, InvalidInput, "a column of their key"),
        ({"shards": 1, "by": "sensor"}, InvalidInput, "leave `by` out"),
        ({"by": "sensor"}, InvalidInput, "give their number"),
    ],
    ids=str,
)
def test_what_cannot_be_leaves_the_table_as_it_is(
    readings: Any, given: dict[str, Any], error: type[Exception], told: str
) -> None:
    with readings.stream(shards=2) as stream:
        stream.put(rows(KEYS))
    before = digest(path_of(readings))
    with pytest.raises(error, match=told):
        readings.reshard(**given)
    assert digest(path_of(readings)) == before
    with pytest.raises(InvalidInput):
        readings.at(1).reshard(4)


def test_rows_without_a_key_have_one_shard(tmp_path: Path) -> None:
    table = ty.connect(tmp_path).create_table("t", {"id": [0]})
    with table.stream() as stream:
        stream.put({"id": 1})
    with pytest.raises(InvalidInput, match="without a key"):
        table.reshard(4)


def test_a_feed_gives_what_came_first_first(readings: Any) -> None:
    """Also where the shards of the later sharding have smaller ids."""
    feed = readings.tail
    with readings.stream(shards=2) as stream:
        stream.put(rows(KEYS))
    for number, count in enumerate((4, 2), 2):
        readings.reshard(count)
        with readings.stream() as stream:
            stream.put(rows(KEYS, float(number)))
    seen: dict[int, list[float]] = {key: [] for key in KEYS}
    for change in feed():
        for row in change.upserts.to_pylist():
            seen[row["sensor"]].append(row["value"])
    assert seen == {key: [1.0, 2.0, 3.0] for key in KEYS}
