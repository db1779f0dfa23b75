"""Directories of tables that are on their way to another name (decisions D24, D25).

Dropping or renaming a table that is found by its directory's name takes two steps: a rewrite of the register,
which decides, and a rename of the directory, which carries it out. The rewrite leaves a *move* in the
register's metadata, `tiltyard.move.<uuid>`, so that whoever changes the catalog next does what a caller that
died has left. Where the store cannot rename a directory, a deregistered marker hides the name instead.

What is to be moved is told by a *witness*, a file `_tiltyard/move-<uuid>` put into the directory before the
rewrite. It goes with the directory, so that it says of two directories which one is meant, whatever others
have made, moved or removed under the two names meanwhile.

1. A move is done once: without its witness at the old name nothing is moved, and a mover whose rename took
   another directory (it slept between look and rename) puts that one back.
2. A done move does no harm while its record stands; the next rewrite takes the record out.
3. A directory is never moved onto another one. If something came under the new name before it got there, the
   next rewrite gives the table, whose name was decided, a directory of its own.
4. Readers move nothing: they look at the new name, then at the old one (`places`), and what is leaving a
   name is no table of that name any more (`leaving`).
Tests: tests/catalog/test_moves.py.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from tiltyard import runtime
from tiltyard.catalog.markers import DEREGISTERED, WORD, read_marker, remove_marker
from tiltyard.catalog.names import SUFFIX, hashed_location, is_place, parts
from tiltyard.errors import ObjectNotFound, StoreError, UnsupportedFeature
from tiltyard.format.names import VERSIONS_DIR
from tiltyard.store import Created
from tiltyard.store.paths import parent_of

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.catalog.register import Register
    from tiltyard.catalog.round import Draft
    from tiltyard.catalog.rows import Row
    from tiltyard.store import Store

PREFIX = "tiltyard.move."
TRASH_PREFIX = "tiltyard.trash."
"""Keys of the register's metadata under which moves and dropped tables stand."""

OWN_PREFIX = "tiltyard."
"""All keys of ours begin so; none of them is a property of the root namespace."""

HISTORY = "tiltyard.moved"
"""Key of the last moves that were decided, whatever became of them: by it a change finds that the table at a
location is no longer the one that it was planned for."""

MOVES_REMEMBERED = 32
"""Moves in that history. Who was away for longer plans again."""

PRIVATE = "_tiltyard"
"""The directory in a table's directory that other programs leave alone (decision D3)."""

WITNESS = "move-"
"""What the names of witnesses begin with."""

WITNESS_TRIES = 8
"""How often a file is put into a directory that another program is removing."""

REGISTERS_KEPT = 8
"""Versions of registers whose moves are kept as they were read."""

HIDDEN_NOTE = "hidden-"
"""What the files begin with that say that a directory was hidden, for which move."""

MAX_ORDER = 1 << 53
"""Nobody gets so far by counting: what says so cannot be read."""

_UUID = re.compile(r"[0-9A-Za-z_-]{1,64}", re.ASCII)

LATE_SECONDS = 10.0
"""A mover that was away for longer since its rewrite looks again whether there is still something to move."""


class Kind(Enum):
    """How a table leaves a name or comes back to it."""

    MOVE = "move"
    HIDE = "hide"
    """By a marker in its directory, where directories cannot be renamed."""
    SHOW = "show"
    """By taking the marker away."""


@dataclass(frozen=True, slots=True)
class Move:
    """One record. `order`: moves are carried out in the order in which they were decided."""

    uuid: str
    kind: Kind
    source: str
    """The location that a table leaves; '' for SHOW."""
    target: str
    """The location that it gets; '' for HIDE."""
    object_id: str
    """The table's id after the rewrite that decided the move; for a drop the one that it had."""
    order: int = 0
    trash: str | None = None
    """The drop that hides the table."""
    nonce: str | None = None
    """The uuid in the marker that SHOW takes away."""

    @property
    def key(self) -> str:
        """Where it stands in the register's metadata."""
        return PREFIX + self.uuid

    @property
    def witness(self) -> str:
        """The file that tells the directory, within it."""
        return f"{PRIVATE}/{WITNESS}{self.uuid}"

    def text(self) -> str:
        """The value in the register's metadata."""
        values: dict[str, Any] = {"kind": self.kind.value, "from": self.source, "to": self.target}
        values |= {"id": self.object_id, "order": self.order}
        more = {"trash": self.trash, "nonce": self.nonce}
        values |= {name: value for name, value in more.items() if value is not None}
        return json.dumps(values, separators=(",", ":"))


# -- reading records -----------------------------------------------------------------------------


def pending(metadata: Mapping[str, str]) -> tuple[Move, ...]:
    """The moves that a register speaks of, in their order; those that cannot be read are left out."""
    if not metadata:
        return ()
    found = [_parsed(key, metadata[key]) for key in metadata if key.startswith(PREFIX)]
    return tuple(
        sorted((move for move in found if move is not None), key=lambda move: (move.order, move.uuid))
    )


_recent: tuple[tuple[Mapping[str, str], tuple[Move, ...]], ...] = ()


def moves_of(register: Register) -> tuple[Move, ...]:
    """`pending` of a version of the register; kept for the last ones, since every look at a table asks."""
    global _recent
    metadata = register.metadata
    if not metadata:
        return ()
    for known, moves in _recent:
        if known is metadata:
            return moves
    moves = pending(metadata)
    _recent = ((metadata, moves), *_recent[: REGISTERS_KEPT - 1])
    return moves


def unreadable(metadata: Mapping[str, str]) -> tuple[str, ...]:
    """The keys of moves that cannot be read."""
    return tuple(key for key in metadata if key.startswith(PREFIX) and _parsed(key, metadata[key]) is None)


def _parsed(key: str, text: str) -> Move | None:
    try:
        values = json.loads(text)
        kind = Kind(values.get("kind", "move"))
        order = whole(values.get("order", 0), MAX_ORDER)
        source, target, name = (words(values[each]) for each in ("from", "to", "id"))
        more = {each: values.get(each) for each in ("trash", "nonce")}
        named = {each: None if value is None else words(value) for each, value in more.items()}
        needed = {Kind.MOVE: (source, target), Kind.HIDE: (source,), Kind.SHOW: (target,)}[kind]
        if not all(map(is_place, needed)):
            return None
        return Move(uuid_of(key, PREFIX), kind, source, target, name, order=order, **named)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def uuid_of(key: str, prefix: str) -> str:
    """The uuid in the key of a record, which names files. Raises `ValueError`."""
    found = key.removeprefix(prefix)
    if not _UUID.fullmatch(found):
        raise ValueError(f"{key!r} ends with no uuid")
    return found


def words(value: Any) -> str:
    """Text of a record, such as can be stored. Raises `ValueError`."""
    if not isinstance(value, str):
        raise ValueError(f"{type(value).__name__} is no text")
    value.encode()
    return value


def whole(value: Any, limit: int) -> int:
    """A number of a record from 0 to below a limit: `json` also reads Infinity, and any number of digits.
    Raises `ValueError`.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < limit:
        raise ValueError(f"{type(value).__name__} is no number below {limit}")
    return value


def places(register: Register, row: Row) -> tuple[str, ...]:
    """Where the directory of a table row may be."""
    location = row.location or ""
    found = [each.source for each in moves_of(register) if each.target == location and each.source]
    return (location, *reversed(found))


def standing(store: Store, register: Register, location: str) -> str:
    """Where the directory of a row with this location is now: there, or where it is to be moved from."""
    for move in reversed(moves_of(register)):
        is_mine = move.kind is Kind.MOVE and move.target == location
        if is_mine and store.exists(f"{move.source}/{move.witness}"):
            return move.source
    return location


def leaving(store: Store, register: Register, location: str) -> bool:
    """Whether what stands at a location was dropped or renamed and is about to go: no table of that name."""
    for move in moves_of(register):
        if move.source == location and (move.kind is Kind.HIDE or store.exists(f"{location}/{move.witness}")):
            return True
    return False


# -- deciding a move -----------------------------------------------------------------------------


def is_visible(location: str) -> bool:
    """Whether programs that read the root by names take a directory here for a table."""
    return location.endswith(SUFFIX) and "/" not in location


def can_move(store: Store) -> bool:
    """Whether the store renames directories. Asked for a directory that is not there, it only says so."""
    nothing = f".tmp{runtime.uuid4().hex}"
    try:
        store.move_dir(nothing, nothing + "-moved")
    except ObjectNotFound:
        return True
    except UnsupportedFeature:
        return False
    return True


def put_witness(store: Store, move: Move) -> Store | None:
    """Have the directory told by a file in it, before the rewrite; the directory, None where there is none.

    The file is made through a handle on the directory: if that is moved or removed meanwhile, nothing new
    appears under the name. Raises `StoreError` where it could not be made.
    """
    table = store.at(move.source)
    if not table.list_names(""):
        return None
    settle_versions(table)
    for _ in range(WITNESS_TRIES):
        answer = table.create(move.witness, move.uuid.encode())
        if answer in (Created.WON, Created.EXISTS):
            return table
        cause = table.failure(move.witness)
        if not (isinstance(cause, StoreError) and cause.errno == errno.ENOENT):
            break
        if not table.list_names(""):
            return None  # another program has dropped the table, with its directory
    if answer is Created.UNKNOWN and table.exists(move.witness):
        table.sync_dir(PRIVATE)
        return table
    raise StoreError(
        f"cannot prepare {store.uri}/{move.source} for being moved: {cause}; nothing was changed"
    ) from cause


def settle_versions(table: Store) -> None:
    """Make the versions of a table survive power loss before its directory gets another name: one whose
    creator was not told that it stands would not, and what is told of the table after that has to hold.
    Raises `StoreError`.
    """
    with suppress(ObjectNotFound):  # declared only, or removed by others
        table.sync_dir(VERSIONS_DIR)


def add(metadata: MutableMapping[str, str], move: Move) -> Move:
    """Put a move into a draft's metadata, behind all that were decided before; as it stands there."""
    last, recent = _history(metadata)
    move = replace(move, order=last + 1)
    metadata[move.key] = move.text()
    recent = [*recent, [move.order, move.source, move.target]][-MOVES_REMEMBERED:]
    metadata[HISTORY] = json.dumps({"last": move.order, "recent": recent}, separators=(",", ":"))
    return move


def _history(metadata: Mapping[str, str]) -> tuple[int, list[list[Any]]]:
    """The number of the last move ever decided, and the last moves as (number, from, to)."""
    try:
        values = json.loads(metadata.get(HISTORY, "{}"))
        recent = [
            [whole(order, MAX_ORDER), str(source), str(target)]
            for order, source, target in values.get("recent", [])
        ]
        return whole(values.get("last", 0), MAX_ORDER), recent
    except (ValueError, TypeError, AttributeError, RecursionError):
        # Not ours to read: then every look at it says "perhaps", and moves are counted anew from high up.
        return max((each.order for each in pending(metadata)), default=0) + MOVES_REMEMBERED, []


def left_since(register: Register, metadata: Mapping[str, str], name: str, location: str) -> bool:
    """Whether the table of an object id (`name`) and a location may have been dropped or renamed between a
    version that was looked at and the draft with this metadata.
    """
    known = register.metadata
    new = [key for key in metadata if key.startswith(TRASH_PREFIX) and key not in known]
    if any(f'"id":{json.dumps(name)}' in metadata[key] for key in new):
        return True
    return any(source == location for source, _ in _decided_since(register, metadata, location))


def changed_since(register: Register, metadata: Mapping[str, str], location: str) -> bool:
    """Whether another table may have come to a location, or the one there have left it, in that time."""
    return any(location in each for each in _decided_since(register, metadata, location))


def _decided_since(register: Register, metadata: Mapping[str, str], location: str) -> list[tuple[str, str]]:
    """(from, to) of the moves decided since; a move from and to `location` where not all are remembered."""
    seen, _ = _history(register.metadata)
    last, recent = _history(metadata)
    found = [(source, target) for order, source, target in recent if order > seen]
    return found if len(found) >= last - seen else [*found, (location, location)]


def relocate(draft: Draft, source: str, target: str) -> None:
    """Give every table row, and every dropped table, that has a location another one."""
    for row in draft.rows.by_location(source):
        draft.put(replace(row, location=target))
    for key in [key for key in draft.metadata if key.startswith(TRASH_PREFIX)]:
        try:
            values = json.loads(draft.metadata[key])
        except (ValueError, RecursionError):
            continue
        if isinstance(values, dict) and values.get("location") == source:
            draft.metadata[key] = json.dumps({**values, "location": target}, separators=(",", ":"))


# -- carrying moves out --------------------------------------------------------------------------


class State(Enum):
    """What is to be said of a move after it was tried."""

    DONE = "done"
    VOID = "void"
    """There was nothing to move: neither name has the directory."""
    BLOCKED = "blocked"
    """Something else has the new name."""


@dataclass(frozen=True, slots=True)
class Rolled:
    """What became of the moves of one version of the register."""

    settled: tuple[str, ...] = ()
    """Keys of records that have done their service."""
    blocked: tuple[Move, ...] = ()
    """Moves whose new name something else has."""


NOTHING_ROLLED = Rolled()


def roll_forward(catalog: Catalog, register: Register) -> Register:
    """Carry out the moves that a version of the register speaks of, before anything is planned on it; the
    register to plan on. Every mutator does so first.
    """
    if not roll(catalog.store, register).blocked:
        return register
    catalog.mutate(lambda draft: None)  # the round makes way for what came between
    return catalog.register()


def roll(store: Store, register: Register) -> Rolled:
    """Carry out the moves of a register; what `go_elsewhere` and `retire` need. `store`: the catalog's root.

    A move that the store refuses stays for the next mutator; whoever needs its place says so.
    """
    moves = moves_of(register)
    if not moves:
        return NOTHING_ROLLED
    settled: list[str] = []
    blocked: list[Move] = []
    for move in moves:
        try:
            state = perform(store, move)
        except StoreError:
            continue  # it stands in the register until somebody can do it
        if state is State.BLOCKED:
            blocked.append(move)
        else:
            settled.append(move.key)
    return Rolled(tuple(settled), tuple(blocked))


def finish(catalog: Catalog, move: Move, decided_at: float) -> State:
    """Carry out a move of ours that was decided at `decided_at` (boot clock). Raises `StoreError`."""
    if runtime.monotonic() - decided_at > LATE_SECONDS and move.key not in catalog.register().metadata:
        return perform(catalog.store, move, look_only=True)
    state = perform(catalog.store, move)
    if move.kind is Kind.HIDE and runtime.monotonic() - decided_at > LATE_SECONDS:
        _unless_brought_back(catalog, move)
    return state


def _unless_brought_back(catalog: Catalog, move: Move) -> None:
    """A marker that was put late hides nothing that lives by now."""
    metadata = catalog.register().metadata
    if move.key not in metadata and f"{TRASH_PREFIX}{move.trash}" not in metadata:
        _take_marker(catalog.store, move.source, move.uuid)


def perform(store: Store, move: Move, *, look_only: bool = False) -> State:
    """Carry out one move if that is still to be done; what is to be said of it. Raises `StoreError`."""
    match move.kind:
        case Kind.HIDE:
            return State.DONE if look_only else _hide(store, move)
        case Kind.SHOW:
            if not look_only and move.nonce is not None:
                _take_marker(store, move.target, move.nonce)
            return State.DONE
    source, target = f"{move.source}/{move.witness}", f"{move.target}/{move.witness}"
    if look_only or not store.exists(source):
        return State.DONE if store.exists(target) else State.VOID
    _forget_others(store, move)
    try:
        answer = store.move_dir(move.source, move.target)
    except ObjectNotFound:
        return State.DONE if store.exists(target) else State.VOID  # somebody else did it
    match answer:
        case Created.WON:
            if store.exists(target):
                return State.DONE
            return _put_back(store, move)
        case Created.EXISTS:
            return State.BLOCKED if store.exists(source) else State.DONE
    cause = store.failure(move.target)
    raise StoreError(
        f"cannot move {store.uri}/{move.source} to {move.target}: {cause}; the next change of the catalog "
        "tries again"
    ) from cause


def _forget_others(store: Store, move: Move) -> None:
    """Take the witnesses of earlier moves out of the directory: a late mover of one finds nothing to do."""
    directory = f"{move.source}/{PRIVATE}"
    for name in store.list_names(directory):
        if name.startswith(WITNESS) and f"{PRIVATE}/{name}" != move.witness:
            store.delete(f"{directory}/{name}")


def _put_back(store: Store, move: Move) -> State:
    """Our rename took a directory that came under the name after our look."""
    if store.move_dir(move.target, move.source) is not Created.WON:
        raise StoreError(
            f"{store.uri}/{move.source} was moved to {move.target} though another table's, and could not be "
            "moved back: rename the directory by hand, or run `tiltyard catalog repair`"
        )
    return State.VOID


def _hide(store: Store, move: Move) -> State:
    """Put the marker, once: a note beside it says so to those who come when it was taken away again."""
    table = store.at(move.source)
    note = f"{PRIVATE}/{HIDDEN_NOTE}{move.uuid}"
    if table.exists(note):
        return State.DONE
    if not table.list_names(""):
        return State.VOID
    for path, data in ((DEREGISTERED, WORD + b"\n" + move.uuid.encode()), (note, b"")):
        answer = table.create(path, data)
        if answer is Created.WON:
            continue
        if answer is not Created.EXISTS and not table.exists(path):
            cause = table.failure(path)
            raise StoreError(f"cannot hide {store.uri}/{move.source}: {cause}") from cause
        table.sync_dir(parent_of(path))  # who made it may have died before it was durable
    return State.DONE


def marker_nonce(store: Store, location: str) -> str | None:
    """The nonce in the marker that hides a directory; None without a marker, or one of another program."""
    found = read_marker(store.at(location), DEREGISTERED)
    lines = [] if found is None else found.split(b"\n")
    return lines[1].decode("ascii", "replace") if len(lines) > 1 else None


def _take_marker(store: Store, location: str, nonce: str) -> None:
    if marker_nonce(store, location) == nonce:
        remove_marker(store.at(location), DEREGISTERED)


# -- what the next rewrite does about them -------------------------------------------------------


def retire(draft: Draft, rolled: Rolled) -> None:
    """Take out the records of moves that are done; a rewrite does it along, none is made for it."""
    for key in rolled.settled:
        draft.metadata.pop(key, None)


def go_elsewhere(draft: Draft, rolled: Rolled) -> None:
    """Give tables whose new directory's name something else has another directory: the one that they are in
    if nobody finds it by its name, else one with a name that nobody else draws (invariant 3).
    """
    for move in rolled.blocked:
        if move.key not in draft.metadata:
            continue
        if is_visible(move.source):
            target = hashed_location(parts(move.object_id))
            draft.metadata[move.key] = replace(move, target=target).text()
        else:
            target = move.source
            del draft.metadata[move.key]
        relocate(draft, move.target, target)
