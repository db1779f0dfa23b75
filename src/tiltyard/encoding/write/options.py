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


def options_of(leaf: Field, top: Field, path: str) -> Options:
    """Options of a leaf below the top-level field `top`: its own metadata before that of the top-level field.

    The structural encoding is taken from the top-level field alone, as in the official writer. Raises
    `InvalidInput` naming the column and key for a value that has no meaning.
    """
    merged = {**top.metadata, **leaf.metadata}
    keys = {key[len(PREFIX) :]: value for key, value in merged.items() if key.startswith(PREFIX)}
    if not keys:
        return Options()
    structure = top.metadata.get(f"{PREFIX}structural-encoding")
    if structure == "sparse":
        raise UnsupportedFeature(
            f"column {path!r}: structural encoding 'sparse' belongs to file version 2.3, which is "
            f"not written; "
            "use 'miniblock' or 'fullzip'"
        )
    read = _Reader(keys, path)
    return Options(
        read.choice("compression", ("none", "zstd", "lz4", "fsst")),
        read.integer("compression-level"),
        _lowered(structure, "structural-encoding", ("miniblock", "fullzip"), path),
        read.number("rle-threshold"),
        read.choice("bss", ("off", "on", "auto")) or "auto",
        read.integer("dict-divisor") or DICTIONARY_DIVISOR,
        read.number("dict-size-ratio") or DICTIONARY_SIZE_RATIO,
        read.choice("dict-values-compression", ("none", "lz4", "zstd")) or "lz4",
        read.integer("dict-values-compression-level"),
        read.integer("minichunk-size") or CHUNK_TARGET_BYTES,
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

    def integer(self, key: str) -> int | None:
        value = self.keys.get(key)
        if value is None:
            return None
        try:
            return int(value)
        except ValueError:
            raise self._bad(key, "a whole number", value) from None

    def number(self, key: str) -> float | None:
        value = self.keys.get(key)
        if value is None:
            return None
        try:
            return float(value)
        except ValueError:
            raise self._bad(key, "a number", value) from None

    def _bad(self, key: str, expected: str, value: str) -> InvalidInput:
        return InvalidInput(f"column {self.path!r}: {PREFIX}{key} must be {expected}, found {value!r}")
