"""Errors of commits."""

from __future__ import annotations

from tiltyard.errors import CommitConflict as CommitConflictError

__all__ = ["CommitConflictError"]
