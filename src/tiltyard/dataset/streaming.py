"""The face of a dataset that streams: making its MemWAL, and opening writers of its shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tiltyard.dataset import arguments
from tiltyard.dataset.handle import Handle
from tiltyard.errors import InvalidInput
from tiltyard.table.snapshot import open_latest

if TYPE_CHECKING:
    from tiltyard.dataset.mem_wal import ShardingSpec, ShardWriter
    from tiltyard.memwal.overview import ShardFacts
    from tiltyard.memwal.resharding import Abandoned, Tidied
    from tiltyard.memwal.sealing import Dropped

HNSW_SETTINGS = ("num_edges", "ef_construction", "max_level")


class StreamFace(Handle):
    """Streaming writes of a dataset (MemWAL)."""

    def initialize_mem_wal(
        self,
        *,
        maintained_indexes: Sequence[str] | None = None,
        bucket_column: str | None = None,
        num_buckets: int | None = None,
        identity_column: str | None = None,
        unsharded: bool = False,
        durable_write: bool | None = None,
        max_wal_buffer_size: int | None = None,
        max_wal_flush_interval_ms: int | None = None,
        max_memtable_size: int | None = None,
        max_memtable_rows: int | None = None,
        max_memtable_batches: int | None = None,
        max_unflushed_memtable_bytes: int | None = None,
        manifest_scan_batch_size: int | None = None,
        backpressure_log_interval_ms: int | None = None,
        stats_log_interval_ms: int | None = None,
        hnsw_params: Mapping[str, Mapping[str, int]] | None = None,
        set_shards_aside: bool = False,
        merge_functions: Mapping[str, str] | None = None,
    ) -> None:
        """Make the table one that can be streamed into; once.

        Rows are shared out by the hash of `bucket_column` into `num_buckets` shards, by the value of
        `identity_column`, all into one with `unsharded`, or, without these, by hand. `maintained_indexes`:
        names of indices that streamed rows get too, None for all that can be. The other settings are the
        defaults of the table's writers (see `mem_wal_writer`). `set_shards_aside`: put shards away that an
        earlier table left at this place. `merge_functions`: for each column outside the key how a row that
        comes changes what its key has: `last`, `first`, `sum`, `min`, `max` or `keep_non_null`; without it
        the newest row counts. The official package then refuses to write streams into the table.

        Raises `InvalidInput`, `IndexNotFound`, `UnsupportedFeature` (key types that cannot be streamed), and
        what commits raise.
        """
        from tiltyard.memwal.initialise import initialise

        functions = None
        if merge_functions is not None:
            functions = arguments.text_map("merge_functions", merge_functions)
        if maintained_indexes is not None:
            maintained_indexes = arguments.texts("maintained_indexes", maintained_indexes)
        options: dict[str, Any] = {
            "durable_write": durable_write,
            "max_wal_buffer_size": max_wal_buffer_size,
            "max_wal_flush_interval_ms": max_wal_flush_interval_ms,
            "max_memtable_size": max_memtable_size,
            "max_memtable_rows": max_memtable_rows,
            "max_memtable_batches": max_memtable_batches,
            "max_unflushed_memtable_bytes": max_unflushed_memtable_bytes,
            "manifest_scan_batch_size": manifest_scan_batch_size,
            "backpressure_log_interval_ms": backpressure_log_interval_ms,
            "stats_log_interval_ms": stats_log_interval_ms,
            **_hnsw(hnsw_params),
        }
        made = initialise(
            open_latest(self._store, self._session),
            bucket_column=bucket_column,
            num_buckets=num_buckets,
            identity_column=identity_column,
            unsharded=arguments.flag("unsharded", unsharded),
            maintained_indexes=maintained_indexes,
            options=options,
            set_shards_aside=arguments.flag("set_shards_aside", set_shards_aside),
            merge_functions=functions,
        )
        self._move(made)

    def mem_wal_index_details(self) -> dict[str, Any] | None:
        """How the table is streamed into: `num_shards`, `maintained_indexes`, `maintain_all_indexes`,
        `writer_config_defaults`, `sharding_specs`, and where there are any, `merge_functions`; None where it
        is not.
        """
        from tiltyard.dataset.mem_wal import details_of

        return details_of(self._snapshot)

    def mem_wal_writer(
        self,
        shard_id: str,
        *,
        durable_write: bool | None = None,
        max_wal_buffer_size: int | None = None,
        max_wal_flush_interval_ms: int | None = None,
        max_memtable_size: int | None = None,
        max_memtable_rows: int | None = None,
        max_memtable_batches: int | None = None,
        max_unflushed_memtable_bytes: int | None = None,
        manifest_scan_batch_size: int | None = None,
        backpressure_log_interval_ms: int | None = None,
        stats_log_interval_ms: int | None = None,
        hnsw_params: Mapping[str, Mapping[str, int]] | None = None,
        max_uncompacted_generations: int | None = None,
        max_compaction_wait_ms: int | None = None,
    ) -> ShardWriter:
        """Become the owner of a shard (a UUID; it begins where there is none); the owner before is fenced.

        `durable_write`: whether puts return when they survive power loss. Rows of others reach the log after
        `max_wal_flush_interval_ms` or `max_wal_buffer_size` bytes. A generation ends at `max_memtable_rows`
        (at most 100,000), `max_memtable_batches` log entries (at most 8,000) or `max_memtable_size` bytes,
        and puts wait while `max_unflushed_memtable_bytes` are in memory. With `max_uncompacted_generations`
        they also wait while so many published generations are not in the table yet, and raise
        `CompactionBehind` where none is compacted within `max_compaction_wait_ms` (30,000).

        Raises as `ShardWriter.open` does.
        """
        from tiltyard.dataset.mem_wal import ShardWriter

        _hnsw(hnsw_params)
        return ShardWriter.open(
            self,
            shard_id,
            durable_write=durable_write,
            max_wal_buffer_size=max_wal_buffer_size,
            max_wal_flush_interval_ms=max_wal_flush_interval_ms,
            max_memtable_size=max_memtable_size,
            max_memtable_rows=max_memtable_rows,
            max_memtable_batches=max_memtable_batches,
            max_unflushed_memtable_bytes=max_unflushed_memtable_bytes,
            manifest_scan_batch_size=manifest_scan_batch_size,
            backpressure_log_interval_ms=backpressure_log_interval_ms,
            stats_log_interval_ms=stats_log_interval_ms,
            max_uncompacted_generations=max_uncompacted_generations,
            max_compaction_wait_ms=max_compaction_wait_ms,
        )

    # -- shards ----------------------------------------------------------------------------------

    def mem_wal_shards(self) -> list[ShardFacts]:
        """The shards as they are now, by id: owners' epochs, what is published, what waits, how long."""
        from tiltyard.memwal.overview import shard_facts

        return shard_facts(self._snapshot)

    def revise_sharding(
        self,
        *,
        bucket_column: str | None = None,
        num_buckets: int | None = None,
        identity_column: str | None = None,
        unsharded: bool = False,
        spec: ShardingSpec | Mapping[str, Any] | None = None,
    ) -> Tidied:
        """Share rows out among shards in another way from now on: arguments as of `initialize_mem_wal`, or a
        `ShardingSpec`, whose id does not count.

        While it runs nobody can open a writer (`ShardingChanging`), and open ones are fenced; the shards are
        published, sealed and compacted into the table, then the new sharding is in force. Where it stops, it
        is finished by calling it again, or by `resume_sharding`, in any process. Raises, before anything is
        changed, `InvalidInput`, `FieldNotFound` and `UnsupportedFeature` for a sharding that the table cannot
        have or has already, `ShardingChanging` while it is changed to another one, `CorruptFile` for a shard
        whose log cannot be read.
        """
        from tiltyard.dataset.mem_wal import spec_given
        from tiltyard.memwal.resharding import compacted, revise

        given = {
            "bucket_column": bucket_column,
            "num_buckets": num_buckets,
            "identity_column": identity_column,
            "unsharded": arguments.flag("unsharded", unsharded),
        }
        if spec is not None and any(value not in (None, False) for value in given.values()):
            raise InvalidInput("a sharding is given as a spec or by arguments, not both")
        done = revise(self, compacted, given if spec is None else spec_given(spec))
        self._move(open_latest(self._store, self._session))
        return done

    def resume_sharding(self) -> Tidied:
        """Finish a change of the sharding that stopped half-way, and put away shards of earlier shardings
        that others have begun since; nothing where there is neither.
        """
        from tiltyard.memwal.resharding import compacted, tidy

        done = tidy(self, compacted)
        self._move(open_latest(self._store, self._session))
        return done

    def abandon_sharding(self) -> Abandoned:
        """Call a change of the sharding off that is under way: the table's sharding stays as it was, and
        shards that were sealed for the change take writers again. What was compacted stays compacted. Raises
        `InvalidInput` where none is under way any more.
        """
        from tiltyard.memwal.resharding import abandon

        done = abandon(self)
        self._move(open_latest(self._store, self._session))
        return done

    def seal_shard(self, shard_id: str) -> None:
        """Take a shard over, publish what its log holds, and let nobody write there; see `memwal.sealing`."""
        from tiltyard.memwal.sealing import seal

        seal(self, shard_id)

    def unseal_shard(self, shard_id: str) -> None:
        """Let writers open a sealed shard again. Raises `ShardSpecMismatch` for one of an earlier sharding,
        and `InvalidInput` where another shard has its rows since.
        """
        from tiltyard.memwal.sealing import unseal

        unseal(self, shard_id)

    def drop_shard(self, shard_id: str, *, discard_streamed: bool = False) -> Dropped:
        """Take a sealed shard, all of whose rows are in the base, out of the table. `discard_streamed`: seal
        it first where it is not, and give up rows that are not in the base; the answer says how many.

        Raises, changing nothing, `ShardError` for a shard that is not sealed, `UndrainedRows`.
        """
        from tiltyard.memwal.sealing import drop_shard

        return drop_shard(self, shard_id, discard=arguments.flag("discard_streamed", discard_streamed))


def _hnsw(params: Mapping[str, Mapping[str, int]] | None) -> dict[str, Any]:
    """Settings of vector indices as a table keeps them; they mean nothing to our writers."""
    found: dict[str, Any] = {}
    for index, settings in ({} if params is None else arguments.mapping("hnsw_params", params)).items():
        for name, value in arguments.mapping(f"hnsw_params[{index!r}]", settings).items():
            if name not in HNSW_SETTINGS:
                raise InvalidInput(f"hnsw_params knows {', '.join(HNSW_SETTINGS)}, found {name!r}")
            found[f"hnsw.{index}.{name}"] = arguments.whole(f"hnsw_params[{index!r}][{name!r}]", value, 1)
    return found
