"""What a table is in each mode: rows, directories, markers, damage, and names that others write."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

import lakes
from catalog_damage import put_rows
from tiltyard.catalog import Catalog, open_catalog
from tiltyard.catalog.check import check
from tiltyard.catalog.findings import PRUNE
from tiltyard.catalog.found import find_table
from tiltyard.catalog.listing import list_tables
from tiltyard.catalog.markers import DEREGISTERED, RESERVED
from tiltyard.catalog.namespaces import create_namespace
from tiltyard.catalog.operations.opening import opened
from tiltyard.catalog.renaming import rename_table
from tiltyard.catalog.repair import plan_repair, repair
from tiltyard.catalog.round import Draft
from tiltyard.catalog.rows import Row
from tiltyard.catalog.tables import create_table, declare_table, deregister_table
from tiltyard.catalog.trash import drop_table
from tiltyard.dataset import write_dataset
from tiltyard.errors import CatalogDamaged, InvalidInput, TableNotFound, UnsupportedFeature
from tiltyard.session import Session

DATA = pa.table({"a": [1, 2]})

V1 = {"manifest_enabled": "false"}
MIXED: dict[str, str] = {}
MIGRATION = {"dir_listing_to_manifest_migration_enabled": "true"}
MANIFEST = {"dir_listing_enabled": "false"}

Open = Callable[..., Catalog]


@pytest.fixture
def open_(tmp_path: Path) -> Open:
    """The catalog of the test as a new process would open it."""

    def opened(properties: dict[str, str] | None = None) -> Catalog:
        return open_catalog(str(tmp_path / "lake"), properties=properties or {}, session=Session())

    return opened


def is_there(catalog: Catalog, name: str) -> bool:
    """Whether a root table is found; listing says the same."""
    try:
        find_table(catalog, (name,))
    except TableNotFound:
        found = False
    else:
        found = True
    assert (name in list_tables(catalog).names) is found
    return found


def put(row: Row, draft: Draft) -> None:
    draft.put(row)


def test_a_directory_with_a_version_is_a_table_where_directories_are_looked_at(
    open_: Open, tmp_path: Path
) -> None:
    write_dataset(DATA, str(tmp_path / "lake" / "plain.lance"))
    for properties in (V1, MIXED, MIGRATION):
        assert is_there(open_(properties), "plain")
        found = find_table(open_(properties), ("plain",))
        assert (found.row, found.properties, found.declared_only) == (None, None, False)
    assert not is_there(open_(MANIFEST), "plain")


def test_looking_creates_nothing(open_: Open, tmp_path: Path) -> None:
    for properties in (V1, MIXED, MIGRATION, MANIFEST):
        assert not is_there(open_(properties), "t")
        assert list_tables(open_(properties)).names == ()
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize("debris", ["file", "empty", "data", "versions", "temporary"])
def test_what_holds_no_version_and_no_marker_is_no_table(open_: Open, tmp_path: Path, debris: str) -> None:
    place = tmp_path / "lake" / "ghost.lance"
    place.parent.mkdir()
    if debris == "file":
        place.write_bytes(b"no directory")
    elif debris == "empty":
        place.mkdir()
    elif debris == "data":
        (place / "data").mkdir(parents=True)
    elif debris == "versions":
        (place / "_versions").mkdir(parents=True)
    else:
        (place / "_versions").mkdir(parents=True)
        (place / "_versions" / ".tmp123").write_bytes(b"")
    for properties in (V1, MIXED, MIGRATION, MANIFEST):
        assert not is_there(open_(properties), "ghost")


def test_a_reserved_marker_alone_declares_a_table(open_: Open, tmp_path: Path) -> None:
    place = tmp_path / "lake" / "d.lance"
    place.mkdir(parents=True)
    (place / RESERVED).write_bytes(b"")
    for properties in (V1, MIXED, MIGRATION):
        assert is_there(open_(properties), "d")
        assert find_table(open_(properties), ("d",)).declared_only is True


def test_another_programs_deregistered_marker_hides_a_directory_and_its_row_in_the_default_mode(
    open_: Open, tmp_path: Path
) -> None:
    create_table(open_(), ("t",), DATA)
    write_dataset(DATA, str(tmp_path / "lake" / "plain.lance"))
    for name in ("t", "plain"):
        (tmp_path / "lake" / f"{name}.lance" / DEREGISTERED).write_bytes(b"reserved")
        assert not is_there(open_(V1), name)
        assert not is_there(open_(MIXED), name)
    assert is_there(open_(MIGRATION), "t")
    assert not is_there(open_(MIGRATION), "plain")
    assert is_there(open_(MANIFEST), "t")


def test_a_row_is_preferred_to_the_directory_and_brings_the_properties(open_: Open) -> None:
    create_table(open_(), ("t",), DATA, properties={"k": "v"})
    found = find_table(open_(), ("t",))
    assert found.properties == {"k": "v"}
    assert found.row is not None
    assert find_table(open_(V1), ("t",)).properties is None


def test_a_row_without_a_directory_is_a_declared_table(open_: Open, tmp_path: Path) -> None:
    create_table(open_(), ("t",), DATA)
    shutil.rmtree(tmp_path / "lake" / "t.lance")
    assert find_table(open_(), ("t",), check_declared=True).declared_only is True
    assert is_there(open_(), "t")
    assert list_tables(open_(), include_declared=False).names == ()


def test_a_namespace_is_no_table(open_: Open) -> None:
    create_namespace(open_(), ("n",))
    assert not is_there(open_(), "n")
    with pytest.raises(InvalidInput, match="Table ID cannot be empty"):
        find_table(open_(), ())


def test_ids_with_parents_need_a_register(open_: Open) -> None:
    with pytest.raises(UnsupportedFeature, match="only supported when manifest mode is enabled"):
        find_table(open_(V1), ("n", "t"))
    with pytest.raises(TableNotFound):
        find_table(open_(MIXED), ("n", "t"))


def test_migration_lists_a_directory_once_under_the_name_that_a_row_gives_it(
    open_: Open, tmp_path: Path
) -> None:
    write_dataset(DATA, str(tmp_path / "lake" / "plain.lance"))
    catalog = open_(MIGRATION)
    catalog.mutate(lambda draft: draft.put(Row("other", "table", "plain.lance")))
    assert list_tables(catalog).names == ("other",)
    assert not is_there(catalog, "plain")
    assert list_tables(open_(MIXED)).names == ("other", "plain")


def test_two_rows_of_one_id_are_listed_and_refused_by_name(open_: Open, tmp_path: Path) -> None:
    catalog = open_()
    create_table(catalog, ("t",), DATA)
    register = str(tmp_path / "lake" / "__manifest")
    twice = catalog.register().rows.batch
    write_dataset(pa.Table.from_batches([twice]), register, mode="append")
    assert "t" in list_tables(open_()).names
    with pytest.raises(CatalogDamaged, match="'t'"):
        find_table(open_(), ("t",))
    with pytest.raises(CatalogDamaged):
        create_table(open_(), ("u",), DATA)
    assert not (tmp_path / "lake" / "u.lance").exists()


def test_a_row_under_a_name_that_others_percent_encode_is_found_at_either_directory(
    open_: Open, tmp_path: Path
) -> None:
    catalog = open_()
    for name, place in (("raw#", "1_raw#"), ("enc#", "2_enc%23")):
        write_dataset(DATA, str(tmp_path / "lake" / place))
        row = Row(name, "table", place.replace("%23", "#"))
        catalog.mutate(partial(put, row))
        assert find_table(catalog, (name,), check_declared=True).declared_only is False
        assert find_table(catalog, (name,)).location == place


def test_locations_stay_below_the_root(open_: Open, tmp_path: Path) -> None:
    catalog = open_()
    write_dataset(DATA, str(tmp_path / "lake" / "deep" / "er"))
    for name, location in (("a", "/deep//er/"), ("b", "deep/er")):
        catalog.mutate(partial(put, Row(name, "table", location)))
        assert find_table(catalog, (name,)).location == "deep/er"
    catalog.mutate(lambda draft: draft.put(Row("c", "table", "../up")))
    with pytest.raises(CatalogDamaged, match="not the path of a directory below"):
        find_table(catalog, ("c",))
    assert list_tables(catalog).names == ("a", "b", "c")


def test_the_error_names_what_is_near(open_: Open) -> None:
    create_table(open_(), ("flights",), DATA)
    with pytest.raises(TableNotFound, match="flights"):
        find_table(open_(), ("flight",))


def test_the_uri_is_a_url(open_: Open, tmp_path: Path) -> None:
    create_namespace(open_(), ("n",))
    found = declare_table(open_(), ("n", "a b"))
    assert found.uri == f"file://{tmp_path}/lake/{found.location.replace(' ', '%20')}"


@pytest.mark.parametrize(
    "location", ["__manifest", "__manifest/x", "_tiltyard", "r.lance/data", "/r.lance//data", "a/_versions"]
)
def test_a_row_that_names_a_part_of_something_else_is_damage(tmp_path: Path, location: str) -> None:
    """Another program may have put it: what is done to such a table would be done to that."""
    root = str(tmp_path / "lake")
    lakes.put(lakes.fresh(root), ("r",), 1)
    create_namespace(lakes.fresh(root), ("n",))
    put_rows(root, Row("n$bad", "table", location))
    id = ("n", "bad")
    for call in (
        lambda: find_table(lakes.fresh(root), id),
        lambda: opened(lakes.fresh(root), id),
        lambda: drop_table(lakes.fresh(root), id, purge=True),
        lambda: rename_table(lakes.fresh(root), id, ("n", "worse")),
        lambda: deregister_table(lakes.fresh(root), id),
        lambda: create_table(lakes.fresh(root), id, pa.table({"a": [1]}), mode="overwrite"),
    ):
        with pytest.raises(CatalogDamaged, match="tiltyard catalog repair"):
            call()
    (finding,) = (each for each in check(lakes.fresh(root)).findings if each.kind == "private-place")
    assert (finding.subject, finding.damage) == ("n$bad", True)
    repair(lakes.fresh(root), plan_repair(check(lakes.fresh(root)), [PRUNE]))
    assert not check(lakes.fresh(root)).damaged
    assert lakes.values(lakes.fresh(root), ("r",)) == [1]
    assert list_tables(lakes.fresh(root), ("n",)).names == ()
