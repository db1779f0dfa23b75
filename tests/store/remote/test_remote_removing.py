"""Many objects removed from a bucket: how many requests it takes, and what is told of those that stay."""

from __future__ import annotations

from collections import Counter

import pytest

from s3_server import Answer, Request, Rule, S3Server
from tiltyard.errors import InvalidInput, StoreError
from tiltyard.store import Store, open_store

QUICK = {"client_max_retries": 2, "timeout": "2s", "client_retry_timeout": "4s"}


@pytest.fixture
def store(s3: S3Server, bucket: str) -> Store:
    return open_store(f"s3://{bucket}/t.lance", s3.options(**QUICK))


def _fill(s3: S3Server, store: Store, paths: list[str]) -> None:
    prefix = store.uri.removeprefix("s3:/")
    for path in paths:
        s3.ask("PUT", f"{prefix}/{path}", b"x")


def _kinds(seen: list[Request]) -> Counter[str]:
    return Counter(each.kind for each in seen)


def test_1200_objects_go_with_two_requests(s3: S3Server, store: Store) -> None:
    paths = [f"data/{number}.lance" for number in range(1200)]
    _fill(s3, store, [*paths[:3], *paths[-3:], "data/kept"])
    with s3.counting() as seen:
        done = store.delete_many(paths)
    assert _kinds(seen) == {"DELETE": 2}
    assert not done.failed
    assert done.paths == set(paths)
    assert [one.path for one in store.list()] == ["data/kept"]


def test_a_tree_goes_with_a_listing_and_one_request(s3: S3Server, store: Store) -> None:
    _fill(s3, store, [f"{directory}/{number}" for directory in ("a", "a/b", "b") for number in range(9)])
    with s3.counting() as seen:
        store.delete_tree("a")
    assert _kinds(seen) == {"LIST": 1, "DELETE": 1}
    assert len(store.list()) == 9


@pytest.mark.parametrize("count", [2, 9])
@pytest.mark.parametrize("what", ["lose", "drop", "done-status", "status"])
def test_a_lost_answer_is_asked_for_again_for_what_still_stands(
    what: str, count: int, s3: S3Server, store: Store
) -> None:
    paths = [f"data/a+b ü&{number}.lance" for number in range(count)]
    for path in paths:
        store.put(path, b"x")
    with s3.breaking(Rule(what, "DELETE")), s3.counting() as seen:
        done = store.delete_many(paths)
    assert not done.failed
    assert store.list() == []
    assert _kinds(seen)["DELETE"] == (1 if what in ("lose", "done-status") else 2)


def test_what_a_store_refuses_to_remove_is_told_by_name_and_the_rest_is_gone(
    s3: S3Server, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [f"data/{number}" for number in range(9)]
    _fill(s3, store, paths)
    forward = s3._forward

    def refusing(request: Request, path: str) -> Answer:
        """As a policy does: the answer is 200, and in it are the objects that are kept."""
        if request.kind != "DELETE":
            return forward(request, path)
        kept = [each for each in ("t.lance/data/3", "t.lance/data/7") if each.encode() in request.body]
        body = request.body
        for each in kept:
            body = body.replace(b"<Object><Key>%b</Key></Object>" % each.encode(), b"")
        headers = {k: v for k, v in request.headers.items() if not k.startswith(("content-md5", "x-amz-c"))}
        forward(Request(request.method, request.bucket, "", request.query, headers, body), path)
        errors = "".join(
            f"<Error><Key>{each}</Key><Code>AccessDenied</Code><Message>kept</Message></Error>"
            for each in kept
        )
        return Answer(200, "OK", [], f"<DeleteResult>{errors}</DeleteResult>".encode())

    monkeypatch.setattr(s3, "_forward", refusing)
    done = store.delete_many(paths)
    assert set(done.failed) == {"data/3", "data/7"}
    assert done.paths == set(paths) - set(done.failed)
    assert [one.path for one in store.list()] == ["data/3", "data/7"]
    with pytest.raises(
        StoreError, match=r"2 of 9 objects could not be removed: data/3, data/7; .*AccessDenied"
    ):
        done.check()


def test_an_unreachable_store_is_asked_no_longer_for_many_than_for_one(s3: S3Server, store: Store) -> None:
    paths = [f"data/{number}" for number in range(2500)]
    with s3.breaking(Rule("drop", times=1 << 30)), s3.counting() as seen:
        done = store.delete_many(paths)
    assert set(done.failed) == set(paths)
    assert _kinds(seen)["DELETE"] <= 3


def test_refused_credentials_are_told_at_once(s3: S3Server, store: Store) -> None:
    with s3.breaking(Rule("status", status=403, times=1 << 30)), s3.counting() as seen:
        done = store.delete_many(["a", "b"])
    assert {type(each).__name__ for each in done.failed.values()} == {"StoreAccessDenied"}
    assert len(seen) == 1


def test_a_bad_path_removes_nothing(s3: S3Server, store: Store) -> None:
    _fill(s3, store, ["a"])
    with s3.counting() as seen, pytest.raises(InvalidInput):
        store.delete_many(["a", "../b"])
    assert not seen
    assert store.exists("a")


def test_nothing_to_remove_is_no_request(s3: S3Server, store: Store) -> None:
    with s3.counting() as seen:
        assert store.delete_many([]).paths == frozenset()
    assert not seen
