"""A caller's lock around commits: held whenever a manifest is made, and what its failures mean."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from tiltyard.errors import InvalidInput, OutcomeUnknown, StoreError
from tiltyard.lance.commit import CommitConflictError

DATA = pa.table({"a": range(10)})


class Recorded:
    """A lock that remembers which versions it was taken for, and what manifests there were then and after."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seen: list[tuple[int, int, int]] = []

    def _manifests(self) -> int:
        return len(list((self.path / "_versions").glob("*.manifest")))

    @contextmanager
    def __call__(self, version: int) -> Iterator[None]:
        before = self._manifests()
        yield
        self.seen.append((version, before, self._manifests()))


@contextmanager
def refusing(version: int) -> Iterator[None]:
    raise CommitConflictError("not now")
    yield


@contextmanager
def broken_on_release(version: int) -> Iterator[None]:
    try:
        yield
    finally:
        raise RuntimeError("hello")


def test_every_commit_through_the_handle_is_made_under_the_lock(tmp_path: Path) -> None:
    lock = Recorded(tmp_path)
    handle = lance.write_dataset(DATA, tmp_path, commit_lock=lock)
    handle.insert(DATA)
    handle.delete("a = 1")
    handle.update({"a": "a + 1"}, where="a = 5")
    handle.update_config({"k": "v"})
    handle.checkout_version(1).restore()
    assert lock.seen == [(n, n - 1, n) for n in range(1, 7)]
    lance.write_dataset(DATA, tmp_path, mode="append")
    assert len(lock.seen) == 6


def test_a_lock_that_is_not_given_leaves_nothing_committed(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"CommitConflictError.*not now"):
        lance.write_dataset(DATA, tmp_path / "new", commit_lock=refusing)
    assert not list((tmp_path / "new").rglob("*.manifest"))
    assert not list((tmp_path / "new").rglob("*.lance"))
    lance.write_dataset(DATA, tmp_path / "t")
    handle = lance.dataset(tmp_path / "t", commit_lock=refusing)
    for change in (lambda: handle.delete("a = 1"), lambda: handle.insert(DATA)):
        with pytest.raises(StoreError, match="was not given"):
            change()
    assert lance.dataset(tmp_path / "t").version == 1
    assert len(list((tmp_path / "t").rglob("*.lance"))) == 1


def test_a_lock_that_fails_on_release_is_an_unknown_outcome_and_nothing_is_cleaned_up(tmp_path: Path) -> None:
    with pytest.raises(OutcomeUnknown, match="RuntimeError: hello"):
        lance.write_dataset(DATA, tmp_path, commit_lock=broken_on_release)
    assert lance.dataset(tmp_path).to_table() == DATA


def test_a_lock_is_a_function_and_is_not_pickled(tmp_path: Path) -> None:
    junk: Any = 5
    with pytest.raises(InvalidInput, match="commit_lock must be a function of the version"):
        lance.write_dataset(DATA, tmp_path, commit_lock=junk)
    handle = lance.write_dataset(DATA, tmp_path, commit_lock=Recorded(tmp_path))
    with pytest.raises(InvalidInput, match="commits under a lock"):
        pickle.dumps(handle)
