"""Dropping tables and bringing them back: what is seen of it, and by whom."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakes import (
    MODES,
    Interrupted,
    directories,
    fresh,
    has,
    moves_left,
    over,
    put,
    table,
    trash_left,
    values,
)
from tiltyard.catalog import Catalog
from tiltyard.catalog.found import find_table
from tiltyard.catalog.listing import list_tables
from tiltyard.catalog.namespaces import create_namespace, describe_namespace, drop_namespace
from tiltyard.catalog.purging import purge
from tiltyard.catalog.renaming import rename_table
from tiltyard.catalog.rows import Row
from tiltyard.catalog.tables import create_table, declare_table, deregister_table, register_table
from tiltyard.catalog.trash import DROPPED, Dropped, drop_table, dropped_tables, parsed, records, undrop_table
from tiltyard.catalog.trash import unreadable as unreadable_records
from tiltyard.dataset import LanceDataset, write_dataset
from tiltyard.errors import (
    CatalogThrottled,
    InvalidInput,
    NamespaceNotFound,
    TableAlreadyExists,
    TableNotDropped,
    TableNotFound,
    TiltyardError,
    UnsupportedFeature,
)
from tiltyard.store import Created, open_store
from tiltyard.testing.faults import FaultyStore, Plan

REGISTERED = [mode for mode in MODES if mode != "v1"]
IDS = [("t",), ("n", "t")]


@pytest.fixture
def root(tmp_path: Path) -> str:
    lake = fresh(str(tmp_path / "lake"))
    create_namespace(lake, ("n",))
    return str(tmp_path / "lake")


class Unmoving(FaultyStore):
    """A store that cannot rename directories, as object stores."""

    def move_dir(self, source: str, target: str) -> Created:
        raise UnsupportedFeature("there is no such step")

    def at(self, prefix: str) -> Unmoving:
        return Unmoving(self.inner.at(prefix), self.plan, self._full(prefix.rstrip("/")))


def unmoving(root: str) -> Catalog:
    return over(Unmoving(open_store(root), Plan()))


def together(count: int, call: Callable[[int], Any]) -> Counter[str]:
    """What each of some threads got: 'done' or the name of an error."""
    answers: list[str] = []
    start = threading.Barrier(count)

    def run(me: int) -> None:
        start.wait()
        try:
            call(me)
            answers.append("done")
        except TiltyardError as error:
            answers.append(type(error).__name__)

    threads = [threading.Thread(target=run, args=(me,)) for me in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return Counter(answers)


# -- dropping ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", REGISTERED)
@pytest.mark.parametrize("id", IDS)
def test_a_dropped_table_is_gone_for_all_and_its_data_stay(root: str, id: tuple[str, ...], mode: str) -> None:
    put(fresh(root, mode), id, 1, 2, properties={"k": "v"})
    dropped = drop_table(fresh(root, mode), id)
    for other in REGISTERED:
        assert not has(fresh(root, other), id)
        assert list_tables(fresh(root, other), id[:-1]).names == ()
    with pytest.raises(TableNotFound, match="no table"):
        find_table(fresh(root, mode), id)
    assert directories(fresh(root)) == [dropped.location]
    kept = LanceDataset(open_store(root).at(dropped.location))
    assert kept.to_table()["a"].to_pylist() == [1, 2]
    assert not dropped.location.endswith(".lance")


@pytest.mark.parametrize("mode", REGISTERED)
@pytest.mark.parametrize("id", IDS)
def test_undrop_brings_data_and_properties_back(root: str, id: tuple[str, ...], mode: str) -> None:
    put(fresh(root, mode), id, 1, 2, properties={"k": "v"})
    before = find_table(fresh(root, mode), id)
    drop_table(fresh(root, mode), id)
    assert undrop_table(fresh(root, mode), id).id == id
    after = find_table(fresh(root, mode), id)
    assert (after.location, after.row) == (before.location, before.row)
    assert values(fresh(root, mode), id) == [1, 2]
    assert trash_left(fresh(root)) == 0
    create_namespace(fresh(root), ("other",))
    assert moves_left(fresh(root)) == 0


@pytest.mark.parametrize("id", IDS)
def test_the_name_of_a_dropped_table_is_free_at_once(root: str, id: tuple[str, ...]) -> None:
    lake = fresh(root)
    put(lake, id, 1)
    drop_table(lake, id)
    put(lake, id, 2)
    drop_table(lake, id)
    put(lake, id, 3)
    assert values(lake, id) == [3]
    with pytest.raises(TableAlreadyExists, match="rename or drop what has it first"):
        undrop_table(lake, id)
    drop_table(lake, id)
    assert [each.id for each in dropped_tables(lake)] == [id, id, id]
    undrop_table(lake, id)
    assert values(lake, id) == [3]  # the newest drop
    drop_table(lake, id)
    oldest = dropped_tables(lake)[0]
    undrop_table(lake, trash=oldest.trash)
    assert values(lake, id) == [1]


def test_the_list_of_dropped_tables_says_what_when_and_until_when(root: str) -> None:
    lake = fresh(root, **{"tiltyard.grace_seconds": "100"})
    put(lake, ("t",), 1)
    put(lake, ("n", "t"), 1)
    before = lake.store.now_ns()
    drop_table(lake, ("t",))
    drop_table(lake, ("n", "t"), grace_seconds=3.5)
    after = lake.store.now_ns()
    one, other = dropped_tables(lake)
    assert (one.id, other.id) == (("t",), ("n", "t"))
    assert before <= one.dropped_ns <= other.dropped_ns <= after
    assert one.until_ns - one.dropped_ns == 100_000_000_000
    assert other.until_ns - other.dropped_ns == 3_500_000_000
    assert dropped_tables(lake, ("n",)) == (other,)
    assert dropped_tables(fresh(root), ()) == (one,)


@pytest.mark.parametrize("seconds", [-1, float("inf"), float("nan"), "7", True])
def test_a_grace_that_is_none_is_refused_before_anything_happens(root: str, seconds: Any) -> None:
    put(fresh(root), ("t",), 1)
    with pytest.raises(InvalidInput, match="grace"):
        drop_table(fresh(root), ("t",), grace_seconds=seconds)
    assert has(fresh(root), ("t",))


@pytest.mark.parametrize("id", [("no",), ("n", "no"), ("nowhere", "t"), ("n",)])
def test_what_is_no_table_cannot_be_dropped(root: str, id: tuple[str, ...]) -> None:
    version = fresh(root).register().version
    with pytest.raises(TableNotFound):
        drop_table(fresh(root), id)
    assert fresh(root).register().version == version


def test_a_directory_without_a_row_is_dropped_and_brought_back(root: str) -> None:
    write_dataset(table(5), root + "/plain.lance")
    drop_table(fresh(root), ("plain",))
    assert not has(fresh(root), ("plain",))
    with pytest.raises(TableNotFound):
        drop_table(fresh(root), ("plain",))
    undrop_table(fresh(root), ("plain",))
    assert values(fresh(root), ("plain",)) == [5]


@pytest.mark.parametrize("id", IDS)
def test_a_declared_table_is_dropped_and_brought_back(root: str, id: tuple[str, ...]) -> None:
    declare_table(fresh(root), id, properties={"k": "v"})
    drop_table(fresh(root), id)
    assert not has(fresh(root), id)
    undrop_table(fresh(root), id)
    found = find_table(fresh(root), id, check_declared=True)
    assert found.declared_only
    assert found.properties == {"k": "v"}


def test_a_row_whose_directory_is_missing_is_dropped_without_a_trace(root: str) -> None:
    lake = fresh(root)
    lake.mutate(lambda draft: draft.put(Row("lost", "table", "lost.lance")))
    lake.mutate(lambda draft: draft.put(Row("n$lost", "table", "01234567_n$lost")))
    drop_table(fresh(root), ("lost",))
    drop_table(fresh(root), ("n", "lost"))
    assert directories(lake) == []
    assert moves_left(fresh(root)) == 0
    put(lake, ("lost",), 1)
    assert values(lake, ("lost",)) == [1]


def test_a_table_registered_twice_stays_under_its_other_name(root: str) -> None:
    lake = fresh(root)
    put(lake, ("t",), 1)
    register_table(lake, ("n", "same"), "t.lance")
    drop_table(lake, ("t",))
    assert not has(fresh(root), ("t",))
    assert values(fresh(root), ("n", "same")) == [1]
    undrop_table(lake, ("t",))
    assert values(fresh(root), ("n", "same")) == [1]
    assert values(fresh(root), ("t",)) == [1]
    assert find_table(fresh(root), ("n", "same")).location == "t.lance"


def test_a_table_with_a_hashed_directory_at_the_root_is_dropped(root: str) -> None:
    put(fresh(root, "manifest"), ("t",), 1)
    drop_table(fresh(root), ("t",))
    put(fresh(root), ("t",), 2)
    drop_table(fresh(root), ("t",))
    assert [each.home for each in dropped_tables(fresh(root))] == [None, "t.lance"]


def test_dropping_a_namespace_with_all_that_is_in_it_can_be_undone_table_by_table(root: str) -> None:
    lake = fresh(root)
    put(lake, ("n", "t"), 1, properties={"k": "v"})
    drop_namespace(lake, ("n",), None, "cascade")
    (dropped,) = dropped_tables(lake)
    assert dropped.until_ns > dropped.dropped_ns
    with pytest.raises(NamespaceNotFound):
        undrop_table(lake, ("n", "t"))
    create_namespace(lake, ("n",))
    undrop_table(lake, ("n", "t"))
    assert values(lake, ("n", "t")) == [1]
    assert find_table(lake, ("n", "t")).properties == {"k": "v"}


# -- bringing back -------------------------------------------------------------------------------


def test_undrop_says_why_it_cannot(root: str) -> None:
    lake = fresh(root)
    with pytest.raises(InvalidInput, match="id of a table, or the uuid"):
        undrop_table(lake)
    put(lake, ("flights",), 1)
    with pytest.raises(TableNotDropped, match="no record of its drop"):
        undrop_table(lake, ("flights",))
    drop_table(lake, ("flights",))
    with pytest.raises(TableNotDropped, match="flights"):
        undrop_table(lake, ("flight",))
    with pytest.raises(TableNotDropped):
        undrop_table(lake, trash="5")
    with pytest.raises(TableNotDropped):
        undrop_table(lake, ("other",), trash=dropped_tables(lake)[0].trash)
    drop = drop_table
    put(lake, ("x",), 1)
    drop(lake, ("x",), purge=True)
    with pytest.raises(TableNotDropped, match="being deleted"):
        undrop_table(lake, ("x",))


def test_undrop_does_not_take_an_id_that_is_in_use(root: str) -> None:
    lake = fresh(root)
    for name in ("a", "b"):
        put(lake, (name,), 1)
        drop_table(lake, (name,))
    create_namespace(lake, ("a",))
    write_dataset(table(9), root + "/b.lance")
    version = lake.register().version
    for name in ("a", "b"):
        with pytest.raises(TableAlreadyExists):
            undrop_table(fresh(root), (name,))
    assert fresh(root).register().version == version
    assert len(dropped_tables(lake)) == 2


@pytest.mark.parametrize("what", ["file", "debris", "deregistered"])
def test_beside_what_is_no_table_it_comes_back_where_it_is(root: str, what: str) -> None:
    """That is left alone: a creator may be at work in it, or it is to be registered again."""
    lake = fresh(root)
    put(lake, ("t",), 1)
    dropped = drop_table(lake, ("t",))
    if what == "file":
        (Path(root) / "t.lance").write_text("a file")
    elif what == "debris":
        (Path(root) / "t.lance" / "data").mkdir(parents=True)
        os.utime(Path(root) / "t.lance", (0, 0))
    else:
        put(lake, ("t",), 9)
        deregister_table(lake, ("t",))
    undrop_table(lake, ("t",))
    assert find_table(fresh(root), ("t",)).location == dropped.location
    assert values(fresh(root), ("t",)) == [1]
    drop_table(lake, ("t",))
    undrop_table(lake, ("t",))
    assert values(fresh(root), ("t",)) == [1]


@pytest.mark.parametrize("id", [("t",), ("n", "t")])
def test_a_name_under_which_somebody_may_be_at_work_is_waited_for(
    root: str, id: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = fresh(root)
    put(lake, ("t",), 1)
    drop_table(lake, ("t",))
    if id != ("t",):
        put(lake, id, 1)
    open_store(root).put("t.lance/data/x", b"of a creator")
    act = (lambda: rename_table(lake, id, ("t",))) if id != ("t",) else (lambda: undrop_table(lake, id))
    with monkeypatch.context() as patched:
        patched.setattr("tiltyard.catalog.planning.BUSY_SECONDS", 0.05)
        with pytest.raises(CatalogThrottled, match=r"somebody is creating a table in t\.lance"):
            act()
    later = threading.Timer(0.05, lambda: open_store(root).delete_tree("t.lance"))
    later.start()
    act()
    later.join()
    assert find_table(fresh(root), ("t",)).location == "t.lance"
    assert values(fresh(root), ("t",)) == [1]


def test_what_other_programs_keep_in_the_register_stays(root: str) -> None:
    lake = fresh(root)

    def leave(draft: Any) -> None:
        draft.metadata["owner"] = "somebody"
        draft.put(Row("v", "view", "x", '{"k":"v"}', ("a", None)))

    lake.mutate(leave)
    put(lake, ("t",), 1)
    drop_table(lake, ("t",))
    undrop_table(lake, ("t",))
    drop_table(lake, ("t",))
    assert fresh(root).register().metadata["owner"] == "somebody"
    assert fresh(root).register().rows.find("v") == Row("v", "view", "x", '{"k":"v"}', ("a", None))
    assert describe_namespace(fresh(root), ()).properties == {"owner": "somebody"}


def test_base_objects_come_back_with_the_table(root: str) -> None:
    lake = fresh(root)
    put(lake, ("n", "t"), 1)
    row = lake.register().rows.find("n$t")
    assert row is not None
    changed = Row(row.object_id, row.object_type, row.location, '{"k":"v"}', ("x", None))
    lake.mutate(lambda draft: draft.put(changed))
    drop_table(lake, ("n", "t"))
    undrop_table(lake, ("n", "t"))
    assert fresh(root).register().rows.find("n$t") == changed


def test_records_of_drops_read_as_they_were_written_and_nonsense_is_told() -> None:
    record = Dropped("u", "n$t", "x", 1, 2, DROPPED, "t.lance", '{"a":"b"}', ("c", None), True, 3)
    assert parsed(record.key, record.text()) == record
    bad = {"tiltyard.trash.1": "", "tiltyard.trash.2": "[]", "tiltyard.trash.3": '{"id":5}'}
    bad["tiltyard.trash.4"] = record.text().replace('"n$t"', "7")
    assert records(bad | {record.key: record.text(), "other": "x"}) == (record,)
    assert unreadable_records(bad | {record.key: record.text()}) == tuple(bad)


def test_a_record_that_cannot_be_read_is_in_nobodys_way(root: str) -> None:
    lake = fresh(root)

    def spoil(draft: Any) -> None:
        draft.metadata["tiltyard.trash.x"] = "?"
        draft.metadata["tiltyard.move.x"] = "[1]"
        draft.metadata["tiltyard.moved"] = '{"recent":5}'

    lake.mutate(spoil)
    put(lake, ("t",), 1)
    drop_table(lake, ("t",))
    undrop_table(lake, ("t",))
    assert values(fresh(root), ("t",)) == [1]
    assert fresh(root).register().metadata["tiltyard.trash.x"] == "?"


# -- what others do between a plan and its rewrite -----------------------------------------------


def dropped_and_made_by_others(root: str) -> None:
    """As the official package does it: the row and the directory go, and come again under the same name."""
    lake = fresh(root)
    lake.mutate(lambda draft: draft.remove("t"))
    lake.store.delete_tree("t.lance")
    write_dataset(table(2), root + "/t.lance")
    lake.mutate(lambda draft: draft.put(Row("t", "table", "t.lance")))


def test_a_drop_takes_the_table_that_has_the_name_when_it_is_decided(root: str) -> None:
    put(fresh(root), ("t",), 1)
    drop_table(Interrupted(root, lambda: dropped_and_made_by_others(root)), ("t",))
    assert not has(fresh(root), ("t",))
    assert directories(fresh(root)) == [each.location for each in dropped_tables(fresh(root))]
    undrop_table(fresh(root), ("t",))
    assert values(fresh(root), ("t",)) == [2]


def test_a_drop_of_a_table_that_was_away_meanwhile_takes_it_where_it_is(root: str) -> None:
    put(fresh(root), ("t",), 1)

    def away() -> None:
        drop_table(fresh(root), ("t",))
        undrop_table(fresh(root), ("t",))

    drop_table(Interrupted(root, away), ("t",))
    assert not has(fresh(root), ("t",))
    assert trash_left(fresh(root)) == 1
    undrop_table(fresh(root), ("t",))
    assert values(fresh(root), ("t",)) == [1]


@pytest.mark.parametrize("id", IDS)
def test_an_undrop_finds_in_its_rewrite_what_came_since_it_was_planned(
    root: str, id: tuple[str, ...]
) -> None:
    put(fresh(root), id, 1)
    drop_table(fresh(root), id)
    with pytest.raises(TableNotDropped):
        undrop_table(Interrupted(root, lambda: purge(fresh(root), 0)), id)
    put(fresh(root), id, 1)
    drop_table(fresh(root), id)
    with pytest.raises(TableAlreadyExists):
        undrop_table(Interrupted(root, lambda: put(fresh(root), id, 2)), id)
    assert values(fresh(root), id) == [2]
    drop_table(fresh(root), id, purge=True)
    with pytest.raises(TableAlreadyExists):
        undrop_table(Interrupted(root, lambda: undrop_table(fresh(root), id)), id)
    assert values(fresh(root), id) == [1]


def test_an_undrop_finds_in_its_rewrite_that_its_namespace_went(root: str) -> None:
    put(fresh(root), ("n", "t"), 1)
    drop_table(fresh(root), ("n", "t"))
    with pytest.raises(NamespaceNotFound):
        undrop_table(Interrupted(root, lambda: drop_namespace(fresh(root), ("n",))), ("n", "t"))
    assert len(dropped_tables(fresh(root))) == 1


def test_a_table_that_came_without_a_row_is_not_shadowed_by_one_that_comes_back(root: str) -> None:
    put(fresh(root), ("t",), 1)
    drop_table(fresh(root), ("t",))
    with pytest.raises(TableAlreadyExists):
        undrop_table(Interrupted(root, lambda: write_dataset(table(9), root + "/t.lance")), ("t",))
    assert values(fresh(root), ("t",)) == [9]
    assert len(dropped_tables(fresh(root))) == 1


# -- several at once -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("has_row", [True, False])
def test_of_many_droppers_one_succeeds(root: str, mode: str, has_row: bool) -> None:
    if has_row:
        put(fresh(root, mode), ("t",), 1)
    elif mode == "manifest":
        return
    else:
        write_dataset(table(1), root + "/t.lance")
    answers = together(8, lambda me: drop_table(fresh(root, mode), ("t",)))
    assert answers == {"done": 1, "TableNotFound": 7}
    (left,) = directories(fresh(root))
    assert left.split("_")[1] == ("dropped" if mode != "manifest" else "t")
    assert len(dropped_tables(fresh(root, mode))) == 1


@pytest.mark.parametrize("mode", MODES)
def test_of_many_undrops_one_succeeds(root: str, mode: str) -> None:
    put(fresh(root, mode), ("t",), 1)
    drop_table(fresh(root, mode), ("t",))
    answers = together(6, lambda me: undrop_table(fresh(root, mode), ("t",)))
    assert answers["done"] == 1
    assert set(answers) <= {"done", "TableAlreadyExists", "TableNotDropped"}
    assert values(fresh(root, mode), ("t",)) == [1]
    assert dropped_tables(fresh(root, mode)) == ()


@pytest.mark.parametrize("id", IDS)
def test_drops_and_creates_of_one_name_lose_no_data(root: str, id: tuple[str, ...]) -> None:
    put(fresh(root), id, 0)

    def churn(me: int) -> None:
        lake = fresh(root)
        for turn in range(6):
            try:
                if me % 2:
                    drop_table(lake, id)
                else:
                    create_table(lake, id, table(100 * me + turn))
                    made.append(100 * me + turn)
            except (TableNotFound, TableAlreadyExists):
                continue

    made = [0]
    assert together(4, churn) == {"done": 4}
    lake = fresh(root)
    seen = values(lake, id) if has(lake, id) else []
    for each in dropped_tables(lake):
        seen += LanceDataset(lake.store.at(each.location)).to_table()["a"].to_pylist()
    assert sorted(seen) == sorted(made)
    assert len(directories(lake)) == len(made)


# -- stores that cannot rename directories -------------------------------------------------------


def test_where_directories_cannot_be_renamed_a_marker_hides_the_table(root: str) -> None:
    put(unmoving(root), ("t",), 1, properties={"k": "v"})
    dropped = drop_table(unmoving(root), ("t",))
    assert (dropped.location, dropped.hidden) == ("t.lance", True)
    assert (Path(root) / "t.lance" / ".lance-deregistered").read_bytes().startswith(b"reserved\n")
    for mode in MODES:
        assert not has(fresh(root, mode), ("t",))
    with pytest.raises(TableNotFound):
        drop_table(unmoving(root), ("t",))
    undrop_table(unmoving(root), ("t",))
    for mode in MODES:
        assert values(fresh(root, mode), ("t",)) == [1]
    assert find_table(unmoving(root), ("t",)).properties == {"k": "v"}
    assert not (Path(root) / "t.lance" / ".lance-deregistered").exists()


def test_where_directories_cannot_be_renamed_a_new_table_of_the_name_leaves_the_dropped_one(
    root: str,
) -> None:
    lake = unmoving(root)
    put(lake, ("t",), 1)
    drop_table(lake, ("t",))
    put(lake, ("t",), 2)
    assert values(unmoving(root), ("t",)) == [2]
    drop_table(lake, ("t",))
    assert [each.hidden for each in dropped_tables(lake)] == [True, False]
    declare_table(lake, ("t",))
    drop_table(lake, ("t",))
    first = dropped_tables(lake)[0]
    undrop_table(lake, trash=first.trash)
    assert values(unmoving(root), ("t",)) == [1]


def test_a_deregistered_table_is_not_in_the_trash_and_its_name_can_be_registered_again(root: str) -> None:
    lake = fresh(root)
    put(lake, ("t",), 1)
    deregister_table(lake, ("t",))
    assert dropped_tables(lake) == ()
    with pytest.raises(TableNotFound):
        drop_table(lake, ("t",))
    register_table(lake, ("t",), "t.lance")
    create_namespace(lake, ("x",))
    assert values(fresh(root), ("t",)) == [1]
    drop_table(lake, ("t",))
    undrop_table(lake, ("t",))
    assert values(fresh(root), ("t",)) == [1]
