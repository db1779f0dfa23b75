"""Datasets, scanners, operations and transactions."""

from __future__ import annotations

from tiltyard.dataset import (
    AutoCleanupConfig,
    Branches,
    ColumnOrdering,
    DataFile,
    DataStatistics,
    FieldStatistics,
    FragmentMetadata,
    LanceDataset,
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
