"""Real processes on one catalog, ours alone and beside the official programs: one winner, the right codes for
everybody else, no row twice, no directory left behind, no version missing (cases N01, N02, N03, N09).
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from catalog_programs import EACH, Answers, Program, at_once, by_name, check_register, programs
from peer import Peer
from tiltyard.catalog import Catalog, open_catalog
from tiltyard.catalog.found import find_table
from tiltyard.catalog.listing import list_tables
from tiltyard.catalog.namespaces import create_namespace
from tiltyard.catalog.renaming import rename_table
from tiltyard.catalog.tables import table_exists
from tiltyard.catalog.trash import dropped_tables, undrop_table
from tiltyard.dataset import LanceDataset
from workers import Crew


def every(running: list[Program], gate: Path, verb: str, ids: list[Any], root: Path) -> Answers:
    """All call `verb` on the same ids, in the same order; answers by program."""
    return at_once(running, gate, [EACH] * len(running), root=str(root), verb=verb, ids=ids)


# -- what must hold afterwards ---------------------------------------------------------------------


def check_catalog(root: Path, *, orphans: int = 0) -> Catalog:
    catalog = open_catalog(str(root))
    check_register(catalog, orphans=orphans)
    return catalog


def read_by(catalog: Catalog, id: Any) -> list[Any]:
    found = find_table(catalog, tuple(id))
    table = LanceDataset(str(Path(catalog.store.uri.removeprefix("file://")) / found.location)).to_table()
    values: list[Any] = table["by"].to_pylist()
    return values


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
    running = programs(crew, workers)
    answers = at_once(running, tmp_path / "gate", sources, DIRECTORIES, root=str(place), rounds=rounds)
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
