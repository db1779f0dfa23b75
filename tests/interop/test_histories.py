"""Random histories of one table, each step by one of the two implementations, against a model in memory.

After every step both read the newest version, and one old version, and must agree with the model.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from peer import Peer

STEPS = 14
SOAK_SEEDS = int(os.environ.get("TILTYARD_HISTORIES", "150"))
Rows = list[dict[str, Any]]


class History:
    """The table, the model, and the dice. `past` maps versions to their rows."""

    def __init__(self, path: str, peer: Peer, seed: int) -> None:
        self.path, self.peer, self.dice = path, peer, random.Random(seed)
        self.rows: Rows = []
        self.past: dict[int, Rows] = {}
        self.columns = {"id": pa.int64(), "text": pa.string(), "v": pa.list_(pa.float32(), 2)}
        self.next_id = 0
        self.log: list[str] = []

    # -- the steps -------------------------------------------------------------------------------

    def table(self, count: int) -> tuple[pa.Table, Rows]:
        rows = []
        for _ in range(count):
            row: dict[str, Any] = dict.fromkeys(self.columns)
            row["id"], self.next_id = self.next_id, self.next_id + 1
            if self.dice.random() < 0.8:
                row["text"] = self.dice.choice(["a", "b", "", "a longer text, not only a letter"])
            if self.dice.random() < 0.8:
                row["v"] = [float(row["id"]), 0.5]
            for extra in set(self.columns) - {"id", "text", "v"}:
                row[extra] = row["id"] * 2
            rows.append(row)
        return pa.Table.from_pylist(rows, schema=pa.schema(list(self.columns.items()))), rows

    def write(self, by: str, mode: str) -> None:
        table, rows = self.table(self.dice.choice((1, 5, 60, 1100)))
        options = {"mode": mode, "max_rows_per_file": self.dice.choice((7, 500, 10_000))}
        if by == "ours":
            lance.write_dataset(table, self.path, **options)
        else:
            self.peer("result = lance.write_dataset(t, p, **o) and None", t=table, p=self.path, o=options)
        self.rows = self.rows + rows if mode == "append" else rows

    def delete(self, by: str) -> None:
        kind = self.dice.randrange(4)
        low = self.dice.randrange(self.next_id + 1)
        high = low + self.dice.choice((1, 20, 2000))
        predicate, keep = (
            (f"id >= {low} AND id < {high}", lambda r: not low <= r["id"] < high),
            ("text IS NULL AND id % 3 = 1", lambda r: not (r["text"] is None and r["id"] % 3 == 1)),
            (f"text = 'a' AND id < {high}", lambda r: not (r["text"] == "a" and r["id"] < high)),
            (f"id IN ({low}, {high}, {low + 3})", lambda r: r["id"] not in (low, high, low + 3)),
        )[kind]
        if by == "ours":
            lance.dataset(self.path).delete(predicate)
        else:
            self.peer("result = lance.dataset(p).delete(w) and None", p=self.path, w=predicate)
        self.rows = [r for r in self.rows if keep(r)]

    def restore(self, by: str) -> None:
        version = self.dice.choice(sorted(self.past))
        if by == "ours":
            lance.dataset(self.path, version=version).restore()
        else:
            self.peer("result = lance.dataset(p, version=v).restore()", p=self.path, v=version)
        self.rows = self.past[version]
        self.columns = {
            name: kind for name, kind in self.columns.items() if not self.rows or name in self.rows[0]
        }

    def add_column(self) -> None:
        name = f"extra{len(self.columns)}"
        self.peer("result = lance.dataset(p).add_columns({n: 'id * 2'})", p=self.path, n=name)
        self.columns[name] = pa.int64()
        self.rows = [{**r, name: r["id"] * 2} for r in self.rows]

    def compact(self) -> None:
        self.peer("result = lance.dataset(p).optimize.compact_files() and None", p=self.path)

    def step(self) -> None:
        by = self.dice.choice(("ours", "peer"))
        what = self.dice.choices(
            ("append", "delete", "overwrite", "restore", "compact", "add"), (8, 6, 1, 1, 2, 1)
        )[0]
        self.log.append(f"{what} by {by}")
        match what:
            case "append" | "overwrite":
                if what == "overwrite":
                    self.columns = dict(list(self.columns.items())[:3])
                self.write(by, what)
            case "delete":
                self.delete(by)
            case "restore":
                self.restore(by)
            case "compact":
                self.compact()
            case "add":
                self.add_column()
        self.past[lance.dataset(self.path).version] = self.rows

    # -- the look --------------------------------------------------------------------------------

    def check(self) -> None:
        self.look(None, self.rows)
        old = self.dice.choice(sorted(self.past))
        self.look(old, self.past[old])

    def look(self, version: int | None, right: Rows) -> None:
        told = f"version {version} after {self.log}"
        dataset = lance.dataset(self.path, version=version)
        mine = dataset.to_table()
        theirs = self.peer("lance.dataset(p, version=v).to_table()", p=self.path, v=version)
        assert mine.schema.names == theirs.schema.names, told
        assert mine.to_pylist() == theirs.to_pylist(), told
        assert mine.to_pylist() == right, told
        assert dataset.count_rows() == len(right), told
        if right:
            picks = sorted(self.dice.randrange(len(right)) for _ in range(5))
            assert dataset.take(picks).to_pylist() == [right[i] for i in picks], told
            middle = right[len(right) // 2]["id"]
            kept = [r for r in right if r["id"] > middle and r["text"] != "a" and r["text"] is not None]
            found = dataset.to_table(filter=f"id > {middle} AND text != 'a'")
            assert found.to_pylist() == kept, told


def run(path: str, peer: Peer, seed: int) -> None:
    history = History(path, peer, seed)
    first = "ours" if seed % 2 else "peer"
    history.log.append(f"create by {first}")
    history.write(first, "create")
    history.past[1] = history.rows
    for _ in range(STEPS):
        history.step()
        history.check()


@pytest.mark.parametrize("seed", range(6))
def test_a_random_history_of_both_reads_the_same_on_both_sides(seed: int, tmp_path: Path, peer: Peer) -> None:
    run(str(tmp_path / "t.lance"), peer, seed)


@pytest.mark.soak
def test_many_random_histories_read_the_same_on_both_sides(tmp_path: Path, peer: Peer) -> None:
    for seed in range(1000, 1000 + SOAK_SEEDS):
        run(str(tmp_path / f"t{seed}.lance"), peer, seed)
