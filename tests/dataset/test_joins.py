"""Joins refuse what they cannot do with errors of ours, before anything is computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from tiltyard.errors import FieldNotFound, InvalidInput, WrongType

LEFT = pa.table(
    {
        "k": [1, 2, 3],
        "v": ["a", "b", "c"],
        "w": pa.array([1, 2, 3], pa.int32()),
        "d": pa.array(["x", "y", "x"]).dictionary_encode(),
    }
)
RIGHT = pa.table({"k": [1, 2], "u": [1.0, 2.0], "v": ["x", "y"]})


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return lance.write_dataset(LEFT, tmp_path_factory.mktemp("join") / "t.lance")


WRONG: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda ds: ds.join(RIGHT, "nope"), FieldNotFound, "keys: there is no column 'nope'"),
    (lambda ds: ds.join(RIGHT, "k", "nope"), FieldNotFound, "right_keys: there is no column 'nope'"),
    (lambda ds: ds.join(RIGHT, ["k", "v"], ["k"]), InvalidInput, "as many columns, found 2 and 1"),
    (lambda ds: ds.join(RIGHT, []), InvalidInput, "at least one column"),
    (lambda ds: ds.join(RIGHT, ["k", "k"]), InvalidInput, "twice"),
    (lambda ds: ds.join(RIGHT, 3), WrongType, "keys must be"),
    (lambda ds: ds.join(RIGHT, "k", "u"), InvalidInput, "'k' is int64, and 'u' of the other side double"),
    (lambda ds: ds.join(RIGHT, "k", join_type="sideways"), InvalidInput, "join_type must be"),
    (lambda ds: ds.join(RIGHT, "k", left_suffix=3), WrongType, "left_suffix must be text"),
    (lambda ds: ds.join(RIGHT, "k", coalesce_keys=3), WrongType, "coalesce_keys must be"),
    (lambda ds: ds.join(RIGHT, "k"), InvalidInput, "both sides of the join have a column 'v'"),
    (lambda ds: ds.join(RIGHT.append_column("l", [[[1], [2]]]), "k"), InvalidInput, "cannot be computed"),
    (lambda ds: ds.join_asof(RIGHT, "nope", "v", 1), FieldNotFound, "on: there is no column"),
    (lambda ds: ds.join_asof(RIGHT, "k", "nope", 1), FieldNotFound, "by: there is no column"),
    (lambda ds: ds.join_asof(RIGHT, "k", "v", "x"), WrongType, "tolerance must be"),
    (lambda ds: ds.join_asof(RIGHT, "k", ["v"], 1, right_by=["v", "u"]), InvalidInput, "as many columns"),
    (lambda ds: ds.join_asof(RIGHT, "k", [], 1), InvalidInput, "both sides of the join have a column 'v'"),
    (lambda ds: ds.join_asof(RIGHT, "v", "k", 1), InvalidInput, "cannot be computed"),
]


@pytest.mark.parametrize(("run", "error", "words"), WRONG, ids=range(len(WRONG)))
def test_what_cannot_be_joined_is_refused(
    run: Callable[[Any], Any], error: type[Exception], words: str, left: Any
) -> None:
    with pytest.raises(error, match=words):
        run(left)


@pytest.mark.parametrize("kind", ["inner", "left outer", "full outer", "left semi", "right anti"])
def test_joins_are_those_of_arrow(kind: str, left: Any) -> None:
    found = left.join(RIGHT, "k", join_type=kind, right_suffix="_r").to_table()
    plain = LEFT.join(RIGHT, "k", join_type=kind, right_suffix="_r")
    assert found.sort_by("k").equals(plain.sort_by("k"))
