"""The face that other engines use: SQL through DuckDB, and the methods of a dataset of `pyarrow.dataset` that
change nothing and give another dataset.

What Arrow computes itself (joins, sorts, a filter that stays) is computed in memory, on the columns and rows
that this version holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from tiltyard.dataset import arguments
from tiltyard.dataset.reading import ReadFace
from tiltyard.errors import InvalidInput, UnsupportedFeature

if TYPE_CHECKING:
    from tiltyard.dataset.queries import SqlQueryBuilder

DIRECTIONS = ("ascending", "descending")


class EngineFace(ReadFace):
    """A dataset as engines see it."""

    def sql(self, sql: str) -> SqlQueryBuilder:
        """A query in DuckDB's SQL over this version, which it calls `dataset`; `build()` it, then read it.

        DuckDB reads the columns that the query names and passes its comparisons down. Needs DuckDB, which
        `pip install 'tiltyard[sql]'` brings; raises `MissingPackage` without it.
        """
        from tiltyard.dataset.queries import SqlQueryBuilder

        return SqlQueryBuilder(self, arguments.text("sql", sql))

    @property
    def partition_expression(self) -> Any:
        """What is true for every row: `true`, for a table has no partitions."""
        import pyarrow.compute as pc

        return pc.scalar(True)

    def replace_schema(self, schema: Any) -> NoReturn:
        """Refused: a table's schema changes by a commit, for everybody. A scan's `columns` give other names
        and types.
        """
        raise UnsupportedFeature(
            "replace_schema would show the table with another schema, which this version does not serve: "
            "give the columns of a scan as a map from names to SQL (such as 'CAST(a AS bigint)'), or change "
            "the metadata (replace_schema_metadata, replace_field_metadata)"
        )

    def filter(self, expression: Any) -> Any:
        """The rows that pass, as a `pyarrow.dataset.InMemoryDataset`: they are read now."""
        return _in_memory(self.to_table(filter=expression))

    def sort_by(self, sorting: Any, *, null_placement: str = "at_end") -> Any:
        """The rows in the order of columns, as a `pyarrow.dataset.InMemoryDataset`: they are read now.

        `sorting`: a column, or a list of (column, 'ascending' or 'descending'). `null_placement`: `at_end` or
        `at_start`.
        """
        from tiltyard.dataset.scanner import ColumnOrdering

        first = arguments.one_of("null_placement", null_placement, "at_end", "at_start") == "at_start"
        keys = []
        for name, direction in _sorting(sorting):
            keys.append(ColumnOrdering(name, direction == DIRECTIONS[0], first))
        return _in_memory(self.to_table(order_by=keys))

    def join(
        self,
        right_dataset: Any,
        keys: Any,
        right_keys: Any = None,
        join_type: str = "left outer",
        left_suffix: str | None = None,
        right_suffix: str | None = None,
        coalesce_keys: bool = True,
        use_threads: bool = True,
    ) -> Any:
        """The join with another dataset of any kind, or a table, as `pyarrow.dataset.Dataset.join` defines
        it, in memory; rows come in no particular order. Raises `FieldNotFound`, `InvalidInput`, `WrongType`.
        """
        from tiltyard.dataset import joins

        left, right = _in_memory(self.to_table()), _arrow(right_dataset)
        suffixes = left_suffix, right_suffix
        return joins.join(left, right, keys, right_keys, join_type, suffixes, coalesce_keys, use_threads)

    def join_asof(
        self,
        right_dataset: Any,
        on: str,
        by: Any,
        tolerance: Any,
        right_on: str | None = None,
        right_by: Any = None,
    ) -> Any:
        """The join with the nearest row of another dataset, as `pyarrow.dataset.Dataset.join_asof` defines
        it, in memory; both must be sorted by `on`. Raises as `join` does.
        """
        from tiltyard.dataset import joins

        left, right = _in_memory(self.to_table()), _arrow(right_dataset)
        return joins.join_asof(left, right, on, by, tolerance, right_on, right_by)


def _in_memory(table: Any) -> Any:
    from pyarrow.dataset import InMemoryDataset

    return InMemoryDataset(table)


def _arrow(right: Any) -> Any:
    """What is joined, as a dataset that Arrow can read itself."""
    import pyarrow as pa
    import pyarrow.dataset

    if isinstance(right, EngineFace):
        return _in_memory(right.to_table())
    if isinstance(right, (pa.Table, pa.RecordBatch)):
        return _in_memory(right)
    return arguments.instance("right_dataset", right, pyarrow.dataset.Dataset)


def _sorting(given: Any) -> list[tuple[str, str]]:
    """Columns and directions, as Arrow's `sort_by` takes them."""
    if isinstance(given, str):
        return [(given, DIRECTIONS[0])]
    found = []
    for at, each in enumerate(arguments.items("sorting", given, object)):
        if not isinstance(each, (tuple, list)) or len(each) != 2:
            raise InvalidInput(
                f"sorting[{at}] must be a column and a direction, found {arguments.shown(each)}"
            )
        name = arguments.text(f"sorting[{at}]", each[0])
        found.append((name, arguments.one_of(f"the direction of {name!r}", each[1], *DIRECTIONS)))
    return found
