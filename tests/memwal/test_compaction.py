"""The compactor: rows and marks in one commit, each key's newest row, beside whoever writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from streamed import KEY, OTHER_SHARD, SHARD, digest, keys, live, newest_manifest, rows, streamed, values
from tiltyard.errors import CorruptFile, IncompatibleTransaction, InvalidInput, TooMuchContention
from tiltyard.format.shard_manifest import SEALED
from tiltyard.memwal import compaction
from tiltyard.memwal.compaction import Compaction, compact_streams, trim
from tiltyard.memwal.manifest import newest, publish
from tiltyard.memwal.marks import marks_of
from tiltyard.store.local import LocalStore
from tiltyard.table.row_changes import RowChanges
from tiltyard.table.snapshot import open_latest
from tiltyard.testing.faults import Crashed, Fault, FaultyPort, Plan, Rule, port_installed


def compacted(dataset: Any, **given: Any) -> Compaction:
    return compact_streams(dataset._store, dataset._session, **given)


def base(path: Path) -> dict[int, float]:
    return values(lance.dataset(str(path)).to_table())


def marks(dataset: Any) -> dict[str, int]:
    return dict(marks_of(open_latest(dataset._store, dataset._session)))


def shard_store(dataset: Any, shard: str = SHARD) -> LocalStore:
    return LocalStore(f"{dataset.uri}/_mem_wal/{shard}")


def history(writer: Any) -> dict[int, float]:
    """Two generations over base {1, 2, 3}, with replaced, deleted and revived rows, and a third in memory."""
    writer.put(rows([3, 4, 5, 8], 1.0))
    writer.delete(keys([4]))
    writer.flush()
    writer.put(rows([5, 6, 4], 2.0))
    writer.delete(keys([1, 8, 99]))
    writer.flush()
    writer.put(rows([7], 3.0))
    return {2: 0.0, 3: 1.0, 4: 2.0, 5: 2.0, 6: 2.0}


@pytest.mark.parametrize("stable", [False, True])
def test_published_generations_become_rows_of_the_base(tmp_path: Path, stable: bool) -> None:
    table = pa.Table.from_batches([rows([1, 2, 3])])
    dataset = lance.write_dataset(table, str(tmp_path / "t"), enable_stable_row_ids=stable)
    dataset.initialize_mem_wal()
    with dataset.mem_wal_writer(SHARD) as writer:
        expected = history(writer)
        done = compacted(dataset)
        assert (done.commits, done.generations, done.upserted, done.deleted) == (1, 2, 4, 1)
        assert not done.problems
        assert base(tmp_path / "t") == expected
        assert values(live(tmp_path / "t", writer)) == {**expected, 7: 3.0}
        assert marks(dataset) == {SHARD: 2}
        manifest = newest_manifest(tmp_path / "t")
        assert manifest.sstables == ()
        assert (manifest.writer_epoch, manifest.current_generation) == (1, 3)
        before = digest(tmp_path / "t")
        assert compacted(dataset).commits == 0
        assert digest(tmp_path / "t") == before
        writer.put(rows([2], 4.0))
    assert compacted(dataset).generations == 1
    assert base(tmp_path / "t") == values(live(tmp_path / "t")) == {**expected, 7: 3.0, 2: 4.0}


def test_a_row_is_there_once_after_flush_compaction_and_another_owner(tmp_path: Path) -> None:
    """M05: the log is replayed from the cursor on, not from its beginning."""
    dataset = streamed(tmp_path / "t")
    with dataset.mem_wal_writer(SHARD) as writer:
        writer.put(rows([10, 11], 1.0))
        writer.flush()
        compacted(dataset)
        writer.put(rows([12], 1.0))
        writer.abort()
    expected = {1: 0.0, 2: 0.0, 3: 0.0, 10: 1.0, 11: 1.0, 12: 1.0}
    for _ in range(2):
        with dataset.mem_wal_writer(SHARD) as again:
            assert again.rows_in_memory in (1, 0)
            found = again.lsm_scanner().to_table()
            assert values(found) == expected
        compacted(dataset)
        assert values(live(tmp_path / "t")) == base(tmp_path / "t") == expected
    assert lance.dataset(dataset.uri).count_rows() == 6


def test_rows_without_a_key_are_appended_each_once(tmp_path: Path) -> None:
    dataset = lance.write_dataset(pa.table({"a": [1, None]}), str(tmp_path / "t"))
    dataset.initialize_mem_wal(unsharded=True)
    with dataset.mem_wal_writer(SHARD) as writer:
        for value in (7, 7, 8):
            writer.put(pa.table({"a": [value, None]}))
            writer.flush()
        done = compacted(dataset)
        assert (done.commits, done.generations, done.upserted) == (1, 3, 6)
        assert compacted(dataset).commits == 0
    found = lance.dataset(dataset.uri).to_table()["a"].to_pylist()
    assert sorted(found, key=str) == [1, 7, 7, 8, None, None, None, None]
    assert live(tmp_path / "t").num_rows == 8


def test_several_shards_in_one_commit(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    for shard, key in ((SHARD, 10), (OTHER_SHARD, 20)):
        with dataset.mem_wal_writer(shard) as writer:
            writer.put(rows([key], 1.0))
            writer.flush()
            writer.put(rows([key, key + 1], 2.0))
    one = compacted(dataset, shards=[OTHER_SHARD])
    assert (one.commits, one.generations) == (1, 2)
    assert marks(dataset) == {OTHER_SHARD: 2}
    assert compacted(dataset).commits == 1
    assert marks(dataset) == {SHARD: 2, OTHER_SHARD: 2}
    assert base(tmp_path / "t") == {1: 0.0, 2: 0.0, 3: 0.0, 10: 2.0, 11: 2.0, 20: 2.0, 21: 2.0}
    with pytest.raises(InvalidInput, match="has no shard"):
        compacted(dataset, shards=["6f1f3a52-9d0e-4f7c-8a57-0c6a5d1e2b3d"])


def test_what_is_too_much_for_one_commit_is_done_in_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "MAX_COMMIT_ROWS", 3)
    dataset = streamed(tmp_path / "t")
    for shard, first in ((SHARD, 10), (OTHER_SHARD, 30)):
        with dataset.mem_wal_writer(shard) as writer:
            for key in range(first, first + 4):
                writer.put(rows([key, first + 9], float(key)))
                writer.flush()
    done = compacted(dataset)
    assert (done.commits, done.generations) == (8, 8)
    expected = {key: float(key) for first in (10, 30) for key in range(first, first + 4)}
    assert base(tmp_path / "t") == {1: 0.0, 2: 0.0, 3: 0.0, **expected, 19: 13.0, 39: 33.0}


def test_a_key_that_stands_twice_in_the_base_stands_once_afterwards(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t", ids=[1, 2, 2, 3, 3])
    with dataset.mem_wal_writer(SHARD) as writer:
        writer.put(rows([2], 1.0))
        writer.delete(keys([3]))
    done = compacted(dataset)
    assert (done.upserted, done.deleted) == (1, 3)
    assert base(tmp_path / "t") == {1: 0.0, 2: 1.0}


def test_a_key_of_two_columns_and_columns_that_may_not_be_null(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("n", pa.int32(), False),
            pa.field("a", pa.string(), False, {**KEY, b"lance-schema:unenforced-primary-key:position": b"2"}),
            pa.field("b", pa.int64(), False, {**KEY, b"lance-schema:unenforced-primary-key:position": b"1"}),
        ]
    )

    def table(*found: tuple[int, str, int]) -> pa.Table:
        return pa.Table.from_pylist([dict(zip("nab", each, strict=True)) for each in found], schema)

    dataset = lance.write_dataset(table((0, "x", 1), (0, "x", 2), (0, "y", 1)), str(tmp_path / "t"))
    dataset.initialize_mem_wal()
    with dataset.mem_wal_writer(SHARD) as writer:
        writer.put(table((1, "x", 1), (1, "z", 9)))
        writer.flush()
        writer.delete(pa.table({"b": [2, 9], "a": ["x", "z"]}))
    done = compacted(dataset)
    assert (done.upserted, done.deleted) == (1, 1)
    found = lance.dataset(dataset.uri).to_table().to_pylist()
    assert sorted((each["a"], each["b"], each["n"]) for each in found) == [("x", 1, 1), ("y", 1, 0)]


# -- beside others -----------------------------------------------------------------------------------


def between(monkeypatch: pytest.MonkeyPatch, step: Callable[[], None]) -> None:
    """Let `step` happen once, right before the compactor commits."""
    commit = RowChanges.commit
    left = [step]

    def patched(self: RowChanges, *given: Any, **options: Any) -> Any:
        while left:
            left.pop()()
        return commit(self, *given, **options)

    monkeypatch.setattr(RowChanges, "commit", patched)


def test_another_compactor_was_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = streamed(tmp_path / "t")
    with dataset.mem_wal_writer(SHARD) as writer:
        expected = history(writer)
        other = lance.dataset(dataset.uri, session=lance.Session())
        told: list[Compaction] = []
        between(monkeypatch, lambda: told.append(compacted(other)))
        done = compacted(dataset)
        assert (told[0].commits, done.commits, done.version) == (1, 0, told[0].version)
        assert base(tmp_path / "t") == expected


def test_another_compactor_did_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = streamed(tmp_path / "t")
    with dataset.mem_wal_writer(SHARD) as writer:
        expected = history(writer)

        def one() -> None:
            builder = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            builder.mark_sstables_as_compacted([lance.mem_wal.CompactedSsTable(SHARD, 1)])
            builder.execute(pa.Table.from_batches([rows([3, 5, 8], 1.0)]))

        between(monkeypatch, one)
        done = compacted(dataset)
        assert (done.commits, done.generations) == (1, 1)
        assert base(tmp_path / "t") == expected


def test_rows_of_the_base_that_change_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is appended with a streamed key before the compaction counts as older."""
    dataset = streamed(tmp_path / "t")
    with dataset.mem_wal_writer(SHARD) as writer:
        expected = history(writer)

        def change() -> None:
            other = lance.dataset(dataset.uri)
            other.delete("id = 3")
            other.insert(pa.Table.from_batches([rows([6, 99, 50], 9.0)]))

        between(monkeypatch, change)
        done = compacted(dataset)
        assert done.commits == 1
        assert base(tmp_path / "t") == {**expected, 50: 9.0}


def test_an_owner_publishes_while_sstables_leave_its_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither undoes the other, and the owner goes on."""
    dataset = streamed(tmp_path / "t")
    with dataset.mem_wal_writer(SHARD) as writer:
        expected = history(writer)
        made = []

        def also(shard: Any, manifest: Any) -> Any:
            if not made:
                made.append(True)
                writer.flush()
            return publish(shard, manifest)

        monkeypatch.setattr("tiltyard.memwal.manifest.publish", also)
        compacted(dataset)
        manifest = newest_manifest(tmp_path / "t")
        assert made
        assert [each.generation for each in manifest.sstables] == [3]
        writer.put(rows([70], 3.0))
        assert values(live(tmp_path / "t", writer)) == {**expected, 7: 3.0, 70: 3.0}


def test_a_shard_is_claimed_while_sstables_leave_its_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = streamed(tmp_path / "t")
    writer = dataset.mem_wal_writer(SHARD)
    expected = history(writer)
    writer.abort()
    taken: list[Any] = []

    def also(shard: Any, manifest: Any) -> Any:
        if not taken:
            taken.append(None)
            taken[0] = lance.dataset(dataset.uri).mem_wal_writer(SHARD)
        return publish(shard, manifest)

    monkeypatch.setattr("tiltyard.memwal.manifest.publish", also)
    done = compacted(dataset)
    assert not done.problems
    manifest = newest_manifest(tmp_path / "t")
    assert (manifest.writer_epoch, manifest.sstables) == (2, ())
    taken[0].put(rows([70], 3.0))
    assert values(live(tmp_path / "t", taken[0])) == {**expected, 7: 3.0, 70: 3.0}
    taken[0].close()


def test_too_many_conflicts_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = streamed(tmp_path / "t")
    with dataset.mem_wal_writer(SHARD) as writer:
        writer.put(rows([2], 1.0))
        writer.flush()
    commit = RowChanges.commit

    def patched(self: RowChanges, *given: Any, **options: Any) -> Any:
        monkeypatch.setattr(RowChanges, "commit", commit)  # somebody rewrites the row each time
        lance.dataset(dataset.uri).update({"v": "v + 1"}, "id = 2")
        monkeypatch.setattr(RowChanges, "commit", patched)
        return commit(self, *given, **options)

    monkeypatch.setattr(RowChanges, "commit", patched)
    monkeypatch.setattr(compaction, "MAX_CONFLICTS", 3)
    with pytest.raises(TooMuchContention, match="planned 3 times"):
        compacted(dataset)
    monkeypatch.setattr(RowChanges, "commit", commit)
    assert marks(dataset) == {}
    assert compacted(dataset).commits == 1


def test_a_conflict_that_is_no_compactors_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = streamed(tmp_path / "t")
    with dataset.mem_wal_writer(SHARD) as writer:
        writer.put(rows([2], 1.0))
        writer.flush()

        def overwritten() -> None:
            lance.write_dataset(
                pa.Table.from_batches([rows([1])]), dataset.uri, mode="overwrite", discard_streamed=True
            )

        between(monkeypatch, overwritten)
        with pytest.raises((IncompatibleTransaction, InvalidInput)):
            compacted(dataset)
        writer.abort()
    assert base(tmp_path / "t") == {1: 0.0}


# -- what is wrong -----------------------------------------------------------------------------------


def test_a_shard_that_the_disk_does_not_give_does_not_keep_the_others(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    for shard, key in ((SHARD, 10), (OTHER_SHARD, 20)):
        with dataset.mem_wal_writer(shard) as writer:
            writer.put(rows([key], 1.0))
    rule = Rule(Fault.FAIL_BEFORE, path=f"*{SHARD}/*_gen_1/data/*", times=None)
    with port_installed(FaultyPort(Plan(rule))):
        failing = lance.dataset(dataset.uri, session=lance.Session())
        done = compacted(failing)
    assert rule.seen
    assert list(done.problems) == [SHARD]
    assert (done.commits, marks(dataset)) == (1, {OTHER_SHARD: 1})
    assert not compacted(dataset).problems
    assert base(tmp_path / "t") == {1: 0.0, 2: 0.0, 3: 0.0, 10: 1.0, 20: 1.0}


def test_a_shard_whose_manifest_is_damaged_while_it_is_trimmed_does_not_keep_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = streamed(tmp_path / "t")
    for shard, key in ((SHARD, 10), (OTHER_SHARD, 20)):
        with dataset.mem_wal_writer(shard) as writer:
            writer.put(rows([key], 1.0))

    def damaged(shard: Any) -> Any:
        if shard.uri.endswith(SHARD):
            raise CorruptFile("it is damaged")
        return newest(shard)

    monkeypatch.setattr(compaction, "newest", damaged)
    done = compacted(dataset)
    assert (done.commits, list(done.problems)) == (1, [SHARD])
    assert [len(newest_manifest(tmp_path / "t", each).sstables) for each in (SHARD, OTHER_SHARD)] == [1, 0]


@pytest.mark.parametrize("damage", ["gone", "cut", "manifest"])
def test_a_damaged_shard_does_not_keep_the_others(tmp_path: Path, damage: str) -> None:
    dataset = streamed(tmp_path / "t")
    for shard, key in ((SHARD, 10), (OTHER_SHARD, 20)):
        with dataset.mem_wal_writer(shard) as writer:
            writer.put(rows([key], 1.0))
    directory = tmp_path / "t" / "_mem_wal" / SHARD
    (file,) = directory.glob("*_gen_1/data/*.lance")
    if damage == "gone":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(file.read_bytes()[:-50])
    else:
        for each in (directory / "manifest").glob("*.binpb"):
            each.write_bytes(b"\xff\xff\xff")
    other = lance.dataset(dataset.uri, session=lance.Session())
    done = compacted(other)
    assert list(done.problems) == [SHARD]
    assert isinstance(done.problems[SHARD], CorruptFile | OSError)
    if damage != "manifest":
        assert f"generation 1 of shard {SHARD}" in str(done.problems[SHARD])
    assert (done.commits, marks(other)) == (1, {OTHER_SHARD: 1})
    assert base(tmp_path / "t") == {1: 0.0, 2: 0.0, 3: 0.0, 20: 1.0}


def test_sealed_shards_are_compacted_and_stay_sealed(tmp_path: Path) -> None:
    from dataclasses import replace

    dataset = streamed(tmp_path / "t")
    with dataset.mem_wal_writer(SHARD) as writer:
        writer.put(rows([10], 1.0))
    shard = shard_store(dataset)
    known = newest(shard)
    assert known is not None
    publish(shard, replace(known, version=known.version + 1, status=SEALED))
    assert compacted(dataset).generations == 1
    manifest = newest_manifest(tmp_path / "t")
    assert (manifest.status, manifest.sstables) == (SEALED, ())


def test_shards_of_an_earlier_life_stay_out(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    with dataset.mem_wal_writer(SHARD) as writer:
        writer.put(rows([10], 1.0))
    kept = tmp_path / "kept"
    (tmp_path / "t" / "_mem_wal" / SHARD).rename(kept)
    table = pa.Table.from_batches([rows([1])])
    again = lance.write_dataset(table, dataset.uri, mode="overwrite", discard_streamed=True)
    again.initialize_mem_wal()
    kept.rename(tmp_path / "t" / "_mem_wal" / SHARD)
    before = digest(tmp_path / "t")
    assert compacted(again).commits == 0
    assert digest(tmp_path / "t") == before


# -- cut off -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Fault.CRASH, Fault.CRASH_AFTER])
@pytest.mark.parametrize(
    ("call", "path"),
    [
        ("open_new", "data/*.lance"),
        ("open_new", "_deletions/*"),
        ("link_handle", "_versions/*.manifest"),
        ("link_handle", "*.binpb"),
    ],
)
def test_the_next_one_goes_on_from_wherever_one_was_cut_off(
    tmp_path: Path, call: str, path: str, fault: Fault
) -> None:
    dataset = streamed(tmp_path / "t")
    with dataset.mem_wal_writer(SHARD) as writer:
        expected = {**history(writer), 7: 3.0}
    with port_installed(FaultyPort(Plan(Rule(fault, call, path=path)))):
        dying = lance.dataset(dataset.uri, session=lance.Session())
        with pytest.raises(Crashed):
            compacted(dying)
    assert values(live(tmp_path / "t")) == expected
    again = lance.dataset(dataset.uri, session=lance.Session())
    compacted(again)
    assert base(tmp_path / "t") == values(live(tmp_path / "t")) == expected
    assert newest_manifest(tmp_path / "t").sstables == ()


def test_trimming_what_is_trimmed_writes_nothing(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    with dataset.mem_wal_writer(SHARD) as writer:
        writer.put(rows([10], 1.0))
    assert trim(shard_store(dataset, OTHER_SHARD), 3) is None
    trim(shard_store(dataset), 1)
    before = digest(tmp_path / "t")
    trim(shard_store(dataset), 1)
    assert digest(tmp_path / "t") == before


def test_a_restored_version_keeps_the_marks_and_compaction_goes_on(tmp_path: Path) -> None:
    """What was compacted since goes with the versions that it was compacted into; what comes later counts."""
    dataset = streamed(tmp_path / "t")
    first = dataset.version
    with dataset.mem_wal_writer(SHARD) as writer:
        writer.put(rows([10], 1.0))
        writer.flush()
        compacted(dataset)
        lance.dataset(dataset.uri, version=first).restore()
        assert marks(dataset) == {SHARD: 1}
        assert base(tmp_path / "t") == values(live(tmp_path / "t", writer)) == {1: 0.0, 2: 0.0, 3: 0.0}
        writer.put(rows([11], 2.0))
        writer.flush()
        done = compacted(dataset)
        assert (done.generations, dict(done.problems)) == (1, {})
    assert base(tmp_path / "t") == {1: 0.0, 2: 0.0, 3: 0.0, 11: 2.0}


def test_what_comes_before_a_generation_that_cannot_be_read_is_compacted(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    with dataset.mem_wal_writer(SHARD) as writer:
        for key in (10, 11, 12):
            writer.put(rows([key], 1.0))
            writer.flush()
    (file,) = (tmp_path / "t" / "_mem_wal" / SHARD).glob("*_gen_2/data/*.lance")
    sound = file.read_bytes()
    file.write_bytes(sound[:-50])
    other = lance.dataset(dataset.uri, session=lance.Session())
    done = compacted(other)
    assert "generation 2" in str(done.problems[SHARD])
    assert marks(other) == {SHARD: 1}
    assert base(tmp_path / "t") == {1: 0.0, 2: 0.0, 3: 0.0, 10: 1.0}
    file.write_bytes(sound)
    again = lance.dataset(dataset.uri, session=lance.Session())
    assert compacted(again).generations == 2
    assert base(tmp_path / "t") == {1: 0.0, 2: 0.0, 3: 0.0, **dict.fromkeys((10, 11, 12), 1.0)}
