"""What a rewrite adds, told by its transaction: whoever has the version before need not read the file again.

Most changes put new rows behind those that are there. Their transactions say so in a property: the uuid of
the transaction of the version before, and the rows. Other programs do not look at it. A version tells all of
it or nothing; where a version since then tells nothing, the file is read.

Invariant, checked by tests/catalog/test_added.py: what is put together from such notes is what the file
holds. They are followed only from the very version that they were written on, which its uuid shows, by others
that follow each other without a gap, and to as many rows as the newest one counts.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tiltyard.catalog.rows import Row
from tiltyard.errors import CorruptFile, StoreError
from tiltyard.format import names
from tiltyard.table.snapshot import read_transaction
from tiltyard.table.versions import VersionLocation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tiltyard.catalog.rows import Rows
    from tiltyard.format.transaction import Transaction
    from tiltyard.table.snapshot import Snapshot

PROPERTY = "tiltyard.added"

MAX_BYTES = 8192
"""Longer notes are not written: the manifest is read by all, and the file is there."""

MAX_VERSIONS = 8
"""So many versions are followed; the file is read sooner than more."""


def told(base: Snapshot, rows: Rows) -> dict[str, str]:
    """The property of a transaction that puts `rows` on top of `base`; none where it cannot tell."""
    if rows.added is None or rows.extra_columns or any(row.base_objects is not None for row in rows.added):
        return {}
    try:
        before = base.inline_transaction()
    except CorruptFile:
        before = None
    if before is None:
        return {}
    added = [(row.object_id, row.object_type, row.location, row.metadata) for row in rows.added]
    text = json.dumps({"after": before.uuid, "rows": added})
    return {PROPERTY: text} if len(text) <= MAX_BYTES else {}


def followed(before: Snapshot, rows: Rows, newest: Snapshot) -> Rows | None:
    """The rows of `newest`, from those of a version before it; None where that is not told."""
    since = range(before.version + 1, newest.version + 1)
    if not 0 < len(since) <= MAX_VERSIONS or rows.extra_columns:
        return None
    if newest.schema.arrow.names != rows.batch.schema.names:
        return None
    added: dict[str, Row | None] = {}
    try:
        last = before.transaction()
        for version in since:
            now = _transaction(newest, version)
            new = _rows(last, now)
            if new is None:
                return None
            added.update((row.object_id, row) for row in new)
            last = now
        made = rows.changed(added)
    except (StoreError, CorruptFile, UnicodeEncodeError):
        return None  # whatever it was, reading the file tells it
    whole = made.added is not None and len(made) == newest.manifest.num_rows
    return made if whole else None


def _transaction(newest: Snapshot, version: int) -> Transaction | None:
    if version == newest.version:
        return newest.transaction()
    naming = newest.location.naming
    location = VersionLocation(version, names.manifest_path(version, naming), naming)
    return read_transaction(newest.store, newest.session, location)


def _rows(before: Transaction | None, now: Transaction | None) -> Sequence[Row] | None:
    """What a version has more than the one before it; None where it does not tell, or tells of another."""
    text = now.properties.get(PROPERTY) if now is not None else None
    if before is None or text is None:
        return None
    try:
        facts = json.loads(text)
        if facts["after"] != before.uuid:
            return None
        return [Row(id, kind, location, metadata) for id, kind, location, metadata in facts["rows"]]
    except (ValueError, KeyError, TypeError):
        return None
