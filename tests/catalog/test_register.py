"""The register as a table: what we make of it, what others made of it, and which version is served."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from catalog_damage import put_rows
from peer import Peer
from tiltyard.catalog import Catalog, open_catalog
from tiltyard.catalog.check import check
from tiltyard.catalog.found import find_table
from tiltyard.catalog.listing import list_tables
from tiltyard.catalog.namespaces import create_namespace, drop_namespace, list_namespaces
from tiltyard.catalog.register import DELETED, READER_FLAGS, WRITER_FLAGS, Register
from tiltyard.catalog.renaming import rename_table
from tiltyard.catalog.rows import NAMESPACE, Row
from tiltyard.catalog.tables import create_table, declare_table, register_table
from tiltyard.catalog.trash import drop_table
from tiltyard.errors import CatalogDamaged, NamespaceAlreadyExists, UnsupportedFeature
from tiltyard.format import names
from tiltyard.format.operations import Overwrite
from tiltyard.format.transaction import decode_transaction
from tiltyard.session import Session
from tiltyard.table.snapshot import Snapshot, open_snapshot


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


def fresh(root: str, **properties: str) -> Catalog:
    """The catalog as another process would open it."""
    return open_catalog(root, properties=properties, session=Session())


def made(root: str, *ids: str) -> Catalog:
    catalog = fresh(root)
    for each in ids:
        create_namespace(catalog, tuple(each.split("$")))
    return catalog


def snapshot_of(root: str, version: int | None = None) -> Snapshot:
    return open_snapshot(fresh(root).register_store, Session(), version)


def everything(root: str) -> set[str]:
    return {str(Path(where, name)) for where, _, files in os.walk(root) for name in files}


# -- what we make --------------------------------------------------------------------------------


def test_reading_creates_nothing(root: str) -> None:
    catalog = fresh(root)
    register = catalog.register()
    assert (register.version, len(register.rows), register.snapshot) == (0, 0, None)
    assert list(list_namespaces(catalog)) == []
    assert not os.path.exists(root)


def test_a_change_that_changes_nothing_makes_no_register(root: str) -> None:
    assert fresh(root).mutate(lambda draft: len(list(draft.rows))) == 0
    assert not os.path.exists(root)


def test_the_first_change_makes_an_empty_version_and_then_its_own(root: str) -> None:
    """The form is that of the fact pack, section 2.2."""
    made(root, "a")
    first, second = snapshot_of(root, 1), snapshot_of(root)
    (name,) = os.listdir(f"{root}/__manifest/_transactions")
    assert first.manifest.transaction_file == name
    filed = decode_transaction(Path(f"{root}/__manifest/_transactions/{name}").read_bytes())
    assert filed == first.inline_transaction()
    assert (filed.read_version, filed.operation) == (0, Overwrite((), first.schema))
    assert (len(first.fragments), first.manifest.data_format.version) == (0, "2.2")  # type: ignore[union-attr]
    assert (second.version, second.manifest.transaction_file) == (2, "")
    transaction = second.inline_transaction()
    assert transaction is not None
    assert (transaction.read_version, transaction.name) == (1, "Overwrite")
    (fragment,) = second.fragments
    (file,) = fragment.files
    assert (fragment.id, fragment.deletion, fragment.physical_rows) == (0, None, 1)
    assert (file.fields, file.column_indices) == ((0, 1, 2, 3, 5), (0, 1, 2, 3, 4))
    assert sorted(os.listdir(f"{root}/__manifest/_versions")) == [
        names.manifest_name(2),
        names.manifest_name(1),
        "latest_version_hint.json",
    ]
    assert Path(f"{root}/__manifest/_versions/latest_version_hint.json").read_bytes() == b'{"version":2}'


PEER_MADE = """
from lance_namespace import CreateNamespaceRequest
lance.namespace.DirectoryNamespace(root=root).create_namespace(CreateNamespaceRequest(id=["a"]))
"""


def test_our_manifests_say_what_official_ones_say(root: str, peer: Peer) -> None:
    made(root, "a")
    theirs = f"{root}-theirs"
    peer("import lance.namespace\n" + PEER_MADE, root=theirs)
    for version in (1, 2):
        ours, other = snapshot_of(root, version).manifest, snapshot_of(theirs, version).manifest
        assert ours.schema == other.schema
        for fact in (
            *("reader_flags", "writer_flags", "max_fragment_id", "next_row_id", "data_format", "config"),
            *("table_metadata", "base_paths", "branch", "max_allocated_field_id", "indices", "tag"),
        ):
            assert getattr(ours, fact) == getattr(other, fact), fact
        assert bool(ours.transaction_file) == bool(other.transaction_file)


def test_without_rows_there_is_no_fragment(root: str, peer: Peer) -> None:
    catalog = made(root, "a")
    drop_namespace(catalog, ("a",))
    assert len(snapshot_of(root).fragments) == 0
    assert len(catalog.register().rows) == 0
    assert listed_by(peer, root) == []
    create_namespace(catalog, ("b",))
    assert listed_by(peer, root) == ["b"]


def listed_by(peer: Peer, root: str) -> Any:
    return peer(
        """
import lance.namespace
from lance_namespace import ListNamespacesRequest
ns = lance.namespace.DirectoryNamespace(root=root)
result = ns.list_namespaces(ListNamespacesRequest(id=[])).namespaces
""",
        root=root,
    )


def test_turns_of_ours_and_of_the_official_package_see_each_other(root: str, peer: Peer) -> None:
    catalog = fresh(root)
    for turn in range(12):
        create_namespace(catalog, (f"o{turn:02}",), {"n": str(turn)})
        seen = peer(
            """
import lance.namespace
from lance_namespace import *
ns = kept.setdefault(root, lance.namespace.DirectoryNamespace(root=root))
properties = ns.describe_namespace(DescribeNamespaceRequest(id=[f"o{turn:02}"])).properties
ns.create_namespace(CreateNamespaceRequest(id=[f"p{turn:02}"], properties={"m": "x"}))
if turn % 3 == 2:
    ns.drop_namespace(DropNamespaceRequest(id=[f"o{turn - 1:02}"]))
result = properties, ns.list_namespaces(ListNamespacesRequest(id=[])).namespaces
""",
            root=root,
            turn=turn,
        )
        assert seen[0] == {"n": str(turn)}
        assert seen[1] == list(list_namespaces(catalog))
        assert catalog.register().rows.find(f"p{turn:02}") == Row(f"p{turn:02}", NAMESPACE, None, '{"m":"x"}')
    assert len(catalog.register().rows) == 20


# -- what others made ----------------------------------------------------------------------------

FOREIGN = """
import json
schema = pa.schema([
    pa.field("object_id", pa.string(), False),
    pa.field("object_type", pa.string(), False),
    pa.field("location", pa.string()),
    pa.field("metadata", pa.string()),
    pa.field("base_objects", pa.list_(pa.field("object_id", pa.string()))),
])
def rows(*ids, type="namespace"):
    return pa.table({
        "object_id": list(ids), "object_type": [type] * len(ids), "location": [None] * len(ids),
        "metadata": [None] * len(ids), "base_objects": [["b1", None]] * len(ids),
    }, schema=schema)
where = root + "/__manifest"
"""


def foreign(peer: Peer, root: str, source: str) -> None:
    peer(FOREIGN + source, root=root)


def test_fragments_and_deletions_are_read_and_collapsed(root: str, peer: Peer) -> None:
    foreign(
        peer,
        root,
        """
ds = lance.write_dataset(rows("a", "b", "gone"), where)
ds = lance.write_dataset(rows("c"), where, mode="append")
ds.delete("object_id = 'gone'")
""",
    )
    catalog = fresh(root)
    assert catalog.register().rows.ids == ["a", "b", "c"]
    create_namespace(catalog, ("d",))
    (fragment,) = snapshot_of(root).fragments
    assert (fragment.id, fragment.deletion, fragment.physical_rows) == (0, None, 4)
    found = fresh(root).register().rows.find("c")
    assert found is not None
    assert found.base_objects == ("b1", None)
    assert listed_by(peer, root) == ["a", "b", "c", "d"]


def test_what_stands_beside_the_rows_goes_over_and_the_key_is_marked(root: str, peer: Peer) -> None:
    foreign(
        peer,
        root,
        """
ds = lance.write_dataset(rows("a"), where, enable_v2_manifest_paths=True)
ds.update_config({"mine": "1"})
ds.update_metadata({"owner": "me", "tiltyard.x": "y"})
ds.create_scalar_index("object_id", "BTREE")
""",
    )
    assert not snapshot_of(root).schema.primary_key
    catalog = fresh(root)
    create_namespace(catalog, ("b",))
    manifest = snapshot_of(root).manifest
    assert [each.name for each in manifest.schema.primary_key] == ["object_id"]
    assert manifest.schema.fields[0].metadata == {"lance-schema:unenforced-primary-key:position": "0"}
    assert manifest.config["mine"] == "1"
    assert manifest.table_metadata == {"owner": "me", "tiltyard.x": "y"}
    assert manifest.indices == ()
    assert listed_by(peer, root) == ["a", "b"]


def test_columns_and_types_of_other_writers_are_kept(root: str, peer: Peer) -> None:
    foreign(
        peer,
        root,
        """
table = pa.concat_tables([rows("a"), rows("a$1", type="table_version")])
table = table.append_column("size", pa.array([1, 2], pa.int32()))
lance.write_dataset(table, where)
""",
    )
    catalog = fresh(root)
    create_namespace(catalog, ("b",))
    rows = fresh(root).register().rows
    assert [(row.object_id, row.object_type, row.extra) for row in rows] == [
        ("a", "namespace", {"size": 1}),
        ("a$1", "table_version", {"size": 2}),
        ("b", "namespace", {"size": None}),
    ]


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_a_register_keeps_the_version_of_its_files(root: str, peer: Peer, version: str) -> None:
    foreign(peer, root, f'lance.write_dataset(rows("a"), where, data_storage_version="{version}")')
    create_namespace(fresh(root), ("b",))
    manifest = snapshot_of(root).manifest
    assert manifest.data_format is not None
    assert manifest.data_format.version == version
    (file,) = manifest.fragments[0].files
    assert f"{file.major}.{file.minor}" == version
    assert listed_by(peer, root) == ["a", "b"]


def test_a_register_of_version_2_0_is_read_and_written_as_2_1(root: str, peer: Peer) -> None:
    """As the first programs left it; the official package goes on with what we made, and we with that."""
    foreign(peer, root, 'lance.write_dataset(rows("a", "b"), where, data_storage_version="2.0")')
    before = everything(root)
    assert list(list_namespaces(fresh(root))) == ["a", "b"]
    assert not check(fresh(root)).damaged
    assert everything(root) == before
    create_namespace(fresh(root), ("c",))
    manifest = snapshot_of(root).manifest
    assert manifest.data_format is not None
    assert manifest.data_format.version == "2.1"
    assert [(file.major, file.minor) for each in manifest.fragments for file in each.files] == [(2, 1)]
    assert listed_by(peer, root) == ["a", "b", "c"]
    foreign(peer, root, 'lance.write_dataset(rows("d"), where, mode="append", data_storage_version="2.0")')
    drop_namespace(fresh(root), ("a",))
    assert listed_by(peer, root) == ["b", "c", "d"]
    assert list(list_namespaces(fresh(root))) == ["b", "c", "d"]


def test_files_that_we_cannot_read_are_refused_by_name(root: str, peer: Peer) -> None:
    foreign(peer, root, 'lance.write_dataset(rows("a"), where, data_storage_version="2.3")')
    before = everything(root)
    for act in (lambda c: c.register(), lambda c: create_namespace(c, ("b",))):
        with pytest.raises(UnsupportedFeature, match=r"version 2\.3"):
            act(fresh(root))
    assert everything(root) == before


@pytest.mark.parametrize(
    "table", ['pa.table({"x": [1]})', 'rows("a").set_column(0, "object_id", pa.array([1]))']
)
def test_a_table_that_is_no_register_is_told(root: str, peer: Peer, table: str) -> None:
    foreign(peer, root, f"lance.write_dataset({table}, where)")
    catalog = fresh(root)
    if "x" in table:
        with pytest.raises(CatalogDamaged, match="no register of a catalog"):
            catalog.register()
    else:  # numbers can be read as text
        assert catalog.register().rows.ids == ["1"]


def test_a_register_with_two_rows_of_one_id_is_read_and_not_changed(root: str, peer: Peer) -> None:
    made(root, "a", "b")
    foreign(peer, root, 'lance.write_dataset(rows("a"), where, mode="append")')
    catalog = fresh(root)
    assert list(list_namespaces(catalog)) == ["a", "b"]
    assert catalog.register().rows.find("b") is not None
    with pytest.raises(CatalogDamaged, match="2 rows for 'a'"):
        catalog.register().rows.find("a")
    for act in (
        lambda: create_namespace(catalog, ("c",)),
        lambda: catalog.mutate(lambda draft: draft.remove("b")),
    ):
        before = everything(root)
        with pytest.raises(CatalogDamaged, match="tiltyard catalog repair"):
            act()
        assert everything(root) == before
    catalog.mutate(lambda draft: draft.put(draft.rows.all("a")[0]), repairing=True)
    create_namespace(catalog, ("c",))
    assert listed_by(peer, root) == ["a", "b", "c"]


# -- feature flags -------------------------------------------------------------------------------


def with_metadata(root: str, **metadata: str) -> Catalog:
    catalog = made(root, "a")
    catalog.mutate(lambda draft: draft.metadata.update(metadata), repairing=True)
    return fresh(root)


@pytest.mark.parametrize("key", [READER_FLAGS, WRITER_FLAGS])
@pytest.mark.parametrize("value", ["1", "64", "x", "-1", "", "18446744073709551616", "1.0"])
def test_flags_that_we_do_not_know_are_refused(root: str, key: str, value: str) -> None:
    catalog = with_metadata(root, **{key: value})
    before = everything(root)
    with pytest.raises(UnsupportedFeature, match=key):
        create_namespace(catalog, ("b",))
    if key == READER_FLAGS:
        with pytest.raises(UnsupportedFeature, match=key):
            catalog.register()
    else:
        assert list(list_namespaces(catalog)) == ["a"]
    assert everything(root) == before


@pytest.mark.parametrize("metadata", [{READER_FLAGS: "0", WRITER_FLAGS: "0"}, {DELETED: "false"}])
def test_flags_that_say_nothing_are_no_hindrance(root: str, metadata: dict[str, str]) -> None:
    create_namespace(with_metadata(root, **metadata), ("b",))
    assert snapshot_of(root).manifest.table_metadata == metadata


@pytest.mark.parametrize("value", ["true", "maybe", "True"])
def test_a_catalog_that_was_deleted_is_not_read(root: str, value: str) -> None:
    catalog = with_metadata(root, **{DELETED: value})
    with pytest.raises(UnsupportedFeature):
        catalog.register()


# -- which version is served ---------------------------------------------------------------------


def test_what_others_commit_is_seen_at_once(root: str) -> None:
    reader, writer = fresh(root), fresh(root)
    for number in range(30):
        create_namespace(writer, (f"n{number:02}",))
        assert len(reader.register().rows) == number + 1
        assert reader.register() is reader.register()


def test_catalogs_of_one_session_read_a_version_once(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made(root, "a")
    session, reads = Session(), list[int]()
    from tiltyard.catalog import register as module

    load: Callable[[Snapshot], Register] = module.load

    def counted(snapshot: Snapshot) -> Register:
        reads.append(snapshot.version)
        return load(snapshot)

    monkeypatch.setattr(module, "load", counted)
    for _ in range(3):
        assert len(open_catalog(root, session=session).register().rows) == 1
    assert len(reads) == 1


def test_a_reader_is_not_left_behind_by_a_cleanup(root: str, peer: Peer) -> None:
    """The official reader is (fact pack 2.3): it looks for the version after its own, and that is gone."""
    reader, writer = fresh(root), fresh(root)
    create_namespace(writer, ("a",))
    assert reader.register().version == 2
    for number in range(5):
        create_namespace(writer, (f"n{number}",))
    peer(
        """
import datetime
lance.dataset(root + "/__manifest").cleanup_old_versions(
    older_than=datetime.timedelta(0), delete_unverified=True)
""",
        root=root,
    )
    assert len(os.listdir(f"{root}/__manifest/_versions")) == 2
    assert len(reader.register().rows) == 6
    create_namespace(reader, ("b",))
    with pytest.raises(NamespaceAlreadyExists):
        create_namespace(writer, ("b",))
    assert len(fresh(root).register().rows) == 7


def test_a_register_that_was_removed_and_made_again_is_found(root: str) -> None:
    import shutil

    catalog = made(root, "a")
    shutil.rmtree(f"{root}/__manifest")
    assert catalog.register().version == 0
    made(root, "b")
    assert catalog.register().rows.ids == ["b"]
    create_namespace(catalog, ("c",))
    assert fresh(root).register().rows.ids == ["b", "c"]


@pytest.mark.parametrize("column", [b"zebra", b"somewhere"])
def test_text_that_is_not_utf8_is_damage_for_everybody(root: str, column: bytes) -> None:
    """An id, or a place: whoever looks at any row is told, and nothing is changed."""
    put_rows(root, Row("zebra", "table", "somewhere"))
    (file,) = (each for each in Path(root, "__manifest", "data").iterdir() if column in each.read_bytes())
    file.write_bytes(file.read_bytes().replace(column, b"\xff" + column[1:]))
    before = everything(root)
    for call in (
        lambda: fresh(root).register(),
        lambda: find_table(fresh(root), ("other",)),
        lambda: list_tables(fresh(root), ()),
        lambda: drop_table(fresh(root), ("zebra",)),
        lambda: rename_table(fresh(root), ("zebra",), ("z",)),
        lambda: create_table(fresh(root), ("new",), pa.table({"a": [1]})),
    ):
        with pytest.raises(CatalogDamaged, match=r"is damaged .*UTF8"):
            call()
    assert everything(root) == before
    (finding,) = check(fresh(root)).findings
    assert (finding.kind, finding.damage) == ("unreadable-register", True)


@pytest.mark.parametrize("what", ["file", "link", "file inside"])
def test_something_in_the_way_of_the_register_is_told_before_anything_is_made(root: str, what: str) -> None:
    os.makedirs(root)
    place = Path(root, "__manifest")
    if what == "link":
        place.symlink_to("nowhere")
    elif what == "file":
        place.write_text("x")
    else:
        place.mkdir()
        (place / "_versions").write_text("x")
    before = sorted(Path(root).rglob("*"))
    for change in (
        lambda: create_table(fresh(root), ("t",), pa.table({"a": [1]})),
        lambda: create_table(fresh(root), ("t",), pa.table({"a": [1]}), mode="overwrite"),
        lambda: declare_table(fresh(root), ("t",)),
        lambda: register_table(fresh(root), ("t",), "there"),
        lambda: create_namespace(fresh(root), ("n",)),
        lambda: drop_table(fresh(root), ("t",)),
    ):
        with pytest.raises(CatalogDamaged, match="move it away"):
            change()
    assert sorted(Path(root).rglob("*")) == before
    report = check(fresh(root))
    assert report.damaged
    assert "move it away" in report.findings[0].text


def test_an_empty_directory_of_the_register_is_nothing_yet(root: str) -> None:
    os.makedirs(f"{root}/__manifest")
    assert check(fresh(root)).findings == ()
    create_table(fresh(root), ("t",), pa.table({"a": [1]}))
    assert list_tables(fresh(root), ()).names == ("t",)
