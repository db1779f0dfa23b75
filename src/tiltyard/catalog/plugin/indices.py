"""Indices, as the interface asks for them."""

from __future__ import annotations

from typing import Any

import lance_namespace as interface
from lance_namespace_urllib3_client.models.index_content import IndexContent

from tiltyard.catalog.operations import indexing
from tiltyard.catalog.plugin.face import Face, served
from tiltyard.catalog.plugin.requests import Given, after_token


class IndexFace(Face):
    """Scalar indices: built, listed, described and dropped."""

    @served
    def create_table_index(self, given: Given) -> Any:
        """Build an index of a scalar kind; others are not supported yet, by name."""
        return interface.CreateTableIndexResponse(transaction_id=self._created(given, scalar_only=False))

    @served
    def create_table_scalar_index(self, given: Given) -> Any:
        """Build an index of a scalar kind."""
        return interface.CreateTableScalarIndexResponse(transaction_id=self._created(given, scalar_only=True))

    def _created(self, given: Given, *, scalar_only: bool) -> str | None:
        return indexing.create_index(
            self._catalog,
            given.table(),
            given.text("column"),
            given.text("index_type"),
            name=given.maybe_text("name"),
            scalar_only=scalar_only,
            branch=given.maybe_text("branch"),
        )

    @served
    def list_table_indices(self, given: Given) -> Any:
        """The indices of a version, by name."""
        token, limit = given.page()
        found = {
            each.name: each
            for each in indexing.list_indices(
                self._catalog,
                given.table(),
                version=given.maybe_whole("version"),
                branch=given.maybe_text("branch"),
            )
        }
        page, following = after_token(sorted(found), token, limit)
        shown = []
        for name in page:
            each = found[name]
            shown.append(
                IndexContent(
                    index_name=name,
                    index_uuid=each.uuid,
                    columns=list(each.columns),
                    status=indexing.SUCCEEDED,
                    index_type=each.kind,
                    type_url=each.type_url,
                    num_indexed_rows=each.rows_indexed,
                    num_unindexed_rows=each.rows_unindexed,
                    size_bytes=each.size_bytes,
                    num_segments=each.segments,
                    created_at=each.created_at,
                    index_version=each.index_version,
                    index_details="{}",
                )
            )
        return interface.ListTableIndicesResponse(indexes=shown, page_token=following)

    @served
    def describe_table_index_stats(self, given: Given) -> Any:
        """Rows that an index answers for, and those that it does not."""
        found = indexing.index_statistics(
            self._catalog,
            given.table(),
            given.text("index_name"),
            version=given.maybe_whole("version"),
            branch=given.maybe_text("branch"),
        )
        return interface.DescribeTableIndexStatsResponse(
            index_type=found.kind,
            num_indexed_rows=found.rows_indexed,
            num_unindexed_rows=found.rows_unindexed,
            num_indices=found.segments,
        )

    @served
    def drop_table_index(self, given: Given) -> Any:
        """Drop an index of any kind."""
        uuid = indexing.drop_index(
            self._catalog, given.table(), given.text("index_name"), branch=given.maybe_text("branch")
        )
        return interface.DropTableIndexResponse(transaction_id=uuid)
