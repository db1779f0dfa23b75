"""Blobs as files. Writing them is not here yet."""

from __future__ import annotations

from tiltyard.dataset.blob_file import DEFAULT_BUFFER_BYTES as DEFAULT_BLOB_BUFFER_SIZE
from tiltyard.dataset.blob_file import BlobColumn, BlobFile

__all__ = ["DEFAULT_BLOB_BUFFER_SIZE", "BlobColumn", "BlobFile"]
