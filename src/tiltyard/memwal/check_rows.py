"""What is wrong inside a shard's SSTables: everything is read, and compared with what was written about it.

Data files carry sums. A Bloom filter and a key index have none, but can be compared with the keys: one that
does not know a key hides its row from lookups, which then give an older one, or one that was deleted.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tiltyard.errors import CorruptFile, ObjectNotFound, TiltyardError, UnsupportedFeature
from tiltyard.format.shard_manifest import SsTable
from tiltyard.memwal import layout
from tiltyard.memwal.key_hash import is_hashed, key_hashes
from tiltyard.memwal.keys import sortable
from tiltyard.memwal.levels import Keys, SsTableLevel
from tiltyard.memwal.log_schema import LogSchema
from tiltyard.session import Session
from tiltyard.store import Store
from tiltyard.table.merge.join import KeyIndex
from tiltyard.table.merge.key_filter import holds
from tiltyard.table.snapshot import open_latest
from tiltyard.table.verify import verify_snapshot


def sstable_problems(store: Store, fact: SsTable, schema: LogSchema) -> Iterator[str]:
    """What is wrong with the SSTable in `store`, of which its shard's manifest says `fact`. Nothing that a
    session keeps is believed.
    """
    try:
        snapshot = open_latest(store, Session())
        found = [
            f"{each.about} {each.path}: {each.problem}" for each in verify_snapshot(snapshot, checksums=True)
        ]
        yield from found
        if found:
            return
        level = SsTableLevel(snapshot, fact, schema)
        written = sum(each.physical_rows for each in snapshot.fragments)
        if fact.physical_rows is not None and fact.physical_rows != written:
            yield f"has {written} rows, the shard's manifest says {fact.physical_rows}"
        if schema.has_key:
            keys = level.keys()
            yield from _doubled(keys, merges=schema.functions is not None)
            yield from _hidden_by_filter(level, keys)
            yield from _hidden_by_index(level, keys)
    except (TiltyardError, ObjectNotFound) as error:
        yield f"cannot be read: {error}"


def _doubled(keys: Keys, merges: bool) -> Iterator[str]:
    if not merges:
        if KeyIndex(keys.columns).has_duplicates:
            yield "several of its rows count for one key: its deletion file lacks some"
    elif KeyIndex([*keys.columns, pa.array(keys.deletes)]).has_duplicates:  # one may delete what was before
        yield "several of its rows are to be merged for one key, or delete it: its writer merges them first"


def _hidden_by_filter(level: SsTableLevel, keys: Keys) -> Iterator[str]:
    words = level.bloom()
    if words is None or not all(is_hashed(each.type) for each in keys.columns):
        return
    rows = len(keys.deletes)
    lacking = rows - int(holds(words, key_hashes(keys.columns, rows)).sum())
    if lacking:
        yield f"{layout.BLOOM_FILTER} does not know {lacking} of its {rows} keys: lookups miss their rows"


def _hidden_by_index(level: SsTableLevel, keys: Keys) -> Iterator[str]:
    try:
        positions, ids = level.key_index().find(sortable(keys.columns))
    except (ObjectNotFound, UnsupportedFeature):
        return  # lookups go by the keys themselves
    except CorruptFile as error:
        yield f"its key index cannot be read: {error}"
        return
    written = sum(each.physical_rows for each in level.snapshot.fragments)
    beyond = int((ids >= written).sum())
    if beyond:
        yield f"its key index leads to {beyond} rows that it does not have: lookups raise"
    rows = len(keys.deletes)
    known = np.zeros(rows, np.bool_)
    known[positions[ids == level.addresses()[positions]]] = True
    lacking = rows - int(known.sum())
    if lacking:
        yield f"its key index does not lead to {lacking} of its {rows} rows: lookups miss them"
