"""Memory of merges (case G07; G08 in full, in short it is in `test_g_upkeep`), in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROWS = 2_000_000

BEGIN = """
import gc, json, sys, threading, time
import numpy as np, pyarrow as pa
import tiltyard.lance as lance
from tiltyard.session import Limits

MIB = 1 << 20

def resident():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024

class Watch:
    def __enter__(self):
        gc.collect()
        self.before = self.peak = resident()
        self.on = True
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        return self
    def run(self):
        while self.on:
            self.peak = max(self.peak, resident())
            time.sleep(0.002)
    def __exit__(self, *error):
        self.on = False
        self.thread.join()
"""

EVERY_ROW = (
    BEGIN
    + """
path, rows, partial = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "partial"
limits = Limits(cache_bytes=16 * MIB, map_bytes=16 * MIB, arena_bytes=16 * MIB, spill_bytes=32 * MIB)
session = lance.Session(limits=limits)

def batches(added, names):
    for first in range(0, rows, 65536):
        ids = np.arange(first, min(first + 65536, rows)) * 1_000_003 % rows
        columns = {"id": ids, "v": ids + added, "w": ids * 0.5}
        yield pa.record_batch([pa.array(columns[name]) for name in names], names=names)

schema = next(batches(0, ["id", "v", "w"])).schema
ds = lance.write_dataset(batches(0, ["id", "v", "w"]), path, schema=schema, session=session)
names = ["id", "v"] if partial else ["id", "v", "w"]
schema = next(batches(0, names)).schema
with Watch() as watch:
    source = pa.RecordBatchReader.from_batches(schema, batches(7, names))
    counts = ds.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(source)
table = ds.to_table(columns=["id", "v"])
right = bool((table["v"].to_numpy() == table["id"].to_numpy() + 7).all()) and table.num_rows == rows
print(json.dumps({"over": watch.peak - watch.before, "counts": counts, "right": right}))
"""
)

REPEATED = (
    BEGIN
    + """
path, rounds = sys.argv[1], int(sys.argv[2])
ids = np.arange(5000)
ds = lance.write_dataset(pa.table({"id": ids, "v": ids}), path)
seen = []
for n in range(rounds):
    some = (ids[:100] + 100 * n) % 5000
    ds.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(
        pa.table({"id": np.concatenate([some, 5000 + ids[:100]]), "v": np.full(200, n)})
    )
    ds.delete("id >= 5000")
    if n % 10 == 9:
        ds.optimize.compact_files()
        ds.cleanup_old_versions(older_than=__import__("datetime").timedelta(0))
        gc.collect()
        seen.append(resident())
print(json.dumps({"seen": seen, "rows": ds.count_rows()}))
"""
)


def _run(source: str, *arguments: str, seconds: int = 300) -> dict[str, object]:
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p), TILTYARD_DURABLE="0")
    done = subprocess.run(
        [sys.executable, "-c", source, *arguments], env=env, capture_output=True, timeout=seconds
    )
    assert done.returncode == 0, done.stderr.decode()
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize(("columns", "cap_mib"), [("all", 150), ("partial", 180)])
def test_g07_an_upsert_of_every_row_stays_below_a_cap(tmp_path: Path, columns: str, cap_mib: int) -> None:
    done = _run(EVERY_ROW, str(tmp_path / "t"), str(ROWS), columns)
    assert done["right"]
    assert done["counts"] == {"num_inserted_rows": 0, "num_updated_rows": ROWS, "num_deleted_rows": 0}
    assert float(str(done["over"])) < cap_mib


def _is_flat(seen: list[float]) -> bool:
    """Within 20 percent after warm-up."""
    warm = seen[len(seen) // 4 :]
    return max(warm) < 1.2 * min(warm)


@pytest.mark.soak
def test_g08_memory_of_five_hundred_rounds_is_flat(tmp_path: Path) -> None:
    done = _run(REPEATED, str(tmp_path / "t"), "500", seconds=1800)
    assert done["rows"] == 5000
    assert _is_flat(list(map(float, done["seen"])))  # type: ignore[call-overload]
