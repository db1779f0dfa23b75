"""The plain face: tables by name, in the words of everyday work. It delegates to `tiltyard.catalog` and
`tiltyard.dataset`.
"""

from __future__ import annotations

from tiltyard.lake.lake import Lake, connect
from tiltyard.lake.scan import Scan
from tiltyard.lake.table import Table, create_table, open_table

__all__ = ["Lake", "Scan", "Table", "connect", "create_table", "open_table"]
