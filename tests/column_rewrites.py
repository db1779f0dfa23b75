"""Tests that choose how an update writes: whole rows moved, or changed columns anew."""

from __future__ import annotations

import pytest

from tiltyard.table import rewriting, update


def bounded(monkeypatch: pytest.MonkeyPatch, bound: float = 0) -> None:
    """With 0 updates write columns anew wherever they may, with a bound out of reach never."""
    monkeypatch.setattr(update, "COLUMN_REWRITE_ROWS", bound)
    monkeypatch.setattr(rewriting, "COLUMN_REWRITE_SHARE", bound)
    monkeypatch.setattr(rewriting, "COLUMN_REWRITE_GAIN", bound)
