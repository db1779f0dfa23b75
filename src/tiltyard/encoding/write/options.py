"""What a field's `lance-encoding:*` metadata asks of the writer (compression.md 5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tiltyard.encoding.write.variable import CHUNK_TARGET_BYTES
from tiltyard.errors import InvalidInput, UnsupportedFeature
from tiltyard.format.schema import Field

PREFIX = "lance-encoding:"
DICTIONARY_DIVISOR = 2
DICTIONARY_SIZE_RATIO = 0.8
LEVELS = (-(1 << 17), 22)
"""Compression levels that zstd knows."""
MAX_NUMBER = (1 << 31) - 1
"""Greatest divisor and size of a chunk in bytes."""


@dataclass(frozen=True, slots=True)
class Options:
    """Wishes for the pages of one leaf. None: automatic."""

    compression: str | None = None  # none, zstd, lz4, fsst
    level: int | None = None
    structure: str | None = None  # miniblock, fullzip
    rle_threshold: float | None = None  # runs per value above which no run-length coding is used
    split: str = "auto"  # off, on, auto: byte-stream split below zstd and lz4
    dictionary_divisor: int = DICTIONARY_DIVISOR  # at most one entry per so many values
    dictionary_ratio: float = DICTIONARY_SIZE_RATIO  # size with a dictionary over size without
    items_compression: str = "lz4"
    items_level: int | None = None
    chunk_bytes: int = CHUNK_TARGET_BYTES

    @property
    def scheme(self) -> str | None:
        """The general-purpose compression asked for."""
        return self.compression if self.compression in ("zstd", "lz4") else None


AUTOMATIC = Options()


def options_of(leaf: Field, top: Field, path: str) -> Options:
    """Options of a leaf below the top-level field `top`: its own metadata before that of the top-level field.

    The structural encoding is taken from the top-level field alone, as in the official writer. Raises
    `InvalidInput` naming the column and key for a value that has no meaning.
    """
    if not (top.metadata or leaf.metadata):
        return AUTOMATIC
    merged = {**top.metadata, **leaf.metadata}
    keys = {key[len(PREFIX) :]: value for key, value in merged.items() if key.startswith(PREFIX)}
    if not keys:
        return AUTOMATIC
    structure = top.metadata.get(f"{PREFIX}structural-encoding")
    if structure == "sparse":
        raise UnsupportedFeature(
            f"column {path!r}: structural encoding 'sparse' belongs to file version 2.3, which is not "
            "written; use 'miniblock' or 'fullzip'"
        )
    read = _Reader(keys, path)
    return Options(
        read.choice("compression", ("none", "zstd", "lz4", "fsst")),
        read.integer("compression-level", *LEVELS),
        _lowered(structure, "structural-encoding", ("miniblock", "fullzip"), path),
        read.share("rle-threshold"),
        read.choice("bss", ("off", "on", "auto")) or "auto",
        read.integer("dict-divisor", 1, MAX_NUMBER) or DICTIONARY_DIVISOR,
        read.share("dict-size-ratio", above_zero=True) or DICTIONARY_SIZE_RATIO,
        read.choice("dict-values-compression", ("none", "lz4", "zstd")) or "lz4",
        read.integer("dict-values-compression-level", *LEVELS),
        read.integer("minichunk-size", 1, MAX_NUMBER) or CHUNK_TARGET_BYTES,
    )


def _lowered(value: str | None, key: str, allowed: tuple[str, ...], path: str) -> str | None:
    if value is None:
        return None
    if value.lower() not in allowed:
        raise InvalidInput(
            f"column {path!r}: {PREFIX}{key} must be one of {', '.join(allowed)}, found {value!r}"
        )
    return value.lower()


@dataclass(frozen=True, slots=True)
class _Reader:
    keys: Mapping[str, str]
    path: str

    def choice(self, key: str, allowed: tuple[str, ...]) -> str | None:
        return _lowered(self.keys.get(key), key, allowed, self.path)

    def integer(self, key: str, least: int, most: int) -> int | None:
        text = self.keys.get(key)
        if text is None:
            return None
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise self._bad(key, f"a whole number from {least} to {most}", text)
        return value

    def share(self, key: str, *, above_zero: bool = False) -> float | None:
        text = self.keys.get(key)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value <= 1 or (above_zero and not value):  # not a number is out of range too
            raise self._bad(key, f"a number {'above 0 and at most 1' if above_zero else 'from 0 to 1'}", text)
        return value

    def _bad(self, key: str, expected: str, found: str) -> InvalidInput:
        return InvalidInput(f"column {self.path!r}: {PREFIX}{key} must be {expected}, found {found!r}")
