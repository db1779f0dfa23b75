"""Tags, versions, transactions and figures of a table, as the interface asks for them."""

from __future__ import annotations

from typing import Any

import lance_namespace as interface
from lance_namespace_urllib3_client.models.branch_contents import BranchContents
from lance_namespace_urllib3_client.models.fragment_stats import FragmentStats
from lance_namespace_urllib3_client.models.fragment_summary import FragmentSummary
from lance_namespace_urllib3_client.models.tag_contents import TagContents

from tiltyard.catalog.operations import (
    branching,
    metadata,
    publishing,
    statistics,
    tagging,
    transactions,
    versions,
)
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
            name: TagContents(
                branch=found[name].branch,
                version=found[name].version,
                manifestSize=found[name].manifest_size or 0,
            )
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

    # -- branches --------------------------------------------------------------------------------

    @served
    def list_table_branches(self, given: Given) -> Any:
        """The branches by name, a page of them."""
        token, limit = given.page()
        found = branching.list_branches(self._catalog, given.table())
        page, following = after_token(sorted(found), token, limit)
        shown = {
            name: BranchContents(
                parentBranch=found[name].parent_branch,
                parentVersion=found[name].parent_version,
                createAt=found[name].created_at,
                manifestSize=found[name].manifest_size or 0,
                metadata=dict(found[name].metadata) or None,
            )
            for name in page
        }
        return interface.ListTableBranchesResponse(branches=shown, page_token=following)

    @served
    def delete_table_branch(self, given: Given) -> Any:
        """Remove a branch with its versions."""
        branching.delete_branch(self._catalog, given.table(), given.text("name"))
        return interface.DeleteTableBranchResponse()

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
        count = versions.delete_table_versions(
            self._catalog, given.table(), ranges_of(given), branch=given.maybe_text("branch")
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
            fragment_stats=FragmentStats(
                num_fragments=found.fragments,
                num_small_fragments=found.small_fragments,
                lengths=FragmentSummary(**found.lengths),
            ),
        )

    @served
    def update_table_schema_metadata(self, given: Given) -> Any:
        """Set keys of the schema's metadata; gives all of it."""
        done = metadata.update_schema_metadata(
            self._catalog,
            given.table(),
            given.text_map("metadata") or {},
            branch=given.maybe_text("branch"),
        )
        return interface.UpdateTableSchemaMetadataResponse(
            metadata=done.schema, transaction_id=done.transaction_id
        )

    @served
    def update_field_metadata(self, given: Given) -> Any:
        """Set keys of the metadata of fields, or all of it; gives all of those fields."""
        updates = []
        for at, each in enumerate(given.objects("updates")):
            entry = Given(f"updates[{at}]", each)
            values = entry.text_map("metadata")
            if values is None:
                raise InvalidInput(f"updates[{at}] of update_field_metadata needs 'metadata'")
            updates.append(metadata.FieldUpdate(entry.text("path"), values, entry.flag("replace")))
        done = metadata.update_field_metadata(
            self._catalog, given.table(), updates, branch=given.maybe_text("branch")
        )
        return interface.UpdateFieldMetadataResponse(version=done.version, fields=done.fields)


def ranges_of(given: Given) -> list[tuple[int, int]]:
    """The ranges of versions that a request names: from, and up to without; a negative end is none."""
    return [
        (
            arguments.whole(f"ranges[{at}].start_version", each.get("start_version"), 0, MAX_VERSION),
            arguments.whole(f"ranges[{at}].end_version", each.get("end_version"), -MAX_VERSION, MAX_VERSION),
        )
        for at, each in enumerate(given.objects("ranges"))
    ]


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
