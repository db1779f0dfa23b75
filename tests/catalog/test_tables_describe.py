"""What describe tells: place and properties without opening anything; versions, tags and sizes on request."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tiltyard.catalog import Catalog, open_catalog
from tiltyard.catalog.namespaces import create_namespace
from tiltyard.catalog.rows import Row
from tiltyard.catalog.settings import Settings
from tiltyard.catalog.tables import create_table, declare_table, describe, migrate
from tiltyard.dataset import write_dataset
from tiltyard.errors import (
    BranchNotFound,
    CatalogDamaged,
    InvalidInput,
    TableNotFound,
    TagNotFound,
    VersionNotFound,
)
from tiltyard.session import Session
from tiltyard.store import open_store
from tiltyard.testing.faults import FaultyStore, Plan

DATA = pa.table({"a": [1, 2, 3]})


@pytest.fixture
def lake(tmp_path: Path) -> Catalog:
    catalog = open_catalog(str(tmp_path / "lake"), session=Session())
    create_namespace(catalog, ("n",))
    return catalog


@pytest.mark.parametrize("id", [("t",), ("n", "t")])
def test_versions_tags_and_sizes(lake: Catalog, id: tuple[str, ...]) -> None:
    _, dataset = create_table(lake, id, DATA, properties={"k": "v"})
    dataset.tags.create("gold", 1)
    dataset.delete("a = 1")
    plain = describe(lake, id)
    assert (plain.version, plain.schema, plain.statistics, plain.declared_only) == (None, None, None, None)
    assert plain.properties == {"k": "v"}
    seen = describe(lake, id, detailed=True)
    assert (seen.version, seen.schema.names, seen.declared_only) == (2, ["a"], False)
    assert seen.statistics is not None
    sizes = dict(seen.statistics)
    assert sizes.pop("total_files_size") > 0
    assert sizes == {
        "total_rows": 2,
        "total_fragments": 1,
        "total_data_files": 1,
        "total_data_file_rows": 3,
        "total_deletion_files": 1,
        "total_deletion_file_rows": 1,
    }
    assert describe(lake, id, version=1).version == 1
    assert describe(lake, id, tag="gold").version == 1
    assert describe(lake, id, branch="main").version == 2
    with pytest.raises(VersionNotFound):
        describe(lake, id, version=9, detailed=True)
    with pytest.raises(TagNotFound):
        describe(lake, id, tag="silver")
    with pytest.raises(BranchNotFound):
        describe(lake, id, branch="side")
    with pytest.raises(InvalidInput, match="at most one"):
        describe(lake, id, version=1, tag="gold")


def test_a_version_of_a_declared_table_is_not_found(lake: Catalog) -> None:
    declare_table(lake, ("d",))
    with pytest.raises(TableNotFound, match="declared and holds no version"):
        describe(lake, ("d",), version=1)


def test_managed_versioning_is_told(lake: Catalog) -> None:
    create_table(lake, ("t",), DATA)
    managed = open_catalog(lake.uri, properties={"table_version_tracking_enabled": "true"}, session=Session())
    assert describe(managed, ("t",)).managed_versioning
    assert not describe(lake, ("t",)).managed_versioning


def test_properties_that_cannot_be_read_are_told_and_the_rest_works(lake: Catalog) -> None:
    create_table(lake, ("n", "t"), DATA)
    lake.mutate(lambda draft: draft.put(Row("n$bad", "table", "x", metadata='{"a": 1}')))
    with pytest.raises(CatalogDamaged, match=r"n\$bad"):
        describe(lake, ("n", "bad"))
    assert describe(lake, ("n", "t")).properties is None


def test_a_warm_describe_of_a_child_table_looks_at_the_register_and_nothing_else(
    lake: Catalog, tmp_path: Path
) -> None:
    create_table(lake, ("n", "t"), DATA)
    plan = Plan()
    store: object = FaultyStore(open_store(str(tmp_path / "lake")), plan)
    warm = Catalog(store, Settings.parse({}), Session())  # type: ignore[arg-type]
    describe(warm, ("n", "t"))
    plan.trace.clear()
    describe(warm, ("n", "t"))
    assert {path.split("/")[0] for call, path in plan.trace if call != "now_ns"} == {"__manifest"}
    assert not plan.calls("read") + plan.calls("map")


def test_migration_gives_rows_in_one_rewrite(lake: Catalog, tmp_path: Path) -> None:
    root = tmp_path / "lake"
    create_table(lake, ("row",), DATA)
    for name in ("p1", "p2"):
        write_dataset(DATA, str(root / f"{name}.lance"))
    for name in ("ghost", "declared", "hidden"):
        (root / f"{name}.lance").mkdir()
    (root / "declared.lance" / ".lance-reserved").write_bytes(b"reserved")
    write_dataset(DATA, str(root / "hidden.lance"))
    (root / "hidden.lance" / ".lance-deregistered").write_bytes(b"reserved")
    before = lake.register().version
    assert migrate(lake) == 2
    assert lake.register().version == before + 1
    assert migrate(lake) == 0
    assert lake.register().version == before + 1
    rows = open_catalog(str(root), properties={"dir_listing_enabled": "false"}, session=Session())
    assert describe(rows, ("p1",), detailed=True).version == 1
    assert [row.object_id for row in rows.register().rows] == ["n", "row", "p1", "p2"]
    v1 = open_catalog(str(root), properties={"manifest_enabled": "false"}, session=Session())
    for other in (rows, v1):
        with pytest.raises(InvalidInput, match="migration needs"):
            migrate(other)
