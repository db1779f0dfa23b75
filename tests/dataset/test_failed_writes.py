"""Writes that fail: what is said, and what is left behind."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from column_rewrites import bounded
from tiltyard.errors import InvalidInput, OutcomeUnknown, StoreError, TiltyardError
from tiltyard.testing.faults import Fault, FaultyPort, Plan, Rule, port_installed

TABLE = pa.table({"n": range(10), "s": [f"row {n}" for n in range(10)]})
CHANGES = ("open_tmp", "open_new", "write", "fdatasync", "link_handle", "link", "mkdir", "fsync_dir")


def files(path: Path) -> set[str]:
    return {str(each.relative_to(path)) for each in path.rglob("*") if each.is_file()}


def faulty(rule: Rule | None, work: Callable[[], Any]) -> list[str]:
    """Does the work on a file system with the rule; the calls that it made."""
    plan = Plan() if rule is None else Plan(rule)
    with port_installed(FaultyPort(plan)):
        work()
    return [call for call, *_ in plan.trace]


def failures(
    make: Callable[[Path], Callable[[], Any]], tmp_path: Path
) -> Iterator[tuple[Path, TiltyardError]]:
    """Every call that changes the medium fails once, in a place of its own."""
    place = tmp_path / "learnt"
    calls = faulty(None, make(place))
    for name in CHANGES:
        for at in range(1, calls.count(name) + 1):
            place = tmp_path / f"{name}-{at}"
            work = make(place)
            before = files(place)
            error = failure_of(Rule(Fault.FAIL_BEFORE, name, at=at, error=errno.ENOSPC), work)
            if error is not None and not isinstance(error, OutcomeUnknown):
                assert files(place) == before, f"{name} {at}: {error}"
                yield place, error


def failure_of(rule: Rule, work: Callable[[], Any]) -> TiltyardError | None:
    try:
        faulty(rule, work)
    except TiltyardError as error:
        return error
    return None


@pytest.mark.parametrize("mode", ["create", "append", "overwrite"])
def test_a_write_that_definitely_failed_leaves_no_file(mode: str, tmp_path: Path) -> None:
    def make(place: Path) -> Callable[[], Any]:
        if mode != "create":
            lance.write_dataset(TABLE, str(place))
        return lambda: lance.write_dataset(TABLE, str(place), mode=mode, max_rows_per_file=4)

    found = list(failures(make, tmp_path))
    assert found
    for place, error in found:
        assert isinstance(error, StoreError)
        assert "No space left" in str(error)
        if mode != "create":
            assert lance.dataset(str(place)).version == 1


def test_a_delete_that_definitely_failed_leaves_no_file_and_names_the_cause(tmp_path: Path) -> None:
    def make(place: Path) -> Callable[[], Any]:
        lance.write_dataset(TABLE, str(place), max_rows_per_file=4)
        return lambda: lance.dataset(str(place)).delete("n % 2 = 1")

    found = list(failures(make, tmp_path))
    assert any("deletion file" in str(error) for _, error in found)
    for place, error in found:
        assert isinstance(error, StoreError)
        assert "No space left" in str(error)
        assert lance.dataset(str(place)).count_rows() == 10


@pytest.mark.parametrize("share", [0.0, 2.0], ids=["columns", "rows"])
def test_an_update_that_definitely_failed_leaves_no_file(
    share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounded(monkeypatch, share)

    def make(place: Path) -> Callable[[], Any]:
        lance.write_dataset(TABLE, str(place), max_rows_per_file=4)
        return lambda: lance.dataset(str(place)).update({"s": "'new'"}, "n % 2 = 1")

    found = list(failures(make, tmp_path))
    assert len(found) > 3
    for place, error in found:
        assert isinstance(error, StoreError)
        assert "No space left" in str(error)
        assert lance.dataset(str(place)).to_table().equals(TABLE)


@pytest.mark.parametrize(
    "options",
    [
        {"commit_message": 7},
        {"commit_message": "half \ud800"},
        {"transaction_properties": {"a": 1}},
        {"transaction_properties": {1: "a"}},
        {"transaction_properties": ["a"]},
        {"enable_stable_row_ids": "yes"},
        {"enable_v2_manifest_paths": "no"},
    ],
    ids=str,
)
def test_arguments_are_looked_at_before_data_is_written(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=re.escape(next(iter(options)))):
        lance.write_dataset(TABLE, str(tmp_path / "t"), **options)
    assert not (tmp_path / "t").exists()


MERGES: dict[str, Callable[[Any], Any]] = {
    "whole rows": lambda ds: (
        ds.merge_insert("n")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute(pa.table({"n": [3, 99], "s": ["three", "new"]}))
    ),
    "partial rows": lambda ds: (
        ds.merge_insert("n").when_matched_update({"s": "upper(target.s)"}).execute(pa.table({"n": [3, 8]}))
    ),
    "columns": lambda ds: (
        ds.merge_insert("n")
        .when_matched_update({"s": "upper(target.s)"})
        .write_mode("rewrite_columns")
        .execute(pa.table({"n": [3, 8]}))
    ),
    "dedupe": lambda ds: ds.dedupe("same"),
}


@pytest.mark.parametrize("how", list(MERGES))
def test_a_merge_that_definitely_failed_leaves_no_file(how: str, tmp_path: Path) -> None:
    def make(place: Path) -> Callable[[], Any]:
        table = TABLE.append_column("same", [[n % 7 for n in range(10)]])
        lance.write_dataset(table if how == "dedupe" else TABLE, str(place), max_rows_per_file=5)
        return lambda: MERGES[how](lance.dataset(str(place)))

    found = list(failures(make, tmp_path))
    assert found
    for place, error in found:
        assert isinstance(error, StoreError)
        assert lance.dataset(str(place)).version == 1
        assert lance.dataset(str(place)).to_table(columns=["n", "s"]).equals(TABLE)
