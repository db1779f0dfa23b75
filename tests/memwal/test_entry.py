"""Log entries as bytes: what goes in comes out, and what was cut or changed is told."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamed import entry_bytes
from tiltyard.errors import CorruptFile, TiltyardError, UnsupportedFeature
from tiltyard.memwal import entry
from tiltyard.memwal.entry import END_OF_STREAM, decode_entry, encode_sentinel

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("s", pa.string()),
        pa.field("_tombstone", pa.bool_(), False),
    ],
    {"made": "by a test"},
)


def batch(ids: list[int], texts: list[str | None]) -> Any:
    columns = [pa.array(ids, pa.int64()), pa.array(texts, pa.string()), pa.array([False] * len(ids))]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


WHOLE = entry_bytes(batch([1, 2, 3], ["a", None, "ccc"]), SCHEMA, 7, 3)


def decoded(data: bytes) -> Any:
    return decode_entry(pa.py_buffer(data), 5, "t/wal/x.arrow")


@given(
    st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.none() | st.text(max_size=20)), min_size=1),
    st.integers(1, 2**64 - 1),
    st.integers(1, 2**64 - 1),
)
@settings(max_examples=40)
def test_what_was_put_comes_back(rows: list[tuple[int, str | None]], epoch: int, generation: int) -> None:
    put = batch([key for key, _ in rows], [text for _, text in rows])
    found = decoded(entry_bytes(put, SCHEMA, epoch, generation))
    assert (found.epoch, found.generation, found.position, found.rows) == (epoch, generation, 5, len(rows))
    assert [each.to_pydict() for each in found.batches] == [put.to_pydict()]


@given(st.integers(1, 70), st.integers(0, 5), st.booleans())
@settings(max_examples=20)
def test_an_entry_is_an_arrow_stream_to_the_byte(rows: int, skipped: int, nulls: bool) -> None:
    """Whatever the columns, and where they begin."""
    texts = [None if nulls and at % 3 == 0 else "x" * (at % 7) for at in range(rows + skipped)]
    nested = pa.array([None if each is None else {"a": [each], "b": at} for at, each in enumerate(texts)])
    columns = [pa.array(texts), nested, pa.array([at % 2 == 0 for at in range(len(texts))])]
    for kinds in (columns, [*columns, columns[0].dictionary_encode()]):
        whole = pa.RecordBatch.from_arrays(kinds, [f"c{at}" for at in range(len(kinds))])
        put = whole.slice(skipped)
        named = put.schema.with_metadata({b"writer_epoch": b"3", b"generation": b"4"})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, named) as stream:
            stream.write_batch(put.replace_schema_metadata(named.metadata))
        assert entry_bytes(put, put.schema, 3, 4) == sink.getvalue().to_pybytes()


@given(st.integers(0, 400), st.integers(0, 255))
@settings(max_examples=50)
def test_what_begins_like_the_last_entry_is_told_as_it_would_be_alone(at: int, octet: int) -> None:
    """Whatever is damaged in it."""
    damaged = bytearray(WHOLE)
    damaged[at % len(WHOLE)] = octet

    def told() -> Any:
        try:
            found = decoded(bytes(damaged))
            return found.epoch, found.generation, [each.to_pydict() for each in found.batches]
        except (CorruptFile, UnsupportedFeature) as error:
            return str(error)

    entry._last.clear()
    alone = told()
    assert decoded(WHOLE).rows == 3
    assert told() == alone


def test_entries_that_begin_alike_keep_their_own_rows() -> None:
    for ids in ([1], [2, 3], [4] * 50):
        found = decoded(entry_bytes(batch(ids, ["x"] * len(ids)), SCHEMA, 7, 3))
        assert (found.epoch, found.generation, found.rows) == (7, 3, len(ids))
        assert found.batches[0]["id"].to_pylist() == ids
    assert decoded(entry_bytes(batch([1], ["x"]), SCHEMA, 8, 3)).epoch == 8
    assert decoded(WHOLE.removesuffix(END_OF_STREAM)).rows == 3


def test_entries_carry_no_key_of_ours() -> None:
    """One more would make the official package's next opening fail (decision D2)."""
    with pa.ipc.open_stream(WHOLE) as stream:
        assert stream.schema.metadata == {b"made": b"by a test", b"writer_epoch": b"7", b"generation": b"3"}
    with pa.ipc.open_stream(encode_sentinel(9)) as stream:
        assert stream.schema.metadata == {b"writer_epoch": b"9", b"fence_sentinel": b"true"}
        assert list(stream) == []


def test_a_sentinel_has_no_rows_and_no_generation() -> None:
    found = decoded(encode_sentinel(9))
    assert (found.epoch, found.generation, found.batches, found.rows) == (9, None, (), 0)


def test_an_entry_that_was_cut_anywhere_is_damage_or_whole() -> None:
    expected = [each.to_pydict() for each in decoded(WHOLE).batches]
    for end in range(len(WHOLE)):
        try:
            found = decoded(WHOLE[:end])
        except CorruptFile:
            continue
        assert [each.to_pydict() for each in found.batches] == expected, end


@pytest.mark.parametrize("data", [encode_sentinel(9)[:end] for end in (0, 1, 8, 100)], ids=len)
def test_a_sentinel_that_was_cut_is_damage(data: bytes) -> None:
    with pytest.raises(CorruptFile):
        decoded(data)


@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
@settings(max_examples=50)
def test_a_changed_byte_is_an_error_of_ours_or_an_entry(at: int, change: int) -> None:
    changed = bytearray(WHOLE)
    changed[at] ^= change
    try:
        found = decoded(bytes(changed))
    except TiltyardError:
        return
    assert found.rows <= 3
    for each in found.batches:
        each.validate(full=True)
        each.to_pydict()


def test_a_name_that_is_no_text_is_damage() -> None:
    inside = pa.schema([pa.field("s", pa.struct([pa.field("inner", pa.int8())]))])
    batch = pa.RecordBatch.from_pylist([{"s": {"inner": 1}}], inside)
    data = entry_bytes(batch, inside, 1, 1)
    assert data.count(b"inner") == 1
    with pytest.raises(CorruptFile, match="cannot be read"):
        decode_entry(pa.py_buffer(data.replace(b"inner", b"i\xff\xffer")), 1, "here")
