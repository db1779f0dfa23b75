"""Cases G: memory and upkeep of tables that change in a loop."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import resource, sys
import pyarrow as pa
import tiltyard as ty

path, rounds, warm = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rows = 5000
def batch(start, count, text):
    keys = [(start + i) % rows for i in range(count)]
    return pa.table({"id": pa.array(keys, pa.int64()), "text": [f"{text} {i} " * 8 for i in keys]})

table = ty.create_table(path, batch(0, rows, "first"))
table.create_index("id")

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

seen = []
for turn in range(rounds):
    start = turn * 137 % rows
    table.upsert(batch(start, 100, f"round {turn}"), on="id")
    table.delete(f"id >= {start} and id < {start + 50}")
    table.upsert(batch(start, 100, f"again {turn}"), on="id")
    if turn % 5 == 4:
        report = table.optimize(older_than="0s")
        assert report.ok, str(report)
        assert len(table.dataset.get_fragments()) <= 2, report
        assert table.count() == rows, table.count()
    if turn >= warm:
        seen.append(resident())
late, early = max(seen[-5:]), max(seen[:5])
print(early, late, sum(len(each) for each in table.history()))
assert late < 1.2 * early, (early, late)
assert table.scan(where="id = 77").to_arrow().num_rows == 1
"""


def test_memory_is_flat_under_upserts_deletes_upkeep_and_cleanup(tmp_path: Path) -> None:
    """Case G08, in short: 60 rounds instead of 500."""
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p), TILTYARD_DURABLE="0")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "t"), "60", "25"],
        capture_output=True,
        text=True,
        env=env,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    files = [each for each in (tmp_path / "t").rglob("*") if each.is_file()]
    assert len(files) < 60  # what nobody needs any more is gone
