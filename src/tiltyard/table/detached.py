"""Detached versions: beside the chain of versions, found only by who knows their number (transactions pack,
5.5).

A detached version is made from the one that its transaction was planned on, whatever others committed since:
nothing is checked for conflicts, it never becomes the latest, and no hint names it. Its number is random with
bit 63 set. Invariants (tests/table/test_detached.py):

1. The chain of versions is the same before and after.
2. Files that a detached version names are kept by every cleanup while its manifest is there.
"""

from __future__ import annotations

from dataclasses import replace

from tiltyard import runtime
from tiltyard.errors import (
    CorruptFile,
    OutcomeUnknown,
    StoreError,
    TooMuchContention,
    UnsupportedFeature,
)
from tiltyard.format import flags, names
from tiltyard.format.manifest import MAX_INLINE_TRANSACTION_BYTES, Manifest, encode_manifest
from tiltyard.format.operations import Clone, Restore
from tiltyard.format.transaction import Transaction
from tiltyard.session import Session
from tiltyard.store import Created, Store
from tiltyard.table import foreign
from tiltyard.table.apply import apply
from tiltyard.table.cleanup.against_commits import check_after
from tiltyard.table.snapshot import Snapshot, committed_snapshot, open_snapshot
from tiltyard.table.versions import VersionLocation

NUMBER_BITS = 63
MAX_TRIES = 8
"""How often a number that is taken is drawn anew; of 2^63 numbers, hardly ever once."""


def commit_detached(store: Store, session: Session, transaction: Transaction) -> Snapshot:
    """Make a detached version of the transaction's read version, which may be detached itself.

    Raises `VersionNotFound` where that is not there, `UnsupportedFeature` for tables whose manifests have
    names of the old kind and for operations that only a chain can have, `InvalidInput` for files that are
    part of the table already or missing, `FilesRemoved`, `OutcomeUnknown`, `StoreError`.
    """
    if isinstance(transaction.operation, (Restore, Clone)):
        kind = type(transaction.operation).__name__
        raise UnsupportedFeature(f"a {kind} makes no detached version: commit it, or check that version out")
    base = open_snapshot(store, session, version=transaction.read_version)
    if base.location.naming == "V1":
        raise UnsupportedFeature(
            f"{store.uri} names its manifests in the old way, which has no place for detached versions: "
            "write the table again with enable_v2_manifest_paths=True"
        )
    flags.check_writer(base.manifest)
    new = foreign.check_not_committed(transaction.operation, base.manifest)
    foreign.check_present(store, new, base.manifest.base_paths)
    data = transaction.encode()
    for _ in range(MAX_TRIES):
        version = names.DETACHED_BIT | runtime.random().getrandbits(NUMBER_BITS)
        manifest = apply(
            base.manifest, transaction, version=version, timestamp_ns=runtime.now_ns(), read=base.manifest
        )
        made = _put(store, transaction, data, manifest, version)
        if made is not None:
            return _checked(store, session, transaction, *made)
    raise TooMuchContention(f"{MAX_TRIES} random version numbers of {store.uri} were taken; try again")


def _put(
    store: Store, transaction: Transaction, data: bytes, manifest: Manifest, version: int
) -> tuple[Manifest, VersionLocation] | None:
    """Create the manifest; None where the number is taken."""
    inline: bytes | None = data
    if len(data) > MAX_INLINE_TRANSACTION_BYTES:
        inline = None
        name = names.transaction_name(transaction.read_version, transaction.uuid)
        store.put(names.transaction_path(name), data)
        manifest = replace(manifest, transaction_file=name)
    location = VersionLocation(version, names.manifest_path(version, "detached"), "detached")
    answer = store.create(location.path, encode_manifest(manifest, inline))
    if answer is Created.UNKNOWN:
        raise OutcomeUnknown(
            f"the answer to creating the detached version {version} of {store.uri} was lost; open it by its "
            "number to see whether it is there",
            uuid=transaction.uuid,
            version=version,
        ) from store.failure(location.path)
    if answer is Created.NOT_DONE:
        cause = store.failure(location.path)
        raise StoreError(
            f"the detached version {version} of {store.uri} could not be written ({cause}); nothing was "
            "committed"
        ) from cause
    return (manifest, location) if answer is Created.WON else None


def _checked(
    store: Store, session: Session, transaction: Transaction, manifest: Manifest, location: VersionLocation
) -> Snapshot:
    """The version, unless a cleanup takes away what it names; also what its base named, which may be old."""
    try:
        check_after(store, session, location, manifest, None, "this detached commit")
    except (StoreError, CorruptFile) as error:
        raise OutcomeUnknown(
            f"the detached version {location.version} of {store.uri} was made, but whether a cleanup takes "
            f"away files that it names could not be seen ({error})",
            uuid=transaction.uuid,
            version=location.version,
        ) from error
    return committed_snapshot(store, session, location, manifest, transaction)
