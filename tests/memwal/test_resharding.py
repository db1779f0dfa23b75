"""Another sharding for a streamed table: its four steps, stopped anywhere, by several at once, beside
readers, writers and strays.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tiltyard.lance as lance
from resharded import EIGHT, EXPECTED, FOUR, begun, details, everything, faulty, fresh, shards
from streamed import (
    BASE,
    OTHER_SHARD,
    SHARD,
    digest,
    keys,
    newest_manifest,
    rows,
    streamed,
    values,
)
from tiltyard.errors import (
    CorruptFile,
    FieldNotFound,
    InvalidInput,
    ShardingChanging,
    ShardSealed,
    ShardSpecMismatch,
    UnsupportedFeature,
    WriterFenced,
)
from tiltyard.format.mem_wal import ShardingField, ShardingSpec
from tiltyard.lake.tail import Tail
from tiltyard.memwal import layout, resharding
from tiltyard.memwal.check import check_shards
from tiltyard.memwal.compaction import compact_streams
from tiltyard.memwal.identity import ACTIVE_SPEC, DRAINING_SPEC, LAST_SPEC
from tiltyard.memwal.identity import streamed as memwal_of
from tiltyard.memwal.resharding import BY_HAND, compacted, revise, tidy
from tiltyard.memwal.routing import is_closed
from tiltyard.memwal.stream import ShardedWriter
from tiltyard.memwal.writer import ShardWriter
from tiltyard.table.snapshot import open_latest
from tiltyard.testing.faults import Crashed, Fault, Rule


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Rows in two buckets of the base, published in four shards, and in their logs."""
    begun(tmp_path / "t")
    return tmp_path / "t"


def test_rows_go_to_the_new_shards_and_none_is_lost(path: Path) -> None:
    before = shards(path)
    done = revise(fresh(path), compacted, EIGHT)
    assert sorted(done.shards) == sorted(before)
    assert done.activated == 2
    assert "4 shards" in str(done)
    assert "spec 2" in str(done)
    noted = details(path)
    assert [(each.spec_id, each.fields[0].parameters["num_buckets"]) for each in noted.sharding_specs] == [
        (2, "8")
    ]
    assert noted.num_shards == 8
    assert noted.writer_defaults[ACTIVE_SPEC] == noted.writer_defaults[LAST_SPEC] == "2"
    assert DRAINING_SPEC not in noted.writer_defaults
    assert all(is_closed(each) for each in shards(path).values())
    assert everything(path) == EXPECTED
    assert values(fresh(path).to_table()) == EXPECTED
    with ShardedWriter(fresh(path)) as writer:
        writer.put(rows(list(range(50, 58)), 3.0))
        writer.put(rows([20], 4.0))
    made = {each: found for each, found in shards(path).items() if each not in before}
    assert {each.shard_spec_id for each in made.values()} == {2}
    assert everything(path) == {**EXPECTED, **dict.fromkeys(range(50, 58), 3.0), 20: 4.0}


def test_no_id_of_a_spec_is_given_twice(path: Path) -> None:
    for number, sharding in enumerate((EIGHT, {"unsharded": True}, FOUR, EIGHT), 2):
        assert revise(fresh(path), compacted, sharding).activated == number
        with ShardedWriter(fresh(path)) as writer:
            writer.put(rows([50], float(number)))
        assert everything(path) == {**EXPECTED, 50: float(number)}
    assert {each.shard_spec_id for each in shards(path).values()} == {1, 2, 3, 4, 5}


def test_ids_go_on_after_a_restore_that_has_forgotten_them(path: Path) -> None:
    """The shards of the spec that is gone are strays then, and their rows stay."""
    version = fresh(path).version
    revise(fresh(path), compacted, EIGHT)
    with ShardedWriter(fresh(path)) as writer:
        writer.put(rows([50], 3.0))
    dataset = fresh(path)
    dataset.checkout_version(version).restore()
    assert [each.spec_id for each in details(path).sharding_specs] == [1]
    assert everything(path)[50] == 3.0
    assert len(tidy(fresh(path), compacted).shards) >= 1
    assert revise(fresh(path), compacted, EIGHT).activated == 3
    assert everything(path)[50] == 3.0


def test_after_a_restore_rows_of_the_sharding_in_force_count(path: Path) -> None:
    """Its id is the smaller one then."""
    version = fresh(path).version
    revise(fresh(path), compacted, EIGHT)
    with ShardedWriter(fresh(path)) as writer:
        writer.put(rows([50, 51], 3.0))
    fresh(path).checkout_version(version).restore()
    with ShardedWriter(fresh(path)) as writer:
        writer.put(rows([50], 4.0))
        assert {each.manifest.shard_spec_id for each in writer.writers} == {1}
    assert (everything(path)[50], everything(path)[51]) == (4.0, 3.0)
    feed = [each for each in Tail(fresh(path), None, False, None) if 50 in each.upserts["id"].to_pylist()]
    assert [each.upserts["v"][0].as_py() for each in feed] == [3.0, 4.0]
    tidied = shutil.copytree(path, path.parent / "tidied")
    tidy(fresh(tidied), compacted)
    assert (everything(tidied)[50], everything(tidied)[51]) == (4.0, 3.0)
    compact_streams(fresh(path)._store, lance.Session())  # of all specs at once
    assert values(fresh(path).to_table()) == everything(path)
    assert (everything(path)[50], everything(path)[51]) == (4.0, 3.0)


def test_shards_named_by_hand_are_drained_too(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    for shard, key in ((SHARD, 10), (OTHER_SHARD, 11)):
        writer = ShardWriter.open(dataset, shard)
        writer.put(rows([key], 1.0))
    revise(dataset, compacted, EIGHT, to_the_end=False)
    noted = details(tmp_path / "t")
    assert [each.spec_id for each in noted.sharding_specs] == [0, 1]
    assert noted.sharding_specs[0] == BY_HAND
    assert noted.writer_defaults[DRAINING_SPEC] == "0"
    with pytest.raises(ShardingChanging):
        ShardWriter.open(dataset, SHARD)
    assert tidy(dataset, compacted).activated == 1
    with pytest.raises(WriterFenced):
        writer.put(rows([12], 1.0))
    with pytest.raises(ShardSpecMismatch):
        ShardWriter.open(dataset, SHARD, shard_spec_id=0)
    with ShardedWriter(dataset) as stream:
        stream.put(rows([10], 2.0))
    assert everything(tmp_path / "t") == {**BASE, 10: 2.0, 11: 1.0}


# -- what is refused ----------------------------------------------------------------------------


def spec(transform: Any = "bucket", sources: tuple[int, ...] = (0,), **facts: Any) -> ShardingSpec:
    parameters = facts.pop("parameters", {"num_buckets": "8"})
    return ShardingSpec(
        9,
        (ShardingField(facts.pop("field_id", "bucket"), sources, transform, parameters=parameters, **facts),),
    )


WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "the same": (FOUR, InvalidInput, r"already: spec 1 \(bucket of id into 4\)"),
    "the same as a spec": (spec(parameters={"num_buckets": "4"}), InvalidInput, "like this already"),
    "by hand": ({}, InvalidInput, "named by hand"),
    "no field": (ShardingSpec(2, ()), UnsupportedFeature, "one field, found 0"),
    "two fields": (
        ShardingSpec(2, spec().fields + spec(field_id="other").fields),
        UnsupportedFeature,
        "one field, found 2",
    ),
    "no column": ({"bucket_column": "x", "num_buckets": 3}, InvalidInput, "column 'x' not found"),
    "no source": (spec(sources=(99,)), FieldNotFound, r"ids \[99\]"),
    "no sources": (spec(sources=()), FieldNotFound, r"ids \[\]"),
    "two sources": (spec(sources=(0, 1)), FieldNotFound, r"ids \[0, 1\]"),
    "unknown transform": (spec("year"), UnsupportedFeature, "'year'"),
    "no transform": (spec(None), UnsupportedFeature, "transform for field 'bucket': None"),
    "expression": (spec(None, expression="id % 4"), UnsupportedFeature, "id % 4"),
    "no buckets": (spec(parameters={}), InvalidInput, "missing 'num_buckets'"),
    "odd buckets": (spec(parameters={"num_buckets": "many"}), InvalidInput, "invalid num_buckets 'many'"),
    "no buckets at all": ({"bucket_column": "id", "num_buckets": 0}, InvalidInput, r"in \[1, 1024\], got 0"),
    "too many buckets": (spec(parameters={"num_buckets": "1025"}), InvalidInput, "got 1025"),
    "only half of it": ({"num_buckets": 3}, InvalidInput, "both"),
    "two ways": ({**EIGHT, "unsharded": True}, InvalidInput, "at most one"),
    "floats": ({"identity_column": "v"}, InvalidInput, "cannot be used as a shard key"),
    "no part of the key": ({"identity_column": "s"}, InvalidInput, r"column of their key \(id\), found 's'"),
    "a name of ours": (spec(field_id="tiltyard.incarnation"), InvalidInput, "named by some text"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_done_is_refused_before_anything_is_written(path: Path, name: str) -> None:
    sharding, error, told = WRONG[name]
    before = digest(path)
    with pytest.raises(error, match=told):
        revise(fresh(path), compacted, sharding)
    assert digest(path) == before


def test_a_table_whose_log_cannot_be_read_stays_open(path: Path) -> None:
    shard = next(iter(shards(path)))
    entry = path / layout.shard_dir(shard) / layout.entry_path(2)
    entry.write_bytes(b"garbage")
    before = digest(path)
    with pytest.raises(CorruptFile, match="position 2"):
        revise(fresh(path), compacted, EIGHT)
    assert digest(path) == before


def test_a_table_that_is_not_streamed_into_has_no_sharding(tmp_path: Path) -> None:
    dataset = lance.write_dataset(rows([1]), str(tmp_path / "t"))
    before = digest(tmp_path / "t")
    with pytest.raises(InvalidInput, match="not initialized"):
        revise(dataset, compacted, EIGHT)
    assert not tidy(dataset, compacted).shards
    assert digest(tmp_path / "t") == before


def test_where_nothing_is_left_to_do_nothing_is_changed(path: Path) -> None:
    before = digest(path)
    assert tidy(fresh(path), compacted) == resharding.Tidied(())
    assert digest(path) == before


# -- while it is under way ----------------------------------------------------------------------


def test_writers_are_told_to_come_back(path: Path) -> None:
    opened = ShardedWriter(fresh(path))
    opened.put(rows([20], 3.0))
    revise(fresh(path), compacted, EIGHT, to_the_end=False)
    with pytest.raises(ShardingChanging):
        ShardedWriter(fresh(path))
    with pytest.raises(ShardingChanging):
        ShardWriter.open(fresh(path), next(iter(shards(path))))
    opened.put(rows([20], 4.0))  # until its shard is taken over
    with pytest.raises(ShardingChanging):
        opened.put(rows(list(range(40)), 5.0))  # and it opens no other
    tidy(fresh(path), compacted)
    with pytest.raises(WriterFenced):
        opened.put(rows([20], 6.0))
    found = everything(path)
    assert found[20] in (4.0, 5.0)
    late = ShardedWriter(fresh(path))
    late._spec_id = 1
    with pytest.raises(ShardingChanging, match="has changed since this stream was opened"):
        late.put(rows([20], 6.0))
    with ShardedWriter(fresh(path)) as stream:
        stream.put(rows([20], 7.0))
    assert everything(path)[20] == 7.0


def test_who_asks_for_the_same_joins_and_for_another_waits(path: Path) -> None:
    revise(fresh(path), compacted, EIGHT, to_the_end=False)
    before = digest(path)
    with pytest.raises(ShardingChanging, match=r"into 8\) already, and unsharded was asked for"):
        revise(fresh(path), compacted, {"unsharded": True})
    assert digest(path) == before
    revise(fresh(path), compacted, EIGHT, to_the_end=False)
    assert digest(path) == before
    assert revise(fresh(path), compacted, EIGHT).activated == 2


def test_readers_see_one_table_at_every_step(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def watched(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            seen.append(everything(path))
            made = real(*arguments, **options)
            seen.append(everything(path))
            return made

        return call

    monkeypatch.setattr(resharding, "seal", watched(resharding.seal))
    monkeypatch.setattr(resharding, "commit", watched(resharding.commit))
    revise(fresh(path), watched(compacted), EIGHT)
    assert len(seen) == 2 * (4 + 1 + 2)
    assert seen == [EXPECTED] * len(seen)


def test_a_table_is_not_opened_while_a_shard_is_not_in_the_base(path: Path) -> None:
    """A drain that does nothing is not taken for one."""
    from tiltyard.errors import ShardContention

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(resharding, "MAX_ROUNDS", 3)
        with pytest.raises(ShardContention, match="nothing was compacted"):
            revise(fresh(path), lambda table, ids: None, EIGHT)
    assert DRAINING_SPEC in details(path).writer_defaults
    assert everything(path) == EXPECTED
    assert revise(fresh(path), compacted, EIGHT).activated == 2


def test_a_shard_that_is_damaged_meanwhile_is_mended_and_the_rest_is_done(path: Path) -> None:
    from tiltyard.memwal.repair import repair

    revise(fresh(path), compacted, EIGHT, to_the_end=False)
    shard = next(iter(shards(path)))
    (path / layout.shard_dir(shard) / layout.entry_path(2)).write_bytes(b"garbage")
    with pytest.raises(CorruptFile):
        tidy(fresh(path), compacted)
    assert repair(fresh(path)._snapshot, shard).steps
    assert tidy(fresh(path), compacted).activated == 2


# -- strays -------------------------------------------------------------------------------------


def stray(path: Path, batch: Any, when: Callable[[], Any]) -> None:
    """Somebody who read the old spec in time begins a shard of it, and puts rows in, after `when`."""
    from tiltyard.memwal import owner

    real = owner.claim

    def late(*arguments: Any) -> Any:
        owner.claim = real
        when()
        return real(*arguments)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(owner, "claim", late)
        patched.setattr(owner, "_check_unchanged", lambda *_: None)  # a peer does not look again
        writer = ShardWriter.open(fresh(path), SHARD)
    writer.put(batch)
    writer.abort()


def test_a_stray_is_read_sealed_and_drained(path: Path) -> None:
    stray(path, rows([21, 50], 8.0), lambda: revise(fresh(path), compacted, EIGHT))
    assert newest_manifest(path).shard_spec_id == 1
    assert everything(path) == {**EXPECTED, 21: 8.0, 50: 8.0}
    (told,) = check_shards(fresh(path)._snapshot, SHARD)
    assert not told.is_damage
    assert "an earlier one of the table's, and it is not emptied yet" in str(told)
    with pytest.raises(ShardSpecMismatch):
        ShardWriter.open(fresh(path), SHARD, shard_spec_id=1)
    done = tidy(fresh(path), compacted)
    assert done == resharding.Tidied((SHARD,))
    assert is_closed(newest_manifest(path))
    assert check_shards(fresh(path)._snapshot) == []
    assert values(fresh(path).to_table()) == {**EXPECTED, 21: 8.0, 50: 8.0}


def test_of_a_key_in_a_stray_and_a_new_shard_the_new_one_counts(path: Path) -> None:
    def newer() -> None:
        revise(fresh(path), compacted, EIGHT)
        with ShardedWriter(fresh(path)) as writer:
            writer.put(rows([21], 9.0))
            writer.delete(keys([22]))

    stray(path, rows([21, 22, 50], 8.0), newer)
    expected = {**EXPECTED, 21: 9.0, 50: 8.0}
    del expected[22]
    assert everything(path) == expected
    tidy(fresh(path), compacted)
    assert everything(path) == expected


def test_our_writer_that_came_late_leaves_an_empty_shard(path: Path) -> None:
    from tiltyard.memwal import owner

    real = owner.claim

    def late(*arguments: Any) -> Any:
        patched.undo()
        revise(fresh(path), compacted, EIGHT)
        return real(*arguments)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(owner, "claim", late)
        with pytest.raises(ShardingChanging):
            ShardWriter.open(fresh(path), SHARD)
    assert newest_manifest(path).shard_spec_id == 1
    assert tidy(fresh(path), compacted).shards == (SHARD,)
    assert everything(path) == EXPECTED


# -- crashes, several at once -------------------------------------------------------------------


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table to copy."""
    path = tmp_path_factory.mktemp("steps") / "t"
    begun(path, {"bucket_column": "id", "num_buckets": 2})
    return path


@pytest.fixture(scope="module")
def steps(template: Path, tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many files a whole revision creates exclusively; each decides something."""
    path = shutil.copytree(template, tmp_path_factory.mktemp("counted") / "t")
    table = faulty(path)
    revise(table, compacted, EIGHT)
    return sum(call == "create" for call, _ in table._store.plan.trace)


@pytest.mark.parametrize("part", [1, 2, 3])
@pytest.mark.parametrize("fault", [Fault.CRASH_AFTER, Fault.LOSE_ANSWER])
def test_whoever_comes_next_finishes_what_stopped_anywhere(
    template: Path, steps: int, tmp_path: Path, fault: Fault, part: int
) -> None:
    assert steps > 8
    for at in range(part, steps + 1, 3):
        path = shutil.copytree(template, tmp_path / str(at))
        try:
            revise(faulty(path, Rule(fault, "create", at)), compacted, EIGHT)
        except (Crashed, Exception):
            assert everything(path) == EXPECTED, at
        if details(path).writer_defaults[LAST_SPEC] == "1":  # it stopped before the first step
            revise(fresh(path), compacted, EIGHT)
        else:
            tidy(fresh(path), compacted)
        assert [each.spec_id for each in details(path).sharding_specs] == [2], at
        assert everything(path) == EXPECTED, at
        assert values(fresh(path).to_table()) == EXPECTED, at


def test_two_maintainers_at_once_and_a_reader(path: Path) -> None:
    failed: list[BaseException] = []
    stop = threading.Event()

    def act(what: Callable[[], Any]) -> threading.Thread:
        def run() -> None:
            try:
                what()
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def read() -> None:
        while not stop.wait(0.02):
            assert everything(path) == EXPECTED

    reader = act(read)
    maintainers = [act(lambda: revise(fresh(path), compacted, EIGHT)) for _ in range(2)]
    for each in maintainers:
        each.join()
    stop.set()
    reader.join()
    assert not failed
    assert [each.spec_id for each in details(path).sharding_specs] == [2]
    assert everything(path) == EXPECTED


def test_specs_that_are_none_of_the_revision_stay(path: Path) -> None:
    """As those that close a table to other programs for good (decision D4)."""
    base = open_latest(fresh(path)._store, lance.Session())
    found = memwal_of(base)
    filler = ShardingSpec(5, (ShardingField("filler", (), "other"),))
    notes = {**found.details.writer_defaults, ACTIVE_SPEC: "1", LAST_SPEC: "5"}
    closed = found.details.resharded((*found.details.sharding_specs, filler), 4, notes)
    assert resharding._committed(base, closed)
    with ShardedWriter(fresh(path)) as writer:
        writer.put(rows([20], 3.0))
    assert revise(fresh(path), compacted, EIGHT).activated == 6
    assert [each.spec_id for each in details(path).sharding_specs] == [5, 6]
    with ShardedWriter(fresh(path)) as writer:
        writer.put(rows([21], 4.0))
        assert {each.manifest.shard_spec_id for each in writer.writers} == {6}
    assert everything(path) == {**EXPECTED, 20: 3.0, 21: 4.0}


def test_a_closed_table_without_an_active_spec_takes_no_writer(path: Path) -> None:
    base = open_latest(fresh(path)._store, lance.Session())
    found = memwal_of(base)
    notes = dict(found.details.writer_defaults)
    specs = (*found.details.sharding_specs, replace(spec(), spec_id=2))
    assert resharding._committed(base, found.details.resharded(specs, 4, notes))
    with pytest.raises(ShardingChanging, match="at most one sharding spec, found 2"):
        ShardedWriter(fresh(path))
    base = open_latest(fresh(path)._store, lance.Session())
    assert resharding._committed(base, found.details.resharded(specs, 4, {**notes, ACTIVE_SPEC: "7"}))
    with pytest.raises(CorruptFile, match="'7' as its active sharding spec"):
        ShardedWriter(fresh(path))


def test_a_sealed_shard_of_the_old_spec_is_no_shard_of_the_new(path: Path) -> None:
    """What sealed is, stays: also where the buckets come back to what they were."""
    revise(fresh(path), compacted, EIGHT)
    revise(fresh(path), compacted, FOUR)
    for shard, manifest in shards(path).items():
        if manifest.shard_spec_id == 1:
            with pytest.raises((ShardSealed, ShardSpecMismatch)):
                ShardWriter.open(fresh(path), shard)
    with ShardedWriter(fresh(path)) as writer:
        writer.put(rows([20], 3.0))
        assert {each.manifest.shard_spec_id for each in writer.writers} == {3}


def test_of_shards_of_an_earlier_sharding_the_sound_ones_are_emptied(path: Path) -> None:
    revise(fresh(path), compacted, EIGHT, to_the_end=False)
    damaged, *others = sorted(shards(path))
    (path / layout.shard_dir(damaged) / layout.entry_path(2)).write_bytes(b"garbage")
    with pytest.raises(CorruptFile, match=f"waits for it.*shard repair TABLE {damaged}"):
        tidy(fresh(path), compacted)
    assert [each for each, manifest in shards(path).items() if is_closed(manifest)] == others
