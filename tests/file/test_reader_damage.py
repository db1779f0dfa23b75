"""Damaged files give right data or one of our errors, never another exception (case E19 in small)."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from peer import Peer
from tiltyard.errors import TiltyardError
from tiltyard.file import read_file
from tiltyard.session import Session

DAMAGES = 60
#: Nulls of structs have no place in 2.0, maps none below 2.2.
VERSIONS = ("2.0", "2.1", "2.2")
#: Bytes at the end of a file in which layouts and tables stand: damage there reaches the planner.
TAIL_BYTES = 700

WRITE = """
import lance.file
with lance.file.LanceFileWriter(path, table.schema, version=version) as writer:
    writer.write_batch(table.to_batches()[0])
"""


def victims() -> dict[str, pa.Table]:
    rng = np.random.default_rng(0)
    n = 300
    mask = rng.random(n) < 0.2
    lists = [None if m else list(range(k)) for m, k in zip(mask, rng.integers(0, 5, n), strict=True)]
    points = [None if m else {"x": i, "y": f"{i}"} for i, m in enumerate(mask)]
    columns: dict[str, pa.Array] = {
        "integers": pa.array(rng.integers(0, 1000, n), mask=mask),
        "runs": pa.array(np.repeat(rng.integers(0, 9, 6).astype(np.int32), 50)),
        "booleans": pa.array(mask, mask=mask),
        "strings": pa.array([rng.bytes(6).hex() for _ in range(n)], mask=mask),
        "few strings": pa.array([f"w{i % 5}" for i in range(n)], mask=mask),
        "long strings": pa.array([f"{i}" * 200 for i in range(n)], mask=mask),
        "one value": pa.array([None if m else 5 for m in mask], pa.int32()),
        "lists": pa.array(lists, pa.list_(pa.int32())),
        "lists of long strings": pa.array(
            [None if x is None else ["abc" * 100] * len(x) for x in lists], pa.list_(pa.string())
        ),
        "structs": pa.array(points, pa.struct([("x", pa.int64()), ("y", pa.string())])),
        "vectors": pa.FixedSizeListArray.from_arrays(pa.array(rng.random(n * 40)), 40),
        "vectors of nulls": pa.FixedSizeListArray.from_arrays(
            pa.array(rng.random(n * 3), mask=rng.random(n * 3) < 0.1), 3
        ),
        "dictionary": pa.array([f"w{i % 5}" for i in range(n)], mask=mask).dictionary_encode(),
        "maps": pa.array(
            [None if x is None else [(f"k{i}", i) for i in x] for x in lists], pa.map_(pa.string(), pa.int8())
        ),
    }
    return {name: pa.table({"c": array}) for name, array in columns.items()}


VICTIMS = victims()


def damaged(data: bytes, rng: random.Random) -> bytes:
    broken = bytearray(data)
    if rng.random() < 0.1:
        return bytes(broken[: rng.randrange(len(broken))])
    for _ in range(rng.choice((1, 1, 2, 8))):
        low = 0 if rng.random() < 0.5 else max(0, len(broken) - TAIL_BYTES)
        at = rng.randrange(low, len(broken))
        if rng.random() < 0.5:
            broken[at] ^= 1 << rng.randrange(8)
        else:
            for i in range(at, min(len(broken), at + rng.choice((1, 4, 8)))):
                broken[i] = rng.choice((0, 255, rng.randrange(256)))
    return bytes(broken)


def read_all(data: bytes) -> None:
    reader = read_file(pa.py_buffer(data), "broken.lance", Session())
    n = reader.num_rows
    wanted: list[Any] = [slice(None), slice(n // 3, n // 2), np.array([0, max(n - 1, 0), n // 2])]
    for rows in wanted:
        for array in reader.read(reader.schema.fields, None, rows):
            array.validate()
    reader.verify()


@pytest.mark.parametrize("name", VICTIMS)
def test_random_damage(name: str, kernel_form: str, peer: Peer, tmp_path: Path) -> None:
    for version in ("2.2",) if name == "maps" else ("2.1", "2.2") if name == "structs" else VERSIONS:
        path = tmp_path / f"{version}.lance"
        peer(WRITE, path=str(path), table=VICTIMS[name], version=version)
        data = path.read_bytes()
        rng = random.Random(f"{name} {version}")
        for _ in range(DAMAGES if kernel_form == "compiled" else DAMAGES // 4):
            with suppress(TiltyardError):  # what is allowed; anything else fails the test
                read_all(damaged(data, rng))
