"""Directories that are removed, or left empty, by others while or before we work on them."""

from __future__ import annotations

import os
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakes import MODES, directories, fresh, has, over, put, table, trash_left, values
from tiltyard.catalog.found import find_table
from tiltyard.catalog.namespaces import create_namespace, drop_namespace
from tiltyard.catalog.planning import DEBRIS_SECONDS
from tiltyard.catalog.renaming import rename_table
from tiltyard.catalog.tables import create_table, declare_table, register_table
from tiltyard.catalog.trash import drop_table, undrop_table
from tiltyard.dataset import write_dataset
from tiltyard.errors import RetryableConflict, TableNotDropped, TableNotFound
from tiltyard.store import Created, open_store
from tiltyard.testing.faults import FaultyStore, Plan

REGISTERED = [mode for mode in MODES if mode != "v1"]
IDS = [("t",), ("n", "t")]


@pytest.fixture
def root(tmp_path: Path) -> str:
    create_namespace(fresh(str(tmp_path / "lake")), ("n",))
    return str(tmp_path / "lake")


# -- dropped tables ------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", REGISTERED)
@pytest.mark.parametrize("how", ["drop", "namespace"])
@pytest.mark.parametrize("id", IDS)
def test_a_dropped_table_whose_data_are_gone_is_not_brought_back(
    root: str, id: tuple[str, ...], how: str, mode: str
) -> None:
    """Another program, or a hand, may delete them: a row would name nothing. Nothing changes."""
    put(fresh(root, mode), id, 1)
    if how == "drop" or len(id) == 1:
        drop_table(fresh(root, mode), id)
    else:
        drop_namespace(fresh(root, mode), id[:1], None, "cascade")
        create_namespace(fresh(root, mode), id[:1])
    (gone,) = directories(fresh(root))
    shutil.rmtree(f"{root}/{gone}")
    before = fresh(root).register()
    with pytest.raises(TableNotDropped, match="nothing of it is left"):
        undrop_table(fresh(root, mode), id)
    after = fresh(root).register()
    assert (after.version, after.rows.ids) == (before.version, before.rows.ids)
    assert trash_left(fresh(root)) == 1
    put(fresh(root, mode), id, 2)
    assert values(fresh(root, mode), id) == [2]


def test_a_dropped_table_without_a_directory_is_brought_back_when_it_never_had_one(root: str) -> None:
    register_table(fresh(root), ("n", "t"), "some/where")
    drop_table(fresh(root), ("n", "t"))
    undrop_table(fresh(root), ("n", "t"))
    assert find_table(fresh(root), ("n", "t")).location == "some/where"


def test_empty_directories_of_a_creator_that_gave_way_stop_no_undrop(root: str) -> None:
    """They are nobody's who is at work: such a one puts a file into them right after."""
    put(fresh(root), ("t",), 1)
    dropped = drop_table(fresh(root), ("t",))
    for name in ("_versions", "data"):
        os.makedirs(f"{root}/t.lance/{name}")
    os.utime(f"{root}/t.lance", (time.time() - DEBRIS_SECONDS / 10,) * 2)
    undrop_table(fresh(root), ("t",))
    assert find_table(fresh(root), ("t",)).location == dropped.location
    assert values(fresh(root), ("t",)) == [1]


# -- under a caller at work ----------------------------------------------------------------------


class Removing(FaultyStore):
    """A store of which another program removes a directory right before a file is made in it; once."""

    def __init__(self, root: str, where: str, removed: str) -> None:
        super().__init__(open_store(root), Plan())
        self.where, self.removed, self.root, self.done = where, removed, root, [False]

    def _strike(self, path: str) -> None:
        if self.where in self._full(path) and not self.done[0]:
            self.done[0] = True
            shutil.rmtree(f"{self.root}/{self.removed}")

    def create(self, path: str, data: Any) -> Created:
        self._strike(path)
        return super().create(path, data)

    def writer(self, path: str) -> Any:
        self._strike(path)
        return super().writer(path)


def test_a_table_that_another_program_drops_meanwhile_is_not_found(root: str) -> None:
    """It has no row, as those of programs that know directories only."""
    for call in (drop_table, partial(rename_table, new_id=("u",))):
        write_dataset(table(1), f"{root}/t.lance")
        store = Removing(root, "t.lance/_tiltyard/move-", "t.lance")
        with pytest.raises(TableNotFound):
            call(over(store), ("t",))
        assert store.done[0]
        assert directories(fresh(root)) == []


def test_a_table_with_a_row_whose_directory_goes_meanwhile_is_dropped(root: str) -> None:
    put(fresh(root), ("t",), 1)
    drop_table(over(Removing(root, "t.lance/_tiltyard/move-", "t.lance")), ("t",))
    assert not has(fresh(root), ("t",))


@pytest.mark.parametrize("mode", ["exist_ok", "overwrite"])
@pytest.mark.parametrize("where", ["t.lance/data", "t.lance/_versions"])
@pytest.mark.parametrize("whole", [True, False])
def test_a_creator_plans_again_when_the_directory_goes_under_it(
    root: str, mode: str, where: str, whole: bool
) -> None:
    for name in ("data", "_versions"):
        os.makedirs(f"{root}/t.lance/{name}")
    store = Removing(root, f"{where}/", "t.lance" if whole else where)
    create_table(over(store), ("t",), table(1), mode=mode)
    assert store.done[0]
    assert values(fresh(root), ("t",)) == [1]


@pytest.mark.parametrize("id", IDS)
@pytest.mark.parametrize("where", ["/data/", "/_versions/"])
def test_an_overwriter_whose_table_is_removed_meanwhile_creates_it(
    root: str, id: tuple[str, ...], where: str
) -> None:
    put(fresh(root), id, 1)
    location = find_table(fresh(root), id).location
    store = Removing(root, f"{location}{where}", location)
    create_table(over(store), id, table(2), mode="overwrite")
    assert store.done[0]
    assert values(fresh(root), id) == [2]


def test_who_fills_a_declared_table_that_is_dropped_with_its_directory_creates_it(root: str) -> None:
    declare_table(fresh(root), ("n", "t"))
    location = find_table(fresh(root), ("n", "t")).location
    store = Removing(root, f"{location}/data/", location)
    create_table(over(store), ("n", "t"), table(3))
    assert values(fresh(root), ("n", "t")) == [3]


def test_a_stream_that_was_read_for_what_is_gone_must_be_given_again(root: str) -> None:
    data = pa.RecordBatchReader.from_batches(table(1).schema, table(1).to_batches())
    with pytest.raises(RetryableConflict, match="give the data again"):
        create_table(over(Removing(root, "t.lance/_versions/", "t.lance")), ("t",), data)
    assert not has(fresh(root), ("t",))
