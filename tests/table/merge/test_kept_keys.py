"""Keys of a version that are kept: the rows are those that a search through all keys finds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tiltyard.lance as lance
from tiltyard.format.fragment import FragmentList
from tiltyard.session import Limits, Session
from tiltyard.table.merge import kept_keys
from tiltyard.table.merge.join import KeyIndex
from tiltyard.table.merge.kept_keys import find_kept
from tiltyard.table.merge.keys import resolve_key
from tiltyard.table.merge.lookup import find_rows
from tiltyard.table.merge.sorted_keys import key_words
from tiltyard.table.take import Taker

KINDS: dict[str, Any] = {
    "number": lambda i: i * 7 % 40 - 20,
    "text": lambda i: f"k{i * 7 % 40}",
}


def table(kind: str, rows: range) -> pa.Table:
    make = KINDS[kind]
    return pa.table({"k": [None if i % 11 == 10 else make(i) for i in rows], "v": list(rows)})


def check(snapshot: Any, asked: list[Any]) -> None:
    """Asks twice: the first time nothing is kept yet."""
    key = resolve_key(snapshot.schema, ["k"])
    wanted = pa.array(asked, key.fields[0].arrow_type)
    words = key_words([wanted])[0]
    expected = find_rows(snapshot, key, KeyIndex([wanted]), [wanted], use_index=False).addresses
    find_kept(snapshot, key, words)
    found = find_kept(snapshot, key, words)
    assert found is not None
    positions, addresses = found
    assert sorted(addresses.tolist()) == expected.tolist()
    by_key = [asked[at] for at in positions[np.argsort(addresses)].tolist()]
    assert Taker(snapshot, ["k"]).rows_at_addresses(expected)["k"].to_pylist() == by_key


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_those_of_a_search_through_all_keys(tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "t")
    dataset = lance.write_dataset(table(kind, range(60)), path, max_rows_per_file=25)
    make = KINDS[kind]
    asked = [make(1), make(2), make(59), make(9999)]
    check(dataset._snapshot, asked)
    check(dataset._snapshot, asked[:1])
    dataset.delete("v in (1, 30, 41)")
    check(dataset._snapshot, asked)
    dataset = lance.write_dataset(table(kind, range(100, 140)), path, mode="append")
    check(dataset._snapshot, asked)
    dataset.optimize.compact_files()
    check(dataset._snapshot, asked)


def test_only_fragments_that_are_new_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "t")
    dataset = lance.write_dataset(table("number", range(60)), path, max_rows_per_file=25)
    check(dataset._snapshot, [1])
    read: list[int] = []
    true = kept_keys.Gather.read

    def reading(self: Any, fragment: Any, rows: Any) -> Any:
        read.append(fragment.id)
        return true(self, fragment, rows)

    monkeypatch.setattr(kept_keys.Gather, "read", reading)
    dataset = lance.write_dataset(table("number", range(100, 140)), path, mode="append")
    find = (dataset._snapshot, resolve_key(dataset._snapshot.schema, ["k"]), np.zeros(1, np.uint64))
    assert find_kept(*find) is None
    assert find_kept(*find) is not None
    assert read == [3]


def test_a_table_made_anew_at_its_place_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "t"
    session = Session()
    for values in ([1, 2, 3], [3, 4, 5, 1]):
        made = pa.table({"k": values, "v": values})
        lance.write_dataset(made, str(path), mode="overwrite", session=session)
        check(lance.dataset(str(path), session=session)._snapshot, [1, 4])


def test_keys_that_are_too_many_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = Session(Limits(cache_bytes=kept_keys.CACHE_SHARE * kept_keys.ROW_BYTES * 59))
    path = str(tmp_path / "t")
    lance.write_dataset(table("number", range(60)), path)
    asked = np.zeros(1, np.uint64)
    for session, most in ((small, kept_keys.MAX_FRAGMENTS), (Session(), 0)):
        monkeypatch.setattr(kept_keys, "MAX_FRAGMENTS", most)
        snapshot = lance.dataset(path, session=session)._snapshot
        key = resolve_key(snapshot.schema, ["k"])
        assert [find_kept(snapshot, key, asked) for _ in range(3)] == [None] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_found_where_fragments_are_listed_out_of_order(tmp_path: Path, kind: str) -> None:
    """As other writers may leave them: a merge takes addresses as they ascend."""
    dataset = lance.write_dataset(table(kind, range(60)), str(tmp_path / "t"), max_rows_per_file=25)
    listed = dataset._snapshot
    fragments = FragmentList.of(list(listed.fragments)[::-1])
    snapshot = replace(listed, manifest=replace(listed.manifest, fragments=fragments))
    key = resolve_key(snapshot.schema, ["k"])
    wanted = pa.array([KINDS[kind](i) for i in (1, 30, 59)], key.fields[0].arrow_type)
    found = [find_rows(each, key, KeyIndex([wanted]), [wanted]) for each in (listed, snapshot)]
    assert found[0].addresses.tolist() == found[1].addresses.tolist()
    assert found[0].codes.tolist() == found[1].codes.tolist()
    assert len(set((found[0].addresses >> 32).tolist())) == 3
    check(snapshot, wanted.to_pylist())
