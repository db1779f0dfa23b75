"""The one form of filter that is known without being read means what it means when it is."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tiltyard.expr import parse_predicate
from tiltyard.expr.equals_number import equals_number
from tiltyard.expr.types import Column, Compare, Literal


@pytest.mark.parametrize("text", ["id = 0", "id = 7", "_a1 = -12", f"id = {10**17}", f"id = {-(10**17)}"])
def test_the_name_and_the_number(text: str) -> None:
    name, number = equals_number(text) or ("", 0)
    node = parse_predicate(text, pa.schema([(name, pa.int64())])).node
    assert isinstance(node, Compare)
    assert (node.op, node.left) == ("=", Column((name,), pa.int64()))
    assert isinstance(node.right, Literal)
    assert node.right.value == number


@pytest.mark.parametrize(
    "text",
    [
        "id = 1.5",
        "id = 01",
        "id = -0",
        "id == 1",
        "a.b = 1",
        '"id" = 1',
        "id = 1 ",
        "1 = id",
        "id = '1'",
        "ä = 1",
    ],
)
def test_other_forms_are_read(text: str) -> None:
    assert equals_number(text) is None
