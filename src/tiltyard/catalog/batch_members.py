"""What a batch consists of, and what became of each part; see `batch`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from tiltyard.catalog.names import Id


@dataclass(frozen=True, slots=True)
class DeclareTable:
    """Reserve a name and a place. `location`, if given, must be the one that the catalog chooses."""

    id: Id
    location: str | None = None
    properties: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class DeregisterTable:
    """Forget a table, and leave its files."""

    id: Id


@dataclass(frozen=True, slots=True)
class CreateVersion:
    """Publish a staged manifest as a table's next version; see `operations.publishing`."""

    id: Id
    version: int
    manifest_path: str
    naming_scheme: str | None = None
    branch: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteVersions:
    """Remove the manifests of old versions; see `operations.versions`."""

    id: Id
    ranges: Sequence[tuple[int, int]]
    branch: str | None = None


Member: TypeAlias = DeclareTable | DeregisterTable | CreateVersion | DeleteVersions


@dataclass(frozen=True, slots=True)
class Done:
    """What became of one member, as far as its kind has it."""

    member: Member
    location: str = ""
    """Of the table, below the root."""
    properties: Mapping[str, str] | None = None
    version: int = 0
    manifest: str = ""
    """Path of the version's manifest in the table's directory."""
    manifest_size: int = 0
    e_tag: str = ""
    deleted: int = 0
