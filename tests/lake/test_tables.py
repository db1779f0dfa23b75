"""The plain face: tables by path and by name."""

from __future__ import annotations

import pickle
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard as ty
from tiltyard.errors import (
    DuplicateKey,
    FieldNotFound,
    IndexNotFound,
    InvalidInput,
    InvalidUri,
    RetryableConflict,
    SchemaMismatch,
    StoreError,
    TableAlreadyExists,
    TableNotFound,
    TagAlreadyExists,
    VersionNotFound,
    WrongType,
)

DATA = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "delay": [10, 70, 80]})


def test_the_ten_lines_of_the_readme(tmp_path: Path) -> None:
    flights = ty.create_table(tmp_path / "flights.lance", DATA)
    flights.append({"id": [4], "delay": [90]})
    assert flights.scan(columns=["id"], where="delay > 60").to_arrow()["id"].to_pylist() == [2, 3, 4]
    assert flights.delete("id = 2") == 1
    assert (flights.count(), len(flights), flights.count("delay > 60"), flights.version) == (3, 3, 2, 3)
    assert flights.take([2, 0])["id"].to_pylist() == [4, 1]
    assert flights.at(version=1).count() == 3
    assert [each["version"] for each in flights.history()] == [1, 2, 3]
    flights.overwrite(DATA)
    assert flights.scan(limit=1).to_arrow().to_pylist() == [{"id": 1, "delay": 10}]
    assert sum(batch.num_rows for batch in flights.scan().batches()) == 3
    assert flights.scan({"double": "id * 2"}).to_pandas()["double"].tolist() == [2, 4, 6]
    assert flights.scan(where="id > 1").count() == 2
    assert flights.scan().schema == flights.schema == DATA.schema
    assert pa.table(flights.scan()).equals(DATA)
    assert flights.at(version=2).restore()["version"] == 5
    assert flights.count() == 4


def test_a_table_sees_what_others_write_and_a_version_of_it_does_not(tmp_path: Path) -> None:
    one = ty.create_table(tmp_path / "t.lance", DATA.schema)
    other, fixed = ty.open_table(tmp_path / "t.lance"), one.at(version=1)
    one.append(DATA)
    assert (other.count(), fixed.count(), pickle.loads(pickle.dumps(other)).count()) == (3, 0, 3)


def test_creating_twice_is_refused_or_opens(tmp_path: Path) -> None:
    ty.create_table(tmp_path / "t.lance", DATA)
    with pytest.raises(TableAlreadyExists):
        ty.create_table(tmp_path / "t.lance", DATA)
    assert ty.create_table(tmp_path / "t.lance", DATA.schema, exist_ok=True).count() == 3
    with pytest.raises(TableNotFound):
        ty.open_table(tmp_path / "none.lance")
    with pytest.raises(InvalidInput):
        ty.open_table(tmp_path / "t.lance").at()


def test_a_directory_of_tables(tmp_path: Path) -> None:
    lake = ty.connect(tmp_path)
    assert lake.tables() == []
    lake.create_table("flights", DATA)
    lake.create_table("planes", DATA.schema)
    (tmp_path / "loose.lance").write_text("no table")
    (tmp_path / "empty.lance").mkdir()
    assert lake.tables() == ["flights", "planes"]
    assert lake.table("flights").count() == 3
    for name in ("", "..", ".hidden", None):
        with pytest.raises(InvalidInput):
            lake.table(name)


def test_a_directory_tells_its_names_and_hints_at_the_right_one(tmp_path: Path) -> None:
    lake = ty.connect(tmp_path)
    assert lake
    lake.create_table("flights", DATA)
    assert (list(lake), len(lake), "flights" in lake) == (["flights"], 1, True)
    with pytest.raises(InvalidInput, match=r"give 'flights' instead of 'flights\.lance'"):
        lake.table("flights.lance")
    with pytest.raises(TableNotFound, match=r"no table 'flight' in .*nearest: flights"):
        lake.table("flight")


# -- tables that stay at a version --------------------------------------------------------------


def test_a_table_at_a_version_refuses_writes_but_can_be_restored(tmp_path: Path) -> None:
    table = ty.create_table(tmp_path / "t.lance", DATA)
    table.append(DATA)
    old = table.at(1)
    for write in (lambda: old.append(DATA), lambda: old.overwrite(DATA), lambda: old.delete("true")):
        with pytest.raises(InvalidInput, match=r"version 1 of .* Write through the table itself"):
            write()
    assert "read only" in repr(old)
    with pytest.raises(RetryableConflict, match="version 2 committed since"):
        old.restore(expected_latest=1)
    assert old.restore() == {"version": 3, "restored_version": 1, "superseded_versions": [2]}
    assert (old.version, table.version, table.count()) == (1, 3, 3)
    old.dataset.insert(DATA)  # a LanceDataset of its own moves, as the official one does
    assert (old.version, table.count(), pickle.loads(pickle.dumps(old)).version) == (1, 6, 1)


def test_a_restore_succeeds_whatever_other_handles_committed(tmp_path: Path) -> None:
    table = ty.create_table(tmp_path / "t.lance", {"a": [1]})
    ty.open_table(tmp_path / "t.lance").append({"a": [2]})
    assert table.at(1).restore()["superseded_versions"] == [2]
    assert table.to_arrow()["a"].to_pylist() == [1]


def test_a_table_at_a_time_is_the_newest_one_before_it(tmp_path: Path) -> None:
    table = ty.create_table(tmp_path / "t.lance", DATA)
    table.append(DATA)
    first, second = (each["timestamp"] for each in table.history())
    assert (table.at(asof=second).version, table.at(asof=second.isoformat()).version) == (2, 2)
    assert table.at(asof=first).version == 1
    with pytest.raises(VersionNotFound):
        table.at(asof="2001-01-01")
    with pytest.raises(InvalidInput, match="one of version, tag and asof"):
        table.at(1, asof=first)


# -- the object ---------------------------------------------------------------------------------


def test_a_table_is_read_whole_and_in_parts(tmp_path: Path) -> None:
    table = ty.create_table(tmp_path / "t.lance", DATA)
    assert table.to_arrow().equals(DATA)
    assert pa.table(table).equals(DATA)
    assert table.to_pandas()["id"].tolist() == [1, 2, 3]
    assert table.scan(offset=1, limit=1).to_arrow()["id"].to_pylist() == [2]
    assert table.take(slice(0, 2))["id"].to_pylist() == [1, 2]
    assert table.take(slice(None, None, -1))["id"].to_pylist() == [3, 2, 1]
    for rows in (1, None):
        with pytest.raises(InvalidInput, match=rf"list of numbers, as in \[0, 5\]; found {rows}"):
            table.take(rows)


def test_an_empty_table_is_there_all_the_same(tmp_path: Path) -> None:
    table = ty.create_table(tmp_path / "t.lance", DATA.schema)
    assert (bool(table), len(table)) == (True, 0)


def test_the_text_form_shows_version_and_columns(tmp_path: Path) -> None:
    table = ty.create_table(tmp_path / "t.lance", pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    ty.open_table(tmp_path / "t.lance").append({"id": [1]})
    assert repr(table).splitlines()[0].endswith("t.lance', version=2)")
    assert repr(table).splitlines()[1] == "  id: int64 not null"
    wide = ty.create_table(tmp_path / "w.lance", {f"c{i}": [i] for i in range(30)})
    assert repr(wide).endswith("... and 10 more columns")
    assert repr(table.scan(["id"], "id > 1", offset=3)).endswith(
        "version=2, columns=['id'], where='id > 1', offset=3)"
    )


def test_a_scan_is_pickled_with_its_version(tmp_path: Path) -> None:
    table = ty.create_table(tmp_path / "t.lance", DATA)
    data = pickle.dumps(table.scan(["id"], where="id > 1", limit=1))
    table.delete("true")
    assert pickle.loads(data).to_arrow().to_pydict() == {"id": [2]}


def test_a_table_is_opened_by_its_functions(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"open_table\('t.lance'\)"):
        ty.Table("t.lance")  # type: ignore[arg-type]


def test_options_of_a_write_are_named(tmp_path: Path) -> None:
    told: list[int] = []
    table = ty.create_table(
        tmp_path / "t.lance", DATA, max_rows_per_file=2, data_storage_version="2.1", commit_message="first"
    )
    table.append(DATA, max_rows_per_file=1, commit_message="second", progress=told.append)
    assert told == [1, 2, 3]
    assert [each.physical_rows for each in table.dataset.get_fragments()] == [2, 1, 1, 1, 1]
    assert table.dataset.data_storage_version == "2.1"
    messages = [
        table.dataset.read_transaction(version).transaction_properties["__lance_commit_message"]
        for version in (1, 2)
    ]
    assert messages == ["first", "second"]
    with pytest.raises(TypeError, match="max_rows"):
        table.append(DATA, max_rows=1)  # type: ignore[call-arg]


# -- places -------------------------------------------------------------------------------------


def test_a_table_in_unnamed_memory_lives_by_its_handle() -> None:
    table = ty.create_table("memory://", DATA)
    table.append(DATA)
    assert table.count() == 6
    for thing in (table, table.scan(), table.dataset):
        with pytest.raises(InvalidInput, match="memory of this process and cannot be pickled"):
            pickle.dumps(thing)


def test_what_stands_where_there_is_no_table_is_told(tmp_path: Path) -> None:
    ty.create_table(tmp_path / "flights.lance", DATA)
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    told = {
        "flihgts.lance": r"there is no such directory; near it: flights\.lance",
        "no/where": r"no such directory, nor .*no$",
        "file": "it is a file",
        "file/below/it": "/file is a file",
        "empty": "the directory is no table",
        "": r"holds tables: flights\.lance; open one of them",
        "flights.lance/_versions": r"part of the table .*flights\.lance",
    }
    for place, text in told.items():
        with pytest.raises(TableNotFound, match=text):
            ty.open_table(tmp_path / place)
    with pytest.raises(StoreError, match="a file stands where a directory is needed"):
        ty.create_table(tmp_path / "file", DATA)
    with pytest.raises(StoreError, match="a file stands where a directory is needed"):
        ty.create_table(tmp_path / "file" / "below", DATA)
    with pytest.raises(InvalidUri, match="two slashes"):
        ty.create_table("memory:", DATA)
    with pytest.raises(TableNotFound, match="nothing was written there"):
        ty.open_table("memory://nobody-wrote-here")


def test_who_creates_twice_is_told_how_to_open(tmp_path: Path) -> None:
    ty.create_table(tmp_path / "t.lance", DATA)
    with pytest.raises(TableAlreadyExists, match="open_table, or give exist_ok=True"):
        ty.create_table(tmp_path / "t.lance", DATA)


def test_rows_without_columns_are_refused(tmp_path: Path) -> None:
    table = ty.create_table(tmp_path / "t.lance", pa.schema([]))
    with pytest.raises(InvalidInput, match="at least one column"):
        table.append(DATA.select([]))
    with pytest.raises(SchemaMismatch, match="'id' is not in the table"):
        table.append(DATA)


def test_the_errors_are_found_from_the_package() -> None:
    code = "import tiltyard as ty; print(ty.errors.TableNotFound.__name__, 'errors' in dir(ty))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["TableNotFound", "True"]


def test_importing_the_package_loads_neither_numpy_nor_pyarrow() -> None:
    code = "import sys, tiltyard; print(sorted({'numpy', 'pyarrow', 'threading'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    with pytest.raises(AttributeError):
        ty.nothing_of_the_kind  # noqa: B018


def test_versions_are_tagged_and_old_ones_cleaned_up(tmp_path: Path) -> None:
    table = ty.create_table(tmp_path / "t.lance", DATA)
    for _ in range(3):
        table.overwrite(DATA)
    table.tag("first", 1)
    table.tag("now")
    assert table.tags() == {"first": 1, "now": 4}
    with pytest.raises(TagAlreadyExists):
        table.tag("first", 2)
    table.tag("first", 2, move=True)
    table.tag("new", move=True)
    table.untag("new")
    assert table.at(tag="first").version == 2
    told = table.explain_cleanup("0s")
    assert [each.version for each in told.versions if each.goes] == [1, 3]
    assert table.cleanup().old_versions == 0
    assert table.cleanup(older_than="0s").old_versions == 2
    assert [each["version"] for each in table.history()] == [2, 4]
    with pytest.raises(InvalidInput, match="cleanup is refused"):
        table.at(version=2).cleanup("0s")


def test_rows_are_not_dropped_where_the_table_is_there_already(tmp_path: Path) -> None:
    place = tmp_path / "t.lance"
    table = ty.create_table(place, DATA)
    rows: list[Any] = [DATA, DATA.to_pylist(), DATA.to_pydict(), DATA.to_reader(), DATA.to_pandas(), table]
    for data in rows:
        with pytest.raises(TableAlreadyExists, match=r"adds no rows.*append\(\) or upsert\(\)"):
            ty.create_table(place, data, exist_ok=True)
    for data in (DATA.schema, DATA.slice(0, 0), {"id": [], "delay": []}, DATA.to_pandas()[:0]):
        assert ty.create_table(place, data, exist_ok=True).version == 1
    with pytest.raises(TableAlreadyExists, match="adds no rows"):
        ty.connect(tmp_path).create_table("t", DATA, exist_ok=True)


def test_ages_are_not_plain_numbers(tmp_path: Path) -> None:
    table = ty.create_table(tmp_path / "t.lance", DATA)
    table.append(DATA)
    for refused in (table.cleanup, table.explain_cleanup, table.optimize):
        for age in (7, 0, 2.5, True, b"7d"):
            with pytest.raises(WrongType, match=r"older_than must be a timedelta or text such as '7d'"):
                refused(older_than=age)
        with pytest.raises(WrongType, match="7 days are '7d', 7 seconds are '7s'"):
            refused(older_than=7)
        with pytest.raises(InvalidInput, match="'7' is no span of time"):
            refused(older_than="7")
    with pytest.raises(WrongType, match="7 days are '7d'"):
        table.dataset.cleanup_old_versions(7)  # type: ignore[arg-type]
    assert len(table.history()) == 2
    assert table.cleanup(timedelta(0)).old_versions == 1


def test_a_cleanup_is_tried_out_first(tmp_path: Path) -> None:
    table = ty.create_table(tmp_path / "t.lance", DATA)
    table.overwrite(DATA)
    told = table.cleanup("0s", dry_run=True)
    assert (told.old_versions, told.data_files_removed, len(table.history())) == (1, 1, 2)
    assert table.cleanup("0s") == told
    assert len(table.history()) == 1


def test_a_tag_names_a_version_by_number_or_another_tag(tmp_path: Path) -> None:
    table = ty.create_table(tmp_path / "t.lance", DATA)
    table.append(DATA)
    table.tag("first", version=1)
    table.tag("loaded", version="first")
    table.tag("newest")
    assert table.tags() == {"first": 1, "loaded": 1, "newest": 2}
    table.tag("loaded", version="newest", move=True)
    assert table.tags()["loaded"] == 2


def test_all_rows_are_updated_only_when_that_is_said(tmp_path: Path) -> None:
    table = ty.create_table(tmp_path / "t.lance", DATA)
    with pytest.raises(InvalidInput, match="where='true' to change all rows"):
        table.update({"delay": "0"})
    assert table.version == 1
    assert table.update({"delay": "0"}, "true") == 3
    assert table.dataset.update({"delay": "1"}) == {"num_rows_updated": 3}  # as the official package has it


def test_files_are_joined_and_indices_refreshed_without_the_dataset(tmp_path: Path) -> None:
    table = ty.create_table(tmp_path / "t.lance", DATA)
    table.create_index("id")
    table.append(DATA)
    with pytest.raises(IndexNotFound):
        table.refresh_indices("ID_idx")
    table.refresh_indices("id_idx")
    assert (table.indices()[0].num_rows_indexed, table.indices()[0].num_rows_unindexed) == (6, 0)
    assert table.compact(target_rows_per_fragment=100).fragments_removed == 2
    assert len(table.dataset.get_fragments()) == 1
    for refused in (
        table.at(1).compact,
        table.at(1).refresh_indices,
        lambda: table.at(1).set_unique_key("id"),
    ):
        with pytest.raises(InvalidInput, match="opened with at"):
            refused()


def test_a_key_is_declared_unique_and_taken_back(tmp_path: Path) -> None:
    table = ty.create_table(tmp_path / "t.lance", DATA)
    assert table.unique_key is None
    table.set_unique_key("id")
    assert table.unique_key == ["id"]
    with pytest.raises(DuplicateKey):
        table.append(DATA)
    assert table.upsert({"id": [3, 4], "delay": [1, 1]}) == {"inserted": 1, "updated": 1}
    table.set_unique_key(["id", "delay"])
    assert table.unique_key == ["id", "delay"]
    table.set_unique_key(None)
    table.append({"id": [4], "delay": [2]})
    with pytest.raises(DuplicateKey):
        table.set_unique_key("id")
    with pytest.raises(FieldNotFound):
        table.set_unique_key("nope")
    with pytest.raises(InvalidInput):
        table.set_unique_key([])
    assert (table.unique_key, table.dedupe("id"), table.count()) == (None, 1, 4)


def test_tables_and_scans_are_read_into_polars(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    table = ty.create_table(tmp_path / "t.lance", DATA)
    assert table.to_polars().equals(polars.from_arrow(DATA))
    assert table.scan(["id"], "delay > 60").to_polars()["id"].to_list() == [2, 3]


def test_an_explained_cleanup_and_indices_are_read_at_a_glance(tmp_path: Path) -> None:
    table = ty.create_table(tmp_path / "t.lance", DATA)
    table.create_index("id")
    told = str(table.explain_cleanup("0s"))
    assert told.startswith("would remove 1 version")
    assert len(told.splitlines()) < 10
    assert str(table.indices()[0]) == "id_idx: BTree on id, 3 rows indexed"
    assert len(repr(table.indices())) < 250
