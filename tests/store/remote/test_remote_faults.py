"""What becomes of requests whose answers are lost, late, doubled or wrong (cases O10, O11).

A proxy between obstore and an S3 server sees to that.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from s3_server import Rule, S3Server
from tiltyard.errors import (
    BucketNotFound,
    ConditionsNotKept,
    CorruptFile,
    ForkedRemoteStore,
    ObjectExists,
    ObjectNotFound,
    StoreAccessDenied,
    StoreError,
    StoreUnavailable,
)
from tiltyard.store import Created, Store, open_store

QUICK = {"client_max_retries": 2, "timeout": "2s", "client_retry_timeout": "5s", "connect_timeout": "1s"}


@pytest.fixture
def store(s3: S3Server, bucket: str) -> Store:
    """A store whose server was found to keep conditions."""
    found = open_store(f"s3://{bucket}/t", s3.options(**QUICK))
    assert found.create("checked", b"") is Created.WON
    assert found.delete("checked")
    return found


# -- creation ------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["lose", "drop", "done-status", "status", "twice", "truncate"])
def test_a_creation_whose_answer_is_lost_or_doubled_is_won_once(
    what: str, s3: S3Server, store: Store
) -> None:
    with s3.breaking(Rule(what, "PUT", "/x$")):
        assert store.create("x", b"mine") is Created.WON
    assert store.read("x").to_pybytes() == b"mine"
    assert store.create("x", b"mine") is Created.EXISTS  # equal bytes prove nothing


@pytest.mark.parametrize("what", ["lose", "drop", "done-status"])
def test_who_comes_second_with_a_lost_answer_is_told_that_it_exists(
    what: str, s3: S3Server, store: Store
) -> None:
    assert store.create("x", b"same") is Created.WON
    with s3.breaking(Rule(what, "PUT", "/x$")):
        assert store.create("x", b"same") is Created.EXISTS
    assert store.read("x").to_pybytes() == b"same"


def test_an_object_without_a_name_is_ours_or_not_by_its_bytes_or_unknown(
    s3: S3Server, bucket: str, store: Store
) -> None:
    with s3.breaking(Rule("nameless", "PUT", "/x$")):  # metadata is not kept, and the answer is lost
        assert store.create("x", b"mine") is Created.UNKNOWN
    assert store.read("x").to_pybytes() == b"mine"
    s3.ask("PUT", f"/{bucket}/t/y", b"of another program")
    with s3.breaking(Rule("lose", "PUT", "/y$")):
        assert store.create("y", b"mine") is Created.EXISTS


def test_a_conflict_with_a_request_in_flight_is_no_loss(s3: S3Server, store: Store) -> None:
    """O10: 409 says that another request is at work; nothing is stored, and nobody has won."""
    with s3.breaking(Rule("status", "PUT", "/x$", status=409, times=2)):
        assert store.create("x", b"mine") is Created.WON
    with s3.breaking(Rule("status", "PUT", "/y$", status=409, times=9)):
        assert store.create("y", b"mine") is Created.NOT_DONE
    assert "no such object" in str(store.failure("y"))
    assert not store.exists("y")


def test_a_creation_that_is_never_answered_is_unknown_and_only_the_same_request_was_sent(
    s3: S3Server, store: Store
) -> None:
    with s3.breaking(Rule("drop", "PUT", "/x$", times=9)), s3.counting() as seen:
        assert store.create("x", b"mine") is Created.UNKNOWN
    assert isinstance(store.failure("x"), StoreUnavailable)
    sent = [each for each in seen if each.kind == "PUT"]
    assert len(sent) == 3
    assert len({(each.body, each.headers["x-amz-meta-tiltyardnonce"]) for each in sent}) == 1
    assert all(each.headers["if-none-match"] == "*" for each in sent)


def test_a_request_that_arrives_late_changes_nothing_that_was_decided(s3: S3Server, store: Store) -> None:
    with s3.breaking(Rule("late", "PUT", "/x$", seconds=0.3)):
        assert store.create("x", b"mine") is Created.WON
        time.sleep(0.5)
    assert store.read("x").to_pybytes() == b"mine"
    with s3.breaking(Rule("late", "PUT", "/y$", seconds=0.3, times=9)):
        assert store.create("y", b"first") is Created.UNKNOWN
        assert store.create("y", b"second") in (Created.UNKNOWN, Created.EXISTS)
        time.sleep(0.8)
    assert store.read("y").to_pybytes() in (b"first", b"second")


def test_a_refused_creation_is_not_done_and_after_silence_unknown(s3: S3Server, store: Store) -> None:
    with s3.breaking(Rule("status", "PUT", "/x$", status=403, times=9)):
        assert store.create("x", b"1") is Created.NOT_DONE
        assert isinstance(store.failure("x"), StoreAccessDenied)
    with s3.breaking(Rule("drop", "PUT", "/x$"), Rule("status", "PUT|HEAD", "/x$", status=403, times=9)):
        assert store.create("x", b"1") is Created.UNKNOWN
    assert store.create("x", b"1") is Created.WON


# -- conditions ----------------------------------------------------------------------------------


def _fresh(s3: S3Server, bucket: str, **more: Any) -> Store:
    """A store whose server was not asked yet whether it keeps conditions."""
    return open_store(f"s3://{bucket}/t", s3.options(**QUICK, user_agent=bucket + str(more), **more))


@pytest.mark.parametrize("rule", [Rule("unconditional", "PUT", times=99, conditional=True)])
def test_a_server_that_ignores_conditions_is_refused_before_anything_is_written(
    rule: Rule, s3: S3Server, bucket: str
) -> None:
    store = _fresh(s3, bucket)
    with s3.breaking(rule):
        assert store.create("x", b"1") is Created.NOT_DONE
    cause = store.failure("x")
    assert isinstance(cause, ConditionsNotKept)
    assert "ignores conditions" in str(cause)
    assert "tiltyard_conditions='none'" in str(cause)
    assert s3.keys(bucket) == []


@pytest.mark.parametrize("status", [400, 501])
def test_a_server_that_refuses_conditions_is_told_from_one_that_is_down(
    status: int, s3: S3Server, bucket: str
) -> None:
    store = _fresh(s3, bucket)
    with s3.breaking(Rule("status", "PUT", times=99, status=status, conditional=True)):
        assert store.create("x", b"1") is Created.NOT_DONE
    assert isinstance(store.failure("x"), ConditionsNotKept)
    with s3.breaking(Rule("status", "PUT", times=99, status=503)):
        assert store.create("x", b"1") is Created.NOT_DONE
    assert isinstance(store.failure("x"), StoreUnavailable)
    assert s3.keys(bucket) == []
    assert store.create("x", b"1") is Created.WON


def test_the_check_is_made_once_and_survives_lost_answers(s3: S3Server, bucket: str) -> None:
    store = _fresh(s3, bucket)
    with s3.breaking(Rule("lose", "PUT", "tmp-check")), s3.counting() as seen:
        assert store.create("x", b"1") is Created.WON
        assert store.create("y", b"1") is Created.WON
        assert store.at("below").create("y", b"1") is Created.WON
    assert len([each for each in seen if "tmp-check" in each.key]) == 2
    assert s3.keys(bucket) == ["t/below/y", "t/x", "t/y"]


def test_a_store_can_be_used_without_conditions_by_who_says_so(s3: S3Server, bucket: str) -> None:
    store = _fresh(s3, bucket, tiltyard_conditions="none")
    with s3.breaking(Rule("status", "PUT", times=99, status=501, conditional=True)):
        assert store.create("x", b"1") is Created.WON
        assert store.create("x", b"2") is Created.EXISTS
    assert "not exclusive" in store.create_mode
    with s3.breaking(Rule("lose", "PUT", "/z$")):
        assert store.create("z", b"1") is Created.WON
    with s3.breaking(Rule("lose", "PUT", "/u$", times=9), Rule("drop", "GET|HEAD", "/u$", skip=1, times=9)):
        assert store.create("u", b"1") is Created.UNKNOWN  # it is there: nothing that it names may go
    assert store.exists("u")
    with s3.counting() as seen:
        assert _fresh(s3, bucket, tiltyard_conditions="trust").create("y", b"1") is Created.WON
    assert [each.kind for each in seen] == ["PUT"]


# -- reads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["drop", "lose", "status", "truncate"])
def test_a_read_that_breaks_off_is_sent_again(what: str, s3: S3Server, store: Store) -> None:
    data = bytes(range(256)) * 400
    store.put("x", data)
    reads: list[Callable[[], bytes]] = [
        lambda: store.read("x").to_pybytes(),
        lambda: store.read("x", 100, 5000).to_pybytes(),
        lambda: store.read("x", -500).to_pybytes(),
        lambda: store.map("x", len(data)).to_pybytes(),
        lambda: store.read_ranges("x", [(90000, 10), (5, 10)])[1].to_pybytes(),
    ]
    right = [data, data[100:5100], data[-500:], data, data[5:15]]
    for read, expected in zip(reads, right, strict=True):
        with s3.breaking(Rule(what, "GET", "/x$")):
            assert read() == expected


def test_a_shorter_answer_than_asked_for_is_no_data(s3: S3Server, store: Store) -> None:
    store.put("x", b"0" * 5000)
    with s3.breaking(Rule("short", "GET", "/x$")):
        assert store.read("x", 100, 4000).size == 4000
    with s3.breaking(Rule("short", "GET", "/x$")), pytest.raises(CorruptFile, match="2500 bytes where 5000"):
        store.map("x", 5000)


@pytest.mark.parametrize("what", ["drop", "truncate", "status", "delay"])
def test_a_store_that_stays_broken_is_a_typed_error_within_bounds(
    what: str, s3: S3Server, bucket: str
) -> None:
    bounds = {**QUICK, "timeout": "100ms", "client_max_retries": 1}
    store = open_store(f"s3://{bucket}/t", s3.options(**bounds))
    s3.ask("PUT", f"/{bucket}/t/x", b"0" * 5000)
    before = s3.keys(bucket)
    with s3.breaking(Rule(what, "GET|HEAD|LIST", times=99, seconds=0.3)), s3.counting() as seen:
        for call in (
            lambda: store.read("x"),
            lambda: store.read("x", 10, 100),
            lambda: store.map("x", 5000),
        ):
            with pytest.raises(StoreUnavailable, match="no usable answer to 2 requests"):
                call()
        if what != "truncate":
            for look in (lambda: store.stat("x"), lambda: store.list(), lambda: store.list_names("")):
                with pytest.raises(StoreUnavailable):
                    look()
    assert len(seen) < 30
    assert s3.keys(bucket) == before


def test_a_server_that_cannot_be_reached(s3: S3Server, bucket: str) -> None:
    options = {**s3.options(**QUICK), "aws_endpoint": "http://127.0.0.1:9"}
    store = open_store(f"s3://{bucket}/t", options)
    for call in (lambda: store.read("x"), lambda: store.list(), lambda: store.put("x", b"1")):
        with pytest.raises(StoreUnavailable, match="check the endpoint"):
            call()
    assert store.create("x", b"1") in (Created.NOT_DONE, Created.UNKNOWN)


def test_refused_credentials_are_not_asked_again(s3: S3Server, store: Store) -> None:
    store.put("x", b"1")
    with s3.breaking(Rule("status", times=99, status=403)), s3.counting() as seen:
        calls: list[Callable[[], object]] = [
            lambda: store.read("x"),
            lambda: store.stat("x"),
            lambda: store.exists("x"),
            lambda: store.list_names(""),
            lambda: store.list(),
            lambda: store.put("x", b"2"),
        ]
        for call in calls:
            with pytest.raises(StoreAccessDenied, match=r"credentials.*clock"):
                call()
    assert len(seen) == len(calls) + 2  # that a listing was refused shows at an object
    assert store.read("x").to_pybytes() == b"1"


def test_a_bucket_that_does_not_exist(s3: S3Server) -> None:
    store = open_store("s3://no-such-bucket-here/t", s3.options(**QUICK))
    for call in (lambda: store.list(), lambda: store.list_names("d"), lambda: store.put("x", b"1")):
        with pytest.raises(BucketNotFound, match="no S3 bucket 'no-such-bucket-here'"):
            call()
    with pytest.raises(ObjectNotFound):
        store.read("x")
    assert store.create("x", b"1") is Created.NOT_DONE
    assert isinstance(store.failure("x"), BucketNotFound)


# -- streams -------------------------------------------------------------------------------------

LONG = bytes(range(251)) * 80_000  # three parts


@pytest.mark.parametrize("what", ["", "lose", "drop", "status"])
def test_a_long_object_comes_in_parts_and_survives_lost_answers(
    what: str, s3: S3Server, store: Store
) -> None:
    rules = [Rule(what, "PUT", "/long$"), Rule(what, "POST", "/long$", skip=1)] if what else []
    with s3.breaking(*rules), store.writer("long") as writer:
        for start in range(0, len(LONG), 1 << 20):
            writer.write([LONG[start : start + (1 << 20)]])
        assert not store.exists("long")
        assert writer.commit() == len(LONG)
    assert store.map("long", len(LONG)).to_pybytes() == LONG
    with pytest.raises(CorruptFile):
        store.map("long", len(LONG) - 1)
    assert store.read_ranges("long", [(17_000_000, 2_000_000)])[0].to_pybytes() == LONG[17_000_000:19_000_000]


def _stream(store: Store, path: str, data: bytes) -> None:
    with store.writer(path) as writer:
        writer.write([data])
        writer.commit()


def test_a_stream_that_is_given_up_leaves_nothing(s3: S3Server, bucket: str, store: Store) -> None:
    with store.writer("long") as writer:
        writer.write([LONG])
    with store.writer("short") as writer:
        writer.write([b"1"])
    assert s3.keys(bucket) == []
    assert s3.uploads(bucket) == 0


def test_a_stream_to_a_taken_name_is_refused(s3: S3Server, bucket: str, store: Store) -> None:
    store.put("x", b"1")
    for data in (b"2", LONG):
        with pytest.raises(ObjectExists):
            _stream(store, "x", data)
    assert store.read("x").to_pybytes() == b"1"
    assert s3.uploads(bucket) == 0


def test_a_stream_that_cannot_be_sent_is_an_error(s3: S3Server, bucket: str, store: Store) -> None:
    for data in (b"2", LONG):
        with s3.breaking(Rule("status", "PUT|POST", times=99, status=403)), pytest.raises(StoreError):
            _stream(store, "long", data)
    assert not store.exists("long")


# -- listing, deleting, forking ------------------------------------------------------------------


def test_a_long_listing_comes_in_pages_and_in_order(
    s3: S3Server, bucket: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "20")
    names = [f"d/{number:05}" for number in range(50)]
    for name in names:
        s3.ask("PUT", f"/{bucket}/t/{name}", b"")
    with s3.counting() as seen:
        assert [each.path for each in store.list("d")] == names
        assert store.list_names("d") == [each[2:] for each in names]
        assert [each.path for each in store.list("d", "d/00040")] == names[41:]
        store.delete_tree("d")
    assert [each.kind for each in seen] == ["LIST"] * (3 + 3 + 1 + 3) + ["DELETE"]
    assert store.list() == []


def test_a_store_that_was_used_before_a_fork_says_so_in_the_child(store: Store) -> None:
    store.put("x", b"1")
    read, write = os.pipe()
    child = os.fork()
    if not child:
        told = "nothing"
        try:
            store.read("x")
        except ForkedRemoteStore as error:
            told = str(error)
        finally:
            os.write(write, told.encode())
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as pipe:
        assert "'spawn' or 'forkserver'" in pipe.read()
    assert store.read("x").to_pybytes() == b"1"
