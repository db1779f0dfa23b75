"""Sets of numbers, which come in their order."""

from __future__ import annotations

from collections.abc import Iterator


class Bitmap(set[int]):
    """A `set` of numbers that is iterated from the lowest to the highest."""

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(super().__iter__()))

    def __repr__(self) -> str:
        return f"Bitmap({{{', '.join(map(str, self))}}})"
