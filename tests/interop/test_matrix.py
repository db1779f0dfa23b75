"""Every type and shape of data, at every file version, written by one implementation and read by the other:
whole, a range, single rows, and through a filter.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tiltyard.lance as ours
from peer import Peer
from tables_alike import difference
from typematrix import Entry, entries

READ = """
ds = lance.dataset(path)
result = {"scan": ds.to_table(), "range": ds.to_table(offset=low, limit=count), "take": ds.take(rows)}
if has_number:
    result["filter"] = ds.to_table(columns=["c"], filter=where)
"""


def pairs() -> list[Any]:
    out = []
    for entry in entries():
        for version in entry.versions:
            marks = [] if entry.sampled else [pytest.mark.wide]
            out.append(pytest.param(entry, version, marks=marks, id=f"{entry.name}-{version}"))
    return out


def questions(entry: Entry, table: pa.Table) -> dict[str, Any]:
    """A range over the middle, rows with one asked for twice, and a filter on the number."""
    rng = np.random.default_rng(7)
    rows = table.num_rows
    picks = sorted({0, rows - 1, *rng.integers(0, rows, 12).tolist()}) if rows else []
    return {
        "low": rows // 3,
        "count": rows // 2,
        "rows": picks + picks[3:4],
        "where": f"n >= {rows // 4} AND n < {rows // 4 + 40} AND n != {rows // 4 + 3}",
        "has_number": not entry.alone,
    }


def expected(table: pa.Table, asked: dict[str, Any]) -> dict[str, pa.Table]:
    low = table.num_rows // 4
    wanted = [i for i in range(low, min(low + 40, table.num_rows)) if i != low + 3]
    out = {
        "scan": table,
        "range": table.slice(asked["low"], asked["count"]),
        "take": rows_of(table, asked["rows"]),
    }
    if asked["has_number"]:
        out["filter"] = rows_of(table.select(["c"]), wanted)
    return out


def rows_of(table: pa.Table, rows: list[int]) -> pa.Table:
    """`Table.take` does not know every type; slices do."""
    return pa.concat_tables([table.slice(0, 0), *(table.slice(i, 1) for i in rows)])


def check(found: dict[str, pa.Table], table: pa.Table, asked: dict[str, Any]) -> None:
    for question, right in expected(table, asked).items():
        wrong = difference(right, found[question])
        assert not wrong, f"{question}: {wrong}"


@pytest.mark.parametrize(("entry", "version"), pairs())
def test_the_official_reader_gives_back_what_we_wrote(
    entry: Entry, version: str, tmp_path: Path, peer: Peer
) -> None:
    if not entry.peer_reads:
        pytest.skip("the official reader has no way to read this type")
    table, path = entry.table, str(tmp_path / "t.lance")
    ours.write_dataset(table, path, data_storage_version=version)
    asked = questions(entry, table)
    check(peer(READ, path=path, **asked), table, asked)


@pytest.mark.parametrize(("entry", "version"), pairs())
def test_we_give_back_what_the_official_writer_wrote(
    entry: Entry, version: str, tmp_path: Path, peer: Peer
) -> None:
    table, path = entry.table, str(tmp_path / "t.lance")
    peer("result = lance.write_dataset(t, p, data_storage_version=v) and None", t=table, p=path, v=version)
    check_ours(entry, table, path)


@pytest.mark.parametrize(("entry", "version"), pairs())
def test_we_give_back_what_we_wrote(entry: Entry, version: str, tmp_path: Path) -> None:
    table, path = entry.table, str(tmp_path / "t.lance")
    ours.write_dataset(table, path, data_storage_version=version)
    check_ours(entry, table, path)


def check_ours(entry: Entry, table: pa.Table, path: str) -> None:
    asked = questions(entry, table)
    scope: dict[str, Any] = {"lance": ours, "path": path, **asked}
    exec(READ, scope)
    check(scope["result"], table, asked)
