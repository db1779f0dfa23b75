"""Rows put in, merged, changed and deleted.

A table that is only declared becomes a real one by an insert or a merge: its rows are version 1 (case N10).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tiltyard.catalog.found import find_table, table_store
from tiltyard.catalog.names import object_id, root_location
from tiltyard.catalog.operations.opening import open_found, opened, refuse_branch, transaction_of
from tiltyard.dataset import arguments, write_dataset
from tiltyard.errors import FieldNotFound, InvalidInput, ObjectNotFound, TableAlreadyExists, TableNotFound

if TYPE_CHECKING:
    import pyarrow as pa

    from tiltyard.catalog.catalog import Catalog
    from tiltyard.catalog.names import Id
    from tiltyard.dataset import LanceDataset

MAX_FILL_RACES = 8
"""How often an insert looks again at a declared table that others fill and drop meanwhile."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What a change did, and the version that it made."""

    version: int
    transaction_id: str | None
    inserted: int = 0
    updated: int = 0
    deleted: int = 0


@dataclass(frozen=True, slots=True)
class MergeRules:
    """What a merge does with rows that match, with those that do not, and with those that the source
    lacks.
    """

    on: tuple[str, ...]
    update: bool = False
    update_filter: str | None = None
    insert: bool = True
    delete_by_source: bool = False
    delete_filter: str | None = None
    use_index: bool = True

    def check(self) -> None:
        """Raise `InvalidInput` for rules that name no key, one twice, or that do nothing."""
        if not self.on:
            raise InvalidInput("merge_insert_into_table needs 'on': the columns that rows are matched by")
        twice = sorted({name for name in self.on if self.on.count(name) > 1})
        if twice:
            raise InvalidInput(f"'on' names column {twice[0]!r} more than once")
        if not (self.update or self.insert or self.delete_by_source):
            raise InvalidInput(
                "the merge would change nothing: ask for when_matched_update_all, "
                "when_not_matched_insert_all or when_not_matched_by_source_delete"
            )


def insert(catalog: Catalog, id: Id, data: pa.Table, *, mode: str = "append", branch: Any = None) -> Changed:
    """Add rows (`append`) or put them in the place of all rows (`overwrite`)."""
    refuse_branch(branch, "insert_into_table")
    arguments.one_of("mode", mode, "append", "overwrite")
    table = _open_or_fill(catalog, id, data)
    if isinstance(table, Changed):
        return table
    handle: Any = table
    made = write_dataset(data, handle, mode=mode)
    return _changed(made, inserted=data.num_rows)


def merge_insert(
    catalog: Catalog, id: Id, data: pa.Table, rules: MergeRules, *, branch: Any = None
) -> Changed:
    """Match rows of the data with rows of the table, and update, insert and delete by the rules."""
    rules.check()
    refuse_branch(branch, "merge_insert_into_table")
    _refuse_unknown(rules.on, data.schema.names, "the data")
    table = _open_or_fill(catalog, id, data if rules.insert else data.slice(0, 0))
    if isinstance(table, Changed):
        return table
    _refuse_unknown(rules.on, table.schema.names, f"table id {object_id(id)!r}")
    builder = table.merge_insert(list(rules.on)).use_index(rules.use_index)
    if rules.update:
        builder = builder.when_matched_update_all(rules.update_filter)
    if rules.insert:
        builder = builder.when_not_matched_insert_all()
    if rules.delete_by_source:
        builder = builder.when_not_matched_by_source_delete(rules.delete_filter)
    counts = builder.execute(data)
    return _changed(
        table,
        inserted=counts["num_inserted_rows"],
        updated=counts["num_updated_rows"],
        deleted=counts["num_deleted_rows"],
    )


def update(
    catalog: Catalog,
    id: Id,
    updates: Sequence[tuple[str, str]],
    predicate: str | None = None,
    *,
    branch: Any = None,
) -> Changed:
    """Set columns to SQL expressions in the rows for which the predicate is true, in all without one."""
    refuse_branch(branch, "update_table")
    if not updates:
        raise InvalidInput(
            "update_table needs 'updates': at least one pair of a column and an SQL expression"
        )
    by_column = dict(updates)
    if len(by_column) != len(updates):
        named = [column for column, _ in updates]
        twice = next(column for column in named if named.count(column) > 1)
        raise InvalidInput(f"'updates' names column {twice!r} more than once")
    table = opened(catalog, id)
    try:
        done = table.update(by_column, predicate)
    except FieldNotFound as error:
        raise InvalidInput(str(error)) from error
    return _changed(table, updated=done["num_rows_updated"])


def delete(catalog: Catalog, id: Id, predicate: str, *, branch: Any = None) -> Changed:
    """Delete the rows for which the predicate is true."""
    refuse_branch(branch, "delete_from_table")
    if not predicate.strip():
        raise InvalidInput("delete_from_table needs a predicate; `true` deletes every row")
    table = opened(catalog, id)
    try:
        done = table.delete(predicate)
    except FieldNotFound as error:
        raise InvalidInput(str(error)) from error
    return _changed(table, deleted=done["num_deleted_rows"])


def _open_or_fill(catalog: Catalog, id: Id, data: pa.Table) -> LanceDataset | Changed:
    """The table, or what was done where it was only declared: then the data is its first version.

    It is written through the directory that was found. A drop that moves the directory aside meanwhile takes
    the rows along; the name is not made anew.
    """
    for _ in range(MAX_FILL_RACES):
        found = find_table(catalog, id)
        try:
            return open_found(catalog, found)
        except TableNotFound:
            store = table_store(catalog, found)
        by_name = found.location == root_location(id[-1])
        try:
            store.dir_stat("")  # opens the directory
        except ObjectNotFound:
            if by_name:
                continue  # dropped while we looked; in a namespace nobody else uses the directory
        try:
            made = write_dataset(data, store, mode="create", session=catalog.session)
        except TableAlreadyExists:
            continue  # filled while we looked
        return _changed(made, inserted=data.num_rows)
    raise TableNotFound(
        f"table id {object_id(id)!r} was filled and dropped each of {MAX_FILL_RACES} times it was looked at"
    )


def _refuse_unknown(columns: Sequence[str], known: Sequence[str], of: str) -> None:
    lowered = {name.lower() for name in known}
    for column in columns:
        if column not in known and column.lower() not in lowered and "." not in column:
            raise InvalidInput(f"'on' names column {column!r}, which {of} does not have: {', '.join(known)}")


def _changed(table: LanceDataset, **counts: int) -> Changed:
    return Changed(table._held.version, transaction_of(table), **counts)
