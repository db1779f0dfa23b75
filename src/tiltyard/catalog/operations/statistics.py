"""Figures of a table that cost no scan: its manifest and the tails of its data files say them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tiltyard.catalog.operations.opening import opened

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.catalog.names import Id

SMALL_FRAGMENT_ROWS = 1_048_576
"""A fragment with fewer rows is a small one."""


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """Bytes of columns in data files, physical rows (deleted ones included), indices, lengths of fragments
    (rows).
    """

    total_bytes: int
    rows: int
    indices: int
    fragments: int
    small_fragments: int
    lengths: dict[str, int]
    """min, max, mean, p25, p50, p75, p99."""


def table_statistics(catalog: Catalog, id: Id, *, branch: str | None = None) -> TableStatistics:
    """The figures of a table's newest version."""
    table = opened(catalog, id, branch=branch)
    snapshot = table._held
    fragments = snapshot.fragments
    rows = np.sort(np.asarray(fragments.physical_rows, dtype=np.int64))
    return TableStatistics(
        total_bytes=sum(each.bytes_on_disk for each in table.stats.data_stats().fields),
        rows=int(rows.sum()),
        indices=len({entry.name for entry in snapshot.manifest.indices if not entry.is_system}),
        fragments=len(rows),
        small_fragments=int((rows < SMALL_FRAGMENT_ROWS).sum()),
        lengths=_lengths(rows),
    )


def _lengths(rows: np.ndarray) -> dict[str, int]:
    if not len(rows):
        return dict.fromkeys(("min", "max", "mean", "p25", "p50", "p75", "p99"), 0)
    made = {"min": int(rows[0]), "max": int(rows[-1]), "mean": int(rows.mean())}
    for percent in (25, 50, 75, 99):
        made[f"p{percent}"] = int(rows[min(len(rows) - 1, len(rows) * percent // 100)])
    return made
