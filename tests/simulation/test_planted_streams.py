"""Streaming broken on purpose, one invariant at a time: the simulation must find each.

What sound code answers to the same scenarios stands in `test_streams.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from planting import found, found_by_chance, patched, several
from tiltyard.errors import OutcomeUnknown, TiltyardError, WriterFenced, WriterPoisoned
from tiltyard.memwal import claim, levels, manifest, owner, publishing, sstable, tail, wal
from tiltyard.memwal.replay import Replay
from tiltyard.memwal.wal import Log
from tiltyard.memwal.writer import ShardView, ShardWriter
from tiltyard.store import Created
from tiltyard.store.directory import Directory
from tiltyard.testing.faults import Fault
from tiltyard.testing.simulation.port import SimulatedPort
from tiltyard.testing.simulation.streams import Client
from tiltyard.testing.simulation.streams_scenarios import (
    BEGUN,
    CLOSE,
    FLUSH,
    ONCE,
    OPEN,
    READ,
    SEALED_BEFORE,
    Script,
    delete,
    do,
    lazily,
    put,
    steps,
)

CLAIM_0, CLAIM_1 = do(Client.claim, 0), do(Client.claim, 1)


# -- claims --------------------------------------------------------------------------------------


def test_planted_the_identity_is_checked_before_the_first_try_only() -> None:
    """W1: who loses to the maker of another identity's shard claims that one."""
    real_check, real_claim = claim.check, claim.claim
    fresh: list[bool] = []

    def once(found: Any, identity: Any) -> None:
        if fresh and fresh.pop():
            real_check(found, identity)

    def claiming(shard: Any, *rest: Any) -> Any:
        fresh[:] = [manifest.newest(shard) is not None]
        return real_claim(shard, *rest)

    from tiltyard.testing.simulation import streams

    found(
        several(patched(claim, "check", once), patched(streams, "claim", claiming)),
        {"a": CLAIM_0, "b": do(Client.initialise, 1)},
        "W1",
        before=None,
    )


def _without_spec(found: Any, identity: Any) -> None:
    if found.status:
        raise claim.ShardSealed("sealed")


@pytest.mark.parametrize("automatic", [False, True], ids=["1 against 0", "0 against 1"])
def test_planted_the_spec_is_not_checked(automatic: bool) -> None:
    actor = CLAIM_0 if automatic else CLAIM_1
    found(patched(claim, "check", _without_spec), {"a": actor}, "W1", automatic=automatic)


def test_planted_zero_is_a_wildcard() -> None:
    real = claim.check

    def lenient(found: Any, identity: Any) -> None:
        real(found, replace(identity, spec_id=found.shard_spec_id) if identity.spec_id == 0 else identity)

    found(patched(claim, "check", lenient), {"a": CLAIM_0}, "W1", automatic=True)


def test_planted_a_claim_stores_the_claimants_spec() -> None:
    real = claim._next

    def own(found: Any, identity: Any) -> Any:
        return replace(real(found, identity), shard_spec_id=identity.spec_id)

    found(several(patched(claim, "check", _without_spec), patched(claim, "_next", own)), {"a": CLAIM_1}, "W1")


def test_planted_a_sealed_shard_is_claimed() -> None:
    """W3."""
    real = claim.check

    def lenient(found: Any, identity: Any) -> None:
        real(replace(found, status=0), identity)

    found(patched(claim, "check", lenient), {"a": OPEN}, "W3", before=SEALED_BEFORE)


def test_planted_a_claim_with_a_lost_answer_counts_as_somebody_elses() -> None:
    """W2: its maker is told that another was faster, and the epoch has risen."""

    def forgetful(store: Any, path: str, data: bytes, directory: str) -> Any:
        answer = store.create(path, data)
        return (Created.EXISTS, None) if answer is Created.UNKNOWN else (answer, None)

    found(
        patched(manifest, "create_settled", forgetful),
        {"a": CLAIM_0},
        "W2",
        faults=[Fault.LOSE_ANSWER],
    )


def test_planted_claims_have_no_nonce() -> None:
    """W3: a foreign claim of equal bytes is taken for one's own whose answer was lost."""
    real = claim._next

    def alike(found: Any, identity: Any) -> Any:
        return replace(real(found, identity), claim_nonce=b"of everybody")

    found(
        patched(claim, "_next", alike),
        {"a": CLAIM_0, "b": CLAIM_0},
        "W3",
        before=None,
        faults=[Fault.LOSE_REQUEST],
    )


def test_planted_a_refused_claim_has_raised_the_epoch() -> None:
    """W2, W1: the fault that began it: written first, looked at afterwards."""

    def hasty(shard: Any, identity: Any, rehearse: Any) -> Any:
        found = manifest.newest(shard)
        wanted = claim._next(found, identity)
        manifest.publish(shard, wanted)
        if found is not None:
            claim.check(found, identity)
        return wanted

    from tiltyard.testing.simulation import streams

    found(patched(streams, "claim", hasty), {"a": steps(OPEN, put(1)), "b": CLAIM_1}, "W2")


# -- the log -------------------------------------------------------------------------------------


def test_planted_a_put_is_acknowledged_without_a_look_at_the_epoch() -> None:
    found(
        patched(Log, "_acknowledge", lambda self, position: None),
        {"a": steps(OPEN, put(0)), "b": CLAIM_0},
        "W9",
        before=None,
    )


def test_planted_the_own_version_is_looked_at_before_the_next_one() -> None:
    """W9: a claim and the collection of its version in between hide both."""

    def reversed_order(self: Any, outcome: str) -> None:
        known = self._manifest
        mine = self._shard.exists(claim.layout.manifest_path(known.version))
        if self._shard.exists(claim.layout.manifest_path(known.version + 1)):
            current = manifest.read(self._shard, known.version + 1)
            if current.writer_epoch != known.writer_epoch:
                raise manifest.fenced(self._shard, known.writer_epoch, current.writer_epoch, outcome)
            self._manifest = current
        elif not mine:
            try:
                self._manifest = manifest.still_ours(self._shard, known)
            except WriterFenced as error:
                raise WriterFenced(str(error), outcome) from error

    happened: set[str] = set()

    def until(what: str) -> Script:
        def script(client: Client) -> None:
            while what not in happened and not client.shard.list_names(what):
                client.wait(30e-6)

        return script

    def clear(client: Client) -> None:
        happened.clear()

    found(
        patched(Log, "_still_ours", reversed_order),
        {
            "a": steps(clear, OPEN, lambda client: happened.add("open"), until("claimed"), put(0)),
            "b": steps(
                do(Client.wait, 0.1),
                until("open"),
                CLAIM_0,
                lambda client: happened.add("claimed"),
                until("wal"),
                Client.bump,
                Client.prune,
            ),
        },
        "W9",
        before=None,
    )


def test_planted_an_owner_leaves_no_sentinel() -> None:
    found(patched(owner, "put_sentinel", lambda shard, made: 0), {"a": OPEN}, "W8")


def test_planted_the_sentinel_comes_before_the_claim() -> None:
    """W8: it fences the owner, though the claim may yet be refused."""
    real = owner.claim

    def hasty(shard: Any, identity: Any, rehearse: Any) -> Any:
        known = manifest.newest(shard)
        if known is not None:
            wal.put_sentinel(shard, replace(known, writer_epoch=known.writer_epoch + 1))
        return real(shard, identity, rehearse)

    found(
        several(patched(owner, "claim", hasty), patched(wal, "still_ours", lambda shard, known: known)),
        {"a": OPEN},
        "W8",
    )


def test_planted_the_tip_is_found_without_the_cursor() -> None:
    """W8: where the log was collected, a sentinel below the cursor fences nobody."""
    real = owner.put_sentinel

    def careless(shard: Any, made: Any) -> int:
        return real(shard, replace(made, replay_after=0))

    before = steps(OPEN, put(0), FLUSH, Client.abort, Client.prune)
    found(patched(owner, "put_sentinel", careless), {"a": OPEN}, "W8", before=before)


def test_planted_an_append_is_sent_again_at_the_next_position() -> None:
    """W6: twice in the log where its answer was lost."""
    real = Log._put

    def once(store: Any, path: str, data: bytes, directory: str) -> Any:
        return store.create(path, data), None

    def stubborn(self: Any, data: bytes) -> None:
        try:
            real(self, data)
        except OutcomeUnknown:
            self._next += 1
            real(self, data)

    found(
        several(patched(wal, "create_settled", once), patched(Log, "_put", stubborn)),
        {"a": steps(OPEN, put(1))},
        "W6",
        faults=[Fault.LOSE_ANSWER],
    )


def test_planted_an_append_of_unknown_outcome_counts_as_done() -> None:
    """W6: its request was lost."""

    def hopeful(store: Any, path: str, data: bytes, directory: str) -> Any:
        answer = store.create(path, data)
        return (Created.WON if answer is Created.UNKNOWN else answer), None

    found(
        patched(wal, "create_settled", hopeful),
        {"a": steps(OPEN, put(1))},
        "W6",
        "W8",
        faults=[Fault.LOSE_REQUEST],
    )


def test_planted_a_look_at_the_epoch_that_fails_counts_as_a_refusal() -> None:
    """W6: the entry stands. (Found by the simulation.)"""
    found(
        patched(Log, "_acknowledge", lambda self, position: self._still_ours("unknown")),
        {"a": steps(OPEN, put(1))},
        "W6",
        failing_reads=True,
    )


def test_planted_a_late_sentinel_ends_the_owner() -> None:
    """W12. (Found by the simulation.)"""
    real = Log._taken

    def strict(self: Any, position: int, found: Any) -> Any:
        return real(self, position, found) or WriterPoisoned("not ours")

    found(
        patched(Log, "_taken", strict),
        {"a": OPEN, "b": steps(OPEN, do(Client.wait, 1.0), put(1))},
        "W12",
    )


def test_planted_what_was_put_lazily_is_logged_after_what_came_later() -> None:
    """W7."""
    real = ShardWriter._append

    def late(self: Any, group: list[Any]) -> None:
        active = self._state[0]
        if group and active.pending:
            combined = pa.concat_batches([each.batch for each in group])
            position = self._log.append(combined, active.stamp)
            pending, active._held = active._held[1], (active._held[0], [])
            active.logged(position, combined, combined.nbytes, combined.num_rows)
            for each in pending:
                active.add(each)
            group.clear()
        else:
            real(self, group)

    found(patched(ShardWriter, "_append", late), {"a": steps(OPEN, lazily(1), put(1), CLOSE)}, "W7")


def test_planted_log_files_are_not_synced() -> None:
    found_by_chance(
        patched(SimulatedPort, "fdatasync", lambda self, fd: None), "stream-claims-disk", "W6", "W10", "W5"
    )


def test_planted_directories_are_not_synced() -> None:
    found_by_chance(
        patched(Directory, "_fsync", lambda self, fd: None), "stream-claims-disk", "W6", "W10", "W5", "S8"
    )


# -- generations ---------------------------------------------------------------------------------


@pytest.mark.parametrize("left_out", ["files", "directories"])
def test_planted_a_generation_is_named_before_it_is_synced(left_out: str) -> None:
    """Its log is behind the cursor by then: power loss takes rows that were told to be there."""
    real = Directory.sync_all

    def partly(self: Any, files: Any, directories: Any) -> None:
        real(self, () if left_out == "files" else files, () if left_out == "directories" else directories)

    found_by_chance(patched(Directory, "sync_all", partly), "stream-claims-disk", "W5", "W10")


def test_planted_a_generation_is_published_before_its_rows_are_logged() -> None:
    """W6, or W5: power loss would take what was told to be published."""
    real = ShardWriter._append

    def lazy(self: Any, group: list[Any]) -> None:
        if group:
            real(self, group)

    found(patched(ShardWriter, "_append", lazy), {"a": steps(OPEN, put(0), lazily(1), FLUSH)}, "W5", "W6")


def _named(**changed: Any) -> Any:
    real = publishing.named

    def named(current: Any, made: Any, logged_to: int) -> Any:
        after = real(current, made, logged_to)
        return replace(after, **{key: change(current, after) for key, change in changed.items()})

    return patched(publishing, "named", named)


def test_planted_the_cursor_does_not_move() -> None:
    planting = _named(replay_after=lambda before, after: before.replay_after)
    found(planting, {"a": steps(OPEN, put(0), FLUSH)}, "W4")


def test_planted_the_cursor_moves_too_far() -> None:
    """W10: the next entry is below it, and nobody replays it."""
    planting = _named(replay_after=lambda before, after: after.replay_after + 1)
    found(planting, {"a": steps(OPEN, put(0), FLUSH, put(1))}, "W10", "W5", "W6")


def test_planted_the_generation_is_not_counted() -> None:
    planting = _named(current_generation=lambda before, after: before.current_generation)
    found(planting, {"a": steps(OPEN, put(0), FLUSH)}, "W4")


def test_planted_a_generation_is_published_whoever_owns_the_shard() -> None:
    """W4, W5: a passed writer names its generation beside its successor's of the same number."""

    def blind(current: Any, made: Any, logged_to: int) -> Any:
        return replace(
            current,
            sstables=(*current.sstables, made),
            current_generation=made.generation + 1,
            replay_after=max(current.replay_after, logged_to),
        )

    def unfenced(shard: Any, known: Any) -> Any:
        return manifest.newest(shard)

    found(
        several(
            patched(publishing, "named", blind),
            patched(publishing, "still_ours", unfenced),
            patched(manifest, "still_ours", unfenced),
        ),
        {"a": steps(OPEN, put(0), FLUSH), "b": steps(OPEN, put(1), FLUSH)},
        "W4",
        "W5",
        before=None,
    )


def test_planted_a_generation_is_named_before_its_key_index_is_made() -> None:
    found(
        several(
            patched(sstable, "build", lambda *facts, **more: None),
            patched(sstable, "_check_complete", lambda *facts: None),
        ),
        {"a": steps(OPEN, put(0), FLUSH)},
        "W5",
    )


def test_planted_superseded_rows_stay() -> None:
    nothing = np.empty(0, np.uint32)
    found(
        patched(sstable, "_superseded", lambda keys, rows: nothing),
        {"a": steps(OPEN, put(0), put(0), FLUSH)},
        "W5",
    )


# -- replay and reading --------------------------------------------------------------------------


def test_planted_entries_of_earlier_epochs_are_not_replayed() -> None:
    """W10, or W5 where the new owner publishes."""
    found(
        patched(Replay, "_unpublished", lambda self, manifest: ()),
        {"a": steps(OPEN, put(0))},
        "W10",
        "W5",
    )


def test_planted_deletions_come_back() -> None:
    """W10: a row that deletes is taken for a row."""

    def alive(self: Any) -> Any:
        found = real(self)
        return replace(found, deletes=np.zeros(len(found.deletes), np.bool_))

    real = levels.MemoryLevel.keys
    found(
        patched(levels.MemoryLevel, "keys", alive), {"a": steps(OPEN, put(1), delete(1), READ)}, "W11", "W10"
    )


def test_planted_frozen_rows_are_not_seen() -> None:
    """W11: from the freeze on, and before the manifest names them."""
    real = ShardWriter.view

    def active_only(self: Any) -> ShardView:
        seen = real(self)
        generation = self._state[0].generation
        return replace(
            seen, memtables=tuple(each for each in seen.memtables if each.generation == generation)
        )

    found(
        patched(ShardWriter, "view", active_only),
        {"a/1": steps(ONCE, put(1), FLUSH), "a/2": steps(ONCE, READ)},
        "W11",
    )


def test_planted_rows_are_seen_before_they_are_durable() -> None:
    """W11."""

    def hasty(self: Any, group: list[Any]) -> None:
        for each in group:
            self._state[0].add(each.batch)
        group.clear()
        active = self._state[0]
        if active.pending:
            combined = pa.concat_batches(active.pending)
            active.logged(self._log.append(combined, active.stamp), combined, combined.nbytes, 0)

    found(
        patched(ShardWriter, "_append", hasty),
        {"a/1": steps(ONCE, put(1), put(2)), "a/2": steps(ONCE, READ)},
        "W11",
    )


def test_planted_a_feed_leaves_entries_of_earlier_epochs_out() -> None:
    real = tail._change

    def picky(entry: Any, *rest: Any) -> Any:
        return real(entry, *rest) if entry.epoch > 1 else None

    found(patched(tail, "_change", picky), {"a": steps(OPEN, put(1), do(Client.follow, 0))}, "W11")


def test_planted_a_failing_store_is_told_as_success() -> None:
    """W6: a put whose log cannot be written is told as done."""
    real = Log.append

    def hopeful(self: Any, batch: Any, generation: int) -> int:
        try:
            return real(self, batch, generation)
        except TiltyardError:
            self._poison = None
            return self._next

    found(
        patched(Log, "append", hopeful),
        {"a": steps(OPEN, put(1)), "b": OPEN},
        "W6",
        "W9",
        before=BEGUN,
    )
