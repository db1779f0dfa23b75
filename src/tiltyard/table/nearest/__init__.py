"""Exact nearest-neighbour search without an index: one pass of products over the vectors, then exact
distances of the few rows that may be among the nearest.
"""

from tiltyard.table.nearest.query import DISTANCE, QUERY_NUMBER, Nearest, VectorQuery, bind
from tiltyard.table.nearest.scan import NearestScan

__all__ = ["DISTANCE", "QUERY_NUMBER", "Nearest", "NearestScan", "VectorQuery", "bind"]
