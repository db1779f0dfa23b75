"""Rows of a register: looked up, changed, and kept as they are."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.catalog.register import arrow_schema
from tiltyard.catalog.rows import (
    MAX_SEARCHES,
    NAMESPACE,
    TABLE,
    Row,
    Rows,
    batch_of,
    properties_text,
    search,
    text_array,
)
from tiltyard.errors import CatalogDamaged

ROWS = [
    Row("a", NAMESPACE, metadata='{"k":"v"}'),
    Row("a$t", TABLE, "0a1b2c3d_a$t"),
    Row("a$b", NAMESPACE),
    Row("a$b$u", TABLE, "11111111_a$b$u", '{"p":"q"}', ("x", None)),
    Row("ab", NAMESPACE),
    Row("a$t$1", "table_version", None, "{}"),
    Row("r", TABLE, "r.lance"),
]


def made(rows: list[Row], schema: pa.Schema | None = None) -> Rows:
    return Rows(batch_of(rows, schema or arrow_schema()))


def test_rows_come_back_as_they_went_in() -> None:
    rows = made(ROWS)
    assert list(rows) == ROWS
    assert len(rows) == len(ROWS)
    assert rows.find("a$b$u") == ROWS[3]
    assert rows.find("a$zz") is None
    assert rows.all("ab") == (ROWS[4],)
    assert rows.extra_columns == []


def test_children_are_those_directly_below_of_one_type_sorted() -> None:
    rows = made([*ROWS, Row("a$B", TABLE, "x")])
    assert rows.children((), NAMESPACE) == ["a", "ab"]
    assert rows.children((), TABLE) == ["r"]
    assert rows.children(("a",), TABLE) == ["B", "t"]
    assert rows.children(("a",), NAMESPACE) == ["b"]
    assert rows.children(("nowhere",), TABLE) == []
    rows.children((), TABLE).append("mine")
    assert rows.children((), TABLE) == ["r"]


def test_what_is_below_is_told_by_whole_names() -> None:
    assert [row.object_id for row in made(ROWS).below("a")] == ["a$t", "a$b", "a$b$u", "a$t$1"]
    assert made(ROWS).below("r") == []


def test_a_location_leads_to_its_row() -> None:
    assert made(ROWS).by_location("r.lance") == [ROWS[6]]
    assert made(ROWS).by_location("a") == []


def test_two_rows_of_one_id_are_told_and_the_others_found() -> None:
    rows = made([*ROWS, Row("r", TABLE, "other"), Row("ab", NAMESPACE)])
    assert rows.duplicates() == {"r": 2, "ab": 2}
    assert rows.find("a") == ROWS[0]
    assert [row.location for row in rows.all("r")] == ["r.lance", "other"]
    assert rows.children((), TABLE) == ["r"]
    with pytest.raises(CatalogDamaged, match=r"2 rows for 'r'.*tiltyard catalog repair"):
        rows.find("r")


@pytest.mark.parametrize("text", ["{", "[]", '{"k":3}', '"x"', "null", "[" * 100_000])
def test_properties_that_are_no_map_of_text_are_damage(text: str) -> None:
    with pytest.raises(CatalogDamaged, match="properties of table 't'"):
        assert Row("t", TABLE, metadata=text).properties is None


def test_properties_are_compact_json() -> None:
    """Byte for byte as the fact pack has it, section 2.2."""
    assert properties_text({"k": "v"}) == '{"k":"v"}'
    assert properties_text({}) is None
    assert properties_text(None) is None
    assert Row("t", TABLE, metadata=properties_text({"a": "é\n"})).properties == {"a": "é\n"}


def test_changed_rows_come_last_and_the_others_keep_their_order() -> None:
    rows = made(ROWS)
    after = rows.changed({"ab": replace(ROWS[4], metadata="{}"), "a$t": None, "new": Row("new", NAMESPACE)})
    ids = ["a", "a$b", "a$b$u", "a$t$1", "r", "ab", "new"]
    assert [row.object_id for row in after] == ids
    assert after.find("ab") == replace(ROWS[4], metadata="{}")
    assert list(rows) == ROWS


def test_a_change_takes_the_place_of_every_row_of_its_id() -> None:
    rows = made([*ROWS, Row("r", TABLE, "other")])
    assert rows.changed({"r": ROWS[6]}).duplicates() == {}
    assert rows.changed({"r": None}).find("r") is None


def test_columns_of_other_writers_stay_with_their_rows() -> None:
    schema = arrow_schema().append(pa.field("owner", pa.string()))
    rows = made([replace(row, extra={"owner": row.object_id.upper()}) for row in ROWS], schema)
    assert rows.extra_columns == ["owner"]
    renamed = replace(rows.find("r") or ROWS[0], object_id="r2")
    after = rows.changed({"r": None, "r2": renamed, "new": Row("new", NAMESPACE)})
    owners = {row.object_id: (row.extra or {})["owner"] for row in after}
    assert owners == {
        **{row.object_id: row.object_id.upper() for row in ROWS if row.object_id != "r"},
        "r2": "R",
        "new": None,
    }


IDS = st.sampled_from(["a", "b", "a$x", "a$y", "b$x", "c"])
CHANGES = st.dictionaries(IDS, st.one_of(st.none(), st.sampled_from([NAMESPACE, TABLE])), max_size=4)


@given(st.lists(CHANGES, max_size=6), st.booleans())
@settings(max_examples=50)
def test_a_history_of_changes_gives_the_rows_of_a_dict(
    history: list[dict[str, str | None]], ask: bool
) -> None:
    """`ask`: look things up in between, so that what is known is carried over from version to version."""
    rows, model = made([]), dict[str, Row]()
    for changes in history:
        put = {each: None if kind is None else Row(each, kind) for each, kind in changes.items()}
        if ask:
            rows.find("a")
            rows.children((), TABLE)
            rows.by_location("x")
        rows = rows.changed(put)
        for each, row in put.items():
            model.pop(each, None)
            if row is not None:
                model[each] = row
    assert {row.object_id: row for row in rows} == model
    assert {each: rows.find(each) for each in model} == model
    assert rows.ids == [row.object_id for row in rows]
    assert rows.types == [row.object_type for row in rows]
    roots = sorted(each for each, row in model.items() if "$" not in each and row.object_type == TABLE)
    assert rows.children((), TABLE) == roots


@given(st.lists(st.one_of(st.none(), st.text(max_size=5)), max_size=20))
@settings(max_examples=50)
def test_text_is_put_together_as_arrow_does(values: list[str | None]) -> None:
    array = text_array(values)
    array.validate(full=True)
    assert array.equals(pa.array(values, pa.string()))


@given(st.lists(st.text("ab$", max_size=4), max_size=12), st.text("ab$", max_size=4), st.integers(0, 3))
@settings(max_examples=50)
def test_a_search_by_bytes_finds_what_is_there_or_gives_up(values: list[str], text: str, cut: int) -> None:
    array = text_array(values).slice(cut)
    found = search(array, text)
    expected = [at for at, each in enumerate(values[cut:]) if each == text]
    assert found in (expected, None)


def test_a_search_gives_up_where_much_looks_alike() -> None:
    assert search(text_array([f"a{number}" for number in range(100)]), "a") is None
    assert search(text_array([f"a{number}" for number in range(100)]), "a55") == [55]
    assert made([Row(f"a{number}", NAMESPACE) for number in range(100)]).find("a") is None


def test_a_later_version_takes_over_what_is_known_of_rows_that_it_begins_with() -> None:
    before = Rows(batch_of([Row("a", NAMESPACE), Row("b", NAMESPACE)], arrow_schema()))
    assert before.duplicates() == {}
    for added in ([], [Row("c", TABLE, "place")], [Row("a", TABLE, "place")]):
        later = before.changed({}, added)
        again = Rows(later.batch)
        again.learn(before)
        assert again.ids == later.ids
        assert again.duplicates() == Rows(later.batch).duplicates()
        for each in "abc":
            assert list(again.positions(each)) == list(Rows(later.batch).positions(each))
    other = Rows(batch_of([Row("b", NAMESPACE), Row("a", NAMESPACE), Row("c", NAMESPACE)], arrow_schema()))
    other.learn(before)
    assert list(other.positions("a")) == [1]
    shorter = Rows(batch_of([Row("a", NAMESPACE)], arrow_schema()))
    shorter.learn(before)
    assert not shorter.positions("b")


def test_places_are_found_in_the_column_and_in_the_index() -> None:
    put = [Row("a", TABLE, "one"), Row("n", NAMESPACE, "two"), Row("b", TABLE, "two"), Row("c", NAMESPACE)]
    rows = Rows(batch_of(put, arrow_schema()))
    for _ in range(MAX_SEARCHES + 2):
        assert [row.object_id for row in rows.by_location("two")] == ["b"]
        assert rows.by_location("tw") == rows.by_location("onetwo") == rows.by_location("") == []


def test_versions_share_the_index_of_the_first_until_much_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiltyard.catalog.rows.MAX_MORE", 3)
    rows = made(ROWS)
    assert not rows.duplicates()
    for n in range(10):
        before, rows = rows, rows.changed({f"new{n}": Row(f"new{n}", NAMESPACE)})
        read = Rows(rows.batch)
        read.learn(before)
        for each in (rows, read):
            assert each.find(f"new{n}") == Row(f"new{n}", NAMESPACE)
            assert each.find("new0") is not None
            assert each.find("a$t") == ROWS[1]
            assert each.find(f"new{n + 1}") is None
            assert each.ids == [*(row.object_id for row in ROWS), *(f"new{i}" for i in range(n + 1))]
        assert before.find(f"new{n}") is None


def test_a_later_version_with_an_id_twice_is_not_taken_for_a_sound_one() -> None:
    first = made(ROWS)
    assert not first.duplicates()
    second = first.changed({"new": Row("new", NAMESPACE)})
    for twice in ("new", "a$t"):
        later = made([*second, Row(twice, NAMESPACE)])
        later.learn(second)
        assert later.duplicates() == {twice: 2}
