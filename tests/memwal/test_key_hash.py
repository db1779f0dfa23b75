"""The hash of Bloom filters, against the vectors of the pack."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from tiltyard.memwal.key_hash import PIECE_ROWS, key_hashes


def hashed(*columns: Any) -> list[str]:
    return [f"{each:016x}" for each in key_hashes(list(columns), len(columns[0]))]


def test_the_packs_vectors() -> None:
    assert hashed(pa.array([1, -1, 2, 3])) == [
        "7467d6524c084857",
        "fde5e622403f1d9f",
        "d8d0c7d906895713",
        "f066dd0237ea7875",
    ]
    assert hashed(pa.array([1], pa.int32())) == ["53de5ce8452a2c5a"]
    assert hashed(pa.array(["a", ""])) == ["2167e9c523e0fc15", "da5735e7144b8d9f"]
    assert hashed(pa.array([b"a"])) == ["1df2dacd4ec2a888"]
    assert hashed(pa.array([1]), pa.array(["x"])) == ["6ccbda8a9bef3e8c"]
    assert hashed(pa.array([1], pa.int8())) == ["68a914128e01e473"]
    assert [f"{each:016x}" for each in key_hashes([], 1)] == ["d1fba762150c532c"]


def test_rows_hash_alone_as_they_do_together() -> None:
    draw = random.Random(5)
    texts = ["".join(draw.choices("abé", k=draw.randrange(30))) for _ in range(300)]
    numbers = pa.array([draw.randrange(-(2**31), 2**31) for _ in texts], pa.int32())
    together = hashed(pa.array(texts), numbers)
    alone = [hashed(pa.array([text]), numbers.slice(at, 1))[0] for at, text in enumerate(texts)]
    assert together == alone


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("rows", [5, PIECE_ROWS, PIECE_ROWS + 1])
def test_numbers_hash_alone_as_they_do_in_pieces(bits: int, rows: int) -> None:
    draw = random.Random(rows)
    numbers = [draw.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1)) for _ in range(rows)]
    column = pa.array([0, *numbers], {32: pa.int32(), 64: pa.int64()}[bits]).slice(1)
    together = hashed(column)
    for at in (0, 1, rows // 2, rows - 1):
        assert hashed(column.slice(at, 1)) == [together[at]]
