"""One version of a table, immutable: its manifest and what is needed to read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tiltyard import runtime
from tiltyard.errors import CorruptFile, InvalidInput, ObjectNotFound, StoreError, VersionNotFound
from tiltyard.format import flags, names
from tiltyard.format.fragment import Fragment, FragmentList
from tiltyard.format.manifest import (
    MAGIC,
    Manifest,
    TransactionLoader,
    decode_manifest,
    decode_only_transaction,
)
from tiltyard.format.schema import Schema
from tiltyard.format.transaction import Transaction, decode_transaction
from tiltyard.session import Session
from tiltyard.store import ObjectStat, Store
from tiltyard.table import refs
from tiltyard.table.versions import (
    VersionLocation,
    forget,
    latest,
    list_versions,
    located,
    newest,
    not_found,
)

IN_FLIGHT_SECONDS = 10.0
"""Where manifests are written under their final name, an incomplete newest one may be this old (decision
D12).
"""

IN_FLIGHT_QUIET_SECONDS = 0.25
"""An incomplete manifest that has not grown for so long is damaged."""

IN_FLIGHT_POLL_SECONDS = 0.02
TRANSACTION_BYTES = 4096
"""What a cached transaction is accounted as."""

MAX_OPEN_ATTEMPTS = 1000
MAX_GOOD_VERSION_PROBES = 16
"""How many older manifests are tried to name the last good version in an error."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One version of a table. Share it freely among threads."""

    store: Store
    manifest: Manifest
    location: VersionLocation
    session: Session
    inline_transaction: Callable[[], Transaction | None] = field(repr=False)
    """Decodes the transaction in the manifest file; None when it is not there."""

    @property
    def version(self) -> int:
        return self.manifest.version

    @property
    def schema(self) -> Schema:
        return self.manifest.schema

    @property
    def fragments(self) -> FragmentList:
        return self.manifest.fragments

    def fragment(self, fragment_id: int) -> Fragment | None:
        """The fragment of this id, None when the version has none."""
        return self.manifest.fragments.by_id(fragment_id)

    def transaction(self) -> Transaction | None:
        """What produced this version; None when it was not recorded."""
        found = self.inline_transaction()
        return _from_file(self.store, self.manifest.transaction_file) if found is None else found


def open_snapshot(
    store: Store,
    session: Session,
    version: int | None = None,
    tag: str | None = None,
    asof: datetime | None = None,
) -> Snapshot:
    """The latest version, or the one that exactly one of the arguments names.

    `asof`: the newest version committed at or before this time (a time without zone is local time).
    Raises TableNotFound, VersionNotFound (with the range of versions), TagNotFound, CorruptFile (with the
    last good version), UnsupportedFeature (a feature flag that this version cannot read).
    """
    if sum(choice is not None for choice in (version, tag, asof)) > 1:
        raise InvalidInput("give at most one of version, tag and asof")
    if version is not None:
        return _open_version(store, session, version)
    if tag is not None:
        return _open_tag(store, session, tag)
    if asof is not None:
        return _open_asof(store, session, asof)
    return open_latest(store, session)


def open_latest(store: Store, session: Session) -> Snapshot:
    """The newest version. One that is being removed or still being written while we look is looked at
    again.
    """
    watch: _Watch | None = None
    for _ in range(MAX_OPEN_ATTEMPTS):
        found = newest(store, session)
        location = found.location
        try:
            stat = found.stat or store.stat(location.path)
            if found.by_time:
                known = session.cache.get(_cache_key(store, stat))
                if known is not None:
                    return Snapshot(store, known[0], location, session, known[1])
                forget(store, session)  # another directory may have come to the name
                location = latest(store, session)
                stat = store.stat(location.path)
            return _read(store, session, location, stat)
        except ObjectNotFound:
            if latest(store, session) == location:
                raise not_found(store, location.version) from None
        except CorruptFile as error:
            watch = watch or _Watch(store)
            if not watch.grows(location):
                raise _damaged(store, session, location, error) from error
            runtime.sleep(IN_FLIGHT_POLL_SECONDS)
    raise VersionNotFound(
        f"the newest version of {store.uri} was removed or incomplete each of {MAX_OPEN_ATTEMPTS} times it "
        "was opened"
    )


class _Watch:
    """Whether an incomplete newest manifest is still being written.

    That happens only where the file system has neither links nor an exclusive rename (decision D12): there
    the file is young, does not end with the magic, and grows.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._size = -1
        self._since = 0.0

    def grows(self, location: VersionLocation) -> bool:
        try:
            stat = self._store.stat(location.path)
            tail = self._store.read(location.path, -len(MAGIC)).to_pybytes()
        except (ObjectNotFound, CorruptFile):
            return True
        if tail == MAGIC or self._store.now_ns() - stat.mtime_ns > IN_FLIGHT_SECONDS * 1e9:
            return False
        if stat.size != self._size:
            self._size, self._since = stat.size, runtime.monotonic()
        return runtime.monotonic() - self._since < IN_FLIGHT_QUIET_SECONDS


def _open_version(store: Store, session: Session, version: int) -> Snapshot:
    if isinstance(version, bool) or not isinstance(version, int):
        raise InvalidInput(f"a version is a number, found {version!r}")
    found = located(store, version)
    location = found.location
    try:
        return _read(store, session, location, found.stat or store.stat(location.path))
    except ObjectNotFound:
        raise not_found(store, version) from None
    except CorruptFile as error:
        raise _damaged(store, session, location, error) from error


def _open_tag(store: Store, session: Session, name: str) -> Snapshot:
    tag = refs.read_tag(store, name)
    chain = store if tag.branch is None else store.at(names.branch_path(tag.branch))
    try:
        return _open_version(chain, session, tag.version)
    except VersionNotFound as error:
        raise VersionNotFound(f"tag {name!r} names version {tag.version}, but {error}") from error


def _open_asof(store: Store, session: Session, asof: datetime) -> Snapshot:
    try:
        wanted_ns = round(asof.timestamp() * 1_000_000) * 1_000
    except (ValueError, OverflowError) as error:  # so near to the ends of the calendar
        raise InvalidInput(f"asof must be a time that UTC can tell, found {asof}: {error}") from error
    locations = list_versions(store)
    if not locations:
        latest(store, session)  # raises: there is no table
    oldest: Snapshot | None = None
    for location in reversed(locations):
        try:
            snapshot = read_snapshot(store, session, location)
        except ObjectNotFound:
            continue  # removed meanwhile
        except CorruptFile as error:  # its time is not known: it may be the one
            raise _damaged(store, session, location, error) from error
        # To the microsecond, as times are shown: the time listed for a version must find that version.
        if snapshot.manifest.timestamp_ns // 1_000 * 1_000 <= wanted_ns:
            return snapshot
        oldest = snapshot
    if oldest is None:
        raise not_found(store, 1)
    since = datetime.fromtimestamp(oldest.manifest.timestamp_ns / 1e9, UTC)
    raise VersionNotFound(
        f"no version of {store.uri} is as old as {asof.isoformat()}: the oldest, {oldest.version}, is from "
        f"{since.isoformat()}"
    )


def read_snapshot(store: Store, session: Session, location: VersionLocation) -> Snapshot:
    """The snapshot of a known manifest, through the session's cache.

    Raises ObjectNotFound when the manifest is gone, CorruptFile, UnsupportedFeature for unknown reader flags.
    """
    return _read(store, session, location, store.stat(location.path))


def _read(store: Store, session: Session, location: VersionLocation, stat: ObjectStat) -> Snapshot:
    manifest, inline = session.cache.get_or(
        _cache_key(store, stat), lambda: (_decoded(store, session, location), 2 * stat.size)
    )
    return Snapshot(store, manifest, location, session, inline)


def _cache_key(store: Store, stat: ObjectStat) -> tuple[str, str, str, str]:
    # A manifest is not immutable by its path: a table dropped and made again brings the path back (D37).
    return store.identity, stat.path, "manifest", stat.tag


def _last_key(store: Store) -> tuple[str, str, str, str]:
    """Where the session keeps the manifest that was decoded or made last: the next mostly begins like it."""
    return store.identity, names.VERSIONS_DIR, "last manifest", ""


def _decoded(store: Store, session: Session, location: VersionLocation) -> tuple[Manifest, TransactionLoader]:
    data = store.read(location.path)
    key = _last_key(store)
    manifest, inline = decode_manifest(data, location.path, known=session.cache.get(key))
    try:
        flags.check_reader(manifest)
    except CorruptFile as error:
        raise CorruptFile(str(error), location.path) from error
    if manifest.version != location.version:
        raise CorruptFile(
            f"the manifest says that it is version {manifest.version}, its name {location.version}",
            path=location.path,
        )
    session.cache.put(key, manifest, len(data))
    return manifest, inline


def read_transaction(store: Store, session: Session, location: VersionLocation) -> Transaction | None:
    """What produced a version, without decoding the rest of its manifest; None when it was not recorded.

    Raises ObjectNotFound when the manifest is gone, CorruptFile.
    """
    stat = store.stat(location.path)
    whole = session.cache.get(_cache_key(store, stat))
    if whole is not None:
        return Snapshot(store, whole[0], location, session, whole[1]).transaction()
    key = (store.identity, stat.path, "transaction", stat.tag)

    def decoded() -> tuple[tuple[Transaction | None, str], int]:
        found = decode_only_transaction(store.read(location.path), location.path)
        return found, TRANSACTION_BYTES

    inline, name = session.cache.get_or(key, decoded)
    return _from_file(store, name) if inline is None else inline


def _from_file(store: Store, name: str) -> Transaction | None:
    if not name:
        return None
    path = names.transaction_path(name)
    try:
        return decode_transaction(store.read(path), path)
    except ObjectNotFound:
        return None


def committed_snapshot(
    store: Store, session: Session, location: VersionLocation, manifest: Manifest, transaction: Transaction
) -> Snapshot:
    """The snapshot of a version that we have just made; kept in the session, for the next commit builds on
    it.
    """

    def inline() -> Transaction:
        return transaction

    try:
        stat = store.stat(location.path)
    except StoreError:  # the version is ours all the same; somebody else will read it from the store
        return Snapshot(store, manifest, location, session, inline)
    session.cache.put(_cache_key(store, stat), (manifest, inline), 2 * stat.size)
    session.cache.put(_last_key(store), manifest, stat.size)
    return Snapshot(store, manifest, location, session, inline)


def _damaged(store: Store, session: Session, location: VersionLocation, error: CorruptFile) -> CorruptFile:
    """The error with what a user needs next: the last version that can be read, and how to go on from it."""
    every = list_versions(store)
    older = [other for other in every if other.version < location.version]
    for other in reversed(older[-MAX_GOOD_VERSION_PROBES:]):
        try:
            read_snapshot(store, session, other)
        except (CorruptFile, ObjectNotFound):
            continue
        advice = f"the last good version before it is {other.version}: open that one by its number"
        break
    else:
        advice = "no older version can be read" if older else "there is no older version"
    if older and every[-1].version == location.version:
        advice += (
            ". Nothing is written on top of a damaged version: to go on from the one before, look at "
            f"{store.uri}/{location.path} and move it out of {names.VERSIONS_DIR}"
        )
    return CorruptFile(
        f"the manifest of version {location.version} is damaged: {error}; {advice}", location.path
    )
