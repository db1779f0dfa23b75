"""The updating face of a dataset: columns of some rows set by SQL expressions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from tiltyard.dataset import arguments
from tiltyard.dataset.handle import Handle
from tiltyard.format.version import FileVersion
from tiltyard.table.replanning import CONFLICT_RETRIES, RETRY_SECONDS


class UpdateFace(Handle):
    """Changes of rows in place, as one sees it. After it the handle shows the version that it made."""

    def update(
        self,
        updates: Mapping[str, str],
        where: Any = None,
        conflict_retries: int = CONFLICT_RETRIES,
        retry_timeout: timedelta | float = timedelta(seconds=RETRY_SECONDS),
        data_storage_version: str | None = None,
    ) -> dict[str, int]:
        """Set columns of the rows for which `where` (SQL or an Arrow expression) is true, of all rows without
        it, decided on the newest version whatever this handle shows. Gives `{"num_rows_updated": n}`.

        `updates`: column, or dotted path to a field of a struct -> SQL expression over the row as it was. A
        value is cast to the column's type: fractions are cut off, what does not fit is refused. A struct that
        is null stays null when a field of it is set. Changed rows may move to the end of the table.
        `data_storage_version`: of the new data files, the table's by default.

        A conflict with another writer on the same rows decides anew, at most `conflict_retries` times and
        until `retry_timeout` (seconds, or a `timedelta`) is over; then raises `TooMuchContention`. Raises
        `InvalidExpression`, `FieldNotFound` and `InvalidInput`, which name the column.
        """
        from tiltyard.table.update import update

        asked = arguments.maybe_text("data_storage_version", data_storage_version)
        done = update(
            self._store,
            self._session,
            arguments.expressions("updates", updates),
            where,
            conflict_retries=arguments.whole("conflict_retries", conflict_retries),
            retry_seconds=arguments.seconds("retry_timeout", retry_timeout),
            file_version=None if asked is None else FileVersion.parse(asked),
        )
        self._move(done.snapshot)
        return {"num_rows_updated": done.rows}
