"""Drops of a catalog without a register where the store cannot rename directories: a marker decides.

Who creates the deregistered marker in a table's directory has dropped it, and its note tells a drop from a
mere deregistration: `dropped <uuid> <time> <until>` (ns, by the store's clock). How a drop ends is decided by
who creates `_tiltyard/end-<uuid>` in the directory: `undrop`, which takes the marker away at last, or
`purge`, which deletes everything: the word after the data, the marker after the word. So a word written where
no data is left decides nothing, and whoever wrote it takes it back.

1. Of all that drop one table exactly one is told so; of undrops and purges of one drop exactly one succeeds.
Tests: tests/catalog/test_trash_unregistered.py.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from tiltyard import runtime
from tiltyard.catalog import moves
from tiltyard.catalog.found import no_table
from tiltyard.catalog.markers import DEREGISTERED, put_marker, read_marker, remove_marker
from tiltyard.catalog.names import SUFFIX
from tiltyard.catalog.planning import Outdated
from tiltyard.catalog.register import absent
from tiltyard.catalog.trash import PURGING, Dropped
from tiltyard.errors import ObjectNotFound, OutcomeUnknown, StoreError, TableAlreadyExists
from tiltyard.store import Created

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.catalog.found import Found
    from tiltyard.catalog.purging import Purged
    from tiltyard.store import Store

WORD = "dropped"
UNDROP, PURGE = b"undrop", b"purge"


def _end(record: Dropped) -> str:
    """The file that decides how a drop ends."""
    return f"{moves.PRIVATE}/end-{record.trash}"


def record_of(store: Store, directory: str) -> Dropped | None:
    """What the marker in a table's directory says of its drop; None where it says nothing of one."""
    if not directory.endswith(SUFFIX) or not moves.is_visible(directory):
        return None
    table, name = store.at(directory), directory.removesuffix(SUFFIX)
    marker = read_marker(table, DEREGISTERED)
    words = [] if marker is None else marker.decode("utf-8", "replace").split("\n")[-1].split(" ")
    if len(words) != 4 or words[0] != WORD or not (words[2].isdigit() and words[3].isdigit()):
        return None  # no marker, or one that only deregisters
    record = Dropped(words[1], name, directory, int(words[2]), int(words[3]), hidden=True)
    purged = _ending(table, record) == PURGE or _is_spent(table)
    return replace(record, state=PURGING) if purged else record


def is_dropped(store: Store, location: str) -> bool:
    """Whether a directory that has a table's name holds one that was dropped, and could not be moved away."""
    return record_of(store, location) is not None


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
        return False  # purged since; nothing is made under its name
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
    if answer is Created.EXISTS or _is_spent(table):
        return False  # somebody else's, and purged since
    raise OutcomeUnknown(f"the answer to creating {table.uri}/{path} was lost: try again")


def drop_table(catalog: Catalog, found: Found, record: Dropped, *, purge: bool) -> Dropped:
    """Drop a table that was found."""
    table = catalog.store.at(found.location)
    note = f"{WORD} {record.trash} {record.dropped_ns} {record.until_ns}"
    if not table.list_names("") or not put_marker(table, DEREGISTERED, note):
        raise no_table(catalog, absent(), found.id)
    if purge:
        with suppress(StoreError, OutcomeUnknown):  # what is not deleted now, the next purge deletes
            if _decide(table, record, PURGE):
                _delete(catalog.store, record)
    return record


def undrop_table(catalog: Catalog, record: Dropped) -> Dropped:
    """Bring one back. Raises Outdated where others decided otherwise."""
    table = catalog.store.at(record.location)
    if _decide(table, record, UNDROP):
        remove_marker(table, DEREGISTERED)
        return record
    if _ending(table, record) == UNDROP:
        remove_marker(table, DEREGISTERED)  # who decided it may have died
        raise TableAlreadyExists(f"table {record.object_id!r} was brought back by somebody else")
    raise Outdated


def purge(catalog: Catalog, record: Dropped, done: Purged) -> None:
    """Delete one, or what an earlier purge left of it."""
    if record.state != PURGING:
        if not _decide(catalog.store.at(record.location), record, PURGE):
            return
        done.given_up.append(record)
    _delete(catalog.store, record)
    done.removed.append(record.location)


def _delete(store: Store, record: Dropped) -> None:
    """Delete the data, then the word that decided it, then the marker (see the top)."""
    end, marker = f"{record.location}/{_end(record)}", f"{record.location}/{DEREGISTERED}"
    versions = f"{record.location}/_versions/"
    found = [each.path for each in store.list(record.location) if each.path not in (end, marker)]
    store.delete_many([path for path in found if not path.startswith(versions)]).check()
    store.delete_many([path for path in found if path.startswith(versions)]).check()
    for name in store.list_names(record.location):
        if name not in (DEREGISTERED, moves.PRIVATE):
            store.delete_tree(f"{record.location}/{name}")
    with suppress(ObjectNotFound):  # others have deleted all
        store.sync_dir(record.location)
    store.delete(end)
    store.delete(marker)  # the directory stays: its name may be somebody else's at once
