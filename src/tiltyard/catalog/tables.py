"""Tables of a catalog: making, naming and looking at them, under the names that everything else uses."""

from __future__ import annotations

from tiltyard.catalog.creating import create_table
from tiltyard.catalog.declaring import declare_table, deregister_table, register_table, table_exists
from tiltyard.catalog.describing import Description, describe
from tiltyard.catalog.migrating import migrate

__all__ = [
    "Description",
    "create_table",
    "declare_table",
    "deregister_table",
    "describe",
    "migrate",
    "register_table",
    "table_exists",
]
