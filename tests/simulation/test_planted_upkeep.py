"""Compaction, collection and changes of the sharding broken on purpose, one invariant at a time: the
simulation must find each. What sound code answers to the same scenarios stands in `test_streams_upkeep.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from planting import found, patched, several
from tiltyard import runtime
from tiltyard.format.operations import CompactedSsTable, UpdateMemWalState
from tiltyard.format.transaction import Transaction
from tiltyard.memwal import (
    capture,
    collection,
    compaction,
    layout,
    merged,
    resharding,
    sealing,
    sstable,
    streamed_rows,
)
from tiltyard.memwal.log_schema import TOMBSTONE
from tiltyard.table.commit import commit
from tiltyard.table.snapshot import open_latest
from tiltyard.testing.faults import Fault
from tiltyard.testing.simulation import streams
from tiltyard.testing.simulation.chain import KEY
from tiltyard.testing.simulation.streams import Client
from tiltyard.testing.simulation.streams_scenarios import (
    COLLECT,
    COMPACT,
    FLUSH,
    OPEN,
    READ,
    delete,
    put,
    steps,
)

TWO = steps(OPEN, put(0, 3), FLUSH, delete(0), put(3), FLUSH, put(4), Client.abort)
"""A shard with two generations, and one more entry in its log."""

DRAINED = steps(TWO, COMPACT)

# -- compaction ----------------------------------------------------------------------------------


def test_planted_the_mark_comes_before_the_rows() -> None:
    """W13: readers leave out SSTables whose rows are not in the base yet."""
    real, settings = compaction._Compactor._merge, compaction.Settings

    def marked_first(self: Any, look: Any, chosen: Any) -> None:
        marks = tuple(CompactedSsTable(each, facts[-1].generation) for each, facts in chosen.items())
        base = look.base
        early = Transaction(base.version, str(runtime.uuid4()), UpdateMemWalState(marks))
        commit(base.store, early, session=base.session, base=base)
        real(self, replace(look, base=open_latest(base.store, base.session)), chosen)

    def unmarked(**named: Any) -> Any:
        return settings(**{**named, "compacted_sstables": ()})

    planting = several(
        patched(compaction._Compactor, "_merge", marked_first), patched(compaction, "Settings", unmarked)
    )
    found(planting, {"a": COMPACT, "b": READ}, "W13", before=TWO, upkeep=True)


def test_planted_of_the_rows_of_a_key_the_oldest_counts() -> None:
    """W13."""

    class Oldest(streamed_rows.KeyIndex):
        def last_rows(self) -> Any:
            return np.unique(self.codes, return_index=True)[1]

    found(patched(streamed_rows, "KeyIndex", Oldest), {"a": COMPACT}, "W13", before=TWO, upkeep=True)


def test_planted_deletions_stay_out_of_the_base() -> None:
    """W13."""
    real = streamed_rows._plan

    def kept(addresses: Any, codes: Any, winner: Any, deletes: Any) -> Any:
        return real(addresses, codes, winner, np.zeros_like(deletes))

    found(patched(streamed_rows, "_plan", kept), {"a": COMPACT}, "W13", before=TWO, upkeep=True)


def test_planted_sstables_leave_the_manifest_before_the_base_holds_them() -> None:
    """W14."""

    def early(self: Any, look: Any) -> None:
        for shard_id, each in look.manifests.items():
            compaction.trim(self._store.at(layout.shard_dir(shard_id)), each.current_generation - 1)

    planting = patched(compaction._Compactor, "_trim", early)
    found(planting, {"a": COMPACT, "b": READ}, "W14", before=TWO, upkeep=True)


def test_planted_the_table_is_looked_at_before_the_shards() -> None:
    """W11: what is compacted in between is in neither (D20)."""
    real_capture, real_open = streams.capture, capture.open_latest

    def base_first(store: Any, session: Any, *rest: Any) -> Any:
        base = real_open(store, session)
        with patched(capture, "open_latest", lambda *_: base):
            return real_capture(store, session, *rest)

    found(
        patched(streams, "capture", base_first),
        {"a": steps(COMPACT, COLLECT), "b": READ},
        "W11",
        before=TWO,
        upkeep=True,
    )


# -- collection ----------------------------------------------------------------------------------


def test_planted_the_entry_at_the_cursor_is_collected() -> None:
    """W15: by it other programs find the tip."""
    real = collection._Shard._cursor
    planting = patched(collection._Shard, "_cursor", lambda self: real(self) + 1)
    found(planting, {"a": COLLECT}, "W15", before=DRAINED, upkeep=True)


def test_planted_sentinels_are_collected() -> None:
    """W15: a writer that was passed, and sleeps, would write where one stood."""
    real = collection._Shard._readable

    def with_rows(self: Any, position: int) -> Any:
        head = real(self, position)
        return None if head is None else replace(head, has_rows=True)

    planting = several(
        patched(collection._Shard, "_readable", with_rows),
        patched(collection._Shard, "_is_fenced", lambda self, standing: True),
    )
    before = steps(TWO, OPEN, put(1), FLUSH, COMPACT)
    found(planting, {"a": COLLECT}, "W15", before=before, upkeep=True)


def test_planted_manifests_go_from_the_middle() -> None:
    """W16: whoever looks for the newest from below stops there."""

    def middle(self: Any) -> Any:
        versions = [version for version, _ in self._versions]
        self._shard.delete(layout.manifest_path(versions[len(versions) // 2]))
        yield collection.Collected(manifests=1)

    found(
        patched(collection._Shard, "_manifests", middle), {"a": COLLECT}, "W16", before=DRAINED, upkeep=True
    )


def test_planted_directories_that_a_flush_is_about_to_name_are_collected() -> None:
    """W5, W10."""
    planting = several(
        patched(collection._Shard, "_is_needless", lambda self, name, generation: True),
        patched(collection._Shard, "_named_lately", lambda self, unnamed: set()),
    )
    actors = {"a": COLLECT, "b": steps(OPEN, put(0), FLUSH)}
    found(planting, actors, "W5", "W10", before=DRAINED, faults=[Fault.PAUSE], upkeep=True)


# -- changes of the sharding ---------------------------------------------------------------------


def test_planted_the_new_sharding_begins_before_the_old_is_drained() -> None:
    """W17."""
    planting = patched(resharding, "_left", lambda *_: [])
    found(planting, {"a": Client.revise}, "W17", before=TWO, upkeep=True)


def test_planted_a_shard_is_sealed_without_what_its_log_holds() -> None:
    """W10: nobody replays it any more."""
    planting = patched(sealing, "publish_generation", lambda owned, manifest, table: manifest)
    found(planting, {"a": Client.revise}, "W10", before=TWO, upkeep=True)


def test_planted_what_was_called_off_comes_into_force() -> None:
    """W17: a reviser that slept puts its specs over those that stand by then."""
    real = resharding._committed

    def blind(base: Any, details: Any) -> bool:
        return real(base, details) or real(open_latest(base.store, base.session), details)

    actors = {"a": Client.revise, "b": Client.abandon}
    found(patched(resharding, "_committed", blind), actors, "W17", before=None, upkeep=True)


# -- merge functions -----------------------------------------------------------------------------


def test_planted_what_is_in_the_base_is_merged_once_more_by_readers() -> None:
    """W11: where the newest row counts, to read a row twice does no harm."""
    real = capture._published
    planting = patched(
        capture,
        "_published",
        lambda base, each, manifest, mark, schema: real(base, each, manifest, 0, schema),
    )
    found(planting, {"a": COMPACT, "b": steps(READ, READ)}, "W11", before=TWO, upkeep=True, merges=True)


def test_planted_the_row_of_the_base_is_left_out() -> None:
    """W13."""
    real = merged._under

    def none(found: Any, reached: Any) -> Any:
        return real(found, np.zeros_like(reached))

    before = steps(OPEN, put(1), FLUSH, Client.abort)
    found(patched(merged, "_under", none), {"a": COMPACT}, "W13", before=before, upkeep=True, merges=True)


def test_planted_a_generation_forgets_that_a_key_was_deleted() -> None:
    """W5: what is older would be added."""
    real = sstable.shortened

    def forgetful(rows: Any, codes: Any, deletes: Any, functions: Any) -> Any:
        made = real(rows, codes, deletes, functions)
        keys = made[KEY].to_pylist()
        return made.filter(
            pa.array(
                [
                    not gone or keys.count(key) < 2
                    for key, gone in zip(keys, made[TOMBSTONE].to_pylist(), strict=True)
                ]
            )
        )

    actors = {"a": steps(OPEN, delete(0), put(0), FLUSH)}
    found(patched(sstable, "shortened", forgetful), actors, "W5", before=TWO, upkeep=True, merges=True)
