"""What stands where a table was looked for and not found; only errors come here."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from tiltyard.errors import ObjectNotFound, StoreError, TableNotFound
from tiltyard.format.names import VERSIONS_DIR
from tiltyard.store import open_other

if TYPE_CHECKING:
    from tiltyard.store import Store

SUFFIX = ".lance"
MAX_NAMES_SHOWN = 5


def table_not_found(root: Store) -> TableNotFound:
    """The error for a place without a table, with what is there or near it instead."""
    try:
        found = _found_instead(root)
    except StoreError as error:
        found = str(error)
    return TableNotFound(f"no Lance table at {root.uri}: {found}")


def is_table(root: Store) -> bool:
    """Whether a table lies at the very root of a store."""
    return bool(root.list_names(VERSIONS_DIR))


def is_file(root: Store) -> bool:
    """Whether a file stands where a store's directory should be."""
    above, name = _above(root)
    return above is not None and not _is_directory(root) and above.exists(name)


def tables_in(root: Store) -> list[str]:
    """Names of the directories below a root that are tables, with their suffix, sorted."""
    found = [name for name in root.list_names("") if name.endswith(SUFFIX) and name != SUFFIX]
    return [name for name in found if root.list_names(f"{name}/{VERSIONS_DIR}")]


def _found_instead(root: Store) -> str:
    above, name = _above(root)
    if _is_directory(root):
        tables = tables_in(root)
        if tables:
            return (
                f"the directory holds tables: {_listed(tables)}; open one of them, or connect to the "
                "directory"
            )
        if above is not None and name == VERSIONS_DIR:
            return f"this is a part of the table {above.uri}"
        return "the directory is no table, it has no versions"
    if above is None:
        return "nothing was written there"
    if above.exists(name):
        return "it is a file; a table is a directory"
    if not _is_directory(above):
        return f"there is no such directory, nor {above.uri}" + _file_above(above)
    near = difflib.get_close_matches(name, [*tables_in(above), *above.list_names("")], MAX_NAMES_SHOWN, 0.5)
    near = [each for each in dict.fromkeys(near) if above.list_names(f"{each}/{VERSIONS_DIR}")]
    return "there is no such directory" + (f"; near it: {_listed(near)}" if near else "")


def _listed(names: list[str]) -> str:
    return ", ".join(names[:MAX_NAMES_SHOWN]) + (", ..." if len(names) > MAX_NAMES_SHOWN else "")


def _is_directory(root: Store) -> bool:
    try:
        root.dir_stat("")
    except ObjectNotFound:
        return False
    return True


def _above(root: Store) -> tuple[Store | None, str]:
    """The directory above a root, None where there is none, and the root's name in it."""
    above, _, name = root.uri.rstrip("/").rpartition("/")
    if above.endswith("/") or not name:  # memory://name is the top of its space
        return None, name
    return open_other(root, above or "/"), name


def _file_above(root: Store) -> str:
    """Names the file on the way to a place, if there is one."""
    above, name = _above(root)
    while above is not None:
        if above.exists(name):
            return f"; {above.uri.rstrip('/')}/{name} is a file"
        above, name = _above(above)
    return ""
