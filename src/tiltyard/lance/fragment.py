"""Fragments, and writing them without committing."""

from __future__ import annotations

from tiltyard.dataset import (
    DataFile,
    DeletionFile,
    FragmentMetadata,
    FragmentSession,
    FragmentWriteProgress,
    LanceFragment,
    NoopFragmentWriteProgress,
    RowDatasetVersionMeta,
    RowIdMeta,
    write_fragments,
)
from tiltyard.dataset.fragment import DEFAULT_MAX_BYTES_PER_FILE

__all__ = [
    "DEFAULT_MAX_BYTES_PER_FILE",
    "DataFile",
    "DeletionFile",
    "FragmentMetadata",
    "FragmentSession",
    "FragmentWriteProgress",
    "LanceFragment",
    "NoopFragmentWriteProgress",
    "RowDatasetVersionMeta",
    "RowIdMeta",
    "write_fragments",
]
