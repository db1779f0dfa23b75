"""Tags, versions, transactions and figures of a table, as the interface asks for them."""

from __future__ import annotations

from typing import Any

import lance_namespace as interface

from tiltyard.catalog.operations import publishing, statistics, tagging, transactions, versions
from tiltyard.catalog.operations.opening import opened, refuse_branch, transaction_of
from tiltyard.catalog.operations.transactions import Action
from tiltyard.catalog.plugin.face import Face, served
from tiltyard.catalog.plugin.requests import Given, after_token, fields_of
from tiltyard.dataset import arguments
from tiltyard.errors import InvalidInput

MAX_VERSION = (1 << 63) - 1
MAX_TOKEN_DIGITS = 19


class VersionFace(Face):
    """Tags, versions, transactions, statistics and metadata."""

    # -- tags ------------------------------------------------------------------------------------

    @served
    def list_table_tags(self, given: Given) -> Any:
        """The tags by name, a page of them."""
        token, limit = given.page()
        found = tagging.list_tags(self._catalog, given.table())
        page, following = after_token(sorted(found), token, limit)
        shown = {
            name: {
                "branch": found[name].branch,
                "version": found[name].version,
                "manifestSize": found[name].manifest_size or 0,
            }
            for name in page
        }
        return interface.ListTableTagsResponse(tags=shown, page_token=following)

    @served
    def get_table_tag_version(self, given: Given) -> Any:
        """The version that a tag names."""
        found = tagging.read_tag(self._catalog, given.table(), given.text("tag"))
        return interface.GetTableTagVersionResponse(version=found.version, branch=found.branch)

    @served
    def create_table_tag(self, given: Given) -> Any:
        """Name a version."""
        tagging.create_tag(
            self._catalog,
            given.table(),
            given.text("tag"),
            given.whole("version"),
            branch=given.maybe_text("branch"),
        )
        return interface.CreateTableTagResponse()

    @served
    def update_table_tag(self, given: Given) -> Any:
        """Let a tag name another version."""
        tagging.move_tag(
            self._catalog,
            given.table(),
            given.text("tag"),
            given.whole("version"),
            branch=given.maybe_text("branch"),
        )
        return interface.UpdateTableTagResponse()

    @served
    def delete_table_tag(self, given: Given) -> Any:
        """Remove a tag."""
        tagging.delete_tag(self._catalog, given.table(), given.text("tag"))
        return interface.DeleteTableTagResponse()

    # -- versions --------------------------------------------------------------------------------

    @served
    def list_table_versions(self, given: Given) -> Any:
        """The versions, oldest or newest first, a page of them."""
        token, limit = given.page()
        shown, following = versions.list_table_versions(
            self._catalog,
            given.table(),
            branch=given.maybe_text("branch"),
            descending=given.flag("descending"),
            after=None if token is None else _version_token(token),
            limit=limit,
        )
        return interface.ListTableVersionsResponse(
            versions=[_version(each) for each in shown],
            page_token=None if following is None else str(following),
        )

    @served
    def describe_table_version(self, given: Given) -> Any:
        """One version, the newest without a number."""
        found = versions.describe_table_version(
            self._catalog,
            given.table(),
            given.maybe_whole("version"),
            branch=given.maybe_text("branch"),
        )
        return interface.DescribeTableVersionResponse(version=_version(found))

    @served
    def create_table_version(self, given: Given) -> Any:
        """Publish a manifest that a client has staged as the next version."""
        given.maybe_whole("manifest_size", 0)
        given.maybe_text("e_tag")
        given.text_map("metadata")
        made = publishing.create_table_version(
            self._catalog,
            given.table(),
            given.whole("version", 0, MAX_VERSION),
            given.text("manifest_path"),
            naming_scheme=given.maybe_text("naming_scheme"),
            branch=given.maybe_text("branch"),
        )
        shown = interface.TableVersion(
            version=made.version,
            manifest_path=made.manifest_path,
            manifest_size=made.manifest_size,
            e_tag=made.e_tag,
        )
        return interface.CreateTableVersionResponse(version=shown)

    @served
    def batch_delete_table_versions(self, given: Given) -> Any:
        """Remove the manifests of ranges of versions."""
        ranges = [
            (
                arguments.whole(f"ranges[{at}].start_version", each.get("start_version"), 0, MAX_VERSION),
                arguments.whole(
                    f"ranges[{at}].end_version", each.get("end_version"), -MAX_VERSION, MAX_VERSION
                ),
            )
            for at, each in enumerate(given.objects("ranges"))
        ]
        count = versions.delete_table_versions(
            self._catalog, given.table(), ranges, branch=given.maybe_text("branch")
        )
        return interface.BatchDeleteTableVersionsResponse(deleted_count=count)

    @served
    def restore_table(self, given: Given) -> Any:
        """Make an old version the newest again."""
        _, uuid = versions.restore(
            self._catalog, given.table(), given.whole("version"), branch=given.maybe_text("branch")
        )
        return interface.RestoreTableResponse(transaction_id=uuid)

    # -- transactions ----------------------------------------------------------------------------

    @served
    def describe_transaction(self, given: Given) -> Any:
        """What made a version: the id is the table's with the version's number or the transaction's uuid."""
        id, which = _transaction_id(given)
        found = transactions.describe_transaction(self._catalog, id, which)
        return interface.DescribeTransactionResponse(status=found.status, properties=found.properties)

    @served
    def alter_transaction(self, given: Given) -> Any:
        """Note a status and properties for a transaction."""
        id, which = _transaction_id(given)
        actions = [action for each in given.objects("actions") for action in _actions(each)]
        found = transactions.alter_transaction(self._catalog, id, which, actions)
        return interface.AlterTransactionResponse(status=found.status, properties=found.properties)

    # -- figures and metadata --------------------------------------------------------------------

    @served
    def get_table_stats(self, given: Given) -> Any:
        """Bytes, rows, indices and fragments of a table."""
        found = statistics.table_statistics(self._catalog, given.table(), branch=given.maybe_text("branch"))
        return interface.GetTableStatsResponse(
            total_bytes=found.total_bytes,
            num_rows=found.rows,
            num_indices=found.indices,
            fragment_stats={
                "num_fragments": found.fragments,
                "num_small_fragments": found.small_fragments,
                "lengths": found.lengths,
            },
        )

    @served
    def update_table_schema_metadata(self, given: Given) -> Any:
        """Set keys of the schema's metadata; gives all of it."""
        refuse_branch(given.maybe_text("branch"), "update_table_schema_metadata")
        values = given.text_map("metadata") or {}
        table = opened(self._catalog, given.table())
        if not values:
            return interface.UpdateTableSchemaMetadataResponse(metadata=table.schema_metadata)
        after = table.update_schema_metadata(values)
        return interface.UpdateTableSchemaMetadataResponse(
            metadata=after, transaction_id=transaction_of(table)
        )


def _version(found: versions.TableVersion) -> Any:
    return interface.TableVersion(
        version=found.version,
        manifest_path=found.manifest_path,
        manifest_size=found.manifest_size,
        e_tag=found.e_tag,
        timestamp_millis=found.timestamp_millis,
    )


def _version_token(token: str) -> int:
    if not (token.isascii() and token.isdigit() and len(token) <= MAX_TOKEN_DIGITS):
        raise InvalidInput(
            f"page_token of list_table_versions is the number of a version, found {arguments.shown(token)}"
        )
    return int(token)


def _transaction_id(given: Given) -> tuple[tuple[str, ...], str]:
    id = given.maybe_id() or ()
    if len(id) < 2:
        raise InvalidInput(
            f"the id of {given.operation} is that of the table followed by the number of a version or the "
            f"uuid of a transaction, found {list(id)}"
        )
    return id[:-1], id[-1]


def _actions(each: dict[str, Any]) -> list[Action]:
    """The action of one entry, whose keys come as the wire has them or as Python does."""
    found = []
    for kind, names in (
        ("status", ("setStatusAction", "set_status_action")),
        ("set", ("setPropertyAction", "set_property_action")),
        ("unset", ("unsetPropertyAction", "unset_property_action")),
    ):
        inner = next((each[name] for name in names if each.get(name) is not None), None)
        if inner is None:
            continue
        fields = fields_of(inner, names[0])
        value = fields.get("status") if kind == "status" else fields.get("value")
        found.append(
            Action(
                kind,  # type: ignore[arg-type]
                arguments.maybe_text("key", fields.get("key")) or "",
                arguments.maybe_text("value", value) or "",
                arguments.maybe_text("mode", fields.get("mode")) or "",
            )
        )
    if len(found) != 1:
        raise InvalidInput(
            "each action of alter_transaction holds exactly one of setStatusAction, "
            "setPropertyAction and unsetPropertyAction"
        )
    return found
