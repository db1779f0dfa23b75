"""Whether a stream keeps its pace while it is tidied up: `benchmarks/steady.py [--seconds 10] [--turns 4]`.

One thread puts 1,000 rows at a time, upserts over a million keys, in turns without and with another process
that brings what was published into the table and collects what nobody needs, again and again. Prints rows a
second and rows a second of processor time of the writing process, what share of a processor the other one
took, and what lies on the disk at the end; in the end the ratios. It should not be below `LEAST`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import streams

KEYS, ROWS = 1_000_000, 1000
PARTS = 200
LEAST = 0.7
PAUSE_SECONDS = 0.5
"""Between two passes of upkeep."""


def upkeep(path: str, stop: Any, passes: Any, spent: Any) -> None:
    """Compact and collect until told to stop."""
    import tiltyard.lance as lance
    from tiltyard.memwal.collection import Grace
    from tiltyard.memwal.upkeep import keep_streams

    dataset = lance.dataset(path)
    while not stop.is_set():
        done, _ = keep_streams(dataset, Grace(sstables=1.0, log=0.0))
        passes.value += bool(done.generations)
        spent.value = time.process_time()
        stop.wait(PAUSE_SECONDS)


def puts(writer: Any, parts: list[Any], seconds: float) -> tuple[float, float]:
    """Rows a second, and a second of processor time."""
    began, spent, count = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - began < seconds:
        writer.put(parts[count % len(parts)])
        count += 1
    rows = count * ROWS
    return rows / (time.perf_counter() - began), rows / (time.process_time() - spent)


def megabytes(path: Path) -> float:
    return sum(each.stat().st_size for each in path.rglob("*") if each.is_file()) / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--dir", help="where the tables go (default: a temporary directory)")
    arguments = parser.parse_args()
    import tiltyard.lance as lance

    spawn = multiprocessing.get_context("spawn")
    draw = np.random.default_rng(7)
    parts = [streams.rows_of(int(at), ROWS) for at in draw.integers(0, KEYS, PARTS)]
    rates: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    with tempfile.TemporaryDirectory(dir=arguments.dir) as place:
        for turn in range(arguments.turns):
            for kept in (False, True) if turn % 2 else (True, False):
                path = Path(place, f"{turn}-{kept}")
                writer = streams.Shard(lance, str(path), KEYS).writer()
                puts(writer, parts, 0.5)
                stop, done, spent = spawn.Event(), spawn.Value("i", 0), spawn.Value("d", 0.0)
                keeper = spawn.Process(target=upkeep, args=(str(path), stop, done, spent))
                if kept:
                    keeper.start()
                    while not done.value:  # it is at work
                        puts(writer, parts, 0.2)
                before, passes = spent.value, done.value
                rates[kept].append(puts(writer, parts, arguments.seconds))
                share, passes = (spent.value - before) / arguments.seconds, done.value - passes
                stop.set()
                if kept:
                    keeper.join()
                wall, processor = rates[kept][-1]
                print(
                    f"{'kept' if kept else 'alone':6} {wall:12,.0f} rows/s {processor:12,.0f} rows/CPU s; "
                    f"{passes} compactions, {share:.2f} CPU; {megabytes(path):,.0f} MB",
                    flush=True,
                )
                writer.abort()
                shutil.rmtree(path, ignore_errors=True)  # the writer may be publishing
    alone, kept_rates = (
        [statistics.median(each[at] for each in rates[key]) for at in (0, 1)] for key in (False, True)
    )
    ratios = [mine / theirs for mine, theirs in zip(kept_rates, alone, strict=True)]
    print(f"ratio {ratios[0]:.2f}, of processor time {ratios[1]:.2f}")
    return 0 if ratios[0] >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
