"""Exact nearest-neighbour search without an index: one pass of products over the vectors, then exact
distances of the few rows that may be among the nearest. `query` says what is searched for, `scan` gives it.

Nothing is imported here: every dataset knows the words of a search, few run one.
"""
