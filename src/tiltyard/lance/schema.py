"""The schema with field ids."""

from __future__ import annotations

from tiltyard.dataset import LanceSchema

__all__ = ["LanceSchema"]
