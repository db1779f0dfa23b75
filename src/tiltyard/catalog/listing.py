"""Names of tables, in pages (cases N05, N07, N13; pack 4.8).

1. A page begins behind the name that its token is, whether that name is still there or not; walking the pages
   gives every name that stood all along exactly once. Test: tests/catalog/test_listing.py.
2. A token is given only when more names follow.
3. A name is listed if and only if `found` finds a table of it.
4. What is looked at in storage is one listing of the root and the tables of the page, not all tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiltyard.catalog.found import find_or_none, register_of, root_names, table_row, with_declared
from tiltyard.catalog.names import SEPARATOR, Id, checked_id, parts
from tiltyard.catalog.rows import TABLE
from tiltyard.catalog.settings import Mode
from tiltyard.errors import CatalogDamaged, UnsupportedFeature, WrongType

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.catalog.register import Register


MAX_LISTINGS = 8
"""How often a root without a register is listed while others rename there."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some names in their order; iterating gives them. `token` asks for the next page, None after the
    last.
    """

    names: tuple[str, ...]
    token: str | None = None

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)


def page_of(
    names: Sequence[str],
    token: str | None,
    limit: int | None,
    keep: Callable[[str], bool] | None = None,
) -> Page:
    """The page behind a token of sorted names that `keep` (all, if None) lets pass. No limit: one page of
    all; 0: an empty one without a token.
    """
    if token is not None and not isinstance(token, str):
        raise WrongType(f"a page token is the text that came with the page before, found {token!r}")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int)):
        raise WrongType(f"the limit of a page is a number of names, found {limit!r}")
    if limit == 0:
        return Page(())
    most = None if limit is None or limit < 0 else limit
    found: list[str] = []
    for name in names[_start(names, token) :]:
        if keep is not None and not keep(name):
            continue
        if most is not None and len(found) == most:
            return Page(tuple(found), found[-1])
        found.append(name)
    return Page(tuple(found))


def _start(names: Sequence[str], token: str | None) -> int:
    from bisect import bisect_right

    return 0 if token is None else bisect_right(names, token)


def list_tables(
    catalog: Catalog,
    id: Id = (),
    *,
    page_token: str | None = None,
    limit: int | None = None,
    include_declared: bool = True,
) -> Page:
    """Names of the tables directly in a namespace, sorted; none for a namespace that does not exist.

    `include_declared=False` leaves out those without a version.
    """
    id = checked_id(id, "a namespace's id")
    mode = catalog.settings.mode
    if mode is Mode.V1 and id:
        raise UnsupportedFeature(
            "Child namespaces are only supported when manifest mode is enabled: this catalog was opened with "
            "manifest_enabled=false"
        )
    register = register_of(catalog)
    names = register.rows.children(id, TABLE) if id else root_names(catalog, register)
    certain = include_declared and (bool(id) or mode is Mode.MANIFEST)

    def keep(name: str) -> bool:
        return _is_listed(catalog, register, (*id, name), include_declared)

    page = page_of(names, page_token, limit, None if certain else keep)
    if mode is Mode.V1:
        for _ in range(MAX_LISTINGS):
            now = root_names(catalog, register)
            if now == names:
                break  # else a table may have been renamed to a name that was not yet there
            names = now
            page = page_of(names, page_token, limit, keep)
    return page


def list_all_tables(
    catalog: Catalog,
    *,
    page_token: str | None = None,
    limit: int | None = None,
    include_declared: bool = True,
) -> Page:
    """Object ids of the tables of all namespaces, sorted."""
    if catalog.settings.mode is Mode.V1:
        return list_tables(catalog, page_token=page_token, limit=limit, include_declared=include_declared)
    register = register_of(catalog)
    root = root_names(catalog, register)
    rows = register.rows
    nested = [each for each, kind in zip(rows.ids, rows.types, strict=True) if kind == TABLE]
    names = sorted({*root, *(each for each in nested if SEPARATOR in each)})
    certain = include_declared and catalog.settings.mode is Mode.MANIFEST

    def keep(name: str) -> bool:
        return _is_listed(catalog, register, parts(name), include_declared)

    return page_of(names, page_token, limit, None if certain else keep)


def _is_listed(catalog: Catalog, register: Register, id: Id, include_declared: bool) -> bool:
    try:
        if include_declared and len(id) > 1 and table_row(register, id) is not None:
            return True
        found = find_or_none(catalog, register, id)
    except CatalogDamaged:
        return True  # two rows: opening it says so, and leaving it out would hide it
    if found is None:
        return False
    return include_declared or not with_declared(catalog, found).declared_only
