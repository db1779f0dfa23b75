"""What the official package keeps in its native module and scripts import from there."""

from __future__ import annotations

from tiltyard.dataset.shown import manifest_needs_migration

__all__ = ["manifest_needs_migration"]
