"""What happens in a table's streams, change by change: a feed over the logs of all its shards.

A change is one log entry: what one put, or several that were put together, brought to one shard. It is given
when it is durable, once, in the order of its shard's log; between shards there is no order, and none is
needed, since all rows of a key are in one; where the sharding was changed, in one after the other. Where a
feed stands is its `cursor`, a dict of plain values: a feed that begins after it goes on with the next change.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tiltyard import runtime
from tiltyard.dataset import arguments
from tiltyard.dataset.json_text import shown_batch
from tiltyard.errors import InvalidInput, LogTruncated, ObjectNotFound
from tiltyard.expr.arrays import bools_of
from tiltyard.expr.arrays import plain as plain_array
from tiltyard.lake.words import plain
from tiltyard.memwal import layout
from tiltyard.memwal.identity import merge_functions, spec_in_force
from tiltyard.memwal.life import shards_of
from tiltyard.memwal.log_schema import TOMBSTONE, LogSchema, log_schema
from tiltyard.memwal.tail import POLL_SECONDS, Follower
from tiltyard.memwal.tail import Change as Logged
from tiltyard.memwal.wal import positions
from tiltyard.runtime.awaiting import in_thread, pause
from tiltyard.store.below import Below
from tiltyard.table.merge.join import KeyIndex

if TYPE_CHECKING:
    from tiltyard.dataset import LanceDataset
    from tiltyard.store import Store

PUBLISHED, END = "published", "end"


@dataclass(frozen=True, slots=True)
class Change:
    """What one log entry did to a shard.

    `rows`: everything in its order, a `pa.RecordBatch` of the table's columns and `_tombstone`, which is true
    where the row deletes its key and has nothing else. `merges`: whether the table has merge functions, so
    that rows are to be merged with what their keys have.
    """

    shard_id: str
    position: int
    epoch: int
    rows: Any
    key: tuple[str, ...]
    merges: bool = False

    def __repr__(self) -> str:
        return f"Change(shard_id={self.shard_id!r}, position={self.position}, rows={self.rows.num_rows})"

    @property
    def upserts(self) -> Any:
        """What the change leaves of the keys that it wrote: the last row of each, as a `pa.RecordBatch` of
        the table's columns. Without a key all rows.
        """
        return self._ended(deletes=False).select(self.rows.schema.names[:-1])

    @property
    def deletes(self) -> Any:
        """The keys that are gone after the change, as a `pa.RecordBatch` of the key's columns."""
        return self._ended(deletes=True).select(list(self.key))

    def _ended(self, deletes: bool) -> Any:
        if self.merges:
            raise InvalidInput(
                "the table has merge functions: which row a key has after a change depends on what it had "
                "before. Merge `rows`, in their order, by `table.merge_functions`, or read `live()`"
            )
        keep = bools_of(self.rows.column(TOMBSTONE)) == deletes
        if self.key:
            last = np.zeros(self.rows.num_rows, np.bool_)
            last[KeyIndex([plain_array(self.rows.column(name)) for name in self.key]).last_rows()] = True
            keep = keep & last
        return self.rows.filter(pa.array(keep))


class Tail:
    """The changes of a table's streams; use `Table.tail`. An iterator: what was given is not given again.

    Not to be shared among threads, but `stop` may be called from any.
    """

    def __init__(self, ds: LanceDataset, after: Any, follow: bool, timeout: float | None) -> None:
        """See `Table.tail`."""
        self._ds = ds
        self._follow = arguments.flag("follow", follow)
        self._timeout = None if timeout is None else arguments.seconds("timeout", timeout)
        if self._timeout is not None and not self._follow:
            raise InvalidInput("timeout says how long a tail waits: give follow=True with it")
        self._stopped = runtime.event()
        self._followers: dict[str, Follower] = {}
        self._begin(after)
        self._ready = self._round()

    def __repr__(self) -> str:
        return f"Tail({self._ds.uri!r}, cursor={self.cursor!r}{', follow=True' if self._follow else ''})"

    @property
    def cursor(self) -> dict[str, int]:
        """Where the feed stands: the last position that was passed, by shard. Give it as `after=`."""
        return {shard_id: each.at for shard_id, each in sorted(self._followers.items())}

    def stop(self) -> None:
        """End a feed that follows: it gives what it has read, and no more."""
        self._follow = False
        self._stopped.set()

    # -- where it begins -------------------------------------------------------------------------

    def _begin(self, after: Any) -> None:
        if after is None:
            return
        if isinstance(after, Mapping):
            for shard_id, position in after.items():
                at = arguments.whole(f"after[{shard_id!r}]", position)
                parsed = layout.parse_shard_id(shard_id)
                self._followers[parsed] = Follower(self._shard(parsed), at)
            return
        if not isinstance(after, str) or after not in (PUBLISHED, END):
            raise arguments.wrong("after", f"{PUBLISHED!r}, {END!r} or the cursor of a tail", after)
        _, shards = shards_of(self._ds._store, self._ds._session)
        for shard_id, manifest in shards.items():
            shard = self._shard(shard_id)
            at = manifest.replay_after
            if after == END:
                at = max((at, *positions(shard)))
            self._followers[shard_id] = Follower(shard, at)

    def _shard(self, shard_id: str) -> Store:
        return Below(self._ds._store, layout.shard_dir(shard_id))

    # -- what comes ------------------------------------------------------------------------------

    def _round(self) -> Iterator[Change]:
        """What is in the logs now."""
        base, shards = shards_of(self._ds._store, self._ds._session)
        schema = log_schema(base.schema, merge_functions(base))
        # Shards of an earlier sharding end before those of a later one begin: first what came first. The one
        # in force came last, also where a restore has brought it back.
        now = spec_in_force(base) if shards else None
        specs = {each: (found.shard_spec_id == now, found.shard_spec_id) for each, found in shards.items()}
        for shard_id in sorted(
            {*shards, *self._followers}, key=lambda each: (specs.get(each, (False, 0)), each)
        ):
            follower = self._followers.get(shard_id)
            if follower is None:
                follower = self._followers[shard_id] = Follower(self._shard(shard_id))
            yield from self._of_shard(shard_id, follower, schema)

    def _of_shard(self, shard_id: str, follower: Follower, schema: LogSchema) -> Iterator[Change]:
        try:
            for found in follower.changes(schema):
                yield _change(shard_id, found, schema)
        except LogTruncated as error:
            raise LogTruncated(
                f"shard {shard_id}: {error}: give after={{**tail.cursor, {shard_id!r}: {error.position}}}",
                error.position,
                shard_id,
            ) from error
        except ObjectNotFound as error:
            raise LogTruncated(f"shard {shard_id}: {error}", follower.at, shard_id) from error

    @plain
    def _next(self) -> Change | None:
        """The next change that is there; None when all were given."""
        found = next(self._ready, None)
        if found is None:
            self._ready = self._round()
            found = next(self._ready, None)
        return found

    def __iter__(self) -> Iterator[Change]:
        waited_from = runtime.monotonic()
        while True:
            found = self._next()
            if found is not None:
                yield found
                waited_from = runtime.monotonic()
            elif not self._waits(waited_from):
                return
            else:
                self._stopped.wait(deadline=runtime.monotonic() + POLL_SECONDS)

    async def __aiter__(self) -> AsyncIterator[Change]:
        waited_from = runtime.monotonic()
        while True:
            found = await in_thread(self._next)
            if found is not None:
                yield found
                waited_from = runtime.monotonic()
            elif not self._waits(waited_from):
                return
            else:
                await pause(POLL_SECONDS)

    def _waits(self, since: float) -> bool:
        if not self._follow:
            return False
        return self._timeout is None or runtime.monotonic() < since + self._timeout


def _change(shard_id: str, found: Logged, schema: LogSchema) -> Change:
    merges = schema.functions is not None
    return Change(shard_id, found.position, found.epoch, shown_batch(found.rows), schema.key, merges)
