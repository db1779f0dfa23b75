"""Data files on their own, and files below one place."""

from __future__ import annotations

from tiltyard.dataset.data_files import LanceFileWriter, stable_version
from tiltyard.dataset.file_reader import (
    LanceBufferDescriptor,
    LanceColumnMetadata,
    LanceColumnStatistics,
    LanceFileMetadata,
    LanceFileReader,
    LanceFileStatistics,
    LancePageMetadata,
    ReaderResults,
)
from tiltyard.dataset.file_session import LanceFileSession, ListResult

__all__ = [
    "LanceBufferDescriptor",
    "LanceColumnMetadata",
    "LanceColumnStatistics",
    "LanceFileMetadata",
    "LanceFileReader",
    "LanceFileSession",
    "LanceFileStatistics",
    "LanceFileWriter",
    "LancePageMetadata",
    "ListResult",
    "ReaderResults",
    "stable_version",
]
