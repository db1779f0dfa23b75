"""The files that are damaged: tables of the matrix by both writers, manifests, deletion files, transactions.

`python -m corrupt.victims DIRECTORY` makes them all. Each lies in a directory of its own: the table, the rows
that a whole table gives (`right.arrow`), and `victim.json`, which names the file to damage.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

import tiltyard.lance as ours
from peer import Peer
from typematrix import named

LARGE_ROWS = 200_000  # 1.6 MB a column: more than what is mapped instead of read

# (entry of the matrix, file version, writer): together every page layout and every leaf encoding
DATA_FILES = (
    ("int64?", "2.2", "ours"),
    ("runs_int64", "2.2", "ours"),
    ("bool?", "2.1", "peer"),
    ("decimal128_38_10?", "2.2", "peer"),
    ("urls", "2.2", "ours"),
    ("urls", "2.1", "peer"),
    ("categories", "2.2", "peer"),
    ("large_binary?", "2.1", "ours"),
    ("over_256_bytes", "2.2", "ours"),
    ("over_32_kib", "2.1", "peer"),
    ("dictionary_int8_string?", "2.2", "ours"),
    ("list_int32?", "2.2", "ours"),
    ("list_list_list_string?", "2.1", "peer"),
    ("list_struct?", "2.2", "peer"),
    ("struct_list_struct_struct?", "2.2", "ours"),
    ("map_string_int32?", "2.2", "ours"),
    ("fsl_float_128?", "2.2", "peer"),
    ("fsl_fsl_float_2x3?", "2.1", "ours"),
    ("list_fsl_float_4?", "2.2", "ours"),
    ("int64?", "2.0", "peer"),
    ("urls", "2.0", "peer"),
    ("categories", "2.0", "peer"),
    ("dictionary_int8_string?", "2.0", "peer"),
    ("list_list_list_string?", "2.0", "peer"),
    ("struct_list_struct_struct", "2.0", "peer"),
    ("fsl_fsl_float_2x3?", "2.0", "peer"),
)


@dataclass(frozen=True, slots=True)
class Victim:
    """`target` is the path inside the table of the file to damage; `kind` what it is."""

    directory: Path
    target: str
    kind: str

    @property
    def table(self) -> Path:
        return self.directory / "table.lance"


def load(directory: Path) -> Victim:
    facts = json.loads((directory / "victim.json").read_text())
    return Victim(directory, facts["target"], facts["kind"])


def make_all(root: Path, peer: Peer) -> list[Victim]:
    """Every victim below `root`."""
    made = []
    for name, version, writer in DATA_FILES:
        safe = name.replace("?", "_null")
        place = root / f"{safe}-{version}-{writer}"
        table = named(name).table
        _write(table, place, peer, writer, version)
        made.append(_describe(place, table, "data", "data/*.lance"))
    large = pa.table({"n": np.arange(LARGE_ROWS), "x": np.random.default_rng(1).random(LARGE_ROWS)})
    _write(large, root / "large-2.2-ours", peer, "ours", "2.2")
    made.append(_describe(root / "large-2.2-ours", large, "data", "data/*.lance"))
    return made + _metadata(root, peer)


def _metadata(root: Path, peer: Peer) -> list[Victim]:
    table = pa.table({"n": np.arange(3000), "text": [f"t{i % 50}" for i in range(3000)]})

    def deletes_of(share: str) -> Callable[[str, Path], pa.Table]:
        predicate = "n % 500 = 3" if share == "few" else "n % 2 = 1"

        def act(writer: str, place: Path) -> pa.Table:
            if writer == "ours":
                ours.dataset(str(place)).delete(predicate)
            else:
                peer("result = lance.dataset(p).delete(w) and None", p=str(place), w=predicate)
            keep = [i % 500 != 3 if share == "few" else i % 2 != 1 for i in range(3000)]
            return table.filter(pa.array(keep))

        return act

    def append(writer: str, place: Path) -> pa.Table:
        for _ in range(3):
            if writer == "ours":
                ours.write_dataset(table, str(place), mode="append")
            else:
                peer("result = lance.write_dataset(t, p, mode='append') and None", t=table, p=str(place))
        return pa.concat_tables([table] * 4)

    made = []
    for writer in ("ours", "peer"):
        for label, kind, pattern, act in (
            ("manifest", "manifest", "_versions/*.manifest", append),
            ("deletions-few", "deletions", "_deletions/*", deletes_of("few")),
            ("deletions-many", "deletions", "_deletions/*", deletes_of("many")),
        ):
            place = root / f"{label}-{writer}"
            _write(table, place, peer, writer, "2.2")
            right = act(writer, place / "table.lance")
            made.append(_describe(place, right, kind, pattern))
    place = root / "transaction-peer"
    _write(table, place, peer, "peer", "2.2")
    made.append(_describe(place, table, "transaction", "_transactions/*.txn"))
    return made


def _write(table: pa.Table, place: Path, peer: Peer, writer: str, version: str) -> None:
    place.mkdir(parents=True)
    path = str(place / "table.lance")
    if writer == "ours":
        ours.write_dataset(table, path, data_storage_version=version)
    else:
        source = "result = lance.write_dataset(t, p, data_storage_version=v) and None"
        peer(source, t=table, p=path, v=version)


def _describe(place: Path, right: pa.Table, kind: str, pattern: str) -> Victim:
    """Names of manifests count down, so the first in order is the newest; of the others there is one."""
    root = place / "table.lance"
    target = sorted(root.glob(pattern))[0].relative_to(root).as_posix()
    (place / "victim.json").write_text(json.dumps({"target": target, "kind": kind}))
    with pa.OSFile(str(place / "right.arrow"), "wb") as out, pa.ipc.new_file(out, right.schema) as writer:
        writer.write_table(right)
    return Victim(place, target, kind)


if __name__ == "__main__":
    where = Path(sys.argv[1])
    shutil.rmtree(where, ignore_errors=True)
    official = Peer()
    print(f"{len(make_all(where, official))} files to damage in {where}")
    official.close()
