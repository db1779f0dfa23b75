"""Vectors as tables. Training and clustering of vectors are not here."""

from __future__ import annotations

from tiltyard.dataset.vectors import vec_to_table

__all__ = ["vec_to_table"]
