"""Streams into a table in a bucket: writers of both implementations that are killed under load and take each
other over, compactors and collectors beside them and beside each other, sealing, and lost answers of all that
decides. Nothing acknowledged is lost or doubled (cases M04, M05, M06).
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from peer import Peer
from s3_server import Rule, S3Server
from stream_kills import kill_in_turn
from streamed import OTHER_SHARD, SHARD, keys, live, newest_manifest, rows, values
from tiltyard.errors import TiltyardError
from tiltyard.memwal.check import check_shards
from tiltyard.memwal.collection import Grace, collect_streams
from tiltyard.memwal.compaction import compact_streams
from tiltyard.memwal.routing import is_closed
from tiltyard.memwal.writer import ShardWriter
from workers import Crew

LATENCY = Rule("delay", times=1 << 30, seconds=0.002)


@pytest.mark.parametrize(
    ("keyed", "kills", "kept"),
    [
        pytest.param(True, 2, False, id="2"),
        pytest.param(True, 60, False, id="60", marks=pytest.mark.soak),
        pytest.param(False, 40, False, id="40-without-keys", marks=pytest.mark.soak),
        pytest.param(True, 40, True, id="40-kept", marks=pytest.mark.soak),
    ],
)
def test_no_row_is_lost_or_doubled_by_kills(
    tmp_path: Path, s3: S3Server, bucket: str, peer: Peer, keyed: bool, kills: int, kept: bool
) -> None:
    where = f"s3://{bucket}/t.lance"
    with s3.breaking(LATENCY):
        kill_in_turn(tmp_path, peer, keyed, kills, Random(kills), kept, where, s3.options())


class Streamed:
    """A table in a bucket with a MemWAL."""

    def __init__(self, s3: S3Server, bucket: str) -> None:
        self.uri, self.s3, self.options = f"s3://{bucket}/t.lance", s3, s3.options()
        table = pa.Table.from_batches([rows([1, 2, 3])])
        lance.write_dataset(table, self.uri, storage_options=self.options).initialize_mem_wal()

    @property
    def table(self) -> Any:
        return lance.dataset(self.uri, storage_options=self.options)

    def open(self, shard: str = SHARD, **options: Any) -> ShardWriter:
        return ShardWriter.open(self.table, shard, **options)

    def published(self, generations: int, shard: str = SHARD, first: int = 100) -> dict[int, float]:
        """Generations of two rows each, published one by one; what they hold."""
        expected = {}
        for number in range(generations):
            with self.open(shard) as writer:
                ids = [first + 2 * number, first + 2 * number + 1]
                writer.put(rows(ids, float(number)))
                expected.update(dict.fromkeys(ids, float(number)))
        return expected

    def live(self, *writers: ShardWriter) -> dict[int, float]:
        return values(live(self.uri, *writers, options=self.options))

    def manifest(self, shard: str = SHARD) -> Any:
        return newest_manifest(self.uri, shard, self.options)

    def check(self) -> None:
        assert not [each for each in check_shards(self.table._snapshot) if each.is_damage]


@pytest.fixture
def there(s3: S3Server, bucket: str) -> Streamed:
    return Streamed(s3, bucket)


BASE = dict.fromkeys((1, 2, 3), 0.0)

COMPACT = """
from tiltyard.memwal.collection import Grace, collect_streams
from tiltyard.memwal.compaction import compact_streams
for _ in range(passes):
    ds = lance.dataset(p, storage_options=o)
    done = compact_streams(ds._store, ds._session)
    gone = collect_streams(ds._store, ds._session, grace=Grace(0, 0, 3600))
    for problem in (*done.problems.values(), *gone.problems.values()):
        raise problem
"""


@pytest.mark.parametrize("passes", [2, pytest.param(30, marks=pytest.mark.soak)])
def test_two_compactors_and_collectors_at_once_beside_a_writer(
    passes: int, there: Streamed, crew: Crew
) -> None:
    """Case M11."""
    expected = BASE | there.published(2) | there.published(2, OTHER_SHARD, first=200)
    workers = crew.ours(2)
    with there.s3.breaking(LATENCY):
        for worker in workers:
            worker.begin(COMPACT, p=there.uri, o=there.options, passes=passes)
        for number in range(2 * passes):
            with there.open() as writer:
                writer.put(rows([100, 300 + number], float(number)))
                writer.delete(keys([102]))
            expected |= {100: float(number), 300 + number: float(number)}
        for worker in workers:
            worker.answer()
    expected.pop(102)
    assert there.live() == expected
    done = compact_streams(there.table._store, there.table._session)
    assert not done.problems
    assert values(there.table.to_table()) == expected
    there.check()


@pytest.mark.usefixtures("one_clock")
def test_a_shard_is_sealed_emptied_and_collected(there: Streamed, peer: Peer) -> None:
    expected = BASE | there.published(2)
    with there.open() as writer:
        writer.put(rows([400], 4.0))
        with there.s3.breaking(LATENCY):
            there.table.seal_shard(SHARD)
        with pytest.raises(TiltyardError):
            writer.put(rows([401], 4.0))
        writer.abort()
    expected[400] = 4.0
    assert is_closed(there.manifest())
    assert there.live() == expected
    with pytest.raises(TiltyardError):
        there.open()
    store, session = there.table._store, there.table._session
    assert not compact_streams(store, session).problems
    gone = collect_streams(store, session, grace=Grace(0, 0, 0))
    assert gone.entries
    assert gone.directories
    assert not gone.problems
    assert values(there.table.to_table()) == expected
    seen = peer("lance.dataset(p, storage_options=o).to_table()", p=there.uri, o=there.options)
    assert values(seen) == expected
    there.check()


STEPS = {
    "append": r"/wal/[01]+\.arrow$",
    "claim and publish": "/manifest/",
    "data of an SSTable": r"_gen_\d+/.*data/",
    "manifest of an SSTable": r"_gen_\d+/.*_versions/",
    "base version": r"t\.lance/_versions/",
    "data of the base": r"t\.lance/data/",
}
"""What is written with which keys."""


@pytest.mark.parametrize(
    "what", ["lose", *(pytest.param(w, marks=pytest.mark.soak) for w in ("drop", "done-status", "twice"))]
)
@pytest.mark.parametrize("step", list(STEPS))
def test_a_lost_answer_is_resolved_and_nothing_happens_twice(step: str, what: str, there: Streamed) -> None:
    expected = dict(BASE)
    rule = Rule(what, "PUT", STEPS[step], times=1)
    with there.s3.breaking(rule):
        for number in range(2):
            with there.open() as writer:
                for put in range(2):
                    writer.put(rows([10 * number + put, 7], float(number)))
                    expected |= {10 * number + put: float(number), 7: float(number)}
                assert there.live(writer) == expected
        before = there.manifest()
        assert not compact_streams(there.table._store, there.table._session).problems
    assert rule.struck, step
    assert there.live() == expected
    assert values(there.table.to_table()) == expected
    generations = [each.generation for each in before.sstables]
    assert len(generations) == len(set(generations)) == 2
    there.check()


@pytest.mark.parametrize("step", ["append", "claim and publish", "manifest of an SSTable"])
def test_an_answer_that_never_comes_is_no_loss_and_the_next_owner_goes_on(step: str, there: Streamed) -> None:
    """Every request of the kind is lost from the k-th on, as is all that the process could still mend."""
    sure: dict[int, float] = dict(BASE)
    unsure: set[int] = set()
    for k in range(3):
        options = there.s3.options(client_max_retries=0)
        table = lance.dataset(there.uri, storage_options=options)
        with there.s3.breaking(Rule("drop" if k % 2 else "lose", "PUT", STEPS[step], skip=k, times=1 << 30)):
            try:
                with ShardWriter.open(table, SHARD) as writer:
                    for number in range(10 * (k + 1), 10 * (k + 1) + 3):
                        unsure.add(number)
                        writer.put(rows([number], 1.0))
                        unsure.discard(number)
                        sure[number] = 1.0
            except TiltyardError:
                pass
        with there.open() as again:
            found = there.live(again)
        assert there.live() == found
        assert sure.items() <= found.items()
        assert set(found) - set(sure) <= unsure
        there.check()
