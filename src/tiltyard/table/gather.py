"""Reading ascending rows of a fragment the cheaper way: have the file pick them, or decode the range around
them and keep some of it (D49). What is kept goes into recycled memory where values have a fixed width.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.format.schema import Field
from tiltyard.table.fragment_columns import FragmentColumns, Part, Rows

if TYPE_CHECKING:
    from tiltyard.file.reader import FileReader
    from tiltyard.format.fragment import Fragment
    from tiltyard.session import Session
    from tiltyard.table.snapshot import Snapshot

NARROW_BYTES = 16  # widest value of which unpacking a whole chunk costs little more than picking a few
NARROW_SHARE = 16  # for narrow values a range is decoded whole when one row in so many is wanted
NESTED_SHARE = 32  # the same for lists and maps, where picking means to count through levels
VARYING_SHARE = 1  # the same for texts: picking them costs no more than decoding them
WIDE_SHARE = 4  # the same for all other values
NEVER, ALWAYS = 0, 1 << 62  # the same where a caller has settled it
FEW_ROWS = 16  # so few rows are picked by one read: choosing how costs more

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
Positions = npt.NDArray[np.int64]


class Gather:
    """Reads the same fields for ascending rows of any fragment of a snapshot. Safe among threads.

    `late`: True to have rows picked in any case, False to have ranges decoded, or the names of the fields to
    pick, the others being decoded; None for the cheaper way.
    """

    def __init__(
        self, snapshot: Snapshot, fields: tuple[Field, ...], late: bool | Collection[str] | None = None
    ) -> None:
        self.fields = fields
        self._session = snapshot.session
        self._all = FragmentColumns.of(snapshot, fields)
        groups: dict[int, list[int]] = {}
        for at, field in enumerate(fields):
            groups.setdefault(share_of(field, late), []).append(at)
        self._groups = [
            (share, members, FragmentColumns.of(snapshot, tuple([fields[at] for at in members])))
            for share, members in groups.items()
        ]

    def whole(self, fragment: Fragment) -> tuple[FileReader, Part] | None:
        """See `FragmentColumns.whole`."""
        return self._all.whole(fragment) if self.fields else None

    def files(self, fragment: Fragment) -> list[tuple[FileReader, Part]]:
        """See `FragmentColumns.files`."""
        return self._all.files(fragment) if self.fields else []

    def read(self, fragment: Fragment, rows: Rows) -> list[Any]:
        """One `pa.Array` per field. `rows`: a slice, or ascending physical offsets (int64, not empty)."""
        if not self.fields:
            self._all.check_rows(fragment)  # nothing else would
            return []
        if isinstance(rows, slice):
            return self._all.read(fragment, rows)
        if len(rows) <= FEW_ROWS:
            return self._all.read(fragment, rows)
        first, last = int(rows[0]), int(rows[-1])
        found: list[Any] = [None] * len(self.fields)
        for share, members, columns in self._groups:
            if len(rows) * share >= last + 1 - first:
                whole = columns.read(fragment, slice(first, last + 1))
                arrays = keep_rows(self._session, whole, rows - first)
            else:
                arrays = columns.read(fragment, rows)
            for i, array in zip(members, arrays, strict=True):
                found[i] = array
        return found


def is_narrow(field: Field) -> bool:
    """Whether a field's values are plain ones of at most `NARROW_BYTES`."""
    if field.children:
        return field.logical_type == "struct" and all(is_narrow(child) for child in field.children)
    try:
        return int(field.arrow_type.bit_width) <= 8 * NARROW_BYTES
    except ValueError:
        return False


def is_fixed(field: Field) -> bool:
    """Whether a field's values are plain ones, or vectors of them, of one width."""
    kind = field.arrow_type
    while pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    return bool(pa.types.is_primitive(kind) or pa.types.is_fixed_size_binary(kind))


def share_of(field: Field, late: bool | Collection[str] | None) -> int:
    """A range of rows is decoded whole when one row in so many is wanted."""
    if late is not None:
        return NEVER if late is True or (late is not False and field.name in late) else ALWAYS
    if is_narrow(field):
        return NARROW_SHARE
    kind = field.arrow_type
    if _is_text(kind):
        return VARYING_SHARE
    return NESTED_SHARE if _has_lists(kind) else WIDE_SHARE


def _is_text(kind: Any) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_binary(kind)
        or types.is_large_string(kind)
        or types.is_large_binary(kind)
    )


def _has_lists(kind: Any) -> bool:
    """Whether there are lists or maps anywhere in a type."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return True
    return pa.types.is_struct(kind) and any(_has_lists(kind.field(at).type) for at in range(kind.num_fields))


def keep_rows(session: Session, arrays: Sequence[Any], positions: Positions) -> list[Any]:
    """The rows at these ascending positions (int64) of each `pa.Array`; the arrays have the same length."""
    if not arrays:
        return []
    if len(positions) == len(arrays[0]):
        return list(arrays)
    bitmap: Any = None
    kept = []
    for array in arrays:
        found = _fixed(session, array, positions)
        if found is None:
            if bitmap is None:
                bitmap = _bitmap(positions, len(array))
            found = array.filter(bitmap)
        kept.append(found)
    return kept


def _fixed(session: Session, array: Any, positions: Positions) -> Any | None:
    """The rows of an array of plain fixed-width values without nulls; None for any other array."""
    kind = array.type
    if not pa.types.is_primitive(kind) or pa.types.is_boolean(kind) or array.null_count:
        return None
    dtype = _UNSIGNED.get(kind.bit_width // 8)
    if dtype is None:
        return None
    width = kind.bit_width // 8
    values = np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * width)
    memory, buffer = session.arena.alloc(len(positions) * width)
    np.take(values, positions, out=memory.view(dtype)[: len(positions)], mode="clip")
    return pa.Array.from_buffers(kind, len(positions), [None, buffer], 0)


def _bitmap(positions: Positions, length: int) -> Any:
    keep = np.zeros(length, dtype=bool)
    keep[positions] = True
    bits = pa.py_buffer(np.packbits(keep, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), length, [None, bits])
