"""A change of the sharding that is called off: the table is as it was, whatever was sealed, wherever it
stopped.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import tiltyard.lance as lance
from resharded import EIGHT, EXPECTED, begun, details, everything, faulty, fresh, shards
from streamed import BASE, SHARD, digest, rows, streamed, values
from tiltyard.errors import InvalidInput
from tiltyard.memwal import resharding
from tiltyard.memwal.compaction import compact_streams
from tiltyard.memwal.identity import DRAINING_SPEC, LAST_SPEC
from tiltyard.memwal.resharding import abandon, compacted, revise, tidy
from tiltyard.memwal.routing import is_closed
from tiltyard.memwal.sealing import seal
from tiltyard.memwal.stream import ShardedWriter
from tiltyard.memwal.writer import ShardWriter
from tiltyard.testing.faults import Crashed, Fault, Rule


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Rows in the base, published in four shards, and in their logs."""
    begun(tmp_path / "t")
    return tmp_path / "t"


def owned_by_none(path: Path) -> None:
    """Every row can be put again, and is read."""
    with ShardedWriter(fresh(path)) as writer:
        writer.put(rows(list(range(40, 60)), 3.0))
        writer.put(rows([20], 4.0))
    found = {**EXPECTED, **dict.fromkeys(range(40, 60), 3.0), 20: 4.0}
    assert everything(path) == found
    assert not compact_streams(fresh(path)._store, lance.Session()).problems
    assert values(fresh(path).to_table()) == found


@pytest.mark.parametrize("sealed", [0, 2, 4])
def test_a_change_is_called_off_and_the_shards_take_writers_again(path: Path, sealed: int) -> None:
    before = details(path)
    revise(fresh(path), compacted, EIGHT, to_the_end=False)
    for shard in sorted(shards(path))[:sealed]:
        seal(fresh(path), shard, coming=2)
    done = abandon(fresh(path))
    assert done.coming == "spec 2 (bucket of id into 8)"
    assert len(done.shards) == sealed
    noted = details(path)
    assert noted.sharding_specs == before.sharding_specs
    assert noted.num_shards == before.num_shards
    assert noted.writer_defaults == {**before.writer_defaults, LAST_SPEC: "2"}
    assert everything(path) == EXPECTED
    owned_by_none(path)
    assert {each.shard_spec_id for each in shards(path).values()} == {1}
    with pytest.raises(InvalidInput, match=r"no change .* is under way; it has spec 1 \(bucket of id into 4"):
        abandon(fresh(path))
    assert revise(fresh(path), compacted, EIGHT).activated == 3  # no id is given twice


def test_what_was_named_by_hand_is_so_again(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t")
    with ShardWriter.open(dataset, SHARD) as writer:
        writer.put(rows([10], 1.0))
    revise(dataset, compacted, EIGHT, to_the_end=False)
    seal(dataset, SHARD, coming=1)
    assert abandon(dataset).shards == (SHARD,)
    assert details(tmp_path / "t").sharding_specs == ()
    with ShardWriter.open(fresh(tmp_path / "t"), SHARD) as writer:
        writer.put(rows([11], 1.0))
    assert everything(tmp_path / "t") == {**BASE, 10: 1.0, 11: 1.0}


def test_what_was_sealed_by_itself_stays_sealed(path: Path) -> None:
    """Before the change, or while it was under way."""
    early, late, *others = sorted(shards(path))
    seal(fresh(path), early)
    revise(fresh(path), compacted, EIGHT, to_the_end=False)
    for each in (early, late, *others):
        seal(fresh(path), each, coming=2)
    seal(fresh(path), late)
    assert abandon(fresh(path)).shards == tuple(others)
    assert is_closed(shards(path)[early])
    assert is_closed(shards(path)[late])
    assert everything(path) == EXPECTED


def test_what_a_reviser_seals_that_wakes_up_late_is_opened_by_whoever_comes_next(path: Path) -> None:
    real = resharding.seal

    def late(*arguments: Any, **options: Any) -> Any:
        patched.undo()
        abandon(fresh(path))
        return real(*arguments, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(resharding, "seal", late)
        assert revise(fresh(path), compacted, EIGHT).activated is None
    assert not any(is_closed(each) for each in shards(path).values())
    owned_by_none(path)
    for each in shards(path):
        seal(fresh(path), each, coming=2)  # and the same once more, by one that died
    assert len(abandon(fresh(path)).shards) == 4


def test_of_calling_off_and_coming_into_force_one_is_done(path: Path) -> None:
    real = resharding.commit

    def overtaken(*arguments: Any, **options: Any) -> Any:
        patched.undo()
        tidy(fresh(path), compacted)
        return real(*arguments, **options)

    revise(fresh(path), compacted, EIGHT, to_the_end=False)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(resharding, "commit", overtaken)
        with pytest.raises(InvalidInput, match=r"under way; it has spec 2 \(bucket of id into 8"):
            abandon(fresh(path))
    assert everything(path) == EXPECTED
    owned_by_none(path)


def test_what_was_begun_of_the_new_sharding_keeps_it_from_being_called_off(path: Path) -> None:
    """A version from the time of the change was restored."""
    revise(fresh(path), compacted, EIGHT, to_the_end=False)
    version = fresh(path).version
    tidy(fresh(path), compacted)
    with ShardedWriter(fresh(path)) as writer:
        writer.put(rows([50], 3.0))
    fresh(path).checkout_version(version).restore()
    before = digest(path)
    with pytest.raises(InvalidInput, match=r"cannot be called off: shard .* was begun already"):
        abandon(fresh(path))
    assert digest(path) == before
    assert tidy(fresh(path), compacted).activated == 2
    assert everything(path)[50] == 3.0


@pytest.mark.parametrize("fault", [Fault.CRASH_AFTER, Fault.LOSE_ANSWER])
def test_calling_off_that_stopped_anywhere_is_finished(tmp_path: Path, fault: Fault) -> None:
    ready = tmp_path / "ready"
    begun(ready, {"bucket_column": "id", "num_buckets": 2})
    revise(fresh(ready), compacted, EIGHT, to_the_end=False)
    for each in shards(ready):
        seal(fresh(ready), each, coming=2)
    table = faulty(shutil.copytree(ready, tmp_path / "counted"))
    abandon(table)
    steps = sum(call == "create" for call, _ in table._store.plan.trace)
    assert steps >= 3
    for at in range(1, steps + 1):
        path = shutil.copytree(ready, tmp_path / str(at))
        try:
            abandon(faulty(path, Rule(fault, "create", at)))
        except (Crashed, Exception):
            assert everything(path) == EXPECTED, at
        if details(path).writer_defaults.get(DRAINING_SPEC):
            abandon(fresh(path))
        else:
            tidy(fresh(path), compacted)
        assert not any(is_closed(each) for each in shards(path).values()), at
        owned_by_none(path)
