"""The two files of a B-tree index (indices, 2.1): the pages, one sorted list of values and row ids; and the
lookup, one row for each page."""

from __future__ import annotations

import pyarrow as pa

from tiltyard.format.index_metadata import TypedBytes

PAGES_FILE = "page_data.lance"
LOOKUP_FILE = "page_lookup.lance"
PAGE_COLUMNS = ("values", "ids")
LOOKUP_COLUMNS = ("min", "max", "null_count", "page_idx")

BATCH_SIZE_KEY = "batch_size"
"""Key of the lookup's metadata: rows in a page, in digits."""
RANGE_PARTITIONED_KEY = "range_partitioned"

DEFAULT_PAGE_ROWS = 4096

DETAILS = TypedBytes("/lance.table.BTreeIndexDetails")

ROW_ID_VERSION = 0
"""Version of an index that holds row ids; without stable row ids these are addresses."""
ADDRESS_VERSION = 1
"""Version of an index on a table with stable row ids that holds addresses all the same."""
READABLE_VERSIONS = (ROW_ID_VERSION, ADDRESS_VERSION)


def pages_schema(value_type: pa.DataType) -> pa.Schema:
    """The schema of the file of pages."""
    return pa.schema([pa.field("values", value_type), pa.field("ids", pa.uint64(), nullable=False)])


def lookup_schema(value_type: pa.DataType, page_rows: int) -> pa.Schema:
    """The schema of the lookup, with its metadata."""
    return pa.schema(
        [
            pa.field("min", value_type),
            pa.field("max", value_type),
            pa.field("null_count", pa.uint32(), nullable=False),
            pa.field("page_idx", pa.uint32(), nullable=False),
        ],
        metadata={BATCH_SIZE_KEY: str(page_rows), RANGE_PARTITIONED_KEY: "false"},
    )
