"""What is said and done where something else stands in a manifest's or data file's place, or a manifest is
damaged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from conflict_operations import SCHEMA, new_fragment
from tiltyard import runtime
from tiltyard.errors import CorruptFile, StoreError
from tiltyard.format import names
from tiltyard.format.operations import Append, Overwrite
from tiltyard.format.transaction import Transaction
from tiltyard.session import Session
from tiltyard.store import Created, Store, open_store
from tiltyard.table.commit import commit

TABLE = pa.table({"a": [1, 2, 3]})
Make = Callable[[Path], object]


def manifest(path: str, version: int) -> Path:
    return Path(path, names.manifest_path(version))


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Versions 1 and 2."""
    path = str(tmp_path / "t")
    for _ in range(2):
        lance.write_dataset(TABLE, path, mode="append" if Path(path).exists() else "create")
    return path


PLACED: dict[str, tuple[Make, str]] = {
    "directory": (lambda path: path.mkdir(), "a directory or a link that leads nowhere"),
    "dangling link": (lambda path: path.symlink_to("nowhere"), "a directory or a link that leads nowhere"),
    "loop of links": (lambda path: path.symlink_to(path.name), "links lead to each other"),
    "pipe": (lambda path: os.mkfifo(path), "no file but a pipe"),
}


@pytest.mark.parametrize("case", PLACED)
def test_what_stands_in_the_place_of_the_next_manifest_is_named_at_once(case: str, table: str) -> None:
    handle = lance.dataset(table)
    make, said = PLACED[case]
    make(manifest(table, 3))
    calls: list[Callable[[], Any]] = [
        lambda: lance.write_dataset(TABLE, table, mode="append"),
        lambda: handle.insert(TABLE),
        lambda: handle.delete("a = 1"),
        lambda: lance.dataset(table),
        lambda: lance.dataset(table, version=3),
    ]
    for call in calls:
        with pytest.raises(StoreError, match=said) as caught:
            call()
        assert str(manifest(table, 3)) in str(caught.value)
    assert lance.dataset(table, version=2).count_rows() == 6


@pytest.mark.parametrize("make", [PLACED["directory"][0], PLACED["dangling link"][0]])
@pytest.mark.parametrize("first", [True, False])
def test_a_commit_whose_place_is_taken_by_what_is_no_file_does_not_try_again(
    make: Make, first: bool, tmp_path: Path
) -> None:
    store = open_store(str(tmp_path / "t"), {"durable": False})
    base = None
    if not first:
        first_one = Transaction(0, str(runtime.uuid4()), Overwrite((new_fragment("f1"),), SCHEMA))
        base = commit(store, first_one, session=Session(), base=None)
    tries: list[int] = []

    def blocked_meanwhile(store: Store, version: int, path: str, data: Sequence[Any]) -> Created:
        tries.append(version)
        place = tmp_path / "t" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if len(tries) == 1:
            make(place)
        return store.create(path, data)

    operation = Overwrite((new_fragment("f2"),), SCHEMA) if first else Append((new_fragment("f2"),))
    transaction = Transaction(0 if base is None else 1, str(runtime.uuid4()), operation)
    with pytest.raises(StoreError, match=r"nothing was committed: .*move it away"):
        commit(store, transaction, session=Session(), base=base, publish=blocked_meanwhile)
    assert len(tries) == 1


def test_a_pipe_in_the_place_of_a_data_file_is_named_at_once(table: str) -> None:
    data = min(Path(table, "data").iterdir())
    data.unlink()
    os.mkfifo(data)
    dataset = lance.dataset(table)
    for call in (dataset.to_table, lambda: dataset.take([0, 5]), dataset.validate):
        with pytest.raises(StoreError, match=f"{data.name}.* pipe"):
            call()


# -- damaged ---------------------------------------------------------------------------------------


def test_the_advice_on_a_damaged_newest_version_works(table: str) -> None:
    older = lance.dataset(table)
    lance.write_dataset(TABLE, table, mode="append")
    newest = manifest(table, 3)
    newest.write_bytes(newest.read_bytes()[:-20])
    with pytest.raises(CorruptFile) as caught:
        lance.dataset(table)
    said = str(caught.value)
    assert "the last good version before it is 2: open that one by its number" in said
    assert f"look at {newest} and move it out of _versions" in said
    # Nothing is written on top of it, by any handle.
    good = lance.dataset(table, version=2)
    for call in (
        lambda: lance.write_dataset(TABLE, table, mode="append"),
        lambda: lance.write_dataset(TABLE, table, mode="overwrite"),
        good.restore,
        lambda: older.delete("a = 1"),
        lambda: lance.dataset(table, asof=datetime.now()),
    ):
        with pytest.raises(CorruptFile) as caught:
            call()
        assert str(caught.value) == said
    # The version before it is read by its number, and all are listed.
    assert good.count_rows() == 6
    listed = good.versions()
    assert [each["version"] for each in listed] == [1, 2, 3]
    assert [each["metadata"].get("total_rows") for each in listed] == ["3", "6", None]
    assert newest.name in listed[2]["metadata"]["damaged"]
    assert listed[1]["timestamp"] <= listed[2]["timestamp"]
    # Out of the way, the table goes on.
    newest.rename(Path(table, "damaged.manifest"))
    assert lance.write_dataset(TABLE, table, mode="append").version == 3
    assert lance.dataset(table).count_rows() == 9


def test_a_damaged_older_version_is_not_to_be_moved(table: str) -> None:
    oldest = manifest(table, 1)
    oldest.write_bytes(b"")
    with pytest.raises(CorruptFile, match="version 1 is damaged") as caught:
        lance.dataset(table, version=1)
    assert "move it" not in str(caught.value)
    assert [each["version"] for each in lance.dataset(table).versions()] == [1, 2]
