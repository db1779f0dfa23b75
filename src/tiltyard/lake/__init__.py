"""The plain face: tables by path, in the words of everyday work. It delegates to `tiltyard.dataset`."""

from __future__ import annotations

from tiltyard.lake.directory import Directory, connect
from tiltyard.lake.scan import Scan
from tiltyard.lake.table import Table, create_table, open_table

__all__ = ["Directory", "Scan", "Table", "connect", "create_table", "open_table"]
