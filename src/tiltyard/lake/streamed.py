"""What a table has of streams; what they need is loaded when one is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tiltyard.dataset import arguments
from tiltyard.errors import InvalidInput, UndrainedRows
from tiltyard.lake.words import plain
from tiltyard.table.apply.mem_wal import entry_of
from tiltyard.table.snapshot import open_latest

if TYPE_CHECKING:
    from tiltyard.dataset import LanceDataset
    from tiltyard.lake.live import Live
    from tiltyard.lake.streaming import Stream
    from tiltyard.lake.tail import Tail
    from tiltyard.memwal.draining import Drained
    from tiltyard.memwal.overview import ShardFacts, Sharding
    from tiltyard.memwal.resharding import Abandoned, Tidied


class Streamed:
    """The part of a table that begins streams into it and reads what they bring."""

    _ds: LanceDataset
    _pinned: bool
    _check_writable: Callable[[str], None]

    def _refuse_streamed(self, what: str) -> None:
        """Refuse a change of rows that streamed rows may stand over: of their keys it would not be seen."""
        snapshot = self._ds._snapshot
        if entry_of(snapshot.manifest) is None or not snapshot.schema.primary_key:
            return
        from tiltyard.memwal.ending import undrained
        from tiltyard.memwal.life import shards_of

        found = undrained(*shards_of(self._ds._store, self._ds._session))
        if found:
            raise UndrainedRows(
                f"{what} is refused: {found} were streamed into {self._ds.uri} and stand over its own "
                "rows, so that for their keys nothing would be seen of it; nothing was changed. drain() "
                "brings them into the table, or use a stream: put replaces rows by key, delete removes them",
                found.rows,
            )

    @plain
    def stream(
        self,
        *,
        shards: int | None = None,
        merge: Mapping[str, str] | None = None,
        only: Iterable[Any] | None = None,
        set_shards_aside: bool = False,
        drain_every: Any = None,
        **options: Any,
    ) -> Stream:
        """Write rows one after the other, each durable when its call returns: upserts and deletes by key.

        The first stream settles how rows are shared out: `shards`, by the hash of the key; None is one;
        `reshard` changes it. A shard has one writer: a stream that meets rows of it takes it over from the
        one before, whose next call raises `WriterFenced`. `only`: the shards that this stream is for, as
        `shard_of` names them; rows of others are refused, so that processes which share a table out do not
        take shards from each other. `options`: settings as for `LanceDataset.mem_wal_writer`. What is
        streamed is seen by `live()`, and by `scan` once it was compacted into the table.

        The first stream also settles `merge`: for each column outside the key how the values of rows with one
        key become one (`last`, `first`, `sum`, `min`, `max`, `keep_non_null`); None: the newest row counts.

        `drain_every`: bring what is streamed into the table every so many seconds (or `"30s"`, a
        `timedelta`), and delete what is not needed any more, from a thread of the stream's own; closing the
        stream does it a last time. Without it `drain`, `maintain` or `tiltyard maintain` do that.

        `set_shards_aside`: where an earlier table of this place left shards, put them away. Raises, before
        anything is changed, `InvalidInput` for settings that there are not, `UnsupportedFeature` for keys and
        columns that cannot be streamed, and `ShardingChanging` during a `reshard`: try again when it is done.
        """
        from tiltyard.lake.streaming import open_stream

        self._check_writable("stream")
        return open_stream(self._ds, shards, merge, only, set_shards_aside, drain_every, options)

    @property
    def merge_functions(self) -> dict[str, str] | None:
        """How streamed rows of one key become one, by column; None where the newest one counts."""
        from tiltyard.memwal.identity import merge_functions

        snapshot = self._ds._snapshot
        found = merge_functions(snapshot)
        return None if found is None else found.named(snapshot.schema)

    # -- shards ----------------------------------------------------------------------------------

    @property
    def sharding(self) -> Sharding | None:
        """How streamed rows are shared out; None for a table that nobody has streamed into."""
        from tiltyard.memwal.overview import sharding_of

        return sharding_of(self._ds._snapshot)

    @plain
    def shard_of(self, keys: Any) -> Any:
        """Which shard the rows of some keys go to: a `pa.Array` of a value for each key, in their order, such
        as `stream(only=...)` takes. Keys as `live().lookup` takes them. With `shards=N` these are numbers
        below N, the same in every process, whether the shard was begun or not.
        """
        from tiltyard.lake.sharded import shards_of_keys

        return shards_of_keys(self._ds, keys)

    @plain
    def shards(self) -> list[ShardFacts]:
        """The shards that were begun, by id: owners' epochs, what is published, what waits, how long."""
        return self._ds.mem_wal_shards()

    @plain
    def reshard(self, shards: int | None = None, *, by: str | None = None) -> Tidied:
        """Share rows out among another number of shards from now on, by the hash of column `by` (default: the
        key's first). Without `shards`: finish a change that stopped half-way; `abandon_reshard` calls it off.

        Streams that are open are fenced, their rows kept, and new ones raise `ShardingChanging` until it is
        done; readers see one table throughout. It may be called again, by anybody, after any error. Raises,
        before anything is changed, `InvalidInput` for what cannot be or is so already.
        """
        from tiltyard.lake.sharded import reshard

        self._check_writable("reshard")
        return reshard(self._ds, shards, by)

    @plain
    def abandon_reshard(self) -> Abandoned:
        """Call a change of the shards off that stopped, or takes too long: there are as many as before, and
        streams can be opened again. It may be called again, by anybody, after any error. Raises
        `InvalidInput` where no change is under way any more.
        """
        self._check_writable("abandon_reshard")
        return self._ds.abandon_sharding()

    # -- reading ---------------------------------------------------------------------------------

    @plain
    def drain(self, *, take_over: bool = False) -> Drained:
        """Bring what was streamed into the table itself, where `scan`, `count` and indices see it: what
        streams of this process hold, and what all shards have published. Streams go on. The result says what
        was written and deleted, and what is left: rows that other processes have put and not published yet.

        `take_over`: those too. Their shards are taken over, and whoever writes to them gets `WriterFenced`:
        for streams whose process has ended. Raises `TooMuchContention`, and what is wrong with a shard, when
        the others are drained.
        """
        from tiltyard.memwal.draining import drain

        self._check_writable("drain")
        takes = arguments.flag("take_over", take_over)
        if entry_of(open_latest(self._ds._store, self._ds._session).manifest) is None:
            raise InvalidInput(f"nobody has streamed into {self._ds.uri} yet: there is nothing to bring in")
        done = drain(self._ds, take_over=takes)
        self._ds.checkout_latest()
        return done

    @plain
    def live(self) -> Live:
        """The table with what is being streamed into it."""
        from tiltyard.lake.live import Live

        self._refuse_live("live", "scan()")
        return Live(self._ds)

    @plain
    def tail(self, after: Any = None, *, follow: bool = False, timeout: float | None = None) -> Tail:
        """What is put into the table's streams and deleted from it, change by change, as it becomes durable:
        of all shards and processes, in the order of each shard's log. Iterate it, also by `async for`.

        `after`: where to begin: None for all that the logs hold; `"published"` for what `live()` of another
        process may not show yet; `"end"` for what comes from now on; or the `cursor` of an earlier tail.
        `follow`: wait for more at the end, until `timeout` seconds pass without a change, or `stop()`.
        """
        from tiltyard.lake.tail import Tail

        self._refuse_live("tail", "history()")
        return Tail(self._ds, after, follow, timeout)

    def _refuse_live(self, what: str, instead: str) -> None:
        if self._pinned:
            raise InvalidInput(
                f"{what} is refused: this is version {self._ds.version} of {self._ds.uri}, opened with at(), "
                f"and streams belong to the newest. Ask the table itself, or read this version with {instead}"
            )
