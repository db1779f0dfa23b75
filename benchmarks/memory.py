"""Peak memory of a streamed scan: `benchmarks/memory.py [--only WORD] [--dir PLACE] [--scale 5]`.

Each package reads every batch of the table that it wrote, in a process of its own, and looks at a byte of
every page that a batch holds. What is printed is by how much the process outgrew what it was with the table
open: all of its resident memory (`VmHWM`), and the largest part of it that is no mapped file (`RssAnon`).
Linux only. Below 0.33 of the official package's is the aim.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import shapes

CHILD = """
import json, sys
import numpy as np
if sys.argv[1] == "pylance":
    import lance
else:
    import tiltyard.lance as lance

def status():
    lines = [line.split() for line in open("/proc/self/status") if line[:5] in ("VmHWM", "VmRSS", "RssAn")]
    return {line[0][:-1]: int(line[1]) / 1024 for line in lines}

dataset = lance.dataset(sys.argv[2])
dataset.count_rows()
before, anonymous, rows = status(), 0.0, 0
for batch in dataset.to_batches():
    rows += batch.num_rows
    for column in batch.columns:
        for buffer in column.buffers():
            if buffer is not None and buffer.size:
                np.frombuffer(buffer, np.uint8)[::4096].max()
    anonymous = max(anonymous, status()["RssAnon"])
print(json.dumps({
    "rows": rows,
    "all": status()["VmHWM"] - before["VmRSS"],
    "own": anonymous - before["RssAnon"],
}))
"""


def measured(side: str, path: str) -> dict[str, float]:
    """MiB over the open table, and rows seen."""
    run = [sys.executable, "-c", CHILD, side, path]
    found: dict[str, float] = json.loads(subprocess.run(run, check=True, capture_output=True).stdout)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="tables whose name contains this")
    parser.add_argument("--scale", type=float, default=5.0, help="rows, in units of those of `run.py`")
    parser.add_argument("--dir", help="where the tables go (default: a temporary directory)")
    arguments = parser.parse_args()
    import lance

    import tiltyard.lance

    packages = {"pylance": lance, "tiltyard": tiltyard.lance}
    print(f"{'table':14} {'bytes':>10} {'pylance all/own':>18} {'tiltyard all/own':>18} {'share':>7}")
    status = 0
    with tempfile.TemporaryDirectory(dir=arguments.dir) as place:
        for name, build in shapes.TABLES.items():
            if arguments.only not in name:
                continue
            table = build(max(1000, int(shapes.FULL_ROWS[name] * arguments.scale)))
            found = {}
            for side, package in packages.items():
                path = str(Path(place, f"{name}-{side}.lance"))
                package.write_dataset(table, path)
                found[side] = measured(side, path)
            left, right = found["pylance"], found["tiltyard"]
            if left["rows"] != right["rows"]:
                status = 1
                print(f"{name}: {left['rows']} rows and {right['rows']}")
            texts = [f"{each['all']:.0f} / {each['own']:.0f} MiB" for each in (left, right)]
            share = right["all"] / max(left["all"], 0.1)
            print(
                f"{name:14} {table.nbytes >> 20:>6} MiB {texts[0]:>18} {texts[1]:>18} {share:>7.2f}",
                flush=True,
            )
    return status


if __name__ == "__main__":
    sys.exit(main())
