"""Catalogs without a register: a marker decides a drop, one file how it ends; a rename is one step."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakes import directories, faulty, fresh, has, over, planned, put, values
from tiltyard.catalog import Catalog, unregistered
from tiltyard.catalog.listing import list_tables
from tiltyard.catalog.purging import purge
from tiltyard.catalog.renaming import rename_table
from tiltyard.catalog.tables import create_table, deregister_table
from tiltyard.catalog.trash import drop_table, dropped_tables, undrop_table
from tiltyard.errors import (
    StoreError,
    TableAlreadyExists,
    TableNotDropped,
    TableNotFound,
    TiltyardError,
    UnsupportedFeature,
)
from tiltyard.store import Created, Store, open_store
from tiltyard.testing.faults import Crashed, Fault, FaultyStore, Plan, Rule

T, U = ("t",), ("u",)


@pytest.fixture
def root(tmp_path: Path) -> str:
    root = str(tmp_path / "lake")
    put(fresh(root, "v1"), T, 1)
    return root


class Unmoving(FaultyStore):
    """A store that cannot rename directories, as object stores."""

    def move_dir(self, source: str, target: str) -> Created:
        raise UnsupportedFeature("there is no such step")

    def at(self, prefix: str) -> Unmoving:
        return Unmoving(self.inner.at(prefix), self.plan, self._full(prefix.rstrip("/")))


def lake(root: str) -> Catalog:
    return fresh(root, "v1")


def unmoving(root: str) -> Catalog:
    return over(Unmoving(open_store(root), Plan()), "v1")


class Meanwhile(FaultyStore):
    """A store beside which others do something: before the table is moved ("move"), or after a look at its
    marker that is there, the first ("look 1") or a later one.
    """

    def __init__(self, root: str, what: Callable[[], object], at: str) -> None:
        super().__init__(open_store(root), Plan())
        self.what: Callable[[], object] | None = what
        self.when = at
        self.looks = 0

    def _others(self) -> None:
        what, self.what = self.what, None
        if what is not None:
            what()

    def move_dir(self, source: str, target: str) -> Created:
        if self.when == "move" and source == "t.lance":
            self._others()
        return super().move_dir(source, target)

    def exists(self, path: str) -> bool:
        found = super().exists(path)
        if found and path == "t.lance/.lance-deregistered":
            self.looks += 1
            if self.when == f"look {self.looks}":
                self._others()
        return found


def begun(root: str) -> Callable[[], object]:
    """Put the marker of a drop; what its dropper does next, once."""

    def fail() -> None:
        raise StoreError("its process died")

    drop_table(over(Meanwhile(root, fail, "move"), "v1"), T)
    (record,) = dropped_tables(lake(root))
    assert record.location == "t.lance"
    return lambda: unregistered.set_aside(lake(root), "t.lance")


@pytest.mark.parametrize("mode", ["create", "exist_ok", "overwrite"])
@pytest.mark.parametrize("at", ["never", "move", "look 1", "look 2", "look 3"])
def test_who_creates_the_table_of_a_drop_that_is_under_way_makes_a_new_one(
    root: str, mode: str, at: str
) -> None:
    dropper = begun(root)
    create_table(over(Meanwhile(root, dropper, at), "v1"), T, pa.table({"a": [2]}), mode=mode)
    assert values(lake(root), T) == [2]
    (record,) = dropped_tables(lake(root))
    rename_table(lake(root), T, U)
    undrop_table(lake(root), T)
    assert (values(lake(root), T), values(lake(root), U)) == ([1], [2])
    assert record.location != "t.lance"


@pytest.mark.parametrize("at", ["never", "move", "look 1", "look 2", "look 3"])
def test_a_rename_to_the_name_of_a_drop_that_is_under_way_finishes_the_drop(root: str, at: str) -> None:
    put(lake(root), U, 2)
    rename_table(over(Meanwhile(root, begun(root), at), "v1"), U, T)
    assert values(lake(root), T) == [2]
    assert len(dropped_tables(lake(root))) == 1


@pytest.mark.parametrize("again", [False, True])
def test_a_drop_that_others_finished_purges_what_it_dropped_and_nothing_else(root: str, again: bool) -> None:
    def others() -> None:
        assert unregistered.set_aside(lake(root), "t.lance")
        if again:
            put(lake(root), T, 2)

    drop_table(over(Meanwhile(root, others, "move"), "v1"), T, purge=True)
    assert dropped_tables(lake(root)) == ()
    assert directories(lake(root)) == (["t.lance"] if again else [])
    if again:
        assert values(lake(root), T) == [2]


def test_the_name_of_a_dropped_table_that_cannot_be_moved_is_told_to_be_that(root: str) -> None:
    drop_table(unmoving(root), T)
    with pytest.raises(TableAlreadyExists, match="was dropped: bring table 't' back"):
        put(unmoving(root), T, 2)


def test_a_dropped_table_is_gone_and_comes_back(root: str) -> None:
    drop_table(lake(root), T)
    assert not has(lake(root), T)
    assert list_tables(lake(root)).names == ()
    (left,) = directories(lake(root))
    assert "_dropped_t" in left
    assert not (Path(root) / "__manifest").exists()
    (dropped,) = dropped_tables(lake(root))
    assert dropped.id == T
    assert dropped.until_ns > dropped.dropped_ns
    undrop_table(lake(root), T)
    assert values(lake(root), T) == [1]
    assert dropped_tables(lake(root)) == ()
    drop_table(lake(root), T)
    undrop_table(lake(root), trash=dropped_tables(lake(root))[0].trash)
    assert values(lake(root), T) == [1]


def test_its_name_is_free_at_once(root: str) -> None:
    drop_table(lake(root), T)
    put(lake(root), T, 2)
    with pytest.raises(TableAlreadyExists):
        undrop_table(lake(root), T)
    drop_table(lake(root), T)
    assert len(dropped_tables(lake(root))) == 2
    undrop_table(lake(root), T)
    assert values(lake(root), T) == [2]


def test_where_directories_cannot_be_renamed_the_marker_stays_and_goes(root: str) -> None:
    drop_table(unmoving(root), T)
    assert directories(lake(root)) == ["t.lance"]
    assert not has(unmoving(root), T)
    with pytest.raises(TableNotFound):
        drop_table(unmoving(root), T)
    undrop_table(unmoving(root), T)
    assert values(unmoving(root), T) == [1]
    drop_table(unmoving(root), T)
    purge(unmoving(root), 0)
    assert not open_store(root).list("")
    with pytest.raises(TableNotDropped):
        undrop_table(unmoving(root), T)


def test_a_deregistered_table_is_not_a_dropped_one(root: str) -> None:
    deregister_table(lake(root), T)
    assert dropped_tables(lake(root)) == ()
    with pytest.raises(TableNotFound):
        drop_table(lake(root), T)
    purge(lake(root), 0)
    assert open_store(root).list("t.lance")


def test_what_is_not_there_is_told(root: str) -> None:
    with pytest.raises(TableNotFound):
        drop_table(lake(root), U)
    with pytest.raises(TableNotFound):
        rename_table(lake(root), U, ("w",))
    with pytest.raises(TableNotFound):
        undrop_table(lake(root), T)
    for nested in (("n", "t"), ("n", "u")):
        with pytest.raises(UnsupportedFeature):
            drop_table(lake(root), nested)
        with pytest.raises(UnsupportedFeature):
            rename_table(lake(root), T, nested)


def test_purge_deletes_what_is_over_and_an_immediate_drop_at_once(root: str) -> None:
    drop_table(lake(root), T)
    assert not purge(lake(root)).given_up
    done = purge(lake(root), 0)
    assert [each.id for each in done.given_up] == [T]
    assert directories(lake(root)) == []
    put(lake(root), T, 2)
    drop_table(lake(root), T, purge=True)
    assert directories(lake(root)) == []


def test_a_rename_is_one_step(root: str) -> None:
    found = rename_table(lake(root), T, U)
    assert found.location == "u.lance"
    assert directories(lake(root)) == ["u.lance"]
    assert values(lake(root), U) == [1]
    put(lake(root), T, 2)
    with pytest.raises(TableAlreadyExists):
        rename_table(lake(root), T, U)
    drop_table(lake(root), U)
    rename_table(lake(root), T, U)
    assert values(lake(root), U) == [2]
    with pytest.raises(UnsupportedFeature, match="cannot rename directories"):
        rename_table(unmoving(root), U, T)
    assert values(lake(root), U) == [2]


def test_a_drop_whose_table_is_renamed_in_the_same_moment_has_not_happened(root: str) -> None:
    class Renaming(FaultyStore):
        def at(self, prefix: str) -> Any:
            found = self.inner.at(prefix)
            if prefix == "t.lance" and has(lake(root), T):
                rename_table(lake(root), T, U)
            return FaultyStore(found, self.plan, prefix)

    with pytest.raises(TableNotFound):
        drop_table(over(Renaming(open_store(root), Plan()), "v1"), T)
    assert values(lake(root), U) == [1]


CHANGING = ("create", "move_dir", "delete", "delete_tree")


@pytest.mark.parametrize("fault", [Fault.CRASH, Fault.CRASH_AFTER])
@pytest.mark.parametrize("act", ["drop", "undrop", "purge"])
def test_who_dies_at_any_step_leaves_what_others_can_finish(tmp_path: Path, act: str, fault: Fault) -> None:
    acts: dict[str, Callable[[Catalog], Any]] = {
        "drop": lambda lake: drop_table(lake, T),
        "undrop": lambda lake: undrop_table(lake, T),
        "purge": lambda lake: purge(lake, 0),
    }

    def fill(name: str) -> str:
        root = str(tmp_path / name)
        put(lake(root), T, 1)
        if act != "drop":
            drop_table(lake(root), T)
        return root

    counted = Plan()
    acts[act](planned(fill("count"), counted, "v1"))
    for kind in CHANGING:
        for at in range(1, counted.calls(kind) + 1):
            root = fill(f"{kind}-{at}")
            with suppress(Crashed):
                acts[act](faulty(root, Rule(fault, kind, at=at), mode="v1"))
            alive = has(lake(root), T)
            if alive:
                assert values(lake(root), T) == [1]
                drop_table(lake(root), T)
            assert not has(lake(root), T)
            if act == "purge" and not dropped_tables(lake(root)):
                purge(lake(root), 0)
                assert directories(lake(root)) == []
                continue
            with suppress(TableAlreadyExists):  # whoever decided the undrop before is the one who did it
                undrop_table(lake(root), T)
            assert values(lake(root), T) == [1]
            rename_table(lake(root), T, U)
            put(lake(root), T, 2)
            assert (values(lake(root), T), values(lake(root), U)) == ([2], [1])


def test_undrops_and_purges_of_one_drop_end_it_once(root: str) -> None:
    drop_table(lake(root), T)
    answers: list[str] = []
    start = threading.Barrier(6)

    def run(me: int) -> None:
        start.wait()
        try:
            if me % 2:
                undrop_table(lake(root), T)
                answers.append("back")
            else:
                done = purge(lake(root), 0)
                answers.append("purged" if done.given_up else "nothing")
        except TiltyardError as error:
            answers.append(type(error).__name__)

    threads = [threading.Thread(target=run, args=(me,)) for me in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    counted = Counter(answers)
    assert counted["back"] + counted["purged"] == 1, counted
    assert has(lake(root), T) is (counted["back"] == 1)
    assert set(counted) <= {"back", "purged", "nothing", "TableNotDropped", "TableAlreadyExists"}


class Stopping(FaultyStore):
    """A store whose process dies at one of its removals."""

    def __init__(self, root: str, left: int) -> None:
        super().__init__(open_store(root), Plan())
        self.left = left

    def _one(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise StoreError("its process died")

    def delete(self, path: str) -> bool:
        self._one()
        return super().delete(path)

    def delete_tree(self, directory: str) -> None:
        self._one()
        super().delete_tree(directory)


class Asking(FaultyStore):
    """A store on which somebody is slow to ask how a drop shall end: another one does something before."""

    def __init__(self, inner: Store, before: Callable[[], object], prefix: str = "") -> None:
        super().__init__(inner, Plan(), prefix)
        self.before = before

    def at(self, prefix: str) -> Asking:
        return Asking(self.inner.at(prefix), self.before, self._full(prefix.rstrip("/")))

    def create(self, path: str, data: Any) -> Created:
        if path.startswith("_tiltyard/end-"):
            self.before()
        return super().create(path, data)


@pytest.mark.parametrize("word", ["undrop", "purge"])
def test_a_slow_word_on_the_end_of_a_drop_changes_nothing_of_a_purge_that_got_however_far(
    root: str, word: str
) -> None:
    outcomes: Counter[str] = Counter()
    for left in range(12):
        (here := Path(f"{root}-{left}")).mkdir()
        put(fresh(str(here), "v1"), T, 1)
        drop_table(lake(str(here)), T)

        def other(here: Path = here, left: int = left) -> None:
            with suppress(StoreError):
                purge(over(Stopping(str(here), left), "v1"), 0)
                outcomes["whole purges"] += 1

        slow = over(Asking(open_store(str(here)), other), "v1")
        if word == "undrop":
            with pytest.raises(TableNotDropped):
                undrop_table(slow, T)
        else:
            assert purge(slow, 0).given_up == []
        assert not has(lake(str(here)), T)
        assert purge(lake(str(here)), 0).given_up == []
        assert dropped_tables(lake(str(here))) == ()
        assert not [path for path in here.rglob("*") if path.is_file()], left
    assert 0 < outcomes["whole purges"] < 12
