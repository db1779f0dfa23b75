"""Rows of every type and shape move unharmed when another column of them is updated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as ours
from column_rewrites import bounded
from peer import Peer
from tables_alike import difference
from typematrix import Entry, entries

SHIFT = 1_000_000


def updatable() -> list[Any]:
    return [
        pytest.param(
            entry, version, marks=[] if entry.sampled else [pytest.mark.wide], id=f"{entry.name}-{version}"
        )
        for entry in entries()
        if not entry.alone and entry.peer_reads
        for version in entry.versions
    ]


@pytest.mark.parametrize(("entry", "version"), updatable())
def test_rows_move_with_all_their_values(entry: Entry, version: str, tmp_path: Path, peer: Peer) -> None:
    path, table = str(tmp_path / "t.lance"), entry.table
    ds = ours.write_dataset(table, path, data_storage_version=version)
    written = ds.to_table()
    count = sum(n % 3 == 0 for n in range(table.num_rows))
    assert ds.update({"n": f"n + {SHIFT}"}, "n % 3 = 0") == {"num_rows_updated": count}
    order = [n for n in range(table.num_rows) if n % 3] + [n for n in range(table.num_rows) if n % 3 == 0]
    expected = written.take(pa.array(order, pa.int64()))
    numbers = pa.array([n if n % 3 else n + SHIFT for n in order], pa.int64())
    expected = expected.set_column(0, written.schema.field("n"), numbers)
    assert not difference(ds.to_table(), expected)
    assert not difference(peer("lance.dataset(p).to_table()", p=path), expected)


@pytest.mark.parametrize(("entry", "version"), updatable())
def test_columns_are_rewritten_with_what_does_not_change(
    entry: Entry, version: str, tmp_path: Path, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The column is set to itself in some rows, the others are carried over."""
    bounded(monkeypatch)
    path = str(tmp_path / "t.lance")
    ds = ours.write_dataset(entry.table, path, data_storage_version=version)
    written = ds.to_table()
    if not written.num_rows:
        return
    ds.update({"c": "c"}, "n % 3 = 0")
    assert ds.read_transaction(2).operation.update_mode == "rewrite_columns"
    assert not difference(ds.to_table(), written)
    assert not difference(peer("lance.dataset(p).to_table()", p=path), written)
