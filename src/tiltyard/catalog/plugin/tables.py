"""Tables and namespaces, as the interface asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import lance_namespace as interface
from lance_namespace_urllib3_client.models.json_arrow_schema import JsonArrowSchema

from tiltyard.catalog import listing, namespaces, tables
from tiltyard.catalog.found import find_table
from tiltyard.catalog.names import location_uri, object_id
from tiltyard.catalog.operations import ipc
from tiltyard.catalog.operations.schema_json import schema_to_json
from tiltyard.catalog.plugin.face import Face, served, served_with_data
from tiltyard.catalog.plugin.vending import vended
from tiltyard.errors import CatalogDamaged, InvalidInput, NamespaceNotFound

if TYPE_CHECKING:
    from tiltyard.catalog.plugin.requests import Given
    from tiltyard.catalog.rows import Row

CREATE_TABLE = {"create": "create", "existok": "exist_ok", "overwrite": "overwrite"}
CREATE_NAMESPACE = CREATE_TABLE
REGISTER = {"create": "create", "overwrite": "overwrite"}
DROP = {"fail": "fail", "skip": "skip"}
BEHAVIOR = {"restrict": "restrict", "cascade": "cascade"}


class TableNames(interface.ListTablesResponse):
    """A page of names; looping over it gives the names, not the fields of the model (case N12)."""

    def __iter__(self) -> Iterator[str]:  # type: ignore[override]
        return iter(self.tables)

    def __contains__(self, name: object) -> bool:
        return name in self.tables


class NamespaceNames(interface.ListNamespacesResponse):
    """A page of names; see `TableNames`."""

    def __iter__(self) -> Iterator[str]:  # type: ignore[override]
        return iter(self.namespaces)

    def __contains__(self, name: object) -> bool:
        return name in self.namespaces


class TableFace(Face):
    """Namespaces and tables: made, listed, described, named anew and removed."""

    # -- namespaces ------------------------------------------------------------------------------

    @served
    def create_namespace(self, given: Given) -> Any:
        """Make a namespace. Modes: Create, ExistOk, Overwrite (drop the old one, with all in it)."""
        properties = given.text_map("properties")
        made = namespaces.create_namespace(
            self._catalog,
            given.namespace(),
            properties,
            mode=given.word("mode", CREATE_NAMESPACE, "create"),
        )
        return interface.CreateNamespaceResponse(properties=made.properties)

    @served
    def describe_namespace(self, given: Given) -> Any:
        """The properties of a namespace."""
        found = namespaces.describe_namespace(self._catalog, given.namespace())
        return interface.DescribeNamespaceResponse(properties=found.properties)

    @served
    def list_namespaces(self, given: Given) -> Any:
        """Names of the namespaces directly in a namespace, a page of them."""
        token, limit = given.page()
        page = namespaces.list_namespaces(self._catalog, given.namespace(), page_token=token, limit=limit)
        return NamespaceNames(namespaces=list(page.names), page_token=page.token)

    @served
    def drop_namespace(self, given: Given) -> Any:
        """Remove a namespace. Modes: Fail, Skip (where there is none); behaviors: Restrict (it must be
        empty), Cascade.
        """
        namespaces.drop_namespace(
            self._catalog,
            given.namespace(),
            mode=given.word("mode", DROP, "fail"),
            behavior=given.word("behavior", BEHAVIOR, "restrict"),
        )
        return interface.DropNamespaceResponse()

    @served
    def namespace_exists(self, given: Given) -> Any:
        """Nothing, where the namespace exists; else the error for one that does not."""
        id = given.maybe_id() or ()
        if not namespaces.namespace_exists(self._catalog, id):
            raise NamespaceNotFound(object_id(id))
        return interface.NamespaceExistsResponse()

    # -- tables ----------------------------------------------------------------------------------

    @served
    def list_tables(self, given: Given) -> Any:
        """Names of the tables directly in a namespace, a page of them."""
        token, limit = given.page()
        page = listing.list_tables(
            self._catalog,
            given.namespace(),
            page_token=token,
            limit=limit,
            include_declared=given.flag("include_declared", True),
        )
        return TableNames(tables=list(page.names), page_token=page.token)

    @served
    def list_all_tables(self, given: Given) -> Any:
        """Ids of the tables of all namespaces, joined by `$`, a page of them."""
        token, limit = given.page()
        page = listing.list_all_tables(
            self._catalog,
            page_token=token,
            limit=limit,
            include_declared=given.flag("include_declared", True),
        )
        return TableNames(tables=list(page.names), page_token=page.token)

    @served
    def describe_table(self, given: Given) -> Any:
        """Where a table is; with `load_detailed_metadata` also its version, schema and totals."""
        detailed = given.flag("load_detailed_metadata")
        checked = given.flag("check_declared") or detailed
        id = given.table()
        found = tables.describe(
            self._catalog,
            id,
            version=given.maybe_whole("version"),
            tag=given.maybe_text("tag"),
            branch=given.maybe_text("branch"),
            detailed=detailed,
            check_declared=checked,
        )
        totals = found.statistics if detailed else None
        answer = interface.DescribeTableResponse(
            table=id[-1],
            namespace=list(id[:-1]),
            version=found.version,
            location=found.found.uri,
            table_uri=found.found.uri,
            storage_options=vended(self._catalog, given),
            metadata=None if totals is None else {name: str(each) for name, each in totals.items()},
            properties=found.properties,
            managed_versioning=found.managed_versioning or None,
            is_only_declared=found.declared_only if checked else None,
        )
        if detailed and found.dataset is not None:
            answer.var_schema = JsonArrowSchema.from_dict(schema_to_json(found.schema))
        return answer

    @served
    def table_exists(self, given: Given) -> Any:
        """Nothing, where the table exists; else the error for one that does not."""
        id = given.table()
        version = given.maybe_whole("version")
        if version is None:
            find_table(self._catalog, id)
        else:
            tables.describe(self._catalog, id, version=version)
        return interface.TableExistsResponse()

    @served_with_data
    def create_table(self, given: Given, data: Any) -> Any:
        """Make a table: `(request, bytes of an Arrow IPC stream)`. Modes: Create, ExistOk, Overwrite."""
        mode = given.word("mode", CREATE_TABLE, "create")
        properties = given.text_map("properties")
        given.text_map("storage_options")  # this root needs none
        id = given.table()
        rows = ipc.read_stream(data, "create_table")
        found, made = tables.create_table(self._catalog, id, rows, mode=mode, properties=properties)
        return interface.CreateTableResponse(
            location=found.uri, version=made._held.version, properties=found.properties
        )

    @served
    def declare_table(self, given: Given) -> Any:
        """Reserve a name and a place, to which a client then writes the table."""
        found = tables.declare_table(
            self._catalog,
            given.table(),
            location=given.maybe_text("location"),
            properties=given.text_map("properties"),
        )
        return interface.DeclareTableResponse(
            location=found.uri,
            storage_options=vended(self._catalog, given),
            properties=found.properties,
            managed_versioning=self._catalog.settings.table_version_tracking or None,
        )

    @served
    def create_empty_table(self, given: Given) -> Any:
        """`declare_table` by its old name."""
        properties = given.text_map("properties")
        found = tables.declare_table(self._catalog, given.table(), properties=properties)
        return interface.CreateEmptyTableResponse(location=found.uri, properties=found.properties)

    @served
    def register_table(self, given: Given) -> Any:
        """Give a name to a table that lies below the root already."""
        location = given.text("location")
        tables.register_table(
            self._catalog,
            given.table(),
            location,
            mode=given.word("mode", REGISTER, "create"),
            properties=given.text_map("properties"),
        )
        return interface.RegisterTableResponse(location=location, properties=given.text_map("properties"))

    @served
    def deregister_table(self, given: Given) -> Any:
        """Take a table out of the catalog and leave its files."""
        id = given.table()
        found = tables.deregister_table(self._catalog, id)
        return interface.DeregisterTableResponse(id=list(id), location=found.uri, properties=found.properties)

    @served
    def drop_table(self, given: Given) -> Any:
        """Drop a table; it can be brought back for a while (`undrop`)."""
        from tiltyard.catalog import trash

        id = given.table()
        was = trash.drop_table(self._catalog, id).row
        uri = location_uri(self._catalog.store.uri, was.location or "")
        return interface.DropTableResponse(id=list(id), location=uri, properties=readable_properties(was))

    @served
    def rename_table(self, given: Given) -> Any:
        """Give a table another name, and another namespace where one is given."""
        from tiltyard.catalog import renaming

        id = given.table()
        name = given.text("new_table_name")
        if not name:
            raise InvalidInput("new_table_name of rename_table is empty")
        to = id[:-1] if given.field("new_namespace_id") is None else tuple(given.texts("new_namespace_id"))
        renaming.rename_table(self._catalog, id, (*to, name))
        return interface.RenameTableResponse()


def readable_properties(row: Row) -> dict[str, str] | None:
    """The properties of a table that is gone; None for those that cannot be read."""
    try:
        return row.properties
    except CatalogDamaged:
        return None
