"""Fixtures shared by all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from peer import Peer


@pytest.fixture(scope="session")
def peer() -> Iterator[Peer]:
    """The official implementation in a process of its own; see `peer.py`."""
    process = Peer()
    yield process
    process.close()
