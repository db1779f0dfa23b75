"""Real processes on one catalog in a bucket, where every request takes its time: one winner, the right codes
for everybody else, no row twice, no directory left behind (cases N01, N02, N03, N09).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tiltyard as ty
from catalog_programs import EACH, Answers, at_once, by_name, check_register, programs
from peer import Peer
from s3_server import Rule, S3Server
from tiltyard.catalog import Catalog, open_catalog
from tiltyard.catalog.check import check
from tiltyard.catalog.listing import list_tables
from tiltyard.catalog.namespaces import create_namespace
from workers import Crew

LATENCY_SECONDS = 0.004

SIZES = [pytest.param(3, 2, id="3"), pytest.param(8, 20, id="8-many", marks=pytest.mark.soak)]
PLACES = pytest.mark.parametrize("above", [(), ("n",)], ids=["root", "child"])
FEWER_PLACES = pytest.mark.parametrize(
    "above", [pytest.param((), id="root"), pytest.param(("n",), id="child", marks=pytest.mark.soak)]
)


class Bucket:
    """A catalog in a bucket, and calls on it by several processes at once."""

    def __init__(self, s3: S3Server, bucket: str, crew: Crew, gate: Path) -> None:
        self.root = f"s3://{bucket}/lake"
        self.options = s3.options()
        self.properties = {f"storage.{name}": value for name, value in self.options.items()}
        self._crew, self._gate = crew, gate

    @property
    def catalog(self) -> Catalog:
        """As a new process sees it."""
        return open_catalog(self.root, properties=self.properties)

    def every(self, verb: str, ids: list[Any], ours: int, pylance: int = 0) -> Answers:
        running = programs(self._crew, ours, pylance)
        return self.run([EACH] * len(running), ours, pylance, verb=verb, ids=ids)

    def run(self, sources: list[str], ours: int, pylance: int = 0, **variables: Any) -> Answers:
        running = programs(self._crew, ours, pylance)
        return at_once(running, self._gate, sources, self.properties, root=self.root, **variables)

    def read_by(self, id: tuple[str, ...]) -> list[Any]:
        table = ty.connect(self.root, storage_options=self.options)[".".join(id)]
        found: list[Any] = table.scan().to_arrow()["by"].to_pylist()
        return found

    def check(self, orphans: int = 0) -> Catalog:
        check_register(self.catalog, orphans=orphans)
        damage = [str(each) for each in check(self.catalog, grace_seconds=0).findings if each.damage]
        assert not damage
        return self.catalog


@pytest.fixture
def there(s3: S3Server, bucket: str, crew: Crew, tmp_path: Path) -> Iterator[Bucket]:
    made = Bucket(s3, bucket, crew, tmp_path / "gate")
    create_namespace(made.catalog, ("n",))
    with s3.breaking(Rule("delay", times=1 << 30, seconds=LATENCY_SECONDS)):
        yield made


def _ids(above: tuple[str, ...], names: int, prefix: str = "t") -> list[tuple[str, ...]]:
    return [(*above, f"{prefix}{number}") for number in range(names)]


def _one_of(answers: Answers, refusal: int) -> None:
    for told in by_name(answers):
        assert Counter(told) == {"ok": 1, refusal: len(told) - 1}, answers


@PLACES
@pytest.mark.parametrize(("workers", "names"), SIZES)
def test_one_process_makes_a_table_and_one_drops_it(
    there: Bucket, above: tuple[str, ...], workers: int, names: int
) -> None:
    """Cases N01 and N02."""
    ids = _ids(above, names)
    created = there.every("create", ids, workers)
    _one_of(created, 5)
    for id, told in zip(ids, by_name(created), strict=True):
        assert there.read_by(id) == [told.index("ok")]
    assert len(list_tables(there.check(), above).names) == names
    _one_of(there.every("drop", ids, workers), 4)
    assert list_tables(there.check(), above).names == ()
    for told in by_name(there.every("undrop", ids, workers)):
        assert told.count("ok") == 1, told
        assert set(told) <= {"ok", 4, 5}, told
    for id, told in zip(ids, by_name(created), strict=True):
        assert there.read_by(id) == [told.index("ok")]
    there.check()


@FEWER_PLACES
@pytest.mark.parametrize(("workers", "names"), SIZES)
def test_one_process_declares_a_table_one_renames_it_and_all_open_it(
    there: Bucket, above: tuple[str, ...], workers: int, names: int
) -> None:
    _one_of(there.every("declare", _ids(above, names, "d"), workers), 5)
    ids = _ids(above, names)
    for id, told in zip(ids, by_name(there.every("exist_ok", ids, workers)), strict=True):
        assert told == there.read_by(id) * workers
    for told in by_name(there.every("rename", ids, workers)):
        assert told.count("ok") == 1, told
        assert set(told) <= {"ok", 4, 5}, told
    names_now = {f"{id[-1]}-new" for id in ids} | {id[-1] for id in _ids(above, names, "d")}
    assert set(list_tables(there.check(), above, include_declared=True).names) == names_now


@pytest.mark.parametrize(("workers", "names"), SIZES)
def test_one_process_makes_a_namespace_and_it_is_dropped_or_filled(
    there: Bucket, workers: int, names: int
) -> None:
    """Case N09."""
    spaces = _ids((), names, "s")
    _one_of(there.every("create_namespace", spaces, workers), 2)
    making = "\nresult = [call('create', (*name, 't')) for name in ids]\n"
    emptying = "\nresult = [call('drop_namespace', tuple(name)) for name in ids]\n"
    answers = there.run([making, emptying] * (workers // 2), workers // 2 * 2, ids=spaces)
    register = there.check().register()
    for at, (name,) in enumerate(spaces):
        made, emptied = ([each[at] for each in answers[first::2]] for first in (0, 1))
        assert (made.count("ok"), emptied.count("ok")) in [(1, 0), (0, 1)], (made, emptied)
        assert set(made) <= {"ok", 1, 5}
        assert set(emptied) <= {"ok", 1, 3}
        assert (register.rows.find(name) is not None) == (made.count("ok") == 1)


OWN = """
result = []
for step in range(names):
    id = (*above, f"t{me}-{step}")
    result += [call("create", id), call("drop", id) if step % 2 == 0 else "ok"]
"""
ALTERNATING = """
result = [call(verbs[me % 2], tuple(id)) for _ in range(3) for id in ids]
"""


@FEWER_PLACES
@pytest.mark.parametrize(("workers", "names"), SIZES)
def test_names_of_their_own_and_one_name_by_turns(
    there: Bucket, above: tuple[str, ...], workers: int, names: int
) -> None:
    """Case N03; and as many drops of one name succeed as creations, or one less."""
    answers = there.run([OWN] * workers, workers, names=names, above=above)
    assert {told for each in answers for told in each} == {"ok"}
    expected = {f"t{me}-{step}" for me in range(workers) for step in range(names) if step % 2}
    assert set(list_tables(there.check(), above).names) == expected
    ids = _ids(above, 1, "x")
    answers = there.run([ALTERNATING] * workers, workers, ids=ids, verbs=["create", "drop"])
    assert {told for each in answers[0::2] for told in each} <= {"ok", 5}
    assert {told for each in answers[1::2] for told in each} <= {"ok", 4}
    made = sum(told == "ok" for each in answers[0::2] for told in each)
    dropped = sum(told == "ok" for each in answers[1::2] for told in each)
    left = set(list_tables(there.check(), above).names) - expected
    assert made - dropped == len(left)
    for _ in left:
        assert there.read_by(ids[0])[0] % 2 == 0


LISTED = """
import lance_namespace as ln
from lance.namespace import DirectoryNamespace
catalog = DirectoryNamespace(root=root, **properties)
result = sorted(catalog.list_tables(ln.ListTablesRequest(id=id)).tables)
"""


@PLACES
@pytest.mark.parametrize(
    ("ours", "pylance", "names"),
    [pytest.param(2, 1, 2, id="2-1"), pytest.param(3, 3, 20, id="3-3", marks=pytest.mark.soak)],
)
def test_one_wins_beside_the_official_package(
    there: Bucket, peer: Peer, above: tuple[str, ...], ours: int, pylance: int, names: int
) -> None:
    theirs = 0
    for verb, prefix, refusal in (("create", "t", 5), ("declare", "d", 5), ("create_namespace", "s", 2)):
        answers = there.every(verb, _ids(above, names, prefix), ours, pylance)
        for told in by_name(answers):
            assert told.count("ok") == 1, (verb, told)
            assert set(told[:ours]) <= {"ok", refusal}, (verb, told)
            theirs += sum(each != "ok" for each in told[ours:])
    assert all(len(there.read_by(id)) == 1 for id in _ids(above, names))  # whose, is not asked
    catalog = there.check(orphans=theirs)  # losers of the official package leave their directories
    seen = peer(LISTED, id=list(above), root=there.root, properties=there.properties)
    assert {id[-1] for id in _ids(above, names)} <= set(seen)
    assert set(list_tables(catalog, above).names) <= set(seen)
    ids = _ids(above, names)
    for told in by_name(there.every("drop", ids, ours, pylance)):
        assert set(told[:ours]) <= {"ok", 4}, told
        assert "ok" in told, told
    assert not {id[-1] for id in ids} & set(list_tables(there.catalog, above).names)
