"""Which encoding a page gets, from its statistics alone (compression.md 4). Pure functions of plain values.

The rules are those of the official writer, extended where a smaller page stays readable by it: dictionaries
also for 32-bit values, byte-sized indices under run-length coding, mini-blocks for text with a few long
values.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tiltyard.format.version import FileVersion

NARROW_BYTES = 256
"""Values shorter than this go to mini-block pages."""
MIXED_MEAN_BYTES = 64
MIXED_LONGEST_BYTES = 4096
"""Text with short values on average and none longer than this goes there too."""
DICTIONARY_MIN_VALUES = 100
DICTIONARY_MAX_ENTRIES = 100_000
DICTIONARY_MAX_DISTINCT = 0.98
"""Distinct values in the sample, as a share, from which on no dictionary is tried."""
DICTIONARY_GAIN = 0.9
"""Size with a dictionary over the best size without, below which an extra dictionary is worth its
look-ups.
"""
FSST_MIN_LONGEST = 5
FSST_MIN_BYTES = 32 * 1024
FSST_GAIN = 0.95
"""Compressed over plain size, above which text stays plain."""
LONG_VALUE_BYTES = 32 * 1024
"""Text whose longest value exceeds this is compressed value by value with zstd (2.1+ full zip)."""
LONG_VALUE_MEAN_BYTES = 1024
"""... unless most values are too short to gain from it."""


class Form(Enum):
    """Forms of fixed-width values in a mini-block page."""

    FLAT = "flat"
    INLINE = "inline bit packing"
    RUNS = "run-length coding"


@dataclass(frozen=True, slots=True)
class FixedStats:
    """`count` values of `bits` bits: `entries` run-length entries, `inline` bytes when bit-packed (None:
    cannot be).
    """

    count: int
    bits: int
    entries: int
    inline: int | None

    @property
    def flat(self) -> int:
        """Bytes as they are."""
        return -(-self.count * self.bits // 8)

    @property
    def runs(self) -> int:
        """Bytes as runs."""
        return self.entries * (self.bits // 8 + 1)


def fixed_form(stats: FixedStats, rle_threshold: float | None = None) -> tuple[Form, int]:
    """The smallest form and its bytes."""
    best, size = Form.FLAT, stats.flat
    if stats.inline is None:
        return best, size
    rare = rle_threshold is None or stats.entries < rle_threshold * stats.count
    if rare and stats.runs < size:
        best, size = Form.RUNS, stats.runs
    if stats.inline < size:
        best, size = Form.INLINE, stats.inline
    return best, size


def dictionary_limit(count: int, divisor: int) -> int:
    """Most entries a dictionary for `count` values may have; 0 when none is wanted."""
    if count < DICTIONARY_MIN_VALUES:
        return 0
    return min(count // max(1, divisor), DICTIONARY_MAX_ENTRIES)


def dictionary_sample_fits(distinct: int, sampled: int, count: int, limit: int) -> bool:
    """Whether a sample makes a dictionary likely: `distinct` among `sampled` of `count` values."""
    if sampled == count:
        return distinct <= limit
    share = distinct / sampled
    return share < DICTIONARY_MAX_DISTINCT and -(-distinct * count // sampled) <= limit


def fixed_dictionary_floor(stats: FixedStats, distinct: int) -> int:
    """Fewest bytes a dictionary with at least `distinct` entries can lead to."""
    width = max(1, (distinct - 1).bit_length())
    packed = stats.count * width // 8
    return min(packed, stats.entries * (2 if distinct <= 256 else 3)) + distinct * stats.bits // 8


def may_have_fixed_dictionary(bits: int, version: FileVersion) -> bool:
    """Widths for which a dictionary is tried: 128 bits in every version, 32 and 64 from 2.2 on."""
    return bits == 128 or (bits in (32, 64) and version is not FileVersion.V2_1)


def index_bits(entries: int) -> int:
    """Narrowest index word for so many entries."""
    return 8 if entries <= 1 << 8 else 16 if entries <= 1 << 16 else 32


def text_is_narrow(count: int, nbytes: int, longest: int) -> bool:
    """Whether text belongs in mini-block pages."""
    if longest < NARROW_BYTES:
        return True
    return longest <= MIXED_LONGEST_BYTES and nbytes <= count * MIXED_MEAN_BYTES


def text_dictionary_budget(count: int, nbytes: int, width: int, ratio: float, distinct: int) -> int:
    """Bytes that the items may have together, with at least `distinct` of them (bit-packed indices
    counted).
    """
    packed = count * max(0, distinct - 1).bit_length() // 8
    return int(ratio * (nbytes + (count + 1) * width)) - packed


def wants_fsst(count: int, nbytes: int, longest: int, width: int) -> bool:
    """Whether a symbol table may pay for itself."""
    return longest >= FSST_MIN_LONGEST and nbytes + (count + 1) * width >= FSST_MIN_BYTES
