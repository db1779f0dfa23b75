"""The store model over a real S3 protocol."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from s3_server import S3Server
from tiltyard.store import Store, open_store
from tiltyard.store.below import Below
from tiltyard.testing.store_model import store_machine

runs = pytest.mark.parametrize("runs", [2, pytest.param(30, marks=pytest.mark.soak)])


def _run(make: Callable[[], Store], runs: int) -> None:
    """Without shrinking, which takes minutes where each step is some requests."""
    found = settings(
        max_examples=runs,
        stateful_step_count=15,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.reuse, Phase.generate),
    )
    run_state_machine_as_test(store_machine(make), settings=found)


@runs
def test_a_prefix_of_a_bucket_behaves_like_a_dictionary(runs: int, s3: S3Server, bucket: str) -> None:
    _run(lambda: open_store(f"s3://{bucket}/{uuid4().hex}/t.lance", s3.options()), runs)


@runs
def test_a_whole_bucket_behaves_like_a_dictionary(runs: int, s3: S3Server) -> None:
    _run(lambda: open_store(f"s3://{s3.bucket()}", s3.options()), runs)


@runs
def test_a_directory_without_a_handle_behaves_like_a_dictionary(runs: int, s3: S3Server, bucket: str) -> None:
    _run(lambda: Below(open_store(f"s3://{bucket}", s3.options()), f"{uuid4().hex}/deep"), runs)
