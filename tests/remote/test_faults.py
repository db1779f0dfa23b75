"""Commits in a bucket when answers are lost, refused or never come (O10, O11), and probes of buckets."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from s3_server import Rule, S3Server
from tiltyard.errors import (
    BucketNotFound,
    ConditionsNotKept,
    OutcomeUnknown,
    StoreAccessDenied,
    StoreUnavailable,
)
from tiltyard.testing.probe import Grade, probe, promises

ROWS = pa.table({"id": [1, 2, 3]})
QUICK = {"client_max_retries": 2, "timeout": "2s", "client_retry_timeout": "4s"}


def _write(where: str, s3: S3Server, mode: str = "append", **options: Any) -> Any:
    return lance.write_dataset(ROWS, where, mode=mode, storage_options=s3.options(**{**QUICK, **options}))


def _rows(where: str, s3: S3Server) -> int:
    return lance.dataset(where, storage_options=s3.options(), session=lance.Session()).count_rows()


@pytest.mark.parametrize("what", ["lose", "drop", "done-status", "twice"])
@pytest.mark.parametrize("key", ["_versions/", "data/"])
def test_a_commit_with_lost_answers_is_made_once(what: str, key: str, s3: S3Server, bucket: str) -> None:
    where = f"s3://{bucket}/t.lance"
    _write(where, s3)
    with s3.breaking(Rule(what, "PUT", key, times=2)):
        assert _write(where, s3).version == 2
    assert _rows(where, s3) == 6
    assert len(s3.keys(bucket, "t.lance/_versions")) == 2


def test_a_conflict_answer_without_a_winner_is_no_loss(s3: S3Server, bucket: str) -> None:
    """O10: every manifest is answered once with 409, and nothing is stored."""
    where = f"s3://{bucket}/t.lance"
    for version in range(1, 4):
        with s3.breaking(Rule("status", "PUT", "_versions/", status=409)):
            assert _write(where, s3).version == version
    assert _rows(where, s3) == 9


def test_a_commit_that_is_never_answered_has_an_unknown_outcome_and_keeps_its_files(
    s3: S3Server, bucket: str
) -> None:
    where = f"s3://{bucket}/t.lance"
    _write(where, s3)
    with s3.breaking(Rule("drop", "PUT", "_versions/", times=99)), pytest.raises(OutcomeUnknown):
        _write(where, s3)
    assert len(s3.keys(bucket, "t.lance/data")) == 2
    assert _rows(where, s3) == 3
    assert _write(where, s3).version == 2


def test_a_server_that_ignores_conditions_gets_no_table(s3: S3Server, bucket: str) -> None:
    """O11 (a)."""
    where = f"s3://{bucket}/t.lance"
    rule = Rule("unconditional", "PUT", conditional=True, times=1 << 30)
    with s3.breaking(rule), pytest.raises(ConditionsNotKept, match="ignores conditions"):
        _write(where, s3, user_agent=bucket)
    with s3.breaking(rule), pytest.raises(ConditionsNotKept):
        probe(where, s3.options(user_agent=bucket))
    assert s3.keys(bucket) == []
    with s3.breaking(rule):
        assert _write(where, s3, tiltyard_conditions="none").version == 1


def test_a_server_that_refuses_conditions_gets_no_table(s3: S3Server, bucket: str) -> None:
    """O11 (b)."""
    rule = Rule("status", "PUT", conditional=True, times=1 << 30, status=501)
    with s3.breaking(rule), pytest.raises(ConditionsNotKept, match="tiltyard_conditions='none'"):
        _write(f"s3://{bucket}/t.lance", s3, user_agent=bucket)
    assert s3.keys(bucket) == []


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        (Rule("status", status=403, times=1 << 30), StoreAccessDenied),
        (Rule("drop", times=1 << 30), StoreUnavailable),
        (Rule("status", status=503, times=1 << 30), StoreUnavailable),
    ],
)
def test_a_store_that_cannot_be_used_is_a_typed_error_and_stays_as_it_is(
    rule: Rule, error: type[Exception], s3: S3Server, bucket: str
) -> None:
    where = f"s3://{bucket}/t.lance"
    _write(where, s3)
    before = s3.keys(bucket)
    options = s3.options(client_max_retries=1)
    with s3.breaking(rule):
        with pytest.raises(error):
            lance.dataset(where, storage_options=options)
        with pytest.raises(error):
            lance.write_dataset(ROWS, where, mode="append", storage_options=options)
    assert s3.keys(bucket) == before


def test_a_bucket_that_is_not_there_is_told(s3: S3Server) -> None:
    options = s3.options(**QUICK)
    with pytest.raises(BucketNotFound, match="no S3 bucket 'nobody-made-it'"):
        lance.dataset("s3://nobody-made-it/t.lance", storage_options=options)
    with pytest.raises(BucketNotFound):
        lance.write_dataset(ROWS, "s3://nobody-made-it/t.lance", storage_options=options)


def test_a_bucket_is_probed(s3: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for rounds in ("THREAD_ROUNDS", "RACE_ROUNDS", "SEEN_ROUNDS", "WHOLE_ROUNDS"):
        monkeypatch.setattr(promises, rounds, 4)
    report = probe(f"s3://{bucket}/lake", s3.options())
    assert not report.broken
    assert report.medium == f"object store: S3 bucket {bucket!r}"
    assert report.finding("exclusive creation among processes").grade is Grade.KEPT
    assert report.finding("directory times").grade is Grade.SLOWER
    assert s3.keys(bucket) == []
