"""The named bounds of a session, each with its unit."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tiltyard.errors import InvalidInput, WrongType

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what a session keeps and on what one read may produce.

    `cache_bytes`: metadata, page tables and dictionaries kept. `map_files`: whole files kept mapped or
    read (the kernel bounds the number of maps). `map_bytes`: bytes of such files that are held in memory
    rather than mapped. `arena_bytes`: decoded buffers that no array uses any more, kept for the next read.
    `offset_limit`: largest value of a 32-bit offset in an array that is returned.
    `null_bytes`: largest array of nulls made for a column that no data file holds.
    `parallel_bytes`: decoded bytes below which a read stays on the calling thread.
    `spill_bytes`: rows that a merge or a sort holds in memory (bytes); what is more goes to a scratch file.
    """

    cache_bytes: int = 256 * MIB
    map_files: int = 16384
    map_bytes: int = 256 * MIB
    arena_bytes: int = 1 * GIB
    offset_limit: int = INT32_MAX
    null_bytes: int = 1 * GIB
    parallel_bytes: int = 4 * MIB
    spill_bytes: int = 256 * MIB

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise WrongType(f"{each.name} must be a whole number, found a {type(value).__name__}")
            if value < 0:
                raise InvalidInput(f"{each.name} must be non-negative, found {value}")
