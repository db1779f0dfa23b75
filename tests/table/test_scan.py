"""Scans of real tables, held against the same question asked of an Arrow table in memory."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiltyard.lance as lance
from peer import Peer
from tiltyard.errors import BatchTooLarge, CorruptFile, InvalidExpression, InvalidInput
from tiltyard.session import Limits, Session
from tiltyard.table import scan as scan_module

ROWS = 57
DELETED = {0, 1, 2, 9, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 40, 56}  # 20..29 is a whole fragment
LEFT = [i for i in range(ROWS) if i not in DELETED]


def rows() -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "s": pa.array([None if i % 7 == 0 else f"text {i}" for i in range(ROWS)]),
            "st": pa.array(
                [None if i % 5 == 0 else {"a": i, "b": {"c": i / 2}} for i in range(ROWS)],
                pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.float64())]))]),
            ),
            "l": pa.array([list(range(i % 4)) for i in range(ROWS)], pa.list_(pa.int32())),
        }
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Six fragments of ten rows, some rows deleted, one fragment wholly."""
    path = str(tmp_path_factory.mktemp("scan") / "t.lance")
    ds = lance.write_dataset(rows(), path, max_rows_per_file=10, storage_options={"durable": False})
    ds.delete(f"id IN ({', '.join(map(str, sorted(DELETED)))})")
    return path


@pytest.fixture
def ds(path: str) -> lance.LanceDataset:
    return lance.dataset(path)


def left() -> pa.Table:
    return rows().take(LEFT)


def test_the_whole_table_comes_back_without_the_deleted_rows(ds: lance.LanceDataset) -> None:
    assert ds.to_table().equals(left())
    assert ds.count_rows() == len(LEFT) == len(ds)


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_limit_offset_and_batch_size_cut_the_same_rows(data: Any, path: str) -> None:
    ds = lance.dataset(path)
    limit = data.draw(st.one_of(st.none(), st.integers(0, 70)))
    offset = data.draw(st.one_of(st.none(), st.integers(0, 70)))
    batch = data.draw(st.integers(1, 30))
    strict = data.draw(st.booleans())
    where = data.draw(st.sampled_from([None, "id % 3 = 0", "s IS NULL", "id > 1000", "true"]))
    rows = [
        i
        for i in LEFT
        if {"id % 3 = 0": i % 3 == 0, "s IS NULL": i % 7 == 0, "id > 1000": False}.get(where, True)
    ]
    rows = rows[(offset or 0) :]
    rows = rows if limit is None else rows[:limit]
    scanner = ds.scanner(
        ["id"], where, limit=limit, offset=offset, batch_size=batch, strict_batch_size=strict
    )
    assert scanner.to_table()["id"].to_pylist() == rows
    batches = list(scanner.to_batches())
    assert [i for each in batches for i in each["id"].to_pylist()] == rows
    assert all(0 < each.num_rows <= batch for each in batches)
    if strict:
        assert all(each.num_rows == batch for each in batches[:-1])
    assert scanner.count_rows() == len(rows)
    assert scanner.to_reader().read_all()["id"].to_pylist() == rows


@pytest.mark.parametrize(
    ("where", "keep"),
    [
        ("id >= 30 AND id < 33", lambda i: 30 <= i < 33),
        ("id != 30", lambda i: i != 30),
        ("st.a > 10 AND s LIKE '%5%'", lambda i: i % 5 and i > 10 and i % 7 and "5" in f"text {i}"),
        ("st IS NULL", lambda i: i % 5 == 0),
        ("false", lambda i: False),
    ],
)
def test_a_filter_reads_its_columns_first_and_gives_the_same_rows(
    where: str, keep: Any, ds: lance.LanceDataset
) -> None:
    expected = rows().take(pa.array([i for i in LEFT if keep(i)], pa.int64()))
    assert ds.to_table(filter=where).equals(expected)
    assert ds.to_table(columns=["l", "st"], filter=where).equals(expected.select(["l", "st"]))
    assert ds.count_rows(where) == expected.num_rows


def test_columns_that_the_filter_does_not_need_are_read_for_the_rows_that_pass_only(
    ds: lance.LanceDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tiltyard.table.fragment_columns import FragmentColumns

    read: list[tuple[list[str], Any]] = []
    original = FragmentColumns.read

    def spy(self: FragmentColumns, fragment: Any, rows: Any) -> Any:
        read.append(([each.name for each in self.fields], rows))
        return original(self, fragment, rows)

    monkeypatch.setattr(FragmentColumns, "read", spy)
    ds.to_table(columns=["s", "id"], filter="id = 33")
    names = [each for each, _ in read]
    assert names.count(["s"]) == 1
    (late,) = [rows for each, rows in read if each == ["s"]]
    assert list(late) == [3]


def test_nested_leaves_computed_columns_and_pseudo_columns(ds: lance.LanceDataset) -> None:
    found = ds.to_table(columns=["st.b.c", "_rowoffset", "_rowaddr", "_rowid"], filter="id >= 31 AND id < 34")
    assert found.to_pylist() == [
        {"st.b.c": 15.5, "_rowoffset": 17, "_rowaddr": (3 << 32) + 1, "_rowid": (3 << 32) + 1},
        {"st.b.c": 16.0, "_rowoffset": 18, "_rowaddr": (3 << 32) + 2, "_rowid": (3 << 32) + 2},
        {"st.b.c": 16.5, "_rowoffset": 19, "_rowaddr": (3 << 32) + 3, "_rowid": (3 << 32) + 3},
    ]
    computed = ds.to_table(columns={"twice": "id * 2", "name": "s"}, limit=2)
    assert computed.to_pylist() == [{"twice": 6, "name": "text 3"}, {"twice": 8, "name": "text 4"}]
    assert ds.to_table(columns=["_rowoffset"])["_rowoffset"].to_pylist() == list(range(len(LEFT)))
    assert ds.to_table(columns=["st.a"], filter="id = 5")["st.a"].to_pylist() == [None]
    versions = ds.to_table(columns=["_row_created_at_version", "_row_last_updated_at_version"], limit=1)
    assert versions.to_pylist() == [{"_row_created_at_version": 1, "_row_last_updated_at_version": 1}]


def test_pseudo_columns_may_be_filtered_on(ds: lance.LanceDataset) -> None:
    assert ds.to_table(columns=["id"], filter=f"_rowaddr > {5 << 32}")["id"].to_pylist() == [
        51,
        52,
        53,
        54,
        55,
    ]
    assert ds.to_table(columns=["id"], filter="_rowoffset = 4")["id"].to_pylist() == [LEFT[4]]


def test_no_columns_still_count_rows(ds: lance.LanceDataset) -> None:
    assert ds.to_table(columns=[]).num_rows == len(LEFT)
    assert ds.to_table(columns=[], filter="id > 50").num_rows == 5
    assert sum(batch.num_rows for batch in ds.to_batches(columns=[], batch_size=7)) == len(LEFT)


def test_deleted_rows_come_on_request_without_a_row_id(ds: lance.LanceDataset) -> None:
    found = ds.to_table(columns=["id"], with_row_id=True, include_deleted_rows=True)
    present = [i for i in range(ROWS) if not 20 <= i < 30]
    assert found["id"].to_pylist() == present
    assert [i for i, each in zip(present, found["_rowid"].to_pylist(), strict=True) if each is None] == [
        i for i in present if i in DELETED
    ]
    with pytest.raises(InvalidInput, match="row id"):
        ds.to_table(columns=["id"], include_deleted_rows=True)


def test_the_result_can_be_sorted(ds: lance.LanceDataset) -> None:
    from tiltyard.dataset import ColumnOrdering

    order = [ColumnOrdering("s", ascending=False, nulls_first=True), "id"]
    found = ds.to_table(columns=["id"], order_by=order, limit=9)["id"].to_pylist()
    by_id = sorted(i for i in LEFT if i % 7 == 0) + sorted(
        (i for i in LEFT if i % 7), key=lambda i: f"text {i}", reverse=True
    )
    assert found == by_id[:9]


def test_chosen_fragments_come_alone_in_the_order_asked_for(ds: lance.LanceDataset) -> None:
    fragments = ds.get_fragments()
    assert [each.fragment_id for each in fragments] == [0, 1, 3, 4, 5]
    found = ds.scanner(columns=["id", "_rowoffset"], fragments=[fragments[3], fragments[0]]).to_table()
    assert found["id"].to_pylist() == [i for i in [*range(40, 50), *range(10)] if i not in DELETED]
    assert found["_rowoffset"].to_pylist()[:2] == [26, 27]


@pytest.mark.parametrize("options", [{"limit": -1}, {"offset": -1}, {"batch_size": 0}, {"nonsense": 1}])
def test_bad_options_are_refused(options: dict[str, int], ds: lance.LanceDataset) -> None:
    with pytest.raises(InvalidInput):
        ds.to_table(**options)


@pytest.mark.parametrize("where", ["id >", "zz > 3", "id + 1", "", "\"ID\" = 'x'"])
def test_bad_filters_are_refused_before_anything_is_read(where: str, ds: lance.LanceDataset) -> None:
    with pytest.raises(InvalidInput):
        ds.scanner(filter=where)


def test_text_beyond_the_reach_of_offsets_is_halved_in_every_way_of_reading(path: str) -> None:
    """Case E12 with a limit of 60 bytes in place of 2 GiB."""
    small = Session(Limits(offset_limit=60))
    held = lance.dataset(path, session=small)
    expected = left().select(["id", "s"])
    assert held.to_table(columns=["id", "s"]).equals(expected)
    assert held.to_table(columns=["id", "s"]).column("s").num_chunks > 5
    assert pa.Table.from_batches(held.to_batches(columns=["id", "s"])).equals(expected)
    found = held.to_table(columns=["id"], filter="s LIKE 'text%'")
    assert found["id"].to_pylist() == [i for i in LEFT if i % 7]
    assert held.count_rows("s IS NULL") == len([i for i in LEFT if i % 7 == 0])
    with pytest.raises(BatchTooLarge):
        lance.dataset(path, session=Session(Limits(offset_limit=3))).to_table()


def test_columns_are_read_in_parallel_with_the_same_result(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = lance.dataset(path, session=Session(replace(Limits(), parallel_bytes=1)))
    assert held.to_table().equals(left())
    monkeypatch.setattr(scan_module.runtime, "cores", lambda: 8)
    assert held.to_table().equals(left())
    assert held.to_table(columns={"n": "id + 1", "s": "s"})["n"].to_pylist() == [i + 1 for i in LEFT]


def test_a_stream_holds_a_bounded_number_of_tasks(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The consumer stops after one batch: only the first task and the one read ahead were decoded."""
    from tiltyard.table.unit_reader import UnitReader

    monkeypatch.setattr(scan_module, "STREAM_BYTES", 1)
    monkeypatch.setattr(scan_module.runtime, "cores", lambda: 1)
    units = []
    original = UnitReader.read
    monkeypatch.setattr(UnitReader, "read", lambda self, unit: units.append(unit) or original(self, unit))
    stream = lance.dataset(path).to_batches(batch_size=2)
    assert next(stream).num_rows == 2
    stream.close()
    assert len(units) <= 2


def test_a_missing_data_file_is_named_with_fragment_and_version(tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": [1, 2]}), path, max_rows_per_file=1)
    victim = sorted(Path(path, "data").iterdir())[0]
    victim.unlink()
    with pytest.raises(CorruptFile, match=victim.name):
        lance.dataset(path, session=Session()).to_table()
    with pytest.raises(CorruptFile, match=victim.name):
        lance.dataset(path, session=Session()).validate()


def test_a_missing_deletion_file_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": [1, 2]}), path).delete("id = 1")
    (victim,) = Path(path, "_deletions").iterdir()
    victim.unlink()
    with pytest.raises(CorruptFile, match=victim.name):
        lance.dataset(path, session=Session()).to_table()


EVOLVED = """
import pyarrow as pa
ds = lance.write_dataset(pa.table({
    "id": pa.array(range(8), pa.int64()),
    "st": pa.array([None if i == 2 else {"a": i} for i in range(8)], pa.struct([("a", pa.int64())])),
    "gone": list("abcdefgh"),
}), p, max_rows_per_file=3, enable_stable_row_ids=stable)
ds.delete("id = 4")
ds.add_columns({"twice": "id * 2"})
ds.drop_columns(["gone"])
ds.add_columns(pa.field("empty", pa.string()))
lance.write_dataset(pa.table({"id": pa.array([100], pa.int64())}), p, mode="append")
ds = lance.dataset(p)
result = (ds.to_table(), ds.to_table(columns=["id", "_rowid", "_row_created_at_version",
    "_row_last_updated_at_version"]), ds.take([7, 0, 3]),
    ds.to_table(columns=["st.a", "twice"], filter="twice > 4"))
"""


@pytest.mark.parametrize("stable", [False, True])
def test_tables_that_the_official_package_evolved_read_the_same(
    stable: bool, tmp_path: Path, peer: Peer
) -> None:
    """Columns in several files per fragment, dropped ones, missing ones, stable row ids and row versions."""
    path = str(tmp_path / "t.lance")
    whole, lineage, taken, filtered = peer(EVOLVED, p=path, stable=stable)
    ds = lance.dataset(path)
    assert ds.to_table().equals(whole)
    assert ds.to_table(columns=lineage.schema.names).equals(lineage)
    assert ds.take([7, 0, 3]).equals(taken)
    assert ds.to_table(columns=["st.a", "twice"], filter="twice > 4").equals(filtered)


def test_base_paths_are_followed(tmp_path: Path, peer: Peer) -> None:
    source, clone = str(tmp_path / "source.lance"), str(tmp_path / "clone.lance")
    peer(
        """
lance.write_dataset(pa.table({"id": list(range(9))}), s, max_rows_per_file=4)
lance.dataset(s).delete("id = 1")
lance.dataset(s).shallow_clone(c, 2)
lance.dataset(c).delete("id = 8")
lance.write_dataset(pa.table({"id": [50]}), c, mode="append")
""",
        s=source,
        c=clone,
    )
    assert lance.dataset(clone).to_table()["id"].to_pylist() == [0, 2, 3, 4, 5, 6, 7, 50]
    lance.dataset(clone).delete("id = 2")
    assert peer("lance.dataset(c).to_table()['id'].to_pylist()", c=clone) == [0, 3, 4, 5, 6, 7, 50]
    assert lance.dataset(source).count_rows() == 8


LEAN = """
import sys
import pyarrow as pa
import tiltyard.lance as lance
table = pa.ipc.open_file(sys.argv[2]).read_all()  # making arrays from Python values would load pandas
lance.write_dataset(table, sys.argv[1])
lance.write_dataset(table, sys.argv[1], mode="append")
ds = lance.dataset(sys.argv[1])
assert ds.to_table().num_rows == 200 and ds.take([3, 5, 150]).num_rows == 3
assert sum(b.num_rows for b in ds.to_batches(batch_size=10)) == 200
heavy = {"sqlglot", "pyroaring", "obstore", "pyarrow.compute", "pyarrow.dataset", "pandas"}
rare = ("expr", "index.btree.search", "table.prefilter", "table.indexing", "table.nearest.scan")
rare += ("table.verify", "table.update", "table.merge", "table.compact", "table.optimize")
print(sorted(heavy & set(sys.modules)), [name for name in rare if f"tiltyard.{name}" in sys.modules])
"""


def test_plain_work_loads_no_heavy_library_and_nothing_of_what_is_rare(tmp_path: Path) -> None:
    """Decision D44; each of the rare ones costs milliseconds of every short-lived process."""
    source = tmp_path / "source.arrow"
    table = pa.table({"id": pa.array(range(100), pa.int64()), "s": [str(i) for i in range(100)]})
    with pa.ipc.new_file(source, table.schema) as writer:
        writer.write_table(table)
    done = subprocess.run(
        [sys.executable, "-c", LEAN, str(tmp_path / "t.lance"), str(source)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[] []"


def test_numbers_of_a_large_chain_of_conditions(ds: lance.LanceDataset) -> None:
    """Case F12: no stack overflow; a long IN list is quick."""
    chain = " OR ".join(f"id = {i}" for i in range(600))
    assert ds.count_rows(chain) == len(LEFT)
    values = ", ".join(map(str, range(0, 200_000, 2)))
    assert ds.count_rows(f"id IN ({values})") == len([i for i in LEFT if i % 2 == 0])
    try:
        assert ds.count_rows(" OR ".join(f"id = {i}" for i in range(5000))) == len(LEFT)
    except InvalidExpression as error:
        assert "deep" in str(error) or "long" in str(error) or "limit" in str(error)  # noqa: PT017


def test_arrays_have_the_length_of_their_batch(ds: lance.LanceDataset) -> None:
    for batch in ds.to_batches(batch_size=3):
        batch.validate(full=True)
    assert np.array_equal(ds.to_table(columns=["id"])["id"].to_numpy(), np.array(LEFT))
