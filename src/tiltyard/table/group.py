"""Group commit of appends: threads that append to one table at once share a version (decision D16).

The first caller leads (`runtime.combine`): it checks each waiting append alone against what that one has not
seen, commits those that pass as one Append, and hands each caller its own answer. The uuids of the members
stand in the transaction's properties, so that a repeated commit recognises itself in a group
(`catching_up.members`).

Not grouped: appends with properties of their own (a commit message), and whatever is not a plain Append.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

from tiltyard import runtime
from tiltyard.errors import CommitConflict, InvalidInput, OutcomeUnknown, TiltyardError, TooMuchContention
from tiltyard.format.fragment import Fragment
from tiltyard.format.operations import Append
from tiltyard.format.transaction import Transaction
from tiltyard.runtime.combine import CombiningQueue, LeaderInterrupted
from tiltyard.session import Session
from tiltyard.store import Store
from tiltyard.table.catching_up import MEMBERS_PROPERTY, CatchingUp, OwnFiles, members
from tiltyard.table.cleanup.auto import INTERVAL, after_commit
from tiltyard.table.commit import commit
from tiltyard.table.snapshot import Snapshot, open_latest

MAX_MEMBERS = 256
"""Appends in one group: bounds the transaction that a reader has to decode."""

QUEUE_BYTES = 1024
"""What a queue is accounted as in the session's cache; losing one costs sharing, never data."""


@dataclass(frozen=True, slots=True)
class Member:
    """One append that waits to be committed."""

    store: Store
    session: Session
    transaction: Transaction
    base: Snapshot
    foreign_fragments: bool = False


def commit_append(
    store: Store,
    transaction: Transaction,
    *,
    session: Session,
    base: Snapshot,
    foreign_fragments: bool = False,
) -> Snapshot:
    """Commit an Append, together with those that other threads of this session commit to the table just now.

    Returns the version that holds the rows; raises what `commit` raises, for this append alone.
    """
    member = Member(store, session, transaction, base, foreign_fragments)
    if transaction.properties or not isinstance(transaction.operation, Append):
        made = _alone(member)
    else:
        key = (store.identity, "", "append queue", str(store.durable))
        queue: CombiningQueue[Member, Snapshot] = session.cache.get_or(key, lambda: (_queue(), QUEUE_BYTES))
        try:
            made = queue.submit(member)
        except LeaderInterrupted:
            made = _alone(member)  # an append that landed with the group is recognised by its uuid
    if INTERVAL in made.manifest.config and _is_first(made, transaction.uuid):
        after_commit(made)  # outside the round, so that nobody waits for it
    return made


def _is_first(made: Snapshot, uuid: str) -> bool:
    """Whether of all whose appends are in this version it is this one that cleans up after it."""
    theirs = made.transaction()
    return theirs is not None and uuid == min(members(theirs), default=theirs.uuid)


def _queue() -> CombiningQueue[Member, Snapshot]:
    return CombiningQueue(_round, max_items=MAX_MEMBERS)


def _alone(member: Member) -> Snapshot:
    return commit(
        member.store,
        member.transaction,
        session=member.session,
        base=member.base,
        foreign_fragments=member.foreign_fragments,
        skip_auto_cleanup=True,
    )


def _round(members: list[Member]) -> Sequence[Snapshot | BaseException]:
    """One answer per member, in order."""
    if len(members) == 1:
        return [_answer(members[0])]
    answers: dict[str, Snapshot | BaseException] = {}
    first = members[0]
    try:
        current = open_latest(first.store, first.session)
        tag = first.store.stat(current.location.path).tag
    except TiltyardError:  # of the first one's place, which need not be that of the others
        return [_answer(member) for member in members]
    passed: list[Member] = []
    for member in members:
        here = member.store is first.store or _stands_there(member.store, current.location.path, tag)
        answer = _checked(member, current) if here else _answer(member)
        if answer is None:
            passed.append(member)
        else:
            answers[member.transaction.uuid] = answer
    answers.update(_together(passed, current))
    return [answers[member.transaction.uuid] for member in members]


def _stands_there(store: Store, path: str, tag: str) -> bool:
    """Whether a store finds this very object: one opened before the directory was renamed is elsewhere."""
    try:
        return store.stat(path).tag == tag
    except TiltyardError:
        return False


def _answer(member: Member) -> Snapshot | BaseException:
    try:
        return _alone(member)
    except TiltyardError as error:
        return error


def _checked(member: Member, current: Snapshot) -> Snapshot | BaseException | None:
    """None when the append may follow the current version; else its answer."""
    catching_up = CatchingUp(
        member.store,
        member.session,
        member.transaction,
        member.base,
        affected=None,
        unhashed_key=False,
        foreign_fragments=member.foreign_fragments,
        own_files=OwnFiles(member.store),
    )
    try:
        return catching_up.to(current)
    except TiltyardError as error:
        return error


def _together(members: list[Member], current: Snapshot) -> dict[str, Snapshot | BaseException]:
    """Commit the members as one Append on the version that each was checked against."""
    if len(members) < 2:
        return {member.transaction.uuid: _answer(member) for member in members}
    uuids = [member.transaction.uuid for member in members]
    fragments = tuple(fragment for member in members for fragment in _fragments(member))
    whole = Transaction(
        current.version, str(runtime.uuid4()), Append(fragments), {MEMBERS_PROPERTY: json.dumps(uuids)}
    )
    try:
        made = commit(
            members[0].store,
            whole,
            session=members[0].session,
            base=current,
            foreign_fragments=any(member.foreign_fragments for member in members),
            skip_auto_cleanup=True,
        )
    except TooMuchContention as error:  # the same for each alone, and it has taken all the time there was
        return {uuid: copy(error) for uuid in uuids}
    except (CommitConflict, InvalidInput) as error:
        # Definitely not committed, and not every member may be the reason: each for itself.
        referenced = error.files_referenced
        return {member.transaction.uuid: _referenced(_answer(member), referenced) for member in members}
    except OutcomeUnknown as error:
        return {
            uuid: OutcomeUnknown(f"{error} (grouped as {whole.uuid})", uuid=uuid, version=error.version)
            for uuid in uuids
        }
    except TiltyardError as error:  # a definite failure of the store, before anything was visible
        return {uuid: copy(error) for uuid in uuids}
    return dict.fromkeys(uuids, made)


def _referenced(answer: Snapshot | BaseException, referenced: bool) -> Snapshot | BaseException:
    """The answer, which says so if files of the group must stay although the group was not committed."""
    if referenced and isinstance(answer, TiltyardError):
        answer.files_referenced = True
    return answer


def _fragments(member: Member) -> Sequence[Fragment]:
    operation = member.transaction.operation
    assert isinstance(operation, Append)
    return operation.fragments
