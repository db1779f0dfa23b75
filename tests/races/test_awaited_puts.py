"""A process that awaits many puts at once is killed: what was acknowledged is there, and nothing twice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa

import tiltyard as ty

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("life", pa.int64())])
KILLS = 3
PUTTERS = 60
ACKNOWLEDGED = 200  # before each kill, at least

WRITER = """
import asyncio, os, sys
import tiltyard as ty

life = int(sys.argv[2])


async def putting(stream, number):
    for count in range(10_000):
        key = 2 * ((life * 100 + number) * 10_000 + count)
        await stream.aput({"id": [key, key + 1], "life": [life, life]})
        os.write(1, b"%d\\n" % key)


async def main():
    async with ty.open_table(sys.argv[1]).stream(shards=3) as stream:
        await asyncio.gather(*(putting(stream, number) for number in range(int(sys.argv[3]))))


asyncio.run(main())
"""


def test_what_was_acknowledged_to_coroutines_survives_kills(tmp_path: Path) -> None:
    table = ty.connect(tmp_path).create_table("t", SCHEMA, key="id")
    acknowledged: set[int] = set()
    for life in range(KILLS):
        command = [sys.executable, "-c", WRITER, table.uri, str(life), str(PUTTERS)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        try:
            told = [process.stdout.readline() for _ in range(ACKNOWLEDGED)]
        finally:
            process.kill()
        told += process.stdout.readlines()
        process.wait()
        whole = [int(line) for line in told if line.endswith(b"\n")]
        assert len(whole) >= ACKNOWLEDGED
        acknowledged |= set(whole)
        found = table.live().scan(["id"]).to_arrow()["id"].to_pylist()
        assert len(found) == len(set(found))
        there = set(found)
        missing = sorted(acknowledged - there)
        assert not missing, f"{len(missing)} acknowledged rows are gone: {missing[:5]}"
        assert all(key + 1 in there for key in acknowledged)
    with table.stream() as stream:
        stream.put({"id": [-1, -2, -3, -4, -5], "life": [0] * 5})  # takes the shards over
        assert acknowledged <= set(table.live().to_arrow()["id"].to_pylist())
