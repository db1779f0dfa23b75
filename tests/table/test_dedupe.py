"""Rows that share a key, found and taken out, against a dictionary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tiltyard.lance as lance
from tiltyard.errors import FieldNotFound, InvalidInput, UnsupportedFeature
from tiltyard.table import dedupe

ROWS = st.lists(
    st.tuples(st.one_of(st.none(), st.integers(0, 4)), st.one_of(st.none(), st.sampled_from(["a", "b", ""]))),
    min_size=1,
    max_size=30,
)


@pytest.mark.parametrize("keep", ["first", "last"])
@pytest.mark.parametrize("collide", [False, True])
def test_one_row_of_each_key_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: str, collide: bool
) -> None:
    if collide:  # every hash the same: equality must still decide
        words = dedupe._words
        monkeypatch.setattr(dedupe, "_words", lambda key, columns: words(key, columns) * 0)
    counter = iter(range(10**6))

    @settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(ROWS, st.sampled_from((["k"], ["s"], ["k", "s"])), st.integers(0, 30))
    def run(rows: list[tuple[Any, Any]], on: list[str], deleted: int) -> None:
        place = str(tmp_path / f"{keep}{next(counter)}")
        table = pa.table(
            {
                "k": pa.array([k for k, _ in rows], pa.int32()),
                "s": pa.array([s for _, s in rows], pa.string()),
                "n": list(range(len(rows))),
            }
        )
        ds = lance.write_dataset(table, place, max_rows_per_file=7)
        ds.delete(f"n = {deleted}")
        kept: dict[Any, int] = {}
        nulls = []
        for row in ds.to_table().to_pylist():
            key = tuple(row[name] for name in on)
            if None in key:
                nulls.append(row["n"])
            elif keep == "last" or key not in kept:
                kept[key] = row["n"]
        before = ds.count_rows()
        done = ds.dedupe(on, keep=keep)
        found = sorted(ds.to_table()["n"].to_pylist())
        assert found == sorted([*nulls, *kept.values()])
        assert done["num_deleted_rows"] == before - len(found)
        assert ds.duplicate_keys(on)["num_keys"] == 0

    run()


def test_without_columns_the_primary_key_counts(tmp_path: Path) -> None:
    field = pa.field("id", pa.int64(), False, {"lance-schema:unenforced-primary-key": "true"})
    ds = lance.write_dataset(pa.table({"id": [1, 1, 2]}, schema=pa.schema([field])), str(tmp_path / "t"))
    assert ds.dedupe() == {"num_deleted_rows": 1, "num_keys": 1}


def test_what_cannot_be_a_key_is_refused(tmp_path: Path) -> None:
    ds = lance.write_dataset(pa.table({"id": [1, 1], "l": [[1], [2]]}), str(tmp_path / "t"))
    with pytest.raises(InvalidInput, match="which columns are the key"):
        ds.dedupe()
    with pytest.raises(FieldNotFound, match="nothing"):
        ds.dedupe("nothing")
    with pytest.raises(InvalidInput, match="'last' or 'first'"):
        ds.dedupe("id", keep="any")
    with pytest.raises(UnsupportedFeature, match="list column"):
        ds.dedupe("l")
    assert ds.version == 1
