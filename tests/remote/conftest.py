"""What the tests of this folder share."""

from __future__ import annotations

import pytest

from tiltyard.store.remote.client import Client


@pytest.fixture
def one_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store's clock is this machine's, as it is on loopback; asked for, it is up to a second behind."""
    monkeypatch.setattr(Client, "_difference", lambda self, directory: 0)
