"""Sets of fragment ids."""

from __future__ import annotations

from tiltyard.dataset.bitmap import Bitmap

__all__ = ["Bitmap"]
