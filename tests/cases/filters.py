"""Tables and predicates of public bug reports about filters with the rows that are right.

Asked of plain scans (`test_f_filters.py`) and of indices (`test_f_indexed.py`).
"""

from __future__ import annotations

import math
import struct

import pyarrow as pa

WITH_NULL = pa.table({"x": pa.array([1, 5, None], pa.int64())})
NULL_LOGIC = [
    ("NOT (x < 2)", [1]),
    ("x != 7", [0, 1]),
    ("(x != 0) OR (x < 5)", [0, 1]),
    ("NOT (x != 1)", [0]),
    ("NOT (x IS NULL)", [0, 1]),
    ("x < 2 OR x IS NULL", [0, 2]),
    ("NOT (x < 2 AND x > 0)", [1]),
    ("NOT (x > 100 OR x < -5)", [0, 1]),
]
NULLS_IN_LISTS = [
    ("x IN (1, NULL)", [0]),
    ("x NOT IN (1, NULL)", []),
    ("x IN (1, 5)", [0, 1]),
    ("x NOT IN (1)", [1]),
]

LISTS = pa.table({"l": pa.array([["a", "b"], None, [], [None], ["a", None]], pa.list_(pa.string()))})

ZEROS = pa.table({"x": [-0.0, 0.0], "y": [0.0, -0.0]})
EQUAL_ZEROS = [
    ("x = y", [0, 1]),
    ("x < y", []),
    ("x > y", []),
    ("x <= y", [0, 1]),
    ("x = 0", [0, 1]),
    ("x IN (0.0)", [0, 1]),
    ("x < 0", []),
    ("x = y AND x = 0", [0, 1]),
]

NEGATIVE_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0000))[0]
NANS = pa.table({"x": [NEGATIVE_NAN, math.nan, 1.0, -math.inf, math.inf]})
GREATEST_NANS = [
    ("x < 0", [3]),
    ("x > 1", [0, 1, 4]),
    ("x = CAST('NaN' AS DOUBLE)", [0, 1]),
    ("x != CAST('NaN' AS DOUBLE)", [2, 3, 4]),
    ("x >= 1", [0, 1, 2, 4]),
    ("x IS NULL", []),
    ("NOT (x > 1)", [2, 3]),
]
