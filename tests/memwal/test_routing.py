"""Which shard a row goes to: values of the table's spec, names of shards that they make, and what a writer of
one shard refuses.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from streamed import KEY, OTHER_SHARD, SHARD, digest, keys, live, rows, shard_dir, streamed, values
from tiltyard.errors import InvalidInput, ShardSealed
from tiltyard.format.shard_manifest import SEALED
from tiltyard.memwal import layout
from tiltyard.memwal.life import manifests
from tiltyard.memwal.manifest import newest, update
from tiltyard.memwal.resharding import compacted
from tiltyard.memwal.routing import router_of, shard_name
from tiltyard.memwal.sealing import seal, unseal
from tiltyard.memwal.sharding import encode_value
from tiltyard.memwal.stream import ShardedWriter
from tiltyard.memwal.writer import ShardWriter
from tiltyard.store.local import LocalStore


def router(dataset: Any) -> Any:
    from tiltyard.memwal.identity import streamed as memwal_of

    return router_of(memwal_of(dataset._snapshot).spec, dataset._snapshot.schema)


def value_of(number: int, kind: Any = None) -> tuple[tuple[str, bytes], ...]:
    encoded = encode_value(pa.array([number], kind or pa.int32()))
    assert encoded is not None
    return (("bucket", encoded),)


def test_rows_are_shared_out_in_their_order(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t", bucket_column="id", num_buckets=4)
    batch = rows(list(range(40)))
    parts = dict(router(dataset).parts(batch))
    assert len(parts) == 4
    found: list[int] = []
    for value, part in parts.items():
        ids = part.to_pydict()["id"]
        assert ids == sorted(ids)
        again = dict(router(dataset).parts(part))
        assert list(again) == [value]
        found += ids
    assert sorted(found) == list(range(40))


def test_rows_of_an_identity_are_shared_out_by_value_also_by_null(tmp_path: Path) -> None:
    table = pa.table({"s": pa.array(["a", None, "b", "a"]), "n": [1, 2, 3, 4]})
    dataset = lance.write_dataset(table, str(tmp_path / "t"))
    dataset.initialize_mem_wal(identity_column="s")
    parts = {v: p.to_pydict()["n"] for v, p in router(dataset).parts(table.to_batches()[0])}
    assert parts == {(("bucket", b"a"),): [1, 4], (): [2], (("bucket", b"b"),): [3]}


def test_names_of_shards_depend_on_all_that_they_are_for() -> None:
    base = shard_name("life", 1, value_of(3), 0)
    assert base == shard_name("life", 1, value_of(3), 0)
    assert layout.parse_shard_id(base) == base
    others = {
        shard_name("other", 1, value_of(3), 0),
        shard_name(None, 1, value_of(3), 0),
        shard_name("life", 2, value_of(3), 0),
        shard_name("life", 1, value_of(2), 0),
        shard_name("life", 1, (), 0),
        shard_name("life", 1, value_of(3), 1),
    }
    assert len(others | {base}) == 7


def test_a_writer_of_one_shard_refuses_rows_of_others(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t", bucket_column="id", num_buckets=4)
    parts = list(router(dataset).parts(rows(list(range(40)))))
    (mine, own), (_, foreign) = parts[:2]
    with ShardWriter.open(dataset, SHARD, sharding_value=mine) as writer:
        writer.put(own)
        before = digest(tmp_path / "t")
        mixed = pa.concat_batches([own, foreign])
        for call, data in (
            (writer.put, foreign),
            (writer.put, mixed),
            (writer.delete, foreign.select(["id"])),
        ):
            with pytest.raises(InvalidInput, match=SHARD):
                call(data)
        assert digest(tmp_path / "t") == before
        writer.delete(own.select(["id"]).slice(0, 1))


def test_streams_find_the_shards_that_streams_made(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t", bucket_column="id", num_buckets=3)
    for number in (1.0, 2.0):
        with ShardedWriter(dataset) as writer:
            writer.put(rows(list(range(30)), number))
            writer.delete(keys([7]))
    root = LocalStore(str(tmp_path / "t" / layout.ROOT))
    assert len(manifests(root)) == 3
    assert {each.shard_spec_id for each in manifests(root).values()} == {1}
    assert values(live(tmp_path / "t")) == {key: 2.0 for key in range(30) if key != 7}


def test_a_shard_that_does_not_say_its_rows_is_not_guessed_about(tmp_path: Path) -> None:
    """The official package never says (MemWAL, section 2.3): rows of one key could come into two shards."""
    dataset = streamed(tmp_path / "t", bucket_column="id", num_buckets=3)
    ShardWriter.open(dataset, SHARD).close()
    before = digest(tmp_path / "t")
    with pytest.raises(InvalidInput, match=f"{SHARD} do not say which rows they have"):
        ShardedWriter(dataset).put(rows([1]))
    assert digest(tmp_path / "t") == before


def test_of_two_shards_of_an_unsharded_table_none_is_chosen(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t", unsharded=True)
    for shard in (SHARD, OTHER_SHARD):
        ShardWriter.open(dataset, shard).close()
    before = digest(tmp_path / "t")
    with pytest.raises(InvalidInput, match="2 shards that all rows could go to"):
        ShardedWriter(dataset).put(rows([1]))
    assert digest(tmp_path / "t") == before


def test_one_shard_of_an_unsharded_table_is_taken_whoever_began_it(tmp_path: Path) -> None:
    dataset = streamed(tmp_path / "t", unsharded=True)
    ShardWriter.open(dataset, SHARD).close()
    with ShardedWriter(dataset) as writer:
        writer.put(rows([10], 1.0))
        assert [each.shard_id for each in writer.writers] == [SHARD]


def test_a_sealed_shard_is_passed_over_when_its_rows_are_in_the_base(tmp_path: Path) -> None:
    """Before, a key could be in two shards."""
    dataset = streamed(tmp_path / "t", bucket_column="id", num_buckets=1)
    with ShardedWriter(dataset) as writer:
        writer.put(rows([10], 1.0))
        first = writer.writers[0].shard_id
    seal(dataset, first)
    before = digest(tmp_path / "t")
    with pytest.raises(ShardSealed, match=first):
        ShardedWriter(dataset).put(rows([10], 2.0))
    assert digest(tmp_path / "t") == before
    compacted(dataset, [first])
    with ShardedWriter(dataset) as writer:
        writer.put(rows([10], 2.0))
        second = writer.writers[0].shard_id
    assert second != first
    assert values(live(tmp_path / "t"))[10] == 2.0
    with pytest.raises(ShardSealed):
        ShardWriter.open(dataset, first, sharding_value=value_of(0))
    with pytest.raises(InvalidInput, match=f"its rows go to shard {second}"):
        unseal(dataset, first)


def test_a_shard_that_another_program_sealed_is_not_passed_over(tmp_path: Path) -> None:
    """It has left the log as it was, and a writer may be at work."""
    from dataclasses import replace

    dataset = streamed(tmp_path / "t", unsharded=True)
    writer = ShardWriter.open(dataset, SHARD)
    writer.put(rows([10], 1.0))
    shard = LocalStore(str(shard_dir(tmp_path / "t")))
    known = newest(shard)
    assert known is not None
    update(shard, known, lambda now: replace(now, status=SEALED))
    with pytest.raises(ShardSealed):
        ShardedWriter(dataset).put(rows([10], 2.0))


@pytest.mark.parametrize(
    "sharding", [{"bucket_column": "v2", "num_buckets": 2}, {"identity_column": "v2"}], ids=str
)
def test_sharding_by_a_column_outside_the_key_takes_no_stream(
    tmp_path: Path, sharding: dict[str, Any]
) -> None:
    """Rows of one key could differ in it, and come into several shards."""
    schema = pa.schema([pa.field("id", pa.int64(), False, KEY), ("v2", pa.int64())])
    dataset = lance.write_dataset(schema.empty_table(), str(tmp_path / "t"), schema=schema)
    dataset.initialize_mem_wal(**sharding)
    with pytest.raises(InvalidInput, match="'v2', which is no part of its key"):
        ShardedWriter(dataset)
