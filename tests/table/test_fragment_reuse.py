"""Notes of where rows went: their bytes, damage, notes in a file of their own, what reads through them."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiltyard.lance as lance
from column_rewrites import bounded
from peer import Peer
from tiltyard.errors import CorruptFile, UnsupportedFeature
from tiltyard.format.fragment_reuse import (
    External,
    FragmentDigest,
    ReuseGroup,
    ReuseVersion,
    decode_details,
    decode_survivors,
    decode_versions_file,
    encode_survivors,
    encode_versions,
    external_details,
    inline_details,
)
from tiltyard.format.index_metadata import FRAGMENT_REUSE, TypedBytes
from tiltyard.table.apply.indices import with_origins
from tiltyard.table.fragment_reuse import FragmentReuse, _step, reuse_of

reuse_module = importlib.import_module("tiltyard.table.compact.reuse")


def group(old: dict[int, list[int]], new: dict[int, int]) -> ReuseGroup:
    """`old`: live offsets by fragment id, in the order read; `new`: rows by id."""
    addresses = [(id << 32) + offset for id, offsets in old.items() for offset in offsets]
    return ReuseGroup(
        encode_survivors(np.sort(np.array(addresses, np.uint64))),
        tuple(FragmentDigest(id, 100, 100 - len(offsets)) for id, offsets in old.items()),
        tuple(FragmentDigest(id, rows) for id, rows in new.items()),
    )


def reuse(*versions: ReuseVersion) -> FragmentReuse:
    return FragmentReuse(tuple(_step(version, None) for version in versions))  # type: ignore[arg-type]


@given(
    st.dictionaries(
        st.integers(0, 2**32 - 1), st.sets(st.integers(0, 99), max_size=20), min_size=1, max_size=4
    )
)
@settings(max_examples=50, deadline=None)
def test_surviving_rows_come_back_in_the_order_in_which_they_were_read(rows: dict[int, set[int]]) -> None:
    old = {id: sorted(offsets) for id, offsets in rows.items()}
    found = decode_survivors(group(old, {}))
    assert found.tolist() == [(id << 32) + offset for id, offsets in old.items() for offset in offsets]


def test_addresses_go_through_every_compaction_in_turn() -> None:
    both = reuse(
        ReuseVersion(3, (group({0: [0, 2], 1: [5]}, {7: 2, 8: 1}),)),
        ReuseVersion(5, (group({7: [1], 8: [0]}, {9: 2}),)),
    )
    asked = np.array([0, 2, 1, (1 << 32) + 5, (7 << 32) + 1, (9 << 32) + 1, 42 << 32], np.uint64)
    kept, now = both.translate(asked)
    assert kept.tolist() == [False, True, False, True, True, True, True]
    assert now.tolist() == [9 << 32, (9 << 32) + 1, 9 << 32, (9 << 32) + 1, 42 << 32]
    assert both.covered(frozenset({0, 1, 3})) == {3, 9}
    assert both.covered(frozenset({0, 3})) == {0, 3}  # a part of a group answers for no successor


@pytest.mark.parametrize("cut", [1, 5, 9, 20, 40])
def test_damaged_notes_are_named(cut: int) -> None:
    version = ReuseVersion(3, (group({0: [0, 2], 1: [5]}, {7: 3}),))
    assert decode_versions_file(encode_versions([version]), "x") == (version,)
    details = inline_details([version])
    assert decode_details(details) == (version,)
    short = TypedBytes(details.type_url, details.value[:-cut])
    with pytest.raises(CorruptFile):
        decode_details(short)
    with pytest.raises(CorruptFile):
        decode_survivors(replace(version.groups[0], survivors=version.groups[0].survivors[:-cut]))


def test_notes_that_do_not_add_up_are_refused() -> None:
    for new in ({7: 2}, {7: 4}, {7: 2**40}):
        with pytest.raises(CorruptFile, match="rows survived"):
            reuse(ReuseVersion(3, (group({0: [0, 2], 1: [5]}, new),)))
    stranger = replace(group({0: [0]}, {7: 1}), old=(FragmentDigest(5, 1),))
    with pytest.raises(CorruptFile, match="not rewritten"):
        reuse(ReuseVersion(3, (stranger,)))
    with pytest.raises(CorruptFile, match="FragmentReuseIndexDetails"):
        decode_details(TypedBytes("/lance.table.BTreeIndexDetails"))
    with pytest.raises(CorruptFile, match="no details"):
        decode_details(None)


def make(path: Path) -> lance.LanceDataset:
    for number in range(4):
        rows = range(10 * number, 10 * number + 10)
        lance.write_dataset(pa.table({"id": rows, "v": rows}), path, mode="append")
    ds = lance.dataset(path)
    ds.create_scalar_index("id", "BTREE")
    return ds


def test_many_notes_stand_in_a_file_of_their_own(
    tmp_path: Path, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ds = make(tmp_path)
    monkeypatch.setattr(reuse_module, "INLINE_BYTES", 0)
    ds.delete("id = 3")
    ds.optimize.compact_files(defer_index_remap=True)
    entry = next(each for each in ds._snapshot.manifest.indices if each.name == FRAGMENT_REUSE)
    assert isinstance(decode_details(entry.details), External)
    assert [file.path for file in entry.files] == ["details.binpb"]
    asked = pa.array([2, 3, (3 << 32) + 1], pa.uint64())
    ours = ds.remap_row_addrs(asked).to_pylist()
    assert ours == peer("lance.dataset(p).remap_row_addrs(a)", p=str(tmp_path), a=asked).to_pylist()
    for where in ("id = 2", "id = 3", "id >= 30"):
        found = ds.to_table(filter=where)["id"].to_pylist()
        assert found == ds.to_table(filter=where, use_scalar_index=False)["id"].to_pylist()
        assert found == peer(
            "lance.dataset(p).to_table(filter=w)['id'].to_pylist()", p=str(tmp_path), w=where
        )
    (tmp_path / "_indices" / entry.uuid / "details.binpb").unlink()
    again = lance.dataset(tmp_path, session=lance.Session())
    with pytest.raises(CorruptFile, match="missing"):
        reuse_of(again._snapshot)
    assert again.to_table(filter="id >= 30")["id"].to_pylist() == list(range(30, 40))  # scanned


def test_a_column_written_anew_after_a_deferred_compaction_is_not_answered_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, peer: Peer
) -> None:
    ds = make(tmp_path)
    ds.optimize.compact_files(defer_index_remap=True)
    bounded(monkeypatch)
    ds.update({"id": "id + 1000"}, where="id >= 30")
    assert (
        ds.count_rows("id >= 1000")
        == 10
        == peer("lance.dataset(p).count_rows('id >= 1000')", p=str(tmp_path))
    )
    assert ds.count_rows("id >= 30 and id < 1000") == 0


def test_notes_of_a_later_form_are_left_out_of_account(tmp_path: Path) -> None:
    ds = make(tmp_path)
    ds.optimize.compact_files(defer_index_remap=True)
    manifest = ds._snapshot.manifest
    assert with_origins(manifest, frozenset({4})) == {0, 1, 2, 3, 4}
    assert with_origins(manifest, frozenset({9})) == {9}
    later = replace(
        manifest,
        indices=tuple(
            replace(each, index_version=1) if each.name == FRAGMENT_REUSE else each
            for each in manifest.indices
        ),
    )
    assert with_origins(later, frozenset({9})) == {0, 1, 2, 3, 9}  # whatever is gone may be behind it
    with pytest.raises(UnsupportedFeature, match="version 1"):
        reuse_of(replace(ds._snapshot, manifest=later, session=lance.Session()))


def test_details_in_a_file_name_it() -> None:
    place = External("details.binpb", 3, 17)
    assert decode_details(external_details(place)) == place
