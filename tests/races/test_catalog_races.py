"""Real processes on one catalog, ours alone and beside the official programs: one winner, the right codes for
everybody else, no row twice, no directory left behind, no version missing (cases N01, N02, N03, N09).
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from peer import Peer
from tiltyard.catalog import Catalog, open_catalog
from tiltyard.catalog.found import find_table
from tiltyard.catalog.listing import list_tables
from tiltyard.catalog.namespaces import create_namespace
from tiltyard.catalog.renaming import rename_table
from tiltyard.catalog.tables import table_exists
from tiltyard.catalog.trash import dropped_tables, undrop_table
from tiltyard.dataset import LanceDataset
from tiltyard.table.versions import list_versions
from workers import Crew, Worker

OURS = """
import pyarrow as pa
from tiltyard import errors
from tiltyard.catalog import open_catalog
from tiltyard.catalog.namespaces import create_namespace, drop_namespace
from tiltyard.catalog.purging import purge
from tiltyard.catalog.renaming import rename_table
from tiltyard.catalog.tables import create_table
from tiltyard.catalog.trash import drop_table, undrop_table
catalog = open_catalog(root)
CODES = {"NamespaceNotFound": 1, "NamespaceAlreadyExists": 2, "NamespaceNotEmpty": 3,
         "TableNotFound": 4, "TableNotDropped": 4, "TableAlreadyExists": 5, "CatalogThrottled": 21}
data = pa.table({"by": [me]})

def call(verb, id):
    try:
        if verb == "create": create_table(catalog, id, data, mode="create")
        elif verb == "exist_ok":
            _, table = create_table(catalog, id, data, mode="exist_ok")
            return table.to_table()["by"][0].as_py()
        elif verb == "overwrite": create_table(catalog, id, data, mode="overwrite")
        elif verb == "drop": drop_table(catalog, id)
        elif verb == "undrop": undrop_table(catalog, id)
        elif verb == "purge": return len(purge(catalog, 0).given_up)
        elif verb == "rename": rename_table(catalog, id, (*id[:-1], id[-1] + "-new"))
        elif verb == "create_namespace": create_namespace(catalog, id)
        elif verb == "drop_namespace": drop_namespace(catalog, id)
    except errors.TiltyardError as error:
        return CODES.get(type(error).__name__) or f"{type(error).__name__}: {error}"
    return "ok"
"""
"""`call` in one of our processes: "ok", a code of the specification, or what else went wrong."""

PYLANCE = """
import io
import pyarrow as pa
import lance_namespace as ln
from lance.namespace import DirectoryNamespace
catalog = DirectoryNamespace(root=root)
sink = io.BytesIO()
with pa.ipc.new_stream(sink, pa.schema([("by", pa.int64())])) as stream:
    stream.write_table(pa.table({"by": [me]}))
body = sink.getvalue()

def call(verb, id):
    id = list(id)
    try:
        if verb == "create": catalog.create_table(ln.CreateTableRequest(id=id, mode="create"), body)
        elif verb == "drop": catalog.drop_table(ln.DropTableRequest(id=id))
        elif verb == "create_namespace": catalog.create_namespace(ln.CreateNamespaceRequest(id=id))
        elif verb == "drop_namespace": catalog.drop_namespace(ln.DropNamespaceRequest(id=id))
    except Exception as error:
        return int(getattr(error, "code", 99))
    return "ok"
"""

LANCEDB = """
import pyarrow as pa
import lancedb
catalog = lancedb.connect_namespace("dir", {"root": root})
data = pa.table({"by": [me]})

def call(verb, id):
    space = list(id[:-1])
    try:
        if verb == "create": catalog.create_table(id[-1], data, namespace_path=space)
        elif verb == "drop": catalog.drop_table(id[-1], namespace_path=space)
        elif verb == "create_namespace": catalog.create_namespace(list(id))
    except Exception as error:
        return 99
    return "ok"
"""

EACH = "\nresult = [call(verb, tuple(id)) for id in ids]\n"

Answers = list[list[Any]]
Program = tuple[Worker, str]


def programs(crew: Crew, ours: int, pylance: int = 0, lancedb: int = 0) -> list[Program]:
    """Workers with the source that gives each its `call`."""
    theirs = crew.peers(pylance + lancedb) if pylance + lancedb else []
    return [
        *((worker, OURS) for worker in (crew.ours(ours) if ours else [])),
        *((worker, PYLANCE) for worker in theirs[:pylance]),
        *((worker, LANCEDB) for worker in theirs[pylance:]),
    ]


def at_once(running: list[Program], gate: Path, sources: list[str], **variables: Any) -> Answers:
    """Each program runs its source, all from the same moment on."""
    wait = f"\nimport os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.0005)\n"
    for me, ((worker, prelude), source) in enumerate(zip(running, sources, strict=True)):
        worker.begin(prelude + wait + source, me=me, **variables)
    gate.touch()
    answers = [worker.answer() for worker, _ in running]
    gate.unlink()
    return answers


def every(running: list[Program], gate: Path, verb: str, ids: list[Any], root: Path) -> Answers:
    """All call `verb` on the same ids, in the same order; answers by program."""
    return at_once(running, gate, [EACH] * len(running), root=str(root), verb=verb, ids=ids)


# -- what must hold afterwards ---------------------------------------------------------------------


def check_catalog(root: Path, *, orphans: int = 0) -> Catalog:
    """No id twice, no gap in the versions, no hashed directory that nobody names, but so many."""
    catalog = open_catalog(str(root))
    register = catalog.register()
    assert not register.rows.duplicates()
    versions = sorted(each.version for each in list_versions(catalog.store.at("__manifest")))
    assert versions == list(range(1, len(versions) + 1))
    named = {row.location for row in register.rows}
    kept = " ".join(register.metadata.values())
    left = [
        name
        for name in os.listdir(root)
        if re.match("[0-9a-f]{8}_", name) and name not in named and name not in kept
    ]
    assert len(left) <= orphans, left
    for row in register.rows:
        for end in range(1, row.object_id.count("$") + 1):
            above = "$".join(row.object_id.split("$")[:end])
            assert register.rows.find(above) is not None, f"{row.object_id} has no {above}"
    return catalog


def read_by(catalog: Catalog, id: Any) -> list[Any]:
    found = find_table(catalog, tuple(id))
    table = LanceDataset(str(Path(catalog.store.uri.removeprefix("file://")) / found.location)).to_table()
    values: list[Any] = table["by"].to_pylist()
    return values


def by_name(answers: Answers) -> Iterator[list[Any]]:
    return map(list, zip(*answers, strict=True))


NAMES = 6
MANY = 40

SIZES = [
    pytest.param(2, NAMES, id="2"),
    pytest.param(4, NAMES, id="4"),
    pytest.param(8, NAMES, id="8", marks=pytest.mark.soak),
    pytest.param(2, MANY, id="2-many", marks=pytest.mark.soak),
    pytest.param(4, MANY, id="4-many", marks=pytest.mark.soak),
    pytest.param(8, MANY, id="8-many", marks=pytest.mark.soak),
]


def ids_of(place: str, names: int, prefix: str = "t") -> list[tuple[str, ...]]:
    above = () if place == "root" else ("n",)
    return [(*above, f"{prefix}{number}") for number in range(names)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "lake"
    create_namespace(open_catalog(str(made)), ("n",))
    return made


# -- the same names --------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["root", "child"])
@pytest.mark.parametrize(("workers", "names"), SIZES)
def test_one_process_makes_a_table_and_the_others_are_told_that_it_exists(
    root: Path, tmp_path: Path, crew: Crew, peer: Peer, workers: int, names: int, place: str
) -> None:
    """Case N01."""
    ids = ids_of(place, names)
    answers = every(programs(crew, workers), tmp_path / "gate", "create", ids, root)
    for told in by_name(answers):
        assert Counter(told) == {"ok": 1, 5: workers - 1}
    catalog = check_catalog(root)
    for id, told in zip(ids, by_name(answers), strict=True):
        assert read_by(catalog, id) == [told.index("ok")]
    assert len(list_tables(catalog, ids[0][:-1]).names) == names


@pytest.mark.parametrize("place", ["root", "child"])
@pytest.mark.parametrize(("workers", "names"), SIZES)
def test_create_or_open_gives_everybody_the_same_table(
    root: Path, tmp_path: Path, crew: Crew, workers: int, names: int, place: str
) -> None:
    ids = ids_of(place, names)
    answers = every(programs(crew, workers), tmp_path / "gate", "exist_ok", ids, root)
    catalog = check_catalog(root)
    for id, told in zip(ids, by_name(answers), strict=True):
        assert told == read_by(catalog, id) * workers


@pytest.mark.parametrize("place", ["root", "child"])
@pytest.mark.parametrize(("workers", "names"), SIZES)
def test_one_process_drops_a_table_and_the_others_do_not_find_it(
    root: Path, tmp_path: Path, crew: Crew, workers: int, names: int, place: str
) -> None:
    """Case N02."""
    ids = ids_of(place, names)
    every(programs(crew, 1), tmp_path / "gate", "create", ids, root)
    answers = every(programs(crew, workers), tmp_path / "gate", "drop", ids, root)
    for told in by_name(answers):
        assert Counter(told) == {"ok": 1, 4: workers - 1}
    catalog = check_catalog(root)
    assert list_tables(catalog, ids[0][:-1]).names == ()
    back = every(programs(crew, workers), tmp_path / "gate", "undrop", ids, root)
    for told in by_name(back):
        assert told.count("ok") == 1, told
        assert set(told) <= {"ok", 4, 5}, told
    for id in ids:
        assert read_by(check_catalog(root), id) == [0]


@pytest.mark.parametrize(("workers", "names"), SIZES)
def test_one_process_makes_a_namespace_and_the_others_are_told_that_it_exists(
    root: Path, tmp_path: Path, crew: Crew, workers: int, names: int
) -> None:
    """Case N09."""
    answers = every(
        programs(crew, workers), tmp_path / "gate", "create_namespace", ids_of("root", names, "s"), root
    )
    for told in by_name(answers):
        assert Counter(told) == {"ok": 1, 2: workers - 1}
    check_catalog(root)


@pytest.mark.parametrize("place", ["root", "child"])
@pytest.mark.parametrize(("workers", "names"), SIZES)
def test_one_process_renames_a_table_and_the_others_do_not_find_it(
    root: Path, tmp_path: Path, crew: Crew, workers: int, names: int, place: str
) -> None:
    ids = ids_of(place, names)
    every(programs(crew, 1), tmp_path / "gate", "create", ids, root)
    answers = every(programs(crew, workers), tmp_path / "gate", "rename", ids, root)
    for told in by_name(answers):
        assert told.count("ok") == 1, told
        assert set(told) <= {"ok", 4, 5}, told
    catalog = check_catalog(root)
    assert list_tables(catalog, ids[0][:-1]).names == tuple(sorted(f"{id[-1]}-new" for id in ids))


# -- distinct names --------------------------------------------------------------------------------

ROUNDS = """
result = []
for step in range(rounds):
    id = (*above, f"t{me}-{step}")
    result += [call("create", id), call("drop", id) if step % 3 == 0 else "ok"]
"""
"""Case N03: creations and drops of names that nobody else has."""


@pytest.mark.parametrize("place", ["root", "child"])
@pytest.mark.parametrize(("workers", "rounds"), SIZES)
def test_processes_with_names_of_their_own_all_get_what_they_ask_for(
    root: Path, tmp_path: Path, crew: Crew, workers: int, rounds: int, place: str
) -> None:
    above = () if place == "root" else ("n",)
    answers = at_once(
        programs(crew, workers),
        tmp_path / "gate",
        [ROUNDS] * workers,
        root=str(root),
        rounds=rounds,
        above=above,
    )
    assert {told for each in answers for told in each} == {"ok"}
    catalog = check_catalog(root)
    expected = {f"t{me}-{step}" for me in range(workers) for step in range(rounds) if step % 3}
    assert set(list_tables(catalog, above).names) == expected


# -- different calls -------------------------------------------------------------------------------

CREATING = "\nresult = [call('create', tuple(id)) for _ in range(rounds) for id in ids]\n"
DROPPING = "\nresult = [call('drop', tuple(id)) for _ in range(rounds) for id in ids]\n"


@pytest.mark.parametrize("place", ["root", "child"])
@pytest.mark.parametrize(
    ("workers", "rounds"), [(2, 12), (4, 8), pytest.param(8, 40, marks=pytest.mark.soak)]
)
def test_creations_and_drops_of_one_name_alternate(
    root: Path, tmp_path: Path, crew: Crew, workers: int, rounds: int, place: str
) -> None:
    """As many drops succeed as creations, or one less: then the table is left."""
    ids = ids_of(place, 1)
    sources = [CREATING, DROPPING] * (workers // 2)
    answers = at_once(
        programs(crew, workers), tmp_path / "gate", sources, root=str(root), rounds=rounds, ids=ids
    )
    made = sum(told == "ok" for each in answers[0::2] for told in each)
    dropped = sum(told == "ok" for each in answers[1::2] for told in each)
    assert {told for each in answers[0::2] for told in each} <= {"ok", 5}
    assert {told for each in answers[1::2] for told in each} <= {"ok", 4}
    catalog = check_catalog(root)
    left = list_tables(catalog, ids[0][:-1]).names
    assert made - dropped == len(left)
    for _ in left:
        assert read_by(catalog, ids[0]) in [[me] for me in range(0, workers, 2)]


MAKING = "\nresult = [call('create', (name, 't')) for name in names]\n"
EMPTYING = "\nresult = [call('drop_namespace', (name,)) for name in names]\n"


@pytest.mark.parametrize(("workers", "names"), [(2, 12), (4, 8), pytest.param(8, 60, marks=pytest.mark.soak)])
def test_a_namespace_is_dropped_or_a_table_made_in_it_and_never_both(
    root: Path, tmp_path: Path, crew: Crew, workers: int, names: int
) -> None:
    spaces = [f"s{number}" for number in range(names)]
    every(programs(crew, 1), tmp_path / "gate", "create_namespace", [(each,) for each in spaces], root)
    sources = [MAKING, EMPTYING] * (workers // 2)
    answers = at_once(programs(crew, workers), tmp_path / "gate", sources, root=str(root), names=spaces)
    register = check_catalog(root).register()
    for at, name in enumerate(spaces):
        made = [each[at] for each in answers[0::2]]
        emptied = [each[at] for each in answers[1::2]]
        assert (made.count("ok"), emptied.count("ok")) in [(1, 0), (0, 1)], (made, emptied)
        assert set(made) <= {"ok", 1, 5}
        assert set(emptied) <= {"ok", 1, 3}
        assert (register.rows.find(name) is not None) == (made.count("ok") == 1)


# -- without a register ----------------------------------------------------------------------------

DIRECTORIES = {"manifest_enabled": "false"}

LIVES = """
result = []
for step in range(rounds):
    for verb in verbs:
        result.append((verb, call(verb, ("t",))))
"""


@pytest.mark.parametrize(
    ("workers", "rounds"), [(2, 12), (4, 8), pytest.param(8, 40, marks=pytest.mark.soak)]
)
def test_without_a_register_every_drop_ends_once(
    root: Path, tmp_path: Path, crew: Crew, workers: int, rounds: int
) -> None:
    """Whatever was created and not purged is there, or was dropped; nobody is told of anything else."""
    place = tmp_path / "directories"
    kinds = [["create", "drop"], ["undrop", "drop"], ["purge", "create"], ["undrop", "drop", "purge"]]
    sources = [f"verbs = {kinds[me % 4]}{LIVES}" for me in range(workers)]
    opened = f"open_catalog(root, properties={DIRECTORIES})"
    running = [
        (worker, prelude.replace("open_catalog(root)", opened)) for worker, prelude in programs(crew, workers)
    ]
    answers = at_once(running, tmp_path / "gate", sources, root=str(place), rounds=rounds)
    told = Counter((verb, answer) for each in answers for verb, answer in each)
    allowed = {"create": {"ok", 5}, "drop": {"ok", 4}, "undrop": {"ok", 4, 5}, "purge": set(range(9))}
    assert all(answer in allowed[verb] for verb, answer in told), told
    purged = sum(answer * many for (verb, answer), many in told.items() if verb == "purge")
    catalog = open_catalog(str(place), properties=DIRECTORIES)
    listed, dropped = list_tables(catalog).names, dropped_tables(catalog)
    assert told["create", "ok"] == purged + len(listed) + len(dropped), told
    assert told["drop", "ok"] - told["undrop", "ok"] == purged + len(dropped), told
    for number, each in enumerate(dropped):
        if table_exists(catalog, ("t",)):
            rename_table(catalog, ("t",), (f"u{number}",))
        undrop_table(catalog, trash=each.trash)
    names = list_tables(catalog).names
    assert len(names) == len(listed) + len(dropped)
    assert all(len(read_by(catalog, (name,))) == 1 for name in names)
    assert len(os.listdir(place)) == len(names)


# -- beside the official programs ------------------------------------------------------------------

MIXES = [
    pytest.param(1, 1, 0, NAMES, id="pylance"),
    pytest.param(1, 1, 1, NAMES, id="both"),
    pytest.param(2, 2, 0, MANY, id="2-2", marks=pytest.mark.soak),
    pytest.param(3, 3, 2, MANY, id="3-3-2", marks=pytest.mark.soak),
]


@pytest.mark.parametrize("place", ["root", "child"])
@pytest.mark.parametrize(("ours", "pylance", "lancedb", "names"), MIXES)
def test_one_creator_wins_beside_the_official_programs(
    root: Path,
    tmp_path: Path,
    crew: Crew,
    peer: Peer,
    ours: int,
    pylance: int,
    lancedb: int,
    names: int,
    place: str,
) -> None:
    ids = ids_of(place, names)
    answers = every(programs(crew, ours, pylance, lancedb), tmp_path / "gate", "create", ids, root)
    theirs = 0
    for told in by_name(answers):
        # lancedb declares a table first and then writes over whatever is there by then: where it and another
        # creator meet in between, both are told that they made the table, also without any of ours.
        assert told[: ours + pylance].count("ok") <= 1, told
        assert "ok" in told, told
        assert told.count("ok") == 1 or lancedb, told
        assert set(told[:ours]) <= {"ok", 5}, told
        theirs += sum(each != "ok" for each in told[ours:])
    catalog = check_catalog(root, orphans=theirs)  # losers of the official programs leave their directories
    for id in ids:
        # Whose data they are is not asked: also pylance may write over a version, and be refused for the row.
        assert len(read_by(catalog, id)) == 1
    listed = peer(
        "__import__('lance.namespace').namespace.DirectoryNamespace(root=r).list_tables("
        "__import__('lance_namespace').ListTablesRequest(id=n)).tables",
        r=str(root),
        n=list(ids[0][:-1]),
    )
    assert sorted(listed) == sorted(id[-1] for id in ids)


@pytest.mark.parametrize(("ours", "pylance", "lancedb", "names"), MIXES)
def test_one_namespace_is_made_beside_the_official_programs(
    root: Path, tmp_path: Path, crew: Crew, ours: int, pylance: int, lancedb: int, names: int
) -> None:
    ids = ids_of("root", names, "s")
    answers = every(programs(crew, ours, pylance, lancedb), tmp_path / "gate", "create_namespace", ids, root)
    for told in by_name(answers):
        assert told.count("ok") == 1, told
        assert set(told[:ours]) <= {"ok", 2}, told
    check_catalog(root)


@pytest.mark.parametrize("place", ["root", "child"])
@pytest.mark.parametrize(("ours", "pylance", "lancedb", "rounds"), MIXES)
def test_names_of_their_own_beside_the_official_programs(
    root: Path, tmp_path: Path, crew: Crew, ours: int, pylance: int, lancedb: int, rounds: int, place: str
) -> None:
    above = () if place == "root" else ("n",)
    running = programs(crew, ours, pylance, lancedb)
    answers = at_once(
        running, tmp_path / "gate", [ROUNDS] * len(running), root=str(root), rounds=rounds, above=above
    )
    assert {told for each in answers for told in each} == {"ok"}
    catalog = check_catalog(root)
    expected = {f"t{me}-{step}" for me in range(len(running)) for step in range(rounds) if step % 3}
    assert set(list_tables(catalog, above).names) == expected
