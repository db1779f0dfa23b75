"""How a streamed table is shared out, in plain words: which shard a key goes to, and other shards for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tiltyard.dataset import arguments
from tiltyard.errors import InvalidInput
from tiltyard.lake.given import keys_given
from tiltyard.memwal.identity import streamed
from tiltyard.memwal.routing import router_of
from tiltyard.memwal.sharding import MAX_BUCKETS
from tiltyard.table.apply.mem_wal import entry_of
from tiltyard.table.snapshot import open_latest

if TYPE_CHECKING:
    from tiltyard.dataset import LanceDataset
    from tiltyard.memwal.resharding import Tidied
    from tiltyard.table.snapshot import Snapshot


def shards_of_keys(ds: LanceDataset, keys: Any) -> Any:
    """The sharding value of each key, a `pa.Array`."""
    snapshot = _streamed(ds)
    router = router_of(streamed(snapshot).spec, snapshot.schema)
    return router.values(keys_given(keys, snapshot.schema))


def reshard(ds: LanceDataset, shards: int | None, by: str | None) -> Tidied:
    """Another number of shards; None to finish a change that is under way."""
    snapshot = _streamed(ds)
    if shards is None:
        if by is not None:
            raise InvalidInput("by says what is hashed into shards: give their number with it")
        return ds.resume_sharding()
    count = arguments.whole("shards", shards, 1, MAX_BUCKETS)
    key = [each.name for each in snapshot.schema.primary_key]
    if count == 1:
        if by is not None:
            raise InvalidInput("all rows go to one shard, whatever is in them: leave `by` out")
        return ds.revise_sharding(unsharded=True)
    if not key:
        raise InvalidInput("rows without a key cannot be shared out among shards: there can be one")
    column = key[0] if by is None else arguments.text("by", by)
    if column not in key:
        raise InvalidInput(
            f"rows are shared out by a column of their key ({', '.join(key)}), found {column!r}: rows of one "
            "key could come into several shards"
        )
    return ds.revise_sharding(bucket_column=column, num_buckets=count)


def _streamed(ds: LanceDataset) -> Snapshot:
    snapshot = open_latest(ds._store, ds._session)
    if entry_of(snapshot.manifest) is None:
        raise InvalidInput(
            f"nobody has streamed into {ds.uri} yet: the first stream(shards=...) settles how its rows are "
            "shared out"
        )
    return snapshot
