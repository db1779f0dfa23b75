"""Hashes and buckets, against the vectors of the pack and against the official implementation."""

from __future__ import annotations

import pyarrow as pa
import pytest

from peer import Peer
from tiltyard.errors import InvalidInput, UnsupportedFeature
from tiltyard.format.mem_wal import ShardingField, ShardingSpec
from tiltyard.memwal.sharding import buckets, decode_value, encode_value, evaluate, hashes

NAN, INF = float("nan"), float("inf")


def hashed(array: pa.Array) -> list[str]:
    return [f"{each:08x}" for each in hashes(array)]


def test_raw_hashes() -> None:
    assert hashed(pa.array([1, -1], pa.int32())) == ["fbf1402a", "76293b50"]
    assert hashed(pa.array([1, -1], pa.int64())) == ["53075d44", "627564e8"]
    assert hashed(pa.array(["a", "abcd", "日本"])) == ["2b038801", "43ed676a", "6ffb2023"]
    assert hashed(pa.array([1.25], pa.float32())) == ["61b31248"]
    assert hashed(pa.array([1.25])) == ["312bdf78"]


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([0, 1, -1, 100, -128], pa.int32()), [478, 42, 848, 576, 309]),
        (pa.array([2**32 - 1, 2**31], pa.uint32()), [848, 916]),
        (pa.array([0, 1, -1, 2**40, -(2**63)]), [764, 324, 232, 802, 805]),
        (pa.array([2**64 - 1], pa.uint64()), [232]),
        (pa.array([1.25, NAN, INF, -3.5], pa.float32()), [584, 339, 696, 30]),
        (pa.array([1.25, NAN, INF, -3.5]), [888, 13, 741, 414]),
        (pa.array(["", "a", "abc", "abcd", "hello wörld", "日本"]), [0, 1, 920, 874, 555, 35]),
        (pa.array([1_000_000], pa.timestamp("us")), [806]),
        (pa.array([1], pa.timestamp("s")), [324]),
        (pa.array([5], pa.time32("s")), [894]),
        (pa.array([5_000_000], pa.time64("us")), [752]),
    ],
)
def test_buckets_of_1024(array: pa.Array, expected: list[int]) -> None:
    assert buckets(array, 1024).tolist() == expected


def test_null_is_in_bucket_0() -> None:
    assert buckets(pa.array([1, 2, 3, None], pa.int32()), 8).tolist() == [2, 7, 1, 0]


def test_slices_hash_as_whole_arrays_do() -> None:
    texts = pa.array(["", "a", None, "abc", "hello wörld", "xyz"])
    assert buckets(texts.slice(2, 3), 64).tolist() == buckets(texts, 64).tolist()[2:5]


def test_the_official_implementation_puts_rows_into_the_same_buckets(peer: Peer) -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "i": pa.array(range(-50, 50), pa.int64()),
            "n": pa.array([None if i % 7 == 0 else i for i in range(100)], pa.int16()),
            "t": pa.array([f"{'é' * (i % 5)}{i}" for i in range(100)]),
            "b": pa.array([i % 3 == 0 for i in range(100)]),
        }
    )
    theirs = peer(
        """
import lance, pyarrow as pa
schema = lance.schema.LanceSchema.from_pyarrow(batch.schema)
result = []
for number in range(batch.num_columns):
    field = lance.ShardingField("bucket", [number], "bucket", None, "int32", {"num_buckets": "37"})
    found = lance.evaluate_sharding_spec(batch, lance.ShardingSpec(1, [field]), schema)
    result.append(found.column(0).to_pylist())
""",
        batch=batch,
    )
    for number, name in enumerate(batch.schema.names):
        assert buckets(batch.column(name), 37).tolist() == theirs[number], name


def test_evaluation_names_what_it_cannot_do() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1]})
    for transform in ("year", "truncate", None):
        spec = ShardingSpec(1, (ShardingField("f", (0,), transform, None, "int32"),))
        with pytest.raises(UnsupportedFeature, match="Unsupported MemWAL sharding transform for field 'f'"):
            evaluate(spec, batch, {0: "a"})
    for parameters, told in (
        ({}, "missing"),
        ({"num_buckets": "0"}, "positive"),
        ({"num_buckets": "x"}, "invalid"),
        ({"num_buckets": "--4"}, "invalid"),
        ({"num_buckets": "\u0664"}, "invalid"),  # a digit, but in no script that others read
        ({"num_buckets": "9" * 5000}, "invalid"),
        ({"num_buckets": "2147483648"}, "positive"),
    ):
        spec = ShardingSpec(1, (ShardingField("f", (0,), "bucket", None, "int32", parameters),))
        with pytest.raises(InvalidInput, match=told):
            evaluate(spec, batch, {0: "a"})


@pytest.mark.parametrize(
    "array",
    [
        pa.array([-5], pa.int16()),
        pa.array(["né"]),
        pa.array([True]),
        pa.array([2.5]),
        pa.array([7], pa.uint64()),
    ],
)
def test_a_shards_value_comes_back(array: pa.Array) -> None:
    encoded = encode_value(array)
    assert encoded is not None
    assert decode_value(encoded, array.type).equals(array)
