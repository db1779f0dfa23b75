"""Reading columns of one fragment, whose fields may lie in several data files (table format, sections 7.3 and
14).

A *layout* says, for the fields asked for, which file holds which part of each tree; fragments that were
written alike share one layout. Children of one struct that come from different files are zipped; what no file
holds is null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiltyard.errors import CorruptFile, ObjectNotFound, UnsupportedFeature
from tiltyard.file.nulls import null_array
from tiltyard.file.reader import open_file
from tiltyard.format.fragment import DataFile, Fragment
from tiltyard.format.schema import Field, Schema
from tiltyard.table.bases import data_place
from tiltyard.table.projection import prune

if TYPE_CHECKING:
    from tiltyard.file.reader import FileReader
    from tiltyard.session import Session
    from tiltyard.table.snapshot import Snapshot

Rows = slice | npt.NDArray[np.int64]

KEPT_BYTES = 1024  # what the layouts of one field are accounted as in the session's cache
LAYOUTS_KEPT = 256  # layouts of one projection; beyond that they are made again


@dataclass(frozen=True, slots=True)
class Part:
    """What one data file contributes: pruned trees and the column of each of their leaves."""

    file: int
    fields: tuple[Field, ...]
    columns: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Layout:
    """`parts` to read; `pieces[i]` lists (part, position in it) of field i, in file order; empty means
    null.
    """

    parts: tuple[Part, ...]
    pieces: tuple[tuple[tuple[int, int], ...], ...]
    whole: bool
    """Whether one part gives every field, in order."""


def layout_of(files: Sequence[DataFile], fields: Sequence[Field]) -> Layout:
    """Place the leaves of `fields` in `files`. Pure. Negative ids and ids outside `fields` are skipped."""
    wanted = {leaf.id for field in fields for leaf in field.leaves()}
    above = {each.id for field in fields for each in field.walk()} - wanted
    parts: list[Part] = []
    pieces: list[list[tuple[int, int]]] = [[] for _ in fields]
    for number, file in enumerate(files):
        columns = {
            id: column
            for id, column in zip(file.fields, file.column_indices, strict=True)
            if id in wanted and column >= 0
        }
        if not columns:
            continue
        wanted.difference_update(columns)  # the first file that has a field holds it
        held = frozenset(columns)
        # In files of version 2.0 lists and structs have columns too; each is read with what is below it.
        columns |= {
            id: column
            for id, column in zip(file.fields, file.column_indices, strict=True)
            if id in above and column >= 0
        }
        kept = [(i, part) for i, field in enumerate(fields) if (part := prune(field, held)) is not None]
        for position, (i, _) in enumerate(kept):
            pieces[i].append((len(parts), position))
        parts.append(Part(number, tuple(part for _, part in kept), columns))
    whole = (
        len(parts) == 1
        and len(parts[0].fields) == len(fields)
        and all(part == field for part, field in zip(parts[0].fields, fields, strict=True))
    )
    return Layout(tuple(parts), tuple(tuple(each) for each in pieces), whole)


@dataclass(frozen=True, slots=True)
class _Kept:
    """Layouts of one choice of fields of one schema, kept from scan to scan: file readers plan once per
    layout.
    """

    schema: Schema
    fields: tuple[Field, ...]
    layouts: dict[Any, Layout]


class FragmentColumns:
    """Reads the same `fields` from any fragment of a snapshot; shares layouts. Safe among threads."""

    def __init__(self, snapshot: Snapshot, fields: tuple[Field, ...]) -> None:
        self._snapshot = snapshot
        self.fields = fields
        self._layouts: dict[Any, Layout] = {}

    @classmethod
    def of(cls, snapshot: Snapshot, fields: tuple[Field, ...]) -> FragmentColumns:
        """The same, with what earlier readers of these fields have found out."""
        cache = snapshot.session.cache
        key = (snapshot.store.identity, "layouts", tuple([_ids(field) for field in fields]))
        kept: _Kept | None = cache.get(key)
        if kept is None or kept.schema is not snapshot.schema:
            kept = _Kept(snapshot.schema, fields, {})
            cache.put(key, kept, KEPT_BYTES + KEPT_BYTES * len(fields))
        made = cls(snapshot, kept.fields)
        made._layouts = kept.layouts
        return made

    def layout(self, fragment: Fragment) -> Layout:
        key = tuple((file.fields, file.column_indices) for file in fragment.files)
        found = self._layouts.get(key)
        if found is None:
            for file in fragment.files:
                if file.major != 2:
                    raise UnsupportedFeature(
                        f"data file {file.path} has the legacy version {file.major}.{file.minor}; write the "
                        "table again with the official package to bring it to version 2"
                    )
                if len(file.fields) != len(file.column_indices):
                    raise CorruptFile(
                        f"the manifest of version {self._snapshot.version} gives data file {file.path} "
                        f"{len(file.fields)} fields and {len(file.column_indices)} columns",
                        path=self._snapshot.location.path,
                    )
                held = [id for id in file.fields if id >= 0]
                if len(set(held)) < len(held):
                    raise CorruptFile(
                        f"the manifest of version {self._snapshot.version} gives data file {file.path} "
                        "a field twice",
                        path=self._snapshot.location.path,
                    )
            found = layout_of(fragment.files, self.fields)
            if len(self._layouts) < LAYOUTS_KEPT:
                self._layouts[key] = found
        return found

    def open(self, fragment: Fragment, file: DataFile) -> FileReader:
        """The reader of one of the fragment's files. One that is missing, or has another number of rows than
        the fragment, raises `CorruptFile` naming file and version.
        """
        snapshot = self._snapshot
        store, path = data_place(snapshot.store, snapshot.session, snapshot.manifest, file)
        try:
            found = open_file(store, path, size=file.size or None, session=snapshot.session)
        except ObjectNotFound as error:
            raise CorruptFile(
                f"data file of fragment {fragment.id} is missing in version {snapshot.version} of "
                f"{snapshot.store.uri}; read an older version or restore one",
                path=path,
            ) from error
        if found.num_rows != fragment.physical_rows and fragment.physical_rows:  # 0: unknown
            raise CorruptFile(
                f"holds {found.num_rows} rows, but fragment {fragment.id} has {fragment.physical_rows} in "
                f"version {snapshot.version} of {snapshot.store.uri}",
                path=path,
            )
        return found

    def check_rows(self, fragment: Fragment) -> None:
        """Raise `CorruptFile` unless the fragment's first file has as many rows as the manifest says: before
        anything is made of that size.
        """
        if fragment.files:
            self.open(fragment, fragment.files[0])

    def whole(self, fragment: Fragment) -> tuple[FileReader, Part] | None:
        """The one file that holds all fields, and which part of it; None where it takes several."""
        layout = self.layout(fragment)
        if not layout.whole:
            return None
        part = layout.parts[0]
        return self.open(fragment, fragment.files[part.file]), part

    def files(self, fragment: Fragment) -> list[tuple[FileReader, Part]]:
        """The files that hold the fields, and what each is read for."""
        return [
            (self.open(fragment, fragment.files[part.file]), part) for part in self.layout(fragment).parts
        ]

    def read(self, fragment: Fragment, rows: Rows) -> list[Any]:
        """One `pa.Array` per field, of the rows at these physical offsets (a slice or int64 offsets)."""
        whole = self.whole(fragment)
        if whole is not None:
            file, part = whole
            found: list[Any] = file.read(part.fields, part.columns, rows)
            return found
        layout = self.layout(fragment)
        read = [
            self.open(fragment, fragment.files[part.file]).read(part.fields, part.columns, rows)
            for part in layout.parts
        ]
        if not read:
            self.check_rows(fragment)
        length = _length(rows)
        try:
            return [
                self._assemble(field, [read[part][position] for part, position in pieces], length)
                for field, pieces in zip(self.fields, layout.pieces, strict=True)
            ]
        except CorruptFile as error:
            raise CorruptFile(f"fragment {fragment.id}: {error}", self._snapshot.location.path) from error

    def _assemble(self, field: Field, found: list[Any], length: int) -> Any:
        kind = field.arrow_type
        session = self._snapshot.session
        if not found:
            return null_array(session, length, kind, field.name)
        whole = found[0]
        for more in found[1:]:
            whole = zip_arrays(whole, more)
        return whole if whole.type.equals(kind) else complete(session, whole, kind)


def _ids(field: Field) -> tuple[int, ...]:
    """What tells one pruned tree of a schema from another: the ids of its top and its leaves, and of the
    parts of a leaf, for a blob column may be read as descriptors or not at all.
    """
    if field.is_leaf and not field.children:
        return (field.id,)
    return (field.id, *[each.id for leaf in field.leaves() for each in leaf.walk()])


def _length(rows: Rows) -> int:
    return max(0, rows.stop - rows.start) if isinstance(rows, slice) else len(rows)


def zip_arrays(left: Any, right: Any) -> Any:
    """One array with the children of both: structs by child name, lists by their items.

    Where both have a validity, the left one stands: both files describe the same rows.
    """
    if pa.types.is_struct(left.type) and pa.types.is_struct(right.type):
        children = {field.name: (field, left.field(i)) for i, field in enumerate(left.type)}
        for i, field in enumerate(right.type):
            if field.name in children:
                merged = zip_arrays(children[field.name][1], right.field(i))
                children[field.name] = (field.with_type(merged.type), merged)
            else:
                children[field.name] = (field, right.field(i))
        return _struct(
            left, [field for field, _ in children.values()], [each for _, each in children.values()]
        )
    if _is_list(left.type) and _is_list(right.type):
        return _list(left, zip_arrays(left.values, right.values))
    raise CorruptFile(
        f"two data files of one fragment hold the same column, of types {left.type} and {right.type}"
    )


def complete(session: Session, array: Any, kind: Any) -> Any:
    """The array with children in the order of `kind`; children that it lacks are null."""
    if array.type.equals(kind):
        return array
    if pa.types.is_struct(kind):
        children = []
        for field in kind:
            at = array.type.get_field_index(field.name)
            children.append(
                null_array(session, len(array), field.type, field.name)
                if at < 0
                else complete(session, array.field(at), field.type)
            )
        return _struct(array, list(kind), children)
    if _is_list(kind):
        return _list(array, complete(session, array.values, kind.value_type), kind)
    raise CorruptFile(f"a column of type {array.type} stands where the schema has {kind}")


def _struct(like: Any, fields: list[Any], children: list[Any]) -> Any:
    return pa.StructArray.from_buffers(pa.struct(fields), len(like), [_validity(like)], children=children)


def _list(like: Any, values: Any, kind: Any = None) -> Any:
    if kind is None:
        field = like.type.value_field.with_type(values.type)
        if pa.types.is_fixed_size_list(like.type):
            kind = pa.list_(field, like.type.list_size)
        elif pa.types.is_large_list(like.type):
            kind = pa.large_list(field)
        else:
            kind = pa.list_(field)
    if pa.types.is_fixed_size_list(kind):
        start = like.offset * kind.list_size
        values = values.slice(start, len(like) * kind.list_size)
        return pa.Array.from_buffers(kind, len(like), [_validity(like)], children=[values])
    offsets = like.buffers()[1]
    width = 8 if pa.types.is_large_list(kind) else 4
    if offsets is not None:
        offsets = offsets.slice(like.offset * width, (len(like) + 1) * width)
    return pa.Array.from_buffers(kind, len(like), [_validity(like), offsets], children=[values])


def _validity(array: Any) -> Any:
    """The validity bitmap starting at bit 0, or None when nothing is null."""
    if array.null_count == 0:
        return None
    bitmap = array.buffers()[0]
    if array.offset % 8 == 0:
        return bitmap.slice(array.offset // 8)
    bits = np.unpackbits(np.frombuffer(bitmap, dtype=np.uint8), bitorder="little")
    return pa.py_buffer(np.packbits(bits[array.offset : array.offset + len(array)], bitorder="little"))


def _is_list(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))
