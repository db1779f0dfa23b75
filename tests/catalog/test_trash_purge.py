"""Giving up the data of dropped tables: when, what goes, what is left alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from lakes import directories, fresh, has, over, put, table, trash_left, values
from tiltyard.catalog import Catalog
from tiltyard.catalog.namespaces import create_namespace
from tiltyard.catalog.purging import EMPTY_SECONDS, ORPHAN_SECONDS, purge, purge_orphans
from tiltyard.catalog.rows import Row
from tiltyard.catalog.tables import create_table, register_table
from tiltyard.catalog.trash import PURGING, drop_table, dropped_tables, records, undrop_table
from tiltyard.errors import InvalidInput, StoreError, TableNotDropped
from tiltyard.store import open_store
from tiltyard.testing.faults import Fault, FaultyStore, Plan, Rule

DAY = 24 * 3600.0


class Later(FaultyStore):
    """A store whose clock is ahead by so many seconds."""

    ahead = 0.0

    def now_ns(self) -> int:
        return self.inner.now_ns() + round(self.ahead * 1e9)


def later(root: str, seconds: float, *rules: Rule) -> Catalog:
    """The catalog so many seconds later, by the store's clock."""
    store = Later(open_store(root), Plan(*rules))
    store.ahead = seconds
    return over(store)


@pytest.fixture
def root(tmp_path: Path) -> str:
    lake = fresh(str(tmp_path / "lake"))
    create_namespace(lake, ("n",))
    return str(tmp_path / "lake")


def files(root: str) -> list[str]:
    return [each.path for each in open_store(root).list("") if not each.path.startswith("__manifest")]


@pytest.mark.parametrize("id", [("t",), ("n", "t")])
def test_data_go_when_the_grace_is_over_and_not_before(root: str, id: tuple[str, ...]) -> None:
    put(fresh(root), id, 1)
    drop_table(fresh(root), id)
    assert not purge(later(root, 6.9 * DAY)).given_up
    assert len(dropped_tables(fresh(root))) == 1
    done = purge(later(root, 7.1 * DAY))
    assert [each.id for each in done.given_up] == [id]
    assert files(root) == []
    assert dropped_tables(fresh(root)) == ()
    with pytest.raises(TableNotDropped):
        undrop_table(fresh(root), id)


def test_the_emptied_directory_of_a_table_that_was_moved_stays_for_a_while(root: str) -> None:
    put(fresh(root), ("t",), 1)
    dropped = drop_table(fresh(root), ("t",), grace_seconds=0)
    done = purge(fresh(root))
    assert (done.emptied, done.removed) == ([dropped.location], [])
    assert os.path.isdir(f"{root}/{dropped.location}")
    assert not purge(later(root, EMPTY_SECONDS - 60)).removed
    done = purge(later(root, EMPTY_SECONDS + 60))
    assert done.removed == [dropped.location]
    assert directories(fresh(root)) == []
    assert trash_left(fresh(root)) == 0


def test_a_grace_given_to_purge_counts_from_the_drop(root: str) -> None:
    put(fresh(root), ("n", "t"), 1)
    drop_table(fresh(root), ("n", "t"))
    assert not purge(later(root, 100), 200).given_up
    assert purge(later(root, 300), 200).given_up
    with pytest.raises(InvalidInput):
        purge(fresh(root), -1)


@pytest.mark.parametrize("id", [("t",), ("n", "t")])
def test_an_immediate_drop_deletes_the_data(root: str, id: tuple[str, ...]) -> None:
    put(fresh(root), id, 1)
    drop_table(fresh(root), id, purge=True)
    assert files(root) == []
    assert not has(fresh(root), id)
    assert dropped_tables(fresh(root)) == ()
    put(fresh(root), id, 2)
    purge(later(root, 2 * EMPTY_SECONDS))
    assert values(fresh(root), id) == [2]
    assert trash_left(fresh(root)) == 0
    assert len(directories(fresh(root))) == 1


@pytest.mark.parametrize("call", ["delete", "delete_tree", "list"])
def test_an_immediate_drop_whose_files_cannot_be_deleted_has_dropped(root: str, call: str) -> None:
    """As where somebody fills the table just then: it was decided, and the next purge goes on."""
    put(fresh(root), ("n", "t"), 1)
    (location,) = directories(fresh(root))
    failing = FaultyStore(open_store(root), Plan(Rule(Fault.FAIL_BEFORE, call, path=f"{location}*")))
    assert drop_table(over(failing), ("n", "t"), purge=True).state == PURGING
    assert not has(fresh(root), ("n", "t"))
    purge(fresh(root))
    assert (directories(fresh(root)), trash_left(fresh(root))) == ([], 0)


def test_without_a_register_such_a_drop_has_dropped_too(tmp_path: Path) -> None:
    root = str(tmp_path / "plain")
    put(fresh(root, "v1"), ("t",), 1)
    failing = FaultyStore(open_store(root), Plan(Rule(Fault.FAIL_BEFORE, "delete_tree")))
    drop_table(over(failing, "v1"), ("t",), purge=True)
    assert not has(fresh(root, "v1"), ("t",))
    purge(fresh(root, "v1"))
    assert directories(fresh(root, "v1")) == []


def test_what_a_row_or_another_drop_still_names_is_left_alone(root: str) -> None:
    lake = fresh(root)
    put(lake, ("n", "t"), 1)
    location = lake.register().rows.find("n$t").location  # type: ignore[union-attr]
    assert location is not None
    register_table(lake, ("n", "same"), location)
    drop_table(lake, ("n", "t"), grace_seconds=0)
    purge(lake)
    assert values(fresh(root), ("n", "same")) == [1]
    assert trash_left(fresh(root)) == 0
    register_table(lake, ("n", "again"), location)
    drop_table(lake, ("n", "again"), grace_seconds=0)
    drop_table(lake, ("n", "same"))
    purge(lake)
    undrop_table(lake, ("n", "same"))
    assert values(fresh(root), ("n", "same")) == [1]


@pytest.mark.parametrize("location", ["../outside", "__manifest", "__manifest/data", "", "n.lance", "deep"])
def test_a_record_that_names_what_is_not_the_tables_alone_deletes_nothing(root: str, location: str) -> None:
    put(fresh(root), ("n", "t"), 1)
    create_table(fresh(root), ("n", "deep"), table(4))
    (Path(root).parent / "outside").mkdir()
    (Path(root).parent / "outside" / "x").write_text("x")
    put(fresh(root), ("n2",), 2)
    os.rename(f"{root}/n2.lance", f"{root}/n.lance")
    lake = fresh(root)
    lake.mutate(lambda draft: draft.put(Row("n$deeper", "table", "deep/er")))
    drop_table(lake, ("n", "t"), grace_seconds=0)

    def tamper(draft: Any) -> None:
        (record,) = records(draft.metadata)
        text = record.text().replace(f'"{record.location}"', f'"{location}"')
        draft.metadata[record.key] = text

    lake.mutate(tamper)
    before = sorted(str(each) for each in Path(root).parent.rglob("*") if "__manifest" not in str(each))
    purge(lake)
    assert before == sorted(
        str(each) for each in Path(root).parent.rglob("*") if "__manifest" not in str(each)
    )
    assert trash_left(fresh(root)) == 0


def test_two_purges_at_once_and_files_that_are_gone_already(root: str) -> None:
    put(fresh(root), ("t",), 1)
    dropped = drop_table(fresh(root), ("t",), grace_seconds=0)
    kept = open_store(root).list(dropped.location)
    open_store(root).delete(kept[0].path)

    class Purged(FaultyStore):
        def list(self, prefix: str = "", start_after: str = "") -> Any:
            found = self.inner.list(prefix, start_after)
            if prefix == dropped.location:
                purge(fresh(root))
            return found

    assert purge(over(Purged(open_store(root), Plan()))).emptied == [dropped.location]
    assert files(root) == []


def test_what_cannot_be_deleted_is_told_and_the_next_purge_goes_on(root: str) -> None:
    put(fresh(root), ("n", "t"), 1)
    drop_table(fresh(root), ("n", "t"), grace_seconds=0)
    with pytest.raises(StoreError):
        purge(later(root, 1, Rule(Fault.FAIL_BEFORE, "delete_tree")))
    assert [each.state for each in records(fresh(root).register().metadata)] == [PURGING]
    with pytest.raises(TableNotDropped, match="being deleted"):
        undrop_table(fresh(root), ("n", "t"))
    purge(fresh(root))
    assert directories(fresh(root)) == []


# -- directories that nobody knows ---------------------------------------------------------------


def test_old_hashed_directories_that_nobody_names_go(root: str) -> None:
    lake = fresh(root)
    put(lake, ("n", "t"), 1)
    put(lake, ("n", "dropped"), 2)
    put(lake, ("dropped",), 3)
    drop_table(lake, ("n", "dropped"))
    drop_table(lake, ("dropped",))
    store = open_store(root)
    store.put("01234567_n$orphan/data/x", b"x")
    store.put("01234567_dropped_t/data/x", b"x")
    store.put("keep_me/x", b"x")
    store.put("0123456_short/x", b"x")
    store.put("plain.lance/x", b"x")
    (Path(root) / "89abcdef_empty" / "data").mkdir(parents=True)
    assert purge_orphans(fresh(root)) == []
    assert purge_orphans(later(root, ORPHAN_SECONDS - 60)) == []
    gone = purge_orphans(later(root, ORPHAN_SECONDS + 60))
    assert gone == ["01234567_dropped_t", "01234567_n$orphan", "89abcdef_empty"]
    assert {"keep_me", "0123456_short", "plain.lance"} < set(directories(fresh(root)))
    undrop_table(lake, ("n", "dropped"))
    undrop_table(lake, ("dropped",))
    assert [values(fresh(root), id) for id in (("n", "t"), ("n", "dropped"), ("dropped",))] == [[1], [2], [3]]
    assert purge_orphans(fresh(root, "v1")) == []


def test_a_directory_whose_row_comes_while_orphans_are_looked_for_stays(root: str) -> None:
    store = open_store(root)
    store.put("01234567_n$late/data/x", b"x")

    class Registering(Later):
        def list(self, prefix: str = "", start_after: str = "") -> Any:
            if prefix == "01234567_n$late":
                register_table(fresh(root), ("n", "late"), "01234567_n$late")
            return self.inner.list(prefix, start_after)

    late = Registering(store, Plan())
    late.ahead = 2 * ORPHAN_SECONDS
    assert purge_orphans(over(late)) == []
    assert store.exists("01234567_n$late/data/x")


@pytest.mark.parametrize("mode", ["mixed", "v1"])
def test_of_a_table_that_is_a_link_to_another_only_the_link_goes(root: str, mode: str) -> None:
    put(fresh(root, mode), ("t",), 1)
    (Path(root) / "alias.lance").symlink_to("t.lance", target_is_directory=True)
    drop_table(fresh(root, mode), ("alias",))
    assert len(purge(fresh(root, mode), 0).given_up) == 1
    assert not [path for path in Path(root).iterdir() if path.is_symlink()]
    assert values(fresh(root, mode), ("t",)) == [1]
    purge(fresh(root, mode), 0)
    assert not dropped_tables(fresh(root, mode))
