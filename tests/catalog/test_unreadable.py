"""What nobody can read stops nobody: records, flags and odd rows of a register; repairs remove it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard as ty
from catalog_damage import damage, put_rows
from tiltyard.catalog import Catalog, open_catalog
from tiltyard.catalog.check import Report, check
from tiltyard.catalog.dropped import Dropped
from tiltyard.catalog.findings import PRUNE, Finding
from tiltyard.catalog.listing import list_all_tables, list_tables
from tiltyard.catalog.moves import Kind, Move
from tiltyard.catalog.namespaces import list_namespaces
from tiltyard.catalog.purging import purge
from tiltyard.catalog.repair import plan_repair, repair, undo
from tiltyard.catalog.rows import TABLE, Row
from tiltyard.catalog.trash import dropped_tables
from tiltyard.errors import UnsupportedFeature
from tiltyard.session import Session

DATA = pa.table({"x": [1, 2]})


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    lake = ty.connect(tmp_path / "lake")
    lake.create_table("a.t", DATA)
    lake.create_table("r", DATA)
    return lake.catalog


def one(report: Report, kind: str) -> Finding:
    (found,) = [each for each in report.findings if each.kind == kind]
    return found


def checked(catalog: Catalog) -> Report:
    return check(open_catalog(catalog.uri), grace_seconds=0)


def where(catalog: Catalog) -> Path:
    (row,) = catalog.register().rows.all("a$t")
    return Path(catalog.uri, str(row.location))


SOUND = Dropped("x", "n$x", "deadbeef_n$x", 1, 2)
MOVE = Move("y", Kind.MOVE, "q.lance", "aaaaaaaa_dropped_q", "q", order=1)


def changed(text: str, **values: Any) -> str:
    return json.dumps({**json.loads(text), **values})


UNREADABLE = [
    *(("tiltyard.trash.x", text) for text in ("", "{", "[]", "[" * 100_000, "9" * 5_000, '{"a":' * 20_000)),
    *(
        ("tiltyard.trash.x", changed(SOUND.text(), time=value))
        for value in (1e400, 10**400, -1, 1 << 64, "1")
    ),
    *(("tiltyard.trash.x", changed(SOUND.text(), until=value)) for value in (1e400, 10**400, True, None)),
    ("tiltyard.trash.x", SOUND.text().replace(":2,", f":{'9' * 5_000},")),
    ("tiltyard.trash.x", changed(SOUND.text(), emptied=1e400)),
    ("tiltyard.trash.x", changed(SOUND.text(), location="\ud800")),
    ("tiltyard.trash.x", changed(SOUND.text(), home="\ud800")),
    ("tiltyard.trash.x", changed(SOUND.text(), metadata="\ud800")),
    ("tiltyard.trash.x", changed(SOUND.text(), id="")),
    ("tiltyard.trash.x", changed(SOUND.text(), base_objects="ab")),
    ("tiltyard.trash.x", changed(SOUND.text(), base_objects=[5])),
    ("tiltyard.trash.../../x", SOUND.text()),
    ("tiltyard.trash.", SOUND.text()),
    *(("tiltyard.move.y", text) for text in ("", "[]", "[" * 100_000)),
    *(
        ("tiltyard.move.y", changed(MOVE.text(), **{"from": value}))
        for value in ("", "..", "\ud800", "a/../b")
    ),
    *(("tiltyard.move.y", changed(MOVE.text(), to=value)) for value in ("", "__manifest", "\0")),
    *(("tiltyard.move.y", changed(MOVE.text(), order=value)) for value in (1e400, 10**400, -1, "1")),
    ("tiltyard.move.y", changed(MOVE.text(), kind="show", to="")),
    ("tiltyard.move.../../y", MOVE.text()),
]


@pytest.mark.parametrize(("key", "text"), UNREADABLE, ids=range(len(UNREADABLE)))
def test_a_record_that_cannot_be_read_stops_nothing_and_a_repair_removes_it(
    catalog: Catalog, key: str, text: str
) -> None:
    lake = ty.connect(catalog.uri)
    lake.drop("a.t")
    damage(catalog.uri, lambda draft: draft.metadata.__setitem__(key, text))
    assert [each.id for each in dropped_tables(catalog)] == [("a", "t")]
    assert len(lake.dropped()) == 1
    lake.undrop("a.t")
    lake.create_table("new", DATA)
    lake.drop("new")
    purge(catalog, 0)
    assert dropped_tables(catalog) == ()
    report = checked(catalog)
    assert one(report, "unreadable-record").subject == key
    assert report.damaged
    made = repair(catalog, plan_repair(report))
    assert not [each for each in checked(catalog).findings if each.damage]
    assert undo(catalog, made.undo) == (f"{key}: is there again",)
    assert open_catalog(catalog.uri, session=Session()).register().metadata[key] == text


@pytest.mark.parametrize("which", ["reader_feature_flags", "writer_feature_flags"])
def test_flags_of_thousands_of_digits_are_those_of_newer_software(catalog: Catalog, which: str) -> None:
    key = f"lance.namespace.manifest.{which}"
    damage(catalog.uri, lambda draft: draft.metadata.__setitem__(key, "9" * 5_000))
    later = open_catalog(catalog.uri, session=Session())
    if which.startswith("reader"):
        one(checked(catalog), "unsupported-register")
        with pytest.raises(UnsupportedFeature, match="expected a decimal number of 64 bits"):
            later.register()
    with pytest.raises(UnsupportedFeature, match="expected a decimal number of 64 bits"):
        later.mutate(lambda draft: None)


@pytest.mark.parametrize("kind", ["table", "namespace"])
def test_a_row_with_an_empty_id_is_nobodys_business_but_checks(catalog: Catalog, kind: str) -> None:
    lake = ty.connect(catalog.uri)
    before = lake.tables(), lake.namespaces()
    put_rows(catalog.uri, Row("", kind, "t.lance" if kind == "table" else None))
    lake = ty.connect(catalog.uri)
    assert (lake.tables(), lake.namespaces()) == before
    assert list(list_all_tables(catalog)) == list(list_all_tables(catalog, limit=100))
    assert "" not in [*list_tables(catalog), *list_namespaces(catalog, ())]
    lake.rename("a.t", "a.t2")
    plan = plan_repair(checked(catalog), [PRUNE])
    assert [each for each in plan.told if "remove the row" in each] == ["__manifest: remove the row"]
    repair(catalog, plan)
    assert not open_catalog(catalog.uri, session=Session()).register().rows.all("")


def test_what_a_row_of_an_unknown_type_says_is_not_judged(catalog: Catalog) -> None:
    put_rows(catalog.uri, Row("a$t$1", "table_version", None, '{"x":1}'))
    found = {each.kind for each in checked(catalog).findings}
    assert "unreadable-metadata" not in found


def test_what_goes_with_a_row_is_not_told_to_stay(catalog: Catalog) -> None:
    put_rows(
        catalog.uri, Row("a$gone", TABLE, "nowhere", "{"), Row("a$other", TABLE, where(catalog).name, "{")
    )
    plan = plan_repair(checked(catalog), [PRUNE])
    assert [each.subject for each in plan.left if each.damage] == ["a$other"]
