"""Scalar indices of a table: built, listed, described, dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tiltyard.catalog.names import object_id
from tiltyard.catalog.operations.opening import opened, refuse_branch, transaction_of
from tiltyard.errors import IndexNotFound, InvalidInput, UnsupportedFeature, nearest

if TYPE_CHECKING:
    from datetime import datetime

    from tiltyard.catalog.catalog import Catalog
    from tiltyard.catalog.names import Id

SCALAR = frozenset(("SCALAR", "BTREE"))
"""Words for the kind of index that is built here."""
_LATER = """BITMAP LABEL_LIST LABELLIST INVERTED FTS NGRAM ZONEMAP ZONE_MAP BLOOMFILTER BLOOM_FILTER RTREE
    R_TREE"""
_VECTOR = "VECTOR IVF_PQ IVF_FLAT IVF_SQ IVF_RQ IVF_HNSW_FLAT IVF_HNSW_SQ IVF_HNSW_PQ"
LATER, VECTOR = frozenset(_LATER.split()), frozenset(_VECTOR.split())
"""Words for kinds that there are, and that are not built here."""
SUCCEEDED = "SUCCEEDED"
"""The only status an index that is listed has: it is built before its version is made."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One index of a version."""

    name: str
    uuid: str
    columns: tuple[str, ...]
    kind: str
    type_url: str
    rows_indexed: int
    rows_unindexed: int
    size_bytes: int | None
    segments: int
    created_at: datetime | None
    index_version: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """Rows that an index answers for, and those that it does not."""

    kind: str
    rows_indexed: int
    rows_unindexed: int
    segments: int


def check_kind(kind: str, *, scalar_only: bool = False) -> None:
    """Raise `InvalidInput` for a kind that does not exist, `UnsupportedFeature` for one not built here."""
    word = kind.strip().upper()
    if word in SCALAR:
        return
    if word in VECTOR:
        if scalar_only:
            raise InvalidInput(f"create_table_scalar_index builds scalar indices; {kind} is one of vectors")
        raise UnsupportedFeature(
            f"create_table_index with index_type {kind}: this version of tiltyard builds no vector indices; "
            "searches are exact"
        )
    if word in LATER:
        raise UnsupportedFeature(
            f"create_table_index with index_type {kind}: this version of tiltyard builds BTREE indices"
        )
    known = ", ".join([*sorted(SCALAR), *sorted(LATER), *sorted(VECTOR)])
    raise InvalidInput(f"index_type {kind!r} is not known; there are {known}")


def create_index(
    catalog: Catalog,
    id: Id,
    column: str,
    kind: str,
    *,
    name: str | None = None,
    scalar_only: bool = False,
    branch: Any = None,
) -> str | None:
    """Build an index (`<column>_idx` unless named) and give the uuid of the transaction.

    Raises `IndexAlreadyExists` where the name is taken, `FieldNotFound`.
    """
    check_kind(kind, scalar_only=scalar_only)
    refuse_branch(branch, "create_table_index")
    if not column:
        raise InvalidInput("create_table_index needs the name of a column")
    table = opened(catalog, id)
    table.create_scalar_index(column, "BTREE", name or f"{column}_idx", replace=False)
    return transaction_of(table)


def list_indices(
    catalog: Catalog, id: Id, *, version: int | None = None, branch: str | None = None
) -> list[Listed]:
    """The indices of a version, by name."""
    table = opened(catalog, id, version=version, branch=branch)
    return [
        Listed(
            each.name,
            each.segments[0].uuid,
            tuple(each.field_names),
            each.index_type,
            each.type_url,
            each.num_rows_indexed,
            each.num_rows_unindexed,
            each.total_size_bytes,
            each.num_segments,
            max((one.created_at for one in each.segments if one.created_at is not None), default=None),
            each.segments[0].index_version,
        )
        for each in table.describe_indices()
    ]


def index_statistics(
    catalog: Catalog, id: Id, name: str, *, version: int | None = None, branch: str | None = None
) -> Statistics:
    """What one index answers for. Raises `IndexNotFound`, which lists those that there are."""
    found = list_indices(catalog, id, version=version, branch=branch)
    for each in found:
        if each.name == name:
            return Statistics(each.kind, each.rows_indexed, each.rows_unindexed, each.segments)
    raise IndexNotFound(
        f"table id {object_id(id)!r} has no index {name!r}; {nearest(name, [each.name for each in found])}"
    )


def drop_index(catalog: Catalog, id: Id, name: str, *, branch: Any = None) -> str | None:
    """Drop an index and give the uuid of the transaction. Raises `IndexNotFound`."""
    refuse_branch(branch, "drop_table_index")
    table = opened(catalog, id)
    table.drop_index(name)
    return transaction_of(table)
