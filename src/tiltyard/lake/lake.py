"""A lake: the tables of one catalog, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tiltyard.catalog.catalog import Catalog
from tiltyard.catalog.creating import create_table
from tiltyard.catalog.declaring import table_exists
from tiltyard.catalog.dropped import DROPPED
from tiltyard.catalog.found import find_table
from tiltyard.catalog.names import Id, check_new_id
from tiltyard.catalog.namespaces import (
    create_namespace,
    describe_namespace,
    drop_namespace,
    namespace_exists,
)
from tiltyard.catalog.operations.opening import opened
from tiltyard.catalog.renaming import rename_table
from tiltyard.catalog.settings import Settings
from tiltyard.catalog.standing import drop_of
from tiltyard.catalog.trash import drop_table, dropped_tables, undrop_table
from tiltyard.dataset import arguments
from tiltyard.dataset.handle import LATEST, open_root, seconds_of
from tiltyard.dataset.places import is_file, is_table
from tiltyard.dataset.streams import streams_deleted
from tiltyard.errors import InvalidInput, InvalidUri, TableAlreadyExists, TableNotFound, TiltyardError
from tiltyard.lake.keys import check_key, with_key
from tiltyard.lake.listing import is_written, namespaces_of, tables_of
from tiltyard.lake.missing import dotted, dotted_namespace
from tiltyard.lake.names import id_of, namespace_of, text_of
from tiltyard.lake.properties import check_properties
from tiltyard.lake.sources import columns_given, readable
from tiltyard.lake.table import Table, given, is_empty
from tiltyard.lake.words import plain
from tiltyard.session import default_session
from tiltyard.table.wording import NS_PER_SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from tiltyard.dataset import LanceDataset
    from tiltyard.dataset.progress import FragmentWriteProgress
    from tiltyard.table.snapshot import Snapshot


SERVERS = ("http://", "https://")


class Lake:
    """The tables below one path or URI, by dotted name: `ops.flights` is `flights` in the namespace `ops`.

    `lake["ops.flights"]` opens one, iterating gives the names. A name that has a dot itself stands in double
    quotes. A lake may be shared among threads and processes, and pickled.
    """

    def __init__(
        self,
        uri: Any,
        storage_options: Mapping[str, Any] | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        self._asked = uri, storage_options, properties
        check_properties(properties)
        store = open_root(uri, storage_options)
        self._catalog = Catalog(store, Settings.parse(properties), default_session())

    def __repr__(self) -> str:
        return f"Lake({self.uri!r})"

    def __reduce__(self) -> Any:
        _, storage_options, properties = self._asked
        return Lake, (self._catalog.store.uri, storage_options, properties)

    @property
    def uri(self) -> str:
        """Where the lake is."""
        return self._catalog.store.uri

    @property
    def catalog(self) -> Catalog:
        """The catalog behind it, for the functions of `tiltyard.catalog`."""
        return self._catalog

    # -- tables ----------------------------------------------------------------------------------

    @plain
    def create_table(
        self,
        name: str | Sequence[str],
        data: Any = None,
        *,
        key: str | Sequence[str] | None = None,
        exist_ok: bool = False,
        properties: Mapping[str, str] | None = None,
        schema: Any = None,
        max_rows_per_file: int | None = None,
        max_bytes_per_file: int | None = None,
        data_storage_version: str | None = None,
        enable_stable_row_ids: bool | None = None,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        progress: FragmentWriteProgress | Callable[[int], None] | None = None,
    ) -> Table:
        """Make a table of data, or an empty one of a `pa.Schema` (or of `schema=` alone). Of several creators
        exactly one succeeds.

        Namespaces in the name that are missing are made first, and stay whatever becomes of the table. `key`:
        the columns of the primary key, which must not be null; `upsert` and `merge` go by it. It declares the
        key and enforces nothing: `Table.set_unique_key` does. `properties`: texts that the catalog keeps with
        the name. The rest as for `tiltyard.create_table`.

        Raises `TableAlreadyExists`. With `exist_ok` the table that is there is opened instead: it must have
        all columns of the schema, with their types, and the key (`SchemaMismatch`). Rows are never added to
        it: with rows it raises `TableAlreadyExists` all the same.
        """
        id = id_of(name)
        options = given(
            {
                "max_rows_per_file": max_rows_per_file,
                "max_bytes_per_file": max_bytes_per_file,
                "data_storage_version": data_storage_version,
                "enable_stable_row_ids": enable_stable_row_ids,
                "commit_message": commit_message,
                "transaction_properties": transaction_properties,
                "progress": progress,
            }
        )
        data, schema = columns_given(data, schema)
        opens = arguments.flag("exist_ok", exist_ok) and (isinstance(data, pa.Schema) or is_empty(data))
        if key is not None:
            data, schema = with_key(data, schema, key), None
        if self._missing_above(id):
            check_new_id(id, "a table")
            data, schema = readable(data, schema), None  # refused before a namespace is made for it
            self._make_above(id)
        if schema is not None:
            options["schema"] = schema
        mode = "exist_ok" if opens else "create"
        try:
            with dotted(self._catalog, id):
                _, dataset = create_table(
                    self._catalog, id, data, mode=mode, properties=properties, **options
                )
        except TableAlreadyExists as error:
            raise self._taken(error, id, exist_ok) from None
        if opens and key is not None:
            check_key(dataset, key)
        return self._shown(dataset)

    def _taken(self, error: TableAlreadyExists, id: Id, exist_ok: bool) -> TableAlreadyExists:
        named = text_of(id)
        if not table_exists(self._catalog, id):
            return error  # a namespace has the name
        if not exist_ok:
            return TableAlreadyExists(
                f"{named!r} is in {self.uri} already: open it with table({named!r}), or give exist_ok=True "
                "to create_table"
            )
        return adds_no_rows(self.uri, named)

    @plain
    def table(self, name: str | Sequence[str]) -> Table:
        """Open a table. Raises `TableNotFound`, which names those that are near."""
        id = id_of(name)
        with dotted(self._catalog, id):
            return self._shown(opened(self._catalog, id))

    def __getitem__(self, name: str | Sequence[str]) -> Table:
        return self.table(name)

    @plain
    def rename(self, old: str | Sequence[str], new: str | Sequence[str]) -> Table:
        """Give a table another name, which may be in another namespace that exists; nothing is copied.

        `new` is the whole name. Raises `TableNotFound`, `TableAlreadyExists`, `NamespaceNotFound`.
        """
        id, new_id = id_of(old), id_of(new)
        with dotted(self._catalog, id, into=new_id):
            rename_table(self._catalog, id, new_id)
        return self.table(new_id)

    @plain
    def drop(self, name: str | Sequence[str], *, purge: bool = False, discard_streamed: bool = False) -> None:
        """Drop a table: it is gone for everybody, `undrop` brings it back for a week, and whoever reads it
        just now finishes. A `Table` of it writes no more. With `purge` its data are deleted at once.

        Of several that drop one table exactly one succeeds. Raises `TableNotFound`; with `purge` also
        `UndrainedRows` where rows were streamed into the table that are not in its base, unless
        `discard_streamed`, which warns of how many are lost.
        """
        id = id_of(name)
        purge = arguments.flag("purge", purge)
        discards = arguments.flag("discard_streamed", discard_streamed)
        with dotted(self._catalog, id), streams_deleted(self._purged(id, purge), "drop", discards):
            drop_table(self._catalog, id, purge=purge)

    def _purged(self, id: Id, purge: bool) -> Snapshot | None:
        """The table as it is, where its data are to be deleted; None where it cannot be read."""
        with suppress(TiltyardError):
            return opened(self._catalog, id)._snapshot if purge else None
        return None

    @plain
    def undrop(self, name: str | Sequence[str], *, id: str | None = None) -> Table:
        """Bring back the table of this name that was dropped last, or the drop with the `id` that `dropped`
        tells. Raises `TableNotDropped`, `TableAlreadyExists` (the name is taken), `NamespaceNotFound`.
        """
        table = id_of(name)
        trash = arguments.maybe_text("id", id)
        with dotted(self._catalog, table):
            undrop_table(self._catalog, table, trash=trash)
        return self.table(table)

    def dropped(self) -> list[dict[str, Any]]:
        """The dropped tables that can be brought back, oldest first: `{"table": name, "dropped": time,
        "until": time, "id": text}` (local times, without zone). A name may stand there twice: `undrop` takes
        the `id`.
        """
        return [
            {
                "table": text_of(each.id),
                "dropped": _local(each.dropped_ns),
                "until": _local(each.until_ns),
                "id": each.trash,
            }
            for each in dropped_tables(self._catalog)
        ]

    def tables(self, namespace: str | Sequence[str] | None = None, *, declared: bool = False) -> list[str]:
        """Names of all tables, or of those in a namespace and below it, as `table` takes them. `declared`:
        also of those that are only declared, which cannot be opened before somebody creates them.

        Raises `NamespaceNotFound`.
        """
        declared = arguments.flag("declared", declared)
        return [text_of(id) for id in tables_of(self._catalog, namespace_of(namespace), declared=declared)]

    def _ipython_key_completions_(self) -> list[str]:
        return self.tables()

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables())

    def __len__(self) -> int:
        return len(self.tables())

    def __bool__(self) -> bool:
        return True  # also when it is empty: `if lake:` asks whether there is one

    def __contains__(self, name: object) -> bool:
        """Whether a table of this name can be opened."""
        try:
            return is_written(self._catalog, id_of(name))
        except InvalidInput:
            return False

    @plain
    def properties(self, name: str | Sequence[str]) -> dict[str, str]:
        """What the catalog keeps with the name of a table or of a namespace. Raises `TableNotFound`."""
        id = id_of(name)
        if self._catalog.settings.mode.has_register and namespace_exists(self._catalog, id):
            with dotted_namespace(self._catalog, id):
                return describe_namespace(self._catalog, id).properties or {}
        with dotted(self._catalog, id):
            return find_table(self._catalog, id).properties or {}

    # -- namespaces ------------------------------------------------------------------------------

    def namespaces(self, namespace: str | Sequence[str] | None = None) -> list[str]:
        """Names of all namespaces, or of those in one and below it."""
        return [text_of(id) for id in namespaces_of(self._catalog, namespace_of(namespace))]

    @plain
    def create_namespace(
        self,
        name: str | Sequence[str],
        properties: Mapping[str, str] | None = None,
        *,
        exist_ok: bool = False,
    ) -> None:
        """Make a namespace, and those above it that are missing. Raises `NamespaceAlreadyExists` unless
        `exist_ok`.
        """
        id = id_of(name, "a namespace")
        mode = "exist_ok" if arguments.flag("exist_ok", exist_ok) else "create"
        if self._missing_above(id):
            check_new_id(id, "a namespace")
            self._make_above(id)
        with dotted_namespace(self._catalog, id):
            create_namespace(self._catalog, id, properties, mode)

    @plain
    def drop_namespace(self, name: str | Sequence[str], *, cascade: bool = False) -> None:
        """Remove a namespace. Raises `NamespaceNotFound`, and `NamespaceNotEmpty` unless `cascade`, which
        drops the tables in it first (`undrop` brings them back once the namespace is there again).
        """
        behavior = "cascade" if arguments.flag("cascade", cascade) else "restrict"
        id = id_of(name, "a namespace")
        with dotted_namespace(self._catalog, id):
            drop_namespace(self._catalog, id, None, behavior)

    def _missing_above(self, id: Id) -> list[Id]:
        """The namespaces above an id that are missing, the outermost first."""
        above = [id[:depth] for depth in range(1, len(id))]
        return [each for each in above if not self._has_namespace(each)]

    def _has_namespace(self, id: Id) -> bool:
        return namespace_exists(self._catalog, id)

    def _make_above(self, id: Id) -> None:
        for each in self._missing_above(id):
            with dotted_namespace(self._catalog, each):
                create_namespace(self._catalog, each, None, "exist_ok")

    # -- inside ----------------------------------------------------------------------------------

    def _shown(self, dataset: LanceDataset) -> Table:
        """A table whose reads see the newest version."""
        dataset._freshness = seconds_of(LATEST)
        return Table(dataset, lake=self)

    def _refuse_dropped(self, dataset: LanceDataset, what: str) -> None:
        """Raise `TableNotFound` where an open table was dropped: nobody would see what is written to it."""
        found = drop_of(self._catalog, dataset._store, dataset._snapshot.location.path)
        if found is None:
            return
        named = text_of(found.id)
        how = f"undrop({named!r}) brings it back" if found.state == DROPPED else "its data are being deleted"
        raise TableNotFound(
            f"{what} is refused: {named!r} was dropped from {self.uri}, and {how}; nothing was written"
        )


def adds_no_rows(uri: str, name: str) -> TableAlreadyExists:
    """The error for rows that came with `exist_ok`, for a table that is there."""
    return TableAlreadyExists(
        f"{name!r} is in {uri} already, and create_table adds no rows to it: with exist_ok=True give the "
        "schema alone (data.schema), then append() or upsert() the data"
    )


def connect(
    uri: Any,
    *,
    storage_options: Mapping[str, Any] | None = None,
    properties: Mapping[str, Any] | None = None,
) -> Lake:
    """The lake at a path or URI, or behind a server (`http://...`, `https://...`); nothing is made, and no
    table is opened yet.

    `lake["ops.flights"]` opens one. `properties`: settings of the catalog, as the official package takes
    them; one that there is not is refused (`InvalidInput`). Raises `InvalidUri` where a table or a file lies
    at the very place.
    """
    if isinstance(uri, str) and uri.lower().startswith(SERVERS):
        from tiltyard.lake.remote import RemoteLake

        return RemoteLake(uri, storage_options, properties)
    lake = Lake(uri, storage_options, properties)
    if is_file(lake.catalog.store):
        raise InvalidUri(f"{lake.uri} is a file, no lake: a lake is a directory, which may be a new one")
    if is_table(lake.catalog.store):
        raise InvalidUri(
            f"{lake.uri} is itself a table, no lake: open it with open_table({lake.uri!r}), or connect to "
            "the directory that it lies in"
        )
    return lake


def _local(ns: int) -> datetime:
    return datetime.fromtimestamp(ns / NS_PER_SECOND)
