"""The store model over a real S3 protocol."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from s3_server import S3Server
from tiltyard.store import Store, open_store
from tiltyard.store.below import Below
from tiltyard.testing.store_model import store_machine

# Without shrinking, which takes minutes where each step is some requests.
_SETTINGS = settings(
    max_examples=8,
    stateful_step_count=15,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)


def _run(make: Callable[[], Store]) -> None:
    run_state_machine_as_test(store_machine(make), settings=_SETTINGS)


def test_a_prefix_of_a_bucket_behaves_like_a_dictionary(s3: S3Server, bucket: str) -> None:
    _run(lambda: open_store(f"s3://{bucket}/{uuid4().hex}/t.lance", s3.options()))


def test_a_whole_bucket_behaves_like_a_dictionary(s3: S3Server) -> None:
    _run(lambda: open_store(f"s3://{s3.bucket()}", s3.options()))


def test_a_directory_without_a_handle_behaves_like_a_dictionary(s3: S3Server, bucket: str) -> None:
    _run(lambda: Below(open_store(f"s3://{bucket}", s3.options()), f"{uuid4().hex}/deep"))
