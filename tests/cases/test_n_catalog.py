"""Public bug reports about catalogs, tried on us: creation, listing and what counts as a table (N01 to N03,
N05 to N07, N09 to N13).
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard as ty
from peer import Peer
from tiltyard.catalog import Catalog, open_catalog
from tiltyard.catalog.found import find_table
from tiltyard.catalog.listing import list_tables
from tiltyard.catalog.namespaces import create_namespace
from tiltyard.catalog.operations import rows as row_operations
from tiltyard.catalog.purging import purge
from tiltyard.catalog.round import Draft
from tiltyard.catalog.rows import Row
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
from tiltyard.dataset import LanceDataset
from tiltyard.errors import TableAlreadyExists, TableNotFound
from tiltyard.format.names import manifest_name
from tiltyard.session import Session
from tiltyard.store import open_store
from tiltyard.testing.faults import FaultyStore, Plan
from workers import Crew, together

DATA = pa.table({"a": [1, 2, 3]})

PROCESSES, THREADS = 4, 4
"""Sixteen callers, each with a catalog and a session of its own."""

CALLERS = """
import threading
import pyarrow as pa
from tiltyard.catalog import open_catalog
from tiltyard.catalog.found import find_table
from tiltyard.catalog.tables import create_table
from tiltyard.catalog.trash import drop_table, undrop_table
from tiltyard.dataset import write_dataset
from tiltyard.errors import TiltyardError
from tiltyard.format.names import manifest_name
from tiltyard.session import Session

def told(call, *arguments):
    try:
        call(*arguments)
    except TiltyardError as error:
        return type(error).__name__
    return "ok"

def all_at_once(call):
    answers = [None] * threads
    def run(at):
        answers[at] = call(open_catalog(root, session=Session()), me * threads + at)
    running = [threading.Thread(target=run, args=(at,)) for at in range(threads)]
    for each in running: each.start()
    for each in running: each.join()
    return answers
"""


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


def lake(root: str) -> Catalog:
    """The catalog as a new process sees it."""
    return open_catalog(root, session=Session())


def opened(catalog: Catalog, id: tuple[str, ...]) -> LanceDataset:
    dataset = describe(catalog, id, detailed=True).dataset
    if dataset is None:
        raise TableNotFound(f"{id} is declared only")
    return dataset


def in_all(crew: Crew, root: str, gate: Path, source: str) -> list[Any]:
    """What each of the sixteen callers answered."""
    answers = together(crew.ours(PROCESSES), CALLERS + source, gate, root=root, threads=THREADS)
    return [answer for each in answers for answer in each]


@pytest.mark.parametrize("id", [("t",), ("n", "t")])
def test_of_sixteen_creators_of_one_name_one_succeeds(
    crew: Crew, root: str, tmp_path: Path, id: tuple[str, ...]
) -> None:
    """Case N01: two creators both succeed, and the register holds two rows for one table."""
    create_namespace(lake(root), ("n",))
    source = f"""
data = pa.table({{"a": [me]}})
result = all_at_once(lambda catalog, number: told(create_table, catalog, {id!r}, data))
"""
    answers = in_all(crew, root, tmp_path / "gate", source)
    assert Counter(answers) == {"ok": 1, "TableAlreadyExists": 15}
    catalog = lake(root)
    assert len(catalog.register().rows.all("$".join(id))) == 1
    assert opened(catalog, id).count_rows() == 1
    directories = [name for name in catalog.store.list_names("") if name != "__manifest"]
    assert directories == [find_table(catalog, id).location]


def test_creating_and_dropping_different_tables_at_once_all_succeed(
    crew: Crew, root: str, tmp_path: Path
) -> None:
    """Case N03: all commits meet in one register, and fail or are slow; kinds of errors are mixed up."""
    create_namespace(lake(root), ("n",))
    source = """
data = pa.table({"a": [me]})
def rounds(catalog, number):
    id, answers = ("n", f"t{number}") if number % 2 else (f"t{number}",), []
    for _ in range(3):
        answers.append(told(create_table, catalog, id, data))
        store = catalog.store.at(find_table(catalog, id).location)
        answers.append(told(write_dataset, data, store, None, "append"))
        answers.append(told(drop_table, catalog, id))
    answers.append(told(create_table, catalog, id, data))
    return answers
result = all_at_once(rounds)
"""
    answers = in_all(crew, root, tmp_path / "gate", source)
    assert all(answer == ["ok"] * 10 for answer in answers)
    catalog = lake(root)
    assert list_tables(catalog).names == tuple(sorted(f"t{number}" for number in range(0, 16, 2)))
    assert list_tables(catalog, ("n",)).names == tuple(sorted(f"t{number}" for number in range(1, 16, 2)))
    for number in range(16):
        id = ("n", f"t{number}") if number % 2 else (f"t{number}",)
        assert opened(catalog, id).count_rows() == 1


def test_a_folder_without_a_manifest_is_neither_listed_nor_opened(root: str) -> None:
    """Case N05: a crash leaves a folder; listing shows a table, opening says that there is none."""
    Path(root, "ghost.lance", "data").mkdir(parents=True)
    catalog = lake(root)
    assert list_tables(catalog).names == ()
    assert not table_exists(catalog, ("ghost",))
    with pytest.raises(TableNotFound):
        describe(catalog, ("ghost",), detailed=True)
    create_table(catalog, ("ghost",), DATA)
    assert list_tables(catalog).names == ("ghost",)
    assert opened(catalog, ("ghost",)).count_rows() == 3


def test_a_file_that_is_named_like_a_table_is_none(root: str) -> None:
    """Case N06: a plain file is listed, and dropping all tables fails on it for ever."""
    catalog = lake(root)
    for name in ("a", "b"):
        create_table(catalog, (name,), DATA)
    Path(root, "loose.lance").write_bytes(b"not a table")
    for expected in (("a", "b"), ()):
        names = list_tables(lake(root)).names
        assert names == expected
        for name in names:
            drop_table(lake(root), (name,))
    assert Path(root, "loose.lance").read_bytes() == b"not a table"


@pytest.mark.parametrize("id", [(), ("n",)])
def test_walking_pages_gives_every_table_once(root: str, id: tuple[str, ...]) -> None:
    """Case N07: paged listing loses a table at each boundary, or stops where the token's table is gone."""
    catalog = lake(root)
    create_namespace(catalog, ("n",))
    names = tuple(f"t{at:02}" for at in range(15))
    for name in names:
        declare_table(catalog, (*id, name))

    def walk(size: int) -> tuple[str, ...]:
        found: list[str] = []
        token = None
        while True:
            page = list_tables(catalog, id, page_token=token, limit=size)
            found += page
            token = page.token
            if token is None:
                return tuple(found)

    for size in (5, 1, 15, 16, -1):
        assert walk(size) == names
    assert list_tables(catalog, id, limit=0).names == ()
    assert list_tables(catalog, id, limit=0).token is None
    assert list_tables(catalog, id, limit=15).token is None
    page = list_tables(catalog, id, limit=5)
    assert page.token == "t04"
    drop_table(catalog, (*id, "t04"))
    rest = list_tables(catalog, id, page_token=page.token, limit=100)
    assert rest.names == names[5:]


@pytest.mark.parametrize("space", [(), ("n",)])
def test_declared_tables_live_as_the_specification_says(
    root: str, peer: Peer, space: tuple[str, ...]
) -> None:
    """Case N10: is a declared table listed, does it exist, and what makes it a real one?"""
    catalog = lake(root)
    create_namespace(catalog, ("n",))
    for name in ("d", "e"):
        declare_table(catalog, (*space, name))
        with pytest.raises(TableAlreadyExists):
            declare_table(catalog, (*space, name))
    assert list_tables(catalog, space).names == ("d", "e")
    assert list_tables(catalog, space, include_declared=False).names == ()
    assert table_exists(catalog, (*space, "d"))
    assert describe(catalog, (*space, "d"), check_declared=True).declared_only is True
    create_table(catalog, (*space, "d"), DATA)
    assert row_operations.insert(catalog, (*space, "e"), DATA).version == 1
    for name in ("d", "e"):
        assert describe(catalog, (*space, name), check_declared=True).declared_only is False
        assert opened(catalog, (*space, name)).count_rows() == 3
    assert list_tables(catalog, space, include_declared=False).names == ("d", "e")
    location = deregister_table(catalog, (*space, "d")).location
    assert list_tables(catalog, space).names == ("e",)
    assert not table_exists(catalog, (*space, "d"))
    register_table(catalog, (*space, "d"), location)
    assert opened(catalog, (*space, "d")).count_rows() == 3
    source = """
import lance_namespace as ln
from lance.namespace import DirectoryNamespace
request = ln.ListTablesRequest(id=list(space), include_declared=False)
result = sorted(DirectoryNamespace(root=root).list_tables(request).tables)
"""
    assert peer(source, root=root, space=space) == ["d", "e"]


@pytest.mark.parametrize("include_declared", [True, False])
@pytest.mark.parametrize("space", [(), ("n",)])
def test_what_a_page_costs_does_not_grow_with_the_number_of_tables(
    root: str, space: tuple[str, ...], include_declared: bool
) -> None:
    """Case N13: listing probes every table for a marker file, and paging does not reduce it."""
    create_namespace(lake(root), ("n",))
    prefix = "01234567_n$" if space else ""
    costs = []
    made: list[str] = []
    for total in (30, 150):
        new = [f"t{at:04}" for at in range(len(made), total)]
        made += new
        for name in new:
            versions = Path(root, f"{prefix}{name}.lance", "_versions")
            versions.mkdir(parents=True)
            (versions / manifest_name(1)).touch()
        if space:
            lake(root).mutate(
                partial(_put, [Row(f"n${each}", "table", f"{prefix}{each}.lance") for each in new])
            )
        plan = Plan()
        store: Any = FaultyStore(open_store(root), plan)
        catalog = Catalog(store, Settings.parse({}), Session())
        list_tables(catalog, space, limit=10)
        plan.trace.clear()
        page = list_tables(catalog, space, page_token="t0004", limit=10, include_declared=include_declared)
        assert list(page) == made[5:15]
        costs.append(len([path for _, path in plan.trace if not path.startswith("__manifest")]))
    assert costs[0] == costs[1]
    assert costs[0] <= 2 + 11 * 4


def _put(rows: list[Row], draft: Draft) -> None:
    for row in rows:
        draft.put(row)


@pytest.mark.parametrize("id", [("t",), ("n", "t")])
def test_of_sixteen_droppers_of_one_table_one_succeeds(
    crew: Crew, root: str, tmp_path: Path, id: tuple[str, ...]
) -> None:
    """N02: the others do not find the table; what it had under its name is gone, and purged in the end."""
    catalog = lake(root)
    create_namespace(catalog, ("n",))
    for turn, how in enumerate(("", ", purge=True")):
        create_table(catalog, id, DATA)
        source = f"result = all_at_once(lambda lake, number: told(lambda: drop_table(lake, {id!r}{how})))"
        answers = in_all(crew, root, tmp_path / f"gate{turn}", source)
        assert Counter(answers) == {"ok": 1, "TableNotFound": 15}
        assert not table_exists(lake(root), id)
        assert lake(root).register().rows.find("$".join(id)) is None
        assert not (Path(root) / "t.lance").exists()
        purge(lake(root), 0)
        left = [each.path for each in open_store(root).list("") if not each.path.startswith("__manifest")]
        assert left == []


def test_a_reader_in_the_middle_of_a_table_finishes_though_it_is_dropped_or_renamed(
    crew: Crew, root: str
) -> None:
    """N11: another process drops the table under the reader, and makes another one of its name."""
    catalog = lake(root)
    create_namespace(catalog, ("n",))
    source = """
from tiltyard.catalog.renaming import rename_table
lake = open_catalog(root)
rename_table(lake, id, (*id[:-1], "moved"))
drop_table(lake, (*id[:-1], "moved"))
create_table(lake, id, pa.table({"a": [-1]}))
result = "done"
"""
    (worker,) = crew.ours(1)
    for id in (("t",), ("n", "t")):
        data = pa.table({"a": range(10_000)})
        create_table(catalog, id, data, max_rows_per_file=1_000)
        dataset = opened(catalog, id)
        assert len(dataset.get_fragments()) == 10
        batches = dataset.to_batches(batch_size=100, batch_readahead=1, fragment_readahead=1)
        seen = next(batches)["a"].to_pylist()
        worker.begin(CALLERS + source, root=root, id=id, threads=1)
        assert worker.answer() == "done"
        for batch in batches:
            seen += batch["a"].to_pylist()
        assert sorted(seen) == list(range(10_000))
        assert dataset.take([7, 9_999])["a"].to_pylist() == [7, 9_999]
        assert dataset.count_rows() == 10_000
        assert opened(lake(root), id).to_table()["a"].to_pylist() == [-1]
        drop_table(catalog, id)
        undrop_table(catalog, (*id[:-1], "moved"))
        assert opened(lake(root), (*id[:-1], "moved")).count_rows() == 10_000


def test_the_obvious_loop_over_a_listing_opens_each_table(tmp_path: Path) -> None:
    """N12: looping over the answer of a list call gives names, not the fields of a model."""
    from tiltyard.catalog.plugin import DirectoryNamespace

    client = DirectoryNamespace(root=str(tmp_path))
    client.create_namespace({"id": ["n"]})
    for name in ("a", "b"):
        create_table(open_catalog(tmp_path), ("n", name), DATA)
    names = list(client.list_tables({"id": ["n"]}))
    assert names == ["a", "b"]
    assert [client.count_table_rows({"id": ["n", name]}).count for name in names] == [3, 3]
    assert list(client.list_namespaces({"id": []})) == ["n"]


def test_the_obvious_loop_over_a_lake_opens_each_table(tmp_path: Path) -> None:
    """N12: the same with the plain face, whatever namespaces the tables are in."""
    here = ty.connect(tmp_path)
    for name in ("a", "n.b", "n.m.c"):
        here.create_table(name, DATA)
    assert {name: here.table(name).count() for name in here.tables()} == {"a": 3, "n.b": 3, "n.m.c": 3}
    assert [here[name].count() for name in here] == [3, 3, 3]


@pytest.mark.parametrize("id", [("n1",), ("n", "n1")])
def test_of_sixteen_creators_of_one_namespace_one_succeeds(
    crew: Crew, root: str, tmp_path: Path, id: tuple[str, ...]
) -> None:
    """N09: of the losers one half was told that it exists, the other half of a concurrent modification."""
    create_namespace(lake(root), ("n",))
    source = f"""
from tiltyard.catalog.namespaces import create_namespace
result = all_at_once(lambda catalog, number: told(create_namespace, catalog, {id!r}))
"""
    answers = in_all(crew, root, tmp_path / "gate", source)
    assert Counter(answers) == {"ok": 1, "NamespaceAlreadyExists": 15}
    assert len(lake(root).register().rows.all("$".join(id))) == 1
