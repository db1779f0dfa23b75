"""From a catalog of directories to one of rows (pack 2.5): every root table that is found by its directory
gets a row, in one rewrite. Afterwards the catalog can be opened without looking at directories.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiltyard.catalog.found import directory_table, root_names
from tiltyard.catalog.names import root_location
from tiltyard.catalog.rows import TABLE, Row
from tiltyard.catalog.taking import look
from tiltyard.errors import InvalidInput

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.catalog.round import Draft


def migrate(catalog: Catalog) -> int:
    """Give every root table without a row one; how many got it. Declared ones are left, and those whose name
    or directory a row has already. It can be run again at any time.
    """
    mode = catalog.settings.mode
    if not (mode.has_register and mode.lists_directories):
        raise InvalidInput(
            "a migration needs a catalog that has a register and looks at directories; this one was opened "
            f"in the mode {mode.value!r}"
        )
    seen = look(catalog)
    register = seen.register
    found = []
    for name in root_names(catalog, register):
        if register.rows.all(name) or register.rows.by_location(root_location(name)):
            continue
        table = directory_table(catalog, register, (name,))
        if table is not None and not table.declared_only:
            found.append(name)
    if not found:
        return 0

    def put(draft: Draft) -> int:
        added = 0
        for name in found:
            location = root_location(name)
            taken = draft.rows.all(name) or draft.rows.by_location(location)
            if not taken and not seen.has_left(draft, (name,), location):
                draft.put(Row(name, TABLE, location))
                added += 1
        return added

    return seen.mutate(put)
