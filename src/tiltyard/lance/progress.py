"""Being told about files as they are written."""

from __future__ import annotations

from tiltyard.dataset import (
    FileSystemFragmentWriteProgress,
    FragmentWriteProgress,
    NoopFragmentWriteProgress,
)
from tiltyard.dataset.progress import IndexProgress

__all__ = [
    "FileSystemFragmentWriteProgress",
    "FragmentWriteProgress",
    "IndexProgress",
    "NoopFragmentWriteProgress",
]
