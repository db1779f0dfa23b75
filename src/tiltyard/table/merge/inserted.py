"""The keys that a commit inserts, compared exactly with the rows that another commit added meanwhile.

The filters of transactions answer "perhaps" for different keys, and "unknown" for appends, which record none.
Here the key columns of the other commit's new files are read: only a key that both insert makes us plan
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tiltyard.errors import TiltyardError
from tiltyard.format.operations import Append, Operation, Update
from tiltyard.table.merge.join import KeyIndex
from tiltyard.table.merge.lookup import key_columns
from tiltyard.table.unique import with_fragments

if TYPE_CHECKING:
    from tiltyard.table.merge.keys import Key
    from tiltyard.table.snapshot import Snapshot

MAX_COMPARED_KEYS = 1 << 18
"""Of more inserted keys no copy is kept; then the filters alone decide."""

MAX_COMPARED_ROWS = 1 << 22
"""Of more rows that another commit added the keys are not read: planning again costs no more."""


class InsertedKeys:
    """The inserted keys: one plain `pa.Array` per key column."""

    def __init__(self, key: Key, columns: Sequence[Any]) -> None:
        self._key = key
        self._columns = list(columns)
        self._index: KeyIndex | None = None

    def meet(self, current: Snapshot, theirs: Operation) -> bool:
        """Whether the rows that an operation added, or wrote anew in place, may have one of the keys.

        `current`: a version that has these rows, or had them. True where that cannot be found out.
        """
        if isinstance(theirs, Append):
            new = theirs.fragments
        elif isinstance(theirs, Update) and not set(theirs.fields_modified) & set(self._key.field_ids):
            new = theirs.new_fragments
        else:
            return True
        if sum(fragment.physical_rows for fragment in new) > MAX_COMPARED_ROWS:
            return True
        if self._index is None:
            self._index = KeyIndex(self._columns)
        try:
            return any(
                len(self._index.find(columns)[0]) > 0
                for columns, _ in key_columns(with_fragments(current, (), new), self._key)
            )
        except TiltyardError:
            return True  # compacted and cleaned up since, or of columns that are gone
