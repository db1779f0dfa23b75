"""LIKE as the SQL standard has it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from expr_rows import rows

TEXTS = ["a_b", "axb", "a%b", "a\\b", None, "A_B"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s LIKE 'a\\_b'", [0]),
        ("s LIKE 'a!_b' ESCAPE '!'", [0]),
        ("s LIKE 'a!%b' ESCAPE '!'", [2]),
        ("s LIKE 'a\\b' ESCAPE '!'", [3]),
        ("s LIKE 'a\\\\b'", [3]),
        ("s LIKE 'a\\b' ESCAPE ''", [3]),
        ("s LIKE 'a!!b' ESCAPE '!'", []),
        ("s LIKE 'a_b'", [0, 1, 2, 3]),
        ("s NOT LIKE 'a\\_b'", [1, 2, 3, 5]),
        ("s NOT LIKE 'a!_b' ESCAPE '!'", [1, 2, 3, 5]),
        ("s ILIKE 'a\\_b'", [0, 5]),
        ("s NOT ILIKE 'a\\_b'", [1, 2, 3]),
        ("s ILIKE 'A!_b' ESCAPE '!'", [0, 5]),
        ("s LIKE '%'", [0, 1, 2, 3, 5]),
        ("s LIKE ''", []),
        ("s LIKE NULL", []),
        ("s LIKE 'a%' AND s LIKE '%b' AND s LIKE '%x%'", [1]),
        ("s LIKE 'a' || '\\_b'", [0]),
        ("'axb' LIKE 'a_b' AND s = 'axb'", [1]),
    ],
)
@pytest.mark.parametrize("arrow", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_like_with_escapes(text: str, expected: list[int], arrow: pa.DataType) -> None:
    """F11."""
    assert rows(text, s=pa.array(TEXTS).cast(arrow)) == expected
