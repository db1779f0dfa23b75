"""Changes of several tables together, as the interface asks for them; what they promise says `batch`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance_namespace as interface
from lance_namespace_urllib3_client.models.commit_table_result import CommitTableResult

from tiltyard.catalog.batch import commit_batch
from tiltyard.catalog.batch_members import (
    CreateVersion,
    DeclareTable,
    DeleteVersions,
    DeregisterTable,
)
from tiltyard.catalog.names import location_uri
from tiltyard.catalog.plugin.face import Face, served
from tiltyard.catalog.plugin.requests import Given
from tiltyard.catalog.plugin.versions import MAX_VERSION, ranges_of
from tiltyard.errors import InvalidInput
from tiltyard.store import object_key

if TYPE_CHECKING:
    from tiltyard.catalog.batch_members import Done, Member

KINDS = ("declare_table", "create_table_version", "delete_table_versions", "deregister_table")


class BatchFace(Face):
    """Batches."""

    @served
    def batch_commit_tables(self, given: Given) -> Any:
        """Declare, deregister, publish versions of and remove versions of several tables: all or nothing."""
        members = [_member(at, each) for at, each in enumerate(given.objects("operations"))]
        done = commit_batch(self._catalog, members)
        return interface.BatchCommitTablesResponse(results=[self._result(each) for each in done])

    @served
    def batch_create_table_versions(self, given: Given) -> Any:
        """Publish staged manifests as the next versions of several tables: all or nothing."""
        members = [
            _version(Given(f"entries[{at}]", each)) for at, each in enumerate(given.objects("entries"))
        ]
        done = commit_batch(self._catalog, members)
        return interface.BatchCreateTableVersionsResponse(versions=[self._made(each) for each in done])

    def _result(self, done: Done) -> CommitTableResult:
        member = done.member
        uri = location_uri(self._catalog.store.uri, done.location) if done.location else None
        properties = None if done.properties is None else dict(done.properties)
        match member:
            case DeclareTable():
                managed = self._catalog.settings.table_version_tracking or None
                return CommitTableResult(
                    declare_table=interface.DeclareTableResponse(
                        location=uri, properties=properties, managed_versioning=managed
                    )
                )
            case DeregisterTable(id):
                return CommitTableResult(
                    deregister_table=interface.DeregisterTableResponse(
                        id=list(id), location=uri, properties=properties
                    )
                )
            case DeleteVersions():
                return CommitTableResult(
                    delete_table_versions=interface.BatchDeleteTableVersionsResponse(
                        deleted_count=done.deleted
                    )
                )
            case CreateVersion():
                return CommitTableResult(
                    create_table_version=interface.CreateTableVersionResponse(version=self._made(done))
                )

    def _made(self, done: Done) -> interface.TableVersion:
        return interface.TableVersion(
            version=done.version,
            manifest_path=object_key(self._catalog.store, f"{done.location}/{done.manifest}"),
            manifest_size=done.manifest_size,
            e_tag=done.e_tag,
        )


def _member(at: int, fields: dict[str, Any]) -> Member:
    held = [kind for kind in KINDS if fields.get(kind) is not None]
    if len(held) != 1:
        raise InvalidInput(
            f"operations[{at}] of batch_commit_tables holds exactly one of {', '.join(KINDS)}, found "
            f"{len(held)}"
        )
    given = Given(f"operations[{at}]", fields[held[0]])
    match held[0]:
        case "declare_table":
            return DeclareTable(given.table(), given.maybe_text("location"), given.text_map("properties"))
        case "deregister_table":
            return DeregisterTable(given.table())
        case "delete_table_versions":
            return DeleteVersions(given.table(), ranges_of(given), given.maybe_text("branch"))
        case _:
            return _version(given)


def _version(given: Given) -> CreateVersion:
    return CreateVersion(
        given.table(),
        given.whole("version", 1, MAX_VERSION),
        given.text("manifest_path"),
        given.maybe_text("naming_scheme"),
        given.maybe_text("branch"),
    )
