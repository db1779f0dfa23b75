"""Catalogs without a register: what is told of a directory that somebody moved who slept, or died."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakes import fresh, has, over, put, values
from tiltyard.catalog import Catalog
from tiltyard.catalog.purging import purge
from tiltyard.catalog.renaming import rename_table
from tiltyard.catalog.tables import create_table, deregister_table
from tiltyard.catalog.trash import drop_table, dropped_tables, undrop_table
from tiltyard.errors import RetryableConflict, TableNotFound
from tiltyard.store import Created, open_store
from tiltyard.testing.faults import FaultyStore, Plan

T, U = ("t",), ("u",)


@pytest.fixture
def root(tmp_path: Path) -> str:
    root = str(tmp_path / "lake")
    put(fresh(root, "v1"), T, 1)
    return root


def lake(root: str) -> Catalog:
    return fresh(root, "v1")


def told(root: str) -> tuple[object, ...]:
    """What the tables hold, and how many were dropped."""
    here = [values(lake(root), each) if has(lake(root), each) else None for each in (T, U)]
    return *here, len(dropped_tables(lake(root)))


@pytest.mark.parametrize("stream", [False, True])
def test_whose_files_were_purged_before_it_began_again_writes_its_data_anew(root: str, stream: bool) -> None:
    class Moving(FaultyStore):
        moved = gone = False

        def create(self, path: str, data: Any) -> Created:
            if path.endswith(".manifest") and not self.moved:
                Moving.moved = True
                os.rename(Path(root) / "u.lance", Path(root) / "01234567_dropped_u")
            return super().create(path, data)

        def sync_dir(self, directory: str) -> None:
            super().sync_dir(directory)
            if directory == "_versions" and self.moved and not self.gone:
                Moving.gone = True
                shutil.rmtree(Path(root) / "01234567_dropped_u")

    data = pa.table({"a": [3]})
    meddled = over(Moving(open_store(root), Plan()), "v1")
    if stream:
        with pytest.raises(RetryableConflict, match="give the data again"):
            create_table(meddled, U, data.to_reader(), schema=data.schema)
        assert not has(lake(root), U)
    else:
        create_table(meddled, U, data)
        assert values(lake(root), U) == [3]
    assert Moving.gone


def test_whose_table_was_dropped_and_purged_right_after_its_version_has_made_it(root: str) -> None:
    class Purging(FaultyStore):
        def create(self, path: str, data: Any) -> Created:
            if path.endswith("_tiltyard/first"):
                shutil.rmtree(Path(root) / "01234567_dropped_u")
            answer = super().create(path, data)
            if path.endswith(".manifest"):
                os.rename(Path(root) / "u.lance", Path(root) / "01234567_dropped_u")
            return answer

    create_table(over(Purging(open_store(root), Plan()), "v1"), U, pa.table({"a": [3]}))
    assert not has(lake(root), U)


def test_a_deregistration_is_done_though_the_directory_left_its_name_right_after(root: str) -> None:
    class Slow(FaultyStore):
        def move_dir(self, source: str, target: str) -> Created:
            super().move_dir(source, target)
            os.rename(Path(root) / "t.lance", Path(root) / "01234567_dropped_t")  # put back, or not yet
            return Created.UNKNOWN  # for there was no directory to sync

    deregister_table(over(Slow(open_store(root), Plan()), "v1"), T)
    assert told(root) == (None, None, 0)


@pytest.mark.parametrize("target", ["u.lance", "01234567_dropped_t"])
def test_the_files_of_a_deregistered_table_that_the_dead_have_moved_go_back_to_its_name(
    root: str, target: str
) -> None:
    deregister_table(lake(root), T)
    os.rename(Path(root) / "t.lance", Path(root) / target)  # its mover had found the table before that
    assert told(root) == (None, None, 0)
    assert purge(lake(root), 0).removed == []
    assert has_files(root, "t.lance")
    assert told(root) == (None, None, 0)
    put(lake(root), U, 2)


def has_files(root: str, directory: str) -> bool:
    return any((Path(root) / directory / "data").iterdir())


def test_a_table_that_was_moved_aside_without_a_note_was_dropped(root: str) -> None:
    """Whoever dropped it took another table than the one that has its note, and died."""
    os.rename(Path(root) / "t.lance", Path(root) / "01234567_dropped_t")
    (record,) = dropped_tables(lake(root))
    assert (record.id, record.until_ns > record.dropped_ns) == (T, True)
    assert purge(lake(root), None).removed == []
    undrop_table(lake(root), T)
    assert told(root) == ([1], None, 0)
    drop_table(lake(root), T)
    undrop_table(lake(root), T)
    assert told(root) == ([1], None, 0)


def test_a_purge_goes_on_with_what_is_left_without_a_note(root: str) -> None:
    os.rename(Path(root) / "t.lance", Path(root) / "01234567_purged_t")
    assert purge(lake(root), None).removed == ["01234567_purged_t"]
    assert os.listdir(root) == []


def test_what_a_register_tells_of_is_no_drop_without_one(root: str) -> None:
    put(fresh(root), ("w",), 2)
    drop_table(fresh(root), ("w",))
    assert dropped_tables(lake(root)) == ()
    assert [each.object_id for each in dropped_tables(fresh(root))] == ["w"]


def test_a_renamed_table_that_was_moved_on_is_not_taken_for_the_creation_in_its_place(root: str) -> None:
    class Slow(FaultyStore):
        def move_dir(self, source: str, target: str) -> Created:
            moved = super().move_dir(source, target)
            if target == "u.lance":
                rename_table(lake(root), U, ("w",))
                (Path(root) / "u.lance" / "data").mkdir(parents=True)  # a creator's, who has just begun
            return moved

    rename_table(over(Slow(open_store(root), Plan()), "v1"), T, U)
    assert values(lake(root), ("w",)) == [1]
    assert sorted(os.listdir(root)) == ["u.lance", "w.lance"]
    assert os.listdir(Path(root) / "w.lance" / "_tiltyard") == []


def test_a_creation_that_was_moved_in_the_place_of_a_table_is_put_back(root: str) -> None:
    class Slow(FaultyStore):
        def move_dir(self, source: str, target: str) -> Created:
            if (source, target) == ("t.lance", "u.lance"):
                os.rename(Path(root) / "t.lance", Path(root) / "w.lance")
                (Path(root) / "t.lance" / "data").mkdir(parents=True)
            return super().move_dir(source, target)

    with pytest.raises(TableNotFound):
        rename_table(over(Slow(open_store(root), Plan()), "v1"), T, U)
    assert sorted(os.listdir(root)) == ["t.lance", "w.lance"]
