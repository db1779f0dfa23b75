"""Unique keys: what the config key `tiltyard.unique` asks of every commit of ours (decision D6).

Its value names one column, or several with commas between, whose values together stand in at most one row;
rows with a null among them do not count. The format knows nothing of it, so that other writers do not keep
it: a duplicate that one commits is found by our next commit that touches its key, and `table.dedupe` mends
it.

A commit that adds rows is checked against the version that it was planned on, and carries the new keys. Then
the conflict rules (k) see to the rest: whoever may have inserted one of them meanwhile makes it plan again,
and be checked again. So also a plain append is committed as an `Update` that only adds fragments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tiltyard.errors import DuplicateKey, InvalidInput, TiltyardError
from tiltyard.format.fragment import Fragment, FragmentList
from tiltyard.format.operations import (
    Append,
    DataReplacement,
    KeyExistenceFilter,
    Merge,
    Operation,
    Overwrite,
    Project,
    Update,
    UpdateConfig,
)
from tiltyard.format.schema import Schema
from tiltyard.format.transaction import Transaction

if TYPE_CHECKING:
    from tiltyard.table.merge.join import KeyIndex
    from tiltyard.table.merge.keys import Key
    from tiltyard.table.snapshot import Snapshot

UNIQUE = "tiltyard.unique"
"""The config key."""

MEND = (
    "list and mend such rows with LanceDataset.dedupe() or `tiltyard dedupe`, or take the rule back by "
    f"deleting the config key {UNIQUE!r}"
)


KeysMeet = Callable[["Snapshot", Operation], bool]
"""Whether an operation added rows with a key that we insert; see `merge.inserted`."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A transaction that keeps the rule; `unhashed_key` and `keys_meet` as `commit` takes them."""

    transaction: Transaction
    unhashed_key: bool = False
    keys_meet: KeysMeet | None = None


def unique_key(schema: Schema, config: Mapping[str, str]) -> Key | None:
    """The key that must be unique; None where none is. Raises `InvalidInput` for a value that names no usable
    columns.
    """
    text = config.get(UNIQUE)
    if text is None:
        return None
    from tiltyard.table.merge.keys import resolve_key

    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise InvalidInput(
            f"config {UNIQUE!r} must name a column, or several with commas between, found {text!r}; set it "
            "with update_config or delete it"
        )
    try:
        return resolve_key(schema, names)
    except TiltyardError as error:
        raise InvalidInput(
            f"config {UNIQUE!r} is {text!r}, which cannot be kept unique: {error}; set it right with "
            "update_config or delete it"
        ) from error


def checked(
    base: Snapshot, transaction: Transaction, affected: Mapping[int, np.ndarray] | None = None
) -> Checked:
    """The transaction as it may be committed on a table with (or about to have) a unique key.

    `affected`: physical offsets by fragment id that it takes away. Raises `DuplicateKey`, naming a key that
    would stand twice, or does already.
    """
    operation = transaction.operation
    if isinstance(operation, UpdateConfig):
        check_declared(base, operation)
        return Checked(transaction)
    key = unique_key(base.schema, base.manifest.config)
    if key is None:
        return Checked(transaction)
    if isinstance(operation, Append):
        operation = Update(new_fragments=operation.fragments)
    if isinstance(operation, Update):
        return _update(base, key, replace(transaction, operation=operation), affected)
    _check_whole(base, key, operation)
    return Checked(transaction)


_KEEPING = Append | Update | Overwrite | Merge | Project | DataReplacement
"""Operations that may add a key, or take away a column of it."""


def appeared(base: Snapshot, current: Snapshot, operation: Operation) -> bool:
    """Whether a unique key was declared, or another one, after a commit was planned that must keep it."""
    before, now = base.manifest.config.get(UNIQUE), current.manifest.config.get(UNIQUE)
    return now is not None and now != before and isinstance(operation, _KEEPING)


# -- updates and appends ----------------------------------------------------------------------------


def _update(
    base: Snapshot, key: Key, transaction: Transaction, affected: Mapping[int, np.ndarray] | None
) -> Checked:
    from tiltyard.table.merge.key_filter import has_unhashed, saturated

    operation = transaction.operation
    assert isinstance(operation, Update)
    unhashed = has_unhashed(key)
    recorded = operation.inserted_rows
    if recorded is not None and recorded.field_ids == key.field_ids:
        return Checked(transaction, unhashed)  # a merge on this key: it planned with the rule in mind
    keys_meet: KeysMeet | None = None
    if _rewrites(operation, key):
        filter_ = _check_rewritten(base, key, operation)
    else:
        filter_, fresh = _check_new(base, key, operation.new_fragments, affected or {}, operation)
        keys_meet = _keys_meet(key, fresh)
    if recorded is not None and operation.new_fragments:
        # A merge on other columns: its own record cannot stand beside this one, so every insert meets it.
        filter_ = saturated(key)
    operation = replace(operation, inserted_rows=filter_)
    return Checked(replace(transaction, operation=operation), unhashed, keys_meet)


def _keys_meet(key: Key, columns: Sequence[Any]) -> KeysMeet | None:
    from tiltyard.table.merge.inserted import MAX_COMPARED_KEYS, InsertedKeys

    return InsertedKeys(key, columns).meet if len(columns[0]) <= MAX_COMPARED_KEYS else None


def either(one: KeysMeet | None, other: KeysMeet | None) -> KeysMeet | None:
    """Whether the one or the other says that keys meet; None where neither can tell."""
    if one is None or other is None:
        return one or other
    return lambda current, theirs: one(current, theirs) or other(current, theirs)


def _rewrites(operation: Update, key: Key) -> bool:
    return bool(set(operation.fields_modified) & set(key.field_ids))


def _check_rewritten(base: Snapshot, key: Key, operation: Update) -> KeyExistenceFilter:
    """Check the table as it will be where the key itself is written anew in place."""
    from tiltyard.table.merge.key_filter import saturated

    copies = {fragment.id: fragment for fragment in operation.updated_fragments}
    gone = set(operation.removed_fragment_ids)
    kept = [copies.get(f.id, f) for f in base.fragments if f.id not in gone]
    refuse_duplicates(with_fragments(base, kept, operation.new_fragments), key)
    return saturated(key)


def _check_new(
    base: Snapshot,
    key: Key,
    new: Sequence[Fragment],
    affected: Mapping[int, np.ndarray],
    operation: Update,
) -> tuple[KeyExistenceFilter, list[Any]]:
    """Check rows of new fragments against each other and the table; the keys new to it, as filter and as
    columns.
    """
    from tiltyard.table.merge.join import KeyIndex
    from tiltyard.table.merge.key_filter import key_filter
    from tiltyard.table.merge.lookup import find_rows

    if not new:
        none = [pa.nulls(0, _plain_type(field.arrow_type)) for field in key.fields]
        return key_filter(key, none), none
    columns = _columns(with_fragments(base, (), new), key)
    index = KeyIndex(columns)
    _refuse_within(index, columns, key, "would be written in two rows")
    gone = _addresses(base, affected, operation)
    found = find_rows(base, key, index, columns)
    stays = found.codes[~np.isin(found.addresses, gone)]
    if len(stays):
        row = int(index.first_rows()[stays[0]])
        if np.count_nonzero(stays == stays[0]) > 1:
            raise broken(key, columns, row)
        raise DuplicateKey(
            f"{_shown(key, columns, row)} is in the table already, and config {UNIQUE!r} allows it once; "
            "nothing was written. Update the row with upsert (merge_insert in pylance), or leave it out"
        )
    fresh = np.ones(index.distinct + 1, np.bool_)
    fresh[found.codes] = False
    taken = pa.array(np.flatnonzero(fresh[index.codes]))
    inserted = [column.take(taken) for column in columns]
    return key_filter(key, inserted), inserted


def _addresses(base: Snapshot, affected: Mapping[int, np.ndarray], operation: Update) -> np.ndarray:
    """Addresses (uint64) of the rows that the operation takes away."""
    from tiltyard.table.deletions import load_deletions, read_deletions
    from tiltyard.table.system_columns import FRAGMENT_SHIFT

    places = dict(affected)
    for id in operation.removed_fragment_ids:
        fragment = base.fragment(id)
        if fragment is not None:
            places[id] = np.arange(fragment.physical_rows, dtype=np.uint32)
    for copy in operation.updated_fragments:  # of a transaction that comes without the rows
        fragment = base.fragment(copy.id)
        if copy.id not in places and fragment is not None and copy.deletion != fragment.deletion:
            now = read_deletions(base.store, base.session, base.manifest, copy)
            before = load_deletions(base, fragment)
            places[copy.id] = now if before is None else np.setdiff1d(now, before)
    parts = [o.astype(np.uint64) | np.uint64(id << FRAGMENT_SHIFT) for id, o in places.items()]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


# -- everything else ---------------------------------------------------------------------------------


def _check_whole(base: Snapshot, key: Key, operation: Operation) -> None:
    """Check operations that replace the table, its schema or its data."""
    if isinstance(operation, Overwrite | Merge | Project):
        after = unique_key(operation.schema, base.manifest.config)
        assert after is not None
        if isinstance(operation, Overwrite):
            refuse_duplicates(with_fragments(base, (), operation.fragments, operation.schema), after)
        elif isinstance(operation, Merge) and _is_touched(base, after, operation):
            known = {f.id: f for f in reversed(operation.fragments) if base.fragment(f.id) is not None}
            new = [f for f in operation.fragments if known.get(f.id) is not f]
            refuse_duplicates(with_fragments(base, list(known.values()), new, operation.schema), after)
    elif isinstance(operation, DataReplacement):
        replaced = {id for each in operation.replacements for id in each.new_file.fields}
        if replaced & set(key.field_ids):
            raise InvalidInput(
                f"columns of config {UNIQUE!r} ({', '.join(key.names)}) are not replaced in place: what "
                "stands in the files cannot be checked against the other fragments. Delete the config key "
                "first, or merge the rows"
            )


def _is_touched(base: Snapshot, key: Key, operation: Merge) -> bool:
    """Whether a merge of columns writes any column of the key anew, or adds rows."""
    wanted = set(key.field_ids)

    def held(fragment: Fragment) -> set[tuple[str, int]]:
        return {(f.path, id) for f in fragment.files for id in f.fields if id in wanted}

    before = {fragment.id: held(fragment) for fragment in base.fragments}
    return any(held(fragment) != before.get(fragment.id) for fragment in operation.fragments)


def check_declared(base: Snapshot, operation: Operation) -> None:
    """Check a version whose unique key an operation is to declare, if it is: when that is planned, and once
    more on what others committed meanwhile.
    """
    if not isinstance(operation, UpdateConfig) or operation.config_updates is None:
        return
    config = operation.config_updates.apply(base.manifest.config)
    if config.get(UNIQUE) == base.manifest.config.get(UNIQUE):
        return
    key = unique_key(base.schema, config)
    if key is not None:
        refuse_duplicates(base, key)


def refuse_duplicates(snapshot: Snapshot, key: Key) -> None:
    """Raise `DuplicateKey` where two live rows of the version have one key."""
    from tiltyard.table.dedupe import duplicates

    found = duplicates(snapshot, key)
    if found.keys:
        raise DuplicateKey(
            f"{found.keys} key(s) stand in more than one row ({found.example}), and config {UNIQUE!r} allows "
            f"each once: {MEND}"
        )


def broken(key: Key, columns: Sequence[Any], row: int) -> DuplicateKey:
    """The error for a key that the table holds twice although it must be unique."""
    return DuplicateKey(
        f"{_shown(key, columns, row)} stands in more than one row of the table, although config {UNIQUE!r} "
        f"allows it once: another writer, which does not keep the rule, added it. Nothing was changed; {MEND}"
    )


# -- reading keys -------------------------------------------------------------------------------------


def with_fragments(
    base: Snapshot, kept: Sequence[Fragment], new: Sequence[Fragment], schema: Schema | None = None
) -> Snapshot:
    """The version as if it had these fragments: its own, perhaps changed, and new ones without ids."""
    free = max((fragment.id for fragment in kept), default=-1) + 1
    numbered = [replace(fragment, id=free + at) for at, fragment in enumerate(new)]
    manifest = replace(base.manifest, fragments=FragmentList.of([*kept, *numbered]), indices=())
    if schema is not None:
        manifest = replace(manifest, schema=schema)
    return replace(base, manifest=manifest)


def _columns(snapshot: Snapshot, key: Key) -> list[Any]:
    from tiltyard.table.merge.lookup import key_columns

    parts: list[list[Any]] = [[] for _ in key.fields]
    for columns, _ in key_columns(snapshot, key):
        for part, column in zip(parts, columns, strict=True):
            part.append(column)
    return [
        pa.concat_arrays(part) if part else pa.nulls(0, _plain_type(field.arrow_type))
        for part, field in zip(parts, key.fields, strict=True)
    ]


def _plain_type(kind: Any) -> Any:
    from tiltyard.expr.arrays import plain_type

    return plain_type(kind)


def _refuse_within(index: KeyIndex, columns: Sequence[Any], key: Key, what: str) -> None:
    if not index.has_duplicates:
        return
    rows, starts = index.rows_by_code()
    first = int(rows[starts[int(np.flatnonzero(np.diff(starts) > 1)[0])]])
    raise DuplicateKey(
        f"{_shown(key, columns, first)} {what}, and config {UNIQUE!r} allows it once; nothing was written. "
        "Give each key once"
    )


def _shown(key: Key, columns: Sequence[Any], row: int) -> str:
    from tiltyard.table.merge.keys import shown_key

    return shown_key(key.names, [column[row].as_py() for column in columns])
