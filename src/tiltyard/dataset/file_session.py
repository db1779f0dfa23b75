"""Files below one place: data files read and written, and any file listed, copied and removed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tiltyard.dataset import arguments
from tiltyard.dataset.data_files import LanceFileWriter, file_place
from tiltyard.dataset.file_reader import LanceFileReader
from tiltyard.dataset.handle import open_root, refuse
from tiltyard.dataset.not_yet import Named
from tiltyard.errors import ObjectNotFound
from tiltyard.store import Store


@dataclass(frozen=True, slots=True)
class ListResult:
    """What lies directly in a directory: directories and files, as paths below the session's place."""

    common_prefixes: list[str]
    objects: list[str]


class LanceFileSession(Named):
    """Readers and writers of data files below a path or URI, which share what opening it takes. All paths are
    relative to it.
    """

    def __init__(
        self,
        base_path: Any,
        storage_options: Mapping[str, Any] | None = None,
        namespace_client: Any = None,
        table_id: Any = None,
    ) -> None:
        refuse(namespace_client=namespace_client, table_id=table_id)
        self._store = open_root(base_path, storage_options)

    @classmethod
    def of(cls, store: Store) -> LanceFileSession:
        """A session below the place of a store."""
        made = cls.__new__(cls)
        made._store = store
        return made

    def open_reader(self, path: str, columns: Sequence[str] | None = None) -> LanceFileReader:
        """A reader of a data file; see `LanceFileReader`."""
        return LanceFileReader._of(self._store, arguments.text("path", path), columns)

    def open_writer(
        self,
        path: str,
        *,
        schema: Any = None,
        data_cache_bytes: int | None = None,
        version: str | None = None,
        keep_original_array: bool | None = None,
        max_page_bytes: int | None = None,
    ) -> LanceFileWriter:
        """A writer of a data file; see `LanceFileWriter`."""
        above, _, name = arguments.text("path", path).rpartition("/")
        return LanceFileWriter._of(
            self._store.at(above) if above else self._store,
            name,
            schema,
            data_cache_bytes=data_cache_bytes,
            version=version,
            keep_original_array=keep_original_array,
            max_page_bytes=max_page_bytes,
        )

    def contains(self, path: str) -> bool:
        """Whether there is a file at the path."""
        return self._store.exists(arguments.text("path", path))

    def list(self, path: str | None = None) -> list[str]:
        """The paths of all files below a directory, at any depth, sorted."""
        return [each.path for each in self._store.list(_directory(path))]

    def list_with_delimiter(self, path: str | None = None) -> ListResult:
        """The directories and files directly in a directory, sorted."""
        directory = _directory(path)
        above = f"{directory}/" if directory else ""
        paths = [f"{above}{name}" for name in self._store.list_names(directory)]
        files = [each for each in paths if self._store.exists(each)]
        return ListResult([each for each in paths if each not in set(files)], files)

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Bytes of a file. Raises `ObjectNotFound`, `CorruptFile` where it is shorter."""
        offset, length = arguments.whole("offset", offset), arguments.whole("length", length)
        return bytes(memoryview(self._store.read(arguments.text("path", path), offset, length)))

    def delete_file(self, path: str) -> None:
        """Remove a file. Raises `ObjectNotFound` where there is none."""
        if not self._store.delete(arguments.text("path", path)):
            raise ObjectNotFound(f"{self._store.uri}: there is no file {path!r} to delete")

    def upload_file(self, local_path: Any, remote_path: str) -> None:
        """Copy a file of the local machine to a path here, in the place of one that is there."""
        store, name = file_place(os.fspath(local_path), None)
        self._store.put(arguments.text("remote_path", remote_path), store.map(name))

    def download_file(self, remote_path: str, local_path: Any) -> None:
        """Copy a file from here to a path of the local machine. Raises `ObjectNotFound`."""
        store, name = file_place(os.fspath(local_path), None)
        store.put(name, self._store.map(arguments.text("remote_path", remote_path)))


def _directory(path: str | None) -> str:
    return "" if path is None else arguments.text("path", path).strip("/")
