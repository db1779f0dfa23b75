"""Settings of writers: what a caller says, over what the table says, over what is usual (MemWAL, 1.6)."""

from __future__ import annotations

from typing import Any

import pytest

from tiltyard.errors import InvalidInput
from tiltyard.memwal.config import WriterConfig, writer_config


def test_callers_are_over_tables_are_over_the_usual() -> None:
    recorded = WriterConfig(max_memtable_rows=7, durable_write=False).recorded()
    made = writer_config(recorded, {"max_memtable_rows": 9, "max_memtable_batches": None})
    assert made == WriterConfig(max_memtable_rows=9, durable_write=False)
    assert writer_config({}, {}) == WriterConfig()


def test_what_is_recorded_is_all_or_nothing_and_read_back() -> None:
    assert WriterConfig().recorded() == {
        "durable_write": "true",
        "enable_memtable": "true",
        "max_wal_buffer_size": "10485760",
        "max_wal_flush_interval_ms": "100",
        "max_wal_persist_retries": "3",
        "wal_persist_retry_base_delay_ms": "50",
        "max_memtable_size": "268435456",
        "max_memtable_rows": "100000",
        "max_memtable_batches": "8000",
        "max_unflushed_memtable_bytes": "1073741824",
        "manifest_scan_batch_size": "2",
        "backpressure_log_interval_ms": "30000",
        "stats_log_interval_ms": "60000",
    }
    off = WriterConfig(max_wal_flush_interval_ms=None, stats_log_interval_ms=None)
    assert "max_wal_flush_interval_ms" not in off.recorded()
    assert writer_config(off.recorded(), {}) == off


def test_what_only_the_table_knows_is_left_alone() -> None:
    defaults = {"hnsw.by_v.num_edges": "20", "tiltyard.incarnation": "x", "of a later version": "y"}
    assert writer_config({**WriterConfig().recorded(), **defaults}, {}) == WriterConfig()


@pytest.mark.parametrize(
    "options",
    [
        {"max_memtable_size": 0},
        {"max_memtable_rows": 0},
        {"max_memtable_batches": 0},
        {"max_memtable_rows": -1},
        {"max_memtable_rows": 1.5},
        {"max_memtable_rows": True},
        {"max_memtable_rows": "7"},
        {"durable_write": 1},
        {"durable_write": "true"},
        {"enable_memtable": False},
        {"max_unflushed_memtable_bytes": 1000},
        {"max_memtable_size": 2 << 30},
        {"max_memtable_row": 1},
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        writer_config({}, options)


@pytest.mark.parametrize(
    "defaults",
    [
        {"durable_write": "yes"},
        {"max_memtable_rows": ""},
        {"max_memtable_rows": "-1"},
        {"max_memtable_rows": "٣"},
    ],
    ids=str,
)
def test_what_a_table_says_wrongly_is_named(defaults: dict[str, str]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(defaults))):
        writer_config(defaults, {})


def test_generations_are_no_larger_than_the_official_writer_replays() -> None:
    made = writer_config({}, {"max_memtable_rows": 10**9, "max_memtable_batches": 10**9})
    assert (made.rows, made.entries) == (100_000, 8_000)
    small = writer_config({}, {"max_memtable_rows": 5, "max_memtable_batches": 6})
    assert (small.rows, small.entries) == (5, 6)


def test_what_a_table_keeps_for_us_turns_nothing_off() -> None:
    """Only where the settings were recorded does an absent one mean: off."""
    assert writer_config({"tiltyard.incarnation": "1", "tiltyard.spec.last": "1"}, {}) == WriterConfig()
    recorded = WriterConfig(max_memtable_rows=7, max_wal_flush_interval_ms=None)
    kept = {**recorded.recorded(), "tiltyard.incarnation": "1", "hnsw.i.max_level": "3"}
    assert writer_config(kept, {}) == recorded
