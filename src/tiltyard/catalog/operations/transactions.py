"""Transactions of a table: what made a version, and the status and properties that callers note for it.

Notes lie in `_alter_transactions/<uuid>.json` of the table, as the official implementation keeps them; the
last writer of a note holds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tiltyard.catalog.operations.opening import opened
from tiltyard.errors import (
    CorruptFile,
    IncompatibleTransaction,
    InvalidInput,
    ObjectNotFound,
    TransactionNotFound,
    VersionNotFound,
)
from tiltyard.table.snapshot import open_snapshot, read_snapshot
from tiltyard.table.versions import list_versions

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.catalog.names import Id
    from tiltyard.dataset import LanceDataset
    from tiltyard.format.transaction import Transaction
    from tiltyard.store import Store

DIRECTORY = "_alter_transactions"
RESERVED = ("uuid", "version", "read_version", "operation", "tag")
"""Properties that say what a transaction is; nobody changes them."""
STATUSES = ("QUEUED", "RUNNING", "SUCCEEDED", "FAILED", "CANCELED")
MAX_VERSION_DIGITS = 19


@dataclass(frozen=True, slots=True)
class Told:
    """What an answer says about a transaction."""

    status: str
    properties: dict[str, str]


@dataclass(frozen=True, slots=True)
class Action:
    """One change of a note: `status` sets that, `set` and `unset` a property. `mode`: what to do where the
    property is there already (`set`: overwrite, fail, skip), or is not (`unset`: skip, fail).
    """

    kind: Literal["status", "set", "unset"]
    key: str
    value: str = ""
    mode: str = ""


@dataclass(frozen=True, slots=True)
class _Note:
    status: str
    properties: dict[str, str]
    removed: tuple[str, ...]


_NONE = _Note("SUCCEEDED", {}, ())


def describe_transaction(catalog: Catalog, id: Id, which: str) -> Told:
    """The transaction that made a version, by the version's number or the transaction's uuid.

    Raises `TransactionNotFound`.
    """
    table = opened(catalog, id)
    version, found = _find(table, which)
    return _told(version, found, _read(table._store, found.uuid))


def alter_transaction(catalog: Catalog, id: Id, which: str, actions: Sequence[Action]) -> Told:
    """Change what is noted for a transaction, and tell all about it.

    Raises `InvalidInput` for reserved properties and unknown words, `IncompatibleTransaction` where a mode
    says to fail, `TransactionNotFound`; then nothing was changed.
    """
    table = opened(catalog, id)
    version, found = _find(table, which)
    before = _read(table._store, found.uuid)
    after = altered(before, found.properties, actions)
    if after != before:
        _write(table._store, found.uuid, after)
    return _told(version, found, after)


def altered(note: _Note, stored: Mapping[str, str], actions: Sequence[Action]) -> _Note:
    """The note after the actions, in order. `stored`: the properties that the transaction itself has."""
    if not actions:
        raise InvalidInput("alter_transaction needs 'actions': at least one")
    status, properties, removed = note.status, dict(note.properties), list(note.removed)
    for action in actions:
        if action.kind == "status":
            status = _word("status", action.value, STATUSES)
            continue
        _refuse_reserved(action.key)
        there = action.key in properties or (action.key in stored and action.key not in removed)
        if action.kind == "set":
            mode = _word(
                "the mode of setting a property", action.mode or "OVERWRITE", ("OVERWRITE", "FAIL", "SKIP")
            )
            if there and mode == "FAIL":
                raise IncompatibleTransaction(f"property {action.key!r} of the transaction is set already")
            if not (there and mode == "SKIP"):
                properties[action.key] = action.value
                removed = [each for each in removed if each != action.key]
        else:
            mode = _word("the mode of unsetting a property", action.mode or "SKIP", ("SKIP", "FAIL"))
            if not there and mode == "FAIL":
                raise IncompatibleTransaction(f"property {action.key!r} of the transaction is not set")
            properties.pop(action.key, None)
            if action.key in stored and action.key not in removed:
                removed.append(action.key)
    return _Note(status, properties, tuple(removed))


def _word(name: str, value: str, known: Sequence[str]) -> str:
    word = value.strip().upper()
    if word not in known:
        raise InvalidInput(f"{name} must be one of {', '.join(known)}, found {value!r}")
    return word


def _refuse_reserved(key: str) -> None:
    if not key:
        raise InvalidInput("the key of a property is empty")
    if key in RESERVED:
        raise InvalidInput(f"property {key!r} says what the transaction is, and cannot be changed")


def _find(table: LanceDataset, which: str) -> tuple[int, Transaction]:
    if which.isascii() and which.isdigit() and len(which) <= MAX_VERSION_DIGITS:
        try:
            found = open_snapshot(table._store, table._session, version=int(which)).transaction()
        except VersionNotFound as error:
            raise TransactionNotFound(f"{which} of {table.uri}: {error}") from error
        if found is not None:
            return int(which), found
    for location in reversed(list_versions(table._store)):
        try:
            found = read_snapshot(table._store, table._session, location).transaction()
        except (ObjectNotFound, CorruptFile):
            continue  # removed meanwhile, or not to be read: it is not the one by then
        if found is not None and found.uuid == which:
            return location.version, found
    raise TransactionNotFound(
        f"{which} of {table.uri}: no version that is there was made by it (give the number of a version, or "
        "the uuid of a transaction)"
    )


def _told(version: int, found: Transaction, note: _Note) -> Told:
    properties = {
        key: value
        for key, value in found.properties.items()
        if key not in note.removed and key not in RESERVED
    }
    properties.update(note.properties)
    properties.update(
        uuid=found.uuid, version=str(version), read_version=str(found.read_version), operation=found.name
    )
    if found.tag:
        properties["tag"] = found.tag
    return Told(note.status, properties)


def _path(uuid: str) -> str:
    return f"{DIRECTORY}/{uuid}.json"


def _read(store: Store, uuid: str) -> _Note:
    try:
        data = store.read(_path(uuid)).to_pybytes()
    except ObjectNotFound:
        return _NONE
    try:
        held = json.loads(data)
        return _Note(
            str(held.get("status") or _NONE.status).upper(),
            {str(key): str(value) for key, value in (held.get("properties") or {}).items()},
            tuple(str(each) for each in held.get("removed_properties") or ()),
        )
    except (ValueError, AttributeError, TypeError) as error:
        raise CorruptFile(f"a note of a transaction that cannot be read: {error}", _path(uuid)) from error


def _write(store: Store, uuid: str, note: _Note) -> None:
    body = {
        "status": note.status,
        "properties": note.properties,
        "removed_properties": list(note.removed),
    }
    store.put(_path(uuid), json.dumps(body, sort_keys=True).encode())
