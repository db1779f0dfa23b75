"""Sequences of row ids and row versions: every form, the choice among them, and the peer's own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.errors import CorruptFile, TiltyardError
from tiltyard.format.manifest import decode_manifest
from tiltyard.format.protos import table_pb2 as pb
from tiltyard.format.row_ids import (
    append_row_id_range,
    count_row_ids,
    decode_row_ids,
    decode_versions,
    encode_constant_version,
    encode_row_id_range,
    encode_row_ids,
    encode_versions,
)


def form(data: bytes) -> str:
    segments = pb.RowIdSequence.FromString(data).segments
    assert len(segments) == 1
    kind = segments[0].WhichOneof("segment")
    return f"{kind}/{getattr(segments[0], kind).WhichOneof('array')}" if "array" in kind else kind


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (np.arange(5, 105), "range"),
        (np.delete(np.arange(1000), [3, 500]), "range_with_holes"),
        (np.flatnonzero(np.arange(4000) % 3), "range_with_bitmap"),
        (np.arange(0, 100_000, 1000), "sorted_array/u32_array"),
        (np.arange(0, 10_000, 100), "sorted_array/u16_array"),
        (np.array([0, 2**40]), "sorted_array/u64_array"),
        (np.array([5, 3, 4, 9, 1, 7]), "array/u16_array"),
        (np.array([5, 5]), "array/u16_array"),
        (np.array([9, 2**20]), "sorted_array/u32_array"),
        (np.array([2**64 - 1, 0], np.uint64), "array/u64_array"),
        (np.array([2**64 - 2, 2**64 - 1], np.uint64), "sorted_array/u16_array"),
    ],
)
def test_the_form_follows_from_the_ids(ids: np.ndarray, expected: str) -> None:
    data = encode_row_ids(ids)
    assert form(data) == expected
    assert decode_row_ids(data, len(ids)).tolist() == ids.astype(np.uint64).tolist()
    assert count_row_ids(data) == len(ids)


def test_bits_of_a_bitmap_count_from_the_lowest() -> None:
    segment = pb.U64Segment(
        range_with_bitmap=pb.U64Segment.RangeWithBitmap(start=10, end=20, bitmap=b"\x05\x02")
    )
    data = pb.RowIdSequence(segments=[segment]).SerializeToString()
    assert decode_row_ids(data).tolist() == [10, 12, 19]


def test_adjacent_ranges_become_one() -> None:
    data = append_row_id_range(encode_row_id_range(5, 3), 8, 2)
    assert data == encode_row_id_range(5, 5)
    assert decode_row_ids(append_row_id_range(data, 20, 1)).tolist() == [5, 6, 7, 8, 9, 20]
    assert append_row_id_range(b"", 7, 1) == encode_row_id_range(7, 1)
    assert append_row_id_range(data, 99, 0) == data
    assert decode_row_ids(b"").tolist() == []


def test_a_sequence_of_the_wrong_length_is_corrupt() -> None:
    with pytest.raises(CorruptFile, match="10 rows has 9 row ids"):
        decode_row_ids(encode_row_id_range(0, 9), 10, "x.manifest")
    with pytest.raises(CorruptFile, match=r"x\.manifest: .* rows has"):
        decode_versions(encode_constant_version(1, 9), 10, "x.manifest")


def test_claims_beyond_bounds_are_refused_before_anything_is_built() -> None:
    with pytest.raises(CorruptFile, match="more than"):
        decode_row_ids(encode_row_id_range(0, 2**60))
    with pytest.raises(CorruptFile, match="more than"):
        decode_versions(encode_constant_version(3, 2**60))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 2**64 - 1), max_size=50) | st.lists(st.integers(0, 300), max_size=200))
def test_any_ids_round_trip(ids: list[int]) -> None:
    for each in (ids, sorted(set(ids))):
        assert decode_row_ids(encode_row_ids(np.array(each, np.uint64)), len(each)).tolist() == each


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 4) | st.integers(0, 2**64 - 1), max_size=60))
def test_any_versions_round_trip(versions: list[int]) -> None:
    assert decode_versions(encode_versions(np.array(versions, np.uint64)), len(versions)).tolist() == versions


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=40))
def test_noise_gives_a_value_or_a_typed_error(noise: bytes) -> None:
    for decode in (decode_row_ids, decode_versions):
        try:
            decode(noise, 5)
        except TiltyardError:
            continue


def test_sequences_of_the_peer_give_what_it_reads(peer, tmp_path) -> None:
    table = peer(
        """
lance.write_dataset(pa.table({"a": range(3000)}), path, enable_stable_row_ids=True)
lance.dataset(path).update({"a": "a + 10000"}, where="a % 3 = 0")
lance.dataset(path).delete("a % 7 = 1")
lance.dataset(path).optimize.compact_files(target_rows_per_fragment=10000)
ds = lance.dataset(path)
result = ds.to_table(columns=["_rowid", "_row_created_at_version", "_row_last_updated_at_version"])
""",
        path=str(tmp_path / "t"),
    )
    newest = min((tmp_path / "t" / "_versions").glob("*.manifest"))
    (fragment,) = decode_manifest(newest.read_bytes(), "m")[0].fragments
    assert fragment.row_ids is not None
    ids = decode_row_ids(fragment.row_ids, fragment.physical_rows)
    assert ids.tolist() == table.column("_rowid").to_pylist()
    assert fragment.created_versions is not None
    created = decode_versions(fragment.created_versions, fragment.physical_rows)
    assert created.tolist() == table.column("_row_created_at_version").to_pylist()
    assert fragment.last_updated_versions is not None
    updated = decode_versions(fragment.last_updated_versions, fragment.physical_rows)
    assert updated.tolist() == table.column("_row_last_updated_at_version").to_pylist()
    assert len(encode_row_ids(ids)) <= len(fragment.row_ids)


def test_the_peer_reads_sequences_that_we_write(peer, tmp_path) -> None:
    from dataclasses import replace

    from tiltyard.format.fragment import FragmentList
    from tiltyard.format.manifest import encode_manifest

    path = tmp_path / "t"
    peer(
        "lance.write_dataset(pa.table({'a': range(1000)}), path, enable_stable_row_ids=True)", path=str(path)
    )
    (name,) = (path / "_versions").glob("*.manifest")
    manifest, load = decode_manifest(name.read_bytes(), "m")
    (fragment,) = manifest.fragments
    dice = np.random.default_rng(1)
    for ids in (
        np.delete(np.arange(2000), dice.choice(2000, 1000, replace=False)),
        np.delete(np.arange(1003), [4, 7, 900]),
        np.arange(1000) * 5000,
        dice.permutation(1000),
        np.roll(np.arange(1000) * 2, 300),
        dice.permutation(1000) + 2**33 * np.arange(1000),
    ):
        changed = replace(fragment, row_ids=encode_row_ids(ids))
        name.chmod(0o644)
        ours = replace(manifest, fragments=FragmentList.of([changed]), next_row_id=2**44)
        name.write_bytes(b"".join(encode_manifest(ours, load())))
        found = peer(
            "lance.dataset(path, session=lance.Session()).to_table(columns=['_rowid'])['_rowid'].to_numpy()",
            path=str(path),
        )
        assert found.tolist() == ids.tolist()
