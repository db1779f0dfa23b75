"""Streams into a table, in plain words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from tiltyard import runtime
from tiltyard.dataset import arguments
from tiltyard.dataset.upkeep import span_of
from tiltyard.errors import (
    CommitConflict,
    InvalidInput,
    OutcomeUnknown,
    ShardError,
    WriterClosed,
    WrongType,
    nearest,
)
from tiltyard.lake.given import keys_given, rows_given
from tiltyard.lake.live import Live
from tiltyard.lake.words import in_plain_words, plain
from tiltyard.memwal.config import SETTINGS, writer_config
from tiltyard.memwal.merge_functions import CLOSED
from tiltyard.memwal.routing import no_such_shard
from tiltyard.memwal.sharding import BUCKET, IDENTITY, MAX_BUCKETS, NUM_BUCKETS
from tiltyard.memwal.stream import ShardedWriter
from tiltyard.memwal.writer import ShardWriter
from tiltyard.runtime.again import Keeper
from tiltyard.runtime.awaiting import in_thread
from tiltyard.table.maintain import MAX_INTERVAL_SECONDS
from tiltyard.table.unique import UNIQUE

if TYPE_CHECKING:
    from tiltyard.dataset import LanceDataset
    from tiltyard.lake.tail import Tail


@dataclass(frozen=True, slots=True)
class StreamShard:
    """A shard that a stream has open. `error`: what ended its writer, such as another process that took the
    shard over; None while it works.
    """

    shard_id: str
    epoch: int
    rows_in_memory: int
    generations_published: int
    error: Exception | None


@dataclass(frozen=True, slots=True)
class StreamStats:
    """What a stream has done since it was opened, and what it holds now, over all its shards."""

    shards: int
    puts: int
    log_entries: int
    log_bytes: int
    generations_published: int
    rows_published: int
    failed_publications: int
    rows_in_memory: int
    bytes_in_memory: int
    drains: int = 0
    """How often `drain_every` has brought the stream into the table."""
    drain_error: Exception | None = None
    """What the last of these failed with; it is tried again."""


class Stream:
    """Rows that go into a table one after the other: durable when a call returns, and seen by `live()`.

    May be shared among threads and coroutines, whose calls are put into the log together: `aput` is `put` for
    coroutines, and so on. Use it as a block (`with` or `async with`), or close it. It belongs to the process
    that opened it.
    """

    def __init__(
        self,
        ds: LanceDataset,
        options: Mapping[str, Any],
        only: Iterable[Any] | None,
        drain_every: float | None,
    ) -> None:
        """Use `Table.stream`."""
        self._ds = ds
        self._writer = ShardedWriter(ds, only=only, **options)
        self._keeper: Keeper[None] | None = None
        self._process = runtime.process_id()
        if drain_every is not None:
            self._keeper = Keeper(self._drain, drain_every, f"drain of {ds.uri}").start()

    def __repr__(self) -> str:
        state = "closed" if self._writer.closed else f"{len(self._writer.writers)} shards open"
        return f"Stream({self._ds.uri!r}, {state})"

    def __reduce__(self) -> NoReturn:
        raise WrongType(
            "a Stream is neither pickled nor copied: the shards that it has open belong to this process. "
            "Where rows come from another one, call table.stream() there"
        )

    # -- writing ---------------------------------------------------------------------------------

    @plain
    def put(self, data: Any, *, schema: Any = None, durable: bool | None = None) -> None:
        """Insert rows, or replace those of the same keys: of any kind that `append` takes, or one dict; with
        all columns. `schema`: a `pa.Schema` to bring the data to first, such as `table.schema`.

        Returns when they survive power loss; with `durable=False` when they are seen here. Raises, before
        anything is written, `SchemaMismatch` and `InvalidInput`; `WriterFenced` when somebody else took a
        shard over, and `OutcomeUnknown` when it cannot be told whether the rows are in. Rows of one shard are
        one step; of rows of several, some may be in when it raises.
        """
        self._check_open()
        self._writer.put(rows_given(data, self._writer.schema, schema), durable=_flag(durable))

    @plain
    def delete(self, keys: Any, *, durable: bool | None = None) -> None:
        """Delete rows by key: one value, or several in a list, set, array or series; of a key of several
        columns tuples; or data that has the key's columns. Keys without a row are no error. Raises as `put`.
        """
        self._check_open()
        self._writer.delete(keys_given(keys, self._writer.schema), durable=_flag(durable))

    @plain
    def flush(self) -> None:
        """Publish what was put so far, for processes that do not have this stream; close does that too."""
        self._check_open()
        self._writer.flush()

    @plain
    def sync(self) -> None:
        """Make durable what was put with `durable=False`."""
        self._check_open()
        self._writer.sync()

    @plain
    def close(self) -> None:
        """Publish everything and give the shards up; a second call does nothing. Raises what ended a writer;
        the other shards are closed all the same.
        """
        self._ended(lambda: self._writer.close())

    def _ended(self, end: Callable[[], None]) -> None:
        """End the stream, what drains it first, and drain it a last time if it ends well."""
        keeper, is_first = self._keeper, not self._writer.closed
        if keeper is not None and is_first and runtime.process_id() == self._process:
            keeper.stop()
        end()
        if keeper is not None and is_first:
            self._drain()

    def _drain(self) -> None:
        """Bring what was put into the table, and delete what is not needed any more."""
        from tiltyard.memwal.upkeep import keep_streams

        if not self._writer.closed:
            for each in self._writer.writers:
                with suppress(ShardError, OutcomeUnknown):  # ended: its next caller is told
                    each.flush()
        for done in keep_streams(self._ds):
            for error in done.problems.values():
                raise error

    def _check_open(self) -> None:
        if self._writer.closed:
            raise WriterClosed("the stream is already closed; table.stream() opens another one")

    # -- reading ---------------------------------------------------------------------------------

    def live(self) -> Live:
        """The table with everything that was streamed into it."""
        return Live(self._ds)

    def tail(self, after: Any = None, *, follow: bool = False, timeout: float | None = None) -> Tail:
        """What is put and deleted, by anybody: see `Table.tail`."""
        from tiltyard.lake.tail import Tail

        return Tail(self._ds, after, follow, timeout)

    @property
    def shards(self) -> tuple[StreamShard, ...]:
        """The shards that are open here, by id. One is opened by its first row."""
        found = [_shard(each) for each in self._writer.writers]
        return tuple(sorted(found, key=lambda each: each.shard_id))

    def stats(self) -> StreamStats:
        """What was done since the stream was opened, and what it holds now."""
        writers = self._writer.writers
        counted = [each.counts for each in writers]
        memory = [each.memtable_stats() for each in writers]
        return StreamStats(
            shards=len(writers),
            puts=sum(each.puts for each in counted),
            log_entries=sum(each.entries for each in counted),
            log_bytes=sum(each.entry_bytes for each in counted),
            generations_published=sum(each.generations for each in counted),
            rows_published=sum(each.generation_rows for each in counted),
            failed_publications=sum(each.failures for each in counted),
            rows_in_memory=sum(each.rows_in_memory for each in writers),
            bytes_in_memory=sum(each["estimated_size_bytes"] + each["frozen_bytes"] for each in memory),
            drains=0 if self._keeper is None else self._keeper.passes,
            drain_error=None if self._keeper is None else self._keeper.error,
        )

    # -- for coroutines --------------------------------------------------------------------------

    async def aput(self, data: Any, *, schema: Any = None, durable: bool | None = None) -> None:
        """`put`, awaited: any number may be under way, and they share log entries. Where it is cancelled the
        rows may be in or not.
        """
        with in_plain_words():
            self._check_open()
            rows = rows_given(data, self._writer.schema, schema)
            await self._writer.aput(rows, durable=_flag(durable))

    async def adelete(self, keys: Any, *, durable: bool | None = None) -> None:
        """`delete`, awaited, as `aput` is."""
        with in_plain_words():
            self._check_open()
            await self._writer.adelete(keys_given(keys, self._writer.schema), durable=_flag(durable))

    async def aflush(self) -> None:
        """`flush`, awaited."""
        await in_thread(self.flush)

    async def adurable(self) -> None:
        """`sync`, awaited (its own name would be a word of the language)."""
        await in_thread(self.sync)

    async def aclose(self) -> None:
        """`close`, awaited."""
        await in_thread(self.close)

    # -- a block ---------------------------------------------------------------------------------

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with in_plain_words():
            self._exit(kind, error, trace)

    def _exit(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, Exception):
            self._writer.__exit__(kind, error, trace)  # interrupted: draining could take long
            if self._keeper is not None:
                self._keeper.end()
        else:
            self._ended(lambda: self._writer.__exit__(kind, error, trace))

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with in_plain_words():
            await in_thread(self._exit, kind, error, trace)


def _flag(durable: Any) -> bool | None:
    return arguments.maybe_flag("durable", durable)


def _shard(writer: ShardWriter) -> StreamShard:
    return StreamShard(
        writer.shard_id,
        writer.epoch,
        writer.rows_in_memory,
        writer.manifest.current_generation - 1,
        writer.error,
    )


# -- beginning ----------------------------------------------------------------------------------


def open_stream(
    ds: LanceDataset,
    shards: int | None,
    merge: Mapping[str, str] | None,
    only: Iterable[Any] | None,
    set_shards_aside: bool,
    drain_every: Any,
    options: Mapping[str, Any],
) -> Stream:
    """A stream into a table, which is made one that can be streamed into if it is not yet."""
    if only is not None and (isinstance(only, (str, bytes)) or not isinstance(only, Iterable)):
        raise arguments.wrong("only", "some shards as shard_of names them, such as [0, 2]", only)
    if shards is not None:
        shards = arguments.whole("shards", shards, 1, MAX_BUCKETS)
    aside = arguments.flag("set_shards_aside", set_shards_aside)
    functions = None if merge is None else arguments.text_map("merge", merge)
    interval = None if drain_every is None else _interval(drain_every)
    for name in options:
        if name not in SETTINGS:
            raise InvalidInput(f"a stream has no setting {name!r}; {nearest(name, [*_OWN, *SETTINGS])}")
    writer_config({}, options)  # what is wrong with them is told before the table is changed
    if ds.mem_wal_index_details() is None:
        ds.checkout_latest()
    if ds.mem_wal_index_details() is None:
        only = _among(only, shards or 1)
        _begin(ds, shards, functions, aside)
    _check_shards(ds, shards)
    _check_merge(ds, functions)
    return Stream(ds, options, only, interval)


_OWN = ("shards", "merge", "only", "set_shards_aside", "drain_every")
"""The settings of a stream that are not those of its writers."""


def _among(only: Iterable[Any] | None, count: int) -> list[Any] | None:
    """The shards that a first stream is for; refused before it settles how many there are."""
    if only is None:
        return None
    named = list(only)
    for each in named:
        if isinstance(each, bool) or not isinstance(each, int) or not 0 <= each < count:
            raise InvalidInput(no_such_shard(count, each))
    return named


def _interval(drain_every: Any) -> float:
    found = span_of("drain_every", drain_every)
    if not 0 < found <= MAX_INTERVAL_SECONDS:
        raise InvalidInput(
            f"drain_every is a number of seconds up to {MAX_INTERVAL_SECONDS:.0f}, found {drain_every!r:.60}"
        )
    return found


def _begin(ds: LanceDataset, shards: int | None, functions: dict[str, str] | None, aside: bool) -> None:
    key = [each.name for each in ds._snapshot.schema.primary_key]
    if not key and UNIQUE in ds._snapshot.manifest.config:
        raise InvalidInput(
            "streams go by the primary key, and the table declares none, only a unique key, which rows of a "
            "stream would break: create the table with key=..."
        )
    if shards is None or shards == 1:
        sharding: dict[str, Any] = {"unsharded": True}
    elif not key:
        raise InvalidInput("rows without a key cannot be shared out among shards: leave `shards` out")
    else:
        sharding = {"bucket_column": key[0], "num_buckets": shards}
    try:
        ds.initialize_mem_wal(**sharding, set_shards_aside=aside, merge_functions=functions)
    except (InvalidInput, CommitConflict):
        ds.checkout_latest()  # somebody else was first, or it is what we were told
        if ds.mem_wal_index_details() is None:
            raise


def _check_shards(ds: LanceDataset, shards: int | None) -> None:
    """Refuse another number of shards than the table has."""
    details = ds.mem_wal_index_details()
    if shards is None or details is None:
        return
    every = [each for spec in details["sharding_specs"] for each in spec["fields"]]
    fields = [each for each in every if each["transform"] != CLOSED]
    buckets = [each["parameters"].get(NUM_BUCKETS) for each in fields if each["transform"] == BUCKET]
    if buckets == [str(shards)] or (shards == 1 and fields and not buckets and _is_whole(fields)):
        return
    if buckets:
        told = f"is shared out among {buckets[0]} shards"
    elif not fields:
        told = "has shards that are named by hand"
    else:
        told = "has one shard" if _is_whole(fields) else "has a shard for each value of a column"
    raise InvalidInput(
        f"{ds.uri} {told}, since it was first streamed into, and shards={shards} was asked for: leave it "
        f"out, or change the table with reshard({shards})"
    )


def _check_merge(ds: LanceDataset, functions: dict[str, str] | None) -> None:
    """Refuse other merge functions than the table has."""
    details = ds.mem_wal_index_details()
    if functions is None or details is None:
        return
    found = details.get("merge_functions")
    if found != functions:
        told = "the newest row of a key counts" if found is None else f"rows of a key are merged by {found}"
        raise InvalidInput(
            f"in {ds.uri} {told}, since it was first streamed into, and merge={functions} was asked for: "
            "what was put already would mean something else. Leave it out"
        )


def _is_whole(fields: list[dict[str, Any]]) -> bool:
    return all(each["transform"] not in (BUCKET, IDENTITY) for each in fields)
