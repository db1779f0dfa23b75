"""Fragments as callers see, pickle and send them: `FragmentMetadata` and its parts, with their JSON form.

The JSON form is that of the official package, so that workers of both can hand fragments to one committer.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass, field
from typing import Any

from tiltyard.dataset import arguments
from tiltyard.errors import InvalidInput, UnsupportedFeature
from tiltyard.format import fragment as facts

MIN_I32, MAX_I32 = -(1 << 31), (1 << 31) - 1
_FILE_TYPES = {"arrow": "array", "bin": "bitmap"}
_KINDS = {"array": "arrow", "bitmap": "bin"}


class FilePath(str):
    """A path that can also be called for itself: it was a method in old versions of the official package."""

    __slots__ = ()

    def __call__(self) -> str:
        warnings.warn("path is an attribute: leave the parentheses out", DeprecationWarning, stacklevel=2)
        return str(self)

    def __reduce__(self) -> Any:
        return FilePath, (str(self),)


@dataclass
class DataFile:
    """One data file of a fragment: which fields it holds, in which columns, and its version and size
    (bytes).
    """

    path: str
    fields: list[int]
    column_indices: list[int] = field(default_factory=list)
    file_major_version: int = 0
    file_minor_version: int = 0
    file_size_bytes: int | None = None
    base_id: int | None = None

    def __post_init__(self) -> None:
        self.path = FilePath(arguments.text("path", self.path))

    def field_ids(self) -> list[int]:
        """Ids of the fields in the file."""
        return self.fields

    @classmethod
    def from_fact(cls, fact: facts.DataFile) -> DataFile:
        return cls(
            fact.path,
            list(fact.fields),
            list(fact.column_indices),
            fact.major,
            fact.minor,
            fact.size or None,
            fact.base_id,
        )

    def to_fact(self) -> facts.DataFile:
        return facts.DataFile(
            path=arguments.text("path", self.path),
            fields=tuple(arguments.wholes("fields", self.fields, MIN_I32, MAX_I32)),
            column_indices=tuple(
                arguments.wholes("column_indices", self.column_indices or (), MIN_I32, MAX_I32)
            ),
            major=arguments.whole("file_major_version", self.file_major_version, 0, arguments.MAX_U32),
            minor=arguments.whole("file_minor_version", self.file_minor_version, 0, arguments.MAX_U32),
            size=arguments.maybe_whole("file_size_bytes", self.file_size_bytes) or 0,
            base_id=arguments.maybe_whole("base_id", self.base_id, 0, arguments.MAX_U32),
        )

    def _json(self) -> dict[str, Any]:
        return {
            "fields": self.fields,
            "column_indices": self.column_indices,
            "file_major_version": self.file_major_version,
            "file_minor_version": self.file_minor_version,
            "file_size_bytes": self.file_size_bytes,
            "base_id": self.base_id,
            "path": self.path,
        }


@dataclass
class DeletionFile:
    """The file that lists a fragment's deleted rows; `file_type` is `array` or `bitmap`."""

    read_version: int
    id: int
    file_type: str
    num_deleted_rows: int
    base_id: int | None = None

    def asdict(self) -> dict[str, Any]:
        """The facts as a dict."""
        return {
            "read_version": self.read_version,
            "id": self.id,
            "file_type": self.file_type,
            "num_deleted_rows": self.num_deleted_rows,
            "base_id": self.base_id,
        }

    def json(self) -> str:
        """The facts as JSON text."""
        return json.dumps(self.asdict())

    @staticmethod
    def from_json(data: str) -> DeletionFile:
        """The inverse of `json`."""
        try:
            found = DeletionFile(**json.loads(data))
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"this is not the JSON form of a deletion file: {error!r}") from error
        found.to_fact()
        return found

    def path(self, fragment_id: int, base_uri: str | None = None) -> str:
        """The file's path below the table's root, or below `base_uri`."""
        path = self.to_fact().path(fragment_id)
        return path if base_uri is None else f"{base_uri.rstrip('/')}/{path}"

    @classmethod
    def from_fact(cls, fact: facts.DeletionFile) -> DeletionFile:
        return cls(fact.read_version, fact.id, _FILE_TYPES[fact.kind], fact.rows, fact.base_id)

    def to_fact(self) -> facts.DeletionFile:
        return facts.DeletionFile(
            kind=_KINDS[arguments.one_of("file_type", self.file_type, *_KINDS)],
            read_version=arguments.whole("read_version", self.read_version),
            id=arguments.whole("id", self.id),
            rows=arguments.whole("num_deleted_rows", self.num_deleted_rows),
            base_id=arguments.maybe_whole("base_id", self.base_id, 0, arguments.MAX_U32),
        )


class _Sequence:
    """Serialized row ids or row versions of a fragment, opaque to callers."""

    _key = ""

    def __init__(self, data: bytes) -> None:
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise arguments.wrong(f"the data of {type(self).__name__}", "bytes", data)
        self.data = bytes(data)

    def asdict(self) -> dict[str, list[int]]:
        """The bytes under the form's name."""
        return {self._key: list(self.data)}

    def json(self) -> str:
        """JSON text of `asdict`."""
        return json.dumps(self.asdict(), separators=(",", ":"))

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Any:
        """The inverse of `asdict`. Raises `UnsupportedFeature` for sequences that lie in another file."""
        arguments.mapping(f"the form of {cls.__name__}", value)
        for key in (cls._key, cls._key.lower(), cls._key.capitalize()):
            if key in value:
                return cls(bytes(arguments.wholes(key, value[key], 0, 255)))
        raise UnsupportedFeature(
            f"{cls.__name__} of the form {sorted(value)} is not supported; only inline ones are"
        )

    @classmethod
    def from_json(cls, data: str) -> Any:
        """The inverse of `json`."""
        try:
            value = json.loads(data)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"this is not the JSON form of a {cls.__name__}: {error!r}") from error
        return cls.from_dict(value)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.data == other.data

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.data))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.data)} bytes)"


class RowIdMeta(_Sequence):
    """Stable row ids of a fragment."""

    _key = "Inline"


class RowDatasetVersionMeta(_Sequence):
    """Versions at which a fragment's rows were created, or last updated."""

    _key = "inline"


@dataclass
class FragmentMetadata:
    """A fragment as the manifest lists it; what `write_fragments` gives and a commit takes.

    `physical_rows` counts deleted rows too; it is None while the fragment is being written.
    """

    id: int
    files: list[DataFile]
    physical_rows: int
    deletion_file: DeletionFile | None = None
    row_id_meta: RowIdMeta | None = None
    created_at_version_meta: RowDatasetVersionMeta | None = None
    last_updated_at_version_meta: RowDatasetVersionMeta | None = None
    overlays: list[Any] = field(default_factory=list)

    @property
    def num_deletions(self) -> int:
        """Deleted rows."""
        return 0 if self.deletion_file is None else self.deletion_file.num_deleted_rows

    @property
    def num_rows(self) -> int:
        """Live rows."""
        return self.physical_rows - self.num_deletions

    def data_files(self) -> list[DataFile]:
        """The fragment's data files."""
        return self.files

    def to_json(self) -> dict[str, Any]:
        """A dict that `json.dumps` takes; `from_json` reads it back from the text."""
        return {
            "id": self.id,
            "files": [each._json() for each in self.files],
            "overlays": self.overlays,
            "physical_rows": self.physical_rows,
            "deletion_file": None if self.deletion_file is None else self.deletion_file.asdict(),
            "row_id_meta": _dict_of(self.row_id_meta),
            "created_at_version_meta": _dict_of(self.created_at_version_meta),
            "last_updated_at_version_meta": _dict_of(self.last_updated_at_version_meta),
        }

    @staticmethod
    def from_json(json_data: str) -> FragmentMetadata:
        """A fragment from JSON text of this or the official package. Raises `InvalidInput` for anything
        else.
        """
        try:
            value = json.loads(json_data) if isinstance(json_data, (str, bytes)) else json_data
            arguments.mapping("the JSON form of a fragment", value)
            deletion = value.get("deletion_file")
            row_ids = value.get("row_id_meta")
            created = value.get("created_at_version_meta")
            updated = value.get("last_updated_at_version_meta")
            return FragmentMetadata(
                id=value["id"],
                files=[DataFile(**each) for each in value["files"]],
                physical_rows=value["physical_rows"],
                deletion_file=None if deletion is None else DeletionFile(**deletion),
                row_id_meta=None if row_ids is None else RowIdMeta.from_dict(row_ids),
                created_at_version_meta=None if created is None else RowDatasetVersionMeta.from_dict(created),
                last_updated_at_version_meta=None
                if updated is None
                else RowDatasetVersionMeta.from_dict(updated),
                overlays=value.get("overlays") or [],
            )
        except (InvalidInput, UnsupportedFeature):
            raise
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"this is not the JSON form of a fragment: {error!r}") from error

    @classmethod
    def from_fragment(cls, fact: facts.Fragment, *, rows_known: bool = True) -> FragmentMetadata:
        """The caller's view of a fragment. Raises `UnsupportedFeature` where its lineage lies in a data
        file.
        """
        if fact.is_spilled:
            raise UnsupportedFeature(
                f"fragment {fact.id} keeps its row lineage in a data file (config lance.row_lineage.spill), "
                "which cannot be handed out; read its rows instead"
            )
        return cls(
            id=fact.id,
            files=[DataFile.from_fact(each) for each in fact.files],
            physical_rows=fact.physical_rows if rows_known else None,  # type: ignore[arg-type]
            deletion_file=None if fact.deletion is None else DeletionFile.from_fact(fact.deletion),
            row_id_meta=None if fact.row_ids is None else RowIdMeta(fact.row_ids),
            created_at_version_meta=_versions(fact.created_versions),
            last_updated_at_version_meta=_versions(fact.last_updated_versions),
        )

    def to_fragment(self) -> facts.Fragment:
        """The fragment as a commit takes it. Raises `UnsupportedFeature` for overlays."""
        if self.overlays:
            raise UnsupportedFeature(f"fragment {self.id} has data overlays, which are not supported")
        deletion = self.deletion_file
        return facts.Fragment(
            id=arguments.whole("id", self.id),
            files=tuple(each.to_fact() for each in arguments.items("files", self.files, DataFile)),
            deletion=None
            if deletion is None
            else arguments.instance("deletion_file", deletion, DeletionFile).to_fact(),
            physical_rows=arguments.maybe_whole("physical_rows", self.physical_rows) or 0,
            row_ids=_bytes_of(self.row_id_meta),
            last_updated_versions=_bytes_of(self.last_updated_at_version_meta),
            created_versions=_bytes_of(self.created_at_version_meta),
        )


def _dict_of(sequence: _Sequence | None) -> dict[str, list[int]] | None:
    return None if sequence is None else sequence.asdict()


def _bytes_of(sequence: _Sequence | None) -> bytes | None:
    return None if sequence is None else arguments.instance("row lineage", sequence, _Sequence).data


def _versions(data: bytes | None) -> RowDatasetVersionMeta | None:
    return None if data is None else RowDatasetVersionMeta(data)
