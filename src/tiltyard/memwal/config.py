"""What a writer of a shard is set to: the caller's settings over those of the table over the usual ones
(MemWAL, section 1.6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from tiltyard.errors import InvalidInput, nearest

MAX_REPLAYED_ROWS = 100_000
MAX_REPLAYED_BATCHES = 8_000
"""What a default writer of the official package can replay of one generation: ours are no larger, whatever
they are set to.
"""

BLOOM_BYTES = 32768
MAX_SETTING = 2**63 - 1
HNSW = "hnsw."
"""What settings of vector indices begin with; they are kept and mean nothing here."""


@dataclass(frozen=True, slots=True)
class WriterConfig:
    """Sizes in bytes, times in milliseconds; None for no interval or report."""

    durable_write: bool = True
    enable_memtable: bool = True
    max_wal_buffer_size: int = 10 << 20
    max_wal_flush_interval_ms: int | None = 100
    max_wal_persist_retries: int = 3
    wal_persist_retry_base_delay_ms: int = 50
    max_memtable_size: int = 256 << 20
    max_memtable_rows: int = MAX_REPLAYED_ROWS
    max_memtable_batches: int = MAX_REPLAYED_BATCHES
    max_unflushed_memtable_bytes: int = 1 << 30
    manifest_scan_batch_size: int = 2
    backpressure_log_interval_ms: int = 30_000
    stats_log_interval_ms: int | None = 60_000
    max_uncompacted_generations: int | None = None
    """Published generations that are not in the table, from which on puts wait; None: no limit."""
    max_compaction_wait_ms: int = 30_000
    """How long they do."""

    @property
    def rows(self) -> int:
        """Rows of a generation at most."""
        return min(self.max_memtable_rows, MAX_REPLAYED_ROWS)

    @property
    def entries(self) -> int:
        """Log entries of a generation at most."""
        return min(self.max_memtable_batches, MAX_REPLAYED_BATCHES)

    def check(self) -> None:
        """Raise `InvalidInput` for settings with which a writer could not work."""
        for name in ("max_memtable_size", "max_memtable_rows", "max_memtable_batches"):
            if getattr(self, name) < 1:
                raise InvalidInput(
                    f"{name} must be greater than zero: nothing would fit into memory, found "
                    f"{getattr(self, name)}"
                )
        if not self.enable_memtable:
            raise InvalidInput("enable_memtable=False writes a log without reading it: not served here")
        if self.max_uncompacted_generations is not None and self.max_uncompacted_generations < 1:
            raise InvalidInput(
                "max_uncompacted_generations must be at least 1, or None for no limit, found 0"
            )
        needed = self.max_memtable_size + BLOOM_BYTES
        if self.max_unflushed_memtable_bytes < needed:
            raise InvalidInput(
                f"max_memtable_size={self.max_memtable_size} must fit, needing {needed} bytes; "
                f"max_unflushed_memtable_bytes={self.max_unflushed_memtable_bytes} is below that"
            )

    def recorded(self) -> dict[str, str]:
        """The settings as a table keeps them."""
        return {
            name: ("true" if value else "false") if isinstance(value, bool) else str(value)
            for name, value in asdict(self).items()
            if value is not None and name not in _OURS
        }


_MAY_BE_OFF = ("max_wal_flush_interval_ms", "stats_log_interval_ms")
_OURS = ("max_uncompacted_generations", "max_compaction_wait_ms")
"""Settings that no table keeps: other programs would not know them."""
_NAMES = {each.name: each for each in fields(WriterConfig)}
SETTINGS = tuple(_NAMES)
"""What `options` of a writer may be called."""


def writer_config(defaults: Mapping[str, str], options: Mapping[str, Any]) -> WriterConfig:
    """The settings of a writer: `options` (None: not given) over the table's `defaults` over the usual ones.

    Options that only the table knows (`tiltyard.`, `hnsw.`) are left alone. Raises `InvalidInput`.
    """
    given: dict[str, Any] = {}
    if any(name in _NAMES for name in defaults):  # all were recorded: what is not among them is off
        given.update({name: None for name in _MAY_BE_OFF if name not in defaults})
    for name, text in defaults.items():
        if name in _NAMES and name not in _OURS:
            given[name] = _read(name, text)
    for name, value in options.items():
        if name not in _NAMES:
            raise InvalidInput(f"a writer has no setting {name!r}; {nearest(name, list(_NAMES))}")
        if value is not None:
            given[name] = _given(name, value)
    made = WriterConfig(**given)
    made.check()
    return made


def _read(name: str, text: str) -> Any:
    if isinstance(_NAMES[name].default, bool):
        if text not in ("true", "false"):
            raise InvalidInput(f"the table's writer setting {name} is {text!r}, not true or false")
        return text == "true"
    if not (text.isascii() and text.isdigit()):
        raise InvalidInput(f"the table's writer setting {name} is {text!r}, not a whole number")
    return int(text)


def _given(name: str, value: Any) -> Any:
    if isinstance(_NAMES[name].default, bool):
        fits, told = isinstance(value, bool), "True or False"
    else:
        fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_SETTING
        told = f"a whole number from 0 to {MAX_SETTING}"
    if not fits:
        raise InvalidInput(f"{name} must be {told}, found {value!r}")
    return value
