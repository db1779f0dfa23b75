"""Which requests bring a set of byte ranges: near ones together, long ones in parts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

GAP_BYTES = 64 << 10
"""Ranges this near to each other come in one request: reading the bytes between costs less than asking."""
PART_BYTES = 16 << 20
"""A request for more than this is split, so that the parts come side by side."""


@dataclass(frozen=True, slots=True)
class Request:
    """Bytes [start, end) of an object."""

    start: int
    end: int


def coalesced(
    ranges: Sequence[tuple[int, int]], *, gap: int = GAP_BYTES, part: int = PART_BYTES
) -> list[Request]:
    """Requests, ascending and disjoint, that cover every (start, length) range; none for empty ones.

    A request is longer than `part` bytes only never: what is joined stays below it, what is longer is split.
    """
    out: list[Request] = []
    for start, length in sorted(ranges):
        end = start + length
        if out and end <= out[-1].end:
            continue
        if not length:
            continue
        last = out[-1] if out else None
        if last is not None and start < last.end:
            start = last.end  # what both want comes once
        if last is not None and start - last.end <= gap and end - last.start <= part:
            out[-1] = Request(last.start, end)
            continue
        while end - start > part:
            out.append(Request(start, start + part))
            start += part
        out.append(Request(start, end))
    return out


def pieces(requests: Sequence[Request], start: int, length: int) -> list[tuple[int, int, int]]:
    """Where a range lies in the answers: (request number, offset in its answer, bytes), in order.

    `requests` as `coalesced` made them of ranges that this one is among.
    """
    from bisect import bisect_right

    out: list[tuple[int, int, int]] = []
    end = start + length
    number = bisect_right(requests, start, key=lambda each: each.start) - 1
    while start < end:
        request = requests[number]
        taken = min(end, request.end) - start
        out.append((number, start - request.start, taken))
        start += taken
        number += 1
    return out
