"""The collector: what streams leave behind goes when nobody can need it, and every fence stays."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from streamed import (
    BASE,
    OTHER_SHARD,
    SHARD,
    digest,
    keys,
    live,
    log_names,
    rows,
    shard_dir,
    streamed,
    values,
)
from tiltyard.errors import InvalidInput, LogTruncated, StoreError, WriterFenced
from tiltyard.memwal import collection, layout, publishing
from tiltyard.memwal.collection import KEPT_MANIFESTS, Collected, Grace, collect_streams
from tiltyard.memwal.compaction import compact_streams
from tiltyard.memwal.log_schema import log_schema
from tiltyard.memwal.tail import tail
from tiltyard.memwal.wal import positions, read_entry
from tiltyard.store.local import LocalStore
from tiltyard.testing.faults import Crashed, Fault, FaultyPort, Plan, Rule, port_installed

NOW = Grace(0, 0, 0)


def collected(dataset: Any, grace: Grace = NOW, **given: Any) -> Collected:
    return collect_streams(dataset._store, dataset._session, grace=grace, **given)


def compacted(dataset: Any) -> Any:
    return compact_streams(dataset._store, dataset._session)


def store_of(dataset: Any, shard: str = SHARD) -> LocalStore:
    return LocalStore(f"{dataset.uri}/_mem_wal/{shard}")


def standing(dataset: Any) -> list[int]:
    return positions(store_of(dataset))


def generations(path: Path) -> list[int]:
    names = [each.name for each in shard_dir(path).iterdir()]
    return sorted(g for g in map(layout.sstable_generation, names) if g is not None)


def versions(path: Path) -> list[int]:
    return layout.manifest_versions([each.name for each in (shard_dir(path) / "manifest").iterdir()])


def fill(dataset: Any, *ids: int, **options: Any) -> Any:
    """A writer that has put these keys, each a generation of its own."""
    writer = dataset.mem_wal_writer(SHARD, **options)
    for key in ids:
        writer.put(rows([key], 1.0))
        writer.flush()
    return writer


def test_what_is_in_the_base_goes_and_the_entry_at_the_cursor_stays(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    writer = fill(dataset, 10, 11, 12)
    writer.put(rows([13], 1.0))
    assert generations(tmp_path / "t") == [1, 2, 3]
    assert not collected(dataset).directories  # not in the base yet
    assert standing(dataset) == [3, 4]
    compacted(dataset)
    done = collected(dataset)
    assert (done.directories, done.entries) == (3, 0)
    assert generations(tmp_path / "t") == []
    expected = {**BASE, **dict.fromkeys((10, 11, 12, 13), 1.0)}
    assert values(live(tmp_path / "t", writer)) == expected
    writer.put(rows([14], 1.0))
    writer.close()
    with dataset.mem_wal_writer(SHARD) as again:
        assert again.owned.log.next_position == 7  # entries 1 to 5, and our sentinel
        again.put(rows([15], 1.0))
    assert values(live(tmp_path / "t")) == {**expected, 14: 1.0, 15: 1.0}


def test_nothing_goes_before_its_time(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    fill(dataset, 10, 11, 12, 13, 14, 15).close()
    compacted(dataset)
    before = digest(tmp_path / "t")
    assert not collected(dataset, Grace())
    assert not collected(dataset, Grace(3600, 3600, 0))
    assert digest(tmp_path / "t") == before
    assert collected(dataset, Grace(3600, 0, 3600)).entries == 5
    assert collected(dataset, Grace(0, 3600, 3600)).directories == 6
    assert generations(tmp_path / "t") == []


def test_manifests_go_from_the_low_end(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    writer = fill(dataset, *range(10, 20))
    newest_version = versions(tmp_path / "t")[-1]
    done = collected(dataset)
    assert versions(tmp_path / "t") == list(range(newest_version - KEPT_MANIFESTS + 1, newest_version + 1))
    assert done.manifests == newest_version - KEPT_MANIFESTS
    assert not collected(dataset).manifests
    writer.put(rows([30], 1.0))
    writer.close()
    assert len(live(tmp_path / "t")) == 14


def test_sentinels_stay_for_ever(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    for key in (10, 11, 12, 13):
        fill(dataset, key).close()
    compacted(dataset)
    collected(dataset)
    store = store_of(dataset)
    assert standing(dataset) == [2, 4, 6, 7]  # the sentinels of epochs 2, 3 and 4, and the last entry
    assert [bool(read_entry(store, each).batches) for each in standing(dataset)] == [
        False,
        False,
        False,
        True,
    ]


def test_a_writer_that_slept_is_fenced_however_much_was_collected(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    sleeper = fill(dataset, 10)
    for key in (11, 12, 13):
        fill(lance.dataset(dataset.uri), key).close()
        compacted(dataset)
        collected(dataset)
    with pytest.raises(WriterFenced):
        sleeper.put(rows([99], 9.0))
    expected = {**BASE, **dict.fromkeys((10, 11, 12, 13), 1.0)}
    assert values(live(tmp_path / "t")) == expected
    with dataset.mem_wal_writer(SHARD) as again:
        again.put(rows([14], 1.0))
    assert values(live(tmp_path / "t")) == {**expected, 14: 1.0}


def test_the_log_stays_until_the_new_owner_has_its_sentinel(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    fill(dataset, 10, 11).close()
    plan = Plan(Rule(Fault.CRASH, "link_handle", path="*.arrow"))
    with port_installed(FaultyPort(plan)), pytest.raises(Crashed):
        lance.dataset(dataset.uri, session=lance.Session()).mem_wal_writer(SHARD)
    assert standing(dataset) == [1, 2]
    assert not collected(dataset).entries
    with dataset.mem_wal_writer(SHARD):
        assert collected(dataset).entries == 1
    assert standing(dataset) == [2, 3]


def test_a_feed_is_told_of_what_was_collected(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    writer = fill(dataset, 10, 11, 12)
    schema = log_schema(dataset._snapshot.schema)
    feed = tail(store_of(dataset), schema)
    assert next(feed).position == 1
    collected(dataset)
    with pytest.raises(LogTruncated) as told:
        list(feed)
    assert told.value.position == 2
    assert [each.position for each in tail(store_of(dataset), schema, 2)] == [3]
    with pytest.raises(LogTruncated):
        list(tail(store_of(dataset), schema))
    writer.close()


def test_an_index_that_has_not_caught_up_holds_directories(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t", ids=list(range(100, 200)))
    dataset.create_scalar_index("v", "BTREE", name="by_v")
    fill(dataset, 10, 11).close()
    compacted(dataset)
    done = collected(dataset)
    assert (done.directories, dict(done.held)) == (0, {"by_v": 2})
    lance.dataset(dataset.uri).optimize.optimize_indices()
    assert collected(dataset).directories == 2


def test_readers_that_have_begun_keep_their_sstables_for_the_grace(tmp_path: Path) -> None:
    """Manifests of the grace say which directories were named lately; what they do not say, stays."""
    dataset = streamed(tmp_path / "t")
    writer = fill(dataset, 10)
    compacted(dataset)
    for file in sorted((shard_dir(tmp_path / "t") / "manifest").glob("*.binpb"))[:1]:
        assert file.exists()
    assert not collected(dataset, Grace(3600, 0, 0)).directories
    low = min(versions(tmp_path / "t"))
    (shard_dir(tmp_path / "t") / layout.manifest_path(low)).unlink()
    assert not collected(dataset, Grace(3600, 0, 0)).directories
    writer.close()


def test_what_a_failed_flush_left_goes_when_it_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*given: Any) -> Any:
        raise StoreError("held back by a test")

    dataset = streamed(tmp_path / "t")
    writer = dataset.mem_wal_writer(SHARD)
    writer.put(rows([10], 1.0))
    with monkeypatch.context() as patched:
        patched.setattr(publishing, "update", refused)
        with pytest.raises(StoreError, match="held back"):
            writer.flush()
        writer.abort()
    assert generations(tmp_path / "t") == [1, 1]
    assert not collected(dataset).directories, "it may sleep, and name one yet"
    time.sleep(0.05)  # times of files are coarse
    dataset.mem_wal_writer(SHARD).abort()
    assert not collected(dataset, Grace(0, 0, 3600)).directories
    assert collected(dataset).directories == 2
    assert values(live(tmp_path / "t")) == BASE
    with dataset.mem_wal_writer(SHARD):
        pass
    assert values(live(tmp_path / "t")) == {**BASE, 10: 1.0}


@pytest.mark.parametrize("owners", [1, 2])
def test_a_directory_stays_into_which_a_flush_has_put_nothing_yet(tmp_path: Path, owners: int) -> None:
    """Its age is not known, and a collector that sleeps would delete it when it is named."""
    dataset = streamed(tmp_path / "t")
    for _ in range(owners - 1):
        dataset.mem_wal_writer(SHARD).abort()
    writer = dataset.mem_wal_writer(SHARD)
    writer.put(rows([10], 1.0))
    begun = shard_dir(tmp_path / "t") / layout.sstable_name(1)
    begun.mkdir()
    assert not collected(dataset).directories
    assert begun.is_dir()
    writer.close()  # as generation 1, into another one: into this one nobody flushes any more
    assert collected(dataset).directories == 1
    assert not begun.exists()


def test_temporary_files_of_the_dead_go_and_others_stay(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    fill(dataset, 10).close()
    log = shard_dir(tmp_path / "t") / "wal"
    dead = [f"{layout.digits(9)}.arrow.tmp.{'a' * 32}", f"{layout.digits(9)}.arrow.tmp.{'a' * 32}#1", ".tmpx"]
    stays = [f"{layout.digits(9)}.arrow.bak", "notes.txt"]
    for name in dead + stays:
        (log / name).write_bytes(b"x")
    assert not collected(dataset, Grace(0, 0, 3600)).temporary
    assert collected(dataset).temporary == 3
    assert [each for each in log_names(tmp_path / "t") if not each.endswith(".arrow")] == stays


def test_an_entry_that_cannot_be_read_stays_and_the_others_go(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    fill(dataset, 10, 11, 12, 13).close()
    (shard_dir(tmp_path / "t") / layout.entry_path(2)).write_bytes(b"no entry")
    assert collected(dataset).entries == 2
    assert standing(dataset) == [2, 4]


def test_another_collector_at_the_same_time_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = streamed(tmp_path / "t")
    writer = fill(dataset, 10, 11, 12, 13, 14)
    compacted(dataset)
    other = lance.dataset(dataset.uri, session=lance.Session())
    delete, nested = LocalStore.delete, []

    def also(self: LocalStore, path: str) -> bool:
        if not nested:
            nested.append(True)
            collected(other)
        return delete(self, path)

    monkeypatch.setattr(LocalStore, "delete", also)
    assert not collected(dataset).problems
    assert standing(dataset) == [5]
    assert generations(tmp_path / "t") == []
    writer.put(rows([20], 1.0))
    writer.close()
    assert len(live(tmp_path / "t")) == 9


def test_a_collector_that_is_cut_off_leaves_nothing_that_cannot_be_opened(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    fill(dataset, *range(10, 18)).close()
    compacted(dataset)
    learned = Plan()
    copy = tmp_path / "copy"
    _copy(tmp_path / "t", copy)
    with port_installed(FaultyPort(learned)):
        collected(lance.dataset(str(copy), session=lance.Session()))
    removals = sum(call == "unlink" for call, _ in learned.trace)
    expected = {**BASE, **dict.fromkeys(range(10, 18), 1.0)}
    assert removals > 20
    for at in range(1, removals + 1, 3):
        again = tmp_path / f"copy{at}"
        _copy(tmp_path / "t", again)
        with port_installed(FaultyPort(Plan(Rule(Fault.CRASH, "unlink", at=at)))), pytest.raises(Crashed):
            collected(lance.dataset(str(again), session=lance.Session()))
        here = lance.dataset(str(again), session=lance.Session())
        with here.mem_wal_writer(SHARD) as writer:
            writer.put(rows([30], 1.0))
            assert values(live(again, writer)) == {**expected, 30: 1.0}
        compacted(here)
        collected(here)
        assert generations(again) == []


def _copy(source: Path, target: Path) -> None:
    import shutil

    shutil.copytree(source, target)


def test_cleaning_the_base_up_under_an_open_writer_breaks_none_of_its_reads(tmp_path: Path) -> None:
    """M15."""
    dataset = streamed(tmp_path / "t")
    with dataset.mem_wal_writer(SHARD) as writer:
        writer.put(rows([10], 1.0))
        for key in (20, 21):
            dataset.insert(pa.Table.from_batches([rows([key])]))
        dataset.optimize.compact_files()
        dataset.cleanup_old_versions(older_than="0s", delete_unverified=True)
        expected = {**BASE, 10: 1.0, 20: 0.0, 21: 0.0}
        assert values(writer.lsm_scanner().to_table()) == expected
        writer.put(rows([11, 20], 1.0))
        writer.flush()
        compacted(dataset)
        lance.dataset(dataset.uri).cleanup_old_versions(older_than="0s", delete_unverified=True)
        collected(dataset)
        writer.delete(keys([1]))
        expected |= {11: 1.0, 20: 1.0}
        del expected[1]
        assert values(writer.lsm_scanner().to_table()) == expected
    assert values(live(tmp_path / "t")) == expected


def test_only_the_shards_that_were_asked_for(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    fill(dataset, 10, 11).close()
    before = digest(tmp_path / "t")
    with pytest.raises(InvalidInput, match="has no shard"):
        collected(dataset, shards=[OTHER_SHARD])
    assert digest(tmp_path / "t") == before
    assert collected(dataset, shards=[SHARD]).entries == 1


@pytest.mark.parametrize("seconds", [-1, "1", None, True, 1e12, float("nan")])
def test_a_grace_that_is_none_is_refused(seconds: Any) -> None:
    with pytest.raises(InvalidInput, match="number of seconds"):
        Grace(log=seconds)


def test_a_shard_whose_manifests_are_not_listed_does_not_keep_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = streamed(tmp_path / "t")
    for shard in (SHARD, OTHER_SHARD):
        with dataset.mem_wal_writer(shard) as writer:
            for key in (20, 21):
                writer.put(rows([key], 1.0))
                writer.flush()
    listed = collection._manifest_stats

    def failing(shard: Any) -> Any:
        if shard.uri.endswith(SHARD):
            raise StoreError("the disk does not answer")
        return listed(shard)

    monkeypatch.setattr(collection, "_manifest_stats", failing)
    done = collected(dataset)
    assert (list(done.problems), done.entries) == ([SHARD], 1)


def test_of_a_damaged_shard_nothing_is_deleted_and_the_others_are_collected(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    fill(dataset, 10, 11).close()
    with dataset.mem_wal_writer(OTHER_SHARD) as writer:
        for key in (20, 21):
            writer.put(rows([key], 1.0))
            writer.flush()
    for each in (shard_dir(tmp_path / "t") / "manifest").glob("*.binpb"):
        os.truncate(each, 3)
    before = digest(shard_dir(tmp_path / "t"))
    done = collected(dataset)
    assert list(done.problems) == [SHARD]
    assert done.entries == 1
    assert digest(shard_dir(tmp_path / "t")) == before
