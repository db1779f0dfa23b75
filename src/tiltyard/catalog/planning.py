"""Plans of changes that move a table's directory: when they are made again, and what has the name of the new
directory meanwhile.

A drop, undrop or rename looks at the table and its directory, prepares (a witness, `moves`), and decides in a
rewrite that finds everything as it was planned for, or plans again. In the root a creator decides without a
row, by the first version in `<name>.lance`; so whoever is to get that name looks for one at work as late as
in the round itself, and waits for it to finish.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tiltyard import runtime
from tiltyard.catalog import moves
from tiltyard.catalog.found import has_versions, is_directory
from tiltyard.catalog.markers import DEREGISTERED
from tiltyard.catalog.moves import Kind, Move, State
from tiltyard.catalog.names import Id, object_id, root_location
from tiltyard.errors import CatalogThrottled, ObjectNotFound, OutcomeUnknown, StoreError, TiltyardError
from tiltyard.table.wording import NS_PER_SECOND

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.store import Store

MAX_PLANS = 32
"""How often a drop, undrop or rename is planned again because others changed the table meanwhile."""

BUSY_SECONDS = 5.0
"""How long a rename or undrop waits for somebody who may be creating a table of the same name."""
FIRST_PAUSE_SECONDS = 0.002
LONGEST_PAUSE_SECONDS = 0.1

DEBRIS_SECONDS = 3_600.0
"""A directory without a version in which nothing was written for so long is nobody's who is at work."""

EMPTY_SECONDS = 2.0
"""The same of directories without any file, which a creator that gave way leaves: one who is at work puts its
first file into them right after."""

T = TypeVar("T")


class Outdated(TiltyardError):
    """The table is no longer what was planned for; never leaves this package."""


class Busy(TiltyardError):
    """Somebody may be creating a table of the name that one is to get; never leaves this package."""


def throttled(catalog: Catalog, id: Id, what: str) -> CatalogThrottled:
    """The error for a table that others changed each time."""
    return CatalogThrottled(
        f"table {object_id(id)!r} of {catalog.store.uri} was changed by others each of the {MAX_PLANS} times "
        f"that it was to be {what}; nothing was changed, try again"
    )


def planned(catalog: Catalog, id: Id, what: str, attempt: Callable[[], T]) -> T:
    """What an attempt gives, planned again while others change the table, or make one of the name that it is
    to have.
    """
    plans, began, pause = 0, runtime.monotonic(), FIRST_PAUSE_SECONDS
    while True:
        try:
            return attempt()
        except Outdated as outdated:
            plans += 1
            if plans >= MAX_PLANS:
                raise throttled(catalog, id, what) from outdated
        except Busy as busy:
            if runtime.monotonic() - began > BUSY_SECONDS:
                raise CatalogThrottled(
                    f"table {object_id(id)!r} of {catalog.store.uri} cannot be {what}: {busy}; nothing was "
                    "changed, try again later"
                ) from busy
            runtime.sleep(pause * (0.5 + runtime.random().random()))
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


def planned_move(catalog: Catalog, source: str, target: str, name: str) -> tuple[Move | None, Store | None]:
    """How the directory at a visible location leaves it: moved, hidden, or not at all where there is none;
    with the directory, in which a witness stands. Raises StoreError.
    """
    uuid, store = str(runtime.uuid4()), catalog.store
    if not is_directory(store, source):
        return None, None
    if not moves.can_move(store):
        return Move(uuid, Kind.HIDE, source, "", name), None
    move = Move(uuid, Kind.MOVE, source, target, name)
    table = moves.put_witness(store, move)
    return (move, table) if table is not None else (None, None)


@contextmanager
def deciding(move: Move | None, table: Store | None) -> Iterator[None]:
    """Around the rewrite that decides a move: where it was certainly not decided, its witness goes. After an
    unknown outcome it stays.
    """
    try:
        yield
    except OutcomeUnknown:
        raise
    except Exception:
        if move is not None and table is not None:
            with suppress(StoreError):  # alone it means nothing: the directory's next move takes it along
                table.delete(move.witness)
        raise


# -- the place under a root table's name ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NamePlace:
    """What has the name of a root table's directory: nothing, or something lasting that is no table."""

    location: str
    is_free: bool


def is_free(catalog: Catalog, location: str) -> bool:
    """Whether nothing has a directory's name. Raises `Busy` where a creator may be at work in it.

    Files, what a deregistered table left, and old remains of dead creators are left alone: a table that is to
    have that name keeps, or gets, a directory of its own.
    """
    store = catalog.store
    if store.exists(location):
        return False
    try:
        changed_ns = store.dir_stat(location) or 0
    except ObjectNotFound:
        return True
    if store.exists(f"{location}/{DEREGISTERED}"):
        return False
    files = store.list(location)
    lasting = DEBRIS_SECONDS if files else EMPTY_SECONDS
    changed_ns = max([changed_ns, *(each.mtime_ns for each in files)])
    if has_versions(store, location) or store.now_ns() - changed_ns < lasting * NS_PER_SECOND:
        raise Busy(f"somebody is creating a table in {location}, or died there not long ago")
    return False


def name_place(catalog: Catalog, id: Id, own: str) -> NamePlace | None:
    """The place of a table's name, where a creator may decide without a row. `own`: where the table is."""
    location = root_location(id[0])
    if len(id) > 1 or not catalog.settings.mode.lists_directories or own == location:
        return None
    return NamePlace(location, is_free(catalog, location))


def check_place(catalog: Catalog, place: NamePlace | None) -> None:
    """Look again within the round, as late as can be: raise `Outdated` where somebody came."""
    if place is not None:
        try:
            changed = is_free(catalog, place.location) is not place.is_free
        except Busy as busy:
            raise Outdated from busy
        if changed:
            raise Outdated


def finish(catalog: Catalog, move: Move, decided_at: float) -> str:
    """Carry out the move of a table that got a new name; where its directory is then. What the store refuses
    now, the next change of the catalog does: readers find the table where it is.
    """
    for _ in range(MAX_PLANS):
        try:
            if moves.finish(catalog, move, decided_at) is not State.BLOCKED:
                break
            catalog.mutate(lambda draft: None)  # the round makes way for what came between
            metadata = catalog.register().metadata
        except TiltyardError:
            break  # it is decided, whatever cannot be done now
        again = next((each for each in moves.pending(metadata) if each.uuid == move.uuid), None)
        if again is None:
            return move.source  # it stays where nobody finds it by its name, or others have moved it
        move = again
    return move.target
