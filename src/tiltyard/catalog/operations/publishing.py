"""New versions through the catalog: what a client has staged becomes the next version of the table.

Clients commit so where the catalog says that it manages versions. A client writes its manifest beside the
final one, as `_versions/<name of the manifest>-<uuid>`, and asks for it to be published.

Invariants, with their tests in tests/catalog/test_operations_publishing.py:
1. A version is published only directly above the newest one, or as the first of a table.
2. Of several different manifests for one version exactly one is published; the same bytes a second time are
   the same success.
3. What is refused changes nothing; the staged file stays its client's.
4. Versions published here and versions committed straight to storage exclude each other: both create the same
   name exclusively.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiltyard import runtime
from tiltyard.catalog.found import find_table
from tiltyard.catalog.operations.opening import chain_of, refuse_branch
from tiltyard.catalog.operations.paths import staged_name
from tiltyard.errors import (
    CorruptFile,
    InvalidInput,
    ObjectNotFound,
    OutcomeUnknown,
    RetryableConflict,
    StoreError,
)
from tiltyard.format import names
from tiltyard.format.manifest import decode_manifest
from tiltyard.store import Created, object_key
from tiltyard.table.hint import write_hint
from tiltyard.table.turnstile import TURNSTILE_SECONDS
from tiltyard.table.versions import VersionLocation, latest_or_none, locate

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.catalog.names import Id
    from tiltyard.format.names import Naming
    from tiltyard.store import Store


@dataclass(frozen=True, slots=True)
class Published:
    """A version that stands: its manifest's key, bytes and tag."""

    version: int
    manifest_path: str
    manifest_size: int
    e_tag: str


def create_table_version(
    catalog: Catalog,
    id: Id,
    version: int,
    manifest_path: str,
    *,
    naming_scheme: str | None = None,
    branch: str | None = None,
) -> Published:
    """Publish a staged manifest as the table's next version.

    Raises `RetryableConflict` where the version is taken by another manifest or is not the next one,
    `InvalidInput` where nothing is staged there or it is no manifest of this version, `TableNotFound`.
    """
    refuse_branch(branch, "create_table_version")
    if version < 1:
        raise InvalidInput(f"versions begin at 1, found {version}")
    found = find_table(catalog, id)
    store = chain_of(catalog, found, branch)
    staged = f"{names.VERSIONS_DIR}/{staged_name(store, manifest_path)}"
    newest = latest_or_none(store, catalog.session)
    asked: Naming = "V1" if naming_scheme == "V1" else "V2"
    if newest is not None and newest.naming != asked:
        raise InvalidInput(
            f"the versions of {store.uri} are named by scheme {newest.naming}, not {asked}; a table has one"
        )
    content = _staged(store, staged, manifest_path)
    location = VersionLocation(version, names.manifest_path(version, asked), asked)
    following = 1 if newest is None else newest.version + 1
    if version > following:
        raise RetryableConflict(
            f"Version CAS failed for table at {store.uri!r}: requested {version}, expected {following} "
            f"(latest {following - 1})"
        )
    if version < following:
        _compare(store, locate(store, version), content)
    else:
        _check_manifest(content, version, manifest_path)
        _publish(store, location, content)
    with suppress(StoreError):  # a cleanup collects it
        store.delete(staged)
    stat = store.stat(location.path)
    return Published(version, object_key(store, location.path), stat.size, f'"{stat.tag}"')


def _staged(store: Store, path: str, shown: str) -> bytes:
    try:
        found: bytes = store.read(path).to_pybytes()
    except ObjectNotFound as error:
        raise InvalidInput(f"Staging manifest not found at {shown!r}") from error
    return found


def _check_manifest(content: bytes, version: int, shown: str) -> None:
    try:
        held = decode_manifest(content, shown)[0].version
    except CorruptFile as error:
        raise InvalidInput(f"what is staged at {shown!r} is no manifest: {error}") from error
    if held != version:
        raise InvalidInput(f"the manifest staged at {shown!r} is of version {held}, not of {version}")


def _publish(store: Store, location: VersionLocation, content: bytes) -> None:
    answer = store.create(location.path, content)
    created_at = runtime.monotonic()
    if answer is Created.NOT_DONE:
        cause = store.failure(location.path)
        raise StoreError(
            f"version {location.version} of {store.uri} could not be written ({cause}); nothing was published"
        ) from cause
    if answer is Created.UNKNOWN:
        try:
            _compare(store, location, content)
        except (ObjectNotFound, StoreError) as error:
            raise OutcomeUnknown(
                f"the answer to creating version {location.version} of {store.uri} was lost; publishing the "
                "same staged manifest again is safe",
                version=location.version,
            ) from error
    elif answer is Created.EXISTS:
        _compare(store, location, content)
    with suppress(StoreError), store.turnstile(names.VERSIONS_DIR, TURNSTILE_SECONDS) as ours:
        if ours:
            write_hint(store, location.version, created_at)


def _compare(store: Store, location: VersionLocation, content: bytes) -> None:
    """Raise `RetryableConflict` unless the version that stands has these bytes."""
    if store.read(location.path).to_pybytes() != content:
        raise RetryableConflict(
            f"Version {location.version} already exists for table at {store.uri!r} with different content"
        )
