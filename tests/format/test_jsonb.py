"""The binary form of JSON: bytes that the official package wrote, round trips, and damage."""

from __future__ import annotations

import contextlib
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.errors import CorruptFile, InvalidInput
from tiltyard.format import jsonb

# text, and the bytes that pylance 14.0.2 stored for it
STORED = {
    '{"a":1,"b":2}': "40000002 10000001 10000001 20000002 20000002 6162 5001 5002",
    "[1,2,3]": "80000003 20000002 20000002 20000002 5001 5002 5003",
    '"str"': "20000000 10000003 737472",
    "1.5": "20000000 20000009 603ff8000000000000",
    "null": "20000000 00000000",
    "true": "20000000 40000000",
    "0": "20000000 20000001 00",
    "-1": "20000000 20000002 40ff",
    "-129": "20000000 20000003 40ff7f",
    "300": "20000000 20000003 50012c",
    "12345678901234567890": "20000000 20000009 50ab54a98ceb1f0ad2",
    "{}": "40000000",
    "[]": "80000000",
    '[[1,[2]],{"k":[{}]}]': (
        "80000002 50000018 50000019 80000002 20000002 5000000a 5001 80000001 20000002 5002"
        "40000001 10000001 5000000c 6b 80000001 50000004 40000000"
    ),
}


@pytest.mark.parametrize("text", STORED)
def test_bytes_are_those_of_the_official_package(text: str) -> None:
    stored = bytes.fromhex(STORED[text])
    assert jsonb.from_text(text) == stored
    assert jsonb.text_of(stored) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1e300, "1e+300"),
        (1e16, "1e+16"),
        (1e15, "1000000000000000.0"),
        (1e-5, "0.00001"),
        (1e-6, "1e-6"),
        (-0.0, "-0.0"),
        (0.1, "0.1"),
        (5e-324, "5e-324"),
        (math.inf, "null"),
    ],
)
def test_floats_are_written_as_there(number: float, text: str) -> None:
    assert jsonb.text_of(jsonb.from_value(number)) == text


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=50, deadline=None)
@given(_VALUES)
def test_what_is_written_is_read_back(value: Any) -> None:
    stored = jsonb.from_text(json.dumps(value))
    assert json.loads(jsonb.text_of(stored)) == value
    assert jsonb.from_text(jsonb.text_of(stored)) == stored


@settings(max_examples=50, deadline=None)
@given(_VALUES, st.data())
def test_damaged_bytes_are_a_typed_error_or_another_value(value: Any, data: st.DataObject) -> None:
    stored = bytearray(jsonb.from_value(value))
    at = data.draw(st.integers(0, len(stored) - 1))
    if data.draw(st.booleans()):
        del stored[at:]
    else:
        stored[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptFile):
        jsonb.text_of(bytes(stored))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ('{"a":1,"a":2}', "twice"),
        ('"\\ud800"', "no JSON"),
        ("[" * 500 + "]" * 500, "deeper than 200"),
        ("[" * 100_000, "no JSON"),
    ],
)
def test_text_that_is_no_json_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        jsonb.from_text(text)
