"""What a table has of streams; what they need is loaded when one is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tiltyard.lake.words import plain

if TYPE_CHECKING:
    from tiltyard.dataset import LanceDataset
    from tiltyard.lake.streaming import Live, Stream


class Streamed:
    """The part of a table that begins streams into it and reads what they bring."""

    _ds: LanceDataset

    def _refuse_pinned(self, what: str) -> None:
        raise NotImplementedError

    @plain
    def stream(self, *, shards: int | None = None, **options: Any) -> Stream:
        """Write rows one after the other, each durable when its call returns: upserts and deletes by key.

        The first stream settles how rows are shared out: `shards`, by the hash of the key; None is one. A
        shard has one writer: a stream that meets rows of it takes it over from the one before, whose next
        call raises `WriterFenced`. `options`: settings as for `LanceDataset.mem_wal_writer`. What is streamed
        is seen by `live()`, and by `scan` once it was compacted into the table.
        """
        from tiltyard.lake.streaming import open_stream

        self._refuse_pinned("streamed into")
        return open_stream(self._ds, shards, options)

    @plain
    def live(self) -> Live:
        """The table with what is being streamed into it."""
        from tiltyard.lake.streaming import Live

        self._refuse_pinned("read live")
        return Live(self._ds)
