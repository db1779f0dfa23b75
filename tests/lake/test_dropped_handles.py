"""Handles of tables that were dropped since: readers finish, writers are told."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tiltyard as ty
from tiltyard.errors import TableNotFound

DATA = {"id": [1, 2]}

WRITES: list[Callable[[ty.Table], Any]] = [
    lambda table: table.append(DATA),
    lambda table: table.overwrite(DATA),
    lambda table: table.upsert({"id": [3]}, on="id"),
    lambda table: table.delete("id = 1"),
    lambda table: table.update({"id": "7"}, where="id = 1"),
    lambda table: table.at(version=1).restore(),
    lambda table: table.stream(),
]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("name", ["t", "ops.t"])
def test_what_is_dropped_is_read_on_and_written_no_more(
    name: str, write: Callable[[ty.Table], Any], tmp_path: Path
) -> None:
    lake = ty.connect(tmp_path)
    made = lake.create_table(name, DATA, key="id")
    for table in (made, pickle.loads(pickle.dumps(made))):
        table.append({"id": [9]})
        lake.drop(name)
        assert table.count() == made.count()
        with pytest.raises(TableNotFound, match=rf"was dropped.*undrop\('{name}'\) brings it back"):
            write(table)
        lake.undrop(name)
        lake[name].append({"id": [10]})
    assert lake[name].count() == 6


@pytest.mark.parametrize("mode", [{}, {"manifest_enabled": False}, {"dir_listing_enabled": False}])
def test_a_drop_is_told_in_every_mode_and_by_the_drop_of_another_process(
    mode: dict[str, Any], tmp_path: Path
) -> None:
    table = ty.connect(tmp_path, properties=mode).create_table("t", DATA)
    ty.connect(tmp_path, properties=mode).drop("t")
    with pytest.raises(TableNotFound, match=r"was dropped.*undrop\('t'\) brings it back"):
        table.append(DATA)


def test_another_table_of_the_name_is_not_taken_for_the_dropped_one(tmp_path: Path) -> None:
    lake = ty.connect(tmp_path)
    old = lake.create_table("t", DATA)
    lake.drop("t")
    new = lake.create_table("t", DATA)
    new.append(DATA)
    with pytest.raises(TableNotFound, match="was dropped"):
        old.append(DATA)
    assert new.count() == 4


def test_a_renamed_table_is_written_through_its_old_handle(tmp_path: Path) -> None:
    lake = ty.connect(tmp_path)
    table = lake.create_table("t", DATA)
    lake.create_namespace("ops")
    lake.rename("t", "ops.u")
    table.append(DATA)
    assert lake["ops.u"].count() == 4
    lake.drop("ops.u")
    with pytest.raises(TableNotFound, match=r"'ops\.u' was dropped"):
        table.append(DATA)


def test_a_purged_table_is_gone_for_writers_too(tmp_path: Path) -> None:
    lake = ty.connect(tmp_path)
    for name in ("t", "ops.t"):
        table = lake.create_table(name, DATA)
        lake.drop(name, purge=True)
        with pytest.raises(TableNotFound):
            table.append(DATA)
