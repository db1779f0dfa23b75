"""Looking at a table before a cleanup: its files first, then its versions, tags and branches.

In this order, for a file that was committed in between is then found named. Everything that names files must
be readable and of flags that we know; else nothing is removed at all (cases K01, K06).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tiltyard.errors import CorruptFile, ObjectNotFound, UnsupportedFeature
from tiltyard.format import flags, names
from tiltyard.format.manifest import Manifest, decode_manifest
from tiltyard.session import Session
from tiltyard.store import Store, open_other
from tiltyard.table import refs
from tiltyard.table.cleanup.intents import Intent, read_intents
from tiltyard.table.cleanup.reachable import FOLDERS, Marked, Named, NamedByVersions, named_by
from tiltyard.table.cleanup.select import File, Pin, Survey, Version
from tiltyard.table.snapshot import Snapshot
from tiltyard.table.versions import list_versions

MAX_BRANCH_DEPTH = 32
"""Directories below each other in which branches are looked for; more is a loop of links."""

_NO_BRANCH = frozenset(
    (names.VERSIONS_DIR, names.TRANSACTIONS_DIR, names.DELETIONS_DIR, names.INDICES_DIR, names.PRIVATE_DIR)
)
"""Folders of a branch's own files: no branch lies below them."""


_PLACES = frozenset(
    (*(folder.partition("/")[0] for folder in FOLDERS), names.TREE_DIR, names.PRIVATE_DIR)
) | {"_mem_wal", "_blobs", "_fri"}
"""Names in a table's own directory that belong to tables."""


@dataclass(frozen=True, slots=True)
class Place:
    """A chain of versions: the table's root, which holds all tags and branches, and the chain's own store
    (the root's for main). `branch` is None for main.
    """

    root: Store
    store: Store
    branch: str | None
    session: Session


@dataclass(slots=True)
class Known:
    """What one run has read: looking again reads only manifests that are new.

    `named` grows by the versions of the chain when they are first looked at; `held` by what else names files.
    """

    named: NamedByVersions = field(default_factory=NamedByVersions)
    held: dict[str, str] = field(default_factory=dict)
    positions: dict[tuple[str, str], int] = field(default_factory=dict)
    """Where in `named` a manifest of the chain stands, by path and tag."""
    seen: set[tuple[str, str, str]] = field(default_factory=set)
    """Manifests elsewhere, by store, path and tag."""

    def hold(self, store: Store, path: str, version: int, word: str, *, every: bool) -> None:
        """Hold what a manifest names: everything, or only under base paths. Raises ObjectNotFound."""
        tag = (store.identity, path, store.stat(path).tag)
        if tag in self.seen:
            return
        named = decoded(store, path, version)
        for key in named.every if every else named.elsewhere:
            self.held.setdefault(key, word)
        self.seen.add(tag)


def decoded(store: Store, path: str, version: int) -> Named:
    """What a manifest names. Raises ObjectNotFound, CorruptFile, UnsupportedFeature for flags that we do not
    know.
    """
    return _decoded(store, path, version, None)[1]


def _decoded(
    store: Store, path: str, version: int, before: tuple[Manifest, Named] | None
) -> tuple[Manifest, Named]:
    """As `decoded`, with the manifest; `before`: another version, which this one may begin like."""
    where = f"{store.uri}/{path}"
    try:
        manifest, _ = decode_manifest(store.read(path), where, None if before is None else before[0])
        flags.check_reader(manifest)
        flags.check_writer(manifest)
        if manifest.version != version:
            raise CorruptFile(f"it says that it is version {manifest.version}", where)
        return manifest, named_by(manifest, before)
    except CorruptFile as error:
        raise CorruptFile(
            f"nothing was cleaned up: the manifest of version {version} is damaged ({error}), so that nobody "
            "can tell which files it needs; look at it, and move it away if the version is lost",
            where,
        ) from error
    except UnsupportedFeature as error:
        raise UnsupportedFeature(
            f"nothing was cleaned up: {where} may need files that this version does not know about "
            f"({error}); clean up with a newer version of tiltyard or with the program that wrote it"
        ) from error


def look(place: Place, read_version: int, known: Known) -> tuple[Survey, list[Intent]]:
    """The survey for a selection, and what earlier cleanups wrote down.

    Raises `CorruptFile`, `UnsupportedFeature`, `StoreError`: a manifest, tag or branch that cannot be read.
    """
    store = place.store
    now_ns = store.now_ns()
    files = [File(each.path, each.size, each.mtime_ns) for folder in FOLDERS for each in store.list(folder)]
    files += _strangers(store)
    earlier = read_intents(store, place.session)
    versions = _look_at_versions(place, known)
    pins = look_around(place, known)
    gone = [each.verified for each in earlier if not each.finished]  # it died, or is at the same work
    survey = Survey(
        now_ns=now_ns,
        read_version=read_version,
        versions=tuple(versions),
        named=known.named,
        files=tuple(files),
        pins=pins,
        held=known.held,
        gone=frozenset().union(*gone),
    )
    return survey, earlier


def _strangers(store: Store) -> list[File]:
    """What lies in the table's own directory and belongs to none: told in accounts, never touched."""
    found: list[File] = []
    for name in store.list_names(""):
        if name in _PLACES:
            continue
        try:
            stat = store.stat(name)
            found.append(File(name, stat.size, stat.mtime_ns))
        except ObjectNotFound:
            found.append(File(name + "/", 0, 0))  # a directory
    return found


def _look_at_versions(place: Place, known: Known) -> list[Version]:
    """Every version of the chain that is there, ascending."""
    store = place.store
    found: list[Version] = []
    last: tuple[Manifest, Named] | None = None
    for location in list_versions(store):
        try:
            stat = store.stat(location.path)
            last = _decoded(store, location.path, location.version, last)
        except ObjectNotFound:
            continue  # another cleanup was quicker
        known.positions[location.path, stat.tag] = len(known.named.versions)
        known.named.add(location.version, last[1])
        found.append(Version(location.version, location.path, stat.size, stat.mtime_ns, stat.ctime_ns))
    return found


@dataclass(slots=True)
class Needed:
    """Which keys something names now."""

    known: Known
    present: Marked
    new: set[str]

    def __contains__(self, key: str) -> bool:
        held = key in self.known.held or key in self.new
        return held or self.known.named.span(key, self.present) is not None


def needed_now(place: Place, known: Known) -> Needed:
    """Keys that any version of the chain names now, also one that was committed since the first look, or any
    branch, detached or staged manifest.
    """
    marks = [False] * len(known.named.versions)
    new: set[str] = set()
    for location in list_versions(place.store):
        try:
            position = known.positions.get((location.path, place.store.stat(location.path).tag))
            if position is None:
                new |= decoded(place.store, location.path, location.version).every
            else:
                marks[position] = True
        except ObjectNotFound:
            continue
    look_around(place, known)
    return Needed(known, Marked(marks), new)


def look_around(place: Place, known: Known) -> dict[int, tuple[Pin, ...]]:
    """What holds versions of the chain: tags and branches. What else names its files goes to `known.held`:
    other branches, detached and staged manifests.
    """
    pins: dict[int, list[Pin]] = {}
    for tag in refs.every_tag(place.root):
        if tag.branch == place.branch:
            pin = Pin(f"tag {tag.name!r} names it", tag.name, counts=not refs.is_of_clone(tag))
            pins.setdefault(tag.version, []).append(pin)
    for name, version in _forks(place):
        pins.setdefault(version, []).append(Pin(f"branch {name!r} starts from it"))
    for store, word in _other_chains(place):
        for path, version in _manifests(store):
            _hold(known, store, path, version, word, every=False)
    for path, version in _manifests(place.store, apart=True):
        _hold(known, place.store, path, version, f"{path} names it", every=True)
    return {version: tuple(each) for version, each in pins.items()}


def _hold(known: Known, store: Store, path: str, version: int, word: str, *, every: bool) -> None:
    try:
        known.hold(store, path, version, word, every=every)
    except ObjectNotFound:
        return  # removed meanwhile
    except CorruptFile:
        if names.parse_staged_manifest(path.rpartition("/")[2]) is None:
            raise
        # else unfinished: nobody can publish it


def _forks(place: Place) -> Iterator[tuple[str, int]]:
    """Branches that start from this chain, directly or through others that are gone, and the version."""
    for branch in refs.every_branch(place.root):
        if branch.parent_branch == place.branch:
            yield branch.name, branch.parent_version
        if place.branch is None and branch.identifier:
            yield branch.name, branch.identifier[0][0]


def _other_chains(place: Place) -> Iterator[tuple[Store, str]]:
    """All chains of the table but this one: also branches that are being made, and have no record yet."""
    if place.branch is not None:
        yield place.root, "the main branch names it"
    recorded = {branch.name for branch in refs.every_branch(place.root)}
    for name in sorted(recorded | set(_chains_below(place.root, names.TREE_DIR, 0))):
        if name != place.branch:
            yield place.root.at(f"{names.TREE_DIR}/{name}"), f"branch {name!r} names it"


def _chains_below(root: Store, directory: str, depth: int) -> Iterator[str]:
    """Names of the directories below `tree/` that hold versions."""
    if depth > MAX_BRANCH_DEPTH:
        raise CorruptFile(
            f"{root.uri}/{directory} lies more than {MAX_BRANCH_DEPTH} directories deep: a loop of links?"
        )
    inside = root.list_names(directory)
    is_chain = names.VERSIONS_DIR in inside
    if is_chain:
        yield directory.partition("/")[2]
    for name in inside:
        if name not in _NO_BRANCH and not (is_chain and name == names.DATA_DIR):
            yield from _chains_below(root, f"{directory}/{name}", depth + 1)


def _manifests(store: Store, *, apart: bool = False) -> Iterator[tuple[str, int]]:
    """Path and version of the manifests of a chain; `apart`: only detached and staged ones."""
    for name in store.list_names(names.VERSIONS_DIR):
        path = f"{names.VERSIONS_DIR}/{name}"
        parsed = names.parse_manifest_name(name)
        if parsed is not None and (parsed[1] == "detached" or not apart):
            yield path, parsed[0]
        elif parsed is None and (staged := names.parse_staged_manifest(name)) is not None:
            yield path, staged


def place_of(snapshot: Snapshot, root: Store | None = None) -> Place:
    """Where a version's chain is; the root is found from the chain's own place if it is not given."""
    branch = snapshot.manifest.branch
    store = snapshot.store
    if branch is None:
        return Place(store, store, None, snapshot.session)
    if root is None or root.identity == store.identity:  # opened by the branch's own place
        below = f"/{names.TREE_DIR}/{branch}"
        if not store.uri.endswith(below):
            raise CorruptFile(
                f"version {snapshot.version} says that it is of branch {branch!r}, which belongs in "
                f"{below[1:]}",
                store.uri,
            )
        root = open_other(store, store.uri.removesuffix(below))
    return Place(root, store, branch, snapshot.session)
