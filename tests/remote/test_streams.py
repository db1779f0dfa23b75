"""Streams into a table in a bucket: owners of both implementations in turn, lost answers, takeovers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from peer import Peer
from s3_server import Rule, S3Server
from streamed import SHARD, keys, rows, values
from tiltyard.errors import WriterFenced
from tiltyard.memwal.capture import capture
from tiltyard.memwal.scan import LsmScan
from tiltyard.memwal.writer import ShardWriter
from workers import Crew

OPEN = """
kept["w"] = lance.dataset(p, storage_options=o).mem_wal_writer(shard, max_wal_flush_interval_ms=5)
result = kept["w"].lsm_scanner().to_table()
"""
PUT = "kept['w'].put(rows)"
CLOSE = "kept.pop('w').close()"

STREAM = """
from tiltyard.memwal.writer import ShardWriter
from tiltyard.errors import ClaimLost, WriterFenced
from streamed import rows
result = []
writer = None
while writer is None:
    try:
        writer = ShardWriter.open(lance.dataset(p, storage_options=o), shard)
    except ClaimLost:
        continue
try:
    for number in range(1000):
        writer.put(rows([100 * me + number], float(me)))
        result.append(100 * me + number)
        if number >= 10: break
except WriterFenced as error:
    result.append(error.outcome)
finally:
    writer.abort()
"""


@pytest.fixture
def place(s3: S3Server, bucket: str) -> str:
    where = f"s3://{bucket}/t.lance"
    table = pa.Table.from_batches([rows([1, 2, 3])])
    lance.write_dataset(table, where, storage_options=s3.options()).initialize_mem_wal()
    return where


def _live(where: str, s3: S3Server, *writers: ShardWriter) -> dict[int, float]:
    dataset = lance.dataset(where, storage_options=s3.options())
    return values(LsmScan(capture(dataset._store, dataset._session, writers)).table())


def _ours(where: str, s3: S3Server, **options: Any) -> ShardWriter:
    return ShardWriter.open(lance.dataset(where, storage_options=s3.options()), SHARD, **options)


def test_owners_of_both_implementations_in_turn(place: str, s3: S3Server, peer: Peer) -> None:
    writer = _ours(place, s3)
    writer.put(rows([10, 11], 1.0))
    writer.delete(keys([3]))
    writer.put(rows([2], 2.0))
    writer.abort()
    expected = {1: 0.0, 2: 2.0, 10: 1.0, 11: 1.0}
    assert values(peer(OPEN, p=place, o=s3.options(), shard=SHARD)) == expected
    peer(PUT, rows=pa.Table.from_batches([rows([1], 9.0)]))
    peer(CLOSE)
    expected[1] = 9.0
    with _ours(place, s3) as again:
        assert _live(place, s3, again) == expected
        again.put(rows([12], 3.0))
    expected[12] = 3.0
    assert values(peer(OPEN, p=place, o=s3.options(), shard=SHARD)) == expected
    peer(CLOSE)


@pytest.mark.parametrize("what", ["lose", "drop", "done-status", "twice"])
def test_what_was_acknowledged_is_there_once_despite_lost_answers(
    what: str, place: str, s3: S3Server
) -> None:
    rules = [Rule(what, "PUT", r"\.arrow$", skip=k) for k in (0, 3)]
    rules += [Rule(what, "PUT", "/manifest/", skip=k) for k in (0, 1)]
    expected = dict.fromkeys((1, 2, 3), 0.0)
    with s3.breaking(*rules), _ours(place, s3) as writer:
        for number in range(6):
            writer.put(rows([number], float(number)))
            expected[number] = float(number)
        assert _live(place, s3, writer) == expected
    with _ours(place, s3) as again:
        assert _live(place, s3, again) == expected


def test_an_owner_that_was_passed_is_fenced(place: str, s3: S3Server) -> None:
    first = _ours(place, s3)
    first.put(rows([10], 1.0))
    with _ours(place, s3) as second:
        second.put(rows([11], 2.0))
        with pytest.raises(WriterFenced):
            first.put(rows([12], 3.0))
        assert _live(place, s3, second) == {1: 0, 2: 0, 3: 0, 10: 1.0, 11: 2.0}
    first.abort()


def test_owners_in_processes_that_take_each_other_over_lose_nothing(
    place: str, s3: S3Server, crew: Crew
) -> None:
    workers = crew.ours(2)
    with s3.breaking(Rule("delay", times=1 << 30, seconds=0.002)):
        for me, worker in enumerate(workers):
            worker.begin(STREAM, me=me + 1, p=place, o=s3.options(), shard=SHARD)
        answers = [worker.answer() for worker in workers]
    sure = [key for told in answers for key in told if isinstance(key, int)]
    assert sure
    with _ours(place, s3):
        pass  # what it finds in the log is published
    found = _live(place, s3)
    assert {key for key in sure if key not in found} == set()
    # Besides what was acknowledged, at most the last put of who was fenced.
    assert len(set(found) - set(sure) - {1, 2, 3}) <= len(workers)
