"""Data files on their own. Reading one outside its table is not here yet."""

from __future__ import annotations

from tiltyard.dataset.data_files import LanceFileWriter, stable_version

__all__ = ["LanceFileWriter", "stable_version"]
