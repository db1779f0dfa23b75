"""Creators who do not look first, and creators of one name: what they save, and that nothing rests on it."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from zlib import crc32

import pyarrow as pa
import pytest

from tiltyard.catalog import Catalog, open_catalog, rivals, waiting
from tiltyard.catalog import register as registers
from tiltyard.catalog.listing import list_tables
from tiltyard.catalog.names import REGISTER, RIVALS_DIR
from tiltyard.catalog.namespaces import create_namespace, drop_namespace
from tiltyard.catalog.tables import create_table, declare_table
from tiltyard.catalog.trash import drop_table
from tiltyard.errors import NamespaceAlreadyExists, NamespaceNotFound, TableAlreadyExists
from tiltyard.format.names import HINT_PATH, VERSIONS_DIR
from tiltyard.session import Session
from tiltyard.table.snapshot import Snapshot

DATA = pa.table({"a": [1, 2]})


@pytest.fixture
def root(tmp_path: Path) -> str:
    root = str(tmp_path / "lake")
    create_namespace(fresh(root), ("n",))
    return root


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was known is known, however slow this machine is."""
    monkeypatch.setattr(registers, "LATE_SECONDS", 3_600.0)
    monkeypatch.setattr(rivals, "REMEMBERED_SECONDS", 3_600.0)


def fresh(root: str) -> Catalog:
    """The catalog as another process would open it."""
    return open_catalog(root, properties={"storage.durable": "false"}, session=Session())


def informed(root: str) -> Catalog:
    """A catalog that has just looked at the register."""
    lake = fresh(root)
    assert lake.register().version
    return lake


def place(root: str, name: str) -> str:
    return f"{root}/{REGISTER}/{RIVALS_DIR}/{crc32(name.encode()) % rivals.PLACES:02x}"


def directories(root: str) -> list[str]:
    return sorted(each for each in os.listdir(root) if each != REGISTER)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The versions of registers that were read after others."""
    versions: list[int] = []
    real = registers.load_after

    def load(before: registers.Register, snapshot: Snapshot) -> registers.Register:
        versions.append(snapshot.version)
        return real(before, snapshot)

    monkeypatch.setattr(registers, "load_after", load)
    return versions


def test_who_knows_the_register_of_late_reads_the_new_one_once(root: str, reads: list[int]) -> None:
    lake = informed(root)
    for made in ("x", "y"):
        create_namespace(fresh(root), (made,))
        del reads[:]
        create_table(lake, ("n", f"t{made}"), DATA)
        assert len(reads) == 1, "in the round, and not before it"
        declare_table(lake, ("n", f"d{made}"))
    assert list_tables(fresh(root), ("n",)).names == ("dx", "dy", "tx", "ty")


def test_who_does_not_know_of_a_table_is_refused_and_leaves_nothing(root: str) -> None:
    lake = informed(root)
    create_table(fresh(root), ("n", "t"), DATA)
    before = directories(root)
    with pytest.raises(TableAlreadyExists, match="exists already"):
        create_table(lake, ("n", "t"), DATA)
    with pytest.raises(TableAlreadyExists, match="exists already"):
        declare_table(lake, ("n", "t"))
    found, dataset = create_table(lake, ("n", "t"), DATA, mode="exist_ok")
    assert dataset.count_rows() == 2
    assert directories(root) == before == [found.location]


def test_who_does_not_know_that_a_table_was_dropped_creates_it(root: str) -> None:
    create_table(fresh(root), ("n", "t"), DATA)
    lake = informed(root)
    drop_table(fresh(root), ("n", "t"))
    assert create_table(lake, ("n", "t"), DATA)[1].count_rows() == 2


def test_who_does_not_know_of_a_namespace_looks(root: str) -> None:
    lake = informed(root)
    create_namespace(fresh(root), ("m",))
    assert create_table(lake, ("m", "t"), DATA)[1].count_rows() == 2
    assert declare_table(lake, ("m", "d")).declared_only


def test_who_does_not_know_that_a_namespace_was_dropped_is_refused(root: str) -> None:
    lake = informed(root)
    drop_namespace(fresh(root), ("n",))
    for create in (lambda: create_table(lake, ("n", "t"), DATA), lambda: declare_table(lake, ("n", "t"))):
        with pytest.raises(NamespaceNotFound, match="'n'"):
            create()
    assert directories(root) == []


def test_who_has_lost_a_name_looks_before_it_writes(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = informed(root)
    create_table(fresh(root), ("n", "t"), DATA)
    with pytest.raises(TableAlreadyExists):
        create_table(lake, ("n", "t"), DATA)
    create_table(fresh(root), ("n", "u"), DATA)

    def unexpected(*given: object, **more: object) -> None:
        raise AssertionError("a table was written")

    monkeypatch.setattr("tiltyard.dataset.write_dataset", unexpected)
    with pytest.raises(TableAlreadyExists):
        create_table(lake, ("n", "u"), DATA)


def test_who_has_lost_a_name_makes_a_place_to_wait_at(root: str) -> None:
    lake = informed(root)
    create_table(fresh(root), ("n", "t"), DATA)
    assert not os.path.exists(f"{root}/{REGISTER}/{RIVALS_DIR}")
    with pytest.raises(TableAlreadyExists):
        create_table(lake, ("n", "t"), DATA)
    create_table(lake, ("n", "u"), DATA)
    assert os.path.isdir(place(root, "n$u"))


def test_creators_of_a_name_wait_but_not_for_ever(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    os.makedirs(place(root, "n$t"))
    lake = informed(root)
    store = lake.register_store
    waited: list[float] = []
    real = type(store).turnstile

    def turnstile(self: object, directory: str, seconds: float) -> object:
        if directory.startswith(RIVALS_DIR):
            waited.append(seconds)
            seconds = 0.0
        return real(self, directory, seconds)  # type: ignore[arg-type]

    monkeypatch.setattr(type(store), "turnstile", turnstile)
    with ExitStack() as theirs:
        held = real(store, place(root, "n$t").removeprefix(f"{root}/{REGISTER}/"), 0.0)
        assert theirs.enter_context(held)
        create_table(lake, ("n", "t"), DATA)
    assert waited == [rivals.WAIT_SECONDS]


def test_a_new_table_of_a_namespace_has_a_hint_from_its_second_version_on(root: str) -> None:
    found, dataset = create_table(fresh(root), ("n", "t"), DATA)
    assert not os.path.exists(f"{root}/{found.location}/{HINT_PATH}")
    dataset.insert(DATA)
    assert Path(f"{root}/{found.location}/{HINT_PATH}").read_bytes() == b'{"version":2}'


def test_who_has_lost_a_name_looks_before_it_asks(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mostly that is there already: no request, and no wait for the answer."""
    lake, other = informed(root), fresh(root)
    for name in ("a", "b"):
        declare_table(other, ("n", name))
    with fresh(root)._table.store.turnstile(VERSIONS_DIR, 0.0) as theirs:
        assert theirs
        lake.rivals.note()
        monkeypatch.setattr(waiting.Request, "wait", lambda self, turn: pytest.fail("it asks"))
        for name in ("a", "b"):
            with pytest.raises(TableAlreadyExists):
                declare_table(lake, ("n", name))
            with pytest.raises(NamespaceAlreadyExists):
                create_namespace(lake, ("n", name))
