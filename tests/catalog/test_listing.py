"""Pages of names: every name once, whatever is made and dropped between pages."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.catalog import Catalog, open_catalog
from tiltyard.catalog.listing import Page, list_all_tables, list_tables, page_of
from tiltyard.catalog.namespaces import create_namespace
from tiltyard.catalog.tables import create_table, declare_table
from tiltyard.errors import UnsupportedFeature, WrongType
from tiltyard.session import Session

NAMES = st.lists(st.text(min_size=1, max_size=4), unique=True, max_size=12).map(sorted)


@given(names=NAMES, size=st.integers(1, 14))
@settings(max_examples=50, deadline=None)
def test_walking_the_pages_gives_every_name_once(names: list[str], size: int) -> None:
    found: list[str] = []
    token: str | None = None
    pages = 0
    while True:
        page = page_of(names, token, size)
        assert len(page) <= size
        found += page
        pages += 1
        if page.token is None:
            break
        token = page.token
    assert found == names
    assert pages == max(1, -(-len(names) // size))


@given(names=NAMES, size=st.integers(1, 5), gone=st.sets(st.integers(0, 11)))
@settings(max_examples=50, deadline=None)
def test_names_that_stay_are_met_once_though_others_vanish(
    names: list[str], size: int, gone: set[int]
) -> None:
    left = [name for at, name in enumerate(names) if at not in gone]
    page = page_of(names, None, size)
    found = list(page)
    while page.token is not None:
        page = page_of(left, page.token, size)
        found += page
    assert [name for name in found if name in left] == left
    assert len(set(found)) == len(found)


def test_limits_and_tokens() -> None:
    names = ["a", "b", "c"]
    assert page_of(names, None, None) == Page(("a", "b", "c"))
    assert page_of(names, None, -1) == Page(("a", "b", "c"))
    assert page_of(names, None, 0) == Page(())
    assert page_of(names, None, 2) == Page(("a", "b"), "b")
    assert page_of(names, "b", 2) == Page(("c",))
    assert page_of(names, None, 3) == Page(("a", "b", "c"))
    assert page_of(names, "zzz", 3) == Page(())
    assert page_of(names, "aa", 3) == Page(("b", "c"))
    assert page_of(names, None, 2, lambda name: name != "b") == Page(("a", "c"))
    assert page_of(names, None, 2, lambda name: name != "c") == Page(("a", "b"))
    for wrong in ("5", 1.5, True):
        with pytest.raises(WrongType, match="limit"):
            page_of(names, None, wrong)  # type: ignore[arg-type]
    with pytest.raises(WrongType, match="token"):
        page_of(names, 5, None)  # type: ignore[arg-type]


@pytest.fixture
def lake(tmp_path: Path) -> Catalog:
    catalog = open_catalog(str(tmp_path / "lake"), session=Session())
    create_namespace(catalog, ("n",))
    create_namespace(catalog, ("n", "m"))
    for id in (("b",), ("a",), ("n", "t"), ("n", "m", "u")):
        create_table(catalog, id, pa.table({"a": [1]}))
    declare_table(catalog, ("c",))
    declare_table(catalog, ("n", "d"))
    return catalog


def test_tables_of_one_namespace_and_of_all(lake: Catalog) -> None:
    assert list_tables(lake).names == ("a", "b", "c")
    assert list_tables(lake, ("n",)).names == ("d", "t")
    assert list_tables(lake, ("n", "m")).names == ("u",)
    assert list_tables(lake, ("nowhere",)).names == ()
    assert list_all_tables(lake).names == ("a", "b", "c", "n$d", "n$m$u", "n$t")
    first = list_all_tables(lake, limit=4)
    assert first == Page(("a", "b", "c", "n$d"), "n$d")
    assert list_all_tables(lake, page_token=first.token, limit=4).names == ("n$m$u", "n$t")


def test_declared_tables_can_be_left_out(lake: Catalog) -> None:
    assert list_tables(lake, include_declared=False).names == ("a", "b")
    assert list_tables(lake, ("n",), include_declared=False).names == ("t",)
    assert list_all_tables(lake, include_declared=False).names == ("a", "b", "n$m$u", "n$t")
    assert list_tables(lake, include_declared=False, limit=2) == Page(("a", "b"))


def test_a_catalog_without_a_register_has_one_level(lake: Catalog) -> None:
    v1 = open_catalog(lake.uri, properties={"manifest_enabled": "false"}, session=Session())
    assert list_tables(v1).names == ("a", "b", "c")
    assert list_all_tables(v1).names == ("a", "b", "c")
    with pytest.raises(UnsupportedFeature):
        list_tables(v1, ("n",))


def test_a_catalog_of_rows_alone_lists_rows(lake: Catalog, tmp_path: Path) -> None:
    rows = open_catalog(lake.uri, properties={"dir_listing_enabled": "false"}, session=Session())
    (tmp_path / "lake" / "plain.lance" / "_versions").mkdir(parents=True)
    assert list_tables(rows).names == ("a", "b", "c")
    assert list_all_tables(rows) == list_all_tables(lake)
