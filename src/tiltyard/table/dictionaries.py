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


def encoded(values: Any, wanted: Any) -> Any:
    """The array as a dictionary array of exactly this type. Raises `pa.ArrowInvalid` when the values are more
    than its indices can tell apart, or not of its value type.
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    made = values.cast(wanted.value_type).dictionary_encode()
    indices = made.indices.cast(wanted.index_type)
    return pa.DictionaryArray.from_arrays(indices, made.dictionary, ordered=wanted.ordered, safe=False)
