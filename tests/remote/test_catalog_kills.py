"""Processes that die in the middle of changing a catalog in a bucket: it is as before or as after, a check
finds nothing that is damaged, or a repair mends it, and the next one can go on.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random

import pyarrow as pa
import pytest

import tiltyard as ty
from s3_server import Rule, S3Server
from tiltyard.catalog import Catalog, open_catalog
from tiltyard.catalog.check import check
from tiltyard.catalog.declaring import declare_table
from tiltyard.catalog.findings import PRUNE
from tiltyard.catalog.listing import list_tables
from tiltyard.catalog.namespaces import create_namespace, drop_namespace, list_namespaces
from tiltyard.catalog.purging import purge
from tiltyard.catalog.renaming import rename_table
from tiltyard.catalog.repair import plan_repair, repair, undo
from tiltyard.catalog.tables import create_table
from tiltyard.catalog.trash import drop_table, undrop_table
from tiltyard.errors import (
    NamespaceAlreadyExists,
    NamespaceNotFound,
    TableAlreadyExists,
    TableNotDropped,
    TableNotFound,
    TiltyardError,
)
from tiltyard.session import Session
from workers import Worker

WRITES = "PUT|POST|DELETE"
MAX_WRITES = 40
NO_GRACE = -2.0
"""Seconds: the store tells times to the second, and what was made a moment ago may be of its future."""
DONE = (NamespaceAlreadyExists, NamespaceNotFound, TableAlreadyExists, TableNotDropped, TableNotFound)
"""What whoever comes after a change that was made is told."""

Change = Callable[[Catalog], object]
ROWS = pa.table({"x": [1, 2]})


def _create(*id: str) -> Change:
    return lambda catalog: create_table(catalog, id, ROWS, mode="create")


def _drop(*id: str) -> Change:
    return lambda catalog: drop_table(catalog, id)


CHANGES: dict[str, tuple[list[Change], Change]] = {
    "create at the root": ([], _create("t")),
    "create": ([], _create("n", "t")),
    "declare at the root": ([], lambda catalog: declare_table(catalog, ("t",))),
    "declare": ([], lambda catalog: declare_table(catalog, ("n", "t"))),
    "drop at the root": ([_create("t")], _drop("t")),
    "drop": ([_create("n", "t")], _drop("n", "t")),
    "undrop at the root": ([_create("t"), _drop("t")], lambda catalog: undrop_table(catalog, ("t",))),
    "undrop": ([_create("n", "t"), _drop("n", "t")], lambda catalog: undrop_table(catalog, ("n", "t"))),
    "rename at the root": ([_create("t")], lambda catalog: rename_table(catalog, ("t",), ("u",))),
    "rename": ([_create("n", "t")], lambda catalog: rename_table(catalog, ("n", "t"), ("n", "u"))),
    "make a namespace": ([], lambda catalog: create_namespace(catalog, ("m",))),
    "remove a namespace": ([], lambda catalog: drop_namespace(catalog, ("n",))),
    "purge": ([_create("n", "t"), _drop("n", "t")], lambda catalog: purge(catalog, 0)),
    "purge at the root": ([_create("t"), _drop("t")], lambda catalog: purge(catalog, 0)),
}
"""What is there before, and what a process dies in."""


class There:
    """Catalogs in a bucket, each seen by processes that remember nothing."""

    def __init__(self, s3: S3Server, bucket: str) -> None:
        self.s3, self._bucket, self._number = s3, bucket, 0

    def new(self, before: list[Change]) -> str:
        self._number += 1
        root = f"s3://{self._bucket}/lake{self._number}"
        create_namespace(self.open(root), ("n",))
        for change in before:
            change(self.open(root))
        return root

    def open(self, root: str, **options: object) -> Catalog:
        properties = {f"storage.{name}": value for name, value in self.s3.options(**options).items()}
        return open_catalog(root, properties=properties, session=Session())

    def shown(self, root: str) -> set[str]:
        """Names of namespaces and tables; every table that is written can be read."""
        catalog = self.open(root)
        spaces = list_namespaces(catalog, ()).names
        names = {f"{each}/" for each in spaces}
        lake = ty.connect(root, storage_options=self.s3.options())
        for above in ((), *((each,) for each in spaces)):
            for name in list_tables(catalog, above).names:
                names.add(".".join((*above, name)))
            for name in list_tables(catalog, above, include_declared=False).names:
                assert lake[".".join((*above, name))].scan().to_arrow() == ROWS
        return names

    def mended(self, root: str) -> None:
        """A check finds no damage, or a repair leaves none."""
        report = check(self.open(root), grace_seconds=NO_GRACE)
        if report.damaged:
            repair(self.open(root), plan_repair(report, [PRUNE]))
            assert not check(self.open(root), grace_seconds=NO_GRACE).damaged


@pytest.fixture
def there(s3: S3Server, bucket: str) -> There:
    return There(s3, bucket)


NAMED = ("create", "drop", "rename")
SHORT = ("create", "drop at the root", "rename at the root")
"""Those of `make test`; all others are in the soak."""


@pytest.mark.parametrize(
    "name",
    [name if name in SHORT else pytest.param(name, marks=pytest.mark.soak) for name in CHANGES],
)
def test_whoever_dies_between_two_requests_leaves_a_catalog_of_before_or_after(
    name: str, there: There
) -> None:
    """From the k-th writing request on nothing arrives, for every k."""
    before, change = CHANGES[name]
    whole = there.new(before)
    was = there.shown(whole)
    change(there.open(whole))
    became = there.shown(whole)
    died = 0
    for k in range(MAX_WRITES):
        root = there.new(before)
        dead = Rule("drop", WRITES, skip=k, times=1 << 30)
        with there.s3.breaking(dead):
            try:
                change(there.open(root, client_max_retries=0, tiltyard_conditions="trust"))
            except TiltyardError:
                died += 1
        if dead.struck <= k:
            break
        assert there.shown(root) in (was, became), k
        there.mended(root)
        _go_on(there, root, change)
    assert k < MAX_WRITES - 1
    assert died


def _go_on(there: There, root: str, change: Change) -> None:
    """The next one does the same, if it is still to be done, and makes another table."""
    with suppress(*DONE):
        change(there.open(root))
    found = there.shown(root)
    create_namespace(there.open(root), ("n",), mode="exist_ok")
    create_table(there.open(root), ("n", "another"), ROWS)
    assert there.shown(root) == found | {"n/", "n.another"}


KILLED = """
from tiltyard.catalog import open_catalog
from tiltyard.catalog.renaming import rename_table
from tiltyard.catalog.tables import create_table
from tiltyard.catalog.trash import drop_table
catalog = open_catalog(root, properties=properties)
if verb == "create": create_table(catalog, id, pa.table({"x": [1, 2]}), mode="create")
elif verb == "drop": drop_table(catalog, id)
elif verb == "rename": rename_table(catalog, id, (*id[:-1], "u"))
"""


@pytest.mark.parametrize("kills", [2, pytest.param(60, marks=pytest.mark.soak)])
def test_whoever_is_killed_leaves_a_catalog_of_before_or_after(kills: int, there: There) -> None:
    """SIGKILL while a writing request is on its way, which then arrives or does not."""
    draw = Random(kills)
    for number in range(kills):
        worker = Worker("tiltyard.lance")
        verb, at_root = NAMED[number % 3], draw.random() < 0.5
        before, change = CHANGES[f"{verb} at the root" if at_root else verb]
        root = there.new(before)
        was = there.shown(root)
        rule = Rule(draw.choice(("hold", "held")), WRITES, skip=draw.randrange(4))
        with there.s3.breaking(rule):
            options = there.s3.options(tiltyard_conditions="trust")
            worker.begin(
                KILLED,
                root=root,
                properties={f"storage.{name}": value for name, value in options.items()},
                verb=verb,
                id=("t",) if at_root else ("n", "t"),
            )
            while not rule.reached.wait(0.05):
                assert not worker.has_answered, worker.answer()
            worker.kill()
        rule.let_go.set()
        assert rule.ended.wait(30)
        found = there.shown(root)
        moved = {each.replace("t", "u") for each in was} if verb == "rename" else was ^ {"t", "n.t"}
        assert found in (was, moved, was ^ {"t" if at_root else "n.t"}), (verb, at_root, rule)
        there.mended(root)
        _go_on(there, root, change)


def test_what_a_creator_left_is_set_aside_and_brought_back(there: There) -> None:
    """A bucket has no step that moves a directory: its objects are copied, and then removed."""
    root = there.new([])
    with there.s3.breaking(Rule("drop", WRITES, "_versions/", times=9)), pytest.raises(TiltyardError):
        _create("t")(there.open(root, client_max_retries=0, tiltyard_conditions="trust"))
    catalog = there.open(root)
    before = [each.path for each in catalog.store.list("t.lance")]
    assert before
    done = repair(catalog, plan_repair(check(catalog, grace_seconds=NO_GRACE), [PRUNE]))
    assert not done.not_done
    assert catalog.store.list("t.lance") == []
    assert undo(catalog, done.undo) == ("t.lance: is there again",)
    assert [each.path for each in catalog.store.list("t.lance")] == before
