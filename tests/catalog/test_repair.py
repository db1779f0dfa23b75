"""Repairs: what they change, that they can be taken back, and what happens around them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import tiltyard as ty
from catalog_damage import damage, duplicate, put_rows
from peer import Peer, PeerError
from tiltyard.catalog import Catalog, open_catalog
from tiltyard.catalog.catalog import Catalog as Opened
from tiltyard.catalog.check import check
from tiltyard.catalog.findings import PRUNE, REGISTER_ORPHANS, RENAME
from tiltyard.catalog.repair import Plan, plan_repair, repair, undo
from tiltyard.catalog.round import Draft
from tiltyard.catalog.rows import NAMESPACE, TABLE, Row
from tiltyard.errors import (
    CatalogDamaged,
    CorruptFile,
    InvalidInput,
    RetryableConflict,
    StoreError,
    TableNotFound,
    UnsupportedFeature,
)
from tiltyard.session import Session
from tiltyard.store import Created, open_store
from tiltyard.store.local import LocalStore
from tiltyard.testing.faults import Crashed, Fault, FaultyStore, Rule
from tiltyard.testing.faults import Plan as Faults

DATA = pa.table({"x": [1, 2]})


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    lake = ty.connect(tmp_path / "lake")
    lake.create_table("a.t", DATA)
    lake.create_table("r", DATA)
    lake.create_namespace("b", {"k": "v"})
    return lake.catalog


def planned(catalog: Catalog, *options: str) -> Plan:
    return plan_repair(check(catalog, grace_seconds=0), options)


def visible(catalog: Catalog) -> tuple[list[str], list[str]]:
    """All that a reader sees: the rows, in any order, and the names at the root."""
    register = open_catalog(catalog.uri, session=Session()).register()
    return sorted(map(repr, register.rows)), sorted(
        each.name for each in Path(catalog.uri).iterdir() if not each.name.startswith("_")
    )


AS_2_0 = """
import shutil
rows = lance.dataset(p).to_table()
shutil.rmtree(p)
lance.write_dataset(rows, p, data_storage_version="2.0") and None
"""


@pytest.mark.parametrize("is_old", [False, True], ids=["of today", "of the first programs"])
def test_a_catalog_with_every_damage_is_mended_in_one_version_and_the_repair_taken_back(
    is_old: bool, catalog: Catalog, peer: Peer
) -> None:
    root = Path(catalog.uri)
    duplicate(root, "a$t")
    duplicate(root, "b", metadata='{"z":"1"}')
    put_rows(root, Row("p$q$lost", TABLE, "11111111_lost"), Row("r", NAMESPACE))
    ty.create_table(root / "22222222_a$t", DATA)
    (root / "ghost.lance" / "data").mkdir(parents=True)
    (root / "33333333_a$e").mkdir()
    (root / "d.lance").mkdir()
    (root / "d.lance" / ".lance-reserved").write_bytes(b"reserved")
    if is_old:
        peer(AS_2_0, p=f"{root}/__manifest")
        catalog = open_catalog(str(root), session=Session())
    before = visible(catalog)
    version = catalog.register().version

    plan = planned(catalog, PRUNE, REGISTER_ORPHANS, RENAME)
    made = repair(catalog, plan)
    assert made.version == catalog.register().version == version + 1
    assert made.not_done == ()
    assert not check(catalog, grace_seconds=0).damaged
    lake = ty.connect(root)
    assert lake.tables(declared=True) == ["a.t", "a.t_2", "d", "r_table"]
    assert lake["r_table"].to_arrow() == DATA
    assert lake["a.t_2"].to_arrow() == DATA
    assert lake.properties("a.t") == {}
    assert catalog.register().rows.all("b") == (Row("b", NAMESPACE, metadata='{"k":"v","z":"1"}'),)
    assert not (root / "ghost.lance").exists()

    told = undo(catalog, made.undo)
    assert "a$t: has 2 rows again" in told
    assert visible(catalog) == before
    assert undo(catalog, made.undo) == ()


def test_what_has_no_option_is_not_done_without_it(catalog: Catalog) -> None:
    put_rows(catalog.uri, Row("a$lost", TABLE, "11111111_lost"))
    plan = planned(catalog)
    assert plan.is_empty
    assert [each.kind for each in plan.left] == ["missing-directory"]
    with pytest.raises(InvalidInput, match="nothing to repair"):
        repair(catalog, plan)
    with pytest.raises(InvalidInput, match="--prune"):
        planned(catalog, "--all")
    assert not Path(catalog.uri, "_tiltyard").exists()


def test_a_damaged_catalog_is_readable_meanwhile_and_refuses_changes(catalog: Catalog) -> None:
    duplicate(catalog.uri, "a$t")
    lake = ty.connect(catalog.uri)
    assert lake.tables() == ["a.t", "r"]
    assert lake["r"].count() == 2
    assert lake.namespaces() == ["a", "b"]
    for changes in (lambda: lake.create_table("a.u", DATA), lambda: lake.drop("r"), lambda: lake["a.t"]):
        with pytest.raises(CatalogDamaged, match="tiltyard catalog repair"):
            changes()
    repair(catalog, planned(catalog))
    assert lake["a.t"].count() == 2
    lake.create_table("a.u", DATA)


def test_a_marker_that_hides_a_table_goes_and_comes_back(catalog: Catalog) -> None:
    mark = Path(catalog.uri, "r.lance", ".lance-deregistered")
    mark.write_bytes(b"reserved")
    with pytest.raises(TableNotFound):
        ty.connect(catalog.uri).table("r")
    made = repair(catalog, planned(catalog))
    assert not mark.exists()
    assert ty.connect(catalog.uri)["r"].count() == 2
    assert undo(catalog, made.undo) == ("r.lance/.lance-deregistered: is there again",)
    assert mark.read_bytes() == b"reserved"


def test_nothing_is_done_when_a_row_is_not_as_the_plan_saw_it(catalog: Catalog) -> None:
    duplicate(catalog.uri, "a$t")
    plan = planned(catalog)
    duplicate(catalog.uri, "b", metadata=None)  # another row, which the plan does not touch
    put_rows(catalog.uri, Row("a$t", TABLE, "44444444_a$t"))
    before = visible(catalog)
    with pytest.raises(RetryableConflict, match="Check again"):
        repair(catalog, plan)
    assert visible(catalog) == before
    assert list(Path(catalog.uri, "_tiltyard", "repair").iterdir()) == []


def test_a_repair_whose_rows_were_changed_since_is_not_taken_back(catalog: Catalog) -> None:
    duplicate(catalog.uri, "a$t")
    made = repair(catalog, planned(catalog))
    ty.connect(catalog.uri).drop("a.t")
    before = visible(catalog)
    with pytest.raises(RetryableConflict, match="nothing was taken back"):
        undo(catalog, made.undo)
    assert visible(catalog) == before


def test_rows_of_other_programs_and_their_columns_go_through_a_repair_and_back(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("object_id", pa.string(), False),
            pa.field("object_type", pa.string(), False),
            pa.field("location", pa.string()),
            pa.field("metadata", pa.string()),
            pa.field("base_objects", pa.list_(pa.field("object_id", pa.string()))),
            pa.field("more", pa.list_(pa.int64())),
        ]
    )
    rows = [
        {"object_id": "n", "object_type": "namespace", "more": [1]},
        {"object_id": "n", "object_type": "namespace", "more": [2], "base_objects": ["x"]},
        {"object_id": "v", "object_type": "view", "metadata": "{", "more": [3]},
    ]
    ty.create_table(tmp_path / "__manifest", pa.Table.from_pylist(rows, schema))
    catalog = open_catalog(str(tmp_path))
    before = visible(catalog)
    made = repair(catalog, planned(catalog))
    (kept,) = catalog.register().rows.all("n")
    assert (kept.extra, kept.base_objects) == ({"more": [2]}, ("x",))
    assert catalog.register().rows.all("v")[0].extra == {"more": [3]}
    undo(catalog, made.undo)
    assert visible(catalog) == before


def test_an_old_register_gets_its_usual_form(tmp_path: Path, peer: Peer) -> None:
    lake = ty.connect(tmp_path)
    lake.create_namespace("a")
    peer("lance.dataset(root + '/__manifest').create_scalar_index('object_id', 'BTREE')", root=str(tmp_path))
    catalog = lake.catalog
    assert planned(catalog).canonical
    repair(catalog, planned(catalog))
    assert check(catalog).findings == ()
    assert lake.namespaces() == ["a"]


def test_the_official_package_can_change_the_catalog_again(catalog: Catalog, peer: Peer) -> None:
    peer(
        """
ds = lance.dataset(root + "/__manifest")
lance.write_dataset(ds.to_table(filter="object_id = 'a$t'"), root + "/__manifest", mode="append")
result = None
""",
        root=catalog.uri,
    )
    make = """
from lance.namespace import DirectoryNamespace
from lance_namespace import CreateNamespaceRequest, DescribeTableRequest
ns = DirectoryNamespace(root=root)
ns.create_namespace(CreateNamespaceRequest(id=["new"]))
result = lance.dataset(ns.describe_table(DescribeTableRequest(id=["a", "t"])).location).count_rows()
"""
    with pytest.raises(PeerError, match="duplicate object_id"):
        peer(make, root=catalog.uri)
    repair(catalog, planned(catalog))
    assert peer(make, root=catalog.uri) == 2
    assert ty.connect(catalog.uri).namespaces() == ["a", "b", "new"]


# -- around the undo file ------------------------------------------------------------------------


def test_the_undo_file_is_for_people_too(catalog: Catalog) -> None:
    duplicate(catalog.uri, "a$t", metadata='{"k":"v"}')
    made = repair(catalog, planned(catalog))
    value = json.loads(Path(catalog.uri, made.undo).read_text())
    (rows,) = value["rows"]
    assert (rows["object_id"], len(rows["before"]), len(rows["after"])) == ("a$t", 2, 1)
    assert rows["after"][0]["metadata"] == '{"k":"v"}'
    assert value["done"] == ["a$t: keep one of the rows"]


UNDO: dict[str, object] = {"format": 1, "rows": [], "moved": {}, "set_aside": {}, "marks": {}}


def test_bad_undo_files_are_refused_and_change_nothing(catalog: Catalog) -> None:
    directory = Path(catalog.uri, "_tiltyard", "repair")
    directory.mkdir(parents=True)
    before = visible(catalog)
    for content in ("", "{", "[]", '{"format":1}', '{"format":1,"rows":[{}],"marks":{},"set_aside":{}}'):
        (directory / "x.json").write_text(content)
        with pytest.raises(CorruptFile):
            undo(catalog, "x.json")
    for field, bad in (
        ("format", 1e400),
        ("format", "9" * 5_000),
        ("format", True),
        ("set_aside", 5),
        ("set_aside", {"x": 5}),
        ("set_aside", ["x"]),
        ("moved", {"x": ["y"]}),
        ("marks", {"\ud800": "eA=="}),
        ("marks", {"r.lance/.lance-deregistered": "\u00e9"}),
        ("marks", {"r.lance/.lance-deregistered": 5}),
        ("rows", [{"object_id": "x", "arrow": ["zz", "zz"]}]),
        ("rows", [5]),
        ("forgotten", {"tiltyard.trash.x": 5}),
    ):
        (directory / "x.json").write_text(json.dumps({**UNDO, field: bad}))
        with pytest.raises(CorruptFile):
            undo(catalog, "x.json")
    for number in ("2", "9" * 4_000):
        (directory / "x.json").write_text(f'{{"format":{number}}}')
        with pytest.raises(UnsupportedFeature):
            undo(catalog, "x.json")
    inside = next(each.name for each in Path(catalog.uri).iterdir() if each.name.endswith("_a$t"))
    for field, places in (
        ("set_aside", {"__manifest/x": "r.lance"}),
        ("set_aside", {"__manifest/x": "_tiltyard/repair/u/__manifest/x"}),
        ("set_aside", {"x": "r.lance"}),
        ("set_aside", {f"{inside}/x": f"_tiltyard/repair/u/{inside}/x"}),
        ("set_aside", {"../x": "_tiltyard/repair/u/../x"}),
        ("set_aside", {"x": "_tiltyard/repair/../x"}),
        ("moved", {"x.lance": "r.lance"}),
        ("moved", {"__manifest/x": "r.lance"}),
        ("marks", {"__manifest/.lance-deregistered": ""}),
        ("marks", {"r.lance/data/.lance-deregistered": ""}),
        ("marks", {"r.lance/_versions/x": ""}),
        ("marks", {"../../x": ""}),
        ("forgotten", {"lance.namespace.manifest.deleted": "true"}),
    ):
        (directory / "x.json").write_text(json.dumps({**UNDO, field: places}))
        with pytest.raises(InvalidInput):
            undo(catalog, "x.json")
    assert not list(Path(catalog.uri).rglob(".lance-deregistered"))
    for path in ("no.json", "../x.json", "/etc/passwd", "x.txt"):
        with pytest.raises(InvalidInput):
            undo(catalog, path)
    assert visible(catalog) == before


def faulty(catalog: Catalog, rule: Rule) -> Catalog:
    store = FaultyStore(open_store(catalog.uri), Faults(rule))
    return Opened(store, catalog.settings, Session())


def test_without_an_undo_file_nothing_is_repaired(catalog: Catalog) -> None:
    duplicate(catalog.uri, "a$t")
    plan, before = planned(catalog), visible(catalog)
    failing = faulty(catalog, Rule(Fault.FAIL_BEFORE, "create", path="_tiltyard/*"))
    with pytest.raises(StoreError, match="nothing was repaired"):
        repair(failing, plan)
    assert visible(catalog) == before


def test_what_becomes_a_table_while_it_is_copied_aside_stays(catalog: Catalog) -> None:
    """As in buckets, which have no step that moves a directory."""
    ghost = Path(catalog.uri) / "ghost.lance"
    (ghost / "data").mkdir(parents=True)
    (ghost / "data" / "x.lance").write_bytes(b"rows")
    plan = planned(catalog, PRUNE)

    class Copying(LocalStore):
        def move_dir(self, source: str, target: str) -> Created:
            raise UnsupportedFeature("there is no such step")

        def copy_create(self, source: str, target: str) -> Created:
            self.put("ghost.lance/_versions/1.manifest", b"")
            return super().copy_create(source, target)

    done = repair(Opened(Copying(catalog.uri), catalog.settings, Session()), plan)
    assert done.not_done == ("ghost.lance (it has become a table meanwhile)",)
    assert (ghost / "data" / "x.lance").read_bytes() == b"rows"
    assert not [each for each in (Path(catalog.uri) / "_tiltyard").rglob("*.lance") if each.is_file()]


def test_a_crash_at_any_call_leaves_the_catalog_as_it_was_or_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILTYARD_DURABLE", "0")  # it is processes that die here
    at, states = 1, set()
    while True:
        root = tmp_path / str(at)
        lake = ty.connect(root)
        lake.create_namespace("a")
        damage(root, lambda draft: twice(draft))
        (root / "ghost.lance" / "data").mkdir(parents=True)
        plan, before = planned(lake.catalog, PRUNE), visible(lake.catalog)
        try:
            repair(faulty(lake.catalog, Rule(Fault.CRASH, "*", at=at)), plan)
            break
        except Crashed:
            pass
        rows = len(open_catalog(str(root), session=Session()).register().rows)
        states.add((rows, (root / "ghost.lance").exists()))
        files = list((root / "_tiltyard" / "repair").glob("*.json"))
        if rows == 1:
            (file,) = files
            undo(open_catalog(str(root), session=Session()), file.name)
            assert visible(lake.catalog) == before
        again = planned(lake.catalog, PRUNE)
        repair(open_catalog(str(root), session=Session()), again)
        assert check(lake.catalog, grace_seconds=0).findings == ()
        at += 1
    assert states >= {(2, True), (1, True)}


def twice(draft: Draft) -> None:
    draft.put_beside(Row("a", NAMESPACE))
