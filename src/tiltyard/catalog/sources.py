"""The data of one creation of a table: written as often as others make that necessary, a stream read once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tiltyard.catalog.found import has_versions
from tiltyard.errors import InvalidInput, RetryableConflict, SchemaMismatch
from tiltyard.format.names import data_path
from tiltyard.table.creators import OwnPlace

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.dataset import LanceDataset
    from tiltyard.store import Store


class Source:
    """The data of one creation, and how it is written. A stream can be written once: what it gave is read
    back from where it was written.
    """

    def __init__(self, data: Any, options: Mapping[str, Any]) -> None:
        import pyarrow as pa

        if data is None:
            raise InvalidInput("create_table needs data, or a pa.Schema for an empty table")
        if not isinstance(data, pa.Schema):
            self._data = data
        else:
            self._data = pa.Table.from_batches([], data)
        self._options = dict(options)
        self._is_stream = hasattr(self._data, "__next__") or hasattr(self._data, "read_next_batch")
        self._spent = False
        self.copy: LanceDataset | None = None
        """Our own dataset with all of the data, once it was written to a fresh directory."""

    def write(self, catalog: Catalog, store: Store, mode: str, *, is_own: bool = False) -> LanceDataset:
        """Write everything as a version of the table at the store, `is_own`: which is an `OwnPlace`."""
        from tiltyard.dataset import write_dataset

        options = self._options
        data = self._data
        if self.is_gone:
            raise RetryableConflict(
                f"the stream of data for {store.uri} was read for a table that another writer created first "
                "and dropped again; nothing was created, give the data again"
            )
        if self._spent and self.copy is not None:
            data = self.copy.scanner().to_reader()
            options = {name: value for name, value in options.items() if name != "schema"}
        elif is_own or mode != "create" or not has_versions(store, ""):  # else it is refused before a read
            self._spent = self._is_stream
        place = OwnPlace(store) if is_own else store
        return write_dataset(data, place, mode=mode, session=catalog.session, **options)

    @property
    def is_gone(self) -> bool:
        """Whether the data cannot be written again: a stream that was read, and no copy is left."""
        return self._spent and (self.copy is None or not self._is_whole(self.copy))

    @staticmethod
    def _is_whole(copy: LanceDataset) -> bool:
        """Whether nobody has removed the directory in which our version was."""
        held = copy._held
        files = [data_path(file.path) for fragment in held.fragments for file in fragment.files]
        return all(held.store.exists(path) for path in files)

    def check_fits(self, dataset: LanceDataset) -> None:
        """Raise SchemaMismatch unless the table has every column of the data, with its type."""
        from tiltyard.dataset.fragment import file_version, table_schema
        from tiltyard.dataset.json_text import shown_schema
        from tiltyard.dataset.source import read_source

        if self.copy is not None:
            ours = self.copy.schema
        else:
            arrow, _ = read_source(self._data, self._options.get("schema"))
            version = file_version(self._options.get("data_storage_version"), None)
            ours = shown_schema(table_schema(arrow, "create", None, version).arrow)
        theirs = dataset.schema
        for column in ours:
            at = theirs.get_field_index(column.name)
            if at < 0 or theirs.field(at).type != column.type:
                raise SchemaMismatch(
                    f"the table at {dataset.uri} exists and has other columns than this data: "
                    f"{column.name!r} is {column.type} in the data and "
                    f"{'not there' if at < 0 else theirs.field(at).type} in the table. The data has\n{ours}\n"
                    f"the table has\n{theirs}"
                )
