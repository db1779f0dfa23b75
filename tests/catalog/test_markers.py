"""Marker files: who made one is told by its nonce, whatever the store answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tiltyard.catalog.markers import DEREGISTERED, RESERVED, nonce_of, put_marker, read_marker, remove_marker
from tiltyard.errors import OutcomeUnknown, StoreError
from tiltyard.store import Created, Store, open_store


class Lossy:
    """A store whose answers to `create` are lost, before or after the object was made."""

    def __init__(self, store: Store, made: bool, answer: Created) -> None:
        self._store, self._made, self._answer = store, made, answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def create(self, path: str, data: Any) -> Created:
        if self._made:
            self._store.create(path, data)
        return self._answer


def test_the_second_of_two_that_put_a_marker_is_told_that_one_stands(tmp_path: Path) -> None:
    table = open_store(str(tmp_path)).at("t.lance")
    assert put_marker(table, RESERVED)
    assert not put_marker(table, RESERVED)
    assert (tmp_path / "t.lance" / RESERVED).read_bytes().startswith(b"reserved\n")


def test_a_marker_of_ours_has_a_nonce_and_those_of_others_have_none(tmp_path: Path) -> None:
    table = open_store(str(tmp_path))
    put_marker(table, DEREGISTERED)
    assert nonce_of(read_marker(table, DEREGISTERED)) is not None
    assert nonce_of(b"reserved") is None
    assert nonce_of(b"") is None
    assert nonce_of(None) is None


def test_a_lost_answer_is_resolved_by_the_nonce(tmp_path: Path) -> None:
    table: Any = Lossy(open_store(str(tmp_path)), made=True, answer=Created.UNKNOWN)
    assert put_marker(table, RESERVED)


def test_a_lost_answer_beside_the_marker_of_another_is_a_defeat(tmp_path: Path) -> None:
    put_marker(open_store(str(tmp_path)), RESERVED)
    table: Any = Lossy(open_store(str(tmp_path)), made=False, answer=Created.UNKNOWN)
    assert not put_marker(table, RESERVED)


def test_a_lost_answer_without_a_marker_leaves_the_outcome_open(tmp_path: Path) -> None:
    table: Any = Lossy(open_store(str(tmp_path)), made=False, answer=Created.UNKNOWN)
    with pytest.raises(OutcomeUnknown, match="Look at the table again"):
        put_marker(table, RESERVED)


def test_a_marker_that_cannot_be_made_to_stay_leaves_the_outcome_open(tmp_path: Path) -> None:
    class Unsynced(Lossy):
        def sync_dir(self, directory: str) -> None:
            raise StoreError("the device reported an error")

    table: Any = Unsynced(open_store(str(tmp_path)), made=True, answer=Created.UNKNOWN)
    with pytest.raises(OutcomeUnknown, match="Look at the table again"):
        put_marker(table, RESERVED)


def test_a_refused_marker_is_a_store_error(tmp_path: Path) -> None:
    table: Any = Lossy(open_store(str(tmp_path)), made=False, answer=Created.NOT_DONE)
    with pytest.raises(StoreError, match="nothing was changed"):
        put_marker(table, RESERVED)


def test_a_marker_goes_where_the_directory_went(tmp_path: Path) -> None:
    root = open_store(str(tmp_path))
    root.create("t.lance/data/x", b"1")
    table = root.at("t.lance")
    (tmp_path / "t.lance").rename(tmp_path / "elsewhere")
    assert put_marker(table, DEREGISTERED)
    assert not (tmp_path / "t.lance").exists()
    assert (tmp_path / "elsewhere" / DEREGISTERED).exists()


def test_removing_says_whether_there_was_one(tmp_path: Path) -> None:
    table = open_store(str(tmp_path))
    put_marker(table, RESERVED)
    assert remove_marker(table, RESERVED)
    assert not remove_marker(table, RESERVED)
