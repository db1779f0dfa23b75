"""What is to be known of a table: its place and properties from the register alone, more from its newest
version, or the one asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tiltyard.catalog.found import Found, find_table, with_declared
from tiltyard.errors import InvalidInput, TableNotFound

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.catalog.names import Id
    from tiltyard.dataset import LanceDataset


@dataclass(frozen=True, slots=True)
class Description:
    """A table as `describe` found it. `dataset` and what follows only where a version was looked at."""

    found: Found
    properties: dict[str, str] | None
    managed_versioning: bool
    """Whether clients commit through the catalog."""
    declared_only: bool | None = None
    """None where nobody asked."""
    dataset: LanceDataset | None = None
    statistics: dict[str, int] | None = None

    @property
    def version(self) -> int | None:
        """The version that was looked at."""
        return None if self.dataset is None else self.dataset._held.version

    @property
    def schema(self) -> Any:
        """Its `pa.Schema`."""
        return None if self.dataset is None else self.dataset._held.schema.arrow


def describe(
    catalog: Catalog,
    id: Id,
    *,
    version: int | None = None,
    tag: str | None = None,
    branch: str | None = None,
    detailed: bool = False,
    check_declared: bool = False,
) -> Description:
    """A table's place and properties. With `detailed`, or a version, tag or branch: that version, its schema
    and statistics (none of them, without an error, for a table that is only declared).

    Raises TableNotFound, VersionNotFound, TagNotFound, BranchNotFound, InvalidInput, CatalogDamaged.
    """
    if version is not None and tag is not None:
        raise InvalidInput("give at most one of version and tag")
    found = find_table(catalog, id)
    managed = catalog.settings.table_version_tracking
    properties = found.properties
    chosen = version is not None or tag is not None or bool(branch)
    if not (detailed or chosen):
        if check_declared:
            found = with_declared(catalog, found)
        return Description(found, properties, managed, found.declared_only if check_declared else None)
    from tiltyard.catalog.operations.opening import open_found

    try:
        dataset = open_found(catalog, found, version=version, tag=tag, branch=branch)
    except TableNotFound:
        if not with_declared(catalog, found).declared_only or chosen:
            raise
        return Description(found, properties, managed, True)
    return Description(found, properties, managed, False, dataset, _statistics(dataset) if detailed else None)


def _statistics(dataset: LanceDataset) -> dict[str, int]:
    """Sizes of a version, by the names that the official package gives them."""
    held = dataset._held
    fragments = list(held.fragments)
    files = [file for fragment in fragments for file in fragment.files]
    deletions = [fragment.deletion for fragment in fragments if fragment.deletion is not None]
    physical = sum(fragment.physical_rows for fragment in fragments)
    deleted = sum(each.rows for each in deletions)
    return {
        "total_rows": physical - deleted,
        "total_fragments": len(fragments),
        "total_data_files": len(files),
        "total_data_file_rows": physical,
        "total_deletion_files": len(deletions),
        "total_deletion_file_rows": deleted,
        "total_files_size": sum(file.size for file in files),
    }
