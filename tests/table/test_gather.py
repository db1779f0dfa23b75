"""Keeping rows of decoded arrays, and the choice between that and picking them from the file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.format.schema import Schema
from tiltyard.session import Session
from tiltyard.table.gather import ALWAYS, NEVER, is_narrow, keep_rows, share_of
from typematrix import Entry, sample

SESSION = Session()


@pytest.mark.parametrize("entry", sample(), ids=str)
def test_rows_of_every_type_are_kept(entry: Entry) -> None:
    column = entry.table.column(entry.field.name).combine_chunks()
    array = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    positions = np.arange(0, len(array), 3, dtype=np.int64)
    (kept,) = keep_rows(SESSION, [array], positions)
    kept.validate(full=True)
    assert repr(kept.to_pylist()) == repr(array.to_pylist()[::3])


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_plain_values_are_kept_like_arrow_keeps_them(data: Any) -> None:
    kind = data.draw(
        st.sampled_from([pa.int8(), pa.uint16(), pa.float32(), pa.int64(), pa.date32(), pa.bool_()])
    )
    values = data.draw(st.lists(st.one_of(st.none(), st.integers(0, 1)), min_size=1, max_size=40))
    if data.draw(st.booleans()):
        values = [each or 0 for each in values]
    array = pa.array(values).cast(kind) if kind != pa.date32() else pa.array(values, pa.int32()).cast(kind)
    start = data.draw(st.integers(0, len(values) - 1))
    array = array.slice(start)
    positions = sorted(data.draw(st.sets(st.integers(0, len(array) - 1))))
    (kept,) = keep_rows(SESSION, [array], np.array(positions, np.int64))
    assert kept.equals(array.take(pa.array(positions, pa.int64())))


def test_all_rows_are_kept_as_they_are_and_none_of_nothing() -> None:
    array = pa.array([1, 2])
    assert keep_rows(SESSION, [array], np.arange(2))[0] is array
    assert keep_rows(SESSION, [], np.arange(2)) == []


def test_narrow_values_are_decoded_whole_sooner_than_wide_ones() -> None:
    schema = Schema.from_arrow(
        pa.schema(
            [
                ("i", pa.int64()),
                ("b", pa.bool_()),
                ("v", pa.list_(pa.float32(), 64)),
                ("s", pa.string()),
                ("st", pa.struct([("a", pa.int8()), ("b", pa.float64())])),
                ("mixed", pa.struct([("a", pa.int8()), ("b", pa.string())])),
                ("l", pa.list_(pa.int8())),
            ]
        )
    )
    assert [is_narrow(field) for field in schema.fields] == [True, True, False, False, True, False, False]
    shares = [share_of(field, None) for field in schema.fields]
    assert shares[6] > shares[0] == shares[1] == shares[4] > shares[2] == shares[5] > shares[3]
    assert {share_of(field, True) for field in schema.fields} == {NEVER}
    assert {share_of(field, False) for field in schema.fields} == {ALWAYS}
    assert [share_of(field, ["s"]) for field in schema.fields if field.name in "sl"] == [NEVER, ALWAYS]
