"""A table as aligned text, for a terminal."""

from __future__ import annotations

import pyarrow as pa

WIDEST = 40  # characters of one cell


def lines(table: pa.Table) -> list[str]:
    """Head line and rows, columns aligned; numbers to the right, long values cut with an ellipsis."""
    columns = []
    for name in table.column_names:
        column = table[name]
        cells = [_cell(v) for v in column.to_pylist()]
        width = max([len(name), *map(len, cells)])
        right = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        columns.append([(c.rjust if right else c.ljust)(width) for c in [name, *cells]])
    return ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]


def _cell(value: object) -> str:
    text = "-" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
    text = " ".join(text.split())
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"


def count(number: int, noun: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
