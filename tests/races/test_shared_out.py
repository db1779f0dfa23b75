"""Processes that share the shards of a table out among them, and one that gives it others meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tiltyard as ty
from workers import Crew, together

KEYS = list(range(40))
WORKER = """
import tiltyard as ty
table = ty.open_table(p)
shard = dict(zip(keys, table.shard_of(keys).to_pylist()))
mine = [key for key in keys if shard[key] % count == me]
with table.stream(only=[s for s in range(table.sharding.count) if s % count == me]) as stream:
    for number in range(rounds):
        stream.put({"sensor": mine, "value": [float(number)] * len(mine)})
    result = (mine, max(each.epoch for each in stream.shards))
"""
PATIENT = """
import time
import tiltyard as ty
from tiltyard.errors import ShardError
table = ty.open_table(p)
if me == 0:
    result = table.reshard(3).activated
else:
    acknowledged, stream, late = -1, None, 0
    while acknowledged < 2 or late < 2:
        try:
            if stream is None:
                stream = table.stream()
            stream.put({"sensor": [me], "value": [float(acknowledged + 1)]})
            acknowledged += 1
            late += table.sharding.spec_id == 2 and not table.sharding.changing
        except ShardError:  # fenced, or the sharding is being changed
            stream = None
            time.sleep(0.01)
    stream.close()
    result = acknowledged
"""


@pytest.fixture
def readings(tmp_path: Path) -> Any:
    table = ty.connect(tmp_path).create_table("readings", {"sensor": [0], "value": [0.5]}, key="sensor")
    with table.stream(shards=4):
        pass
    return table


def values(table: Any) -> dict[int, float]:
    found = table.live().to_arrow().to_pydict()
    assert len(set(found["sensor"])) == len(found["sensor"])
    return dict(zip(found["sensor"], found["value"], strict=True))


def test_processes_that_share_a_table_out_take_nothing_from_each_other(
    readings: Any, crew: Crew, tmp_path: Path
) -> None:
    given = {"p": str(readings.uri), "keys": KEYS, "count": 2, "rounds": 5}
    answers = together(crew.ours(2), WORKER, tmp_path / "gate", **given)
    assert sorted(key for mine, _ in answers for key in mine) == KEYS
    assert [epoch for _, epoch in answers] == [1, 1]
    assert values(readings) == dict.fromkeys(KEYS, 4.0)


def test_writers_that_come_again_lose_nothing_to_a_change_of_the_shards(
    readings: Any, crew: Crew, tmp_path: Path
) -> None:
    answers = together(crew.ours(3), PATIENT, tmp_path / "gate", p=str(readings.uri))
    assert answers[0] == 2
    assert values(readings) == {0: 0.5, 1: float(answers[1]), 2: float(answers[2])}
