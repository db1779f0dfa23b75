"""Writers of one shard that are killed (SIGKILL) while they put, flush and publish, and what must hold then;
for tests on disks and in buckets.

The workers note in a file, before and after each call, what they do: what was not acknowledged may be there.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import TypeAlias

import pyarrow as pa

import tiltyard.lance as lance
from mem_wal_peer import SCAN, listed
from peer import Peer
from streamed import KEY, SHARD, live, newest_manifest
from tiltyard.memwal.check import check_shards
from tiltyard.memwal.compaction import compact_streams
from tiltyard.memwal.marks import marks_of
from tiltyard.memwal.writer import ShardWriter
from workers import Worker

Options: TypeAlias = dict[str, str] | None

STREAM = """
import os
told = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
for left in reversed(range(100)):
    try:
        dataset = lance.dataset(path, storage_options=options)
        writer = dataset.mem_wal_writer(shard, max_wal_flush_interval_ms=4, max_memtable_rows=16)
        break
    except OSError as error:  # the official package has listed a file that was collected, without a grace
        if not left or "No such file" not in str(error):
            raise
schema = lance.dataset(path, storage_options=options).schema
step = first
os.write(told, b"begun\\n")
while True:
    ids = [1000 + 3 * step + i for i in range(3)]
    if keyed:
        ids.append(step % 7)
    os.write(told, b"try %d\\n" % step)
    writer.put(pa.Table.from_pydict({"id": ids, "step": [step] * len(ids)}, schema=schema))
    if keyed and step % 2:
        writer.delete(pa.table({"id": pa.array([1000 + 3 * (step - 1)])}))
    os.write(told, b"ok %d\\n" % step)
    step += 1
"""
KEEP = """
import time
from tiltyard.memwal.collection import Grace, collect_streams
from tiltyard.memwal.compaction import compact_streams
while True:
    ds = lance.dataset(path, storage_options=options)
    done = compact_streams(ds._store, ds._session)
    gone = collect_streams(ds._store, ds._session, grace=Grace(0, 0, 3600))
    for problem in (*done.problems.values(), *gone.problems.values()):
        raise problem
    time.sleep(0.002)
"""
HOT = 7
DEADLINE_SECONDS = 60
OURS, THEIRS = "tiltyard.lance", "lance"


def kill_in_turn(
    tmp_path: Path,
    peer: Peer,
    keyed: bool,
    kills: int,
    draw: Random,
    kept: bool = False,
    where: str | None = None,
    options: Options = None,
) -> None:
    """Writers of a table in `tmp_path`, or at `where`, are killed one after the other; `kept`: so are who
    compact and collect beside them.
    """
    path, notes = where or str(tmp_path / "t"), tmp_path / "notes"
    key = pa.field("id", pa.int64(), False, KEY) if keyed else pa.field("id", pa.int64())
    schema = pa.schema([key, pa.field("step", pa.int64())])
    empty = lance.write_dataset(schema.empty_table(), path, schema=schema, storage_options=options)
    empty.initialize_mem_wal()
    notes.touch()
    waiting = Worker(OURS)
    keepers = Keepers(path, options, draw) if kept else None
    for turn in range(kills):
        worker, waiting = waiting, Worker(THEIRS if turn % 2 == 0 else OURS)
        done = notes.read_text().count("ok")
        worker.begin(
            STREAM,
            path=path,
            options=options,
            shard=SHARD,
            notes=str(notes),
            first=tried(notes) + 1,
            keyed=keyed,
        )
        await_steps(worker, notes, done + draw.randint(4, 25))
        time.sleep(draw.random() * 0.004)  # anywhere within a step
        worker.kill()
        if keepers is not None:
            keepers.killed()
        if turn % 10 == 9:
            look(path, notes, keyed, options)
    waiting.close()
    if keepers is not None:
        keepers.await_pass()
        keepers.close()
    look(path, notes, keyed, options)
    if kept:
        dataset = lance.dataset(path, storage_options=options)
        compact_streams(dataset._store, dataset._session)
        whole = lance.dataset(path, storage_options=options).to_table()
        assert sorted(whole.to_pylist(), key=str) == sorted(live(path, options=options).to_pylist(), key=str)
    if keyed:
        theirs = peer(SCAN, p=path, o=options, listed=listed(newest_manifest(path, options=options)))
        assert sorted(theirs.to_pylist(), key=str) == sorted(live(path, options=options).to_pylist(), key=str)
    assert not [
        each
        for each in check_shards(lance.dataset(path, storage_options=options)._snapshot)
        if each.is_damage
    ]


class Keepers:
    """A process that compacts and collects, killed at any moment; then another one."""

    def __init__(self, path: str, options: Options, draw: Random) -> None:
        self._path, self._options, self._draw = path, options, draw
        self._worker = self._begun()

    def _begun(self) -> Worker:
        worker = Worker(OURS)
        worker.begin(KEEP, path=self._path, options=self._options)
        return worker

    def await_pass(self) -> None:
        """Let the last one bring something in, unless one before it has."""
        ShardWriter.open(
            lance.dataset(self._path, storage_options=self._options), SHARD
        ).close()  # publishes what there is
        until = time.monotonic() + DEADLINE_SECONDS
        while not marks_of(lance.dataset(self._path, storage_options=self._options)._snapshot).get(SHARD):
            assert time.monotonic() < until, "no process that compacts has brought anything in"
            time.sleep(0.05)

    def killed(self) -> None:
        """End it anywhere within a pass, now and then, and begin another one."""
        if self._draw.random() < 0.5:
            return
        time.sleep(self._draw.random() * 0.02)
        self.close()
        self._worker = self._begun()

    def close(self) -> None:
        """End it. Raises what has ended it before."""
        if self._worker.has_answered:
            self._worker.answer(1)
        self._worker.kill()


def tried(notes: Path) -> int:
    """The last step that was begun."""
    steps = [line.split()[1] for line in notes.read_text().splitlines() if line.startswith("try")]
    return int(steps[-1]) if steps else -1


def await_steps(worker: Worker, notes: Path, wanted: int) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while notes.read_text().count("ok") < wanted:
        if worker.has_answered or time.monotonic() > deadline:
            worker.answer(1)  # raises what ended it
            raise AssertionError("a writer stopped")
        time.sleep(0.002)


def look(path: str, notes: Path, keyed: bool, options: Options = None) -> None:
    """We take the shard over, and compare what is there with what was noted."""
    lines = [line.split() for line in notes.read_text().splitlines() if line != "begun"]
    acknowledged = {int(step) for word, step in lines if word == "ok"}
    begun = {int(step) for word, step in lines if word == "try"}
    with ShardWriter.open(lance.dataset(path, storage_options=options), SHARD) as writer:
        found = live(path, writer, options=options).to_pydict()
    assert live(path, options=options).num_rows == len(found["id"])
    counts = Counter(found["id"])
    assert set(counts.values()) <= {1}
    step_of = dict(zip(found["id"], found["step"], strict=True))
    steps = {key: step for key, step in step_of.items() if key >= 1000}
    assert all(step == (key - 1000) // 3 for key, step in steps.items())
    assert set(steps.values()) <= begun
    for step in acknowledged:
        kept = [1000 + 3 * step + i for i in range(3)]
        deleted = keyed and step % 2 == 0 and step + 1 in acknowledged
        unsure = keyed and step % 2 == 0 and step + 1 in begun
        present = [key for key in kept if key in step_of]
        assert present == kept[1:] if deleted else present in ([kept, kept[1:]] if unsure else [kept]), step
    if keyed:
        for hot in range(HOT):
            last = max((step for step in acknowledged if step % HOT == hot), default=-1)
            assert step_of.get(hot, -1) >= last
