"""What there is to say about a table beyond where it is: its schema and the figures of its newest version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tiltyard.catalog.operations.opening import open_found
from tiltyard.catalog.operations.schema_json import schema_to_json
from tiltyard.errors import TableNotFound

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.catalog.found import Found


@dataclass(frozen=True, slots=True)
class Details:
    """The version that was looked at, its schema as JSON, and its totals as decimal text."""

    version: int
    schema: dict[str, Any]
    totals: dict[str, str]


def details(
    catalog: Catalog,
    found: Found,
    *,
    version: int | None = None,
    tag: str | None = None,
    branch: str | None = None,
) -> Details | None:
    """The details of a table; None for one that is only declared, unless a version of it is asked for.

    Raises `VersionNotFound`, `TagNotFound`, `BranchNotFound`.
    """
    try:
        table = open_found(catalog, found, version=version, tag=tag, branch=branch)
    except TableNotFound:
        if version is None and tag is None:
            return None
        raise
    return Details(table._held.version, schema_to_json(table.schema), table.get_version()["metadata"])
