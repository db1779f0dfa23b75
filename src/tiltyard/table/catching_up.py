"""Catching up with what others committed: check each transaction once, rebase ours (decision D14, steps 2 and
3).

Holds the state of one commit that changes from round to round: our transaction as it is by now, the version
up to which it was checked, and the files that our rounds wrote.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tiltyard import runtime
from tiltyard.errors import (
    CommitConflict,
    IncompatibleTransaction,
    ObjectNotFound,
    OutcomeUnknown,
    RetryableConflict,
    StoreError,
    VersionNotFound,
    Winner,
)
from tiltyard.format import flags, names
from tiltyard.format.deletion import encode_deletions
from tiltyard.format.fragment import DeletionFile
from tiltyard.format.operations import DataOverlays, Delete, Operation, Update
from tiltyard.format.transaction import Transaction
from tiltyard.session import Session
from tiltyard.store import Store
from tiltyard.table import foreign
from tiltyard.table.conflict import (
    Outcome,
    Verdict,
    check,
    merge_deletions,
    rebase_operation,
    stale_fragments,
    with_deletions,
)
from tiltyard.table.conflict.touched import touched_fragments
from tiltyard.table.deletions import load_deletions
from tiltyard.table.snapshot import Snapshot, read_snapshot, read_transaction
from tiltyard.table.unique import UNIQUE, KeysMeet, appeared, check_declared
from tiltyard.table.versions import locate

MEMBERS_PROPERTY = "tiltyard.members"
"""Property of a grouped commit: JSON list of the uuids of the transactions in it."""


class OwnFiles:
    """Files that the rounds of one commit wrote. Only those that no version and no later round names are ever
    deleted, and only when that is certain.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._paths: list[str] = []

    def write(self, path: str, data: bytes) -> None:
        """Write a file under its final, unique name; durable when this returns."""
        with self._store.writer(path) as writer:
            writer.write([data])
            writer.commit()
        self._paths.append(path)

    def paths(self) -> list[str]:
        return list(self._paths)

    def drop(self, paths: Sequence[str] | None = None) -> None:
        """Delete files (all by default). Never called after an UNKNOWN answer or a won version."""
        gone = set(self._paths if paths is None else paths)
        going = [path for path in self._paths if path in gone]
        self._paths = [path for path in self._paths if path not in gone]
        self._store.delete_many(going)  # what stays is waste, collected by age


@dataclass(slots=True)
class CatchingUp:
    """Our transaction on its way to the newest version."""

    store: Store
    session: Session
    transaction: Transaction
    base: Snapshot
    affected: Mapping[int, np.ndarray] | None
    unhashed_key: bool
    foreign_fragments: bool
    own_files: OwnFiles
    keys_meet: KeysMeet | None = None
    checked: int = 0
    """Every version up to this one was taken into account."""
    rows_lost: int = 0
    """Rounds in which others had changed the fragments whose rows we change."""
    winner: Winner | None = None
    """The last commit of another writer that was seen."""
    planned: dict[int, DeletionFile | None] = field(default_factory=dict)
    """Deletion files that our fragment copies were made from."""

    def __post_init__(self) -> None:
        self.checked = self.base.version
        operation = self.transaction.operation
        if isinstance(operation, Delete | Update):
            self.planned = {f.id: _deletion(self.base, f.id) for f in operation.updated_fragments}

    def to(self, current: Snapshot) -> Snapshot | None:
        """Take everything up to `current` into account; the version that is our own transaction, if one
        is.
        """
        if current.version < self.checked:
            raise self.gone(self.checked)
        others: list[tuple[int, Transaction]] = []
        for version in range(self.checked + 1, current.version + 1):
            theirs = current.transaction() if version == current.version else self._transaction_of(version)
            if theirs is None:
                raise self._unrecorded(version)
            if carries(theirs, self.transaction.uuid):
                found = current if version == current.version else self._open(version)
                return made_durable(found, self.transaction)
            others.append((version, theirs))
            self.winner = Winner(version, theirs.name, theirs.uuid)
        flags.check_writer(current.manifest)
        if others and appeared(self.base, current, self.transaction.operation):
            raise RetryableConflict(
                f"config {UNIQUE!r} was set while {self.named()} was planned, and not checked against it; "
                "plan again on the latest version"
            )
        for version, theirs in others:
            self._check(version, theirs, current)
        if others:
            check_declared(current, self.transaction.operation)
        self._merge_deletions(current, others)
        if self.foreign_fragments:
            new = foreign.check_not_committed(self.transaction.operation, current.manifest)
            foreign.check_present(self.store, new, current.manifest.base_paths)
        self.checked = current.version
        return None

    def named(self) -> str:
        """Ours, for messages."""
        return f"this {self.transaction.name} ({self.transaction.uuid})"

    def gone(self, version: int) -> RetryableConflict:
        return RetryableConflict(
            f"version {version} of {self.store.uri} was removed while {self.named()} was planned or waited, "
            "so that what happened since cannot be checked; plan again on the latest version"
        )

    def _open(self, version: int) -> Snapshot:
        try:
            return read_snapshot(self.store, self.session, locate(self.store, version))
        except (VersionNotFound, ObjectNotFound):
            raise self.gone(version) from None

    def _transaction_of(self, version: int) -> Transaction | None:
        try:
            return read_transaction(self.store, self.session, locate(self.store, version))
        except (VersionNotFound, ObjectNotFound):
            # The official loop goes on unchecked here, and loses what it did not see.
            raise self.gone(version) from None

    def read_ahead(self, version: int) -> None:
        """Bring the transactions up to `version` into the session's cache, before the turn to commit
        comes.
        """
        for unseen in range(self.checked + 1, version):
            self._transaction_of(unseen)

    def _unrecorded(self, version: int) -> IncompatibleTransaction:
        return IncompatibleTransaction(
            f"version {version} of {self.store.uri} does not record its transaction, so that {self.named()} "
            "cannot be checked against it; plan again on the latest version"
        )

    def _check(self, version: int, theirs: Transaction, current: Snapshot) -> None:
        verdict = self._verdict(theirs, current)
        if not verdict.ok:
            raise self._conflict(verdict, version, theirs)
        if self.foreign_fragments:
            foreign.check_not_in_history(self.transaction.operation, theirs.operation, version)
        operation = rebase_operation(self.transaction.operation, theirs.operation, current.manifest.indices)
        if operation is not self.transaction.operation:
            self.transaction = replace(self.transaction, operation=operation)

    def _verdict(self, theirs: Transaction, current: Snapshot) -> Verdict:
        """What `check` says; where only keys that both may have inserted stand between us, they decide."""
        mine = self.transaction.operation
        verdict = self._allowed(mine, theirs)
        if verdict.ok or self.keys_meet is None or not isinstance(mine, Update) or mine.inserted_rows is None:
            return verdict
        rest = self._allowed(replace(mine, inserted_rows=None), theirs)
        return rest if rest.ok and not self.keys_meet(current, theirs.operation) else verdict

    def _allowed(self, mine: Operation, theirs: Transaction) -> Verdict:
        return check(mine, theirs, my_affected=self.affected, unhashed_key=self.unhashed_key)

    def _conflict(self, verdict: Verdict, version: int, theirs: Transaction) -> CommitConflict:
        ours, name = self.transaction.name, theirs.name
        error: CommitConflict
        if verdict.outcome is Outcome.RETRYABLE:
            error = RetryableConflict(
                f"Retryable commit conflict for version {version}: this {ours} cannot follow the {name} "
                f"committed meanwhile because {verdict.reason}. Plan it again on the latest version"
            )
        else:
            error = IncompatibleTransaction(
                f"Incompatible transaction: this {ours} cannot follow the {name} of version {version} "
                f"because {verdict.reason}"
            )
        error.winner = Winner(version, name, theirs.uuid)
        return error

    def _merge_deletions(self, current: Snapshot, others: Sequence[tuple[int, Transaction]]) -> None:
        """Bring our fragment copies up to the deletions of the current version (transactions pack, section
        7). `others`: what was committed since the last round.
        """
        operation = self.transaction.operation
        if isinstance(operation, Delete | Update):
            now = {
                f.id: found
                for f in operation.updated_fragments
                if (found := current.fragment(f.id)) is not None
            }
            stale = stale_fragments(operation, self.planned, now)
            if stale:
                self.rows_lost += 1
                vectors = {id: _offsets(current, id) for id in stale}
                merged = merge_deletions(operation, stale, self.affected, vectors)
                if isinstance(merged, Verdict):
                    raise self._conflict(merged, *_last_toucher(others, stale))
                before = self.own_files.paths()
                files = {id: self._write(id, rows, current.version) for id, rows in merged.rewritten.items()}
                operation = with_deletions(operation, files, merged.emptied)
                named = _deletion_paths(operation)
                self.own_files.drop([path for path in before if path not in named])
                self.planned.update({id: now[id].deletion for id in stale})
        if isinstance(operation, Delete | Update | DataOverlays):
            self.transaction = replace(self.transaction, operation=operation, read_version=current.version)

    def _write(self, fragment_id: int, offsets: np.ndarray, read_version: int) -> DeletionFile:
        kind, data = encode_deletions(offsets)
        id = runtime.uuid4().int & _MAX_U64
        file = DeletionFile(kind=kind, read_version=read_version, id=id, rows=len(offsets))
        self.own_files.write(file.path(fragment_id), data)
        return file


_MAX_U64 = (1 << 64) - 1


def _last_toucher(others: Sequence[tuple[int, Transaction]], stale: Sequence[int]) -> tuple[int, Transaction]:
    """The last of these commits that changed one of the fragments."""
    for version, theirs in reversed(others):
        if not touched_fragments(theirs.operation).isdisjoint(stale):
            return version, theirs
    return others[-1]


def _deletion(snapshot: Snapshot, fragment_id: int) -> DeletionFile | None:
    fragment = snapshot.fragment(fragment_id)
    return None if fragment is None else fragment.deletion


def _deletion_paths(operation: Delete | Update) -> frozenset[str]:
    """The deletion files that an operation names; a round replaces those of some fragments only."""
    return frozenset(f.deletion.path(f.id) for f in operation.updated_fragments if f.deletion is not None)


def _offsets(snapshot: Snapshot, fragment_id: int) -> np.ndarray:
    fragment = snapshot.fragment(fragment_id)
    found = None if fragment is None else load_deletions(snapshot, fragment)
    return np.empty(0, np.uint32) if found is None else found


def made_durable(found: Snapshot, ours: Transaction) -> Snapshot:
    """The version that turned out to be our own transaction, its name synced: whoever gave it that may have
    died, or failed, before it was. Raises OutcomeUnknown when that cannot be promised.
    """
    try:
        found.store.sync_dir(names.VERSIONS_DIR)
    except StoreError as error:
        raise OutcomeUnknown(
            f"version {found.version} of {found.store.uri} is this {ours.name} ({ours.uuid}), but whether it "
            f"survives power loss cannot be promised ({error}). Read the table again",
            uuid=ours.uuid,
            version=found.version,
        ) from error
    return found


def carries(theirs: Transaction, uuid: str) -> bool:
    """Whether a committed transaction is the one of this uuid, alone or as a member of a grouped commit."""
    return theirs.uuid == uuid or uuid in members(theirs)


def members(transaction: Transaction) -> frozenset[str]:
    """Uuids of the transactions that a grouped commit carries."""
    text = transaction.properties.get(MEMBERS_PROPERTY)
    if text is None:
        return frozenset()
    try:
        value = json.loads(text)
    except ValueError:
        return frozenset()
    return frozenset(str(member) for member in value) if isinstance(value, list) else frozenset()
