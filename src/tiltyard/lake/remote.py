"""A lake behind a server: the names are the server's business, the tables are read and written where they
lie, with the storage options that the server gives out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from inspect import signature
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tiltyard.catalog.names import Id, check_new_id, parts
from tiltyard.catalog.rest.client import RestClient
from tiltyard.catalog.rest.upload import stream_of
from tiltyard.dataset import LanceDataset, arguments
from tiltyard.dataset.source import read_source
from tiltyard.errors import (
    InvalidInput,
    NamespaceNotFound,
    ServerError,
    TableAlreadyExists,
    TableNotFound,
    TiltyardError,
    UnsupportedFeature,
    WrongType,
    nearest,
)
from tiltyard.lake.keys import check_key, with_key
from tiltyard.lake.lake import Lake, adds_no_rows
from tiltyard.lake.missing import renamed
from tiltyard.lake.names import id_of, namespace_of, text_of
from tiltyard.lake.sources import columns_given
from tiltyard.lake.table import Table, given, is_empty
from tiltyard.lake.words import plain

if TYPE_CHECKING:
    from tiltyard.catalog import Catalog

PARAMETERS = frozenset(signature(Lake.create_table).parameters) - {"self"}
WRITE_OPTIONS = PARAMETERS - {"name", "data", "key", "exist_ok", "properties", "schema"}
PAGE = 1000
HEADERS = ("header.", "headers.")
PROPERTIES = ("delimiter", "tls.ssl_ca_cert", "tls.cert_file", "tls.key_file", "tls.assert_hostname")


class RemoteLake(Lake):
    """The lake behind a server of the REST namespace specification: `tiltyard.connect("https://...")`.

    `properties`: `header.<name>` for headers of every request, such as `header.authorization`; `delimiter`;
    `tls.ssl_ca_cert`, `tls.cert_file`, `tls.key_file`, `tls.assert_hostname`. `storage_options`: of the
    storage that the tables lie in, where the server gives none out. What the specification has no route for
    (`undrop`, `dropped`) is refused: it is done where the catalog lies.
    """

    def __init__(
        self,
        uri: str,
        storage_options: Mapping[str, Any] | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        from tiltyard.catalog.plugin.rest import client_of  # loads the interface

        self._asked = uri, storage_options, properties
        self._options = dict(
            {} if storage_options is None else arguments.mapping("storage_options", storage_options)
        )
        texts = {} if properties is None else arguments.text_map("properties", properties)
        _check_properties(texts)
        self._client: RestClient = client_of({**texts, "uri": uri})

    def __repr__(self) -> str:
        return f"Lake({self.uri!r})"

    def __reduce__(self) -> Any:
        return RemoteLake, self._asked

    @property
    def uri(self) -> str:
        """Where the server is."""
        return self._client.uri

    @property
    def catalog(self) -> Catalog:
        """There is none in this process: raises `UnsupportedFeature`."""
        raise self._elsewhere("the functions of tiltyard.catalog")

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
        **options: Any,
    ) -> Table:
        """As `Lake.create_table`; the rows are sent to the server, which writes them. Options of the write
        are refused: the server's hold.
        """
        id = id_of(name)
        if unknown := sorted(set(options) - WRITE_OPTIONS):
            raise WrongType(
                f"create_table takes no {unknown[0]!r}; {nearest(unknown[0], sorted(PARAMETERS))}"
            )
        if refused := sorted(given(options)):
            raise UnsupportedFeature(
                f"{', '.join(refused)}: a server writes new tables with its own settings; create an empty "
                "table of the schema, then write to it with append"
            )
        check_new_id(id, "a table")
        data, schema = columns_given(data, schema)
        opens = arguments.flag("exist_ok", exist_ok) and (isinstance(data, pa.Schema) or is_empty(data))
        if key is not None:
            data, schema = with_key(data, schema, key), None
        rows = stream_of(_reader(data, schema))
        self._make_above(id)
        fields: dict[str, Any] = {"mode": "ExistOk" if opens else "Create", "properties": properties}
        try:
            with self._told(id):
                self._client.call("create_table", {"id": id, **fields}, rows)
        except TableAlreadyExists:
            if exist_ok and not opens:
                raise adds_no_rows(self.uri, text_of(id)) from None
            raise
        table = self.table(id)
        if opens and key is not None:
            check_key(table._ds, key)
        return table

    @plain
    def table(self, name: str | Sequence[str]) -> Table:
        """Open a table where it lies. Raises `TableNotFound`."""
        id = id_of(name)
        with self._told(id):
            found = self._client.call("describe_table", {"id": id, "check_declared": True}).value
        if found.get("is_only_declared"):
            raise TableNotFound(
                f"table {text_of(id)!r} of {self.uri} is only declared and holds nothing yet: "
                f"create_table({text_of(id)!r}, ...) fills it"
            )
        location = found.get("location")
        if not isinstance(location, str) or not location:
            raise ServerError(f"the server's answer about {text_of(id)!r} names no location")
        options = {**(found.get("storage_options") or {}), **self._options}
        try:
            dataset = LanceDataset(location, storage_options=options or None)
        except TableNotFound as error:
            raise TableNotFound(
                f"{self.uri} says that {text_of(id)!r} lies at {location}, which this machine does not find: "
                "is it on a disk of the server? Tables behind a server are read where they lie"
            ) from error
        return self._shown(dataset)

    @plain
    def rename(self, old: str | Sequence[str], new: str | Sequence[str]) -> Table:
        """As `Lake.rename`."""
        id, new_id = id_of(old), id_of(new)
        fields = {"id": id, "new_table_name": new_id[-1], "new_namespace_id": list(new_id[:-1])}
        with self._told(id, new_id):
            self._client.call("rename_table", fields)
        return self.table(new_id)

    @plain
    def drop(self, name: str | Sequence[str], *, purge: bool = False, discard_streamed: bool = False) -> None:
        """As `Lake.drop`. Data are deleted at once (`purge`) only where the catalog lies."""
        id = id_of(name)
        if arguments.flag("purge", purge) or arguments.flag("discard_streamed", discard_streamed):
            raise self._elsewhere("purge")
        with self._told(id):
            self._client.call("drop_table", {"id": id})

    def undrop(self, name: str | Sequence[str], *, id: str | None = None) -> Table:
        """Raises `UnsupportedFeature`: the specification has no route for it."""
        raise self._elsewhere("undrop")

    def dropped(self) -> list[dict[str, Any]]:
        """Raises `UnsupportedFeature`: the specification has no route for it."""
        raise self._elsewhere("dropped")

    def tables(self, namespace: str | Sequence[str] | None = None, *, declared: bool = False) -> list[str]:
        """As `Lake.tables`."""
        inside = namespace_of(namespace)
        if inside:
            self._check_namespace(inside)
        fields = {"include_declared": arguments.flag("declared", declared)}
        ids = sorted(parts(each) for each in self._pages("list_all_tables", "tables", fields))
        return [text_of(id) for id in ids if id[: len(inside)] == inside and len(id) > len(inside)]

    def __contains__(self, name: object) -> bool:
        """Whether a table of this name can be opened."""
        try:
            id = id_of(name)
            found = self._client.call("describe_table", {"id": id, "check_declared": True}).value
        except (InvalidInput, TableNotFound, NamespaceNotFound):
            return False
        return not found.get("is_only_declared")

    @plain
    def properties(self, name: str | Sequence[str]) -> dict[str, str]:
        """As `Lake.properties`."""
        id = id_of(name)
        with suppress(NamespaceNotFound):
            found = self._client.call("describe_namespace", {"id": id}).value
            return dict(found.get("properties") or {})
        with self._told(id):
            found = self._client.call("describe_table", {"id": id}).value
        return dict(found.get("properties") or {})

    # -- namespaces ------------------------------------------------------------------------------

    def namespaces(self, namespace: str | Sequence[str] | None = None) -> list[str]:
        """As `Lake.namespaces`."""
        inside = namespace_of(namespace)
        if inside:
            self._check_namespace(inside)
        return [text_of(id) for id in self._namespaces_in(inside)]

    def _namespaces_in(self, id: Id) -> list[Id]:
        found: list[Id] = []
        for name in self._pages("list_namespaces", "namespaces", {"id": id}):
            child = (*id, name)
            found += [child, *self._namespaces_in(child)]
        return found

    @plain
    def create_namespace(
        self,
        name: str | Sequence[str],
        properties: Mapping[str, str] | None = None,
        *,
        exist_ok: bool = False,
    ) -> None:
        """As `Lake.create_namespace`."""
        id = id_of(name, "a namespace")
        mode = "ExistOk" if arguments.flag("exist_ok", exist_ok) else "Create"
        check_new_id(id, "a namespace")
        self._make_above(id)
        with self._told(id):
            self._client.call("create_namespace", {"id": id, "mode": mode, "properties": properties})

    @plain
    def drop_namespace(self, name: str | Sequence[str], *, cascade: bool = False) -> None:
        """As `Lake.drop_namespace`."""
        id = id_of(name, "a namespace")
        behavior = "Cascade" if arguments.flag("cascade", cascade) else "Restrict"
        with self._told(id):
            self._client.call("drop_namespace", {"id": id, "behavior": behavior})

    def _make_above(self, id: Id) -> None:
        for each in self._missing_above(id):
            self._client.call("create_namespace", {"id": each, "mode": "ExistOk"})

    def _has_namespace(self, id: Id) -> bool:
        try:
            self._client.call("namespace_exists", {"id": id})
        except NamespaceNotFound:
            return False
        return True

    def _check_namespace(self, id: Id) -> None:
        if not self._has_namespace(id):
            raise NamespaceNotFound(f"there is no namespace {text_of(id)!r} in {self.uri}")

    # -- inside ----------------------------------------------------------------------------------

    def _pages(self, operation: str, field: str, fields: Mapping[str, Any]) -> Iterator[str]:
        """All names of a listing, page by page."""
        token: str | None = None
        while True:
            asked = {**fields, "limit": PAGE, "page_token": token}
            found = self._client.call(operation, asked).value
            yield from found.get(field) or ()
            token = found.get("page_token")
            if not token:
                return

    @contextmanager
    def _told(self, *ids: Id) -> Iterator[None]:
        """A block about tables, and of its errors the words: names as one types them."""
        try:
            yield
        except TiltyardError as error:
            renamed(error, *ids)
            raise

    def _elsewhere(self, what: str) -> UnsupportedFeature:
        return UnsupportedFeature(
            f"{what}: a lake behind a server ({self.uri}) does not have it; connect to the directory or "
            "bucket that the catalog lies in"
        )

    def _refuse_dropped(self, dataset: LanceDataset, what: str) -> None:
        """The server has no route that tells of a dropped table by its place: writes go on until its data are
        deleted, as those of every client of the specification do.
        """


def _check_properties(properties: Mapping[str, str]) -> None:
    """Raise `InvalidInput` for a property that has no effect: its name is mistyped."""
    for key in properties:
        if key not in PROPERTIES and not (key.startswith(HEADERS) and key.partition(".")[2]):
            known = [*PROPERTIES, "header.authorization", "header.x-api-key"]
            raise InvalidInput(f"a lake behind a server has no property {key!r}; {nearest(key, known)}")


def _reader(data: Any, schema: Any) -> pa.RecordBatchReader:
    if isinstance(data, pa.Schema):
        return pa.RecordBatchReader.from_batches(data, [])
    return pa.RecordBatchReader.from_batches(*read_source(data, schema))
