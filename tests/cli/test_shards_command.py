"""`tiltyard shards`, and `tiltyard shard` where it closes, drops, revises and follows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tiltyard as ty
from streamed import digest
from tiltyard.cli import main

KEYS = list(range(1, 9))


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "220")


@pytest.fixture
def place(tmp_path: Path) -> str:
    """A table with two shards, rows of which are published and in the logs."""
    table = ty.connect(tmp_path).create_table("t", {"id": [0], "v": [0.5]}, key="id")
    stream = table.stream(shards=2)
    stream.put({"id": KEYS, "v": [1.0] * 8})
    stream.flush()
    stream.put({"id": KEYS[:1], "v": [2.0]})
    stream._writer.abort()
    return str(tmp_path / "t.lance")


def told(capsys: Any, *words: str, status: int = 0) -> str:
    assert main(list(words)) == status
    captured = capsys.readouterr()
    return str(captured.out + captured.err)


def overview(capsys: Any, place: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(told(capsys, "shards", place, "--json"))
    return found


def rows(place: str) -> dict[int, float]:
    found = ty.open_table(place).live().to_arrow().to_pydict()
    return dict(zip(found["id"], found["v"], strict=True))


def test_the_overview_tells_what_waits(place: str, capsys: Any) -> None:
    shown = told(capsys, "shards", place)
    assert "sharded by bucket of id into 2 shards (spec 1)" in shown
    for word in ("epoch", "waiting", "log entries", "lag", "active"):
        assert word in shown
    found = overview(capsys, place)
    assert found["sharding"] == {
        "kind": "bucket",
        "column": "id",
        "count": 2,
        "spec_id": 1,
        "changing": False,
    }
    shards = found["shards"]
    assert sorted(each["value"] for each in shards) == [0, 1]
    assert {each["epoch"] for each in shards} == {each["published"] for each in shards} == {1}
    assert sum(each["waiting_rows"] for each in shards) == 8
    assert sorted(each["log_entries"] for each in shards) == [0, 1]
    assert all(each["lag_seconds"] >= 0 and each["waiting_bytes"] > 0 for each in shards)
    assert told(capsys, "shard", "list", place).splitlines()[:2] == shown.splitlines()[:2]


def test_where_nothing_waits_there_is_no_lag(place: str, capsys: Any) -> None:
    told(capsys, "shard", "revise", place, "--buckets", "3")
    with ty.open_table(place).stream() as stream:
        stream.put({"id": KEYS[:1], "v": [3.0]})
        stream.delete(KEYS[:1])
    stream = ty.open_table(place).stream()
    stream.put({"id": KEYS[:1], "v": [3.0]})
    stream._writer.abort()
    found = overview(capsys, place)
    sealed = [each for each in found["shards"] if each["spec_id"] == 1]
    assert [each["status"] for each in sealed] == ["sealed"] * 2
    assert [(each["waiting"], each["log_entries"], each["lag_seconds"]) for each in sealed] == [
        (0, 0, None)
    ] * 2
    (opened,) = [each for each in found["shards"] if each["spec_id"] == 2]
    assert (opened["epoch"], opened["waiting"], opened["log_entries"]) == (2, 1, 1)
    ty.open_table(place).drain(take_over=True)
    for each, how in ((sealed[0], "--yes drops it\n"), (opened, "--yes drops it, with --discard-streamed\n")):
        would = told(capsys, "shard", "drop", place, each["shard_id"])
        assert "0 published rows and 0 log entries are not in the table" in would
        assert would.endswith(how)


def test_a_table_that_nobody_streams_into_has_no_shards(tmp_path: Path, capsys: Any) -> None:
    ty.connect(tmp_path).create_table("t", {"id": [0]})
    assert told(capsys, "shards", str(tmp_path / "t.lance")) == "no shards\n"
    assert overview(capsys, str(tmp_path / "t.lance"))["sharding"] is None


def test_shards_are_closed_opened_and_dropped(place: str, capsys: Any) -> None:
    before = rows(place)
    (shard, other) = [each["shard_id"] for each in overview(capsys, place)["shards"]]
    assert "is not sealed" in told(capsys, "shard", "drop", place, shard, "--yes", status=1)
    assert "is sealed; its log is published" in told(capsys, "shard", "seal", place, shard)
    assert "takes writers" in told(capsys, "shard", "unseal", place, shard)
    told(capsys, "shard", "seal", place, shard)
    assert {each["status"] for each in overview(capsys, place)["shards"]} == {"sealed", "active"}
    state = digest(Path(place))
    would = told(capsys, "shard", "drop", place, shard)
    assert told(capsys, "shard", "drop", place, shard.replace("-", "").upper()) == would
    assert "published rows and 0 log entries are not in the table" in would
    assert "--yes drops it, with --discard-streamed" in would
    assert "would be lost" in told(capsys, "shard", "drop", place, shard, "--yes", status=1)
    assert digest(Path(place)) == state
    ty.open_table(place)._ds.resume_sharding()
    assert digest(Path(place)) == state
    assert "are lost" in told(capsys, "shard", "drop", place, shard, "--yes", "--discard-streamed")
    assert 0 < len(rows(place)) < len(before)
    unknown = other[:-4] + "0000"
    for yes in ((), ("--yes",)):
        assert f"has no shard {unknown}" in told(capsys, "shard", "drop", place, unknown, *yes, status=1)
        assert "Invalid shard_id" in told(capsys, "shard", "drop", place, other[::-1], *yes, status=1)


def test_the_sharding_is_revised_and_resumed(place: str, capsys: Any) -> None:
    before = rows(place)
    assert "2 shards of earlier shardings sealed and drained; sharding spec 2 is in force" in told(
        capsys, "shard", "revise", place, "--buckets", "4"
    )
    shown = told(capsys, "shards", place)
    assert "into 4 shards (spec 2)" in shown
    assert shown.endswith("\n2 shards of earlier shardings, sealed and in the table (--all shows them)\n")
    assert "epoch" not in shown
    for words in (("shards",), ("shard", "list")):
        assert len(told(capsys, *words, place, "--all").splitlines()) == 4
    assert rows(place) == before
    from tiltyard.memwal.resharding import compacted, revise

    revise(ty.open_table(place)._ds, compacted, {"unsharded": True}, to_the_end=False)
    assert "not in force yet" in told(capsys, "shards", place)
    would = told(capsys, "maintain", place, "--dry-run")
    assert "sharding: would put spec 3 (unsharded) in force" in would
    assert "spec 3 is in force" in told(capsys, "shard", "revise", place, "--resume")
    assert "one shard for all rows (spec 3)" in told(capsys, "shards", place)
    revise(ty.open_table(place)._ds, compacted, {"identity_column": "id"}, to_the_end=False)
    assert "called off; shards that it had sealed and that take writers again: 0" in told(
        capsys, "shard", "revise", place, "--abandon"
    )
    assert "one shard for all rows (spec 3)" in told(capsys, "shards", place)
    assert "no change of the sharding" in told(capsys, "shard", "revise", place, "--abandon", status=1)
    assert "nothing is left to do" in told(capsys, "shard", "revise", place, "--resume")
    told(capsys, "shard", "revise", place, "--identity", "id")
    assert "sharded by identity of id (spec 5)" in told(capsys, "shards", place)
    assert rows(place) == before


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ((), "give one of"),
        (("--buckets", "4", "--unsharded"), "give one of"),
        (("--unsharded", "--column", "id"), "--column with --buckets alone"),
        (("--buckets", "2"), "already"),
        (("--buckets", "5000"), r"[1, 1024]"),
        (("--buckets", "4", "--column", "x"), "'x' not found"),
        (("--identity", "v"), "cannot be used as a shard key"),
    ],
    ids=str,
)
def test_what_is_no_sharding_changes_nothing(
    place: str, capsys: Any, words: tuple[str, ...], answer: str
) -> None:
    before = digest(Path(place))
    assert answer in told(capsys, "shard", "revise", place, *words, status=1)
    assert digest(Path(place)) == before


def test_changes_are_followed_from_where_a_tail_ended(place: str, capsys: Any) -> None:
    assert main(["shard", "tail", place]) == 0
    first = capsys.readouterr()
    assert sum(int(line.split()[4]) for line in first.out.splitlines()) == 9
    cursor = first.err.partition("'")[2].rpartition("'")[0]
    with ty.open_table(place).stream() as stream:
        stream.put({"id": 3, "v": 7.0})
        stream.delete([3])
    assert main(["shard", "tail", place, "--after", cursor, "--json"]) == 0
    changes = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["put"], each["deleted"]) for each in changes] == [
        ([{"id": 3, "v": 7.0}], []),
        ([], [{"id": 3}]),
    ]
    assert "or a JSON object, found '{'" in told(capsys, "shard", "tail", place, "--after", "{", status=1)
    assert "after" in told(capsys, "shard", "tail", place, "--after", "now", status=1)


def test_changes_that_are_to_be_merged_are_shown_as_they_were_put(tmp_path: Path, capsys: Any) -> None:
    table = ty.connect(tmp_path).create_table("t", {"id": [0], "v": [0]}, key="id")
    with table.stream(merge={"v": "sum"}) as stream:
        stream.put({"id": [1, 1], "v": [2, 3]})
        stream.delete(1)
    place = str(tmp_path / "t.lance")
    lines = told(capsys, "shard", "tail", place).splitlines()[:2]
    assert [line.partition(": ")[2] for line in lines] == ["2 rows to be merged", "1 row to be merged"]
    assert main(["shard", "tail", place, "--json"]) == 0
    changes = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["rows"] for each in changes] == [
        [{"id": 1, "v": 2, "_tombstone": False}, {"id": 1, "v": 3, "_tombstone": False}],
        [{"id": 1, "v": None, "_tombstone": True}],
    ]
