"""The plain face: tables by path and by name."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import tiltyard as ty
from tiltyard.errors import InvalidInput, TableAlreadyExists, TableNotFound

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
    assert flights.at(version=2).restore() == 5
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
    assert lake.table_names() == []
    lake.create_table("flights", DATA)
    lake.create_table("planes", DATA.schema)
    (tmp_path / "loose.lance").write_text("no table")
    (tmp_path / "empty.lance").mkdir()
    assert lake.table_names() == ["flights", "planes"]
    assert lake.open_table("flights").count() == 3
    for name in ("", "a/b", "..", ".hidden", None):
        with pytest.raises(InvalidInput):
            lake.open_table(name)


def test_importing_the_package_loads_neither_numpy_nor_pyarrow() -> None:
    code = "import sys, tiltyard; print(sorted({'numpy', 'pyarrow', 'threading'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    with pytest.raises(AttributeError):
        ty.nothing_of_the_kind  # noqa: B018
