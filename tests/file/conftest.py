"""Fixtures of tests that read data files."""

from __future__ import annotations

import pytest

from tiltyard.kernels import decode as kernels
from tiltyard.kernels.reference import decode as reference


@pytest.fixture(params=["compiled", "reference"])
def kernel_form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both forms of the kernels."""
    if request.param == "reference":
        for name in reference.__all__:
            monkeypatch.setattr(kernels, name, getattr(reference, name))
    return str(request.param)
