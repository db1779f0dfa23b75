"""The directory of tables: tables by name, and what is no directory of tables."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tiltyard as ty
from tiltyard.errors import InvalidInput, InvalidUri, TableNotFound


def test_a_table_is_opened_by_its_name_in_brackets(tmp_path: Path) -> None:
    lake = ty.connect(tmp_path)
    lake.create_table("flights", {"id": [1, 2]})
    assert lake["flights"].to_arrow() == pa.table({"id": [1, 2]})
    with pytest.raises(TableNotFound, match="nearest: flights"):
        lake["flight"]
    with pytest.raises(InvalidInput):
        lake["../flights"]


def test_connecting_to_a_table_says_how_to_open_it(tmp_path: Path) -> None:
    place = tmp_path / "t.lance"
    ty.create_table(place, {"id": [1]})
    with pytest.raises(InvalidUri, match=r"itself a table.*open_table\('.*t\.lance'\)"):
        ty.connect(place)
    assert list(ty.connect(tmp_path)) == ["t"]


def test_connecting_to_a_place_that_is_not_there_yet_makes_nothing(tmp_path: Path) -> None:
    lake = ty.connect(tmp_path / "new")
    assert list(lake) == []
    assert list(tmp_path.iterdir()) == []


def test_a_table_is_dropped_by_its_name(tmp_path: Path) -> None:
    lake = ty.connect(tmp_path)
    lake.create_table("flights", pa.table({"a": [1]}))
    lake.create_table("planes", pa.table({"a": [1]}))
    with pytest.raises(TableNotFound, match="nearest: flights"):
        lake.drop_table("flight")
    lake.drop_table("flights")
    assert list(lake) == ["planes"]
    assert lake.create_table("flights", pa.table({"b": [1]})).version == 1
