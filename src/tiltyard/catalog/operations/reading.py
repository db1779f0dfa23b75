"""Questions to a table: queries, counts, and what a query would do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tiltyard.catalog.operations.opening import opened
from tiltyard.errors import InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa

    from tiltyard.catalog.catalog import Catalog
    from tiltyard.catalog.names import Id
    from tiltyard.dataset import LanceDataset, LanceScanner

DEFAULT_VECTOR_COLUMN = "vector"
DEFAULT_NEIGHBOURS = 10
METRICS = {
    "l2": "l2",
    "euclidean": "l2",
    "cosine": "cosine",
    "dot": "dot",
    "inner_product": "dot",
    "hamming": "hamming",
}
"""Words for distances, to those of a scan."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query: `k` is the limit of rows (0: none), or with a vector how many neighbours (0: 10).

    `columns`: names, or a map from result names to SQL. `low` and `high` bound the distance. `hints` tune a
    vector index.
    """

    k: int
    vector: tuple[float, ...] | None = None
    vector_column: str | None = None
    columns: tuple[str, ...] | Mapping[str, str] | None = None
    filter: str | None = None
    offset: int | None = None
    prefilter: bool = False
    with_row_id: bool = False
    metric: str | None = None
    low: float | None = None
    high: float | None = None
    bypass_index: bool = False
    hints: Mapping[str, int] | None = None
    version: int | None = None
    branch: str | None = None


def query(catalog: Catalog, id: Id, asked: Query) -> pa.Table:
    """The rows that a query gives."""
    return _scanner(catalog, id, asked).to_table()


def explain(catalog: Catalog, id: Id, asked: Query, *, verbose: bool = False) -> str:
    """What a query would read, as text."""
    return _scanner(catalog, id, asked).explain_plan(verbose)


def analyze(catalog: Catalog, id: Id, asked: Query) -> str:
    """Run a query, and tell what it read and what it took, as text."""
    return _scanner(catalog, id, asked).analyze_plan()


def count(
    catalog: Catalog,
    id: Id,
    predicate: str | None = None,
    *,
    version: int | None = None,
    branch: str | None = None,
) -> int:
    """How many rows there are, or for how many the predicate is true."""
    return opened(catalog, id, version=version, branch=branch).count_rows(predicate)


def _scanner(catalog: Catalog, id: Id, asked: Query) -> LanceScanner:
    table = opened(catalog, id, version=asked.version, branch=asked.branch)
    options: dict[str, Any] = {"offset": asked.offset, "with_row_id": asked.with_row_id or None}
    if asked.vector is None:
        options["limit"] = asked.k or None
    else:
        options["nearest"] = _nearest(table, asked, asked.vector)
        options["prefilter"] = asked.prefilter
        if asked.offset:
            # The neighbours that the offset leaves out are among those that must be found.
            options["nearest"]["k"] += asked.offset
    columns = asked.columns
    return table.scanner(
        list(columns) if isinstance(columns, tuple) else columns,
        asked.filter,
        **options,
    )


def _nearest(table: LanceDataset, asked: Query, vector: tuple[float, ...]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "column": asked.vector_column or DEFAULT_VECTOR_COLUMN,
        "q": list(vector),
        "k": asked.k or DEFAULT_NEIGHBOURS,
        "use_index": not asked.bypass_index,
        **(asked.hints or {}),
    }
    if asked.metric is not None:
        metric = METRICS.get(asked.metric.lower())
        if metric is None:
            raise InvalidInput(f"distance_type must be one of {', '.join(METRICS)}, found {asked.metric!r}")
        made["metric"] = metric
    if asked.low is not None or asked.high is not None:
        made["distance_range"] = (asked.low, asked.high)
    return made
