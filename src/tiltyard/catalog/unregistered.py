"""Dropping, bringing back, purging and renaming tables of a catalog without a register (decision D26).

There the directories are the catalog, and each of these is one step that the store decides, the move of a
directory:

| change | from | to |
|---|---|---|
| drop | `<name>.lance` | `<8 digits>_dropped_<name>` |
| undrop | `<8 digits>_dropped_<name>` | `<name>.lance` |
| purge | `<8 digits>_dropped_<name>` | `<8 digits>_purged_<name>`, which is then deleted |
| rename | `<name>.lance` | `<new name>.lance` |
| deregister | `<name>.lance/_tiltyard/hide-<uuid>`, a file | `<name>.lance/.lance-deregistered` |

Who drops first puts a note into the directory, `_tiltyard/drop-<uuid>`: the time of the drop, and until when
the data stay. The digits are the first of the uuid; notes of drops that came to nothing mean nothing. Where
a note is missing, its author died or is about to put it: the table was dropped by the move all the same.

A marker that deregisters gets its name by the path from the root, so never in a directory that has left the
table's name, and says at which name that was. So who has moved a directory and finds a marker of the name
that it had knows that the table was no longer there before, and puts it back.

Where the store cannot rename directories, markers decide (`marked`), and tables are not renamed.

1. Of all that drop, rename, bring back or purge one table at once exactly one is told so. Who finds that
   another one was first looks again, and is told what stands then.
2. A directory that was moved though it was another one is put back; where its name was given away before
   that, the creator who is at work in it finds out, and begins again (`was_moved_away`).
3. Whoever dies, at any step, leaves a table under its name, or one that was dropped; or, where a table was
   deregistered in the very moment, its files under another name with the marker (see `purge`).
Tests: tests/catalog/test_trash_unregistered.py; scenarios `catalog-*-directories-*` of the simulation.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from tiltyard import runtime
from tiltyard.catalog import marked, moves
from tiltyard.catalog.found import (
    MAX_DIRECTORY_BYTES,
    Found,
    find_or_none,
    find_table,
    has_versions,
    is_directory,
)
from tiltyard.catalog.markers import DEREGISTERED, RESERVED, marker_content, note_of, put_marker, read_marker
from tiltyard.catalog.names import Id, location_uri, root_location
from tiltyard.catalog.planning import Outdated, is_free, planned
from tiltyard.catalog.register import absent
from tiltyard.catalog.settings import DEFAULT_GRACE_SECONDS
from tiltyard.catalog.taking import FREE_FOR_RENAME, FREE_FOR_UNDROP
from tiltyard.catalog.trash import DROPPED, PURGING, Dropped, chosen
from tiltyard.errors import (
    ObjectNotFound,
    OutcomeUnknown,
    StoreError,
    TableAlreadyExists,
    UnsupportedFeature,
)
from tiltyard.store import Created
from tiltyard.table.wording import NS_PER_SECOND

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.catalog.purging import Purged
    from tiltyard.store import Store

NOTE = "drop-"
"""What the files begin with that tell of a drop."""

RENAME = "rename-"
"""What the files begin with that say in the directory of a table where it is being renamed to."""

NO_NOTE = "-0000-4000-8000-000000000000"
"""What follows on the digits in the uuid of a drop whose note is missing."""

STAGE = "hide-"
"""What the files begin with that are to become the marker of a deregistration."""

STANDS, VOID = b"stands", b"void"

FIRST = f"{moves.PRIVATE}/first"
"""Whether the first version counts that came into a directory while it was moved aside."""

_ASIDE = re.compile(r"([0-9a-f]{8})_(dropped|purged)_(.+)", re.ASCII | re.DOTALL)


def _aside(trash: str, name: str, word: str = "dropped") -> str:
    return f"{trash[:8]}_{word}_{name}"


def _note(trash: str) -> str:
    return f"{moves.PRIVATE}/{NOTE}{trash}"


# -- looking -------------------------------------------------------------------------------------


def dropped_tables(catalog: Catalog) -> tuple[Dropped, ...]:
    """Every dropped table that still has data, the oldest drop first."""
    catalog.follow()
    store = catalog.store
    looked = (_record(store, name) or marked.record_of(store, name) for name in store.list_names(""))
    found = [each for each in looked if each is not None]
    return tuple(sorted(found, key=lambda each: (each.dropped_ns, each.trash)))


def _record(store: Store, directory: str) -> Dropped | None:
    """What a directory that was moved aside says: its note, or without one its name."""
    parts = _ASIDE.fullmatch(directory)
    if parts is None:
        return None
    digits, word, name = parts.groups()
    home, state = root_location(name), PURGING if word == "purged" else DROPPED
    private = store.list_names(f"{directory}/{moves.PRIVATE}")
    if state == DROPPED and store.exists(f"{directory}/{DEREGISTERED}"):
        return None  # it was deregistered before; see `_put_back`
    for note in private:
        if not note.startswith(NOTE + digits):
            continue
        try:
            said = store.read(f"{directory}/{moves.PRIVATE}/{note}").to_pybytes().split()
        except ObjectNotFound:
            continue  # brought back, or purged
        if len(said) != 2 or not (said[0].isdigit() and said[1].isdigit()):
            continue
        record = Dropped(note.removeprefix(NOTE), name, directory, int(said[0]), int(said[1]))
        return replace(record, home=home, state=state)
    if any(each.startswith(moves.WITNESS) for each in private):
        return None  # a drop that a register tells of
    if state == DROPPED and (not _is_table(store.at(directory)) or _is_void(store.at(directory))):
        return None  # what a creator has begun
    try:
        dropped_ns = store.dir_stat(directory) or store.now_ns()
    except ObjectNotFound:
        return None
    until_ns = dropped_ns + round(DEFAULT_GRACE_SECONDS * NS_PER_SECOND)
    return Dropped(digits + NO_NOTE, name, directory, dropped_ns, until_ns, state, home=home)


def _is_void(table: Store) -> bool:
    try:
        return table.read(FIRST).to_pybytes() == VOID
    except ObjectNotFound:
        return False


def has_note(table: Store) -> bool:
    """Whether an open table may have been dropped: its directory holds a note of that."""
    return any(name.startswith(NOTE) for name in table.list_names(moves.PRIVATE))


def was_moved_away(catalog: Catalog, location: str, manifest: str, table: Store) -> bool:
    """Whether the directory in which a creator has put the first version is nobody's: it was moved before,
    when it was no table yet, and its name went to somebody else before it could be put back.

    `table`: the directory as the creator has it open. One that was dropped holds a note; a renamed one is
    another table.
    """
    store = catalog.store
    if _holds(store, location, manifest, table) or has_note(table) or not table.exists(manifest):
        return False  # it is there, or was dropped, or purged even
    visible = (name for name in store.list_names("") if moves.is_visible(name))
    if any(_holds(store, name, manifest, table) for name in visible):
        return False
    # Else who has moved it counts it as the table that was dropped: who has removed it, in any case.
    return _said(table, FIRST, VOID) == VOID


def _holds(store: Store, location: str, path: str, table: Store) -> bool:
    try:
        return store.stat(f"{location}/{path}").tag == table.stat(path).tag
    except ObjectNotFound:
        return False


# -- dropping and renaming -----------------------------------------------------------------------


def drop_table(catalog: Catalog, id: Id, grace_ns: int, *, purge: bool = False) -> Dropped:
    """See `trash.drop_table`."""
    return planned(catalog, id, "dropped", partial(_drop, catalog, id, grace_ns, purge))


def _drop(catalog: Catalog, id: Id, grace_ns: int, purge: bool) -> Dropped:
    """One plan of a drop. Raises Outdated where others moved the directory."""
    found = find_table(catalog, id)
    store = catalog.store
    now_ns = store.now_ns()
    until_ns = now_ns if purge else now_ns + grace_ns
    record = Dropped(str(runtime.uuid4()), id[0], found.location, now_ns, until_ns, home=found.location)
    aside = _aside(record.trash, id[0])
    if len(aside.encode()) > MAX_DIRECTORY_BYTES or not moves.can_move(store):
        return marked.drop_table(catalog, found, replace(record, home=None, hidden=True), purge=purge)
    table, note = store.at(found.location), _note(record.trash)
    said = f"{now_ns} {until_ns}".encode()
    if not _is_table(table) or not _put(table, note, said):
        raise Outdated  # it was moved, and what a creator has begun is in its place
    try:
        _prepare(table, found.location)
        _move(store, found.location, aside, "drop", lambda: _is_aside(store, f"{aside}/{note}"))
        _check_moved(store, table, found.location, aside, lambda: _is_another(store, aside, note, said))
    except (Outdated, StoreError) as error:
        if not isinstance(error, OutcomeUnknown):
            with suppress(StoreError):  # it tells of nothing
                table.delete(note)
        raise
    record = replace(record, location=aside)
    if purge:
        with suppress(StoreError, Outdated):  # it is dropped; what is not deleted now, the next purge deletes
            _delete(store, _given_up(store, record))
    return record


def _is_aside(store: Store, note: str) -> bool:
    if not store.exists(note):
        return False
    store.sync_dir("")
    return True


def _is_another(store: Store, aside: str, note: str, said: bytes) -> bool:
    """Whether what we have moved aside is no table: what a creator has begun since. Another table of the name
    gets the note: it is the one that was dropped.
    """
    if store.exists(f"{aside}/{note}") or not is_directory(store, aside):
        return False  # else it was moved on since
    table = store.at(aside)
    return not (_is_table(table) and _said(table, FIRST, STANDS) == STANDS and _put(table, note, said))


def _said(table: Store, path: str, word: bytes) -> bytes | None:
    """What a file of ours says, once for all: `word`, or what another one said before. None where the
    directory was removed.
    """
    try:
        return table.read(path).to_pybytes() if _put(table, path, word) else None
    except ObjectNotFound:
        return None


def _put(table: Store, path: str, data: bytes) -> bool:
    """Create a file of ours in a directory; False where that was removed. Raises StoreError."""
    if not table.list_names(""):
        return False  # the handle is open now: nothing is made under a name that went to another directory
    answer = table.create(path, data)
    if answer in (Created.WON, Created.EXISTS):
        return True
    cause = table.failure(path)
    if not table.list_names("") or (isinstance(cause, StoreError) and cause.errno == errno.ENOENT):
        return False  # a purge may be in the middle of it
    raise StoreError(f"cannot write {table.uri}/{path}: {cause}; nothing was changed") from cause


def _move(
    store: Store, source: str, target: str, verb: str, is_there: Callable[[], bool] = lambda: False
) -> None:
    """Move a directory or a file, which decides a change. Raises Outdated where another one was first.

    `is_there`: whether it has come to the target, for certain and for good, where the answer was lost.
    """
    try:
        answer = store.move_dir(source, target)
    except ObjectNotFound:
        raise Outdated from None
    if answer is Created.WON:
        return
    if answer is Created.EXISTS:
        raise Outdated
    cause = store.failure(target)
    with suppress(StoreError):
        if answer is Created.UNKNOWN and is_there():
            return
    if answer is Created.NOT_DONE:
        raise StoreError(f"cannot {verb} {store.uri}/{source}: {cause}; nothing was changed") from cause
    raise OutcomeUnknown(
        f"the answer to moving {source} to {target} in {store.uri} was lost ({cause}): look which is there"
    ) from cause


def _check_moved(
    store: Store, table: Store, source: str, target: str, is_another: Callable[[], bool]
) -> None:
    """After a move: put back what was deregistered before, or is not the table. Raises Outdated then, and
    OutcomeUnknown where the store does not let us look.

    `table`: the directory as it was opened before.
    """
    try:
        marker = read_marker(table, DEREGISTERED)
        hidden = marker is not None and note_of(marker) in (None, _at(source))
        if hidden and read_marker(store.at(target), DEREGISTERED) != marker:
            raise Outdated  # moved on
        if hidden or is_another():
            try:
                _move(store, target, source, "put back")
            except Outdated:
                if not hidden and not is_another():
                    return  # its old name was given away, and it has become a table meanwhile
            raise Outdated
    except StoreError as error:
        raise OutcomeUnknown(
            f"{store.uri}/{source} was moved to {target}, but whether it was the table cannot be told "
            f"({error}): look which is there"
        ) from error


def _at(location: str) -> str:
    """What the marker says that deregisters the table at a location; other programs' say nothing."""
    return f"at {quote(location)}"


def deregister_table(catalog: Catalog, id: Id) -> Found:
    """See `declaring.deregister_table`."""
    return planned(catalog, id, "deregistered", partial(_deregister, catalog, id))


def _deregister(catalog: Catalog, id: Id) -> Found:
    found = find_table(catalog, id)
    store, location = catalog.store, found.location
    table, stage = store.at(location), f"{moves.PRIVATE}/{STAGE}{runtime.uuid4()}"
    marker, data = f"{location}/{DEREGISTERED}", marker_content(_at(location))

    def is_there() -> bool:
        """Through the handle: by the path the directory may have left its name right after the decision."""
        if read_marker(table, DEREGISTERED) != data:
            return False
        table.sync_dir("")
        return True

    if not _put(table, stage, data):
        raise Outdated  # dropped, and purged
    try:
        _move(store, f"{location}/{stage}", marker, "deregister", is_there)
    except UnsupportedFeature:
        _forget(table, stage)
        if not put_marker(table, DEREGISTERED, _at(location)):
            raise Outdated from None  # somebody else's
    except (Outdated, StoreError) as error:
        if not isinstance(error, OutcomeUnknown):
            _forget(table, stage)
        raise
    try:
        table.sync_dir("")
    except StoreError as error:
        raise OutcomeUnknown(
            f"{store.uri}/{location} was deregistered, but whether that survives a power loss cannot be told "
            f"({error}): look whether the table is there"
        ) from error
    return found


def _forget(table: Store, path: str) -> None:
    with suppress(StoreError):  # it means nothing any more
        table.delete(path)


def rename_table(catalog: Catalog, id: Id, new_id: Id) -> Found:
    """See `renaming.rename_table`. Raises UnsupportedFeature where the store cannot rename directories."""
    return planned(catalog, id, "renamed", partial(_rename, catalog, id, new_id))


def _rename(catalog: Catalog, id: Id, new_id: Id) -> Found:
    found = find_table(catalog, id)
    store = catalog.store
    if find_or_none(catalog, absent(), new_id) is not None:
        raise TableAlreadyExists(f"table {new_id[0]!r} exists already in {store.uri}{FREE_FOR_RENAME}")
    target = root_location(new_id[0])
    _check_free(catalog, target)
    table, witness = store.at(found.location), f"{moves.PRIVATE}/{RENAME}{runtime.uuid4()}"
    if not _is_table(table) or not _put(table, witness, target.encode()):
        raise Outdated
    try:
        _prepare(table, found.location)
        _move(store, found.location, target, "rename")
        _check_moved(
            store, table, found.location, target, lambda: _is_remainder(store, table, target, witness)
        )
    except UnsupportedFeature as error:
        raise UnsupportedFeature(
            f"table {id[0]!r} cannot be renamed: {store.uri} cannot rename directories, and this catalog has "
            "no register (manifest_enabled=false), whose rows could be changed instead"
        ) from error
    finally:
        _forget(table, witness)
    return Found(new_id, target, location_uri(store.uri, target), None, found.declared_only)


def _prepare(table: Store, location: str) -> None:
    """Before a table's directory is moved: its versions have to last, and whoever has renamed it to this
    location, and sleeps, is to know that the table has been there.
    """
    moves.settle_versions(table)
    for name in table.list_names(moves.PRIVATE):
        path = f"{moves.PRIVATE}/{name}"
        with suppress(ObjectNotFound):
            if name.startswith(RENAME) and table.read(path).to_pybytes() == location.encode():
                table.delete(path)


def _is_remainder(store: Store, table: Store, location: str, witness: str) -> bool:
    """Whether a directory is there and no table: a creator took the name before the directory was moved.
    Not where the witness was taken out of ours: then it has been there, and was moved on.
    """
    if not table.exists(witness) or _is_table(store.at(location)):
        return False
    return is_directory(store, location)


def _is_table(table: Store) -> bool:
    return has_versions(table, "") or table.exists(RESERVED)


def _check_free(catalog: Catalog, location: str) -> None:
    """Raise TableAlreadyExists where something lasting has a directory's name, Busy where a creator may be at
    work there.
    """
    if is_free(catalog, location):
        return
    uri = f"{catalog.store.uri}/{location}"
    if catalog.store.exists(f"{location}/{DEREGISTERED}"):
        raise TableAlreadyExists(
            f"{uri} holds the files of a table that was deregistered: move them away first"
        )
    raise TableAlreadyExists(
        f"{uri} is in the way, and is no table: what a creation or a removal that was cut off has left. "
        "`tiltyard catalog repair` with --mode v1 and --prune sets it aside"
    )


# -- bringing back and purging -------------------------------------------------------------------


def undrop_table(catalog: Catalog, id: Id | None, trash: str | None) -> Dropped:
    """See `trash.undrop_table`."""
    name = id if id is not None else (str(trash),)
    return planned(catalog, name, "brought back", partial(_undrop, catalog, id, trash))


def _undrop(catalog: Catalog, id: Id | None, trash: str | None) -> Dropped:
    record = chosen(catalog, dropped_tables(catalog), id, trash)
    store = catalog.store
    if record.hidden:
        return marked.undrop_table(catalog, record)
    home = root_location(record.object_id)
    if find_or_none(catalog, absent(), record.id) is not None:
        raise TableAlreadyExists(f"table {record.object_id!r} exists already in {store.uri}{FREE_FOR_UNDROP}")
    _check_free(catalog, home)
    table = store.at(record.location)
    if not table.list_names("") or not _counts(table, record):
        raise Outdated
    _move(store, record.location, home, "bring back")
    with suppress(StoreError):  # it tells of nothing any more
        table.delete(_note(record.trash))
    return record


def _counts(table: Store, record: Dropped) -> bool:
    """Whether a directory that was moved aside holds the table that was dropped. Without a note it may be
    that of a creator, who has to agree.
    """
    return not record.trash.endswith(NO_NOTE) or _said(table, FIRST, STANDS) == STANDS


def purge(catalog: Catalog, grace_seconds: float | None) -> Purged:
    """See `purging.purge`."""
    from tiltyard.catalog.purging import Purged, until

    store, done, now_ns = catalog.store, Purged(), catalog.store.now_ns()
    _put_back(store)
    for record in dropped_tables(catalog):
        if record.state != PURGING and until(record, grace_seconds) > now_ns:
            continue
        if record.hidden:
            marked.purge(catalog, record, done)
            continue
        if record.state != PURGING:
            try:
                if not _counts(store.at(record.location), record):
                    continue
                record = _given_up(store, record)
            except Outdated:
                continue  # brought back, or another purge was first
            done.given_up.append(record)
        _delete(store, record)
        done.removed.append(record.location)
    return done


def _put_back(store: Store) -> None:
    """Files of deregistered tables that somebody took for a table and moved, and died, go back to the name
    that the marker says, where that is free.
    """
    for name in store.list_names(""):
        if not (_ASIDE.fullmatch(name) or moves.is_visible(name)):
            continue
        note = note_of(read_marker(store.at(name), DEREGISTERED)) or ""
        home = unquote(note.removeprefix(_at("")))
        if note.startswith(_at("")) and home != name and moves.is_visible(home):
            with suppress(Outdated, StoreError):
                _move(store, name, home, "put back")


def _given_up(store: Store, record: Dropped) -> Dropped:
    """The record once nobody can bring the table back. Raises Outdated where others were first."""
    purged = _aside(record.trash, record.object_id, "purged")
    _move(store, record.location, purged, "purge")
    return replace(record, location=purged)


def _delete(store: Store, record: Dropped) -> None:
    """Delete the files of a purged table, the note that tells what it was last."""
    from tiltyard.catalog.purging import removed_link

    directory = record.location
    if removed_link(store, directory):
        return
    note, versions = f"{directory}/{_note(record.trash)}", f"{directory}/_versions/"
    found = [each.path for each in store.list(directory) if each.path != note]
    store.delete_many([path for path in found if not path.startswith(versions)]).check()
    store.delete_many([path for path in found if path.startswith(versions)]).check()
    store.delete_tree(directory)
