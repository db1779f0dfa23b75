"""Creating tables: one winner, losers leave nothing, overwrite in place, failures and crashes anywhere."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from tiltyard.catalog import Catalog, open_catalog
from tiltyard.catalog.found import find_table
from tiltyard.catalog.listing import list_tables
from tiltyard.catalog.markers import DEREGISTERED, RESERVED
from tiltyard.catalog.namespaces import create_namespace, drop_namespace
from tiltyard.catalog.rows import Row
from tiltyard.catalog.settings import Settings
from tiltyard.catalog.tables import (
    create_table,
    declare_table,
    deregister_table,
    describe,
    register_table,
)
from tiltyard.catalog.trash import drop_table
from tiltyard.errors import (
    CatalogDamaged,
    InvalidInput,
    InvalidName,
    NamespaceNotFound,
    OutcomeUnknown,
    SchemaMismatch,
    StoreError,
    TableAlreadyExists,
    TableNotFound,
)
from tiltyard.format.names import manifest_path
from tiltyard.session import Session
from tiltyard.store import open_store
from tiltyard.testing.faults import Crashed, Fault, FaultyStore, Plan, Rule

DATA = pa.table({"a": [1, 2]})
OTHER = pa.table({"a": [3]})
MODES: dict[str, dict[str, str]] = {
    "v1": {"manifest_enabled": "false"},
    "mixed": {},
    "migration": {"dir_listing_to_manifest_migration_enabled": "true"},
    "manifest": {"dir_listing_enabled": "false"},
}


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


@pytest.fixture
def lake(root: str) -> Catalog:
    return fresh(root)


def fresh(root: str, mode: str = "mixed") -> Catalog:
    """The catalog as another process would open it."""
    return open_catalog(root, properties=MODES[mode], session=Session())


def faulty(root: str, *rules: Rule, mode: str = "mixed") -> Catalog:
    """The same over a store that fails as planned."""
    store: Any = FaultyStore(open_store(root), Plan(*rules))
    return Catalog(store, Settings.parse(MODES[mode]), Session())


def tree(root: str) -> list[str]:
    """Every file below a root, but those of the register."""
    found = []
    for directory, _, files in os.walk(root):
        found += [os.path.relpath(os.path.join(directory, name), root) for name in files]
    return sorted(name for name in found if not name.startswith("__manifest"))


def rows(dataset: Any) -> list[Any]:
    values: list[Any] = dataset.to_table()["a"].to_pylist()
    return values


# -- what is made --------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_new_table_is_found_described_and_opened(root: str, mode: str) -> None:
    found, dataset = create_table(fresh(root, mode), ("t",), DATA, properties={"k": "v"})
    assert rows(dataset) == [1, 2]
    seen = describe(fresh(root, mode), ("t",), detailed=True)
    assert seen.found.location == found.location
    assert seen.version == 1
    assert seen.properties == (None if mode == "v1" else {"k": "v"})
    assert (found.location == "t.lance") is (mode != "manifest")
    assert list_tables(fresh(root, mode)).names == ("t",)
    assert os.path.isdir(os.path.join(root, "__manifest")) is (mode != "v1")


def test_a_table_of_a_namespace_gets_a_directory_of_its_own(lake: Catalog, root: str) -> None:
    create_namespace(lake, ("n",))
    found, dataset = create_table(lake, ("n", "t"), DATA)
    assert found.location.endswith("_n$t")
    assert len(found.location) == len("01234567_n$t")
    assert rows(dataset) == [1, 2]
    row = fresh(root).register().rows.find("n$t")
    assert row == Row("n$t", "table", found.location)


@pytest.mark.parametrize("id", [("t",), ("n", "t")])
@pytest.mark.parametrize(
    "data",
    [
        pa.schema([("a", pa.int64())]),
        pa.RecordBatchReader.from_batches(pa.schema([("a", pa.int64())]), []),
        DATA.slice(0, 0),
    ],
    ids=["schema", "stream", "table"],
)
def test_data_without_rows_makes_an_empty_table(lake: Catalog, id: tuple[str, ...], data: Any) -> None:
    create_namespace(lake, ("n",))
    if isinstance(data, pa.RecordBatchReader):
        data = pa.RecordBatchReader.from_batches(data.schema, [])
    _, dataset = create_table(lake, id, data)
    assert dataset.count_rows() == 0
    assert dataset.schema.names == ["a"]


def test_other_data_than_arrow_tables_is_taken(lake: Catalog) -> None:
    assert rows(create_table(lake, ("dict",), {"a": [1]})[1]) == [1]
    assert rows(create_table(lake, ("list",), [{"a": 1}])[1]) == [1]
    assert rows(create_table(lake, ("stream",), DATA.to_reader())[1]) == [1, 2]
    assert rows(create_table(lake, ("frame",), DATA.to_pandas())[1]) == [1, 2]


# -- what exists ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_create_of_a_table_that_exists_is_refused_and_changes_nothing(root: str, mode: str) -> None:
    create_table(fresh(root, mode), ("t",), DATA)
    before = tree(root)
    with pytest.raises(TableAlreadyExists):
        create_table(fresh(root, mode), ("t",), OTHER)
    assert tree(root) == before


@pytest.mark.parametrize("mode", MODES)
def test_exist_ok_opens_what_is_there(root: str, mode: str) -> None:
    for word in ("exist_ok", "ExistOk", "EXISTOK"):
        _, dataset = create_table(fresh(root, mode), ("t",), DATA, mode=word)
        assert rows(dataset) == [1, 2]
    assert dataset.version == 1
    assert rows(create_table(fresh(root, mode), ("t",), OTHER, mode="exist_ok")[1]) == [1, 2]


def test_exist_ok_checks_that_the_table_has_the_columns(lake: Catalog) -> None:
    create_table(lake, ("t",), pa.table({"a": [1], "b": ["x"]}))
    assert create_table(lake, ("t",), OTHER, mode="exist_ok")[1].schema.names == ["a", "b"]
    for data in (pa.table({"a": ["text"]}), pa.table({"c": [1]}), pa.schema([("a", pa.int32())])):
        with pytest.raises(SchemaMismatch, match="the table has"):
            create_table(lake, ("t",), data, mode="exist_ok")


@pytest.mark.parametrize("mode", MODES)
def test_overwrite_is_a_version_in_the_same_place(root: str, mode: str) -> None:
    first, _ = create_table(fresh(root, mode), ("t",), DATA, mode="overwrite", properties={"old": "1"})
    found, dataset = create_table(fresh(root, mode), ("t",), OTHER, mode="overwrite", properties={"new": "2"})
    assert (found.location, dataset.version, rows(dataset)) == (first.location, 2, [3])
    expected = None if mode == "v1" else {"new": "2"}
    assert describe(fresh(root, mode), ("t",)).properties == expected


def test_overwrite_adopts_a_table_that_has_no_row(lake: Catalog, root: str) -> None:
    create_table(fresh(root, "v1"), ("t",), DATA)
    _, dataset = create_table(lake, ("t",), OTHER, mode="overwrite")
    assert (dataset.version, rows(dataset)) == (2, [3])
    assert lake.register().rows.find("t") == Row("t", "table", "t.lance")


def test_a_plain_lance_table_counts_as_existing(lake: Catalog, root: str) -> None:
    create_table(fresh(root, "v1"), ("t",), DATA)
    with pytest.raises(TableAlreadyExists):
        create_table(lake, ("t",), OTHER)
    assert rows(create_table(lake, ("t",), OTHER, mode="exist_ok")[1]) == [1, 2]


@pytest.mark.parametrize("id", [("t",), ("n", "t")])
def test_a_declared_table_is_filled_in_its_place(lake: Catalog, id: tuple[str, ...]) -> None:
    create_namespace(lake, ("n",))
    for mode in ("create", "exist_ok", "overwrite"):
        each = (*id[:-1], f"{id[-1]}-{mode}")
        declared = declare_table(lake, each, properties={"k": "v"})
        with pytest.raises(InvalidInput, match="cannot set properties for already declared"):
            create_table(lake, each, DATA, mode=mode, properties={"other": "1"})
        found, dataset = create_table(lake, each, DATA, mode=mode)
        assert (found.location, dataset.version, rows(dataset)) == (declared.location, 1, [1, 2])
        assert describe(lake, each, check_declared=True).declared_only is False
        assert describe(lake, each).properties == {"k": "v"}


def test_files_of_a_deregistered_table_are_not_written_over_unless_asked_for(
    lake: Catalog, root: str
) -> None:
    create_table(lake, ("t",), DATA)
    deregister_table(lake, ("t",))
    before = tree(root)
    for mode in ("create", "exist_ok"):
        with pytest.raises(TableAlreadyExists, match="deregistered: register it again"):
            create_table(lake, ("t",), OTHER, mode=mode)
    assert tree(root) == before
    _, dataset = create_table(lake, ("t",), OTHER, mode="overwrite")
    assert (dataset.version, rows(dataset)) == (2, [3])
    assert find_table(fresh(root), ("t",)).row is not None
    assert not os.path.exists(os.path.join(root, "t.lance", DEREGISTERED))


@pytest.mark.parametrize("marker", [b"reserved", b"reserved\n00000000-0000-0000-0000-000000000000"])
def test_a_stale_deregistered_marker_goes_when_the_table_comes(
    lake: Catalog, root: str, marker: bytes
) -> None:
    os.makedirs(os.path.join(root, "t.lance"))
    Path(root, "t.lance", DEREGISTERED).write_bytes(marker)
    with pytest.raises(TableNotFound):
        find_table(lake, ("t",))
    create_table(lake, ("t",), DATA)
    assert find_table(fresh(root, "v1"), ("t",)).declared_only is False
    assert not os.path.exists(os.path.join(root, "t.lance", DEREGISTERED))


def test_a_namespace_of_the_id_stands_in_the_way(lake: Catalog, root: str) -> None:
    create_namespace(lake, ("n",))
    for mode in ("create", "exist_ok", "overwrite"):
        with pytest.raises(TableAlreadyExists, match="namespace"):
            create_table(lake, ("n",), DATA, mode=mode)
    assert tree(root) == []


def test_a_missing_parent_refuses_before_anything_is_written(lake: Catalog, root: str) -> None:
    for mode in ("create", "exist_ok", "overwrite"):
        with pytest.raises(NamespaceNotFound, match="'n'"):
            create_table(lake, ("n", "m", "t"), DATA, mode=mode)
    assert not os.path.exists(root)


@pytest.mark.parametrize("mode", ["v1", "mixed"])
def test_a_name_that_a_dead_dropper_did_not_free_is_free(root: str, mode: str) -> None:
    """Every call of a drop without a register in turn is the last one of its process."""
    v1 = fresh(root, "v1")
    plan = Plan()
    store: Any = FaultyStore(open_store(root), plan)
    create_table(v1, ("first",), DATA)
    drop_table(Catalog(store, Settings.parse(MODES["v1"]), Session()), ("first",))
    for at in range(1, len(plan.trace) + 1):
        create_table(v1, (f"t{at}",), DATA)
        with suppress(Crashed):
            drop_table(faulty(root, Rule(Fault.CRASH, at=at), mode="v1"), (f"t{at}",))
        lake = fresh(root, mode)
        if f"t{at}" in list_tables(lake).names:
            continue
        if at % 2:
            declare_table(lake, (f"t{at}",))
        _, dataset = create_table(lake, (f"t{at}",), OTHER)
        assert (dataset.version, rows(dataset)) == (1, [3])


# -- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a$b", "naïve", "a#b", "x" * 300, "__manifest", ".x"])
def test_names_that_others_do_not_find_are_refused(lake: Catalog, root: str, name: str) -> None:
    with pytest.raises(InvalidName):
        create_table(lake, (name,), DATA)
    assert not os.path.exists(root)


def test_what_stands_under_such_a_name_still_opens(lake: Catalog, root: str) -> None:
    from tiltyard.dataset import write_dataset

    write_dataset(DATA, os.path.join(root, "naïve.lance"))
    assert rows(create_table(lake, ("naïve",), OTHER, mode="exist_ok")[1]) == [1, 2]
    assert rows(create_table(lake, ("naïve",), OTHER, mode="overwrite")[1]) == [3]


def test_bad_arguments_are_refused_before_anything_is_written(lake: Catalog, root: str) -> None:
    with pytest.raises(InvalidInput, match="create, exist_ok or overwrite"):
        create_table(lake, ("t",), DATA, mode="append")
    with pytest.raises(InvalidInput, match="needs data"):
        create_table(lake, ("t",))
    with pytest.raises(InvalidInput, match="text to text"):
        create_table(lake, ("t",), DATA, properties={"a": 1})  # type: ignore[dict-item]
    with pytest.raises(InvalidInput, match="Table ID cannot be empty"):
        create_table(lake, (), DATA)
    assert not os.path.exists(root)


@pytest.mark.parametrize("id", [("t",), ("n", "t")])
def test_data_that_breaks_off_leaves_nothing(lake: Catalog, root: str, id: tuple[str, ...]) -> None:
    create_namespace(lake, ("n",))

    def broken() -> Iterator[pa.RecordBatch]:
        yield from DATA.to_batches()
        raise RuntimeError("the source broke off")

    with pytest.raises(RuntimeError, match="broke off"):
        create_table(lake, id, broken(), schema=DATA.schema)
    assert tree(root) == []
    assert [name for name in os.listdir(root) if name.endswith("_n$t")] == []
    with pytest.raises(TableNotFound):
        find_table(lake, id)
    create_table(lake, id, DATA)


# -- races ---------------------------------------------------------------------------------------


def race(count: int, call: Callable[[int], Any]) -> list[Any]:
    """What each of several threads got from a call made at the same time, or the name of its error."""
    answers: list[Any] = [None] * count
    gate = threading.Barrier(count)

    def run(me: int) -> None:
        gate.wait()
        try:
            answers[me] = call(me)
        except Exception as error:
            answers[me] = type(error).__name__

    threads = [threading.Thread(target=run, args=(me,)) for me in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("id", [("t",), ("n", "t")])
def test_of_all_creators_one_wins_and_the_losers_leave_nothing(
    root: str, mode: str, id: tuple[str, ...]
) -> None:
    if mode == "v1" and len(id) > 1:
        pytest.skip("no namespaces without a register")
    if mode != "v1":
        create_namespace(fresh(root, mode), ("n",))

    def create(me: int) -> Any:
        create_table(fresh(root, mode), id, pa.table({"a": [me]}))
        return me

    answers = race(6, create)
    winners = [answer for answer in answers if isinstance(answer, int)]
    assert len(winners) == 1
    assert answers.count("TableAlreadyExists") == 5
    dataset = describe(fresh(root, mode), id, detailed=True).dataset
    assert dataset is not None
    assert rows(dataset) == winners
    data = [name for name in tree(root) if "/data/" in name]
    assert len(data) == 1
    assert len([name for name in os.listdir(root) if "t" in name.removeprefix("__manifest")]) == 1
    if mode != "v1":
        assert len(fresh(root, mode).register().rows.all("$".join(id))) == 1


@pytest.mark.parametrize("id", [("t",), ("n", "t")])
def test_racers_with_exist_ok_all_get_the_winners_table(root: str, id: tuple[str, ...]) -> None:
    create_namespace(fresh(root), ("n",))
    answers = race(
        6, lambda me: rows(create_table(fresh(root), id, pa.table({"a": [me]}), mode="exist_ok")[1])
    )
    assert all(answer == answers[0] for answer in answers)
    assert len([name for name in tree(root) if "/data/" in name]) == 1


@pytest.mark.parametrize("id", [("t",), ("n", "t")])
def test_racers_with_overwrite_all_succeed_one_after_the_other(root: str, id: tuple[str, ...]) -> None:
    create_namespace(fresh(root), ("n",))

    def overwrite(me: int) -> int:
        return create_table(fresh(root), id, iter(pa.table({"a": [me]}).to_batches()), mode="overwrite")[
            1
        ].version

    answers = race(4, overwrite)
    assert sorted(answers) == [1, 2, 3, 4]
    assert len([name for name in os.listdir(root) if name.endswith("_n$t") or name == "t.lance"]) == 1


def test_a_creator_whose_namespace_goes_is_told_and_leaves_nothing(lake: Catalog, root: str) -> None:
    create_namespace(lake, ("n",))

    def data() -> Iterator[pa.RecordBatch]:
        drop_namespace(fresh(root), ("n",))
        yield from DATA.to_batches()

    with pytest.raises(NamespaceNotFound):
        create_table(lake, ("n", "t"), data(), schema=DATA.schema)
    assert tree(root) == []


@pytest.mark.parametrize("mode", ["create", "overwrite"])
def test_a_stream_that_lost_to_a_declaration_fills_it(lake: Catalog, root: str, mode: str) -> None:
    create_namespace(lake, ("n",))
    declared = []

    def data() -> Iterator[pa.RecordBatch]:
        declared.append(declare_table(fresh(root), ("n", "t")))
        yield from DATA.to_batches()

    found, dataset = create_table(lake, ("n", "t"), data(), schema=DATA.schema, mode=mode)
    assert found.location == declared[0].location
    assert rows(dataset) == [1, 2]
    assert len([name for name in os.listdir(root) if name.endswith("_n$t")]) == 1


def test_a_stream_that_lost_to_a_table_overwrites_it(lake: Catalog, root: str) -> None:
    create_namespace(lake, ("n",))

    def data() -> Iterator[pa.RecordBatch]:
        create_table(fresh(root), ("n", "t"), OTHER)
        yield from DATA.to_batches()

    found, dataset = create_table(lake, ("n", "t"), data(), schema=DATA.schema, mode="overwrite")
    assert (dataset.version, rows(dataset)) == (2, [1, 2])
    assert [name for name in os.listdir(root) if name.endswith("_n$t")] == [found.location]


def test_a_root_table_whose_id_became_a_namespace_gives_way(lake: Catalog, root: str) -> None:
    def data() -> Iterator[pa.RecordBatch]:
        create_namespace(fresh(root), ("t",))
        yield from DATA.to_batches()

    with pytest.raises(TableAlreadyExists, match="a namespace has this id"):
        create_table(lake, ("t",), data(), schema=DATA.schema)
    assert [name for name in tree(root) if name.endswith((".manifest", ".lance"))] == []
    with pytest.raises(TableNotFound):
        find_table(fresh(root), ("t",))


def test_a_root_table_whose_name_was_registered_meanwhile_gives_way_to_it(lake: Catalog, root: str) -> None:
    create_table(lake, ("stock",), OTHER)

    def data(name: str) -> Iterator[pa.RecordBatch]:
        register_table(fresh(root), (name,), "stock.lance")
        yield from DATA.to_batches()

    with pytest.raises(TableAlreadyExists):
        create_table(lake, ("t",), data("t"), schema=DATA.schema)
    _, dataset = create_table(lake, ("u",), data("u"), schema=DATA.schema, mode="exist_ok")
    assert rows(dataset) == [3]
    found, dataset = create_table(lake, ("v",), data("v"), schema=DATA.schema, mode="overwrite")
    assert (found.location, rows(dataset)) == ("stock.lance", [1, 2])
    assert [name for name in tree(root) if not name.startswith("stock.lance")] == []


def test_a_root_table_that_is_dropped_before_its_row_stays_dropped(root: str) -> None:
    lake = fresh(root)
    create_table(lake, ("before",), DATA)

    class Dropping(FaultyStore):
        """Another program drops the table right after version 1 is there."""

        def create(self, path: str, data: Any) -> Any:
            answer = super().create(path, data)
            full = self._full(path)
            if full.startswith("t.lance/_versions/") and not dropped:
                dropped.append(drop_table(fresh(root), ("t",)))
            return answer

    dropped: list[Any] = []
    store: Any = Dropping(open_store(root), Plan())
    create_table(Catalog(store, Settings.parse({}), Session()), ("t",), DATA)
    assert dropped
    with pytest.raises(TableNotFound):
        find_table(fresh(root), ("t",))
    assert fresh(root).register().rows.find("t") is None
    create_table(fresh(root), ("t",), OTHER)


# -- failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", [("t",), ("n", "t")])
def test_whatever_call_fails_the_answer_and_the_storage_agree(root: str, id: tuple[str, ...]) -> None:
    """Every mutating call in turn: refused means that nothing is there, made means that all is."""
    create_namespace(fresh(root), ("n",))
    plan = Plan()
    store: Any = FaultyStore(open_store(root), plan)
    create_table(Catalog(store, Settings.parse({}), Session()), (*id[:-1], "first"), DATA)
    calls = [call for call, _ in plan.trace]
    for name in ("create", "writer", "sync_dir"):
        for at in range(1, calls.count(name) + 1):
            each = (*id[:-1], f"{name}-{at}")
            lake = faulty(root, Rule(Fault.FAIL_BEFORE, call=name, at=at))
            try:
                create_table(lake, each, DATA)
            except OutcomeUnknown:
                continue
            except StoreError:
                with pytest.raises(TableNotFound):
                    find_table(fresh(root), each)
                assert [path for path in tree(root) if each[-1] in path] == []
                create_table(fresh(root), each, DATA)
            assert rows(describe(fresh(root), each, detailed=True).dataset) == [1, 2]


@pytest.mark.parametrize("id", [("t",), ("n", "t")])
def test_after_a_crash_at_any_call_the_name_is_free_or_a_whole_table(root: str, id: tuple[str, ...]) -> None:
    create_namespace(fresh(root), ("n",))
    plan = Plan()
    store: Any = FaultyStore(open_store(root), plan)
    create_table(Catalog(store, Settings.parse({}), Session()), (*id[:-1], "first"), DATA)
    for at in range(1, len(plan.trace) + 1):
        each = (*id[:-1], f"crash-{at}")
        with suppress(Crashed):  # a creation with other caches may make fewer calls
            create_table(faulty(root, Rule(Fault.CRASH, at=at)), each, DATA)
        try:
            found = find_table(fresh(root), each, check_declared=True)
        except TableNotFound:
            assert each[-1] not in list_tables(fresh(root), id[:-1]).names
            create_table(fresh(root), each, OTHER)
            assert rows(describe(fresh(root), each, detailed=True).dataset) == [3]
        else:
            assert found.declared_only is False
            assert rows(describe(fresh(root), each, detailed=True).dataset) == [1, 2]
            with pytest.raises(TableAlreadyExists):
                create_table(fresh(root), each, OTHER)


@pytest.mark.parametrize("mode", ["mixed", "v1", "migration"])
@pytest.mark.parametrize("target", [".", "__manifest"])
def test_a_link_to_the_catalog_itself_is_not_written_through(root: str, mode: str, target: str) -> None:
    create_table(fresh(root), ("t",), DATA)
    os.symlink(target, f"{root}/x.lance")
    before = tree(root), os.listdir(f"{root}/__manifest/_versions")
    calls: list[Callable[[Catalog], object]] = [
        lambda lake: create_table(lake, ("x",), DATA),
        lambda lake: create_table(lake, ("x",), DATA, mode="overwrite"),
        lambda lake: declare_table(lake, ("x",)),
    ]
    for call in calls:
        with pytest.raises((CatalogDamaged, TableAlreadyExists)):
            call(fresh(root, mode))
    assert (tree(root), os.listdir(f"{root}/__manifest/_versions")) == before


@pytest.mark.parametrize("mode", ["mixed", "v1"])
def test_a_creator_that_slept_while_others_went_on_is_not_told_of_contention(root: str, mode: str) -> None:
    """Another program made the table meanwhile, wrote it anew, and cleaned up."""

    class Meanwhile(FaultyStore):
        is_done = False

        def create(self, path: str, data: Any) -> Any:
            if path.endswith(".manifest") and "__manifest" not in self.uri and not self.is_done:
                Meanwhile.is_done = True
                for each in ("create", "overwrite", "overwrite"):
                    lance.write_dataset(OTHER, f"{root}/t.lance", mode=each)
                for version in (1, 2):
                    os.unlink(f"{root}/t.lance/{manifest_path(version)}")
                time.sleep(0.1)  # a moment after a look, nobody cleans up what was just written
            return super().create(path, data)

    slow = Catalog(Meanwhile(open_store(root), Plan()), Settings.parse(MODES[mode]), Session())
    with pytest.raises(TableAlreadyExists):
        create_table(slow, ("t",), DATA)
    assert Meanwhile.is_done
    assert rows(lance.dataset(f"{root}/t.lance")) == [3]


def test_a_lost_answer_of_version_1_is_a_success_told_once(root: str) -> None:
    lake = faulty(root, Rule(Fault.LOSE_ANSWER, call="create", path="t.lance/_versions/*"))
    with suppress(OutcomeUnknown):
        create_table(lake, ("t",), DATA)
    assert rows(describe(fresh(root), ("t",), detailed=True).dataset) == [1, 2]
    with pytest.raises(TableAlreadyExists):
        create_table(fresh(root), ("t",), DATA)


def test_a_table_that_stands_without_its_row_is_told_as_unknown_and_finished_by_the_next(root: str) -> None:
    create_namespace(fresh(root), ("n",))
    lake = faulty(root, Rule(Fault.FAIL_BEFORE, call="create", path="__manifest/*", times=None))
    with pytest.raises(OutcomeUnknown, match="The table is there"):
        create_table(lake, ("t",), DATA)
    assert rows(describe(fresh(root), ("t",), detailed=True).dataset) == [1, 2]
    assert RESERVED not in os.listdir(os.path.join(root, "t.lance"))
