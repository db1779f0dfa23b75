"""What must hold of a shard after a run, whatever happened in it; numbers as in docs/design/009-streaming.md.

W1  Of a shard one identity is ever stored: its id, its sharding spec, its table's incarnation.
W2  A claim that was refused made nothing.
W3  Manifests have no gap; epochs only rise, by one; each is the work of one claim, and nobody else's, on a
    shard that was not sealed, or stays so.
W4  The replay cursor only rises; generations are published in order, one after the other, and stay until
    the base holds them (W14).
W5  An SSTable is named after all that it needs was made, and holds the rows of the log between two cursors:
    in order, of each key the last one living (with merge functions: what they come to, and whether the key
    was deleted); its key index and Bloom filter know its keys.
W6  What was acknowledged durably stands in the log once and whole; what was refused stands nowhere; what is
    unknown stands whole or not at all.
W7  What was acknowledged before something else began stands before it; what was put lazily stands before
    whatever its writer acknowledged durably later.
W8  The log has no hole; epochs of what it holds only rise; no entry of an epoch is older than its claim, and
    an owner that came after another one left a sentinel above the cursor.
W9  Nothing is acknowledged whose entry came after the claim of another epoch.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa

from tiltyard.errors import OutcomeUnknown, TiltyardError
from tiltyard.format import names
from tiltyard.format.shard_manifest import ACTIVE, ShardManifest, SsTable
from tiltyard.memwal import layout
from tiltyard.memwal.capture import open_sstable
from tiltyard.memwal.claim import INCARNATION
from tiltyard.memwal.identity import merge_functions
from tiltyard.memwal.key_hash import key_hashes
from tiltyard.memwal.log_schema import TOMBSTONE, log_schema
from tiltyard.memwal.lookup import in_sstable
from tiltyard.memwal.marks import marks_of
from tiltyard.session import Session
from tiltyard.store import Store
from tiltyard.table.merge.key_filter import holds
from tiltyard.table.scan import Scan, ScanRequest
from tiltyard.table.snapshot import open_latest
from tiltyard.testing.simulation.chain import KEY, VALUE
from tiltyard.testing.simulation.history import Outcome
from tiltyard.testing.simulation.streams import SHARD, SHARD_DIR, Ledger
from tiltyard.testing.simulation.streams_model import (
    Archive,
    LogRow,
    MadeEntry,
    MadeManifest,
    Reading,
    generation_of,
    read_log,
)
from tiltyard.testing.simulation.streams_upkeep import check_upkeep
from tiltyard.testing.simulation.world import World


def check_shard(world: World, ledger: Ledger, *, upkeep: bool) -> list[str]:
    """Everything, in calm weather, in an actor; with `upkeep` also what maintainers must have kept."""
    archive = Archive.of(world)
    chain, log = archive.chain(), archive.log()
    wrong = [*ledger.wrong]
    wrong += _check_manifests(world, chain, ledger)
    wrong += _check_claims(archive, ledger)
    wrong += _check_log(archive, chain, log, ledger)
    reading = read_log(log, {each.number: each for each in ledger.writes}, ledger.merges)
    wrong += [f"W6: {each}" for each in reading.strange]
    wrong += _check_writes(archive, reading, ledger)
    wrong += _check_order(reading, ledger)
    if upkeep:
        wrong += check_upkeep(world, archive, reading)
    if not wrong:
        wrong += _check_sstables(world.store(), world.session(), archive, log, upkeep, ledger.merges)
    return wrong


# -- manifests and claims ------------------------------------------------------------------------


def _check_manifests(world: World, chain: list[MadeManifest], ledger: Ledger) -> list[str]:
    wrong = []
    numbers = [each.manifest.version for each in chain]
    if numbers != list(range(1, len(numbers) + 1)):
        wrong.append(f"W3: the manifest has versions {numbers}")
    standing = layout.manifest_versions(world.store(f"table/{SHARD_DIR}").list_names(layout.MANIFEST_DIR))
    if standing[-1:] != numbers[-1:] and not world.power_cuts:
        wrong.append(f"W3: of versions up to {numbers[-1:]} there are {standing}")
    identities = {
        (
            each.manifest.shard_id,
            each.manifest.shard_spec_id,
            dict(each.manifest.field_entries).get(INCARNATION),
        )
        for each in chain
    }
    if len(identities) > 1 or any(shard != SHARD for shard, _, _ in identities):
        wrong.append(f"W1: the shard had the identities {sorted(identities, key=str)}")
    for one, other in pairwise(chain):
        wrong += _check_step(one, other)
    return wrong


def _check_step(one: MadeManifest, other: MadeManifest) -> list[str]:
    before, after, wrong = one.manifest, other.manifest, []
    step = f"from version {before.version} to {after.version}"
    if not before.writer_epoch <= after.writer_epoch <= before.writer_epoch + 1:
        wrong.append(f"W3: epoch {before.writer_epoch} became {after.writer_epoch} {step}")
    if (before.writer_epoch == after.writer_epoch) != (before.claim_nonce == after.claim_nonce):
        wrong.append(f"W3: epoch {after.writer_epoch} is the work of several claims {step}")
    if before.writer_epoch != after.writer_epoch and before.status != ACTIVE == after.status:
        wrong.append(f"W3: a sealed shard was claimed {step}")
    if after.replay_after < before.replay_after:
        wrong.append(f"W4: the cursor went from {before.replay_after} back to {after.replay_after} {step}")
    named = {each.path for each in before.sstables}
    left = [each for each in after.sstables if each.path in named]
    if left != list(before.sstables[len(before.sstables) - len(left) :]):
        wrong.append(f"W4: SSTables were changed, or taken away from the middle {step}")
    new = [each.generation for each in after.sstables if each.path not in named]
    first = before.current_generation
    if new != list(range(first, first + len(new))) or after.current_generation != first + len(new):
        wrong.append(
            f"W4: generations {new} came {step}, due was {first}; next is {after.current_generation}"
        )
    if bool(new) != (after.replay_after > before.replay_after):
        wrong.append(f"W4: the cursor went to {after.replay_after} with generations {new} {step}")
    return wrong


def _check_claims(archive: Archive, ledger: Ledger) -> list[str]:
    """W2, W3: every claim that stands is one that somebody made."""
    made: dict[bytes, ShardManifest] = {}
    for each in archive.on_top():
        made.setdefault(each.manifest.claim_nonce, each.manifest)
    wrong = []
    for claim in ledger.claims:
        if not claim.nonce:
            continue
        found = made.pop(claim.nonce, None)
        if found is None or found.writer_epoch != claim.epoch:
            wrong.append(f"W3: {claim.operation} was told of epoch {claim.epoch}, which is not its claim")
        elif found.status != ACTIVE:
            wrong.append(f"W3: {claim.operation} claimed a sealed shard")
        elif found.shard_spec_id != claim.spec_id:
            wrong.append(
                f"W1: {claim.operation} of spec {claim.spec_id} got a shard of {found.shard_spec_id}"
            )
    doubtful = [each for each in ledger.claims if not each.nonce and not each.is_refused]
    if len(made) > len(doubtful) and not ledger.resharded:
        refused = "; ".join(str(each.operation) for each in ledger.claims if each.is_refused)
        epochs = sorted(each.writer_epoch for each in made.values())
        wrong.append(f"W2: epochs {epochs} were claimed by whoever was refused: {refused}")
    owners = [each.epoch for each in ledger.claims if each.nonce]
    if len(set(owners)) < len(owners):
        wrong.append(f"W3: several were told that epoch {sorted(owners)} is theirs")
    return wrong


# -- the log -------------------------------------------------------------------------------------


def _check_log(
    archive: Archive, chain: list[MadeManifest], log: list[MadeEntry], ledger: Ledger
) -> list[str]:
    wrong = []
    positions = [each.entry.position for each in log]
    if positions != list(range(1, len(positions) + 1)):
        wrong.append(f"W8: the log has entries at {positions}")
    epochs = [each.entry.epoch for each in log if each.entry.batches]
    if epochs != sorted(epochs):
        wrong.append(f"W8: entries are of epochs {epochs}")
    claimed: dict[int, int] = {}
    for each in chain:
        claimed.setdefault(each.manifest.writer_epoch, each.order)
    for entry in log:
        epoch = entry.entry.epoch
        if epoch not in claimed or entry.order < claimed[epoch]:
            wrong.append(f"W8: the entry at {entry.entry.position} came before epoch {epoch} was claimed")
    every = [each.entry for made in archive.entries.values() for each in made]
    cursors = {each.manifest.writer_epoch: each.manifest.replay_after for each in reversed(chain)}
    sentinels = {
        each.epoch for each in every if not each.batches and each.position > cursors.get(each.epoch, 0)
    }
    wrong += [
        f"W8: there is no sentinel of epoch {opened.epoch}, whose owner went to work"
        for opened in ledger.opened
        if opened.epoch > 1 and opened.epoch not in sentinels
    ]
    return wrong


def _check_writes(archive: Archive, reading: Reading, ledger: Ledger) -> list[str]:
    wrong = []
    after_claim = _entries_after_claims(archive)
    for write in ledger.writes:
        places = reading.places.get(write.number, [])
        if len(places) > 1:
            wrong.append(f"W6: {write} stands {len(places)} times")
        if places and write.refused:
            wrong.append(f"W6: {write}, and it stands at {places[0].position}")
        is_safe = write.durable or any(
            each.outcome is Outcome.DONE and _before(write, each.begun) for each in write.opened.logged
        )
        if write.done and is_safe and not places:
            wrong.append(f"W6: {write}, and it stands nowhere")
        if write.done and write.durable and any(each.position in after_claim for each in places):
            wrong.append(f"W9: {write}, and its entry came after another claim")
    return wrong


def _before(write: object, begun: int) -> bool:
    operation = write.operation  # type: ignore[attr-defined]
    return operation.ended is not None and operation.ended <= begun


def _entries_after_claims(archive: Archive) -> set[int]:
    """Positions of entries that were made after the claim of a higher epoch."""
    claims = [(each.order, each.manifest.writer_epoch) for each in archive.on_top()]
    return {
        each.entry.position
        for each in archive.log()
        if any(order < each.order and epoch > each.entry.epoch for order, epoch in claims)
    }


def _check_order(reading: Reading, ledger: Ledger) -> list[str]:
    """W7."""
    wrong = []
    places = {
        each.number: (found[0].position, found[0].turn)
        for each in ledger.writes
        if (found := reading.places.get(each.number))
    }
    for one in ledger.writes:
        for other in ledger.writes:
            if not one.done or not _before(one, other.operation.begun) or other.number not in places:
                continue
            if one.number in places:
                if places[one.number] > places[other.number]:
                    wrong.append(f"W7: {one} stands after {other}")
            elif one.opened is other.opened and other.done and other.durable:
                wrong.append(f"W7: {one} is not in the log, and {other} is")
    return wrong


# -- SSTables ------------------------------------------------------------------------------------


def _check_sstables(
    store: Store, session: Session, archive: Archive, log: list[MadeEntry], upkeep: bool, merges: bool
) -> list[str]:
    """W5 of every SSTable that is named, and was; what the base holds may be gone, or going."""
    wrong: list[str] = []
    mark = marks_of(open_latest(store, session)).get(SHARD, 0) if upkeep else 0
    chain = archive.chain()
    cursor = 0
    named: set[str] = set()
    for each in chain:
        new = [fact for fact in each.manifest.sstables if fact.path not in named]
        named |= {fact.path for fact in new}
        upto = each.manifest.replay_after
        for fact in new:
            rows = [row for entry in log if cursor < entry.entry.position <= upto for row in entry.rows]
            wrong += _check_files(archive, fact, each.order)
            try:
                wrong += _check_sstable(store, session, fact, rows, merges)
            except (TiltyardError, pa.ArrowInvalid) as error:
                if fact.generation <= mark and fact not in chain[-1].manifest.sstables:
                    continue
                wrong.append(f"W5: {fact.path} cannot be read: {type(error).__name__}: {error}")
        cursor = upto
    return wrong


def _check_files(archive: Archive, fact: SsTable, named_at: int) -> list[str]:
    files = archive.files.get(fact.path, {})
    wanted = [layout.BLOOM_FILTER, names.manifest_path(1), layout.PK_PAGES, layout.PK_LOOKUP]
    late = [path for path in wanted if files.get(path, named_at) >= named_at]
    late += [path for path, order in files.items() if order >= named_at and path not in late]
    return [f"W5: {fact.path} was named before {', '.join(late)} was made"] if late else []


def _check_sstable(
    store: Store, session: Session, fact: SsTable, rows: list[LogRow], merges: bool
) -> list[str]:
    base = open_latest(store, session)
    level = open_sstable(base, SHARD, fact, log_schema(base.schema, merge_functions(base)))
    wanted = generation_of(rows, merges)
    columns = [KEY, VALUE, TOMBSTONE]
    table = Scan(level.snapshot, ScanRequest(columns=columns, row_address=True, use_index=False)).table()
    keys, values, gone = (table[name].to_pylist() for name in columns)
    found = [(key, None if dead else value) for key, value, dead in zip(keys, values, gone, strict=True)]
    wrong = []
    if found != wanted and (not merges or sorted(found, key=repr) != wanted):
        wrong.append(f"W5: {fact.path} holds {found}, the log {wanted}")
    count = len(wanted if merges else rows)
    if fact.physical_rows != count:
        wrong.append(f"W5: {fact.path} is said to have {fact.physical_rows} rows of {count}")
    asked = pa.array(keys, pa.int64())
    hashes = key_hashes([asked], len(asked))
    bloom = level.bloom()
    if bloom is None or not holds(bloom, hashes).all():
        wrong.append(f"W5: the Bloom filter of {fact.path} does not know its keys")
    if merges:  # of a key there may be two rows, which scans and lookups put together (W10, W11)
        return wrong
    level.key_index()
    hits = in_sstable(level, [asked], hashes)
    looked_up = dict(zip(hits.codes.tolist(), np.asarray(hits.rows).tolist(), strict=True))
    addresses = table.column(len(columns)).to_pylist()
    if looked_up != dict(enumerate(addresses)):
        wrong.append(f"W5: the key index of {fact.path} finds {looked_up}, its rows are at {addresses}")
    return wrong


def check_errors(world: World, ledger: Ledger, allowed: tuple[type[BaseException], ...]) -> list[str]:
    """W12: where nothing failed on purpose, callers are told of each other and of nothing else. Whoever makes
    a version above one that is pruned at once cannot tell whether it counts.
    """
    if world.storm.struck:
        return []
    return [
        f"W12: nothing happened, and {each}"
        for each in ledger.history.operations
        if each.outcome in (Outcome.FAILED, Outcome.UNKNOWN)
        and not isinstance(each.error, allowed)
        and not (isinstance(each.error, OutcomeUnknown) and (ledger.pruned or "fenced" in str(each.error)))
    ]
