"""Random merges by ours and by the official package on tables of the same rows: the same rows after each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tiltyard.lance as lance
from peer import Peer
from tiltyard.errors import AmbiguousMerge, MatchedRow

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("n", pa.int32()),
        pa.field("s", pa.struct([pa.field("x", pa.int16()), pa.field("y", pa.string())])),
    ]
)
KEYS = st.one_of(st.none(), st.integers(0, 12))
NAMES = st.one_of(st.none(), st.sampled_from(["a", "b", "é", ""]))
STRUCTS = st.one_of(
    st.none(), st.fixed_dictionaries({"x": st.one_of(st.none(), st.integers(-3, 3)), "y": NAMES})
)
ROWS = st.fixed_dictionaries(
    {"id": KEYS, "name": NAMES, "n": st.one_of(st.none(), st.integers(-5, 5)), "s": STRUCTS}
)
SOURCES = (("id", "name", "n", "s"), ("id", "n"), ("id", "name", "s"), ("n", "id"), ("id", "name"))

FAULT = "this indicates a logical plan pruning bug"
"""What the official package answers to a matched delete together with a delete by source."""

MERGE = """
ds = lance.dataset(p)
try:
    b = ds.merge_insert(on)
    for name, arguments in calls:
        b = getattr(b, name)(*arguments)
    result = b.execute(rows), ds.to_table()
except Exception as error:
    result = str(error), None
"""


@st.composite
def merges(draw: Any) -> dict[str, Any]:
    on = draw(st.sampled_from((["id"], ["id", "name"], ["name"])))
    columns = draw(st.sampled_from([c for c in SOURCES if set(on) <= set(c)]))
    calls: list[tuple[str, tuple[Any, ...]]] = []
    matched = draw(st.sampled_from(("update", "update", "if", "delete", "nothing", "fail")))
    if matched == "update":
        calls.append(("when_matched_update_all", ()))
    elif matched == "if":
        able = ["source.n > target.n", "target.n IS NULL OR source.n >= 0"] if "n" in columns else []
        condition = draw(st.sampled_from([*able, "target.s.x > 0", "target.n < 2 AND target.id > 3"]))
        calls.append(("when_matched_update_all", (condition,)))
    elif matched == "delete":
        calls.append(("when_matched_delete", ()))
    elif matched == "fail":
        calls.append(("when_matched_fail", ()))
    inserts = draw(st.booleans())
    if inserts or matched in ("nothing", "fail"):
        calls.append(("when_not_matched_insert_all", ()))
    if draw(st.integers(0, 3)) == 0:
        condition = draw(st.sampled_from((None, "n > 0", "id < 6", "s.x IS NOT NULL")))
        calls.append(("when_not_matched_by_source_delete", () if condition is None else (condition,)))
    return {
        "on": on,
        "columns": columns,
        "calls": calls,
        "rows": draw(st.lists(ROWS, min_size=1, max_size=8)),
    }


def _rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def _has_new_duplicates(merge: dict[str, Any], source: pa.Table) -> bool:
    """The intended difference: two source rows with one new key are refused (case G02)."""
    keys = [tuple(row[name] for name in merge["on"]) for row in source.to_pylist()]
    keys = [key for key in keys if None not in key]
    return len(keys) != len(set(keys))


@pytest.mark.parametrize("stable", [False, True])
def test_random_merges_leave_the_rows_that_the_official_package_leaves(
    tmp_path: Path, peer: Peer, stable: bool
) -> None:
    counter = iter(range(10**6))

    @settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        first=st.lists(st.lists(ROWS, min_size=1, max_size=8), min_size=1, max_size=3),
        steps=st.lists(merges(), min_size=1, max_size=4),
    )
    def run(first: list[list[dict[str, Any]]], steps: list[dict[str, Any]]) -> None:
        number = next(counter)
        mine, theirs = str(tmp_path / f"ours{number}"), str(tmp_path / f"theirs{number}")
        for part in first:
            table = pa.Table.from_pylist(part, schema=SCHEMA)
            for place in (mine, theirs):
                lance.write_dataset(table, place, mode="append", enable_stable_row_ids=stable)
        ds = lance.dataset(mine)
        for merge in steps:
            whole = pa.Table.from_pylist(merge["rows"], schema=SCHEMA)
            source = whole.select(list(merge["columns"]))
            their_counts, their_table = peer(
                MERGE, p=theirs, on=merge["on"], calls=merge["calls"], rows=source
            )
            builder = ds.merge_insert(merge["on"])
            for name, arguments in merge["calls"]:
                builder = getattr(builder, name)(*arguments)
            refused: Exception | None = None
            counts = {}
            try:
                counts = builder.execute(source)
            except (AmbiguousMerge, MatchedRow) as error:
                refused = error
            if refused is not None and their_table is None:
                continue
            if refused is not None:
                assert isinstance(refused, AmbiguousMerge)
                assert _has_new_duplicates(merge, source)
                return  # the tables differ from here on
            if their_table is None and FAULT in their_counts:
                return
            assert their_table is not None, their_counts
            assert counts == their_counts
            assert _rows(ds.to_table()) == _rows(their_table)
            assert _rows(peer("lance.dataset(p).to_table()", p=mine)) == _rows(their_table)
            if stable:
                columns = ["_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
                ours = ds.to_table(columns=columns)
                seen = peer("lance.dataset(p).to_table(columns=c)", p=mine, c=columns)
                assert ours.equals(seen)
                assert len(set(ours["_rowid"].to_pylist())) == ours.num_rows

    run()
