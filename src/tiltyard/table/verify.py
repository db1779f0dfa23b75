"""Whether what the versions of a table name is there and says what they say (case T02, decision D8).

Every version is looked at, every file once: a file that many versions name is found bad once, with all of
them. Nothing is changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tiltyard.errors import CorruptFile, ObjectNotFound, TiltyardError, UnsupportedFeature
from tiltyard.file.reader import read_file
from tiltyard.format.index_metadata import IndexMetadata
from tiltyard.format.names import INDICES_DIR, VERSIONS_DIR, parse_manifest_name
from tiltyard.session import Session
from tiltyard.table.bases import base_place, data_place, deletion_place
from tiltyard.table.deletions import read_deletions
from tiltyard.table.index_entries import covered_fragments, kind_of
from tiltyard.table.snapshot import Snapshot, read_snapshot
from tiltyard.table.system_columns import row_ids
from tiltyard.table.versions import VersionLocation, list_versions

if TYPE_CHECKING:
    from tiltyard.format.fragment import DataFile, Fragment
    from tiltyard.store import Store

MANIFEST, DATA, DELETIONS, ROW_IDS, INDEX = "manifest", "data file", "deletion file", "row ids", "index"
"""What a finding can be about."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong: what it is about, the file (below the table's root, or whole where it lies elsewhere),
    what was found, the versions that it affects, ascending, and what to do.
    """

    about: str
    path: str
    problem: str
    versions: tuple[int, ...]
    remedy: str

    def __str__(self) -> str:
        where = f"{self.about} {self.path}" if self.path else self.about
        return f"{where}: {self.problem} (in {spans(self.versions)}); {self.remedy}"


@dataclass(frozen=True, slots=True)
class Report:
    """What was looked at, and what is wrong. `checksummed` counts the data files whose checksums were
    compared, `unsummed` those that carry none.
    """

    versions: int
    files: int
    checksummed: int
    unsummed: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class _Held:
    """What a data file holds."""

    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class _Fault:
    """A finding before its versions are known: faults that are equal are one finding."""

    about: str
    path: str
    problem: str
    remedy: str


def spans(versions: Sequence[int]) -> str:
    """`version 3`, `versions 1-4, 7`; `versions` ascending."""
    parts: list[list[int]] = []
    for version in versions:
        if parts and parts[-1][-1] + 1 == version:
            parts[-1][1:] = [version]
        else:
            parts.append([version])
    told = ", ".join("-".join(map(str, part)) for part in parts)
    return f"version{'s' if len(versions) > 1 else ''} {told}"


def every_version(store: Store) -> list[VersionLocation]:
    """The versions of a chain, ascending, and then the detached ones beside it."""
    apart = []
    for name in store.list_names(VERSIONS_DIR):
        parsed = parse_manifest_name(name)
        if parsed is not None and parsed[1] == "detached":
            apart.append(VersionLocation(parsed[0], f"{VERSIONS_DIR}/{name}", "detached"))
    return [*list_versions(store), *apart]


def verify(store: Store, locations: Iterable[VersionLocation], *, checksums: bool = False) -> Report:
    """Look at these versions. With `checksums` every data and index file is read in whole.

    Nothing that a session keeps is believed: everything is read from the store.
    """
    session = Session()
    check = _Check(store, session, checksums)
    faults: dict[_Fault, list[int]] = defaultdict(list)
    seen, good = 0, []
    for location in locations:
        try:
            snapshot = read_snapshot(store, session, location)
        except ObjectNotFound:
            continue  # removed while we looked
        except CorruptFile as error:
            seen += 1
            problem = _without(str(error), location.path)
            faults[_Fault(MANIFEST, location.path, problem, _SET_ASIDE)].append(location.version)
            continue
        found = dict.fromkeys(check.version(snapshot))
        if found and not store.exists(location.path):
            continue  # a cleanup took the version away, and its files with it
        seen += 1
        for fault in found:
            faults[fault].append(location.version)
        if not found:
            good.append(location.version)
    findings = [
        Finding(
            fault.about, fault.path, fault.problem, tuple(versions), _advice(fault.remedy, versions, good)
        )
        for fault, versions in faults.items()
    ]
    return Report(seen, check.files, check.checksummed, check.unsummed, tuple(findings))


def verify_snapshot(
    snapshot: Snapshot, fragments: Iterable[Fragment] | None = None, *, checksums: bool = False
) -> tuple[Finding, ...]:
    """What is wrong with one version, or with some of its fragments, read from the store anew."""
    session = Session()
    snapshot = replace(snapshot, session=session)
    check = _Check(snapshot.store, session, checksums)
    faults = check.version(snapshot) if fragments is None else check.fragments(snapshot, fragments)
    return tuple(
        Finding(each.about, each.path, each.problem, (snapshot.version,), each.remedy)
        for each in dict.fromkeys(faults)
    )


_SET_ASIDE = "older versions can be opened by their number; go on from one with checkout_version(N).restore()"
_PUT_BACK = "put the file back from a copy"
_WRITE_AGAIN = "write the rows again from where they came"


def _advice(remedy: str, bad: Sequence[int], good: Sequence[int]) -> str:
    """The remedy, and the newest version that does not need it."""
    older = [version for version in good if version < bad[0]]
    if not remedy.startswith(_PUT_BACK):
        return remedy
    back = f", or go back to version {older[-1]}, which is whole" if older else f", or {_WRITE_AGAIN}"
    return remedy + back


class _Check:
    """The faults of versions one after another; what was found of a file is kept for the next version."""

    def __init__(self, store: Store, session: Session, checksums: bool) -> None:
        self._store = store
        self._session = session
        self._checksums = checksums
        self._data_files: dict[tuple[str, str, int], _Held | _Fault] = {}
        self._indices: dict[str, tuple[_Fault, ...]] = {}
        self._deletion_files: set[str] = set()
        self.files = 0
        self.checksummed = 0
        self.unsummed = 0

    def version(self, snapshot: Snapshot) -> Iterator[_Fault]:
        yield from self._owners(snapshot)
        yield from self.fragments(snapshot, snapshot.fragments)
        yield from self._entries(snapshot)

    # -- fragments -------------------------------------------------------------------------------

    def _owners(self, snapshot: Snapshot) -> Iterator[_Fault]:
        """A data file belongs to one fragment (case O07). That no two have one id, decoding has checked."""
        path = snapshot.location.path
        owners: dict[tuple[int | None, str], int] = {}
        for fragment in snapshot.fragments:
            for file in fragment.files:
                first = owners.setdefault((file.base_id, file.path), fragment.id)
                if first != fragment.id:
                    problem = f"belongs to fragments {first} and {fragment.id}: its rows are there twice"
                    yield _Fault(DATA, file.path, problem, _written_wrongly(path))

    def fragments(self, snapshot: Snapshot, fragments: Iterable[Fragment]) -> Iterator[_Fault]:
        """What is wrong with the files of some fragments."""
        for fragment in fragments:
            for file in fragment.files:
                yield from self._data(snapshot, fragment, file)
            yield from self._deletions(snapshot, fragment)
            yield from self._row_ids(snapshot, fragment)

    def _data(self, snapshot: Snapshot, fragment: Fragment, file: DataFile) -> Iterator[_Fault]:
        try:
            place, path = data_place(snapshot.store, snapshot.session, snapshot.manifest, file)
        except CorruptFile as error:
            yield _Fault(DATA, file.path, str(error), _written_wrongly(snapshot.location.path))
            return
        except UnsupportedFeature as error:
            yield _Fault(DATA, file.path, str(error), "this version of tiltyard cannot look at it")
            return
        shown = self._shown(place, path)
        held = self._held(place, path, shown, file)
        if isinstance(held, _Fault):
            yield held
            return
        if fragment.physical_rows and held.rows != fragment.physical_rows:
            problem = f"holds {held.rows} rows, fragment {fragment.id} has {fragment.physical_rows}"
            yield _Fault(DATA, shown, problem, _PUT_BACK)
        columns = [column for column in file.column_indices if column >= 0]
        if len(file.fields) != len(file.column_indices):
            problem = (
                f"the manifest gives it {len(file.fields)} fields and {len(file.column_indices)} columns"
            )
            yield _Fault(DATA, shown, problem, _written_wrongly(snapshot.location.path))
        elif columns and max(columns) >= held.columns:
            problem = f"has {held.columns} columns, the manifest names column {max(columns)}"
            yield _Fault(DATA, shown, problem, _written_wrongly(snapshot.location.path))

    def _held(self, place: Store, path: str, shown: str, file: DataFile) -> _Held | _Fault:
        key = (place.identity, path, file.size)
        known = self._data_files.get(key)
        if known is None:
            self.files += 1
            known = self._data_files[key] = self._opened(place, path, shown, file)
        return known

    def _opened(self, place: Store, path: str, shown: str, file: DataFile) -> _Held | _Fault:
        try:
            reader = read_file(place.map(path, file.size or None), path, self._session)
            held = _Held(reader.num_rows, reader.num_columns)
            if self._checksums:
                if reader.verify():
                    self.checksummed += 1
                else:
                    self.unsummed += 1
        except ObjectNotFound:
            return _Fault(DATA, shown, "is missing", _PUT_BACK)
        except CorruptFile as error:
            return _Fault(DATA, shown, _without(str(error), path), _PUT_BACK)
        except UnsupportedFeature as error:
            return _Fault(DATA, shown, str(error), "this version of tiltyard cannot look at it")
        return held

    def _deletions(self, snapshot: Snapshot, fragment: Fragment) -> Iterator[_Fault]:
        if fragment.deletion is None:
            return
        shown = fragment.deletion.path(fragment.id)
        try:
            place, path = deletion_place(snapshot.store, snapshot.session, snapshot.manifest, fragment)
            shown = self._shown(place, path)
            self.files += shown not in self._deletion_files
            self._deletion_files.add(shown)
            read_deletions(snapshot.store, snapshot.session, snapshot.manifest, fragment)
        except CorruptFile as error:
            gone = isinstance(error.__cause__, ObjectNotFound)
            problem = (
                f"is missing: deleted rows of fragment {fragment.id} are not known" if gone else str(error)
            )
            yield _Fault(DELETIONS, shown, _without(problem, shown), _PUT_BACK)

    def _row_ids(self, snapshot: Snapshot, fragment: Fragment) -> Iterator[_Fault]:
        try:
            row_ids(snapshot, fragment)
        except UnsupportedFeature:
            return  # in a data file, which this version does not read
        except CorruptFile as error:
            problem = f"those of fragment {fragment.id}: {_without(str(error), snapshot.location.path)}"
            yield _Fault(ROW_IDS, "", problem, _written_wrongly(snapshot.location.path))

    # -- indices ---------------------------------------------------------------------------------

    def _entries(self, snapshot: Snapshot) -> Iterator[_Fault]:
        by_name: dict[str, list[IndexMetadata]] = defaultdict(list)
        for entry in snapshot.manifest.indices:
            by_name[entry.name].append(entry)
            if entry.uuid not in self._indices:
                self._indices[entry.uuid] = tuple(self._index_files(snapshot, entry))
            yield from self._indices[entry.uuid]
            missing = [id for id in entry.fields if not snapshot.schema.has_id(id)]
            if missing:
                problem = f"{entry.name!r} is on field {missing[0]}, which the schema does not have"
                yield _Fault(INDEX, "", problem, _build_again(entry))
        for name, entries in by_name.items():
            problem = _clash(entries)
            if problem:
                remedy = f"drop_index({name!r}) until none of this name is left, and create it once"
                yield _Fault(INDEX, "", f"{name!r} is there {len(entries)} times: {problem}", remedy)

    def _index_files(self, snapshot: Snapshot, entry: IndexMetadata) -> Iterator[_Fault]:
        if entry.is_system and not entry.files:
            return  # it has none
        place, directory = snapshot.store, f"{INDICES_DIR}/{entry.uuid}"
        try:
            if entry.base_id is not None:
                what = f"index {entry.name!r}"
                place, is_root = base_place(
                    snapshot.store, snapshot.session, snapshot.manifest, entry.base_id, what
                )
                directory = directory if is_root else entry.uuid
        except TiltyardError as error:
            yield _Fault(INDEX, directory, f"{entry.name!r}: {error}", _build_again(entry))
            return
        if not entry.files:  # old writers do not list them
            self.files += 1
            if not place.list_names(directory):
                yield _Fault(INDEX, self._shown(place, directory), "has no files", _build_again(entry))
        for file in entry.files:
            self.files += 1
            path = f"{directory}/{file.path}"
            try:
                size = place.stat(path).size
            except ObjectNotFound:
                problem = f"a file of {entry.name!r} is missing"
                yield _Fault(INDEX, self._shown(place, path), problem, _build_again(entry))
                continue
            if file.size and size != file.size:
                problem = f"a file of {entry.name!r} has {size} bytes, expected {file.size}"
                yield _Fault(INDEX, self._shown(place, path), problem, _build_again(entry))
            elif self._checksums and path.endswith(".lance"):
                yield from self._index_sums(place, path, entry)

    def _index_sums(self, place: Store, path: str, entry: IndexMetadata) -> Iterator[_Fault]:
        """Index files that we wrote carry the sums of data files; those of others are passed over."""
        try:
            read_file(place.map(path), path, self._session).verify()
        except (ObjectNotFound, UnsupportedFeature):
            return
        except CorruptFile as error:
            problem = f"a file of {entry.name!r}: {_without(str(error), path)}"
            yield _Fault(INDEX, self._shown(place, path), problem, _build_again(entry))

    def _shown(self, place: Store, path: str) -> str:
        return path if place.identity == self._store.identity else f"{place.uri.rstrip('/')}/{path}"


def _clash(entries: Sequence[IndexMetadata]) -> str:
    """Why segments of one name are no index together; empty when they are one."""
    if len({entry.fields for entry in entries}) > 1:
        return "on different columns"
    if len({kind_of(entry) for entry in entries}) > 1:
        return "of different kinds"
    seen: set[int] = set()
    for entry in entries:
        covered = covered_fragments(entry)
        if covered is None:
            continue
        if seen & covered:
            return f"both cover fragment {min(seen & covered)}"
        seen |= covered
    return ""


def _build_again(entry: IndexMetadata) -> str:
    return f"drop_index({entry.name!r}) and build it again: scans do without it meanwhile"


def _written_wrongly(path: str) -> str:
    return f"the manifest {path} was written so: do not write to the table, and go back to an older version"


def _without(message: str, path: str) -> str:
    return message.removeprefix(f"{path}: ")
