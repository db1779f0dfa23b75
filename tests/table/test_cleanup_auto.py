"""Cleanup after commits, as the config of a table asks for it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from peer import Peer
from tiltyard import runtime
from tiltyard.dataset import dataset, write_dataset
from tiltyard.errors import InvalidInput
from tiltyard.table.cleanup.auto import AutoCleanupWarning, parse_config, parse_span, span_of_seconds

INTERVAL, OLDER_THAN, RETAIN = (
    f"lance.auto_cleanup.{name}" for name in ("interval", "older_than", "retain_versions")
)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "t")


def rows(n: int) -> pa.Table:
    return pa.table({"a": [n]})


def versions(uri: str) -> list[int]:
    return [each["version"] for each in dataset(uri).version_refs()]


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("14days", 14 * 86_400 * 10**9),
        ("1h", 3_600 * 10**9),
        ("1h 30m", 5_400 * 10**9),
        ("1day 2s", 86_402 * 10**9),
        ("1ms", 10**6),
        ("0s", 0),
        ("1month", 2_630_016 * 10**9),
        (" 7d ", 7 * 86_400 * 10**9),
    ],
)
def test_spans_are_read_as_the_official_package_writes_them(text: str, ns: int) -> None:
    assert parse_span(text) == ns


@pytest.mark.parametrize("text", ["", "   ", "5", "days", "-1d", "1 fortnight", "1d,2h", "1.5h", "x"])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="no span of time"):
        parse_span(text)


@pytest.mark.parametrize("seconds", [0, 1, 90, 3_600, 86_400, 90_000, 14 * 86_400, 400 * 86_400])
def test_spans_are_written_so_that_the_official_package_reads_them(
    uri: str, seconds: int, peer: Peer
) -> None:
    assert parse_span(span_of_seconds(seconds)) == seconds * 10**9
    options = {"interval": 3, "older_than_seconds": seconds}
    config = dict(write_dataset(rows(0), uri, auto_cleanup_options=options).config())
    assert config[INTERVAL] == "3"
    theirs = peer(
        "lance.write_dataset(pa.table({'a': [1]}), p, auto_cleanup_options=o).config()",
        p=uri + "2",
        o=options,
    )
    if seconds < 30 * 86_400:  # the official package writes months and years
        assert config == theirs
    assert parse_span(theirs[OLDER_THAN]) == seconds * 10**9
    peer("lance.write_dataset(pa.table({'a': [1]}), p, mode='append') and None", p=uri)
    assert dataset(uri).count_rows() == 2


def test_config_that_asks_for_nothing() -> None:
    assert parse_config({}) is None
    assert parse_config({INTERVAL: "3"}) is None
    assert parse_config({INTERVAL: "0", OLDER_THAN: "1h"}) is None
    for config in ({INTERVAL: "x", OLDER_THAN: "1h"}, {INTERVAL: "-1"}, {INTERVAL: "1", RETAIN: "0"}):
        with pytest.raises(InvalidInput):
            parse_config(config)


def test_old_versions_go_after_every_so_many(uri: str) -> None:
    write_dataset(rows(0), uri, auto_cleanup_options={"interval": 4, "older_than_seconds": 0})
    for n in range(1, 9):
        write_dataset(rows(n), uri, mode="append")
        if n == 3:
            assert versions(uri) == [3, 4]
    assert versions(uri) == [7, 8, 9]
    assert dataset(uri).count_rows() == 9


def test_the_newest_so_many_and_tagged_versions_stay(uri: str) -> None:
    write_dataset(rows(0), uri)
    dataset(uri).tags.create("first", 1)
    dataset(uri).update_config({INTERVAL: "1", RETAIN: "3", OLDER_THAN: "0s"})
    for n in range(5):
        write_dataset(rows(n), uri, mode="append")
    assert versions(uri) == [1, 5, 6, 7]


def test_every_kind_of_commit_cleans_up_and_an_append_with_a_message_too(uri: str) -> None:
    write_dataset(rows(0), uri, auto_cleanup_options={"interval": 1, "older_than_seconds": 0})
    write_dataset(rows(1), uri, mode="append", commit_message="hello")
    write_dataset(rows(2), uri, mode="append", commit_message="hello")
    assert versions(uri) == [2, 3]
    dataset(uri).delete("a = 1")
    assert versions(uri) == [3, 4]
    dataset(uri).update_config({"x": "y"})
    assert versions(uri) == [4, 5]


def test_grouped_appends_clean_up_once_for_all(uri: str) -> None:
    write_dataset(rows(0), uri, auto_cleanup_options={"interval": 1, "older_than_seconds": 0})
    tasks = [runtime.spawn(write_dataset, rows(n), uri, None, "append") for n in range(8)]
    for task in tasks:
        task.join()
    write_dataset(rows(9), uri, mode="append")
    assert dataset(uri).count_rows() == 10
    assert len(versions(uri)) == 2


def test_it_is_set_only_for_a_new_table(uri: str) -> None:
    write_dataset(rows(0), uri)
    options = {"interval": 1, "older_than_seconds": 0}
    for n in range(3):
        write_dataset(rows(n), uri, mode="append", auto_cleanup_options=options)
    assert dataset(uri).config() == {}
    assert versions(uri) == [1, 2, 3, 4]


def test_it_is_turned_on_and_off_whatever_the_handle_shows(uri: str) -> None:
    write_dataset(rows(0), uri)
    old = dataset(uri, version=1)
    dataset(uri).optimize.enable_auto_cleanup({"interval": 1, "older_than_seconds": 0})
    write_dataset(rows(1), uri, mode="append")
    write_dataset(rows(2), uri, mode="append")
    assert versions(uri) == [3, 4]
    old.optimize.disable_auto_cleanup()
    assert dataset(uri).config() == {}
    write_dataset(rows(3), uri, mode="append")
    write_dataset(rows(4), uri, mode="append")
    assert versions(uri) == [3, 4, 5, 6, 7]


def test_a_cleanup_that_fails_warns_and_the_commit_stands(uri: str) -> None:
    write_dataset(rows(0), uri)
    with pytest.warns(AutoCleanupWarning, match=r"version 2 of .* was committed"):
        dataset(uri).update_config({INTERVAL: "1", OLDER_THAN: "nonsense"})
    with pytest.warns(AutoCleanupWarning, match="nonsense"):
        write_dataset(rows(1), uri, mode="append")
    assert dataset(uri).count_rows() == 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AutoCleanupWarning)
        dataset(uri).update_config({OLDER_THAN: None})
    write_dataset(rows(2), uri, mode="append")
    assert dataset(uri).count_rows() == 3


@pytest.mark.parametrize(
    "wrong",
    [{"interval": -1}, {"interval": "1"}, {"older_than_seconds": 1.5}, {"every": 3}, [1], {"interval": True}],
)
def test_wrong_options_are_refused_before_anything_is_written(uri: str, wrong: Any) -> None:
    with pytest.raises(InvalidInput):
        write_dataset(rows(0), uri, auto_cleanup_options=wrong)
    assert not Path(uri).exists()


def test_the_official_package_cleans_up_what_our_config_asks_for(uri: str, peer: Peer) -> None:
    write_dataset(rows(0), uri, auto_cleanup_options={"interval": 1, "older_than_seconds": 0})
    for n in range(3):
        peer("lance.write_dataset(pa.table({'a': [n]}), p, mode='append') and None", p=uri, n=n)
    assert versions(uri) == [3, 4]
    write_dataset(rows(5), uri, mode="append")
    assert versions(uri) == [4, 5]
    assert peer("lance.dataset(p).count_rows()", p=uri) == 5
