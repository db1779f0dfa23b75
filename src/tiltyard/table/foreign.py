"""Checks of fragments that a caller made elsewhere (decision D15): live already, committed before, or
missing.

Our own write path gives fresh random names and skips this; `LanceDataset.commit` cannot know where its
fragments come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tiltyard.errors import InvalidInput, ObjectNotFound
from tiltyard.format import names
from tiltyard.format.base_paths import BasePath
from tiltyard.format.fragment import DataFile, Fragment
from tiltyard.format.manifest import Manifest
from tiltyard.format.operations import (
    Append,
    DataReplacement,
    Delete,
    Merge,
    Operation,
    Overwrite,
    Rewrite,
    Update,
)
from tiltyard.store import Store, open_other

FileKey = tuple[str, int | None]
"""A data file: its path and its base."""


def check_not_committed(operation: Operation, latest: Manifest | None) -> tuple[FileKey, ...]:
    """Refuse a data file that another fragment of `latest` holds, or that the operation itself names twice.

    Returns the files that are new to the table; `check_present` looks for them.
    """
    claimed = dict(_claims(operation))
    _check_once(operation)
    if not claimed or latest is None:
        return tuple(claimed)
    overwrites = isinstance(operation, Overwrite)  # after it no other fragment is live
    live: set[FileKey] = set()
    for fragment in latest.fragments:
        for file in fragment.files:
            key = _key(file)
            owner = claimed.get(key)
            if owner is None:
                continue
            live.add(key)
            if owner != fragment.id and not overwrites:
                raise InvalidInput(
                    f"data file {file.path} is already part of fragment {fragment.id} in version "
                    f"{latest.version}: a data file may belong to one fragment only; if this is a repeated "
                    "commit, it has succeeded"
                )
    return tuple(key for key in claimed if key not in live)


def check_not_in_history(operation: Operation, theirs: Operation, version: int) -> None:
    """Refuse new files that a transaction since our read version committed, even if they are gone by now."""
    if isinstance(operation, Overwrite):
        return
    claimed = dict(_claims(operation))
    if not claimed:
        return
    for key, owner in _claims(theirs):
        if key in claimed and (owner < 0 or claimed[key] < 0):
            raise InvalidInput(
                f"data file {key[0]} was already committed in version {version}; if this is a repeated "
                "commit, it has succeeded"
            )


def check_present(store: Store, files: Iterable[FileKey], bases: Iterable[BasePath]) -> None:
    """Refuse data files that are not there: the table could not be read after the commit."""
    known = {base.id: base for base in bases}
    for path, base_id in files:
        if base_id is None:
            where, target = names.data_path(path), store
        else:
            base = known.get(base_id)
            if base is None:
                raise InvalidInput(f"data file {path} names base {base_id}, which the table does not have")
            target = open_other(store, base.path)
            where = names.data_path(path) if base.is_dataset_root else path
        try:
            target.stat(where)
        except ObjectNotFound:
            raise InvalidInput(
                f"data file {target.uri}/{where} does not exist: it was never written here or was cleaned "
                "up; write the data again and commit the new fragments"
            ) from None


def _claims(operation: Operation) -> Iterator[tuple[FileKey, int]]:
    """Data files that the operation brings, each with the existing fragment it belongs to (-1: a new
    fragment).
    """
    match operation:
        case Append() | Overwrite():
            yield from _of(operation.fragments, new=True)
        case Update():
            yield from _of(operation.new_fragments, new=True)
            yield from _of(operation.updated_fragments, new=False)
        case Delete():
            yield from _of(operation.updated_fragments, new=False)
        case Merge():
            yield from _of(operation.fragments, new=False)
        case Rewrite():
            for group in operation.groups:
                yield from _of(group.new_fragments, new=True)
        case DataReplacement():
            for replacement in operation.replacements:
                yield _key(replacement.new_file), replacement.fragment_id
        case _:
            return


def _of(fragments: Iterable[Fragment], *, new: bool) -> Iterator[tuple[FileKey, int]]:
    for fragment in fragments:
        for file in fragment.files:
            yield _key(file), -1 if new else fragment.id


def _key(file: DataFile) -> FileKey:
    return file.path, file.base_id


def _check_once(operation: Operation) -> None:
    seen: set[FileKey] = set()
    for key, _ in _claims(operation):
        if key in seen:
            raise InvalidInput(
                f"the transaction names data file {key[0]} twice; a file may belong to one fragment only"
            )
        seen.add(key)
