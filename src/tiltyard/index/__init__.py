"""Indices on columns: built from streams of (values, row ids), answering questions with row ids. Nothing here
opens a table (D36)."""
