"""Deletion files of both kinds, both ways, and damage to them."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.errors import CorruptFile, TiltyardError
from tiltyard.format.deletion import MAX_ARROW_ROWS, decode_deletions, encode_deletions
from tiltyard.format.manifest import decode_manifest
from tiltyard.format.roaring import decode_roaring, encode_roaring


def test_few_rows_are_arrow_and_many_are_roaring() -> None:
    assert encode_deletions(np.arange(MAX_ARROW_ROWS, dtype=np.uint32))[0] == "arrow"
    assert encode_deletions(np.arange(MAX_ARROW_ROWS + 1, dtype=np.uint32))[0] == "bin"
    assert encode_deletions(np.arange(2, dtype=np.uint32), "bin")[0] == "bin"


def test_the_arrow_form_is_one_compressed_batch_of_row_id() -> None:
    _, data = encode_deletions(np.arange(4000, dtype=np.uint32))
    assert len(data) < 4000 * 4
    file = pa.ipc.open_file(data)
    assert file.num_record_batches == 1
    assert file.schema.equals(pa.schema([pa.field("row_id", pa.uint32(), False)]), check_metadata=True)


SHAPES = {
    "array container": np.arange(0, 60_000, 31),
    "bitset container": np.flatnonzero(np.random.default_rng(0).random(65536) < 0.5),
    "run container": np.arange(10, 50_000),
    "several containers": np.concatenate(
        [np.arange(3), np.arange(70_000, 140_000), np.arange(2**31, 2**31 + 9, 2)]
    ),
    "the ends": np.array([0, 2**32 - 1]),
    "nothing": np.array([], np.uint32),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["arrow", "bin"])
def test_any_shape_round_trips_in_both_forms(shape: str, kind: str) -> None:
    values = SHAPES[shape].astype(np.uint32)
    found_kind, data = encode_deletions(values, kind)  # type: ignore[arg-type]
    found = decode_deletions(pa.py_buffer(data), found_kind, "d")
    assert found.dtype == np.uint32
    assert np.array_equal(found, values)


@settings(max_examples=50, deadline=None)
@given(st.sets(st.integers(0, 2**32 - 1) | st.integers(0, 200), max_size=100))
def test_any_set_round_trips(rows: set[int]) -> None:
    values = np.array(sorted(rows), np.uint32)
    for kind in ("arrow", "bin"):
        assert decode_deletions(encode_deletions(values, kind)[1], kind, "d").tolist() == sorted(rows)  # type: ignore[arg-type]


def test_unsorted_and_uncompressed_arrow_files_are_read() -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, pa.schema([pa.field("row_id", pa.uint32(), False)])) as writer:
        writer.write_batch(pa.record_batch([pa.array([5, 1, 3], pa.uint32())], schema=writer_schema()))
    assert decode_deletions(sink.getvalue(), "arrow", "d").tolist() == [1, 3, 5]


def writer_schema() -> pa.Schema:
    return pa.schema([pa.field("row_id", pa.uint32(), False)])


def test_other_content_is_corrupt_and_names_the_file() -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, pa.schema([("row_id", pa.int64())])) as writer:
        writer.write_batch(pa.record_batch({"row_id": pa.array([1])}))
    for data, kind in (
        (sink.getvalue(), "arrow"),
        (b"", "arrow"),
        (b"nonsense", "arrow"),
        (b"", "bin"),
        (b"x" * 20, "bin"),
    ):
        with pytest.raises(CorruptFile, match="_deletions/x"):
            decode_deletions(data, kind, "_deletions/x")


def test_random_damage_gives_a_value_or_a_typed_error() -> None:
    dice = random.Random(3)
    sources = [
        encode_deletions(values.astype(np.uint32), kind)
        for values in SHAPES.values()
        for kind in ("arrow", "bin")
    ]  # type: ignore[arg-type]
    for _ in range(1500):
        kind, data = dice.choice(sources)
        changed = bytearray(data)
        if dice.random() < 0.3:
            del changed[dice.randrange(len(data)) :]
        else:
            for _ in range(dice.choice((1, 1, 5))):
                changed[dice.randrange(min(len(data), dice.choice((16, 300, len(data)))))] = dice.randrange(
                    256
                )
        try:
            found = decode_deletions(bytes(changed), kind, "d")
            assert (np.diff(found.astype(np.int64)) > 0).all()
        except TiltyardError:
            continue


def test_bitmaps_with_runs_are_marked_so() -> None:
    assert encode_roaring(np.arange(1000))[:2] == b"\x3b\x30"
    assert encode_roaring(np.array([1, 9]))[:2] == b"\x3a\x30"
    assert decode_roaring(encode_roaring(np.array([9, 1])), "x").tolist() == [1, 9]


@pytest.mark.parametrize(
    ("condition", "kind"), [("a < 10", "arrow"), ("a % 2 = 0", "bin"), ("a < 8000", "bin")]
)
def test_the_peers_deletion_files_are_read(peer, tmp_path, condition: str, kind: str) -> None:
    path = tmp_path / "t"
    left = peer(
        """
lance.write_dataset(pa.table({"a": range(20000)}), path)
lance.dataset(path).delete(condition)
result = lance.dataset(path).to_table()["a"].to_numpy()
""",
        path=str(path),
        condition=condition,
    )
    newest = min((path / "_versions").glob("*.manifest"))
    (fragment,) = decode_manifest(newest.read_bytes(), "m")[0].fragments
    assert fragment.deletion is not None
    assert fragment.deletion.kind == kind
    file = path / fragment.deletion.path(0)
    rows = decode_deletions(file.read_bytes(), kind, str(file))
    assert len(rows) == fragment.deletion.rows
    assert np.array_equal(np.setdiff1d(np.arange(20000), rows), left)


@pytest.mark.parametrize("shape", ["array container", "bitset container", "run container"])
@pytest.mark.parametrize("kind", ["arrow", "bin"])
def test_the_peer_reads_our_deletion_files(peer, tmp_path, shape: str, kind: str) -> None:
    from dataclasses import replace

    from tiltyard.format import flags
    from tiltyard.format.fragment import DeletionFile, FragmentList
    from tiltyard.format.manifest import encode_manifest

    path = tmp_path / "t"
    peer("lance.write_dataset(pa.table({'a': range(70000)}), path)", path=str(path))
    (name,) = (path / "_versions").glob("*.manifest")
    manifest, load = decode_manifest(name.read_bytes(), "m")
    values = SHAPES[shape].astype(np.uint32)
    deletion = DeletionFile(kind, 1, 12345, len(values))
    changed = FragmentList.of([replace(manifest.fragments[0], deletion=deletion)])
    ours = flags.recomputed(replace(manifest, fragments=changed), manifest)
    (path / "_deletions").mkdir()
    (path / deletion.path(0)).write_bytes(encode_deletions(values, kind)[1])  # type: ignore[arg-type]
    name.chmod(0o644)
    name.write_bytes(b"".join(encode_manifest(ours, load())))
    found = peer("lance.dataset(path).to_table()['a'].to_numpy()", path=str(path))
    assert np.array_equal(found, np.setdiff1d(np.arange(70000), values))
