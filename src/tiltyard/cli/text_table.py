"""A table as aligned text, for a terminal."""

from __future__ import annotations

import shutil
import unicodedata
from collections.abc import Container
from datetime import datetime

import pyarrow as pa

from tiltyard.table.wording import NS_PER_SECOND, counted

WIDEST = 40  # columns of a terminal that one cell may take
NARROWEST = 6  # and those that it keeps where many cells share a line
GAP = "  "


def lines(
    table: pa.Table, width: int | None = None, right: Container[str] = (), whole: Container[str] = ()
) -> list[str]:
    """Head line and rows, columns aligned; numbers, and columns named in `right`, to the right, long
    values cut with an ellipsis.

    `width`: columns of the terminal, None without a limit. Wide columns are narrowed to fit, those named in
    `whole` after all others; where that is not enough, the last ones are left out and counted. Control
    characters are escaped.
    """
    columns = [_cells(name, table[name]) for name in table.column_names]
    widths = [max(map(_width, cells)) for cells in columns]
    if width is not None:
        widths = _fitted(widths, width, [name in whole for name in table.column_names])
    shown = []
    for cells, room, field in zip(columns, widths, table.schema, strict=False):
        is_number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        to_right = is_number or field.name in right
        shown.append([_padded(_cut(cell, room), room, to_right) for cell in cells])
    told = [GAP.join(row).rstrip() for row in zip(*shown, strict=True)]
    left_out = len(columns) - len(widths)
    return [*told, f"({counted(left_out, 'more column')})"] if left_out else told


def terminal_width() -> int | None:
    """Columns of the terminal that standard output is, or of `COLUMNS`; None where there is neither."""
    return shutil.get_terminal_size((0, 0)).columns or None


def local_time(moment: datetime | int) -> str:
    """A time, or ns since the epoch, as local time to the second, with its offset from UTC."""
    if isinstance(moment, int):
        moment = datetime.fromtimestamp(moment // NS_PER_SECOND)
    return moment.astimezone().isoformat(sep=" ", timespec="seconds")


def escaped(text: str) -> str:
    """The text with all that is not printable, such as what moves a terminal's cursor, as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _cells(name: str, column: pa.ChunkedArray) -> list[str]:
    return [_cut(escaped(name), WIDEST), *(_cell(value) for value in column.to_pylist())]


def _cell(value: object) -> str:
    text = "-" if value is None else _number(value) if isinstance(value, float) else str(value)
    return _cut(escaped(text), WIDEST)


def _number(value: float) -> str:
    """Six digits, and always seen to be no whole number's column: `61.0`."""
    text = f"{value:.6g}"
    return f"{text}.0" if text.lstrip("-").isdecimal() else text


def _width(text: str) -> int:
    """Columns of a terminal that a text takes: wide East Asian characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def _cut(text: str, room: int) -> str:
    if len(text) <= room and _width(text) <= room:
        return text
    end, used = 0, 1  # the ellipsis
    for character in text:
        used += _width(character)
        if used > room:
            break
        end += 1
    return text[:end] + "…"


def _padded(text: str, room: int, right: bool) -> str:
    blank = " " * (room - _width(text))
    return blank + text if right else text + blank


def _fitted(widths: list[int], width: int, whole: list[bool]) -> list[int]:
    """The widths of as many columns as fit, the widest made narrower first, those to be whole last."""
    least = [min(each, NARROWEST) for each in widths]
    fitting = len(least)
    while fitting > 1 and sum(least[:fitting]) + len(GAP) * (fitting - 1) > width:
        fitting -= 1
    found = widths[:fitting]
    room = width - len(GAP) * (fitting - 1)
    for narrowed in ([at for at in range(fitting) if not whole[at]], list(range(fitting))):
        while sum(found) > room and max((found[at] for at in narrowed), default=0) > NARROWEST:
            found[max(narrowed, key=lambda at: found[at])] -= 1
    return found
