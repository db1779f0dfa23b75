"""One dictionary per column over batches that brought their own."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tiltyard.errors import BatchTooLarge


def united(table: Any) -> Any:
    """The `pa.Table` with one dictionary for all chunks of a column.

    Raises `BatchTooLarge`, naming the column, where the values of all chunks are more than its index type can
    number, and for dictionaries with nulls among their values.
    """
    try:
        return table.unify_dictionaries()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        for name, column in zip(table.column_names, table.columns, strict=True):
            try:
                column.unify_dictionaries()
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                raise BatchTooLarge(
                    f"column {name!r}: the dictionaries of these rows cannot become one of type "
                    f"{column.type} ({error}); read fewer rows at a time, in stored order, or write the "
                    "column with a wider index"
                ) from error
        raise BatchTooLarge(f"the dictionaries of these rows cannot become one: {error}") from error
