"""What a function takes, and the shapes that most functions have: one value after another, or one pattern
over a column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tiltyard.expr.coerce import Kind, Mismatch

Run = Callable[[Sequence[Any], int], Any]

NUMBER = frozenset({Kind.INT, Kind.FLOAT, Kind.DECIMAL})
WHOLE = frozenset({Kind.INT})
TEXT = frozenset({Kind.TEXT})
BYTES = frozenset({Kind.TEXT, Kind.BINARY})
INSTANT = frozenset({Kind.INSTANT})
CLOCK = frozenset({Kind.INSTANT, Kind.TIME})
ANY = frozenset(Kind)

MAX_TEXT = 1 << 28
"""Characters of a text that a function makes of a shorter one (`repeat`, `lpad`), at most."""


@dataclass(frozen=True, slots=True)
class Signature:
    """`kinds` per argument (the last one repeats), the least and most arguments (None: any number),
    `constants`: the positions that must be literals, `as_text`: numbers, times and booleans are taken as
    their text."""

    kinds: tuple[frozenset[Kind], ...]
    least: int
    most: int | None
    run: Run
    constants: frozenset[int] = frozenset()
    as_text: bool = False


def check_count(name: str, args: Sequence[Any], least: int, most: int | None) -> None:
    """Raises `Mismatch` for fewer or more arguments than a function takes."""
    if len(args) >= least and (most is None or len(args) <= most):
        return
    wanted = str(least)
    if most != least:
        wanted += " or more" if most is None else f" to {most}"
    raise Mismatch(f"{name} takes {wanted} arguments, not {len(args)}")


def on(kernel: str, **options: Any) -> Run:
    """An Arrow kernel over all arguments."""

    def run(args: Sequence[Any], rows: int) -> Any:
        import pyarrow.compute as pc

        return getattr(pc, kernel)(*args, **options)

    return run


def array_of(arg: Any, rows: int) -> pa.Array:
    """An argument as an array of that many rows."""
    return pa.repeat(arg, rows) if isinstance(arg, pa.Scalar) else arg


def by_value(of: Callable[..., Any], arrow: pa.DataType | None = None) -> Run:
    """A function of Python values: once for each distinct value where one argument is a column, else row by
    row. Null where any argument is. `arrow`: the type of the result, None for that of the first argument.
    """

    def run(args: Sequence[Any], rows: int) -> Any:
        target = args[0].type if arrow is None else arrow
        columns = [at for at, arg in enumerate(args) if isinstance(arg, pa.Array)]
        given = [arg.as_py() if isinstance(arg, pa.Scalar) else None for arg in args]
        if any(given[at] is None for at in range(len(args)) if at not in columns):
            return pa.nulls(rows, target)

        def answer(values: Sequence[Any]) -> Any:
            if any(value is None for value in values):
                return None
            try:
                return of(*values)
            except (ValueError, OverflowError) as error:
                raise pa.ArrowInvalid(str(error)) from error

        if not columns:
            return pa.array([answer(given)] * rows, target)
        if len(columns) > 1 or pa.types.is_null(args[columns[0]].type):
            spread = [arg.to_pylist() if isinstance(arg, pa.Array) else [arg.as_py()] * rows for arg in args]
            return pa.array([answer(row) for row in zip(*spread, strict=True)], target)
        at = columns[0]
        coded = args[at].dictionary_encode()
        found = [answer([*given[:at], value, *given[at + 1 :]]) for value in coded.dictionary.to_pylist()]
        return pa.array(found, target).take(coded.indices)

    return run


def by_pattern(kernel: Callable[[pa.Array, str], pa.Array], arrow: pa.DataType) -> Run:
    """A kernel that takes a column and one text; where the text is a column, once for each of its values."""

    def run(args: Sequence[Any], rows: int) -> Any:
        if isinstance(args[1], pa.Scalar):
            pattern = args[1].as_py()
            return pa.nulls(rows, arrow) if pattern is None else kernel(args[0], pattern)
        column = array_of(args[0], rows)
        coded = args[1].dictionary_encode()
        codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        order = np.argsort(codes, kind="stable")
        parts: list[pa.Array] = []
        ends = np.searchsorted(codes[order], np.arange(-1, len(coded.dictionary)), side="right")
        for code, (start, end) in enumerate(zip([0, *ends], ends, strict=False), -1):
            mine = column.take(pa.array(order[start:end]))
            parts.append(
                pa.nulls(len(mine), arrow) if code < 0 else kernel(mine, coded.dictionary[code].as_py())
            )
        back = np.empty(rows, np.int64)
        back[order] = np.arange(rows)
        return pa.concat_arrays(parts).take(pa.array(back)) if parts else pa.nulls(0, arrow)

    return run


def one(kinds: frozenset[Kind], run: Run) -> Signature:
    """The signature of a function of one argument."""
    return Signature((kinds,), 1, 1, run)


def texts(least: int, most: int | None, run: Run) -> Signature:
    """The signature of a function of texts alone."""
    return Signature((TEXT,), least, most, run)
