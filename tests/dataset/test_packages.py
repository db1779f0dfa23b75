"""Results that need a package which is not installed."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import tiltyard as ty
from tiltyard.errors import MissingPackage


def test_without_pandas_or_polars_frames_name_the_line_that_installs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table: Any = ty.create_table("memory://frames", {"id": [1]})
    for package in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, package, None)
        for each in (table, table.scan(), table.live(), table.live().scan()):
            with pytest.raises(MissingPackage, match=f"pip install {package}, or take the rows as Arrow"):
                getattr(each, f"to_{package}")()
    for each in (table.dataset, table.dataset.scanner(), table.dataset.get_fragments()[0]):
        with pytest.raises(MissingPackage, match="to_pandas needs pandas"):
            each.to_pandas()
