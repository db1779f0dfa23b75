"""Declaring, registering and deregistering tables, in each mode and at the same time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakes
from tiltyard.catalog import Catalog, open_catalog
from tiltyard.catalog.check import check
from tiltyard.catalog.found import find_table
from tiltyard.catalog.listing import list_tables
from tiltyard.catalog.markers import DEREGISTERED, RESERVED
from tiltyard.catalog.namespaces import create_namespace
from tiltyard.catalog.renaming import rename_table
from tiltyard.catalog.settings import Settings
from tiltyard.catalog.tables import (
    create_table,
    declare_table,
    deregister_table,
    describe,
    register_table,
    table_exists,
)
from tiltyard.catalog.trash import drop_table, undrop_table
from tiltyard.dataset import write_dataset
from tiltyard.errors import (
    CatalogThrottled,
    InvalidInput,
    InvalidName,
    NamespaceNotFound,
    OutcomeUnknown,
    TableAlreadyExists,
    TableNotFound,
    TiltyardError,
    UnsupportedFeature,
)
from tiltyard.session import Session
from tiltyard.store import open_store
from tiltyard.testing.faults import Crashed, Fault, FaultyStore, Plan, Rule

DATA = pa.table({"a": [1, 2]})
MODES: dict[str, dict[str, str]] = {
    "v1": {"manifest_enabled": "false"},
    "mixed": {},
    "migration": {"dir_listing_to_manifest_migration_enabled": "true"},
    "manifest": {"dir_listing_enabled": "false"},
}


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


def fresh(root: str, mode: str = "mixed") -> Catalog:
    return open_catalog(root, properties=MODES[mode], session=Session())


def race(count: int, call: Callable[[int], Any]) -> list[str]:
    """ "ok" or the name of the error, for each of several threads that call at the same time."""
    answers = [""] * count
    gate = threading.Barrier(count)

    def run(me: int) -> None:
        gate.wait()
        try:
            call(me)
        except TiltyardError as error:
            answers[me] = type(error).__name__
        else:
            answers[me] = "ok"

    threads = [threading.Thread(target=run, args=(me,)) for me in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


# -- declare -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_declared_table_is_listed_found_and_told_as_declared(root: str, mode: str) -> None:
    found = declare_table(fresh(root, mode), ("d",), properties={"k": "v"})
    assert found.declared_only
    seen = describe(fresh(root, mode), ("d",), check_declared=True)
    assert (seen.declared_only, seen.version) == (True, None)
    assert seen.properties == (None if mode == "v1" else {"k": "v"})
    assert list_tables(fresh(root, mode)).names == ("d",)
    assert list_tables(fresh(root, mode), include_declared=False).names == ()
    assert table_exists(fresh(root, mode), ("d",))
    detailed = describe(fresh(root, mode), ("d",), detailed=True)
    assert (detailed.declared_only, detailed.version, detailed.schema) == (True, None, None)
    assert os.listdir(os.path.join(root, found.location)) == [RESERVED]


@pytest.mark.parametrize("mode", MODES)
def test_a_second_declaration_is_refused(root: str, mode: str) -> None:
    declare_table(fresh(root, mode), ("d",))
    create_table(fresh(root, mode), ("t",), DATA)
    for name in ("d", "t"):
        with pytest.raises(TableAlreadyExists):
            declare_table(fresh(root, mode), (name,))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("id", [("d",), ("n", "d")])
def test_of_all_declarers_one_wins_and_losers_leave_no_directory(
    root: str, mode: str, id: tuple[str, ...]
) -> None:
    if mode == "v1" and len(id) > 1:
        pytest.skip("no namespaces without a register")
    if mode != "v1":
        create_namespace(fresh(root, mode), ("n",))
    answers = race(6, lambda me: declare_table(fresh(root, mode), id))
    assert sorted(answers) == ["TableAlreadyExists"] * 5 + ["ok"]
    assert len([name for name in os.listdir(root) if name != "__manifest"]) == 1


@pytest.mark.parametrize("then", ["nothing", "created", "declared"])
@pytest.mark.parametrize("how", ["rename", "drop", "deregister"])
def test_a_table_that_leaves_its_name_right_after_it_was_declared_gets_no_row_there(
    root: str, how: str, then: str
) -> None:
    """The marker has decided, and whoever renamed or dropped the table knows of it. What has the name next is
    another's.
    """

    def meanwhile() -> None:
        if how == "rename":
            rename_table(lakes.fresh(root), ("t",), ("u",))
        elif how == "drop":
            drop_table(lakes.fresh(root), ("t",))
        else:
            deregister_table(lakes.fresh(root), ("t",))
        if then == "created":
            lakes.put(lakes.fresh(root), ("t",), 7)
        elif then == "declared":
            declare_table(lakes.fresh(root), ("t",))

    create_namespace(lakes.fresh(root), ("n",))
    declare_table(lakes.Interrupted(root, meanwhile), ("t",))
    expected = [*(["t"] if then != "nothing" else []), *(["u"] if how == "rename" else [])]
    assert list(list_tables(lakes.fresh(root), (), include_declared=True).names) == expected
    if how == "rename":
        assert find_table(lakes.fresh(root), ("u",), check_declared=True).declared_only
    if then == "created":
        assert lakes.values(lakes.fresh(root), ("t",)) == [7]
    assert not check(lakes.fresh(root), grace_seconds=0).damaged


def test_a_declarer_and_a_creator_leave_one_table(root: str) -> None:
    for at in range(8):
        id = (f"t{at}",)

        def call(me: int, id: tuple[str, ...] = id) -> None:
            if me:
                declare_table(fresh(root), id)
            else:
                create_table(fresh(root), id, DATA)

        answers = race(2, call)
        assert answers[0] == "ok"
        assert answers[1] in ("ok", "TableAlreadyExists")
        assert describe(fresh(root), id, detailed=True).version == 1


def test_only_the_place_that_the_catalog_chooses_can_be_asked_for(root: str) -> None:
    lake = fresh(root)
    for location in ("d1.lance", f"{root}/d1.lance/", f"file://{root}/d1.lance"):
        declare_table(lake, ("d1",), location=location)
        deregister_table(lake, ("d1",))
    with pytest.raises(InvalidInput, match="Cannot declare table d2 at location"):
        declare_table(lake, ("d2",), location="/elsewhere/d2.lance")
    assert not os.path.exists(os.path.join(root, "d2.lance"))


def test_refused_declarations_leave_nothing(root: str) -> None:
    with pytest.raises(NamespaceNotFound):
        declare_table(fresh(root), ("n", "d"))
    with pytest.raises(InvalidName):
        declare_table(fresh(root), ("a/b",))
    assert not os.path.exists(root)
    create_namespace(fresh(root), ("n",))
    with pytest.raises(TableAlreadyExists, match="a namespace has this id"):
        declare_table(fresh(root), ("n",))
    assert os.listdir(root) == ["__manifest"]


def test_after_a_crash_at_any_call_a_declaration_can_be_used_or_repeated(root: str) -> None:
    plan = Plan()
    store: Any = FaultyStore(open_store(root), plan)
    declare_table(Catalog(store, Settings.parse({}), Session()), ("first",))
    for at in range(1, len(plan.trace) + 1):
        id = (f"d{at}",)
        store = FaultyStore(open_store(root), Plan(Rule(Fault.CRASH, at=at)))
        with suppress(Crashed):  # with other caches there may be fewer calls
            declare_table(Catalog(store, Settings.parse({}), Session()), id)
        if table_exists(fresh(root), id):
            assert describe(fresh(root), id, check_declared=True).declared_only
        else:
            declare_table(fresh(root), id)
        create_table(fresh(root), id, DATA)
        assert describe(fresh(root), id, detailed=True).version == 1


# -- register ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["mixed", "migration", "manifest"])
def test_a_registered_table_is_found_where_it_lies(root: str, mode: str) -> None:
    write_dataset(DATA, os.path.join(root, "store", "x"))
    create_namespace(fresh(root, mode), ("n",))
    for id in (("r",), ("n", "r")):
        found = register_table(fresh(root, mode), id, "store/x", properties={"k": "v"})
        assert found.location == "store/x"
        seen = describe(fresh(root, mode), id, detailed=True)
        assert (seen.version, seen.properties) == (1, {"k": "v"})
        with pytest.raises(TableAlreadyExists):
            register_table(fresh(root, mode), id, "store/x")


def test_a_directory_that_is_not_there_yet_can_be_registered(root: str) -> None:
    register_table(fresh(root), ("r",), "later")
    assert describe(fresh(root), ("r",), check_declared=True).declared_only
    create_table(fresh(root), ("r",), DATA)
    assert find_table(fresh(root), ("r",)).location == "later"


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("s3://bucket/x", "Absolute URIs"),
        ("file:///x", "Absolute URIs"),
        ("/x", "Absolute paths"),
        ("../x", "Path traversal"),
        ("a/../../x", "Path traversal"),
        ("", "not the path"),
    ],
)
def test_places_outside_the_root_are_refused(root: str, location: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        register_table(fresh(root), ("r",), location)
    assert not os.path.exists(root)


def test_registering_checks_the_parent_the_mode_and_the_catalog(root: str) -> None:
    with pytest.raises(NamespaceNotFound):
        register_table(fresh(root), ("n", "r"), "x")
    with pytest.raises(InvalidInput, match="create or overwrite"):
        register_table(fresh(root), ("r",), "x", mode="append")
    with pytest.raises(UnsupportedFeature, match="manifest mode"):
        register_table(fresh(root, "v1"), ("r",), "x")


def test_registering_over_a_name_leaves_the_files_of_the_table_before(root: str) -> None:
    lake = fresh(root)
    create_namespace(lake, ("n",))
    old, _ = create_table(lake, ("n", "t"), DATA)
    write_dataset(pa.table({"a": [9]}), os.path.join(root, "x"))
    register_table(lake, ("n", "t"), "x", mode="overwrite")
    dataset = describe(lake, ("n", "t"), detailed=True).dataset
    assert dataset is not None
    assert dataset.count_rows() == 1
    assert os.path.isdir(os.path.join(root, old.location, "_versions"))


def test_the_directory_of_a_dropped_table_cannot_be_registered(root: str) -> None:
    lake = fresh(root)
    write_dataset(DATA, os.path.join(root, "stock"))
    register_table(lake, ("t",), "stock")
    drop_table(lake, ("t",))
    for name in ("t", "u"):
        with pytest.raises(TableAlreadyExists, match="undrop"):
            register_table(lake, (name,), "stock")
    undrop_table(lake, ("t",))
    assert describe(lake, ("t",), detailed=True).version == 1


def test_of_all_that_register_one_name_one_wins(root: str) -> None:
    create_table(fresh(root), ("t",), DATA)
    deregister_table(fresh(root), ("t",))
    answers = race(6, lambda me: register_table(fresh(root), ("t",), "t.lance"))
    assert sorted(answers) == ["TableAlreadyExists"] * 5 + ["ok"]
    assert describe(fresh(root, "v1"), ("t",), detailed=True).version == 1


def _registered(root: str, id: tuple[str, ...], location: str, me: int) -> None:
    register_table(fresh(root), id, location)


# -- deregister ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_deregistered_table_is_gone_for_all_and_its_files_stay(root: str, mode: str) -> None:
    found, _ = create_table(fresh(root, mode), ("t",), DATA)
    assert deregister_table(fresh(root, mode), ("t",)).location == found.location
    readers = ("v1",) if mode == "v1" else ("mixed", "migration", "manifest")
    for reader in (*readers, "v1"):
        assert not table_exists(fresh(root, reader), ("t",))
        assert list_tables(fresh(root, reader)).names == ()
    with pytest.raises(TableNotFound):
        deregister_table(fresh(root, mode), ("t",))
    assert os.path.isdir(os.path.join(root, found.location, "_versions"))


@pytest.mark.parametrize("mode", ["mixed", "migration", "manifest"])
def test_a_table_can_be_deregistered_and_registered_again_and_again(root: str, mode: str) -> None:
    found, _ = create_table(fresh(root, mode), ("t",), DATA, properties={"k": "v"})
    for _ in range(3):
        deregister_table(fresh(root, mode), ("t",))
        assert not table_exists(fresh(root, mode), ("t",))
        register_table(fresh(root, mode), ("t",), found.location)
        assert describe(fresh(root, mode), ("t",), detailed=True).version == 1
        assert table_exists(fresh(root, "v1"), ("t",)) is (mode != "manifest")


def test_a_plain_lance_table_can_be_deregistered_and_registered(root: str) -> None:
    write_dataset(DATA, os.path.join(root, "plain.lance"))
    deregister_table(fresh(root), ("plain",))
    assert not table_exists(fresh(root), ("plain",))
    assert os.path.exists(os.path.join(root, "plain.lance", DEREGISTERED))
    register_table(fresh(root), ("plain",), "plain.lance")
    assert table_exists(fresh(root, "v1"), ("plain",))


def test_a_table_that_another_program_hid_can_be_registered(root: str) -> None:
    create_table(fresh(root), ("row",), DATA)
    write_dataset(DATA, os.path.join(root, "plain.lance"))
    for name in ("row", "plain"):
        Path(root, f"{name}.lance", DEREGISTERED).write_bytes(b"reserved")
        assert not table_exists(fresh(root), (name,))
        location = f"{name}.lance"
        answers = race(4, partial(_registered, root, (name,), location))
        assert sorted(answers) == ["TableAlreadyExists"] * 3 + ["ok"]
        assert table_exists(fresh(root), (name,))
        assert table_exists(fresh(root, "v1"), (name,))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["row", "plain"])
def test_of_all_that_deregister_one_table_one_succeeds(root: str, mode: str, kind: str) -> None:
    if kind == "row":
        create_table(fresh(root, mode), ("t",), DATA)
    elif mode == "manifest":
        pytest.skip("a directory is no table there")
    else:
        write_dataset(DATA, os.path.join(root, "t.lance"))
    answers = race(6, lambda me: deregister_table(fresh(root, mode), ("t",)))
    assert sorted(answers) == ["TableNotFound"] * 5 + ["ok"]


def test_registering_over_a_table_that_is_found_by_its_directory_hides_that(root: str) -> None:
    lake = fresh(root)
    write_dataset(DATA, os.path.join(root, "t.lance"))
    write_dataset(pa.table({"a": [9]}), os.path.join(root, "x"))
    with pytest.raises(TableAlreadyExists):
        register_table(lake, ("t",), "x")
    register_table(lake, ("t",), "x", mode="overwrite")
    assert find_table(lake, ("t",)).location == "x"
    deregister_table(lake, ("t",))
    assert not table_exists(fresh(root), ("t",))
    assert not table_exists(fresh(root, "v1"), ("t",))


def test_a_table_created_while_its_name_is_deregistered_elsewhere_is_not_hidden(root: str) -> None:
    lake = fresh(root)
    write_dataset(DATA, os.path.join(root, "x"))
    register_table(lake, ("t",), "x")
    write_dataset(DATA, os.path.join(root, "t.lance"))  # version 1 of a creator that has not got to its row
    deregister_table(lake, ("t",))
    assert find_table(lake, ("t",)).location == "t.lance"


@pytest.mark.parametrize("kind", ["row", "plain"])
def test_after_a_crash_at_any_call_a_table_is_there_or_deregistered(root: str, kind: str) -> None:
    lake = fresh(root)

    def make(name: str) -> None:
        if kind == "row":
            create_table(lake, (name,), DATA)
        else:
            write_dataset(DATA, os.path.join(root, f"{name}.lance"))

    make("first")
    plan = Plan()
    store: Any = FaultyStore(open_store(root), plan)
    deregister_table(Catalog(store, Settings.parse({}), Session()), ("first",))
    for at in range(1, len(plan.trace) + 1):
        name = f"t{at}"
        make(name)
        store = FaultyStore(open_store(root), Plan(Rule(Fault.CRASH, at=at)))
        with suppress(Crashed):  # with other caches there may be fewer calls
            deregister_table(Catalog(store, Settings.parse({}), Session()), (name,))
        if table_exists(fresh(root), (name,)):
            deregister_table(fresh(root), (name,))
        create_namespace(fresh(root), (f"n{at}",))  # any change finishes what was begun
        for reader in MODES:
            assert not table_exists(fresh(root, reader), (name,))
        register_table(fresh(root), (name,), f"{name}.lance")
        assert describe(fresh(root), (name,), detailed=True).version == 1


def test_exists_can_ask_for_a_version(root: str) -> None:
    create_table(fresh(root), ("t",), DATA)
    assert table_exists(fresh(root), ("t",), version=1)
    assert not table_exists(fresh(root), ("t",), version=2)
    assert not table_exists(fresh(root), ("u",), version=1)
    declare_table(fresh(root), ("d",))
    assert not table_exists(fresh(root), ("d",), version=1)


def test_a_lost_answer_of_the_rewrite_is_told_once(root: str) -> None:
    create_namespace(fresh(root), ("n",))
    store: Any = FaultyStore(
        open_store(root), Plan(Rule(Fault.LOSE_ANSWER, call="create", path="__manifest/_versions/*"))
    )
    lake = Catalog(store, Settings.parse({}), Session())
    with suppress(OutcomeUnknown, CatalogThrottled):
        declare_table(lake, ("n", "d"))
    with pytest.raises(TableAlreadyExists):
        declare_table(fresh(root), ("n", "d"))


@pytest.mark.parametrize(
    "place",
    [
        "__manifest",
        "__manifest/data",
        "_tiltyard",
        "r.lance/data",
        "r.lance/_versions",
        "r.lance/x.lance",
        "dir",
    ],
)
def test_a_part_of_something_else_cannot_be_registered(tmp_path: Path, place: str) -> None:
    catalog = open_catalog(str(tmp_path))
    create_namespace(catalog, ("a",))
    create_table(catalog, ("r",), pa.table({"x": [1]}))
    (tmp_path / "dir").mkdir()
    register_table(catalog, ("a", "inner"), "dir/inner.lance")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InvalidInput, match="cannot be a table's location"):
        register_table(catalog, ("a", "g"), place)
    assert sorted(tmp_path.rglob("*")) == before
