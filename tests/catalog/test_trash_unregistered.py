"""Catalogs without a register: the move of a directory decides, or a marker where there is no such step."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakes import directories, faulty, fresh, has, over, planned, put, values
from tiltyard.catalog import Catalog
from tiltyard.catalog.check import check
from tiltyard.catalog.findings import PRUNE
from tiltyard.catalog.listing import list_tables
from tiltyard.catalog.purging import purge
from tiltyard.catalog.renaming import rename_table
from tiltyard.catalog.repair import plan_repair, repair
from tiltyard.catalog.tables import create_table, deregister_table
from tiltyard.catalog.trash import drop_table, dropped_tables, undrop_table
from tiltyard.errors import (
    OutcomeUnknown,
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
    """A store beside which others do something before a table's directory is moved."""

    def __init__(self, root: str, what: Callable[[], object]) -> None:
        super().__init__(open_store(root), Plan())
        self.what: Callable[[], object] | None = what

    def move_dir(self, source: str, target: str) -> Created:
        what, self.what = self.what, self.what if source.startswith(".tmp") else None
        if what is not None and self.what is None:
            what()
        return super().move_dir(source, target)


ACTS: dict[str, Callable[[Catalog], object]] = {
    "drop": lambda lake: drop_table(lake, T),
    "undrop": lambda lake: undrop_table(lake, T),
    "purge": lambda lake: purge(lake, 0),
    "purging drop": lambda lake: drop_table(lake, T, purge=True),
    "rename": lambda lake: rename_table(lake, T, U),
    "deregister": lambda lake: deregister_table(lake, T),
    "create": lambda lake: put(lake, T, 2),
    "create u": lambda lake: put(lake, U, 2),
}


def acted(lake: Catalog, *acts: str) -> str:
    """What becomes of the last of some calls, one after the other."""
    try:
        for each in acts:
            ACTS[each](lake)
    except TiltyardError as error:
        return type(error).__name__
    return "done"


def told(root: str) -> tuple[object, ...]:
    """What the tables hold, and how many were dropped."""
    here = [values(lake(root), each) if has(lake(root), each) else None for each in (T, U)]
    return *here, len(dropped_tables(lake(root)))


MEETINGS: list[tuple[str, tuple[str, ...], str, tuple[object, ...]]] = [
    ("drop", ("drop",), "TableNotFound", (None, None, 1)),
    ("drop", ("drop", "create"), "done", (None, None, 2)),
    ("drop", ("drop", "undrop"), "done", (None, None, 1)),
    ("drop", ("drop", "purge", "create"), "done", (None, None, 1)),
    ("drop", ("rename",), "TableNotFound", (None, [1], 0)),
    ("drop", ("deregister",), "TableNotFound", (None, None, 0)),
    ("purging drop", ("drop", "create"), "done", (None, None, 1)),
    ("rename", ("rename",), "TableNotFound", (None, [1], 0)),
    ("rename", ("drop",), "TableNotFound", (None, None, 1)),
    ("rename", ("drop", "create"), "done", (None, [2], 1)),
    ("rename", ("create u",), "TableAlreadyExists", ([1], [2], 0)),
    ("rename", ("deregister",), "TableNotFound", (None, None, 0)),
    ("undrop", ("undrop",), "TableNotDropped", ([1], None, 0)),
    ("undrop", ("purge",), "TableNotDropped", (None, None, 0)),
    ("undrop", ("create",), "TableAlreadyExists", ([2], None, 1)),
    ("undrop", ("undrop", "rename"), "TableNotDropped", (None, [1], 0)),
    ("undrop", ("undrop", "drop"), "done", ([1], None, 0)),
    ("purge", ("undrop",), "done", ([1], None, 0)),
    ("purge", ("purge",), "done", (None, None, 0)),
    ("purge", ("undrop", "drop"), "done", (None, None, 1)),
    ("deregister", ("deregister",), "TableNotFound", (None, None, 0)),
    ("deregister", ("drop",), "TableNotFound", (None, None, 1)),
    ("deregister", ("purging drop",), "TableNotFound", (None, None, 0)),
    ("deregister", ("drop", "create"), "done", (None, None, 1)),
    ("deregister", ("rename",), "TableNotFound", (None, [1], 0)),
    ("deregister", ("drop", "undrop"), "done", (None, None, 0)),
]
"""A call, what others do right before its decision, what it is told, and what there is then."""


@pytest.mark.parametrize(("act", "others", "answer", "left"), MEETINGS)
def test_what_others_did_right_before_the_decision_is_found(
    root: str, act: str, others: tuple[str, ...], answer: str, left: tuple[object, ...]
) -> None:
    if act in ("undrop", "purge"):
        drop_table(lake(root), T)

    def meanwhile() -> None:
        assert acted(lake(root), *others) == "done"

    assert acted(over(Meanwhile(root, meanwhile), "v1"), act) == answer
    assert told(root) == left


@pytest.mark.parametrize("mode", ["create", "overwrite"])
def test_whose_directory_was_moved_away_before_it_was_a_table_begins_again(root: str, mode: str) -> None:
    class Moving(FaultyStore):
        def create(self, path: str, data: Any) -> Created:
            if path.endswith(".manifest") and not has(lake(root), U):
                os.rename(Path(root) / "u.lance", Path(root) / "01234567_dropped_u")
                put(lake(root), U, 2)
            return super().create(path, data)

    meddled = over(Moving(open_store(root), Plan()), "v1")
    if mode == "create":
        with pytest.raises(TableAlreadyExists):
            create_table(meddled, U, pa.table({"a": [3]}), mode=mode)
    else:
        create_table(meddled, U, pa.table({"a": [3]}), mode=mode)
    assert values(lake(root), U) == ([2] if mode == "create" else [3])
    left = [path.name for path in (Path(root) / "01234567_dropped_u").rglob("*") if path.is_file()]
    assert left == ["first"]


def test_a_table_that_came_to_the_name_while_it_was_dropped_is_dropped_in_its_place(root: str) -> None:
    class Slow(FaultyStore):
        def move_dir(self, source: str, target: str) -> Created:
            if source == "t.lance" and target.endswith("_dropped_t"):
                rename_table(lake(root), T, U)
                put(lake(root), T, 2)
                moved = super().move_dir(source, target)
                put(lake(root), T, 3)  # so that it could not be put back
                return moved
            return super().move_dir(source, target)

    drop_table(over(Slow(open_store(root), Plan()), "v1"), T)
    assert told(root) == ([3], [1], 1)
    rename_table(lake(root), T, ("w",))
    undrop_table(lake(root), T)
    assert told(root) == ([2], [1], 0)


@pytest.mark.parametrize("act", ["drop", "rename"])
def test_where_nobody_can_look_after_the_decision_the_outcome_is_unknown(root: str, act: str) -> None:
    class Blind(FaultyStore):
        decided = False

        def move_dir(self, source: str, target: str) -> Created:
            Blind.decided = not source.startswith(".tmp")
            return super().move_dir(source, target)

        def create(self, path: str, data: Any) -> Created:
            if self.decided:
                raise StoreError("nothing is written any more")
            return super().create(path, data)

        def stat(self, path: str) -> Any:
            if self.decided:
                raise StoreError("nothing is read any more")
            return super().stat(path)

    with pytest.raises(OutcomeUnknown, match="look"):
        ACTS[act](over(Blind(open_store(root), Plan()), "v1"))
    assert not has(lake(root), T)


@pytest.mark.parametrize("blind", [False, True])
def test_the_lost_answer_to_a_deregistration_is_looked_up(root: str, blind: bool) -> None:
    class Lossy(FaultyStore):
        lost = False

        def move_dir(self, source: str, target: str) -> Created:
            super().move_dir(source, target)
            Lossy.lost = True
            return Created.UNKNOWN

        def stat(self, path: str) -> Any:
            if blind and self.lost:
                raise StoreError("nothing is read any more")
            return super().stat(path)

    act = ACTS["deregister"]
    if blind:
        with pytest.raises(OutcomeUnknown, match="look"):
            act(over(Lossy(open_store(root), Plan()), "v1"))
    else:
        act(over(Lossy(open_store(root), Plan()), "v1"))
    assert told(root) == (None, None, 0)


def test_a_note_of_a_drop_that_came_to_nothing_means_nothing(root: str) -> None:
    with pytest.raises(Crashed):
        drop_table(faulty(root, Rule(Fault.CRASH, "move_dir", path="*_dropped_t"), mode="v1"), T)
    assert told(root) == ([1], None, 0)
    drop_table(lake(root), T)
    undrop_table(lake(root), T)
    assert told(root) == ([1], None, 0)


def test_a_move_that_is_refused_changes_nothing(root: str) -> None:
    broken = faulty(root, Rule(Fault.FAIL_BEFORE, "move_dir", path="*_dropped_t", times=None), mode="v1")
    with pytest.raises(StoreError, match="nothing was changed"):
        drop_table(broken, T)
    assert told(root) == ([1], None, 0)
    assert not list(Path(root).rglob("drop-*"))


@pytest.mark.parametrize("holds", ["a directory", "nothing"])
@pytest.mark.parametrize("act", ["undrop", "rename"])
def test_what_is_in_the_way_is_told_with_what_to_do(root: str, act: str, holds: str) -> None:
    remainder = Path(root) / ("t.lance" if act == "undrop" else "u.lance")
    if act == "undrop":
        drop_table(lake(root), T)
    (remainder / "data" if holds == "a directory" else remainder).mkdir(parents=True)
    os.utime(remainder, (1, 1))
    with pytest.raises(TableAlreadyExists, match="what a creation or a removal that was cut off has left"):
        ACTS[act](lake(root))
    report = check(lake(root))
    assert [(each.kind, each.subject) for each in report.findings] == [
        ("incomplete-directory", remainder.name)
    ]
    repair(lake(root), plan_repair(report, [PRUNE]))
    ACTS[act](lake(root))
    assert told(root) == (([1], None, 0) if act == "undrop" else (None, [1], 0))


def test_a_table_that_is_renamed_while_tables_are_listed_is_listed(root: str) -> None:
    """Under the name that it had, or the one that it got: a listing without it was never true."""

    class Renamed(FaultyStore):
        names = iter([T, U])

        def list_names(self, directory: str = "") -> list[str]:
            found = super().list_names(directory)
            name = next(self.names, None) if directory == "" else None
            if name is not None:
                rename_table(lake(root), name, U if name == T else T)
            return found

    assert list_tables(over(Renamed(open_store(root), Plan()), "v1")).names == ("t",)


def test_a_deregistered_table_is_in_the_way_of_one_that_comes_to_its_name(root: str) -> None:
    drop_table(lake(root), T)
    put(lake(root), T, 2)
    deregister_table(lake(root), T)
    with pytest.raises(TableAlreadyExists, match="deregistered"):
        undrop_table(lake(root), T)
    with pytest.raises(TableNotFound, match="something has its name: a deregistered table"):
        drop_table(lake(root), T)


def test_the_name_of_a_dropped_table_that_cannot_be_moved_is_told_to_be_that(root: str) -> None:
    drop_table(unmoving(root), T)
    with pytest.raises(TableAlreadyExists, match="was dropped: bring table 't' back"):
        put(unmoving(root), T, 2)


def test_a_dropped_table_is_gone_and_comes_back(root: str) -> None:
    drop_table(lake(root), T)
    assert not has(lake(root), T)
    assert list_tables(lake(root)).names == ()
    (left,) = directories(lake(root))
    assert left == f"{dropped_tables(lake(root))[0].trash[:8]}_dropped_t"
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


CHANGING = ("create", "move_dir", "delete", "delete_tree")


@pytest.mark.parametrize("fault", [Fault.CRASH, Fault.CRASH_AFTER])
@pytest.mark.parametrize("act", ["drop", "undrop", "purge"])
def test_who_dies_at_any_step_leaves_what_others_can_finish(tmp_path: Path, act: str, fault: Fault) -> None:
    def fill(name: str) -> str:
        root = str(tmp_path / name)
        put(lake(root), T, 1)
        if act != "drop":
            drop_table(lake(root), T)
        return root

    counted = Plan()
    ACTS[act](planned(fill("count"), counted, "v1"))
    for kind in CHANGING:
        for at in range(1, counted.calls(kind) + 1):
            root = fill(f"{kind}-{at}")
            with suppress(Crashed):
                ACTS[act](faulty(root, Rule(fault, kind, at=at), mode="v1"))
            alive = has(lake(root), T)
            if alive:
                assert values(lake(root), T) == [1]
                drop_table(lake(root), T)
            assert not has(lake(root), T)
            if act == "purge" and not dropped_tables(lake(root)):
                purge(lake(root), 0)
                assert directories(lake(root)) == []
                continue
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


class Stopping(Unmoving):
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


class Asking(Unmoving):
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
        drop_table(unmoving(str(here)), T)

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
        assert not has(unmoving(str(here)), T)
        assert purge(unmoving(str(here)), 0).given_up == []
        assert dropped_tables(lake(str(here))) == ()
        assert not [path for path in here.rglob("*") if path.is_file()], left
    assert 0 < outcomes["whole purges"] < 12
