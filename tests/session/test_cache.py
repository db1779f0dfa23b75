"""The byte-bounded cache and the session that holds it."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.session import ByteCache, Limits, Session, default_session


def test_the_least_recently_used_value_goes_first() -> None:
    cache = ByteCache(10)
    for key in "abc":
        cache.put(key, key.upper(), 3)
    assert cache.get("a") == "A"  # now b is the oldest
    cache.put("d", "D", 3)
    assert [cache.get(key) for key in "abcd"] == ["A", None, "C", "D"]
    assert cache.nbytes == 9


def test_a_value_larger_than_the_bound_is_given_but_not_kept() -> None:
    cache = ByteCache(10)
    assert cache.get_or("big", lambda: ("value", 11)) == "value"
    assert cache.get("big") is None
    assert cache.nbytes == 0


def test_putting_again_replaces_value_and_bytes() -> None:
    cache = ByteCache(10)
    cache.put("a", 1, 8)
    cache.put("a", 2, 4)
    assert cache.get("a") == 2
    assert cache.nbytes == 4


def test_entries_are_bounded_as_well() -> None:
    cache = ByteCache(1000, max_entries=2)
    for key in range(5):
        cache.put(key, key, 1)
    assert len(cache) == 2
    assert cache.get(4) == 4


def test_the_first_value_made_is_the_one_that_all_get() -> None:
    cache = ByteCache(10)

    def racing() -> tuple[str, int]:
        cache.put("k", "theirs", 1)
        return "mine", 1

    assert cache.get_or("k", racing) == "theirs"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12), st.booleans()), max_size=60))
def test_the_cache_never_holds_more_than_its_bound_and_never_a_stale_value(
    steps: list[tuple[int, int, bool]],
) -> None:
    cache, model = ByteCache(20), {}
    for number, (key, nbytes, drop) in enumerate(steps):
        if drop:
            cache.drop(key)
            model.pop(key, None)
        else:
            cache.put(key, number, nbytes)
            model[key] = number
        assert cache.nbytes <= 20
        for each, value in model.items():
            assert cache.get(each) in (None, value)


def test_limits_are_those_that_were_given() -> None:
    session = Session(Limits(cache_bytes=7, offset_limit=100))
    assert session.cache.max_bytes == 7
    assert session.limits.offset_limit == 100


def test_the_default_session_is_one() -> None:
    assert default_session() is default_session()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_starts_with_empty_caches() -> None:
    session = Session()
    session.cache.put("k", "v", 1)
    pid = os.fork()
    if pid == 0:  # the child: 0 says that all was as it should be
        os._exit(0 if session.cache.get("k") is None and session.arena.free_bytes == 0 else 1)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert session.cache.get("k") == "v"


def test_chosen_keys_are_forgotten_with_their_bytes() -> None:
    cache = ByteCache(100)
    for number in range(5):
        cache.put(("store", f"data/{number}", "file", ""), number, 10)
    assert cache.drop_where(lambda key: key[1] in {"data/1", "data/3"}) == 2  # type: ignore[index]
    assert (len(cache), cache.nbytes) == (3, 30)
    assert cache.get(("store", "data/1", "file", "")) is None
    assert cache.get(("store", "data/2", "file", "")) == 2
