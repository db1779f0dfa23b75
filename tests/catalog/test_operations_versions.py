"""Tags, versions, transactions, indices and metadata of a table of a catalog."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from peer import Peer
from tiltyard.catalog.catalog import Catalog, open_catalog
from tiltyard.catalog.operations import (
    branching,
    indexing,
    metadata,
    reading,
    rows,
    tagging,
    transactions,
    versions,
)
from tiltyard.catalog.operations.metadata import FieldUpdate
from tiltyard.catalog.operations.opening import opened
from tiltyard.catalog.operations.schema_json import schema_to_json
from tiltyard.catalog.operations.transactions import Action
from tiltyard.catalog.tables import create_table
from tiltyard.errors import (
    BranchNotFound,
    CleanupRefused,
    FieldNotFound,
    IncompatibleTransaction,
    IndexAlreadyExists,
    IndexNotFound,
    InvalidInput,
    TagAlreadyExists,
    TagNotFound,
    TransactionNotFound,
    UnsupportedFeature,
    VersionNotFound,
)

T = pa.table({"id": [1, 2, 3], "s": ["a", "b", "c"]})
ID = ("t",)


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """A table with five versions, of 3, 6, ... rows."""
    made = open_catalog(tmp_path / "lake")
    create_table(made, ID, T)
    for _ in range(4):
        rows.insert(made, ID, T)
    return made


# -- versions ------------------------------------------------------------------------------------


def test_pages_of_versions_are_exact(catalog: Catalog) -> None:
    for descending, expected in ((False, [1, 2, 3, 4, 5]), (True, [5, 4, 3, 2, 1])):
        for limit in (1, 2, 4, 5, 9, None):
            found: list[int] = []
            after: int | None = None
            for _ in range(9):
                page, after = versions.list_table_versions(
                    catalog, ID, descending=descending, after=after, limit=limit
                )
                found += [each.version for each in page]
                if after is None:
                    break
            assert found == expected
    assert versions.list_table_versions(catalog, ID, limit=0) == ([], None)
    assert versions.list_table_versions(catalog, ID, after=5) == ([], None)


def test_a_version_is_told_by_its_manifest(catalog: Catalog) -> None:
    told = versions.describe_table_version(catalog, ID, 2)
    path = Path("/") / told.manifest_path
    assert (told.version, told.manifest_size) == (2, path.stat().st_size)
    assert told.timestamp_millis == path.stat().st_mtime_ns // 1_000_000
    assert versions.describe_table_version(catalog, ID).version == 5
    for number in (0, -1, 6, 99):
        with pytest.raises(VersionNotFound):
            versions.describe_table_version(catalog, ID, number)


def test_a_restored_version_is_the_newest(catalog: Catalog) -> None:
    version, uuid = versions.restore(catalog, ID, 2)
    assert (version, reading.count(catalog, ID)) == (6, 6)
    assert uuid is not None
    for number in (0, -1, 99):
        with pytest.raises(VersionNotFound):
            versions.restore(catalog, ID, number)
    assert versions.describe_table_version(catalog, ID).version == 6


def test_removed_versions_leave_their_data(catalog: Catalog) -> None:
    data = sorted(path.name for path in Path(catalog.uri).rglob("*.lance") if path.is_file())
    assert versions.delete_table_versions(catalog, ID, [(1, 3), (2, 4), (9, 12)]) == 3
    assert [each["version"] for each in opened(catalog, ID).versions()] == [4, 5]
    assert sorted(path.name for path in Path(catalog.uri).rglob("*.lance") if path.is_file()) == data
    assert reading.count(catalog, ID) == 15
    assert versions.delete_table_versions(catalog, ID, [(1, 3)]) == 0


def test_the_newest_version_and_what_tags_hold_stay(catalog: Catalog) -> None:
    tagging.create_tag(catalog, ID, "gold", 2)
    for ranges in ([(1, 6)], [(5, -1)], [(0, -1)]):
        with pytest.raises(InvalidInput, match="must stay"):
            versions.delete_table_versions(catalog, ID, ranges)
    with pytest.raises(CleanupRefused, match="gold"):
        versions.delete_table_versions(catalog, ID, [(1, 4)])
    with pytest.raises(InvalidInput, match="at most"):
        versions.delete_table_versions(catalog, ID, [(6, 2_000_000)])
    assert len(opened(catalog, ID).versions()) == 5


# -- tags and branches ---------------------------------------------------------------------------


def test_tags_name_versions(catalog: Catalog) -> None:
    tagging.create_tag(catalog, ID, "gold", 2)
    with pytest.raises(TagAlreadyExists):
        tagging.create_tag(catalog, ID, "gold", 3)
    assert tagging.read_tag(catalog, ID, "gold").version == 2
    assert opened(catalog, ID, tag="gold").count_rows() == 6
    tagging.move_tag(catalog, ID, "gold", 4)
    assert {name: tag.version for name, tag in tagging.list_tags(catalog, ID).items()} == {"gold": 4}
    tagging.delete_tag(catalog, ID, "gold")
    for call in (tagging.read_tag, tagging.delete_tag):
        with pytest.raises(TagNotFound):
            call(catalog, ID, "gold")
    with pytest.raises(TagNotFound):
        tagging.move_tag(catalog, ID, "gold", 4)
    with pytest.raises(VersionNotFound):
        tagging.create_tag(catalog, ID, "late", 99)
    for name, version in (("bad name", 1), ("a/b", 1), ("fine", 0), ("fine", -1)):
        with pytest.raises(InvalidInput):
            tagging.create_tag(catalog, ID, name, version)
    assert tagging.list_tags(catalog, ID) == {}


def test_branches_of_the_official_package_are_read_and_removed(catalog: Catalog, peer: Peer) -> None:
    uri = f"{catalog.uri}/t.lance"
    peer("lance.dataset(p).create_branch('b', 2).insert(t)\nresult = 0", p=uri, t=T)
    found = branching.list_branches(catalog, ID)
    assert (list(found), found["b"].parent_version) == (["b"], 2)
    assert reading.count(catalog, ID, branch="b") == 9
    assert reading.count(catalog, ID) == 15
    assert versions.describe_table_version(catalog, ID, branch="b").version == 3
    with pytest.raises(BranchNotFound, match="nope"):
        reading.count(catalog, ID, branch="nope")
    branching.delete_branch(catalog, ID, "b")
    assert branching.list_branches(catalog, ID) == {}


# -- transactions --------------------------------------------------------------------------------


def test_a_transaction_is_found_by_version_and_by_uuid(catalog: Catalog) -> None:
    done = rows.delete(catalog, ID, "id = 1")
    assert done.transaction_id is not None
    by_version = transactions.describe_transaction(catalog, ID, "6")
    assert by_version == transactions.describe_transaction(catalog, ID, done.transaction_id)
    assert by_version.status == "SUCCEEDED"
    expected = {"version": "6", "read_version": "5", "operation": "Delete", "uuid": done.transaction_id}
    assert by_version.properties.items() >= expected.items()
    for which in ("99", "0", "nope", "../x", ""):
        with pytest.raises(TransactionNotFound):
            transactions.describe_transaction(catalog, ID, which)


def test_notes_of_a_transaction_are_kept(catalog: Catalog) -> None:
    def alter(*actions: Action) -> dict[str, str]:
        return transactions.alter_transaction(catalog, ID, "2", actions).properties

    assert alter(Action("set", "owner", "me"))["owner"] == "me"
    assert alter(Action("set", "owner", "you", "Skip"))["owner"] == "me"
    assert alter(Action("set", "owner", "you", "overwrite"))["owner"] == "you"
    with pytest.raises(IncompatibleTransaction):
        alter(Action("set", "other", "x"), Action("set", "owner", "they", "Fail"))
    told = transactions.alter_transaction(catalog, ID, "2", [Action("status", "", "Canceled")])
    assert told.status == "CANCELED"
    after = transactions.describe_transaction(catalog, ID, "2")
    assert (after.status, after.properties["owner"], "other" in after.properties) == (
        "CANCELED",
        "you",
        False,
    )
    assert "owner" not in alter(Action("unset", "owner"))
    with pytest.raises(IncompatibleTransaction):
        alter(Action("unset", "owner", mode="Fail"))
    alter(Action("unset", "owner", mode="SKIP"))


def test_notes_without_sense_change_nothing(catalog: Catalog) -> None:
    bad: list[list[Action]] = [
        [],
        [Action("set", "uuid", "x")],
        [Action("unset", "version")],
        [Action("set", "", "x")],
        [Action("status", "", "Done")],
        [Action("set", "k", "v", "Maybe")],
        [Action("unset", "k", mode="Overwrite")],
    ]
    for actions in bad:
        with pytest.raises(InvalidInput):
            transactions.alter_transaction(catalog, ID, "2", actions)
    assert not (Path(catalog.uri) / "t.lance" / "_alter_transactions").exists()


# -- indices -------------------------------------------------------------------------------------


def test_indices_are_built_listed_and_dropped(catalog: Catalog) -> None:
    assert indexing.create_index(catalog, ID, "id", "btree") is not None
    indexing.create_index(catalog, ID, "s", "SCALAR", name="by_s")
    rows.insert(catalog, ID, T)
    found = indexing.list_indices(catalog, ID)
    assert [(each.name, each.columns, each.kind) for each in found] == [
        ("by_s", ("s",), "BTree"),
        ("id_idx", ("id",), "BTree"),
    ]
    assert (found[1].rows_indexed, found[1].rows_unindexed) == (15, 3)
    assert indexing.index_statistics(catalog, ID, "id_idx").rows_indexed == 15
    assert indexing.list_indices(catalog, ID, version=5) == []
    indexing.drop_index(catalog, ID, "id_idx")
    assert [each.name for each in indexing.list_indices(catalog, ID)] == ["by_s"]
    for call in (indexing.drop_index, indexing.index_statistics):
        with pytest.raises(IndexNotFound):
            call(catalog, ID, "id_idx")


def test_indices_that_cannot_be_built_are_told_apart(catalog: Catalog) -> None:
    indexing.create_index(catalog, ID, "id", "BTREE")
    with pytest.raises(IndexAlreadyExists):
        indexing.create_index(catalog, ID, "id", "BTREE")
    with pytest.raises(FieldNotFound):
        indexing.create_index(catalog, ID, "nope", "BTREE")
    with pytest.raises(UnsupportedFeature, match="BITMAP"):
        indexing.create_index(catalog, ID, "id", "BITMAP")
    with pytest.raises(UnsupportedFeature, match="ivf_pq"):
        indexing.create_index(catalog, ID, "id", "ivf_pq")
    for kind, scalar_only in (("nonsense", False), ("IVF_PQ", True), ("", False)):
        with pytest.raises(InvalidInput):
            indexing.create_index(catalog, ID, "id", kind, scalar_only=scalar_only)
    assert opened(catalog, ID).version == 6


# -- metadata ------------------------------------------------------------------------------------


def test_metadata_is_merged_or_replaced_in_one_version(catalog: Catalog) -> None:
    assert metadata.update_schema_metadata(catalog, ID, {"a": "b"}).schema == {"a": "b"}
    assert metadata.update_schema_metadata(catalog, ID, {"c": "d"}).schema == {"a": "b", "c": "d"}
    assert metadata.update_schema_metadata(catalog, ID, {}).version == 7
    metadata.update_field_metadata(catalog, ID, [FieldUpdate("id", {"x": "1"}), FieldUpdate("s", {"y": "2"})])
    done = metadata.update_field_metadata(
        catalog, ID, [FieldUpdate("id", {"z": "3"}), FieldUpdate("s", {"z": "3"}, replace=True)]
    )
    assert (done.version, done.fields) == (9, {"id": {"x": "1", "z": "3"}, "s": {"z": "3"}})
    with pytest.raises(FieldNotFound):
        metadata.update_field_metadata(catalog, ID, [FieldUpdate("nope", {})])
    for updates in ([], [FieldUpdate("id", {}), FieldUpdate("id", {})]):
        with pytest.raises(InvalidInput):
            metadata.update_field_metadata(catalog, ID, updates)


TYPES: dict[str, Any] = {
    "bool": pa.bool_(),
    "i8": pa.int8(),
    "u64": pa.uint64(),
    "f16": pa.float16(),
    "f64": pa.float64(),
    "str": pa.string(),
    "lstr": pa.large_string(),
    "bin": pa.binary(),
    "lbin": pa.large_binary(),
    "fsb": pa.binary(7),
    "d32": pa.date32(),
    "t32": pa.time32("ms"),
    "t64": pa.time64("ns"),
    "ts": pa.timestamp("us", "UTC"),
    "dur": pa.duration("ms"),
    "dec": pa.decimal128(12, 3),
    "dec256": pa.decimal256(40, 2),
    "list": pa.list_(pa.int32()),
    "llist": pa.large_list(pa.string()),
    "vec": pa.list_(pa.float32(), 4),
    "struct": pa.struct([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.list_(pa.utf8()))]),
    "dict": pa.dictionary(pa.int32(), pa.string()),
}


def test_schemas_in_answers_are_those_of_the_official_package(tmp_path: Path, peer: Peer) -> None:
    schema = pa.schema(
        [pa.field(name, kind, metadata={"k": "v"} if name == "i8" else None) for name, kind in TYPES.items()],
        metadata={"m": "n"},
    )
    path = str(tmp_path / "t.lance")
    theirs = peer(
        """
import lance.namespace as ns, lance_namespace as models
lance.write_dataset(pa.table({f.name: pa.array([], f.type) for f in s}, schema=s), p)
client = ns.DirectoryNamespace(root=root)
told = client.describe_table(models.DescribeTableRequest(id=["t"], load_detailed_metadata=True))
result = told.to_dict()["schema"]
""",
        s=schema,
        p=path,
        root=str(tmp_path),
    )
    ours = schema_to_json(opened(open_catalog(tmp_path), ("t",)).schema)
    shown = {each["name"]: each for each in ours["fields"]}
    for each in theirs["fields"]:
        assert shown[each["name"]] == _without_none(each)
    assert ours["metadata"] == theirs["metadata"]


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(each) for key, each in value.items() if each is not None}
    return [_without_none(each) for each in value] if isinstance(value, list) else value
