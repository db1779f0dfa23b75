"""Many takes from one fragment with one choice of columns: what they look up is looked up once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tiltyard.dataset.json_text import shown_table
from tiltyard.errors import RowOutOfRange
from tiltyard.table.projection import ColumnsLike, project
from tiltyard.table.take import Taker, row_numbers

if TYPE_CHECKING:
    from tiltyard.format.fragment import Fragment
    from tiltyard.table.snapshot import Snapshot


class FragmentSession:
    """Takes rows of one fragment, by their number among its live rows."""

    def __init__(
        self,
        snapshot: Snapshot,
        fragment: Fragment,
        columns: ColumnsLike = None,
        *,
        row_address: bool = False,
    ) -> None:
        self._fragment = fragment
        projection = project(snapshot.schema, columns, row_address=row_address, nested_as_struct=True)
        self._taker = Taker(snapshot, projection=projection)
        position = snapshot.fragments.position(fragment.id)
        live = snapshot.fragments.physical_rows - snapshot.fragments.deleted_rows
        self._first = int(live[:position].sum())

    def take(self, indices: Any) -> Any:
        """The rows in any order, duplicates kept, as a `pa.Table`. Raises `RowOutOfRange`."""
        numbers = row_numbers(indices)
        rows = self._fragment.num_rows
        if len(numbers) and (int(numbers.min()) < 0 or int(numbers.max()) >= rows):
            bad = int(numbers.min()) if int(numbers.min()) < 0 else int(numbers.max())
            raise RowOutOfRange(f"index {bad} out of range for {rows} rows of fragment {self._fragment.id}")
        return shown_table(self._taker.rows_at(numbers + self._first))
