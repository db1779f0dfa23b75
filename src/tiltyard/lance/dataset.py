"""Datasets, scanners, operations and transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiltyard.dataset import (
    AutoCleanupConfig,
    Branches,
    ColumnOrdering,
    DataFile,
    DataStatistics,
    FieldStatistics,
    FragmentMetadata,
    LanceFragment,
    LanceOperation,
    LanceScanner,
    LanceSchema,
    LanceStats,
    MergeInsertBuilder,
    ScannerBuilder,
    Tags,
    Transaction,
    dataset,
    write_dataset,
)
from tiltyard.dataset.transaction import COMMIT_MESSAGE_KEY as LANCE_COMMIT_MESSAGE_KEY

if TYPE_CHECKING:
    from typing import Any

    from tiltyard.dataset import LanceDataset

__all__ = [
    "LANCE_COMMIT_MESSAGE_KEY",
    "AutoCleanupConfig",
    "Branches",
    "ColumnOrdering",
    "DataFile",
    "DataStatistics",
    "FieldStatistics",
    "FragmentMetadata",
    "LanceDataset",
    "LanceFragment",
    "LanceOperation",
    "LanceScanner",
    "LanceSchema",
    "LanceStats",
    "MergeInsertBuilder",
    "ScannerBuilder",
    "Tags",
    "Transaction",
    "dataset",
    "write_dataset",
]


def __getattr__(name: str) -> Any:
    if name != "LanceDataset":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tiltyard.dataset.arrow_class import arrow_class
    from tiltyard.dataset.lance_dataset import LanceDataset

    globals()[name] = found = arrow_class(LanceDataset)  # who names the class may ask what it derives from
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
