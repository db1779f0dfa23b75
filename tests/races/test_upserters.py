"""Real processes that upsert the same keys at once (case O03): every key has one row, and nothing is lost."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from peer import Peer
from tiltyard.errors import DuplicateKey
from workers import Crew, together

UPSERTS = """
ds = lance.dataset(path)
for step in range(steps):
    keys = [(17 * me + 29 * step + 41 * i) % 201 for i in range(5)]
    keys = [str(k) for k in keys] if text else keys
    rows = pa.table({"id": keys, "by": [me * 1000 + step] * 5, "n": [1] * 5})
    if partial:
        rows = rows.select(["id", "by"])
    merge = lance.dataset(path).merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.conflict_retries(1000)
    try:
        merge.retry_timeout(100)
    except TypeError:  # the official package
        import datetime
        merge.retry_timeout(datetime.timedelta(seconds=100))
    merge.execute(rows)
result = steps
"""


def _key_counts(path: str) -> Counter[object]:
    return Counter(lance.dataset(path).to_table(columns=["id"])["id"].to_pylist())


def _wanted(workers: int, steps: int) -> set[int]:
    return {
        (17 * me + 29 * step + 41 * i) % 201
        for me in range(workers)
        for step in range(steps)
        for i in range(5)
    }


@pytest.mark.parametrize(("indexed", "partial", "text"), [(False, False, False), (True, True, True)])
def test_processes_that_upsert_the_same_keys_leave_one_row_of_each(
    tmp_path: Path, crew: Crew, peer: Peer, indexed: bool, partial: bool, text: bool
) -> None:
    path, steps, workers = str(tmp_path / "t"), 6, 4
    kind = pa.string() if text else pa.int64()
    schema = pa.schema([("id", kind), ("by", pa.int64()), ("n", pa.int64())])
    ds = lance.write_dataset(schema.empty_table(), path)
    if indexed:
        ds.create_scalar_index("id", "BTREE")
    done = together(
        crew.ours(workers), UPSERTS, tmp_path / "gate", path=path, steps=steps, partial=partial, text=text
    )
    assert done == [steps] * workers
    counts = _key_counts(path)
    assert set(counts.values()) == {1}
    assert {int(str(key)) for key in counts} == _wanted(workers, steps)
    assert peer("lance.dataset(p).count_rows()", p=path) == len(counts)


def test_ours_and_the_official_writer_leave_one_row_of_each_declared_key(tmp_path: Path, crew: Crew) -> None:
    path, steps = str(tmp_path / "t"), 5
    key = pa.field("id", pa.int64(), False, {"lance-schema:unenforced-primary-key": "true"})
    schema = pa.schema([key, pa.field("by", pa.int64()), pa.field("n", pa.int64())])
    lance.write_dataset(schema.empty_table(), path)
    workers = [*crew.ours(2), *crew.peers(1)]
    text = UPSERTS.replace('"n": [1] * 5})', '"n": [1] * 5}, schema=lance.dataset(path).schema)')
    together(workers, text, tmp_path / "gate", path=path, steps=steps, partial=False, text=False)
    counts = _key_counts(path)
    assert set(counts.values()) == {1}
    assert set(counts) == _wanted(3, steps)


def test_threads_that_upsert_one_new_key_leave_one_row(tmp_path: Path) -> None:
    ds = lance.write_dataset(pa.table({"id": [0], "by": [-1]}), str(tmp_path / "t"))
    errors: list[BaseException] = []

    def work(me: int) -> None:
        try:
            handle = lance.dataset(ds.uri)
            for key in range(1, 6):
                merge = handle.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
                merge.conflict_retries(1000).execute(pa.table({"id": [key], "by": [me]}))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(me,)) for me in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert errors == []
    assert _key_counts(ds.uri) == Counter(range(6))


def test_threads_that_append_one_key_to_a_table_with_unique_keys_leave_one_row(tmp_path: Path) -> None:
    ds = lance.write_dataset(pa.table({"id": [0], "by": [-1]}), str(tmp_path / "t"))
    ds.update_config({"tiltyard.unique": "id"})
    refused: list[str] = []
    errors: list[BaseException] = []

    def work(me: int) -> None:
        for key in range(1, 6):
            try:
                lance.write_dataset(pa.table({"id": [key], "by": [me]}), ds.uri, mode="append")
            except DuplicateKey as error:
                refused.append(str(error))
            except BaseException as error:
                errors.append(error)

    threads = [threading.Thread(target=work, args=(me,)) for me in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert errors == []
    assert len(refused) == 15
    assert _key_counts(ds.uri) == Counter(range(6))
