"""Side by side with the official package: `make bench`, or `benchmarks/run.py [--quick] [--only WORD]`.

Each row runs both in one process, turn by turn in the order A B B A, so that drift of the machine hits both;
medians are compared. A ratio above 1 means that we are faster (or, for sizes, smaller). Answers are compared
outside the timed part: a row whose answers differ is marked and makes the run fail.
"""

from __future__ import annotations

import argparse
import gc
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import shapes
import streams

ROUNDS = 7  # A B B A turns of a row: twice as many timings of each side
BUDGET_SECONDS = 8.0  # of measured time for one row
TITLE = f"{'workload':56} {'pylance':>12} {'tiltyard':>12} {'ratio':>8}"


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison: `run(side)` is timed, `prepare(side)` before each is not; `unit` 's' or 'B'.

    With unit 'B' the value that `run` returns is compared instead of the time that it takes.
    """

    name: str
    run: Callable[[str], Any]
    prepare: Callable[[str], None] = field(default=lambda side: None)
    answer: Callable[[Any], Any] | None = None
    unit: str = "s"
    rounds: int = ROUNDS


class Bench:
    """Both packages and the tables that each wrote for itself."""

    def __init__(self, place: Path, scale: float) -> None:
        import lance

        import tiltyard.lance

        self.packages: dict[str, Any] = {"pylance": lance, "tiltyard": tiltyard.lance}
        self.place = place
        self.scale = scale
        self._handles: dict[str, Any] = {}
        self._scratch = 0

    def rows_of(self, full: int) -> int:
        return max(1000, int(full * self.scale))

    def path(self, side: str, name: str) -> str:
        return str(self.place / f"{name}-{side}.lance")

    def write(self, name: str, table: Any, **options: Any) -> None:
        for side, package in self.packages.items():
            package.write_dataset(table, self.path(side, name), **options)

    def open(self, side: str, name: str) -> Any:
        return self.packages[side].dataset(self.path(side, name))

    def handle(self, side: str, name: str) -> Any:
        """An open handle that is kept: the warm case."""
        key = f"{side} {name}"
        if key not in self._handles:
            self._handles[key] = self.open(side, name)
        return self._handles[key]

    def scratch(self, side: str) -> str:
        """A path that nothing has yet; what the last one held is removed."""
        shutil.rmtree(self.place / f"scratch-{side}-{self._scratch}", ignore_errors=True)
        self._scratch += 1
        return str(self.place / f"scratch-{side}-{self._scratch}")


def all_rows(bench: Bench) -> Iterator[Row]:
    for name, build in shapes.TABLES.items():
        yield from _scan_and_write(bench, name, build)
    yield from _takes(bench)
    yield from _filters(bench)
    yield from _opens(bench)
    yield from _commits(bench)
    yield from (Row(**each) for each in streams.rows(bench))
    yield _import_time()


def _scan_and_write(bench: Bench, name: str, build: Callable[[int], Any]) -> Iterator[Row]:
    table = build(bench.rows_of(shapes.FULL_ROWS[name]))
    bench.write(name, table)

    def scan(side: str) -> Any:
        found = bench.open(side, name).to_table()
        shapes.touch(found)
        return found

    yield Row(f"scan {name}, {table.num_rows:,} rows", scan, answer=shapes.fingerprint)
    if name == "wide":
        yield Row(
            "scan 1 of 100 columns",
            lambda side: bench.open(side, name).to_table(columns=["c050"]),
            answer=shapes.fingerprint,
        )
        return

    def write(side: str) -> Any:
        return bench.packages[side].write_dataset(table, bench.scratch(side))

    yield Row(f"write {name}", write, rounds=2)
    yield Row(
        f"size {name}", lambda side: shapes.data_bytes(Path(bench.path(side, name))), unit="B", rounds=1
    )


def _takes(bench: Bench) -> Iterator[Row]:
    import numpy as np

    for name in ("numbers", "urls", "vectors"):
        rows = bench.rows_of(shapes.FULL_ROWS[name])
        for count in (1, 100, 5_000 if name != "vectors" else 1_000):
            picks = np.sort(
                np.random.default_rng(count).choice(rows, min(count, rows), replace=False)
            ).tolist()

            def warm(side: str, name: str = name, picks: list[int] = picks) -> Any:
                return bench.handle(side, name).take(picks)

            def cold(side: str, name: str = name, picks: list[int] = picks) -> Any:
                return bench.open(side, name).take(picks)

            yield Row(f"take {len(picks):,} of {name}, open handle", warm, answer=shapes.fingerprint)
            yield Row(f"take {len(picks):,} of {name}, freshly opened", cold, answer=shapes.fingerprint)


def _filters(bench: Bench) -> Iterator[Row]:
    rows = bench.rows_of(5_000_000)
    bench.write("keys", shapes.keys(rows))
    for share in (0.0001, 0.01, 0.5):
        where = f"k < {int(rows * share)}"

        def select(side: str, where: str = where) -> Any:
            return bench.handle(side, "keys").to_table(filter=where)

        yield Row(f"filter that keeps {share:.2%} of {rows:,}", select, answer=shapes.fingerprint)
    point = f"k = {rows // 3}"
    yield Row(
        "filter for one key",
        lambda side: bench.handle(side, "keys").to_table(filter=point),
        answer=shapes.fingerprint,
    )
    count = f"k < {rows // 100}"
    yield Row(
        "count_rows of 1%", lambda side: bench.handle(side, "keys").count_rows(count), answer=lambda n: n
    )


def _opens(bench: Bench) -> Iterator[Row]:
    small = shapes.keyed(10)
    fragments, versions = bench.rows_of(1000), max(20, int(300 * bench.scale))
    bench.write("fragments", shapes.keyed(10 * fragments), max_rows_per_file=10)
    for side, package in bench.packages.items():
        for number in range(versions):
            package.write_dataset(small, bench.path(side, "versions"), mode="append" if number else "create")
    yield Row(f"open, {versions} versions", lambda side: bench.open(side, "versions"))
    yield Row(f"open, {fragments:,} fragments", lambda side: bench.open(side, "fragments"))
    yield Row(
        f"open and take 1, {fragments:,} fragments",
        lambda side: bench.open(side, "fragments").take([fragments]),
        answer=shapes.fingerprint,
    )
    yield Row(
        f"scan {fragments:,} fragments of 10 rows",
        lambda side: bench.open(side, "fragments").to_table(),
        answer=shapes.fingerprint,
        rounds=2,
    )


def _commits(bench: Bench) -> Iterator[Row]:
    small = shapes.keyed(10)
    for side, package in bench.packages.items():
        package.write_dataset(small, bench.path(side, "appends"))

    def append(side: str) -> None:
        bench.packages[side].write_dataset(small, bench.path(side, "appends"), mode="append")

    yield Row("append 10 rows", append, rounds=30)
    rows = bench.rows_of(500_000)
    bench.write("deletes", shapes.keyed(rows))
    kept: dict[str, str] = {}

    def copy(side: str) -> None:
        kept[side] = bench.scratch(side)
        shutil.copytree(bench.path(side, "deletes"), kept[side])

    def delete(side: str) -> None:
        bench.packages[side].dataset(kept[side]).delete(f"id < {rows // 100}")

    yield Row(f"delete 1% of {rows:,}", delete, copy, rounds=3)


def _import_time() -> Row:
    """A new Python that imports the package and ends."""
    statement = {"pylance": "import lance", "tiltyard": "import tiltyard"}

    def run(side: str) -> None:
        subprocess.run([sys.executable, "-c", statement[side]], check=True)

    return Row("python -c 'import ...'", run, rounds=3)


# -- measuring -----------------------------------------------------------------------------------


def measure(row: Row) -> tuple[dict[str, float], str]:
    """Medians of both sides, and what is wrong (empty if nothing)."""
    values: dict[str, list[float]] = {"pylance": [], "tiltyard": []}
    answers: dict[str, Any] = {}
    spent, turn = 0.0, 0
    while turn < row.rounds and (spent < BUDGET_SECONDS or turn < 1):
        for side in ("pylance", "tiltyard", "tiltyard", "pylance"):
            row.prepare(side)
            gc.disable()
            started = time.perf_counter()
            found = row.run(side)
            seconds = time.perf_counter() - started
            gc.enable()
            spent += seconds
            values[side].append(seconds if row.unit == "s" else float(found))
            if row.answer is not None and side not in answers:
                answers[side] = row.answer(found)
            del found
        turn += 1
    differ = row.answer is not None and answers["pylance"] != answers["tiltyard"]
    return {side: statistics.median(v) for side, v in values.items()}, "ANSWERS DIFFER" if differ else ""


def shown(value: float, unit: str) -> str:
    if unit == "B":
        return f"{value / 1e6:.2f} MB"
    return f"{value:.3f} s" if value >= 1 else f"{value * 1e3:.3f} ms"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the sizes")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--dir", help="where the tables go (default: a temporary directory)")
    arguments = parser.parse_args()
    status = 0
    with tempfile.TemporaryDirectory(dir=arguments.dir) as place:
        bench = Bench(Path(place), 0.1 if arguments.quick else 1.0)
        print(TITLE, flush=True)
        for row in all_rows(bench):
            if arguments.only not in row.name:
                continue
            try:
                medians, wrong = measure(row)
            except Exception as error:  # one row that fails must not hide the others
                status = 1
                print(f"{row.name:56} {type(error).__name__}: {str(error)[:120]}", flush=True)
                continue
            status |= bool(wrong)
            left, right = (shown(medians[s], row.unit) for s in ("pylance", "tiltyard"))
            ratio = medians["pylance"] / max(medians["tiltyard"], 1e-9)
            print(f"{row.name:56} {left:>12} {right:>12} {ratio:>7.2f}x {wrong}".rstrip(), flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
