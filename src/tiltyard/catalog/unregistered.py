"""Dropping, bringing back, purging and renaming tables of a catalog without a register (decision D26).

There the directories are the catalog. A drop is decided by who creates the deregistered marker in a table's
directory; its note tells a drop from a mere deregistration: `dropped <uuid> <time> <until>` (ns, by the
store's clock). Then the directory is moved aside, where the store can, so that its name is free. How a drop
ends is decided by who creates `_tiltyard/end-<uuid>` in the directory: `undrop`, which takes the marker away
at last, or `purge`, which deletes everything: the word after the data, the marker after the word. So a word
written where no data is left decides nothing, and whoever wrote it takes it back.

1. Of all that drop one table exactly one is told so; of undrops and purges of one drop exactly one succeeds.
2. A directory that was moved aside though it was another one is put back: the note tells it.
3. A rename is one step of the store; where it has none, tables are not renamed.
Tests: tests/catalog/test_trash_unregistered.py.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from tiltyard import runtime
from tiltyard.catalog import moves
from tiltyard.catalog.found import Found, find_or_none, is_directory, no_table
from tiltyard.catalog.markers import DEREGISTERED, put_marker, read_marker, remove_marker
from tiltyard.catalog.names import SUFFIX, Id, dropped_location, location_uri, root_location
from tiltyard.catalog.register import absent
from tiltyard.catalog.trash import DROPPED, PURGING, Dropped, chosen
from tiltyard.errors import (
    CatalogThrottled,
    ObjectNotFound,
    OutcomeUnknown,
    StoreError,
    TableAlreadyExists,
    TableNotDropped,
    UnsupportedFeature,
)
from tiltyard.store import Created

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.catalog.purging import Purged
    from tiltyard.store import Store

WORD = "dropped"
UNDROP, PURGE = b"undrop", b"purge"

MAX_TRIES = 32
"""Undrops of one name that others decide first, before the caller is told to come again."""

_ASIDE = re.compile(r"[0-9a-f]{8}_dropped_(.+)", re.ASCII | re.DOTALL)


def _end(record: Dropped) -> str:
    """The file that decides how a drop ends."""
    return f"{moves.PRIVATE}/end-{record.trash}"


# -- records -------------------------------------------------------------------------------------


def dropped_tables(catalog: Catalog) -> tuple[Dropped, ...]:
    """Every dropped table that still has data, the oldest drop first."""
    catalog.follow()
    store, found = catalog.store, []
    for directory in store.list_names(""):
        aside = _ASIDE.fullmatch(directory)
        if aside is None and not moves.is_visible(directory):
            continue
        record = _record(store, directory, aside.group(1) if aside else directory.removesuffix(SUFFIX))
        if record is not None:
            found.append(record)
    return tuple(sorted(found, key=lambda each: (each.dropped_ns, each.trash)))


def _record(store: Store, directory: str, name: str) -> Dropped | None:
    table = store.at(directory)
    marker = read_marker(table, DEREGISTERED)
    words = [] if marker is None else marker.decode("utf-8", "replace").split("\n")[-1].split(" ")
    if len(words) != 4 or words[0] != WORD or not (words[2].isdigit() and words[3].isdigit()):
        return None  # no marker, or one that only deregisters
    home = root_location(name)
    record = Dropped(words[1], name, directory, int(words[2]), int(words[3]), hidden=True)
    if directory != home:
        record = replace(record, home=home)
    purged = _ending(table, record) == PURGE or _is_spent(table)
    return replace(record, state=PURGING) if purged else record


def _ending(table: Store, record: Dropped) -> bytes | None:
    try:
        return table.read(_end(record)).to_pybytes().split(b"\n")[0]
    except ObjectNotFound:
        return None


def _is_spent(table: Store) -> bool:
    """Whether nothing of a table is left but what tells of its drop."""
    return set(table.list_names("")) <= {DEREGISTERED, moves.PRIVATE}


def _decide(table: Store, record: Dropped, word: bytes) -> bool:
    """Decide how a drop ends: whether we did. Raises StoreError, OutcomeUnknown."""
    if _is_spent(table):
        return False  # moved or purged since; nothing is made under its name
    path = _end(record)
    data = word + b"\n" + str(runtime.uuid4()).encode()
    if not _is_ours(table, path, data, table.create(path, data)):
        return False
    if _is_spent(table):
        table.delete(path)  # a purge that was decided before had taken its word away already
        return False
    return True


def _is_ours(table: Store, path: str, data: bytes, answer: Created) -> bool:
    """Whether the word that stands there is the one that we wrote, and not a faster one."""
    if answer is Created.WON:
        return True
    if answer is Created.NOT_DONE:
        if _is_spent(table):
            return False  # purged while we asked
        cause = table.failure(path)
        raise StoreError(f"cannot write {table.uri}/{path}: {cause}; nothing was changed") from cause
    with suppress(ObjectNotFound):
        return table.read(path).to_pybytes() == data
    if answer is Created.EXISTS:
        return False  # somebody else's, and purged since
    raise OutcomeUnknown(f"the answer to creating {table.uri}/{path} was lost: try again")


# -- dropping and renaming -----------------------------------------------------------------------


def drop_table(catalog: Catalog, id: Id, grace_ns: int, *, purge: bool = False) -> Dropped:
    """See `trash.drop_table`."""
    catalog.follow()
    store = catalog.store
    found = find_or_none(catalog, absent(), id)
    if found is None:
        raise no_table(catalog, absent(), id)
    table, now_ns = store.at(found.location), store.now_ns()
    until_ns = now_ns if purge else now_ns + grace_ns
    record = Dropped(str(runtime.uuid4()), id[0], found.location, now_ns, until_ns, hidden=True)
    note = f"{WORD} {record.trash} {now_ns} {until_ns}"
    if not table.list_names("") or not put_marker(table, DEREGISTERED, note):
        raise no_table(catalog, absent(), id)
    if not _is_here(store, found.location, record):
        remove_marker(table, DEREGISTERED)  # it was renamed, and the marker went along
        raise no_table(catalog, absent(), id)
    with suppress(StoreError):  # decided; the marker hides it where it is
        record = _moved_aside(catalog, record)
    if purge:
        with suppress(StoreError, OutcomeUnknown):  # what is not deleted now, the next purge deletes
            if _decide(table, record, PURGE) and _is_here(store, record.location, record):
                _delete(store, record)
    return record


def _is_here(store: Store, directory: str, record: Dropped) -> bool:
    found = read_marker(store.at(directory), DEREGISTERED)
    return found is not None and f" {record.trash} ".encode() in found


def _moved_aside(catalog: Catalog, record: Dropped) -> Dropped:
    """The record after its directory was moved out of the way of its name, if the store can."""
    store = catalog.store
    if record.home is not None or not moves.can_move(store):
        return record
    aside = dropped_location(record.object_id)
    try:
        answer = store.move_dir(record.location, aside)
    except ObjectNotFound:
        return _as_it_is(catalog, record)  # others were first
    if answer is not Created.WON:
        return record
    if not _is_here(store, aside, record):
        store.move_dir(aside, record.location)  # brought back meanwhile, or another one
        return _as_it_is(catalog, record)
    return replace(record, location=aside, home=record.location)


def _as_it_is(catalog: Catalog, record: Dropped) -> Dropped:
    """The record of a drop, wherever others have moved its directory; as it was where that is gone."""
    return next((each for each in dropped_tables(catalog) if each.trash == record.trash), record)


def set_aside(catalog: Catalog, location: str) -> bool:
    """Free the name of a dropped table whose directory its dropper has not moved yet; whether what stands
    under the name has changed, so that it is looked at anew.
    """
    store = catalog.store
    record = _record(store, location, location.removesuffix(SUFFIX))
    if record is not None and _moved_aside(catalog, record).home is not None:
        return True
    return not store.exists(f"{location}/{DEREGISTERED}")


def is_dropped(catalog: Catalog, location: str) -> bool:
    """Whether a directory that has a table's name holds one that was dropped."""
    return _record(catalog.store, location, location.removesuffix(SUFFIX)) is not None


def _check_free(catalog: Catalog, location: str) -> None:
    if is_directory(catalog.store, location) or catalog.store.exists(location):
        raise TableAlreadyExists(
            f"{catalog.store.uri}/{location} is in the way: something has the directory's name, be it no "
            "table; drop it or move it away first"
        )


def rename_table(catalog: Catalog, id: Id, new_id: Id) -> Found:
    """See `renaming.rename_table`. Raises UnsupportedFeature where the store cannot rename directories."""
    catalog.follow()
    store = catalog.store
    found = find_or_none(catalog, absent(), id)
    if found is None:
        raise no_table(catalog, absent(), id)
    if find_or_none(catalog, absent(), new_id) is not None:
        raise TableAlreadyExists(f"table {new_id[0]!r} exists already in {store.uri}")
    target = root_location(new_id[0])
    set_aside(catalog, target)
    _check_free(catalog, target)
    try:
        answer = store.move_dir(found.location, target)
    except ObjectNotFound:
        raise no_table(catalog, absent(), id) from None
    except UnsupportedFeature as error:
        raise UnsupportedFeature(
            f"table {id[0]!r} cannot be renamed: {store.uri} cannot rename directories, and this catalog has "
            "no register (manifest_enabled=false), whose rows could be changed instead"
        ) from error
    match answer:
        case Created.WON:
            return Found(new_id, target, location_uri(store.uri, target), None, found.declared_only)
        case Created.EXISTS:
            raise TableAlreadyExists(f"table {new_id[0]!r} exists already in {store.uri}")
    cause = store.failure(target)
    if answer is Created.NOT_DONE:
        raise StoreError(
            f"cannot rename {store.uri}/{found.location}: {cause}; nothing was changed"
        ) from cause
    raise OutcomeUnknown(
        f"the answer to renaming {store.uri}/{found.location} to {target} was lost ({cause}): look which one "
        "is there"
    ) from cause


# -- bringing back and purging -------------------------------------------------------------------


def undrop_table(catalog: Catalog, id: Id | None, trash: str | None) -> Dropped:
    """See `trash.undrop_table`."""
    for _ in range(MAX_TRIES):
        record = chosen(catalog, dropped_tables(catalog), id, trash)
        if record.home is not None:
            _check_free(catalog, record.home)
        table = catalog.store.at(record.location)
        if _decide(table, record, UNDROP):
            _bring_back(catalog, table, record)
            return record
        if _ending(table, record) == UNDROP:
            _bring_back(catalog, table, record)  # who decided it may have died
            raise TableAlreadyExists(f"table {record.object_id!r} was brought back by somebody else")
        if trash is not None:
            raise TableNotDropped(f"drop {trash!r} cannot be undone: its files are being deleted")
    raise CatalogThrottled(
        f"drops of that name in {catalog.store.uri} ended {MAX_TRIES} times before they could be undone; "
        "nothing was changed, try again"
    )


def _bring_back(catalog: Catalog, table: Store, record: Dropped) -> None:
    store = catalog.store
    if record.home is not None:
        try:
            answer = store.move_dir(record.location, record.home)
        except ObjectNotFound:
            answer = Created.WON  # somebody else did it
        if answer is not Created.WON and not _is_here(store, record.home, record):
            if answer is Created.EXISTS:
                table.delete(_end(record))  # undecided again: the name went to somebody else
                raise TableAlreadyExists(f"{store.uri}/{record.home} was made by somebody else")
            raise OutcomeUnknown(f"{record.object_id!r} is not wholly brought back: undrop it again")
    remove_marker(table, DEREGISTERED)


def purge(catalog: Catalog, grace_seconds: float | None) -> Purged:
    """See `purging.purge`."""
    from tiltyard.catalog.purging import Purged, until

    done, now_ns = Purged(), catalog.store.now_ns()
    for record in dropped_tables(catalog):
        if record.state == DROPPED:
            if until(record, grace_seconds) > now_ns:
                continue
            record = _moved_aside(catalog, record)
            table = catalog.store.at(record.location)
            if not _is_here(catalog.store, record.location, record) or not _decide(table, record, PURGE):
                continue
            done.given_up.append(record)
        _delete(catalog.store, record)
        done.removed.append(record.location)
    return done


def _delete(store: Store, record: Dropped) -> None:
    """Delete the data, then the word that decided it, then the marker (see the top), then what is left."""
    end, marker = f"{record.location}/{_end(record)}", f"{record.location}/{DEREGISTERED}"
    versions = f"{record.location}/_versions/"
    found = [each.path for each in store.list(record.location) if each.path not in (end, marker)]
    for path in sorted(found, key=lambda each: each.startswith(versions)):
        store.delete(path)
    for name in store.list_names(record.location):
        if name not in (DEREGISTERED, moves.PRIVATE):
            store.delete_tree(f"{record.location}/{name}")
    with suppress(ObjectNotFound):  # others have deleted all
        store.sync_dir(record.location)
    store.delete(end)
    if record.home is None:
        store.delete(marker)  # the directory stays: its name may be somebody else's at once
    else:
        store.delete_tree(record.location)
