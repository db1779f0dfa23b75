"""Whether a table that somebody has open was dropped since.

Its handle goes on to work, wherever its directory was moved to: for readers that is the promise, while a
writer would write what nobody sees. A drop is told from that of another table of the name by the file of a
version, which is the same one in the dropped table's directory. Tests: tests/lake/test_dropped_handles.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tiltyard.catalog.markers import DEREGISTERED
from tiltyard.catalog.trash import Dropped, records
from tiltyard.errors import StoreError

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.store import Store


def drop_of(catalog: Catalog, table: Store, manifest: str) -> Dropped | None:
    """The drop of an open table, None where it stands. `manifest`: the path of a version in it.

    One look at the register, and one at the directory of each dropped table. Raises what reading the register
    raises.
    """
    found: Iterable[Dropped]
    if catalog.settings.mode.has_register:
        found = records(catalog.register().metadata)
    else:
        from tiltyard.catalog import unregistered

        noted = unregistered.has_note(table) or table.exists(DEREGISTERED)
        found = unregistered.dropped_tables(catalog) if noted else ()
    for record in found:
        if _is_same(table, catalog.store.at(record.location), manifest):
            return record
    return None


def _is_same(ours: Store, there: Store, path: str) -> bool:
    try:
        return ours.stat(path).tag == there.stat(path).tag
    except StoreError:  # it is not there, mostly: the write itself says what else is wrong
        return False
