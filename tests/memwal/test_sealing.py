"""Shards that are closed for good, opened again and dropped: who is fenced, what is kept, what refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tiltyard.lance as lance
from streamed import (
    BASE,
    OTHER_SHARD,
    SHARD,
    digest,
    keys,
    live,
    newest_manifest,
    rows,
    shard_dir,
    streamed,
    values,
)
from tiltyard.errors import (
    InvalidInput,
    ObjectNotFound,
    ShardError,
    ShardingChanging,
    ShardSealed,
    ShardSpecMismatch,
    UndrainedRows,
    UnsupportedFeature,
    WriterFenced,
)
from tiltyard.format.shard_manifest import ACTIVE, SEALED
from tiltyard.memwal import sealing, sstable
from tiltyard.memwal.check import check_shards
from tiltyard.memwal.claim import INCARNATION
from tiltyard.memwal.collection import Grace, collect_streams
from tiltyard.memwal.manifest import update
from tiltyard.memwal.resharding import compacted, revise
from tiltyard.memwal.routing import is_closed
from tiltyard.memwal.sealing import drop_shard, seal, unseal
from tiltyard.memwal.stream import ShardedWriter
from tiltyard.memwal.writer import ShardWriter
from tiltyard.store.local import LocalStore
from tiltyard.testing.faults import Crashed, Fault, FaultyStore, Plan, Rule

EXPECTED = {1: 0.0, 2: 5.0, 10: 1.0, 11: 2.0}
NONE = "00000000-1111-4222-8333-444444444444"


@pytest.fixture
def dataset(tmp_path: Path) -> Any:
    return streamed(tmp_path / "t")


def written(dataset: Any) -> ShardWriter:
    """A writer of `SHARD` whose rows are partly published, partly in the log."""
    writer = ShardWriter.open(dataset, SHARD)
    writer.put(rows([10, 11], 1.0))
    writer.flush()
    writer.put(rows([11], 2.0))
    writer.put(rows([2], 5.0))
    writer.delete(keys([3]))
    return writer


def path_of(dataset: Any) -> Path:
    return Path(str(dataset.uri))


def changed(dataset: Any, **facts: Any) -> None:
    """Somebody else's version of the shard's manifest, of the same epoch."""
    path = path_of(dataset)
    update(LocalStore(str(shard_dir(path))), newest_manifest(path), lambda now: replace(now, **facts))


def test_a_seal_publishes_the_log_and_fences_the_writer(dataset: Any) -> None:
    writer = written(dataset)
    made = seal(dataset, SHARD)
    assert is_closed(made)
    assert [each.generation for each in made.sstables] == [1, 2]
    with pytest.raises(WriterFenced):
        writer.put(rows([12], 3.0))
    with pytest.raises(WriterFenced):
        writer.close()
    assert values(live(path_of(dataset))) == EXPECTED
    before = digest(path_of(dataset))
    with pytest.raises(ShardSealed):
        ShardWriter.open(dataset, SHARD)
    assert seal(dataset, SHARD) == made
    assert digest(path_of(dataset)) == before


@pytest.mark.parametrize("deed", ["flush", "seal"])
def test_whoever_was_passed_and_finds_its_directory_collected_is_fenced(
    dataset: Any, deed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = sstable.write_sstable
    writer = written(dataset)

    def passed(*arguments: Any, **how: Any) -> Any:
        monkeypatch.setattr(sstable, "write_sstable", real)
        real(*arguments, **how)
        seal(lance.dataset(dataset.uri), SHARD)
        store, session = dataset._store, dataset._session
        assert collect_streams(store, session, grace=Grace(0, 0, 0)).directories
        raise ObjectNotFound("a file of the generation is gone")

    monkeypatch.setattr(sstable, "write_sstable", passed)
    if deed == "seal":
        assert is_closed(seal(dataset, SHARD))
    else:
        with pytest.raises(WriterFenced):
            writer.flush()
    assert values(live(path_of(dataset))) == EXPECTED


def test_a_shard_that_another_program_sealed_is_taken_over_and_emptied(dataset: Any) -> None:
    writer = written(dataset)
    changed(dataset, status=SEALED)
    assert not is_closed(newest_manifest(path_of(dataset)))
    made = seal(dataset, SHARD)
    assert is_closed(made)
    assert made.writer_epoch == writer.epoch + 1
    with pytest.raises(WriterFenced):
        writer.put(rows([12], 3.0))
    assert values(live(path_of(dataset))) == EXPECTED


def test_a_sealed_shard_is_opened_again_and_goes_on(dataset: Any) -> None:
    written(dataset).abort()
    sealed = seal(dataset, SHARD)
    made = unseal(dataset, SHARD)
    assert (made.status, made.writer_epoch) == (ACTIVE, sealed.writer_epoch)
    assert unseal(dataset, SHARD) == made
    with ShardWriter.open(dataset, SHARD) as writer:
        assert writer.epoch == sealed.writer_epoch + 1
        writer.put(rows([12], 3.0))
    assert values(live(path_of(dataset))) == {**EXPECTED, 12: 3.0}
    assert is_closed(seal(dataset, SHARD))


@pytest.mark.parametrize("act", [seal, unseal, drop_shard], ids=["seal", "unseal", "drop"])
def test_what_is_no_shard_of_the_table_is_refused(dataset: Any, act: Callable[..., Any]) -> None:
    written(dataset).abort()
    before = digest(path_of(dataset))
    with pytest.raises(InvalidInput, match=f"has no shard {NONE}"):
        act(dataset, NONE)
    with pytest.raises(InvalidInput, match="Invalid shard_id"):
        act(dataset, "x")
    assert digest(path_of(dataset)) == before
    changed(dataset, field_entries=((INCARNATION, b"0" * 32),))
    before = digest(path_of(dataset))
    with pytest.raises(ShardError, match="another table"):
        act(dataset, SHARD)
    changed(dataset, field_entries=(), status=7)
    before = digest(path_of(dataset))
    with pytest.raises((UnsupportedFeature, ShardError), match=r"status 7|not sealed"):
        act(dataset, SHARD)
    assert digest(path_of(dataset)) == before


def test_a_shard_of_an_earlier_sharding_stays_sealed(dataset: Any) -> None:
    written(dataset).abort()
    changed(dataset, shard_spec_id=3)
    seal(dataset, SHARD)
    before = digest(path_of(dataset))
    with pytest.raises(ShardSpecMismatch, match="spec 3"):
        unseal(dataset, SHARD)
    assert digest(path_of(dataset)) == before


def test_a_shard_whose_successor_begins_meanwhile_is_sealed_again(
    dataset: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from tiltyard.memwal import sealing

    table = streamed(tmp_path / "u", unsharded=True)
    with ShardedWriter(table) as writer:
        writer.put(rows([10], 1.0))
        (first,) = [each.shard_id for each in writer.writers]
    seal(table, first)
    compacted(table, [first])

    def late(*arguments: Any) -> Any:
        monkeypatch.undo()
        with ShardedWriter(table) as other:
            other.put(rows([11], 1.0))
        return update(*arguments)

    monkeypatch.setattr(sealing, "update", late)
    with pytest.raises(InvalidInput, match="its rows go to shard"):
        unseal(table, first)
    assert is_closed(newest_manifest(tmp_path / "u", first))


# -- dropping -----------------------------------------------------------------------------------


def test_a_drained_shard_is_dropped_and_its_manifest_stays(dataset: Any) -> None:
    written(dataset).abort()
    before = digest(path_of(dataset))
    with pytest.raises(ShardError, match="is not sealed"):
        drop_shard(dataset, SHARD)
    assert digest(path_of(dataset)) == before
    seal(dataset, SHARD)
    before = digest(path_of(dataset))
    with pytest.raises(UndrainedRows, match=f"shard {SHARD} is not dropped: 5 rows") as told:
        drop_shard(dataset, SHARD)
    assert told.value.rows == 5
    assert digest(path_of(dataset)) == before
    compacted(dataset, [SHARD])
    done = drop_shard(dataset, SHARD)
    assert not done.lost
    assert "everything that it held is in the base" in str(done)
    left = newest_manifest(path_of(dataset))
    assert is_closed(left)
    assert left.sstables == ()
    assert values(live(path_of(dataset))) == EXPECTED
    assert drop_shard(dataset, SHARD).manifest == left
    with pytest.raises(ShardSealed):
        ShardWriter.open(dataset, SHARD)
    epoch = unseal(dataset, SHARD).writer_epoch
    with ShardWriter.open(dataset, SHARD) as writer:
        assert writer.epoch == epoch + 1
        writer.put(rows([12], 3.0))
    assert values(live(path_of(dataset))) == {**EXPECTED, 12: 3.0}


def test_rows_that_are_given_up_are_counted(dataset: Any) -> None:
    writer = written(dataset)
    with ShardWriter.open(dataset, OTHER_SHARD) as other:
        other.put(rows([20], 2.0))
    done = drop_shard(dataset, SHARD, discard=True)
    assert (done.lost.rows, done.lost.shards) == (5, 1)
    assert "5 rows of it are lost" in str(done)
    assert values(live(path_of(dataset))) == {**BASE, 20: 2.0}
    with pytest.raises(WriterFenced):
        writer.put(rows([12], 3.0))


@pytest.mark.parametrize("dies", [False, True])
def test_what_is_put_into_a_dropped_shard_that_is_opened_again_is_compacted(dataset: Any, dies: bool) -> None:
    """After generations that there are not any more."""
    written(dataset).abort()
    if dies:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(sealing, "give_up", crashes)
            with pytest.raises(Crashed):
                drop_shard(dataset, SHARD, discard=True)
    drop_shard(dataset, SHARD, discard=True)
    unseal(dataset, SHARD)
    with ShardWriter.open(dataset, SHARD) as writer:
        writer.put(rows([12], 3.0))
    compacted(dataset, [SHARD])
    expected = {**BASE, 12: 3.0}
    assert values(live(path_of(dataset))) == values(lance.dataset(dataset.uri).to_table()) == expected
    assert check_shards(lance.dataset(dataset.uri)._snapshot) == []


def crashes(*_: Any) -> None:
    raise Crashed("here")


# -- crashes ------------------------------------------------------------------------------------


def faulty(dataset: Any, *rules: Rule) -> Any:
    """The table as a process sees it whose store goes by a plan."""
    return SimpleNamespace(
        _store=FaultyStore(LocalStore(str(dataset.uri)), Plan(*rules)), _session=lance.Session()
    )


WRITES = ("create", "put", "writer.commit", "sync_dir")


def calls_of(dataset: Any, act: Callable[[Any], Any]) -> list[tuple[str, int]]:
    """The calls that change something, numbered, in the order in which `act` makes them."""
    table = faulty(dataset)
    act(table)
    counted = dict.fromkeys(WRITES, 0)
    found = []
    for call, _ in table._store.plan.trace:
        if call in counted:
            counted[call] += 1
            found.append((call, counted[call]))
    return found


@pytest.mark.parametrize("fault", [Fault.CRASH, Fault.CRASH_AFTER, Fault.FAIL_BEFORE, Fault.LOSE_ANSWER])
def test_a_seal_that_stops_anywhere_loses_nothing_and_is_finished_by_the_next(
    tmp_path: Path, fault: Fault
) -> None:
    first = streamed(tmp_path / "first")
    written(first).abort()
    steps = calls_of(first, lambda table: seal(table, SHARD))
    assert len(steps) > 3
    for number, (call, at) in enumerate(steps):
        dataset = streamed(tmp_path / str(number))
        written(dataset).abort()
        table = faulty(dataset, Rule(fault, call, at))
        try:
            seal(table, SHARD)
        except (Crashed, Exception):
            assert values(all_of(dataset)) == EXPECTED, (call, at)
        assert is_closed(seal(dataset, SHARD)), (call, at)
        assert values(live(path_of(dataset))) == EXPECTED, (call, at)


def all_of(dataset: Any) -> Any:
    """Everything that is durable, logs included."""
    from tiltyard.memwal.capture import capture
    from tiltyard.memwal.scan import LsmScan

    return LsmScan(capture(LocalStore(str(dataset.uri)), lance.Session(), with_logs=True)).table()


def test_of_many_that_seal_at_once_all_see_it_sealed(dataset: Any) -> None:
    import threading

    written(dataset).abort()
    made: list[Any] = []

    def act() -> None:
        made.append(seal(lance.dataset(str(dataset.uri), session=lance.Session()), SHARD))

    threads = [threading.Thread(target=act) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [is_closed(each) for each in made] == [True] * 4
    left = newest_manifest(path_of(dataset))
    assert [each.generation for each in left.sstables] == [1, 2]
    assert values(live(path_of(dataset))) == EXPECTED


def test_while_the_sharding_changes_nothing_is_unsealed(dataset: Any) -> None:
    written(dataset).abort()
    seal(dataset, SHARD)
    revise(dataset, compacted, {"unsharded": True}, to_the_end=False)
    before = digest(path_of(dataset))
    with pytest.raises(ShardingChanging):
        unseal(dataset, SHARD)
    assert digest(path_of(dataset)) == before
