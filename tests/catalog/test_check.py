"""What a check of a catalog finds: every row of the pack's table 5.6, and nothing where nothing is wrong."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiltyard as ty
from catalog_damage import damage, duplicate, put_rows
from peer import Peer
from tiltyard.catalog import Catalog, open_catalog
from tiltyard.catalog.check import Report, check
from tiltyard.catalog.facts import Facts, Place
from tiltyard.catalog.findings import PRUNE, REGISTER_ORPHANS, Finding, find
from tiltyard.catalog.repair import plan_repair
from tiltyard.catalog.round import Draft
from tiltyard.catalog.rows import NAMESPACE, TABLE, Row
from tiltyard.catalog.trash import drop_table

DATA = pa.table({"x": [1, 2]})


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    lake = ty.connect(tmp_path)
    lake.create_table("a.t", DATA)
    lake.create_table("r", DATA)
    lake.create_namespace("b", {"k": "v"})
    return lake.catalog


def one(report: Report, kind: str) -> Finding:
    (found,) = [each for each in report.findings if each.kind == kind]
    return found


def checked(catalog: Catalog, *, grace_seconds: float = 0.0) -> Report:
    return check(open_catalog(catalog.uri), grace_seconds=grace_seconds)


def where(catalog: Catalog, object_id: str = "a$t") -> Path:
    (row,) = catalog.register().rows.all(object_id)
    return Path(catalog.uri, str(row.location))


def test_nothing_is_found_where_nothing_is_wrong(catalog: Catalog, tmp_path: Path) -> None:
    lake = ty.connect(tmp_path)
    lake.create_table("a.gone", DATA)
    lake.create_table("moved", DATA)
    lake.drop("a.gone")
    lake.drop("r")
    lake.rename("moved", "a.moved")
    report = checked(catalog)
    assert report.findings == ()
    assert (report.tables, report.namespaces, report.damaged) == (2, 2, False)
    assert check(open_catalog(str(tmp_path / "new"))).findings == ()
    assert not (tmp_path / "new").exists()


def test_two_rows_of_one_table_and_one_place(catalog: Catalog) -> None:
    duplicate(catalog.uri, "a$t", metadata='{"k":"v"}')
    report = checked(catalog)
    assert report.damaged
    found = one(report, "duplicate-row")
    assert found.subject == "a$t"
    assert found.mends[0].after == (replace(report.rows[-1]),)  # the one that says more


def test_two_rows_of_one_table_and_two_places_keep_the_newest_version(catalog: Catalog) -> None:
    older, newer = where(catalog), Path(catalog.uri, "00000000_a$t")
    other = ty.create_table(newer, DATA)
    other.append(DATA)
    duplicate(catalog.uri, "a$t", location=newer.name)
    found = one(checked(catalog), "duplicate-table")
    kept, named = found.mends
    assert [row.location for row in kept.after] == [newer.name]
    assert (named.option, named.after[0].object_id, named.after[0].location) == (
        REGISTER_ORPHANS,
        "a$t_2",
        older.name,
    )
    assert "version 2, 4 rows" in found.text


def test_of_equal_versions_the_one_with_more_rows_is_kept(catalog: Catalog) -> None:
    bigger = Path(catalog.uri, "00000000_a$t")
    ty.create_table(bigger, {"x": [1, 2, 3]})
    duplicate(catalog.uri, "a$t", location=bigger.name)
    assert one(checked(catalog), "duplicate-table").mends[0].after[0].location == bigger.name


def test_two_rows_of_a_namespace_are_merged_and_contradictions_told(catalog: Catalog) -> None:
    duplicate(catalog.uri, "b", metadata='{"k":"w","z":"1"}')
    found = one(checked(catalog), "duplicate-namespace")
    assert "k ('v' stays, not 'w')" in found.text
    assert found.mends[0].after == (Row("b", NAMESPACE, metadata='{"k":"v","z":"1"}'),)


def test_a_namespace_and_a_table_of_one_name(catalog: Catalog) -> None:
    duplicate(catalog.uri, "a$t", object_type=NAMESPACE, location=None)
    found = one(checked(catalog), "two-types")
    assert found.mends[0].after[-1].object_id == "a$t_table"
    ty.create_table(Path(catalog.uri, "b.lance"), DATA)
    assert len([each for each in checked(catalog).findings if each.kind == "two-types"]) == 2


def test_rows_below_a_namespace_that_is_not_there(catalog: Catalog) -> None:
    location = where(catalog).name
    put_rows(catalog.uri, Row("p$q$t", TABLE, location), Row("p$q$u", TABLE, location))
    report = checked(catalog)
    found = [each.mends[0].after[0] for each in report.findings if each.kind == "missing-parent"]
    assert found == [Row("p", NAMESPACE), Row("p$q", NAMESPACE)]
    assert one(report, "shared-location").damage is False


def test_a_table_above_a_table_is_not_made_a_namespace(catalog: Catalog) -> None:
    put_rows(catalog.uri, Row("r$x", TABLE, where(catalog).name))
    found = one(checked(catalog), "missing-parent")
    assert (found.subject, found.mends) == ("r", ())


def test_a_row_whose_directory_is_missing(catalog: Catalog) -> None:
    put_rows(catalog.uri, Row("a$lost", TABLE, "11111111_a$lost"), Row("a$none", TABLE))
    report = checked(catalog)
    found = [each for each in report.findings if each.kind == "missing-directory"]
    assert [(each.subject, each.mends[0].option) for each in found] == [("a$lost", PRUNE), ("a$none", PRUNE)]
    assert report.damaged


def test_a_directory_under_its_encoded_name_is_not_missing(catalog: Catalog) -> None:
    Path(catalog.uri, "22222222_a$50%25").mkdir()
    put_rows(catalog.uri, Row("a$50%", TABLE, "22222222_a$50%"))
    assert checked(catalog).findings == ()


def test_a_place_may_be_written_in_several_ways(catalog: Catalog) -> None:
    ty.create_table(Path(catalog.uri, "deep", "down.lance"), DATA)
    put_rows(
        catalog.uri,
        Row("a$slashes", TABLE, "/deep//down.lance/"),
        Row("a$up", TABLE, "../deep/down.lance"),
    )
    report = checked(catalog)
    assert [(each.kind, each.subject) for each in report.findings] == [("missing-directory", "a$up")]


def test_a_directory_that_no_row_names(catalog: Catalog) -> None:
    ty.create_table(Path(catalog.uri, "33333333_a$t"), DATA)
    ty.create_table(Path(catalog.uri, "44444444_zz$u"), DATA)
    Path(catalog.uri, "55555555_a$e").mkdir()
    report = checked(catalog)
    found = {each.subject: each for each in report.findings}
    assert {each.kind for each in found.values()} == {"orphan-directory"}
    assert found["33333333_a$t"].mends[0].after == (Row("a$t_2", TABLE, "33333333_a$t"),)
    assert found["44444444_zz$u"].mends[0].after == (Row("u", TABLE, "44444444_zz$u"),)
    assert found["55555555_a$e"].mends[0].set_aside == "55555555_a$e"
    assert not report.damaged
    young = checked(catalog, grace_seconds=3600)
    assert [each.mends for each in young.findings] == [(), (), ()]


def test_a_deregistered_table_is_no_orphan(catalog: Catalog) -> None:
    place = Path(catalog.uri, "66666666_a$d")
    ty.create_table(place, DATA)
    (place / ".lance-deregistered").write_bytes(b"reserved")
    assert checked(catalog).findings == ()


def test_a_root_directory_without_a_row(catalog: Catalog) -> None:
    ty.create_table(Path(catalog.uri, "plain.lance"), DATA)
    report = checked(catalog)
    assert (one(report, "unregistered-table").subject, report.damaged) == ("plain", False)
    unseen = open_catalog(catalog.uri, properties={"dir_listing_enabled": "false"})
    assert "nobody sees it" in one(check(unseen), "unregistered-table").text
    alone = open_catalog(catalog.uri, properties={"manifest_enabled": "false"})
    assert check(alone).findings == ()


def test_a_reserved_marker_alone(catalog: Catalog) -> None:
    place = Path(catalog.uri, "d.lance")
    place.mkdir()
    (place / ".lance-reserved").write_bytes(b"reserved")
    found = one(checked(catalog), "unfinished-declare")
    assert (found.damage, found.mends[0].after) == (True, (Row("d", TABLE, "d.lance"),))
    assert one(checked(catalog, grace_seconds=3600), "unfinished-declare").damage is False


def test_a_table_hidden_by_a_marker(catalog: Catalog) -> None:
    Path(catalog.uri, "r.lance", ".lance-deregistered").write_bytes(b"reserved")
    assert one(checked(catalog), "hidden-table").mends[0].unmark == "r.lance/.lance-deregistered"


def test_what_is_no_table_though_it_is_named_like_one(catalog: Catalog) -> None:
    Path(catalog.uri, "ghost.lance", "data").mkdir(parents=True)
    Path(catalog.uri, "loose.lance").write_text("no table")
    Path(catalog.uri, "empty.lance").mkdir()
    report = checked(catalog)
    assert one(report, "incomplete-directory").subject == "ghost.lance"
    assert one(report, "loose-file").damage is False
    assert len(report.findings) == 2


def test_metadata_and_types_that_nobody_knows_are_reported_and_not_touched(catalog: Catalog) -> None:
    put_rows(catalog.uri, Row("a$v", "table_version"), Row("c", NAMESPACE, metadata='{"n": 1}'))
    report = checked(catalog)
    for kind in ("unknown-type", "unreadable-metadata"):
        found = one(report, kind)
        assert (found.damage, found.mends) == (True, ())
    assert plan_repair(report).is_empty


def test_flags_that_nobody_knows_are_told(catalog: Catalog) -> None:
    def flag(draft: Draft) -> None:
        draft.metadata["lance.namespace.manifest.reader_feature_flags"] = "8"

    damage(catalog.uri, flag)
    report = checked(catalog)
    assert one(report, "unsupported-register").text.count("reader_feature_flags")
    assert report.damaged


def test_a_register_that_cannot_be_read_is_told(catalog: Catalog) -> None:
    newest = sorted(Path(catalog.uri, "__manifest", "_versions").glob("*.manifest"))[0]
    newest.write_bytes(newest.read_bytes()[:40])
    os.utime(newest, (1, 1))
    report = checked(catalog)
    assert one(report, "unreadable-register").damage


def test_records_of_ours_that_cannot_be_read_are_told(catalog: Catalog) -> None:
    def spoil(draft: Draft) -> None:
        draft.metadata["tiltyard.trash.x"] = "{"
        draft.metadata["tiltyard.move.y"] = "[]"

    damage(catalog.uri, spoil)
    found = [each.subject for each in checked(catalog).findings if each.kind == "unreadable-record"]
    assert found == ["tiltyard.trash.x", "tiltyard.move.y"]


def test_dropped_data_that_is_gone_is_told(catalog: Catalog) -> None:
    place = where(catalog)
    ty.connect(catalog.uri).drop("a.t")
    shutil.rmtree(place)
    found = one(checked(catalog), "dropped-data-missing")
    assert (found.subject, found.damage) == ("a$t", False)


def test_what_other_writers_do_to_the_register_is_found(catalog: Catalog, peer: Peer) -> None:
    peer(
        """
ds = lance.dataset(root + "/__manifest")
row = ds.to_table(filter="object_id = 'b'")
ds = lance.write_dataset(row, root + "/__manifest", mode="append")
ds.delete("object_id = 'r'")
ds.create_scalar_index("object_id", "BTREE")
result = None
""",
        root=catalog.uri,
    )
    report = checked(catalog)
    assert one(report, "duplicate-namespace").subject == "b"
    shape = one(report, "foreign-shape")
    assert shape.damage is False
    assert "2 fragments, deletion files, indices (object_id_idx)" in shape.text


def test_a_register_without_a_declared_key_and_with_more_columns(tmp_path: Path) -> None:
    rows = pa.table(
        {"object_id": ["n"], "object_type": ["namespace"], "location": [None], "metadata": [None]},
        pa.schema(
            [
                pa.field("object_id", pa.string(), False),
                pa.field("object_type", pa.string(), False),
                pa.field("location", pa.string()),
                pa.field("metadata", pa.string()),
            ]
        ),
    ).append_column("more", pa.array([7]))
    ty.create_table(tmp_path / "__manifest", rows)
    report = check(open_catalog(str(tmp_path)))
    assert {each.kind for each in report.findings} == {"no-primary-key", "extra-columns"}
    assert not report.damaged


def test_many_versions_are_worth_a_word() -> None:
    facts = Facts(20_000, (), {}, versions=20_000)
    (found,) = find(facts)
    assert (found.kind, found.damage) == ("many-versions", False)


# -- the rules, on anything ----------------------------------------------------------------------

IDS = st.sampled_from(["a", "b", "a$t", "a$b", "a$b$t", "c$t", "t"])
ROWS = st.builds(
    Row,
    IDS,
    st.sampled_from([NAMESPACE, TABLE, "table_version"]),
    st.sampled_from([None, "00000000_x", "11111111_y", "t.lance"]),
    st.sampled_from([None, '{"k":"v"}', '{"k":"w"}', '{"n":1}', "{"]),
)
PLACES = st.dictionaries(
    st.sampled_from(["00000000_x", "11111111_y", "22222222_a$t", "t.lance", "b.lance", "u.lance"]),
    st.builds(
        Place,
        st.integers(0, 2),
        st.integers(0, 2),
        st.integers(0, 2),
        st.booleans(),
        st.booleans(),
        st.sampled_from([0, 10**15]),
    ),
)


@settings(max_examples=50, deadline=None)
@given(st.lists(ROWS, max_size=8).map(tuple), PLACES, st.booleans())
def test_after_a_repair_nothing_is_left_that_it_could_mend(
    rows: tuple[Row, ...], places: dict[str, Place], listed: bool
) -> None:
    facts = Facts(3, rows, places, root_is_listed=listed)
    findings = find(facts)
    plan = plan_repair(Report(findings, 3, 0, 0, rows))
    after = {each.object_id: list(each.after) for each in plan.rows}
    kept = [row for row in rows if row.object_id not in after]
    mended = replace(facts, rows=(*kept, *(row for each in after.values() for row in each)))
    left = [each for each in find(mended) if any(not mend.option for mend in each.mends)]
    assert [each for each in left if each.kind not in ("hidden-table",)] == []
    by_id: dict[tuple[str, str], int] = {}
    for row in mended.rows:
        by_id[row.object_id, row.object_type] = by_id.get((row.object_id, row.object_type), 0) + 1
    assert all(count == 1 for (_, kind), count in by_id.items() if kind in (TABLE, NAMESPACE))
    # No row of another program's goes, and no table is forgotten.
    foreign = [row for row in rows if row.object_type == "table_version"]
    assert [row for row in mended.rows if row.object_type == "table_version"] == foreign or len(foreign) > 1
    assert {row.object_id for row in rows} <= {row.object_id for row in mended.rows}


def test_data_that_were_to_be_deleted_are_not_missed(catalog: Catalog, tmp_path: Path) -> None:
    """A record of a table that nobody can bring back any more stands until the emptied directory has gone."""
    drop_table(catalog, ("r",), purge=True)
    (emptied,) = (each for each in tmp_path.iterdir() if "_dropped_r" in each.name)
    shutil.rmtree(emptied)
    assert checked(catalog).findings == ()
