"""Numbers, sizes and spans of time as people read them."""

from __future__ import annotations

NS_PER_SECOND = 1_000_000_000
_SPANS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_FEW = 3
"""From so many of a unit on a span is told in it, even where it is not whole."""


def counted(number: int, noun: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def sized(nbytes: int) -> str:
    """Bytes in a decimal unit: `1 byte`, `62.8 MB`."""
    for unit, name in _SIZES:
        if nbytes >= 0.9995 * unit:  # 999,999 bytes are 1 MB, not 1000 kB
            return f"{nbytes / unit:.3g} {name}"
    return counted(nbytes, "byte")


def span_text(ns: int) -> str:
    """A span of time in its greatest fitting unit: `7 days`, `1 hour`, `90 seconds`, `30.4 days`."""
    seconds = ns / NS_PER_SECOND
    for unit, name in _SPANS:
        if seconds >= unit and seconds % unit == 0:
            return _units(seconds / unit, name)
        if unit > 1 and seconds >= _FEW * unit:
            return _units(round(seconds / unit, 1), name)
    return _units(seconds, "second")


def _units(number: float, name: str) -> str:
    whole = f"{number:,.6f}".rstrip("0").rstrip(".")
    return f"{whole} {name}" + ("" if number == 1 else "s")
