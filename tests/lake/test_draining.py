"""What was streamed is brought into the table: when asked for, every so often, and by a maintainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard as ty
import tiltyard.lance as lance
from tiltyard import runtime
from tiltyard.cli import main
from tiltyard.errors import CorruptFile, InvalidInput, UndrainedRows, WriterFenced
from tiltyard.memwal import layout, upkeep
from tiltyard.memwal.draining import drain
from tiltyard.memwal.lag import lag
from tiltyard.table.apply.mem_wal import entry_of

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.int64())])


def row(key: int, value: int = 0) -> dict[str, int]:
    return {"id": key, "v": value}


def held(table: Any) -> dict[int, int]:
    found = table.to_arrow().to_pydict()
    return dict(zip(found["id"], found["v"], strict=True))


@pytest.fixture
def table(tmp_path: Path) -> Any:
    made = ty.connect(tmp_path).create_table("t", SCHEMA, key="id")
    made.append({"id": [1, 2], "v": [1, 2]})
    return made


@pytest.mark.parametrize("shards", [1, 3])
def test_drain_brings_in_what_streams_hold_and_they_go_on(table: Any, shards: int) -> None:
    with table.stream(shards=shards) as stream:
        for key in range(10, 20):
            stream.put(row(key, 5))
        stream.put(row(2, 7))
        stream.delete([1, 10])
        with pytest.raises(UndrainedRows, match=r"drain\(\) brings them into the table"):
            table.upsert([row(2, 9)])
        done = table.drain()
        assert (done.rows_written, done.rows_deleted, done.version) == (10, 1, table.version)
        assert not done.left
        expected = {2: 7, **dict.fromkeys(range(11, 20), 5)}
        assert held(table) == expected
        assert table.count() == 10
        table.upsert([row(2, 9)])
        table.delete("id = 11")
        stream.put(row(2, 11))
        assert held(table.live()) == {**{k: v for k, v in expected.items() if k != 11}, 2: 11}
    assert table.drain().rows_written == 1
    assert str(table.drain()) == "nothing to compact"
    assert held(table) == held(table.live())


def test_rows_of_other_processes_are_left_unless_they_are_taken_over(table: Any) -> None:
    stream = table.stream()
    stream.put(row(10, 5))
    other = lance.dataset(table.uri, session=lance.Session())  # as another process sees it
    done = drain(other)
    assert (done.left.rows, done.rows_written) == (1, 0)
    assert "1 row in 1 shard are left" in str(done)
    done = drain(other, take_over=True)
    assert (done.left.rows, done.rows_written) == (0, 1)
    with pytest.raises(WriterFenced):
        stream.put(row(11, 5))
    with pytest.raises(WriterFenced):
        stream.close()
    assert held(table) == {1: 1, 2: 2, 10: 5}
    assert not drain(other, take_over=True).compaction.commits


def test_drain_of_a_version_and_of_a_table_without_streams_is_refused(table: Any) -> None:
    with pytest.raises(InvalidInput, match=r"nobody has streamed into .* yet"):
        table.drain()
    with pytest.raises(InvalidInput):
        table.at(1).drain()
    with pytest.raises(InvalidInput, match="take_over"):
        table.drain(take_over=1)


def test_a_stream_drains_itself_and_a_last_time_when_it_is_closed(table: Any) -> None:
    with table.stream(drain_every=0.01) as stream:
        stream.put(row(10, 5))
        deadline = runtime.monotonic() + 30
        while 10 not in held(ty.open_table(table.uri)) and runtime.monotonic() < deadline:
            runtime.sleep(0.01)
        assert held(ty.open_table(table.uri))[10] == 5
        while not stream.stats().drains and runtime.monotonic() < deadline:
            runtime.sleep(0.01)  # a pass ends after its commit
        stats = stream.stats()
        assert stats.drains >= 1
        stream.put(row(10, 6))
        assert stats.drain_error is None
    assert held(ty.open_table(table.uri)) == {1: 1, 2: 2, 10: 6}
    assert lag(table.dataset._store, table.dataset._session).generations == 0
    assert stream.shards[0].generations_published >= 2


def test_a_drain_that_fails_is_told_and_tried_again(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: Any) -> Any:
        raise OSError("held back by a test")

    stream = table.stream(drain_every=0.01)
    stream.put(row(10, 5))
    with monkeypatch.context() as patched:
        patched.setattr(upkeep, "compact_streams", fails)
        deadline = runtime.monotonic() + 30
        while stream.stats().drain_error is None and runtime.monotonic() < deadline:
            runtime.sleep(0.01)
        assert "held back" in str(stream.stats().drain_error)
        assert held(table.live()) == {1: 1, 2: 2, 10: 5}
    stream.close()
    assert held(ty.open_table(table.uri)) == {1: 1, 2: 2, 10: 5}
    stream.close()


@pytest.mark.parametrize("interval", [0, -1, "soon", 1e9, True])
def test_an_interval_that_is_none_is_refused_before_the_table_is_changed(table: Any, interval: Any) -> None:
    with pytest.raises(InvalidInput):
        table.stream(drain_every=interval)
    assert ty.open_table(table.uri).dataset.mem_wal_index_details() is None


def test_maintain_compacts_streams_and_tells_of_it(table: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["maintain", table.uri, "--once"]) == 0
    assert "streams" not in capsys.readouterr().out
    with table.stream() as stream:
        stream.put([row(10, 5), row(11, 5)])
        stream.flush()
        stream.delete(10)
    assert main(["maintain", table.uri, "--once", "--dry-run"]) == 0
    assert "would compact 2 generations (3 rows) of 1 shard" in capsys.readouterr().out
    assert main(["maintain", table.uri, "--once"]) == 0
    told = capsys.readouterr().out
    assert "streams: 2 generations compacted: 1 row written" in told
    assert "collection: nothing to delete" in told
    assert held(ty.open_table(table.uri)) == {1: 1, 2: 2, 11: 5}
    assert main(["maintain", table.uri, "--once", "--dry-run"]) == 0
    assert "streams: nothing to compact" in capsys.readouterr().out


def test_maintain_tells_of_a_shard_that_it_cannot_compact(
    table: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with table.stream() as stream:
        stream.put(row(10, 5))
    for file in Path(table.uri).glob("_mem_wal/*/*_gen_1/data/*.lance"):
        file.unlink()
    maintainer = ty.open_table(table.uri).maintain(interval=3600)
    deadline = runtime.monotonic() + 30
    while not maintainer.status().passes and runtime.monotonic() < deadline:
        runtime.sleep(0.01)
    maintainer.stop()
    report = maintainer.status().last
    assert report is not None
    assert [step.name.partition(" ")[0] for step in report.failed] == ["shard"]
    assert main(["maintain", table.uri, "--once"]) == 1
    assert "shard " in capsys.readouterr().out


def test_maintain_brings_nothing_in_before_the_rows_of_an_earlier_sharding(
    table: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are older: where they cannot be brought in, a newer row of their key would be replaced later."""

    def fails(*given: Any) -> Any:
        raise InvalidInput("a stray cannot be read")

    with table.stream() as stream:
        stream.put(row(10, 5))
    with monkeypatch.context() as patched:
        patched.setattr(upkeep, "tidy", fails)
        assert main(["maintain", table.uri, "--once"]) == 1
    told = capsys.readouterr().out
    assert "sharding" in told
    assert "a stray cannot be read" in told
    assert held(ty.open_table(table.uri)) == {1: 1, 2: 2}
    assert main(["maintain", table.uri, "--once"]) == 0
    assert held(ty.open_table(table.uri)) == {1: 1, 2: 2, 10: 5}


def test_a_table_is_not_deleted_under_streamed_rows_unless_they_are_given_up(tmp_path: Path) -> None:
    """M16, of a table without a catalog; its MemWAL cannot be dropped like an index at all."""
    made = ty.connect(tmp_path).create_table("t", SCHEMA, key="id")
    with made.stream() as stream:
        stream.put([row(10), row(11)])
        with pytest.raises(UndrainedRows, match="2 rows in 1 shard") as told:
            lance.LanceDataset.drop(made.uri)
        assert told.value.rows == 2
        with pytest.raises(InvalidInput, match="cannot be dropped"):
            made.dataset.drop_index("__lance_mem_wal")
    assert set(held(made.live())) == {10, 11}
    with pytest.warns(RuntimeWarning, match="overwrite of .* gave up 2 rows in 1 shard"):
        made.overwrite({"id": [1], "v": [1]}, discard_streamed=True)
    with made.stream() as stream:
        stream.put(row(12))
    with pytest.warns(RuntimeWarning, match="gave up 1 row in 1 shard"):
        lance.LanceDataset.drop(made.uri, discard_streamed=True)
    assert not list(Path(made.uri).rglob("*.lance"))


def test_the_mem_wal_is_not_removed_by_a_commit_under_streamed_rows(table: Any) -> None:
    """M16, first part."""
    stream = table.stream()
    stream.put(row(10))
    found = ty.open_table(table.uri).dataset
    entry = entry_of(found._snapshot.manifest)
    removal = lance.LanceOperation.CreateIndex([], [entry])
    with pytest.raises(UndrainedRows, match="removal of the MemWAL is refused: 1 row"):
        lance.LanceDataset.commit(table.uri, removal, read_version=found.version)
    stream.put(row(11))
    table.drain()
    found.checkout_latest()
    removal = lance.LanceOperation.CreateIndex([], [entry_of(found._snapshot.manifest)])
    lance.LanceDataset.commit(table.uri, removal, read_version=found.version)
    with pytest.raises(WriterFenced):
        stream.put(row(12))
    assert set(held(ty.open_table(table.uri))) == {1, 2, 10, 11}


@pytest.fixture
def four(tmp_path: Path) -> Any:
    """A table whose four shards hold a row each: published in two, in the logs of the others."""
    made = ty.connect(tmp_path).create_table("four", SCHEMA, key="id")
    with made.stream(shards=4) as stream:
        stream.put([row(key, 1) for key in range(40)])
    logs = made.stream()
    logs.put([row(key, 2) for key in range(40)])
    logs._writer.abort()
    return made


def damaged(table: Any, what: str) -> str:
    """Damage a shard; its id."""
    shard: str = table.shards()[0].shard_id
    place = Path(table.uri) / "_mem_wal" / shard
    if what == "manifest":
        max((place / "manifest").glob("*.binpb"), key=lambda each: each.name[::-1]).write_bytes(b"\xff\xff")
    elif what == "every manifest":
        for each in (place / "manifest").glob("*.binpb"):
            each.write_bytes(b"\xff\xff")
    else:
        (place / layout.entry_path(2)).write_bytes(b"garbage")
    return shard


@pytest.mark.parametrize("what", ["manifest", "log"])
def test_a_damaged_shard_of_the_sharding_in_force_keeps_no_other_from_being_drained(
    four: Any, what: str, capsys: Any
) -> None:
    shard = damaged(four, what)
    with pytest.raises(CorruptFile):
        four.drain(take_over=True)
    found = held(four)
    others = [key for key, value in found.items() if value == 2]
    assert 20 < len(others) < 40
    status = main(["maintain", four.uri, "--once"])
    told = capsys.readouterr().out
    assert (shard in told) == (what == "manifest")
    assert status == (1 if what == "manifest" else 0)


def test_where_a_shard_may_be_of_an_earlier_sharding_everything_waits_for_it(four: Any) -> None:
    shard = damaged(four, "every manifest")
    with pytest.raises(CorruptFile, match=f"waits for it.*{shard}"):
        four.drain()
    assert four.count() == 0
