"""`upper` and `lower` beside Python's mapping, which is Unicode's in full."""

from __future__ import annotations

import sys

import pyarrow as pa
import pytest

from expr_rows import rows, values

TEXTS = ["", "abc", "Straße", "ΑΣ ΣΑ ΟΔΟΣ.", "İı", "ﬁn ŉ ǰ", "日本", "a" * 40 + "ß", None]


@pytest.mark.parametrize(
    "arrow", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())], ids=["s", "l", "d"]
)
def test_one_letter_may_become_several(arrow: pa.DataType) -> None:
    s = pa.array(TEXTS).dictionary_encode() if pa.types.is_dictionary(arrow) else pa.array(TEXTS, arrow)
    assert values("upper(s)", s=s) == [text and text.upper() for text in TEXTS]
    assert values("lower(s)", s=s) == [text and text.lower() for text in TEXTS]
    assert rows("upper(s) = 'STRASSE'", s=s) == [2]


def test_constants_are_mapped_alike() -> None:
    assert values("concat(upper('ß'), lower('ΟΔΟΣ'), s)", s=["x"]) == ["SSοδοςx"]


def test_only_letters_of_the_first_plane_become_several() -> None:
    """What the search for them leaves out."""
    beyond = map(chr, range(0x10000, sys.maxunicode + 1))
    assert all(len(one.upper()) == len(one.lower()) == 1 for one in beyond)
