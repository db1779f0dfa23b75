"""Fragments of a table, their data files and deletion files (table format, sections 7.2 to 7.5).

A value that came from a manifest keeps the message it came from, so that fields which we do not know survive
when it is changed and written again. `FragmentList` makes `Fragment` values on demand (D43).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tiltyard.errors import CorruptFile
from tiltyard.format import wire
from tiltyard.format.protos import table_pb2 as pb
from tiltyard.format.version import FileVersion
from tiltyard.store.paths import is_path

TOMBSTONE = -2
"""Field id of a column that another data file of the fragment has superseded."""
MAX_FRAGMENT_ID = 2**32 - 1
MAX_FRAGMENT_ROWS = 2**32
"""Rows that a row address can tell apart within a fragment."""

_KINDS = {0: "arrow", 1: "bin"}
_KIND_NUMBERS = {name: number for number, name in _KINDS.items()}


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file with some columns of a fragment's rows.

    `path` is relative to `data/`; `fields[i]` is the field id stored in column `column_indices[i]` (negative
    ids are system ids); `major` and `minor` name the file version; `size` in bytes, 0 when unknown; `base_id`
    names the base path, `None` the table's own root.
    """

    path: str
    fields: tuple[int, ...]
    column_indices: tuple[int, ...]
    major: int = 2
    minor: int = 2
    size: int = 0
    base_id: int | None = None
    _source: Any = field(default=None, repr=False, compare=False, kw_only=True)

    @property
    def version(self) -> FileVersion | None:
        """The version of the file; `None` for legacy files and versions that we do not know."""
        return FileVersion.of_footer(self.major, self.minor)

    @property
    def is_legacy(self) -> bool:
        """Whether the file is of the first format generation, which has no column indices."""
        return self.major == 0 and self.minor < 3


@dataclass(frozen=True, slots=True)
class DeletionFile:
    """Where deleted rows of a fragment stand. `kind` is `arrow` or `bin`; `rows` counts the deleted rows."""

    kind: str
    read_version: int
    id: int
    rows: int
    base_id: int | None = None
    _source: Any = field(default=None, repr=False, compare=False, kw_only=True)

    def path(self, fragment_id: int) -> str:
        """The path below the table's root."""
        return f"_deletions/{fragment_id}-{self.read_version}-{self.id}.{self.kind}"


@dataclass(frozen=True, slots=True)
class DataOverlay:
    """New values for some cells of a fragment. Known so that it can be carried over; never applied."""

    data_file: DataFile
    shared_offsets: bytes | None
    field_coverage: tuple[bytes, ...] | None
    committed_version: int
    _source: Any = field(default=None, repr=False, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Fragment:
    """A horizontal slice of a table.

    `physical_rows` includes deleted rows. `row_ids`, `last_updated_versions` and `created_versions` are
    serialized sequences (see `row_ids.py`), `None` when the fragment has none; where a `spilled_` mark is
    set, the sequence is a hidden column of a data file instead.
    """

    id: int
    files: tuple[DataFile, ...]
    physical_rows: int
    deletion: DeletionFile | None = None
    row_ids: bytes | None = None
    last_updated_versions: bytes | None = None
    created_versions: bytes | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    overlays: tuple[DataOverlay, ...] = ()
    spilled_row_ids: bool = False
    spilled_last_updated: bool = False
    spilled_created: bool = False
    _source: Any = field(default=None, repr=False, compare=False, kw_only=True)
    _is_source: bool = field(default=False, init=False, repr=False, compare=False)
    """Whether the message that it came from says just this; a changed copy is made without it."""

    @property
    def num_rows(self) -> int:
        """Live rows."""
        return self.physical_rows - (self.deletion.rows if self.deletion else 0)

    @property
    def is_spilled(self) -> bool:
        """Whether any row lineage stands in a hidden column."""
        return self.spilled_row_ids or self.spilled_last_updated or self.spilled_created

    @property
    def has_row_ids(self) -> bool:
        """Whether the fragment carries stable row ids in any form."""
        return self.row_ids is not None or self.spilled_row_ids


class FragmentList(Sequence[Fragment]):
    """The fragments of a version, made on demand. Immutable; safe to share among threads.

    `ids`, `physical_rows` and `deleted_rows` are int64 arrays in the order of the list. Lists made from
    another one share its entries, so that an append touches only what it adds.
    """

    __slots__ = ("_arrays", "_begins_as", "_encoded", "_made", "_messages", "_path", "_traits")

    def __init__(self, messages: Sequence[Any] = (), path: str | None = None) -> None:
        self._messages: Sequence[Any] = messages
        self._path = path  # the manifest that they came from, for messages
        self._made: dict[int, Fragment] = {}
        self._arrays: tuple[npt.NDArray[np.int64], ...] | None = None
        self._traits: tuple[bool, bool, bool] | None = None
        self._encoded: bytes | None = None
        self._begins_as: Sequence[Any] | None = None  # the entries of the list that this one was appended to

    @classmethod
    def of(cls, fragments: Iterable[Fragment]) -> FragmentList:
        """A list of given fragments, in their order."""
        if isinstance(fragments, FragmentList):
            return fragments
        return cls([encode_fragment(each) for each in fragments])

    @classmethod
    def decode(cls, data: bytes, path: str = "") -> FragmentList:
        """The list from the bytes of `encode`."""
        return cls(list(wire.parse(pb.Manifest, data, path, "fragments").fragments))

    def __reduce__(self) -> tuple[Any, ...]:
        return FragmentList.decode, (self.encode(),)

    def __len__(self) -> int:
        return len(self._messages)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return FragmentList(self._messages[index])
        at = index + len(self) if index < 0 else int(index)
        found = self._made.get(at)
        if found is None:
            try:
                found = self._made[at] = decode_fragment(self._messages[at])
            except CorruptFile as error:
                raise CorruptFile(str(error), self._path) from error
        return found

    def __iter__(self) -> Iterator[Fragment]:
        return (self[at] for at in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FragmentList):
            return NotImplemented
        return len(self) == len(other) and all(map(_equal, self._messages, other._messages))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"FragmentList({len(self)} fragments)"

    # -- what planning needs -----------------------------------------------------------------------

    def _columns(self) -> tuple[npt.NDArray[np.int64], ...]:
        if self._arrays is None:
            messages = self._messages
            ids = [each.id for each in messages]
            rows = [each.physical_rows for each in messages]
            gone = [
                each.deletion_file.num_deleted_rows if each.HasField("deletion_file") else 0
                for each in messages
            ]
            try:
                self._arrays = tuple(np.array(each, np.int64) for each in (ids, rows, gone))
            except OverflowError:
                raise CorruptFile("a fragment's id or row count does not fit 63 bits", self._path) from None
        return self._arrays

    def check(self) -> None:
        """Raise `CorruptFile` for ids and counts that no table has: what plans and allocates may believe
        them.
        """
        ids, rows, gone = self._columns()
        for at in np.flatnonzero((ids > MAX_FRAGMENT_ID) | (rows > MAX_FRAGMENT_ROWS) | (gone > rows)):
            id, has, lost = int(ids[at]), int(rows[at]), int(gone[at])
            if id > MAX_FRAGMENT_ID:
                raise CorruptFile(f"fragment id {id} does not fit 32 bits", self._path)
            if has > MAX_FRAGMENT_ROWS or lost > MAX_FRAGMENT_ROWS:
                raise CorruptFile(
                    f"fragment {id} is said to have {max(has, lost)} rows, more than a fragment can have",
                    self._path,
                )
            if has:  # 0: unknown
                raise CorruptFile(
                    f"fragment {id} is said to have {has} rows, {lost} of them deleted", self._path
                )
        if not (ids[1:] > ids[:-1]).all():
            known, times = np.unique(ids, return_counts=True)
            if len(known) < len(ids):
                raise CorruptFile(f"two fragments have id {int(known[times > 1][0])}", self._path)

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        """Fragment ids."""
        return self._columns()[0]

    @property
    def physical_rows(self) -> npt.NDArray[np.int64]:
        """Rows of each fragment, deleted ones included (0: unknown, in very old tables)."""
        return self._columns()[1]

    @property
    def deleted_rows(self) -> npt.NDArray[np.int64]:
        """Deleted rows of each fragment."""
        return self._columns()[2]

    @property
    def num_rows(self) -> int:
        """Live rows of all fragments."""
        return int(np.maximum(self.physical_rows - self.deleted_rows, 0).sum())

    def _marks(self) -> tuple[bool, bool, bool]:
        if self._traits is None:
            self._traits = _traits_of(self._messages)
        return self._traits

    @property
    def any_deletions(self) -> bool:
        """Whether any fragment names a deletion file."""
        return self._marks()[0]

    @property
    def any_overlays(self) -> bool:
        """Whether any fragment has overlays."""
        return self._marks()[1]

    @property
    def any_spilled(self) -> bool:
        """Whether any fragment keeps row lineage in a hidden column."""
        return self._marks()[2]

    @property
    def all_have_row_ids(self) -> bool:
        """Whether every fragment carries stable row ids."""
        return all(
            each.HasField("inline_row_ids") or each.HasField("column_row_ids") for each in self._messages
        )

    def file_versions(self, since: FragmentList | None = None) -> set[tuple[int, int]]:
        """Major and minor versions of data files; `since`: only of fragments that the other list does not
        share.
        """
        added = self._not_shared_with(since)
        return {(file.file_major_version, file.file_minor_version) for each in added for file in each.files}

    def begins_as(self, other: FragmentList) -> bool:
        """Whether this list was made by appending to the other one."""
        return other._messages is self._begins_as

    def _not_shared_with(self, since: FragmentList | None) -> Sequence[Any]:
        if since is None:
            return self._messages
        if since._messages is self._begins_as:
            return self._messages[len(since) :]
        shared = set(map(id, since._messages))
        return [each for each in self._messages if id(each) not in shared]

    def file_names(self, since: FragmentList | None = None) -> tuple[set[str], set[str]]:
        """Paths, below a table's root, of all files that the fragments name: those under the table's own
        root, and those under base paths; `since`: only of fragments that the other list does not share. Read
        from the messages: no `Fragment` is made.
        """
        fragments = self._not_shared_with(since)
        own = {
            f"data/{file.path}" for each in fragments for file in each.files if not file.HasField("base_id")
        }
        elsewhere = {
            f"data/{file.path}" for each in fragments for file in each.files if file.HasField("base_id")
        }
        for fragment in fragments:
            for overlay in fragment.overlays:
                file = overlay.data_file
                (elsewhere if file.HasField("base_id") else own).add(f"data/{file.path}")
            if fragment.HasField("deletion_file"):
                deletion = _decode_deletion(fragment.deletion_file, fragment.id)
                (own if deletion.base_id is None else elsewhere).add(deletion.path(fragment.id))
        return own, elsewhere

    @property
    def max_id(self) -> int | None:
        """The greatest id; `None` without fragments."""
        return int(self.ids.max()) if len(self) else None

    def position(self, id: int) -> int | None:
        """Where the fragment of an id stands in the list; `None` when it does not."""
        ids = self.ids
        at = int(np.searchsorted(ids, id))
        if at < len(ids) and ids[at] == id:
            return at
        found = np.flatnonzero(ids == id)  # a list out of order
        return int(found[0]) if len(found) else None

    def positions(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Where the fragment of each id stands in the list; -1 when it does not."""
        own = self.ids
        if not len(own):
            return np.full(len(ids), -1, np.int64)
        order = None if bool((own[1:] > own[:-1]).all()) else np.argsort(own)  # a list out of order
        at = np.minimum(np.searchsorted(own, ids, sorter=order), len(own) - 1)
        found: npt.NDArray[np.int64] = at if order is None else order[at]
        return np.where(own[found] == ids, found, -1)

    def by_id(self, id: int) -> Fragment | None:
        """The fragment of an id; `None` when the list does not have it."""
        at = self.position(id)
        return None if at is None else self[at]

    def by_ids(self, ids: Sequence[int]) -> list[Fragment | None]:
        """The fragments of some ids, `None` beside those that the list does not have."""
        wanted, known = np.array(ids, np.int64), self.ids
        if not len(known):
            return [None] * len(wanted)
        order = np.argsort(known, kind="stable")
        at = order[np.minimum(np.searchsorted(known, wanted, sorter=order), len(known) - 1)]
        there = (known[at] == wanted).tolist()
        return [self[place] if is_there else None for place, is_there in zip(at.tolist(), there, strict=True)]

    # -- lists from this one -----------------------------------------------------------------------

    def appended(self, fragments: Iterable[Fragment]) -> FragmentList:
        """This list followed by more fragments; what is already there is carried over as it is."""
        return self._followed_by(FragmentList.of(fragments))

    def followed_by(self, messages: Sequence[Any], path: str) -> FragmentList:
        """This list followed by fragments in the form that a manifest holds them in; `path` is that
        manifest's.
        """
        return self._followed_by(FragmentList(messages, path))

    def _followed_by(self, added: FragmentList) -> FragmentList:
        grown = FragmentList([*self._messages, *added._messages], added._path or self._path)
        grown._begins_as = self._messages
        if self._arrays is not None:
            pairs = zip(self._arrays, added._columns(), strict=True)
            grown._arrays = tuple(np.concatenate(pair) for pair in pairs)
        if self._traits is not None:
            mine, more = self._traits, added._marks()
            grown._traits = (mine[0] or more[0], mine[1] or more[1], mine[2] or more[2])
        if self._encoded is not None:
            grown._encoded = self._encoded + added.encode()
        return grown

    def replaced(self, changes: Mapping[int, Fragment]) -> FragmentList:
        """This list with the fragments of some ids replaced. Raises `KeyError` for an id that it does not
        have.
        """
        messages = list(self._messages)
        for id, fragment in changes.items():
            at = self.position(id)
            if at is None:
                raise KeyError(id)
            messages[at] = encode_fragment(fragment)
        return FragmentList(messages)

    def without(self, ids: Iterable[int]) -> FragmentList:
        """This list less the fragments of some ids."""
        keep = ~np.isin(self.ids, np.fromiter(ids, np.int64))
        if keep.all():
            return self
        return FragmentList([self._messages[at] for at in np.flatnonzero(keep).tolist()])

    def sorted_by_id(self) -> FragmentList:
        """This list in ascending order of ids."""
        ids = self.ids
        if len(ids) < 2 or (ids[1:] >= ids[:-1]).all():
            return self
        return FragmentList([self._messages[at] for at in np.argsort(ids, kind="stable").tolist()])

    def encode(self) -> bytes:
        """The bytes of all fragments as they stand in a manifest."""
        if self._encoded is None:
            whole = pb.Manifest()
            whole.fragments.extend(self._messages)
            self._encoded = whole.SerializeToString(deterministic=True)
        return self._encoded


def _equal(one: Any, other: Any) -> bool:
    return bool(one == other)


def _traits_of(messages: Sequence[Any]) -> tuple[bool, bool, bool]:
    return (
        any(each.HasField("deletion_file") for each in messages),
        any(each.overlays for each in messages),
        any(
            each.HasField("column_row_ids")
            or each.HasField("column_last_updated_at_versions")
            or each.HasField("column_created_at_versions")
            for each in messages
        ),
    )


# -- messages ------------------------------------------------------------------------------------


def decode_fragment(m: Any) -> Fragment:
    """A fragment from its message. Raises `CorruptFile` for an id, path or kind that the format does not
    have.
    """
    if m.id > MAX_FRAGMENT_ID:
        raise CorruptFile(f"fragment id {m.id} does not fit 32 bits")
    for file in m.files:
        if not is_path(file.path):
            raise CorruptFile(
                f"fragment {m.id} names the data file {file.path!r}, which is no path below a directory"
            )
    fragment = Fragment(
        m.id,
        tuple([decode_data_file(each) for each in m.files]),
        m.physical_rows,
        _decode_deletion(m.deletion_file, m.id) if m.HasField("deletion_file") else None,
        m.inline_row_ids if m.HasField("inline_row_ids") else None,
        m.inline_last_updated_at_versions if m.HasField("inline_last_updated_at_versions") else None,
        m.inline_created_at_versions if m.HasField("inline_created_at_versions") else None,
        dict(m.metadata),
        tuple([decode_overlay(each) for each in m.overlays]),
        m.HasField("column_row_ids"),
        m.HasField("column_last_updated_at_versions"),
        m.HasField("column_created_at_versions"),
        _source=m,
    )
    object.__setattr__(fragment, "_is_source", True)
    return fragment


def decode_data_file(m: Any) -> DataFile:
    """A data file from its message."""
    return DataFile(
        m.path,
        tuple(m.fields),
        tuple(m.column_indices),
        m.file_major_version,
        m.file_minor_version,
        m.file_size_bytes,
        m.base_id if m.HasField("base_id") else None,
        _source=m,
    )


def _decode_deletion(m: Any, fragment_id: int) -> DeletionFile:
    kind = _KINDS.get(m.file_type)
    if kind is None:
        raise CorruptFile(f"fragment {fragment_id} has a deletion file of unknown type {m.file_type}")
    base = m.base_id if m.HasField("base_id") else None
    return DeletionFile(kind, m.read_version, m.id, m.num_deleted_rows, base, _source=m)


def decode_overlay(m: Any) -> DataOverlay:
    """An overlay from its message."""
    coverage = m.WhichOneof("coverage")
    return DataOverlay(
        decode_data_file(m.data_file),
        m.shared_offset_bitmap if coverage == "shared_offset_bitmap" else None,
        tuple(m.field_coverage.bitmaps) if coverage == "field_coverage" else None,
        m.committed_version,
        _source=m,
    )


def encode_fragment(each: Fragment) -> Any:
    """The message of a fragment, with the unknown fields of the one it came from. It is not to be changed."""
    if each._is_source:
        return each._source
    m = pb.DataFragment(
        id=each.id,
        files=[encode_data_file(file) for file in each.files],
        deletion_file=_encode_deletion(each.deletion) if each.deletion else None,
        physical_rows=each.physical_rows,
        inline_row_ids=each.row_ids,
        inline_last_updated_at_versions=each.last_updated_versions,
        inline_created_at_versions=each.created_versions,
        overlays=[encode_overlay(overlay) for overlay in each.overlays],
        metadata=each.metadata,
    )
    if each.spilled_row_ids:
        m.column_row_ids.SetInParent()
    if each.spilled_last_updated:
        m.column_last_updated_at_versions.SetInParent()
    if each.spilled_created:
        m.column_created_at_versions.SetInParent()
    wire.carry_unknown(each._source, m)
    return m


def encode_data_file(each: DataFile) -> Any:
    """The message of a data file."""
    m = pb.DataFile(
        path=each.path,
        fields=each.fields,
        column_indices=each.column_indices,
        file_major_version=each.major,
        file_minor_version=each.minor,
        file_size_bytes=each.size,
        base_id=each.base_id,
    )
    wire.carry_unknown(each._source, m)
    return m


def _encode_deletion(each: DeletionFile) -> Any:
    m = pb.DeletionFile(
        file_type=_KIND_NUMBERS[each.kind],
        read_version=each.read_version,
        id=each.id,
        num_deleted_rows=each.rows,
        base_id=each.base_id,
    )
    wire.carry_unknown(each._source, m)
    return m


def encode_overlay(each: DataOverlay) -> Any:
    """The message of an overlay."""
    m = pb.DataOverlayFile(
        data_file=encode_data_file(each.data_file), committed_version=each.committed_version
    )
    if each.shared_offsets is not None:
        m.shared_offset_bitmap = each.shared_offsets
    if each.field_coverage is not None:
        m.field_coverage.SetInParent()
        m.field_coverage.bitmaps.extend(each.field_coverage)
    wire.carry_unknown(each._source, m)
    return m
