"""Batches as one: what a log entry is made of, and what the rows of a generation must stay able to become.

Two things cannot be joined without end: text and lists, whose offsets have 32 bits, and dictionaries, whose
index type can number so many values. So a generation ends before a batch that it could not be joined with.

Invariant: what was joined shares no memory with what it was made of, so that callers may use their arrays
again (tests/memwal/test_joining.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import types

from tiltyard.errors import BatchTooLarge, InvalidInput
from tiltyard.file.index_room import IndexRoom

MAX_JOINED_BYTES = (1 << 31) - 1
"""What one batch can be joined to at most, whatever types its columns have (bytes)."""

SMALL_ROWS, JOINED_ROWS = 1024, 1 << 14
JOINED_BYTES = 1 << 24
"""Batches of fewer rows than the first are put together, up to about as many as the second, or bytes."""


def joined(batches: Sequence[Any], *, is_plain: bool | None = None) -> Any:
    """One batch with the rows of all, in memory of its own. `is_plain`: whether it is known that no column is
    a dictionary, or has one inside. Raises `BatchTooLarge`.
    """
    try:
        whole = pa.concat_batches(batches)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise BatchTooLarge(
            f"{sum(each.num_rows for each in batches)} rows cannot become one batch: {error}. Give or "
            "ask for them in several calls, or have columns with a wider index or larger offsets"
        ) from error
    if is_plain is None:
        is_plain = not any(has_dictionary(each.type) for each in batches[0].schema)
    return whole if is_plain else _through_bytes(whole)  # Arrow hands a dictionary on as it is


def in_few(batches: Iterable[Any], places: Sequence[int], schema: Any, *, is_plain: bool) -> Iterator[Any]:
    """The columns at some places of batches that have like columns, as batches of `schema`, small ones put
    together. `is_plain`: whether no column is a dictionary, or has one inside.
    """
    few: list[Any] = []
    rows = 0
    for batch in batches:
        is_small = is_plain and batch.num_rows < SMALL_ROWS
        if is_small:
            few.append(batch)
            rows += batch.num_rows
        if few and (rows >= JOINED_ROWS or not is_small):
            yield from _together(few, places, schema)
            few, rows = [], 0
        if not is_small:
            yield from _together([batch], places, schema)
    if few:
        yield from _together(few, places, schema)


def _together(batches: Sequence[Any], places: Sequence[int], schema: Any) -> Iterator[Any]:
    """Batches as one, or as several where that would have too many bytes."""
    if len(batches) == 1:
        columns = [batches[0].column(at) for at in places]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
        return
    whole = pa.Table.from_batches(batches).select(places)
    if whole.get_total_buffer_size() >= JOINED_BYTES:
        half = len(batches) // 2
        yield from _together(batches[:half], places, schema)
        yield from _together(batches[half:], places, schema)
        return
    for made in whole.combine_chunks().to_batches():
        yield pa.RecordBatch.from_arrays(made.columns, schema=schema)


def _through_bytes(batch: Any) -> Any:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    with pa.ipc.open_stream(sink.getvalue()) as stream:
        return stream.read_next_batch()


# -- dictionaries -------------------------------------------------------------------------------


def has_dictionary(kind: Any) -> bool:
    """Whether a type is a dictionary, or has one inside."""
    if types.is_dictionary(kind):
        return True
    if isinstance(kind, pa.BaseExtensionType):
        return has_dictionary(kind.storage_type)
    return any(has_dictionary(kind.field(at).type) for at in range(kind.num_fields))


def _dictionaries(array: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The dictionary arrays in an array, with their places."""
    kind = array.type
    if types.is_dictionary(kind):
        yield path, array
    elif isinstance(array, pa.ExtensionArray):
        yield from _dictionaries(array.storage, path)
    elif types.is_struct(kind):
        for at, field in enumerate(kind):
            yield from _dictionaries(array.field(at), f"{path}.{field.name}")
    elif types.is_map(kind):
        yield from _dictionaries(array.keys, f"{path}.key")
        yield from _dictionaries(array.items, f"{path}.value")
    elif kind.num_fields:
        yield from _dictionaries(array.values, f"{path}.{kind.field(0).name}")


class DictionaryRoom:
    """The dictionary values of the batches of one generation so far."""

    def __init__(self, schema: Any) -> None:
        self._columns = [each.name for each in schema if has_dictionary(each.type)]
        self._rooms: dict[str, IndexRoom] = {}
        self._fits = True

    @property
    def is_plain(self) -> bool:
        """Whether the batches have no dictionary."""
        return not self._columns

    def takes(self, batch: Any) -> bool:
        """Whether the index types of all columns can number the values of one more batch, too. Once they
        cannot, nothing fits any more.
        """
        if self._fits and self._columns:
            try:
                self._add(batch)
            except InvalidInput:
                self._fits = False
        return self._fits

    def _add(self, batch: Any) -> None:
        for name in self._columns:
            for path, array in _dictionaries(batch.column(name), name):
                room = self._rooms.get(path)
                if room is None:
                    room = self._rooms[path] = IndexRoom(path, array.type.index_type)
                room.add(array.dictionary)
