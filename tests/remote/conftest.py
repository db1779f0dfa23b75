"""Worker processes for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from workers import Crew


@pytest.fixture(scope="session")
def crew() -> Iterator[Crew]:
    """Workers of both implementations, kept alive for the session."""
    workers = Crew()
    yield workers
    workers.close()
