"""Renaming tables: beside, out of and into namespaces and the root; races; who refuses what."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lakes import MODES, directories, fresh, has, moves_left, opened, over, put, table, values
from tiltyard.catalog import Catalog
from tiltyard.catalog.found import find_table
from tiltyard.catalog.listing import list_tables
from tiltyard.catalog.namespaces import create_namespace, drop_namespace
from tiltyard.catalog.renaming import rename_table
from tiltyard.catalog.tables import create_table, declare_table, deregister_table, register_table
from tiltyard.catalog.trash import drop_table, undrop_table
from tiltyard.dataset import write_dataset
from tiltyard.errors import (
    InvalidInput,
    InvalidName,
    NamespaceNotFound,
    StoreError,
    TableAlreadyExists,
    TableNotFound,
    TiltyardError,
    UnsupportedFeature,
)
from tiltyard.store import Created, open_store
from tiltyard.testing.faults import FaultyStore, Plan

REGISTERED = [mode for mode in MODES if mode != "v1"]
Id = tuple[str, ...]


@pytest.fixture
def root(tmp_path: Path) -> str:
    lake = fresh(str(tmp_path / "lake"))
    create_namespace(lake, ("n",))
    create_namespace(lake, ("m",))
    return str(tmp_path / "lake")


class Unmoving(FaultyStore):
    """A store that cannot rename directories, as object stores."""

    def move_dir(self, source: str, target: str) -> Created:
        raise UnsupportedFeature("there is no such step")

    def at(self, prefix: str) -> Unmoving:
        return Unmoving(self.inner.at(prefix), self.plan, self._full(prefix.rstrip("/")))


def unmoving(root: str, mode: str = "mixed") -> Catalog:
    return over(Unmoving(open_store(root), Plan()), mode)


WAYS: list[tuple[Id, Id]] = [
    (("t",), ("u",)),
    (("t",), ("n", "t")),
    (("n", "t"), ("n", "u")),
    (("n", "t"), ("m", "t")),
]
WAYS += [(("n", "t"), ("t",))]


@pytest.mark.parametrize("mode", REGISTERED)
@pytest.mark.parametrize(("id", "new"), WAYS)
def test_a_renamed_table_is_the_same_under_its_new_id_only(root: str, mode: str, id: Id, new: Id) -> None:
    create_table(fresh(root, mode), id, table(1, 2), properties={"k": "v"})
    found = rename_table(fresh(root, mode), id, new)
    assert found.id == new
    for other in (mode, "migration"):
        seen = find_table(fresh(root, other), new)
        assert (seen.location, seen.uri, seen.row) == (found.location, found.uri, found.row)
        assert seen.properties == {"k": "v"}
        assert values(fresh(root, other), new) == [1, 2]
        assert not has(fresh(root, other), id)
        assert id[-1] not in list_tables(fresh(root, other), id[:-1]).names or id[:-1] == new[:-1]
    assert directories(fresh(root)) == [found.location]
    rename_table(fresh(root, mode), new, id)
    assert values(fresh(root, mode), id) == [1, 2]
    create_namespace(fresh(root), ("x",))
    assert moves_left(fresh(root)) == 0


@pytest.mark.parametrize(("id", "new"), WAYS)
def test_where_directories_are_listed_a_root_table_has_the_directory_of_its_name(
    root: str, id: Id, new: Id
) -> None:
    put(fresh(root), id, 1)
    before = find_table(fresh(root), id).location
    found = rename_table(fresh(root), id, new)
    if len(new) == 1:
        assert found.location == f"{new[0]}.lance"
    elif len(id) == 1:
        assert found.location.endswith(f"_{'$'.join(new)}")
    else:
        assert found.location == before


@pytest.mark.parametrize(("id", "new"), WAYS)
def test_where_they_are_not_the_directory_stays(root: str, id: Id, new: Id) -> None:
    put(fresh(root, "manifest"), id, 1)
    before = find_table(fresh(root, "manifest"), id).location
    assert rename_table(fresh(root, "manifest"), id, new).location == before


@pytest.mark.parametrize(("id", "new"), WAYS)
def test_where_directories_cannot_be_renamed_they_stay_and_the_old_name_is_hidden(
    root: str, id: Id, new: Id
) -> None:
    put(unmoving(root), id, 1)
    before = find_table(unmoving(root), id).location
    assert rename_table(unmoving(root), id, new).location == before
    assert values(fresh(root), new) == [1]
    assert not has(fresh(root), id)
    assert not has(fresh(root, "v1"), ("t",))
    put(unmoving(root), id, 2)
    assert (values(fresh(root), id), values(fresh(root), new)) == ([2], [1])
    drop_table(unmoving(root), id)
    rename_table(unmoving(root), new, id)
    assert values(fresh(root), id) == [1]
    assert has(fresh(root, "v1"), ("t",)) is (id == ("t",))


@pytest.mark.parametrize("mode", REGISTERED)
def test_what_is_not_there_or_taken_is_told(root: str, mode: str) -> None:
    lake = fresh(root, mode)
    put(lake, ("t",), 1)
    put(lake, ("u",), 1)
    put(lake, ("n", "t"), 1)
    version = fresh(root).register().version
    cases: list[tuple[Id, Id, type[TiltyardError]]] = [
        (("no",), ("x",), TableNotFound),
        (("n", "no"), ("x",), TableNotFound),
        (("n",), ("x",), TableNotFound),
        (("t",), ("u",), TableAlreadyExists),
        (("t",), ("t",), TableAlreadyExists),
        (("t",), ("n", "t"), TableAlreadyExists),
        (("t",), ("n",), TableAlreadyExists),
        (("t",), ("nowhere", "x"), NamespaceNotFound),
        (("t",), ("u", "x"), NamespaceNotFound),
        (("t",), (), InvalidInput),
        (("t",), ("a/b",), InvalidName),
        (("t",), ("n", "a$b"), InvalidName),
        (("t",), ("",), InvalidName),
        (("t",), ("é",), InvalidName),
        (("t",), ("x" * 200,), InvalidName),
    ]
    for id, new, error in cases:
        with pytest.raises(error):
            rename_table(fresh(root, mode), id, new)
    assert fresh(root).register().version == version
    assert values(fresh(root, mode), ("t",)) == [1]
    assert not [each for each in lake.store.list("") if "_tiltyard/move-" in each.path]


def test_a_name_is_taken_by_a_table_without_a_row(root: str) -> None:
    put(fresh(root), ("t",), 1)
    write_dataset(table(9), root + "/plain.lance")
    with pytest.raises(TableAlreadyExists, match="choose another name"):
        rename_table(fresh(root), ("t",), ("plain",))
    assert values(fresh(root), ("t",)) == [1]
    assert values(fresh(root), ("plain",)) == [9]


@pytest.mark.parametrize("id", [("t",), ("n", "t")])
@pytest.mark.parametrize("what", ["file", "debris", "deregistered"])
def test_beside_what_is_no_table_the_renamed_table_gets_a_directory_of_its_own(
    root: str, id: Id, what: str
) -> None:
    """It is left alone: a creator may be at work in it, or it is to be registered again."""
    lake = fresh(root)
    put(lake, id, 1)
    if what == "file":
        (Path(root) / "u.lance").write_text("a file")
    elif what == "debris":
        (Path(root) / "u.lance" / "data").mkdir(parents=True)
        os.utime(Path(root) / "u.lance", (0, 0))
    else:
        put(lake, ("u",), 9)
        deregister_table(lake, ("u",))
    found = rename_table(lake, id, ("u",))
    assert not found.location.endswith(".lance")
    assert values(fresh(root), ("u",)) == [1]
    assert not has(fresh(root), id)
    with pytest.raises(TableAlreadyExists):
        put(fresh(root), ("u",), 2)
    rename_table(fresh(root), ("u",), ("w",))
    assert find_table(fresh(root), ("w",)).location == "w.lance"
    assert (Path(root) / "u.lance").exists()


def test_a_table_without_a_row_gets_one_with_its_new_name(root: str) -> None:
    write_dataset(table(9), root + "/plain.lance")
    rename_table(fresh(root), ("plain",), ("n", "plain"))
    assert values(fresh(root, "manifest"), ("n", "plain")) == [9]
    write_dataset(table(8), root + "/plain.lance")
    rename_table(fresh(root), ("plain",), ("other",))
    assert values(fresh(root), ("other",)) == [8]


@pytest.mark.parametrize(("id", "new"), WAYS)
def test_a_declared_table_is_renamed_and_filled_under_its_new_name(root: str, id: Id, new: Id) -> None:
    declare_table(fresh(root), id, properties={"k": "v"})
    rename_table(fresh(root), id, new)
    assert find_table(fresh(root), new, check_declared=True).declared_only
    put(fresh(root), new, 1)
    assert values(fresh(root), new) == [1]
    assert find_table(fresh(root), new).properties == {"k": "v"}


def test_a_table_registered_twice_keeps_its_other_name(root: str) -> None:
    put(fresh(root), ("t",), 1)
    register_table(fresh(root), ("n", "same"), "t.lance")
    rename_table(fresh(root), ("t",), ("u",))
    assert values(fresh(root), ("n", "same")) == [1]
    rename_table(fresh(root), ("n", "same"), ("m", "same"))
    assert values(fresh(root), ("m", "same")) == values(fresh(root), ("u",)) == [1]


def test_a_name_given_away_is_free_and_a_dropped_table_of_it_comes_back(root: str) -> None:
    lake = fresh(root)
    put(lake, ("t",), 1)
    drop_table(lake, ("t",))
    put(lake, ("t",), 2)
    rename_table(lake, ("t",), ("u",))
    undrop_table(lake, ("t",))
    assert (values(lake, ("t",)), values(lake, ("u",))) == ([1], [2])


def test_whoever_has_a_table_open_goes_on_reading_and_writing_it(root: str) -> None:
    put(fresh(root), ("t",), 1)
    dataset = opened(fresh(root), ("t",))
    rename_table(fresh(root), ("t",), ("u",))
    assert dataset.to_table()["a"].to_pylist() == [1]
    dataset.insert(table(2))
    assert values(fresh(root), ("u",)) == [1, 2]
    drop_table(fresh(root), ("u",))
    assert dataset.to_table()["a"].to_pylist() == [1, 2]
    assert directories(fresh(root))[0].split("_")[1] == "dropped"


# -- several at once -----------------------------------------------------------------------------


def together(calls: Sequence[Callable[[], Any]]) -> list[str]:
    """What each call, made at the same time in its thread, came to: 'done' or the name of an error."""
    answers = [""] * len(calls)
    start = threading.Barrier(len(calls))

    def run(me: int) -> None:
        start.wait()
        try:
            calls[me]()
            answers[me] = "done"
        except TiltyardError as error:
            answers[me] = type(error).__name__

    threads = [threading.Thread(target=run, args=(me,)) for me in range(len(calls))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return answers


@pytest.mark.parametrize("mode", MODES)
def test_of_many_that_rename_one_table_one_succeeds(root: str, mode: str) -> None:
    put(fresh(root, mode), ("t",), 1)
    calls = [partial(rename_table, fresh(root, mode), ("t",), (f"u{me}",)) for me in range(6)]
    answers = together(calls)
    assert Counter(answers) == {"done": 1, "TableNotFound": 5}
    winner = answers.index("done")
    assert list_tables(fresh(root, mode)).names == (f"u{winner}",)
    assert values(fresh(root, mode), (f"u{winner}",)) == [1]


@pytest.mark.parametrize("mode", MODES)
def test_of_many_that_want_one_name_one_gets_it(root: str, mode: str) -> None:
    for me in range(4):
        put(fresh(root, mode), (f"t{me}",), me)
    calls = [partial(rename_table, fresh(root, mode), (f"t{me}",), ("u",)) for me in range(4)]
    answers = together(calls)
    assert Counter(answers) == {"done": 1, "TableAlreadyExists": 3}
    winner = answers.index("done")
    assert values(fresh(root, mode), ("u",)) == [winner]
    for me in range(4):
        assert me == winner or values(fresh(root, mode), (f"t{me}",)) == [me]


@pytest.mark.parametrize("id", [("t",), ("n", "t")])
def test_a_table_dropped_and_renamed_at_once_is_one_of_both(root: str, id: Id) -> None:
    new = (*id[:-1], "u")
    for turn in range(6):
        put(fresh(root), id, turn)
        answers = together([lambda: drop_table(fresh(root), id), lambda: rename_table(fresh(root), id, new)])
        assert sorted(answers) == ["TableNotFound", "done"]
        if answers[0] == "done":
            undrop_table(fresh(root), id)
            rename_table(fresh(root), id, new)
        assert values(fresh(root), new) == [turn]
        drop_table(fresh(root), new)


def test_a_namespace_dropped_while_a_table_is_renamed_into_it(root: str) -> None:
    put(fresh(root), ("t",), 1)
    for _ in range(6):
        answers = together(
            [
                lambda: rename_table(fresh(root), ("t",), ("n", "t")),
                lambda: drop_namespace(fresh(root), ("n",)),
            ]
        )
        assert answers in (["done", "NamespaceNotEmpty"], ["NamespaceNotFound", "done"])
        if answers[0] == "done":
            rename_table(fresh(root), ("n", "t"), ("t",))
        else:
            create_namespace(fresh(root), ("n",))
        assert values(fresh(root), ("t",)) == [1]


def test_two_tables_change_names_with_each_other_again_and_again(root: str) -> None:
    put(fresh(root), ("a",), 1)
    put(fresh(root), ("b",), 2)

    def swap(me: int) -> None:
        lake = fresh(root)
        for turn in range(8):
            old, new = (
                [("a",), ("b",), ("c",)][(me + turn) % 3],
                [("a",), ("b",), ("c",)][(me + turn + 1) % 3],
            )
            try:
                rename_table(lake, old, new)
            except (TableNotFound, TableAlreadyExists):
                continue

    assert together([partial(swap, me) for me in range(3)]) == ["done"] * 3
    lake = fresh(root)
    names = list_tables(lake).names
    assert sorted(value for name in names for value in values(lake, (name,))) == [1, 2]
    assert len(directories(lake)) == 2


def test_a_decided_rename_that_cannot_make_way_for_what_came_between_is_done(root: str) -> None:
    class Full(FaultyStore):
        blocked = False

        def move_dir(self, source: str, target: str) -> Created:
            if target == "u.lance" and not self.blocked:
                Full.blocked = True
                os.makedirs(f"{root}/u.lance/data")
            return super().move_dir(source, target)

        def create(self, path: str, data: Any) -> Created:
            if self.blocked:
                raise StoreError("the disk is full")
            return super().create(path, data)

    put(fresh(root), ("t",), 1)
    rename_table(over(Full(open_store(root), Plan())), ("t",), ("u",))
    assert Full.blocked
    assert values(fresh(root), ("u",)) == [1]
    create_namespace(fresh(root), ("x",))
    create_namespace(fresh(root), ("y",))
    assert values(fresh(root), ("u",)) == [1]
    assert moves_left(fresh(root)) == 0


def test_a_table_that_is_registered_before_it_is_written_keeps_its_place(root: str) -> None:
    register_table(fresh(root), ("t",), "stock")
    rename_table(fresh(root), ("t",), ("u",))
    write_dataset(table(7), f"{root}/stock")
    assert values(fresh(root), ("u",)) == [7]
