"""Datasets: the facade over tables, with the names and meanings of the official Python API."""

from __future__ import annotations

from tiltyard.dataset.cleaning import AutoCleanupConfig
from tiltyard.dataset.fragment import LanceFragment, write_fragments
from tiltyard.dataset.fragment_session import FragmentSession
from tiltyard.dataset.lance_dataset import LanceDataset, dataset
from tiltyard.dataset.lance_schema import LanceSchema
from tiltyard.dataset.merge_insert import MergeInsertBuilder
from tiltyard.dataset.metadata import (
    DataFile,
    DeletionFile,
    FragmentMetadata,
    RowDatasetVersionMeta,
    RowIdMeta,
)
from tiltyard.dataset.operations import LanceOperation
from tiltyard.dataset.progress import (
    FileSystemFragmentWriteProgress,
    FragmentWriteProgress,
    NoopFragmentWriteProgress,
)
from tiltyard.dataset.scanner import ColumnOrdering, LanceScanner, ScannerBuilder
from tiltyard.dataset.schema_json import json_to_schema, schema_to_json
from tiltyard.dataset.stats import DataStatistics, FieldStatistics, LanceStats
from tiltyard.dataset.tags import Branches, Tags
from tiltyard.dataset.transaction import Transaction
from tiltyard.dataset.write import write_dataset

__all__ = [
    "AutoCleanupConfig",
    "Branches",
    "ColumnOrdering",
    "DataFile",
    "DataStatistics",
    "DeletionFile",
    "FieldStatistics",
    "FileSystemFragmentWriteProgress",
    "FragmentMetadata",
    "FragmentSession",
    "FragmentWriteProgress",
    "LanceDataset",
    "LanceFragment",
    "LanceOperation",
    "LanceScanner",
    "LanceSchema",
    "LanceStats",
    "MergeInsertBuilder",
    "NoopFragmentWriteProgress",
    "RowDatasetVersionMeta",
    "RowIdMeta",
    "ScannerBuilder",
    "Tags",
    "Transaction",
    "dataset",
    "json_to_schema",
    "schema_to_json",
    "write_dataset",
    "write_fragments",
]
