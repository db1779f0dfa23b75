"""Cases M01, M02, M04, M06 to M09, M14, M17 and M18: streams through the official package's names.

Left for later: the parts of M06 about text search, and those of M09 about vector indices: ours searches
exactly.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from streamed import BASE, KEY, OTHER_SHARD, SHARD, digest, keys, live, log_names, rows, streamed, values
from tiltyard.errors import (
    InvalidInput,
    OutcomeUnknown,
    SchemaMismatch,
    StoreError,
    TiltyardError,
    WriterFenced,
    WriterPoisoned,
)
from tiltyard.memwal import publishing
from tiltyard.memwal.tail import tail
from tiltyard.store.local import LocalStore
from tiltyard.testing.faults import Crashed, Fault, FaultyPort, Plan, Rule, port_installed


def table(rows: Any) -> pa.Table:
    return pa.Table.from_batches([rows])


def shown(writer: Any) -> dict[int, float]:
    return values(writer.lsm_scanner().to_table())


def test_a_fenced_writer_fails_at_everything_and_overwrites_nothing(tmp_path: Path) -> None:
    """M01."""
    dataset = streamed(tmp_path / "t")
    first = dataset.mem_wal_writer(SHARD)
    first.put(table(rows([10], 1.0)))
    second = lance.dataset(dataset.uri).mem_wal_writer(SHARD)
    second.put(table(rows([10, 11], 2.0)))
    before = digest(tmp_path / "t")
    for call in (lambda: first.put(table(rows([12]))), lambda: shown(first), first.close):
        with pytest.raises(WriterFenced, match="Writer fenced"):
            call()
    assert digest(tmp_path / "t") == before
    second.put(table(rows([13], 3.0)))
    expected = {**BASE, 10: 2.0, 11: 2.0, 13: 3.0}
    assert shown(second) == expected
    second.close()
    with dataset.mem_wal_writer(SHARD) as third:
        assert shown(third) == expected


def test_a_failed_log_write_poisons_the_writer_and_memory_is_not_ahead_of_the_log(tmp_path: Path) -> None:
    """M02."""
    dataset = streamed(tmp_path / "t")
    plan = Plan(Rule(Fault.FAIL_BEFORE, "link_handle", at=3, times=None, path="*.arrow"))
    done = []
    with port_installed(FaultyPort(plan)):
        faulty = lance.dataset(dataset.uri, session=lance.Session())
        writer = faulty.mem_wal_writer(SHARD)
        with contextlib.suppress(WriterPoisoned, OutcomeUnknown, StoreError):
            for key in range(10, 15):
                writer.put(table(rows([key], 1.0)))
                done.append(key)
        assert len(done) < 5
        for call in (lambda: writer.put(table(rows([20]))), lambda: shown(writer), writer.close):
            with pytest.raises(TiltyardError):
                call()
    with dataset.mem_wal_writer(SHARD) as again:
        assert shown(again) == {**BASE, **dict.fromkeys(done, 1.0)}
    assert values(live(tmp_path / "t")) == {**BASE, **dict.fromkeys(done, 1.0)}


def test_durable_rows_that_were_not_published_are_there_after_a_death(tmp_path: Path) -> None:
    """M04; with processes that are killed in tests/races/test_mem_wal_kills.py."""
    dataset = streamed(tmp_path / "t")
    plan = Plan(Rule(Fault.CRASH, "link_handle", at=4, path="*.arrow"))
    with port_installed(FaultyPort(plan)):
        writer = lance.dataset(dataset.uri, session=lance.Session()).mem_wal_writer(SHARD)
        for key in (10, 11, 12):
            writer.put(table(rows([key], 1.0)))
        with pytest.raises(Crashed):
            writer.put(table(rows([13], 1.0)))
    again = dataset.mem_wal_writer(SHARD)
    assert shown(again) == {**BASE, 10: 1.0, 11: 1.0, 12: 1.0}
    tip = again.owned.log.next_position
    assert tip == 5  # above its three entries and our sentinel
    again.put(table(rows([30], 2.0)))
    assert len(log_names(tmp_path / "t")) == tip
    again.close()


def test_what_is_replayed_is_not_logged_again(tmp_path: Path) -> None:
    """M06."""
    dataset = streamed(tmp_path / "t")
    writer = dataset.mem_wal_writer(SHARD)
    for key in (10, 11, 12):
        writer.put(table(rows([key], 1.0)))
    writer.abort()
    writer = dataset.mem_wal_writer(SHARD)
    writer.put(table(rows([13], 1.0)))
    writer.abort()
    writer = dataset.mem_wal_writer(SHARD)
    shard = LocalStore(f"{dataset.uri}/_mem_wal/{SHARD}")
    entries = list(tail(shard, writer.owned.schema))
    assert [each.rows.to_pydict()["id"] for each in entries] == [[10], [11], [12], [13]]
    assert writer.memtable_stats()["row_count"] == 4
    writer.close()
    assert values(live(tmp_path / "t")) == {**BASE, **dict.fromkeys(range(10, 14), 1.0)}
    assert [each.physical_rows for each in writer.manifest.sstables] == [4]


def test_rows_of_a_frozen_memtable_are_seen_while_it_is_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M07: SSTables are written, and cannot be named."""

    def refused(*given: Any) -> Any:
        raise StoreError("held back by a test")

    dataset = streamed(tmp_path / "t")
    writer = dataset.mem_wal_writer(SHARD, max_memtable_rows=1)
    expected = dict(BASE)
    with monkeypatch.context() as patched:
        patched.setattr(publishing, "update", refused)
        for key in range(10, 15):
            writer.put(table(rows([key], 1.0)))
            expected[key] = 1.0
            assert shown(writer) == expected
        writer.abort()
    with dataset.mem_wal_writer(SHARD) as again:
        assert shown(again) == expected


def test_a_superseded_row_does_not_come_back_because_it_passes_a_filter(tmp_path: Path) -> None:
    """M08: base and memory, two versions in one MemTable, six generations."""
    dataset = streamed(tmp_path / "t")

    def matching(writer: Any, text: str) -> list[int]:
        return sorted(writer.lsm_scanner().filter(f"s = '{text}'").to_table()["id"].to_pylist())

    with dataset.mem_wal_writer(SHARD) as writer:
        writer.put(table(rows([1], 1.0, "b")))
        assert matching(writer, "a") == [2, 3]
        writer.put(table(rows([1], 2.0, "c")))
        assert (matching(writer, "a"), matching(writer, "b"), matching(writer, "c")) == ([2, 3], [], [1])
        for number in range(6):
            writer.put(table(rows([1], 3.0, f"v{number}")))
            writer.flush()
            assert matching(writer, f"v{number}") == [1]
            for old in range(number):
                assert matching(writer, f"v{old}") == []
        writer.delete(table(keys([1])))
        assert matching(writer, "v5") == []


def test_an_old_vector_does_not_win(tmp_path: Path) -> None:
    """M09, exact."""
    schema = pa.schema([pa.field("id", pa.int64(), False, KEY), ("e", pa.list_(pa.float32(), 2))])

    def vectors(**by_key: list[float]) -> pa.Table:
        return pa.Table.from_pylist([{"id": int(k[1:]), "e": v} for k, v in by_key.items()], schema)

    dataset = lance.write_dataset(vectors(k1=[0.0, 0.0], k9=[9.0, 9.0]), str(tmp_path / "t"))
    dataset.initialize_mem_wal()
    with dataset.mem_wal_writer(SHARD) as writer:
        writer.put(vectors(k1=[50.0, 50.0], k2=[1.0, 1.0], k3=[2.0, 2.0]))
    snapshot = lance.mem_wal.ShardSnapshot(SHARD)
    for each in writer.manifest.sstables:
        snapshot.with_sstable(each.generation, each.path)
    planner = lance.mem_wal.LsmVectorSearchPlanner(lance.dataset(dataset.uri), [snapshot], "e")
    for k, expected in ((1, [2]), (2, [2, 3]), (4, [2, 3, 9, 1])):
        plan = planner.plan_search(pa.array([0.0, 0.0], pa.float32()), k=k)
        assert plan.to_table()["id"].to_pylist() == expected


def test_of_two_rows_of_a_key_in_one_put_the_second_counts(tmp_path: Path) -> None:
    """M14."""
    dataset = streamed(tmp_path / "t")
    twice = pa.concat_tables([table(rows([5], 1.0, "first")), table(rows([5], 2.0, "second"))])
    with dataset.mem_wal_writer(SHARD) as writer:
        writer.put(twice)
        assert shown(writer) == {**BASE, 5: 2.0}
        assert writer.lsm_scanner().count_rows() == 4
    assert live(tmp_path / "t").filter(pa.compute.field("id") == 5)["s"].to_pylist() == ["second"]


def test_a_table_without_a_key_only_grows(tmp_path: Path) -> None:
    """M17: documented as append-only; deleting is refused, and scans give every row that was put."""
    dataset = lance.write_dataset(pa.table({"a": [1]}), str(tmp_path / "t"))
    dataset.initialize_mem_wal(unsharded=True)
    row = pa.table({"a": [7]})
    with dataset.mem_wal_writer(SHARD) as writer:
        writer.put(row)
        writer.put(row)
        with pytest.raises(InvalidInput, match="delete requires a primary key"):
            writer.delete(row)
        assert writer.lsm_scanner().to_table()["a"].to_pylist().count(7) == 2
    assert sorted(live(tmp_path / "t")["a"].to_pylist()) == [1, 7, 7]


FLOATS, TEXTS = pa.array([1.0], pa.float32()), pa.array(["a"])
BAD: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    "missing column": ({"id": pa.array([1]), "v": FLOATS}, SchemaMismatch),
    "extra column": ({"id": pa.array([1]), "v": FLOATS, "s": TEXTS, "x": TEXTS}, SchemaMismatch),
    "narrow integer": ({"id": pa.array([1], pa.int32()), "v": FLOATS, "s": TEXTS}, SchemaMismatch),
    "wide float": ({"id": pa.array([1]), "v": pa.array([1.0]), "s": TEXTS}, SchemaMismatch),
    "null key": ({"id": pa.array([None], pa.int64()), "v": FLOATS, "s": TEXTS}, InvalidInput),
    "a tombstone": (
        {"id": pa.array([1]), "v": FLOATS, "s": TEXTS, "_tombstone": pa.array([True])},
        SchemaMismatch,
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_rows_are_refused_and_the_writer_goes_on(tmp_path: Path, name: str) -> None:
    """M18."""
    columns, error = BAD[name]
    dataset = streamed(tmp_path / "t")
    with dataset.mem_wal_writer(SHARD) as writer:
        writer.put(table(rows([10], 1.0)))
        before = digest(tmp_path / "t")
        with pytest.raises(error):
            writer.put(pa.table(columns))
        assert digest(tmp_path / "t") == before
        assert shown(writer) == {**BASE, 10: 1.0}
        writer.put(table(rows([11], 1.0)))
    assert values(live(tmp_path / "t")) == {**BASE, 10: 1.0, 11: 1.0}


@pytest.mark.parametrize("shard", ["", "x", SHARD[:-1], f"{SHARD}0", f"../{SHARD}", 7, None], ids=str)
def test_a_bad_shard_id_is_refused(tmp_path: Path, shard: Any) -> None:
    """M18."""
    dataset = streamed(tmp_path / "t")
    before = digest(tmp_path / "t")
    with pytest.raises(InvalidInput, match="Invalid shard_id UUID"):
        dataset.mem_wal_writer(shard)
    assert digest(tmp_path / "t") == before


def test_empty_puts_and_keys_of_nobody_change_no_row(tmp_path: Path) -> None:
    """M18."""
    dataset = streamed(tmp_path / "t")
    with dataset.mem_wal_writer(OTHER_SHARD) as writer:
        before = digest(tmp_path / "t")
        writer.put(table(rows([])))
        writer.delete(table(keys([])))
        assert digest(tmp_path / "t") == before
        writer.delete(table(keys([999])))
        assert shown(writer) == BASE
    assert values(live(tmp_path / "t")) == BASE
