"""Directories on their way to another name: late movers, names that are taken meanwhile, the history."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lakes import directories, faulty, fresh, has, moves_left, over, put, table, values
from tiltyard import runtime
from tiltyard.catalog import moves
from tiltyard.catalog.found import find_table
from tiltyard.catalog.moves import Kind, Move, State
from tiltyard.catalog.namespaces import create_namespace
from tiltyard.catalog.operations import opening as operations
from tiltyard.catalog.renaming import rename_table
from tiltyard.catalog.tables import create_table, deregister_table
from tiltyard.catalog.trash import drop_table, dropped_tables, undrop_table
from tiltyard.dataset import write_dataset
from tiltyard.errors import StoreError, TableAlreadyExists
from tiltyard.store import Created, Store, open_store
from tiltyard.testing.faults import Crashed, Fault, FaultyStore, Plan, Rule

MOVE = Move("1", Kind.MOVE, "a.lance", "b.lance", "b")


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


@pytest.fixture
def store(root: str) -> Store:
    return open_store(root)


def fill(store: Store, directory: str, content: bytes = b"x") -> None:
    store.put(f"{directory}/data", content)


class Meanwhile(FaultyStore):
    """A store on which something happens right before a directory is renamed."""

    def __init__(self, store: Store, plan: Plan, prefix: str = "", what: Callable[[], None] | None = None):
        super().__init__(store, plan, prefix)
        self.what = what

    def move_dir(self, source: str, target: str) -> Created:
        what, self.what = self.what, None
        if what is not None and not source.startswith(".tmp"):
            what()
        elif what is not None:
            self.what = what
        return super().move_dir(source, target)


# -- one move ------------------------------------------------------------------------------------


def test_a_directory_moves_with_its_witness_and_only_once(store: Store) -> None:
    fill(store, "a.lance")
    assert moves.put_witness(store, MOVE) is not None
    assert moves.perform(store, MOVE) is State.DONE
    assert store.read("b.lance/data").to_pybytes() == b"x"
    fill(store, "a.lance", b"another table")
    assert moves.perform(store, MOVE) is State.DONE
    assert store.read("a.lance/data").to_pybytes() == b"another table"


def test_without_its_witness_nothing_is_moved(store: Store) -> None:
    fill(store, "a.lance")
    assert moves.perform(store, MOVE) is State.VOID
    assert store.list_names("") == ["a.lance"]


def test_where_there_is_no_directory_no_witness_is_made(store: Store) -> None:
    fill(store, "c.lance")
    assert moves.put_witness(store, MOVE) is None
    assert store.list_names("") == ["c.lance"]


def test_a_directory_is_never_moved_onto_another_one(store: Store) -> None:
    fill(store, "a.lance", b"a")
    fill(store, "b.lance", b"b")
    moves.put_witness(store, MOVE)
    assert moves.perform(store, MOVE) is State.BLOCKED
    assert store.read("a.lance/data").to_pybytes() == b"a"
    assert store.read("b.lance/data").to_pybytes() == b"b"


def test_a_late_mover_puts_back_what_it_took_by_mistake(store: Store) -> None:
    """Between its look and its rename others did the move, took the table elsewhere, and made a new one."""
    fill(store, "a.lance", b"old")
    moves.put_witness(store, MOVE)

    def others() -> None:
        assert moves.perform(store, MOVE) is State.DONE
        store.move_dir("b.lance", "elsewhere")
        fill(store, "a.lance", b"new")

    assert moves.perform(Meanwhile(store, Plan(), what=others), MOVE) is State.VOID
    assert store.list_names("") == ["a.lance", "elsewhere"]
    assert store.read("a.lance/data").to_pybytes() == b"new"


def test_a_late_mover_that_cannot_put_it_back_says_so(store: Store) -> None:
    fill(store, "a.lance", b"old")
    moves.put_witness(store, MOVE)
    late = Meanwhile(store, Plan(Rule(Fault.FAIL_BEFORE, "move_dir", path="a.lance")))

    def others() -> None:
        store.delete_tree("a.lance")
        fill(store, "a.lance", b"new")

    late.what = others
    with pytest.raises(StoreError, match="repair"):
        moves.perform(late, MOVE)


def test_a_table_that_came_back_is_not_moved_again_by_who_dropped_it(root: str) -> None:
    """The dropper sleeps before its rename; the drop is carried out by others and undone."""
    put(fresh(root), ("t",), 1)

    def others() -> None:
        undrop_table(fresh(root), ("t",))

    lake = over(Meanwhile(open_store(root), Plan(), what=others))
    drop_table(lake, ("t",))
    assert values(fresh(root), ("t",)) == [1]
    assert directories(fresh(root)) == ["t.lance"]


def test_a_mover_that_was_away_for_long_looks_again(root: str) -> None:
    put(fresh(root), ("t",), 1)
    lake = fresh(root)
    drop_table(lake, ("t",))
    undrop_table(lake, ("t",))
    create_namespace(lake, ("n",))
    store = open_store(root)
    late = Move("2", Kind.MOVE, "t.lance", "x", "t")
    moves.put_witness(store, late)
    decided_at = runtime.monotonic() - moves.LATE_SECONDS - 1
    assert moves.finish(fresh(root), late, decided_at) is State.VOID
    assert values(fresh(root), ("t",)) == [1]
    assert moves.finish(fresh(root), late, runtime.monotonic()) is State.DONE


def test_a_loser_leaves_nothing_under_the_name(root: str) -> None:
    """Its witness goes with the directory, and is taken away there."""
    put(fresh(root), ("t",), 1)

    class Dropping(FaultyStore):
        def at(self, prefix: str) -> Any:
            found = self.inner.at(prefix)
            if prefix == "t.lance" and has(fresh(root), ("t",)):
                drop_table(fresh(root), ("t",))
            return FaultyStore(found, self.plan, prefix)

    with suppress(Exception):
        rename_table(over(Dropping(open_store(root), Plan())), ("t",), ("u",))
    (left,) = directories(fresh(root))
    assert "_dropped_t" in left
    undrop_table(fresh(root), ("t",))
    assert values(fresh(root), ("t",)) == [1]


# -- names that are taken meanwhile --------------------------------------------------------------


def taking(root: str, name: str, what: str) -> Meanwhile:
    """A root where something gets a name between a rewrite and the directory's move."""

    def take() -> None:
        if what == "table":
            write_dataset(table(9), f"{root}/{name}.lance")
        elif what == "debris":
            open_store(root).put(f"{name}.lance/data/x", b"")
        else:
            open_store(root).put(f"{name}.lance", b"a file")

    return Meanwhile(open_store(root), Plan(), what=take)


@pytest.mark.parametrize("id", [("t",), ("n", "t")])
@pytest.mark.parametrize("what", ["table", "debris", "file"])
def test_a_renamed_table_whose_place_is_taken_goes_elsewhere(
    root: str, what: str, id: tuple[str, ...]
) -> None:
    """The rewrite has decided who has the name; another program that wrote there had no row yet."""
    create_namespace(fresh(root), ("n",))
    create_table(fresh(root), id, table(1), properties={"k": "v"})
    found = rename_table(over(taking(root, "u", what)), id, ("u",))
    assert find_table(fresh(root), ("u",)).location == found.location
    assert not found.location.endswith(".lance")
    assert values(fresh(root), ("u",)) == [1]
    assert find_table(fresh(root), ("u",)).properties == {"k": "v"}
    assert not has(fresh(root), id)
    create_namespace(fresh(root), ("next",))
    assert moves_left(fresh(root)) == 0
    assert values(fresh(root), ("u",)) == [1]
    assert "u.lance" in directories(fresh(root))


@pytest.mark.parametrize("what", ["table", "debris", "file"])
def test_a_table_that_comes_back_and_whose_place_is_taken_stays_where_it_is(root: str, what: str) -> None:
    put(fresh(root), ("t",), 1)
    dropped = drop_table(fresh(root), ("t",))
    undrop_table(over(taking(root, "t", what)), ("t",))
    assert find_table(fresh(root), ("t",)).location == dropped.location
    assert values(fresh(root), ("t",)) == [1]
    assert moves_left(fresh(root)) == 0


def test_a_creator_that_comes_between_a_rename_and_its_move_is_told_that_the_name_is_taken(root: str) -> None:
    """It looked before the rewrite and writes its version after it."""
    put(fresh(root), ("t",), 1)

    class Slow(FaultyStore):
        """The store of the creator: others rename a table to its name before it writes anything."""

        def writer(self, path: str) -> Any:
            if "u.lance" in self._full(path) and not has(fresh(root), ("u",)):
                with pytest.raises(Crashed):
                    rename_table(faulty(root, Rule(Fault.CRASH, "move_dir", path="u.lance")), ("t",), ("u",))
            return super().writer(path)

    with pytest.raises(TableAlreadyExists):
        create_table(over(Slow(open_store(root), Plan())), ("u",), table(9))
    assert values(fresh(root), ("u",)) == [1]
    assert not has(fresh(root), ("t",))
    create_namespace(fresh(root), ("next",))
    assert values(fresh(root), ("u",)) == [1]
    assert not open_store(root).exists("u.lance/_versions/18446744073709551614.manifest")


def test_a_reader_between_whose_look_and_opening_the_directory_moves_finds_it(root: str) -> None:
    put(fresh(root), ("t",), 1)
    with pytest.raises(Crashed):
        rename_table(faulty(root, Rule(Fault.CRASH, "move_dir", path="u.lance")), ("t",), ("u",))

    class Slow(FaultyStore):
        def at(self, prefix: str) -> Any:
            if prefix == "t.lance":
                create_namespace(fresh(root), ("next",), mode="exist_ok")  # carries the move out
            return super().at(prefix)

    reader = over(Slow(open_store(root), Plan()))
    assert operations.opened(reader, ("u",)).to_table()["a"].to_pylist() == [1]


def test_whoever_comes_next_finds_a_place_for_a_table_whose_mover_died(root: str) -> None:
    put(fresh(root), ("t",), 1)
    plan = Plan(Rule(Fault.CRASH, "move_dir", path="u.lance"))
    with pytest.raises(Crashed):
        rename_table(over(FaultyStore(open_store(root), plan)), ("t",), ("u",))
    assert values(fresh(root), ("u",)) == [1]  # decided: readers find it where it still is
    assert not has(fresh(root), ("t",))
    write_dataset(table(9), f"{root}/u.lance")
    assert values(fresh(root), ("u",)) == [1]
    create_table(fresh(root), ("next",), table(5))
    assert values(fresh(root), ("u",)) == [1]
    assert not has(fresh(root), ("t",))
    assert moves_left(fresh(root)) == 0


def test_a_name_that_is_being_left_is_free_for_a_creator(root: str) -> None:
    put(fresh(root), ("t",), 1)
    with pytest.raises(Crashed):
        drop_table(faulty(root, Rule(Fault.CRASH, "move_dir", path="*_dropped_t")), ("t",))
    assert not has(fresh(root), ("t",))
    put(fresh(root), ("t",), 2)
    assert values(fresh(root), ("t",)) == [2]
    with pytest.raises(TableAlreadyExists):
        undrop_table(fresh(root), ("t",))
    assert len(dropped_tables(fresh(root))) == 1


def test_moves_left_by_the_dead_are_carried_out_in_their_order(root: str) -> None:
    """t is renamed to u by one who dies; w gets the name t from one who dies."""
    put(fresh(root), ("t",), 1)
    put(fresh(root), ("w",), 2)
    with pytest.raises(Crashed):
        rename_table(faulty(root, Rule(Fault.CRASH, "move_dir", path="u.lance")), ("t",), ("u",))
    with pytest.raises(Crashed):
        rename_table(faulty(root, Rule(Fault.CRASH, "move_dir", path="t.lance")), ("w",), ("t",))
    assert (values(fresh(root), ("u",)), values(fresh(root), ("t",))) == ([1], [2])
    create_namespace(fresh(root), ("next",))
    assert (values(fresh(root), ("u",)), values(fresh(root), ("t",))) == ([1], [2])
    assert directories(fresh(root)) == ["t.lance", "u.lance"]


# -- records -------------------------------------------------------------------------------------


def test_records_of_moves_read_as_they_were_written_and_nonsense_is_told() -> None:
    full = Move("3", Kind.SHOW, "", "t.lance", "t", order=4, trash="x", nonce="n")
    bad = {"tiltyard.move.6": "", "tiltyard.move.2": "[]", "tiltyard.move.4": '{"from":1,"to":2,"id":3}'}
    bad["tiltyard.move.5"] = MOVE.text().replace('"move"', '"fly"')
    metadata = {full.key: full.text(), MOVE.key: MOVE.text(), **bad, "other": "x"}
    assert moves.pending(metadata) == (MOVE, full)
    assert moves.unreadable(metadata) == tuple(bad)
    assert moves.pending({}) == ()


class Seen:
    """The part of a register that planning looks at."""

    def __init__(self, metadata: dict[str, str]) -> None:
        self.metadata = metadata


def test_the_history_tells_what_left_a_place_since_a_look() -> None:
    metadata: dict[str, str] = {}
    look: Any = Seen({})
    assert not moves.left_since(look, metadata, "a", "a.lance")
    added = moves.add(metadata, MOVE)
    assert added.order == 1
    assert moves.left_since(look, metadata, "a", "a.lance")
    assert not moves.left_since(look, metadata, "b", "b.lance")
    assert moves.changed_since(look, metadata, "b.lance")
    assert not moves.changed_since(look, metadata, "c.lance")
    look = Seen(dict(metadata))
    assert not moves.changed_since(look, metadata, "a.lance")
    metadata.pop(added.key)  # retired: the history stays
    assert moves.left_since(Seen({}), metadata, "a", "a.lance")  # type: ignore[arg-type]


def test_who_was_away_for_more_moves_than_are_remembered_is_told_perhaps() -> None:
    metadata: dict[str, str] = {}
    look: Any = Seen({})
    for number in range(moves.MOVES_REMEMBERED):
        metadata.pop(moves.add(metadata, Move(str(number), Kind.MOVE, f"{number}", "x", "x")).key)
    assert not moves.left_since(look, metadata, "a", "a.lance")
    moves.add(metadata, Move("more", Kind.MOVE, "more", "x", "x"))
    assert moves.left_since(look, metadata, "a", "a.lance")
    assert len(metadata[moves.HISTORY]) < 64 * moves.MOVES_REMEMBERED


def test_a_history_that_cannot_be_read_begins_anew_above_what_was(root: str) -> None:
    metadata = {moves.HISTORY: "nonsense"}
    first = moves.add(metadata, MOVE)
    assert first.order > moves.MOVES_REMEMBERED
    assert moves.changed_since(Seen({}), metadata, "c.lance")  # type: ignore[arg-type]


@pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER, Fault.FAIL_AFTER])
@pytest.mark.parametrize(
    ("directory", "file"), [("t.lance", ".lance-deregistered"), ("t.lance/_tiltyard", "hidden-*")]
)
def test_a_marker_that_hides_a_table_and_is_found_there_is_synced_before_it_counts(
    root: str, fault: Fault, directory: str, file: str
) -> None:
    """Who made it may have died before it was durable, and its record goes with the next rewrite."""
    put(fresh(root), ("t",), 1)
    plan = Plan(Rule(fault, "create", path=f"{directory}/{file}"))
    deregister_table(over(FaultyStore(open_store(root), plan)), ("t",))
    assert plan.calls("create", f"{directory}/{file}") == 1
    assert plan.calls("sync_dir", directory) == 1
    assert not has(fresh(root), ("t",))
