"""Keys that are looked up while their column is unpacked: the rows are those of a join of plain values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tiltyard.lance as lance
from tiltyard.table.merge import key_scan
from tiltyard.table.merge.join import KeyIndex
from tiltyard.table.merge.key_scan import found_unpacking
from tiltyard.table.merge.keys import resolve_key
from tiltyard.table.merge.lookup import find_rows

ROWS = 9000


def keys_of(kind: pa.DataType, seed: int) -> pa.Array:
    rng = np.random.default_rng(seed)
    info = np.iinfo(kind.to_pandas_dtype() if pa.types.is_integer(kind) else np.int64)
    ends = [info.min, info.max, 0, 5]
    near = rng.integers(0, min(info.max, 40000), ROWS - len(ends), dtype=np.int64)
    if seed % 2 and info.min < 0:
        near -= 20000 if info.bits > 16 else 50
    made = np.concatenate([np.array(ends, info.dtype), near.astype(info.dtype)])
    return pa.array(made).cast(kind) if pa.types.is_integer(kind) else pa.array(made).view(kind)


@pytest.fixture(autouse=True)
def _small_fragments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_scan, "MIN_FRAGMENT_ROWS", 1)


def plain(array: pa.Array) -> list[Any]:
    """The values, instants as the numbers that they are stored as."""
    return (array.view(pa.int64()) if pa.types.is_timestamp(array.type) else array).to_pylist()


def rows_found(dataset: Any, source: pa.Array) -> tuple[list[int], list[Any], list[int] | None]:
    """Addresses and keys of the rows found, and the fragments that had to be read in another way."""
    snapshot = dataset._snapshot
    key = resolve_key(snapshot.schema, ["key"])
    index = KeyIndex([source])
    unpacked = found_unpacking(snapshot, key, index, None)
    found = find_rows(snapshot, key, index, [source])
    by_code = plain(source.take(pa.array(index.first_rows())))
    rest = None if unpacked is None else unpacked[2]
    return found.addresses.tolist(), [by_code[code] for code in found.codes], rest


@pytest.mark.parametrize("step", [1, 700])
@pytest.mark.parametrize(
    "kind",
    [pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64(), pa.timestamp("us")],
    ids=str,
)
def test_rows_are_found_among_deleted_ones_in_every_fragment(
    tmp_path: Path, kind: pa.DataType, step: int
) -> None:
    column = keys_of(kind, 1)
    made = pa.table({"key": column, "n": np.arange(ROWS)})
    dataset = lance.write_dataset(made, str(tmp_path / "t"), max_rows_per_file=4000)
    dataset.delete("n % 3 = 1")
    source = pa.concat_arrays([keys_of(kind, 2)[::step], column[:9:step]])
    wanted = set(plain(source))
    expected = [
        ((n // 4000) << 32 | n % 4000, value)
        for n, value in enumerate(plain(column))
        if n % 3 != 1 and value in wanted
    ]
    addresses, values, rest = rows_found(dataset, source)
    assert list(zip(addresses, values, strict=True)) == expected
    assert rest == []


def test_fragments_with_nulls_in_the_key_are_read_beside_the_others(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    lance.write_dataset(pa.table({"key": pa.array([5, None, 7] * 50)}), path)
    dataset = lance.write_dataset(pa.table({"key": pa.array(np.arange(150))}), path, mode="append")
    addresses, values, rest = rows_found(dataset, pa.array([7, 149, 1000]))
    assert addresses == [*range(2, 150, 3), 1 << 32 | 7, 1 << 32 | 149]
    assert values == [7] * 50 + [7, 149]
    assert rest == [0]


def test_keys_that_are_no_whole_numbers_are_compared_as_ever(tmp_path: Path) -> None:
    column = pa.array([1.5, float("nan"), -0.0, 2.0] * 10)
    dataset = lance.write_dataset(pa.table({"key": column}), str(tmp_path / "t"))
    addresses, _, rest = rows_found(dataset, pa.array([0.0, 2.0]))
    assert addresses == [n for n in range(40) if n % 4 >= 2]
    assert rest is None
