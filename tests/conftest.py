"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from peer import Peer
from soaking import Soak
from tiltyard.store.uri import DURABLE_VARIABLE
from workers import Crew

if TYPE_CHECKING:
    from s3_server import S3Server

# The same examples at every run, so that what passes here passes there; `TILTYARD_EXPLORE=1` draws new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None)
settings.load_profile("explore" if os.environ.get("TILTYARD_EXPLORE") else "repeatable")


def pytest_configure(config: pytest.Config) -> None:
    """What soak tests share (see `soaking`): the number of processes that run tests is known here."""
    jobs = os.environ.get("PYTEST_XDIST_WORKER_COUNT") or config.getoption("numprocesses", None) or 1
    config.pluginmanager.register(Soak(int(jobs)))


@pytest.fixture(scope="session")
def peer() -> Iterator[Peer]:
    """The official implementation in a process of its own; see `peer.py`."""
    process = Peer()
    yield process
    process.close()


@pytest.fixture(scope="session")
def crew() -> Iterator[Crew]:
    """Workers of both implementations, kept alive for the session."""
    workers = Crew()
    yield workers
    workers.close()


@pytest.fixture
def syncing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores sync what they write, whatever the environment of the run says."""
    monkeypatch.delenv(DURABLE_VARIABLE, raising=False)


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """One S3 server for all tests of the process."""
    from s3_server import S3Server

    server = S3Server()
    yield server
    server.stop()


@pytest.fixture
def bucket(s3: S3Server) -> str:
    """A new bucket of it."""
    return s3.bucket()
