"""New values among old ones in a column, whatever its type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tiltyard.errors import InvalidInput
from tiltyard.table.rewriting import scattered

KIND = pa.dictionary(pa.int8(), pa.string())


def texts(first: str, rows: int) -> Any:
    return pa.array([f"{first}{n}" for n in range(rows)]).dictionary_encode().cast(KIND)


def test_new_values_stand_where_they_belong_and_the_rest_stays() -> None:
    found = scattered(pa.array([1, None, 3, 4]), np.array([1, 3]), pa.array([20, None]))
    assert found.to_pylist() == [1, 20, 3, None]


def test_dictionaries_need_only_room_for_the_values_that_are_left() -> None:
    found = scattered(texts("a", 100), np.arange(60), texts("b", 60))
    assert found.type == KIND
    assert found.to_pylist() == [f"b{n}" for n in range(60)] + [f"a{n}" for n in range(60, 100)]


def test_more_values_than_indices_can_number_are_refused() -> None:
    before = pa.concat_arrays([texts("a", 100), texts("a", 100)])
    with pytest.raises(InvalidInput, match=r"indices=int8.*wider index"):
        scattered(before, np.arange(100), texts("b", 100))
