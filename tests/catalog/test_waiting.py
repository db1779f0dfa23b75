"""Changes made for others: who is told what, and what becomes of requests whose server or author dies."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tiltyard import runtime
from tiltyard.catalog import Catalog, open_catalog, waiting
from tiltyard.catalog.names import REGISTER, WAITING_DIR
from tiltyard.catalog.namespaces import create_namespace, drop_namespace
from tiltyard.catalog.round import Draft
from tiltyard.catalog.rows import NAMESPACE, TABLE, Row
from tiltyard.catalog.waiting import ANSWER, DONE, WITHDRAWN
from tiltyard.errors import NamespaceAlreadyExists, NamespaceNotFound, StoreError, TableAlreadyExists
from tiltyard.format import names
from tiltyard.session import Session
from tiltyard.store import Created
from tiltyard.table.catching_up import members
from tiltyard.testing.faults import Crashed

PATIENCE_SECONDS = 20.0


@pytest.fixture
def root(tmp_path: Path) -> str:
    root = str(tmp_path / "lake")
    create_namespace(fresh(root), ("n",))
    return root


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody gives up because this machine is slow."""
    monkeypatch.setattr(waiting, "TURNSTILE_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(waiting, "DOUBT_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(waiting, "MAX_AGE_SECONDS", PATIENCE_SECONDS)


def fresh(root: str, durable: str = "false") -> Catalog:
    """The catalog as another process would open it."""
    return open_catalog(root, properties={"storage.durable": durable}, session=Session())


def left(root: str) -> list[str]:
    try:
        return sorted(os.listdir(f"{root}/{REGISTER}/{WAITING_DIR}"))
    except FileNotFoundError:
        return []


def ids(root: str) -> list[str]:
    return sorted(fresh(root).register().rows.ids)


def version(root: str) -> int:
    return fresh(root).register().version


class Asker:
    """Another process: it asks while the turn is ours, and keeps what it was told."""

    def __init__(self, root: str, call: Callable[[Catalog], Any], durable: str = "false") -> None:
        self.root = root
        self.told: Any = None
        self._catalog = fresh(root, durable)
        self._catalog.register()
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.told = self._call(self._catalog)
        except Exception as error:
            self.told = error

    def begin(self) -> None:
        """Begin, and go on once the request is there."""
        before = len(left(self.root))
        self._thread.start()
        wait_until(lambda: len(left(self.root)) > before)
        wait_until(
            lambda: all(
                os.stat(f"{self.root}/{REGISTER}/{WAITING_DIR}/{each}").st_size > 0
                for each in left(self.root)
            )
        )

    def end(self) -> Any:
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()
        return self.told


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def serving(*askers: Asker, name: str = "mine") -> Callable[[Draft], None]:
    """A change during which others come to wait: made on the last version before they did."""
    begun: list[Asker] = []

    def change(draft: Draft) -> None:
        for each in askers:
            if each not in begun:
                begun.append(each)
                each.begin()
        draft.put(Row(name, NAMESPACE))

    return change


def makes(*id: str) -> Callable[[Catalog], Any]:
    return lambda catalog: create_namespace(catalog, id).id


def test_whoever_waits_is_served_in_the_same_version(root: str) -> None:
    askers = [Asker(root, makes("n", name)) for name in "abc"]
    before = version(root)
    fresh(root).mutate(serving(*askers))
    assert [each.end() for each in askers] == [("n", "a"), ("n", "b"), ("n", "c")]
    assert ids(root) == ["mine", "n", "n$a", "n$b", "n$c"]
    assert version(root) == before + 1
    snapshot = fresh(root).register().snapshot
    assert snapshot is not None
    transaction = snapshot.transaction()
    assert transaction is not None
    assert len(members(transaction)) == 1 + len(askers)
    assert left(root) == []


def test_of_several_who_ask_for_one_id_one_gets_it(root: str) -> None:
    askers = [Asker(root, makes("n", "a")) for _ in range(3)]
    before = version(root)
    fresh(root).mutate(serving(*askers))
    told = [each.end() for each in askers]
    assert told.count(("n", "a")) == 1
    assert [type(each) for each in told if each != ("n", "a")] == [NamespaceAlreadyExists] * 2
    assert version(root) == before + 1
    assert left(root) == []


def test_whoever_cannot_be_served_looks_itself_why(root: str) -> None:
    taken, orphan = Asker(root, makes("mine")), Asker(root, makes("zz", "a"))
    before = version(root)
    fresh(root).mutate(serving(taken, orphan))
    assert isinstance(taken.end(), NamespaceAlreadyExists)
    assert isinstance(orphan.end(), NamespaceNotFound)
    assert (version(root), left(root)) == (before + 1, [])


def test_whoever_asks_for_an_id_that_is_taken_is_told_what_has_it(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the version that its server makes, which it need not read."""
    there = Asker(root, lambda catalog: create_namespace(catalog, ("mine",), {"a": "b"}, "exist_ok"))
    refused, anew = Asker(root, makes("mine")), Asker(root, lambda c: overwrites(c, "mine"))
    looks: list[str] = []
    for each in (there, refused):
        monkeypatch.setattr(each._catalog._table, "newest", lambda: looks.append("read"))
    before = version(root)
    fresh(root).mutate(serving(there, refused, anew))
    assert there.end().properties is None
    assert isinstance(refused.end(), NamespaceAlreadyExists)
    assert anew.end().properties == {"c": "d"}  # made by its asker, in a version of its own
    assert (looks, version(root), left(root)) == ([], before + 2, [])


def overwrites(catalog: Catalog, name: str) -> Any:
    return create_namespace(catalog, (name,), {"c": "d"}, "overwrite")


def test_nobody_is_refused_by_a_version_that_does_not_come_to_stand(root: str) -> None:
    asker, server = Asker(root, makes("mine")), fresh(root)
    server._table.publish = lambda *args: Created.NOT_DONE
    with pytest.raises(StoreError, match="nothing was changed"):
        server.mutate(serving(asker))
    assert asker.end() == ("mine",)
    assert (ids(root), left(root)) == (["mine", "n"], [])


def test_a_directory_under_the_name_of_a_namespace_is_in_the_way(root: str) -> None:
    asker = Asker(root, makes("t"))
    os.makedirs(f"{root}/t.lance/_versions")
    fresh(root).mutate(serving(asker))
    assert asker.end() == ("t",)  # an empty directory: its asker has looked, and made it itself
    assert ids(root) == ["mine", "n", "t"]


def test_tables_are_declared_and_created_for_others_too(root: str) -> None:
    import pyarrow as pa

    from tiltyard.catalog.tables import create_table, declare_table

    made = Asker(root, lambda catalog: create_table(catalog, ("n", "a"), pa.table({"x": [1]}))[0])
    declared = Asker(root, lambda catalog: declare_table(catalog, ("n", "b")))
    loser = Asker(root, lambda catalog: declare_table(catalog, ("n", "mine")))
    fresh(root).mutate(serving(made, declared, loser, name="n$mine"))
    rows = fresh(root).register().rows
    assert rows.row(rows.positions("n$a")[0]) == made.end().row
    assert rows.row(rows.positions("n$b")[0]) == declared.end().row
    assert isinstance(loser.end(), TableAlreadyExists)
    assert rows.types.count(TABLE) == 2


def test_what_a_server_takes_away_and_puts_back_is_written(root: str) -> None:
    """It drops what another makes again: nothing seems to change, and both were told that it was done."""
    asker = Asker(root, makes("n"))
    before = version(root)

    def change(draft: Draft) -> None:
        asker.begin()
        draft.remove("n")

    fresh(root).mutate(change)
    assert asker.end() == ("n",)
    assert version(root) == before + 1


@pytest.mark.parametrize("stands", [False, True])
def test_an_asker_finds_out_what_a_server_did_before_it_died(
    root: str, stands: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "DOUBT_SECONDS", 0.05)
    asker, server = Asker(root, makes("a")), fresh(root)
    publish, before = server._table.publish, version(root)

    def dies(*args: Any) -> Created:
        if stands:
            publish(*args)
        raise Crashed("it has died")

    server._table.publish = dies
    with pytest.raises(Crashed):
        server.mutate(serving(asker))
    assert asker.end() == ("a",)
    assert ids(root) == (["a", "mine", "n"] if stands else ["a", "n"])
    assert version(root) == before + 1
    assert [each for each in left(root) if not each.endswith(WITHDRAWN)] == []


@pytest.mark.parametrize("other_is_first", [False, True])
def test_a_server_that_wakes_late_does_not_do_what_its_asker_has_given_up(
    root: str, other_is_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where the asker was refused: it has taken the version for which its request was meant."""
    monkeypatch.setattr(waiting, "DOUBT_SECONDS", 0.05)
    asker, server = Asker(root, makes("a")), fresh(root)
    publish, tries = server._table.publish, []

    def sleeps(*args: Any) -> Created:
        if not tries:
            if other_is_first:
                fresh(root).mutate(lambda draft: draft.put(Row("a", NAMESPACE)))
            told = asker.end()
            assert isinstance(told, NamespaceAlreadyExists) if other_is_first else told == ("a",)
            drop_namespace(fresh(root), ("a",))
        tries.append(args[1])
        return publish(*args)

    server._table.publish = sleeps
    server.mutate(serving(asker))
    assert len(tries) == 2
    assert ids(root) == ["mine", "n"]


def test_what_was_taken_over_long_ago_is_not_put_into_a_later_version(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note that its author has given up may have been removed by then."""
    monkeypatch.setattr(waiting, "MAX_TAKEN_SECONDS", 0.0)
    put(root, "one")
    server, tries = fresh(root), []
    publish = server._table.publish

    def slow(*args: Any) -> Created:
        if not tries:
            fresh(root).mutate(lambda draft: draft.put(Row("other", NAMESPACE)))
        tries.append(args[1])
        return publish(*args)

    server._table.publish = slow
    server.mutate(lambda draft: draft.put(Row("mine", NAMESPACE)))
    assert len(tries) == 2
    assert (ids(root), left(root)) == (["mine", "n", "other"], [])


def test_a_refusal_in_doubt_takes_the_version_that_was_meant_for_it(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "DOUBT_SECONDS", 0.05)
    asker, server = Asker(root, makes("n", "a")), fresh(root)
    before = version(root)

    def dies(*args: Any) -> Created:
        fresh(root).mutate(lambda draft: draft.put(Row("n$a", NAMESPACE)))
        raise Crashed("it has died")

    server._table.publish = dies
    with pytest.raises(Crashed):
        server.mutate(serving(asker))
    assert isinstance(asker.end(), NamespaceAlreadyExists)
    assert version(root) == before + 2


def test_a_server_that_fails_gives_back_what_it_took(root: str) -> None:
    asker, server = Asker(root, makes("a")), fresh(root)
    before = version(root)
    server._table.publish = lambda *args: Created.NOT_DONE
    with pytest.raises(Exception, match="nothing was changed"):
        server.mutate(serving(asker))
    assert asker.end() == ("a",)
    assert (version(root), ids(root), left(root)) == (before + 1, ["a", "n"], [])


def test_whoever_may_not_ask_waits_for_its_turn(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory is another user's."""
    catalog = fresh(root)
    catalog.register()
    refused: list[str] = []
    refusal = StoreError("not yours")
    refusal.errno = errno.EACCES

    def refuse(path: str, data: bytes, *, sync: bool = False) -> None:
        if path.startswith(WAITING_DIR):
            refused.append(path)
            raise refusal
        type(store).write_hint(store, path, data, sync=sync)

    store = catalog._table.store
    monkeypatch.setattr(store, "write_hint", refuse)
    before = version(root)
    with fresh(root)._table.store.turnstile(names.VERSIONS_DIR, 0.0) as ours:
        assert ours
        create_namespace(catalog, ("a",))  # whoever has the turn does not go on
    assert len(refused) == 1
    assert version(root) == before + 1


def test_whoever_may_not_read_the_answer_finds_out_what_was_done(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is another user, whose files are its own."""
    asker = Asker(root, makes("a"))
    store = asker._catalog._table.store
    refusal = StoreError("not yours")
    refusal.errno = errno.EACCES

    def refuse(path: str, *args: Any) -> Any:
        if path.endswith(ANSWER):
            raise refusal
        return type(store).read(store, path, *args)

    monkeypatch.setattr(store, "read", refuse)
    before = version(root)
    fresh(root).mutate(serving(asker))
    assert asker.end() == ("a",)
    assert version(root) == before + 1


def put(root: str, uuid: str, **facts: Any) -> None:
    directory = f"{root}/{REGISTER}/{WAITING_DIR}"
    os.makedirs(directory, exist_ok=True)
    usual = {
        "format": 1,
        "id": "a",
        "type": NAMESPACE,
        "location": None,
        "metadata": None,
        "place": "",
        "durable": False,
        "asked_at": runtime.monotonic(),
    }
    Path(f"{directory}/{uuid}").write_text(json.dumps(usual | facts))


def test_a_request_without_an_author_is_served_while_it_is_young(root: str) -> None:
    put(root, "one")
    create_namespace(fresh(root), ("b",))
    assert ids(root) == ["a", "b", "n"]
    assert left(root) == ["one" + ANSWER]
    assert Path(f"{root}/{REGISTER}/{WAITING_DIR}/one{ANSWER}").read_bytes() == DONE


@pytest.mark.parametrize(
    "facts",
    [
        {"asked_at": 0.0},
        {"asked_at": 1e12},
        {"asked_at": None},
        {"format": 2},
        {"durable": True},
        {"durable": None},
        {"type": "view"},
        {"id": None},
        {"metadata": 1},
        {"place": None},
    ],
)
def test_requests_that_are_old_strange_or_ask_for_too_much_are_left_alone(
    root: str, facts: dict[str, Any]
) -> None:
    put(root, "one", **facts)
    Path(f"{root}/{REGISTER}/{WAITING_DIR}/two").write_bytes(b"\xff{")
    create_namespace(fresh(root), ("b",))
    assert ids(root) == ["b", "n"]
    assert left(root) == ["one", "two"]


def test_requests_that_processes_left_which_died_keep_nobody_from_being_served(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MAX_SERVED", 4)
    for number in range(9):
        put(root, f"dead{number}", asked_at=0.0)
    put(root, "young")
    create_namespace(fresh(root), ("b",))
    assert ids(root) == ["a", "b", "n"]


@pytest.mark.parametrize("id", ["", "n$", "n$.a", "zz$a", "n"])
def test_what_nobody_may_make_is_not_made_for_another(root: str, id: str) -> None:
    put(root, "one", id=id)
    create_namespace(fresh(root), ("b",))
    assert ids(root) == ["b", "n"]
    assert left(root) == ["one" + ANSWER]


def test_a_server_that_syncs_serves_those_who_do_not(root: str) -> None:
    asker = Asker(root, makes("a"))
    before = version(root)
    fresh(root, "true").mutate(serving(asker))
    assert asker.end() == ("a",)
    assert version(root) == before + 1


def test_nobody_who_wants_its_change_synced_is_served_by_one_who_does_not_sync(root: str) -> None:
    asker = Asker(root, makes("a"), durable="true")
    before = version(root)
    fresh(root).mutate(serving(asker))
    assert asker.end() == ("a",)
    assert version(root) == before + 2


def test_whoever_lost_a_version_without_a_turn_asks_again(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It went on alone, for nobody went on, and then somebody did."""
    catalog = fresh(root)
    catalog.register()
    publish, fates = catalog._table.publish, [waiting.Fate.ALONE, waiting.Fate.TURN]
    versions: list[int] = []

    def loses(*args: Any) -> Created:
        if not versions:
            fresh(root).mutate(lambda draft: draft.put(Row("other", NAMESPACE)))
        versions.append(args[1])
        return publish(*args)

    monkeypatch.setattr(waiting.Request, "wait", lambda self, turn: fates.pop(0))
    catalog._table.publish = loses
    with fresh(root)._table.store.turnstile(names.VERSIONS_DIR, 0.0) as theirs:
        assert theirs
        create_namespace(catalog, ("a",))
    assert (ids(root), fates, len(versions)) == (["a", "n", "other"], [], 2)
