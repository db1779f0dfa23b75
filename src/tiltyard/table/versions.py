"""Which versions there are, and which is the latest (decision D13; table format, section 2).

On a local disk the directory's modification time answers most questions with one call; else its names are
listed, on object stores the first page of them, where the newest stands first. The hint file is written for
other programs and never used to find a version: nothing around it can confirm it
(docs/design/002-latest-version.md).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from tiltyard.errors import CorruptFile, ObjectNotFound, StoreError, TableNotFound, VersionNotFound
from tiltyard.format import names
from tiltyard.format.names import Naming
from tiltyard.session import Session
from tiltyard.store import ObjectStat, Store

RACY_NS = 20_000_000
"""A directory time younger than this when it was looked at may hide a later change in the same clock tick
(ns).
"""

V2_NAME_LENGTH = len(names.manifest_name(1, "V2"))
"""Every V2 name has this length, and no name of the other scheme that stands beside them."""

V2_BEGINNING = names.manifest_name(1, "V2")[:9]
"""How the V2 names of all but absurdly high versions begin, and the first text after all that begin so."""
V2_END = V2_BEGINNING[:-1] + chr(ord(V2_BEGINNING[-1]) + 1)

NAMINGS: tuple[Naming, ...] = ("V2", "V1")
"""The schemes of names on a chain of versions, the usual one first."""

MAX_RUNS_SHOWN = 8
MAX_HINT_BYTES = 1024
LOCATION_BYTES = 256
"""What one cached location is accounted as (bytes)."""


@dataclass(frozen=True, slots=True)
class VersionLocation:
    """Where the manifest of one version is. `naming` is `V1`, `V2` or `detached`."""

    version: int
    path: str
    naming: Naming


@dataclass(frozen=True, slots=True)
class Found:
    """A version that was looked for, mostly the newest.

    `by_time`: only the time of the directory was compared; of another directory that has come to the name and
    was changed in the same tick of the clock, that says nothing. `stat`: the manifest's facts, where looking
    for it has told them.
    """

    location: VersionLocation
    by_time: bool = False
    stat: ObjectStat | None = None


@dataclass(frozen=True, slots=True)
class _Seen:
    """The latest version as it was when the directory had this time."""

    location: VersionLocation
    directory_ns: int
    looked_ns: int


def latest(store: Store, session: Session) -> VersionLocation:
    """The newest version on this store's chain; detached ones do not count.

    Raises TableNotFound when there is no table, CorruptFile when both manifest naming schemes are in use.
    """
    return newest(store, session).location


def newest(store: Store, session: Session) -> Found:
    """As `latest`, with how it was found."""
    found = _newest(store, session)
    if found is None:
        raise _no_table(store)
    return found


def forget(store: Store, session: Session) -> None:
    """Have the next look list the versions."""
    session.cache.drop(_seen_key(store))


def _no_table(store: Store) -> TableNotFound:
    try:
        store.dir_stat(names.VERSIONS_DIR)
    except ObjectNotFound as error:  # says so, too, if the directory was removed under an open store
        return TableNotFound(f"no Lance table at {store.uri}: {error}")
    return TableNotFound(f"no Lance table at {store.uri}: {names.VERSIONS_DIR} holds no manifest")


def latest_or_none(store: Store, session: Session) -> VersionLocation | None:
    """As `latest`, None where there is no table."""
    found = _newest(store, session)
    return None if found is None else found.location


def _newest(store: Store, session: Session) -> Found | None:
    if (paged := getattr(store, "first_page", None)) is not None:
        return _listed_first(store, *paged(names.VERSIONS_DIR))
    try:
        # Before anything else: what changes after this moment shows as another time next time.
        directory_ns = store.dir_stat(names.VERSIONS_DIR)
    except ObjectNotFound:
        return None
    if directory_ns is None:
        return _of(_greatest(store))
    key = _seen_key(store)
    seen: _Seen | None = session.cache.get(key)
    if seen is not None and seen.directory_ns == directory_ns and seen.looked_ns - directory_ns > RACY_NS:
        return Found(seen.location, by_time=True)
    looked_ns = store.now_ns()
    found = _greatest(store)
    if found is not None:
        session.cache.put(key, _Seen(found, directory_ns, looked_ns), LOCATION_BYTES)
    return _of(found)


def _of(location: VersionLocation | None) -> Found | None:
    return None if location is None else Found(location)


def _listed_first(store: Store, page: Sequence[ObjectStat], whole: bool) -> Found | None:
    """The newest version by the beginning of a listing; by all of it where that does not tell."""
    listed = {each.path.rpartition("/")[2]: each for each in page}
    found = _greatest_of(store, sorted(listed))
    if found is None:
        return None if whole else _of(_greatest(store))
    return Found(found, stat=listed.get(found.path.rpartition("/")[2]))


def _seen_key(store: Store) -> tuple[str, str, str, str]:
    return store.identity, names.VERSIONS_DIR, "latest", ""


def read_hint(store: Store) -> int | None:
    """The version that the hint names; None for a hint that is absent, empty, torn or nonsense.

    Raises StoreError when it cannot be read: what it says is then not known.
    """
    try:
        data = store.read(names.HINT_PATH).to_pybytes()
    except (ObjectNotFound, CorruptFile):
        return None
    return names.parse_hint(data) if len(data) <= MAX_HINT_BYTES else None


def _greatest(store: Store) -> VersionLocation | None:
    return _greatest_of(store, store.list_names(names.VERSIONS_DIR))


def _greatest_of(store: Store, listed: Sequence[str]) -> VersionLocation | None:
    """The newest of a sorted listing, which begins where the whole one does."""
    if any(
        parsed is not None and parsed[1] == "V1" for parsed in map(names.parse_manifest_name, _odd(listed))
    ):
        found = list_versions(store)
        return found[-1] if found else None
    for name in listed:  # sorted: V2 names count down in a fixed width, so the first one is the newest
        parsed = names.parse_manifest_name(name)
        if parsed is not None and parsed[1] == "V2":
            return VersionLocation(parsed[0], f"{names.VERSIONS_DIR}/{name}", "V2")
    return None


def _odd(listed: Sequence[str]) -> Sequence[str]:
    """The names of a sorted listing that are no V2 names by their length; without a loop where that shows."""
    first = bisect_left(listed, V2_BEGINNING)
    end = bisect_left(listed, V2_END)
    alike = listed[first:end]
    others = [*listed[:first], *listed[end:]]
    if set(map(len, alike)) - {V2_NAME_LENGTH}:
        others += alike
    return [name for name in others if len(name) != V2_NAME_LENGTH]


def list_versions(store: Store) -> list[VersionLocation]:
    """All versions on the chain, ascending; detached ones left out.

    Raises CorruptFile when both naming schemes are in use: which version is the latest cannot be told then.
    """
    found = list_names(store)
    if len({location.naming for location in found}) > 1:
        raise CorruptFile(
            "both manifest naming schemes are used in one directory; finish the migration to V2 names first",
            path=f"{store.uri}/{names.VERSIONS_DIR}",
        )
    return found


def list_names(store: Store, above: int = 0) -> list[VersionLocation]:
    """As `list_versions`, whatever the naming schemes: a version may stand there under both. Versions up to
    `above` are left out.
    """
    found: list[VersionLocation] = []
    newest_first = names.manifest_name(above, "V2") if above else ""
    for name in store.list_names(names.VERSIONS_DIR):
        if newest_first and len(name) == V2_NAME_LENGTH and name >= newest_first:
            continue
        parsed = names.parse_manifest_name(name)
        if parsed is not None and parsed[1] != "detached" and parsed[0] > above:
            found.append(VersionLocation(parsed[0], f"{names.VERSIONS_DIR}/{name}", parsed[1]))
    found.sort(key=lambda location: location.version)
    return found


def locate(store: Store, version: int) -> VersionLocation:
    """The manifest of one version. Raises VersionNotFound, which says the range or that it was removed."""
    return located(store, version).location


def located(store: Store, version: int) -> Found:
    """As `locate`, with the manifest's facts where asking for them is all that it takes."""
    if version >= names.DETACHED_BIT:
        namings: Sequence[Naming] = ("detached",)
    else:
        namings = NAMINGS
    if 0 < version < 2 * names.DETACHED_BIT:
        for naming in namings:
            path = names.manifest_path(version, naming)
            location = VersionLocation(version, path, naming)
            if hasattr(store, "first_page"):
                with suppress(ObjectNotFound):
                    return Found(location, stat=store.stat(path))
            elif store.exists(path):
                return Found(location)
    raise not_found(store, version)


def blocked(store: Store, location: VersionLocation) -> StoreError | None:
    """The error where something stands under a manifest's name that is no file; None where nothing does, or
    a manifest.
    """
    name = location.path.rpartition("/")[2]
    for _ in range(2):  # a version may come or go while we look; what is no file stays
        if store.exists(location.path) or name not in store.list_names(names.VERSIONS_DIR):
            return None
    return StoreError(
        f"{store.uri}/{location.path}, where the manifest of version {location.version} belongs, is no file "
        "but a directory or a link that leads nowhere: look at it, and move it away"
    )


def not_found(store: Store, version: int) -> TableNotFound | VersionNotFound | StoreError:
    """The error for a version that is not there: out of range, removed meanwhile, or no file."""
    found = list_versions(store)
    for location in found:
        if location.version == version and (error := blocked(store, location)) is not None:
            return error
    present = [location.version for location in found]
    if not present:
        return TableNotFound(f"no Lance table at {store.uri}: {names.VERSIONS_DIR} holds no manifest")
    if 0 < version < present[0] and f"/{names.TREE_DIR}/" in store.uri:  # a branch begins where it was made
        return VersionNotFound(
            f"version {version} of {store.uri} is not there: it is older than the branch, or was removed by "
            f"a cleanup; those of the branch are {ranges(present)}"
        )
    if 0 < version < present[-1]:
        return VersionNotFound(
            f"version {version} of {store.uri} was removed by a cleanup; those left are {ranges(present)}"
        )
    return VersionNotFound(
        f"version {version} of {store.uri} does not exist; there are versions {ranges(present)}"
    )


def ranges(versions: Sequence[int]) -> str:
    """Ascending numbers as text, runs joined: "2, 5 to 9" (the ends only when there are many runs)."""
    runs: list[list[int]] = []
    for version in versions:
        if runs and version == runs[-1][1] + 1:
            runs[-1][1] = version
        else:
            runs.append([version, version])
    if len(runs) > MAX_RUNS_SHOWN:
        return f"{len(versions)} between {versions[0]} and {versions[-1]}"
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in runs)
