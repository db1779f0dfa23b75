"""The settings of a compaction, checked before anything is read or written (case D12).

A setting comes from the caller, else from the table's config (`lance.compaction.<name>`), else it has the
default of the format's official writer.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from tiltyard.errors import InvalidInput, UnsupportedFeature, WrongType, nearest
from tiltyard.format.version import FileVersion

CONFIG_PREFIX = "lance.compaction."

TARGET_ROWS = 1024 * 1024
"""Rows of a fragment after compaction; one with fewer is small."""

DELETED_SHARE = 0.1
"""Of more than this part of its rows deleted, a fragment is rewritten by itself."""

MAX_ROWS = (1 << 32) - 1
"""Rows that a fragment can have."""

MAX_NUMBER = (1 << 64) - 1
MODES = ("reencode", "try_binary_copy", "force_binary_copy")
BINARY_COPY_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """Which fragments are rewritten, and how. Sizes in bytes; None is no bound.

    `max_rows_per_group` and `binary_copy_read_batch_bytes` are accepted and have no effect: files of format 2
    have no row groups, and pages are always encoded anew.
    """

    target_rows_per_fragment: int = TARGET_ROWS
    max_rows_per_group: int = 1024
    max_bytes_per_file: int | None = None
    materialize_deletions: bool = True
    materialize_deletions_threshold: float = DELETED_SHARE
    num_threads: int | None = None
    """How many tasks run at once; one by default, for one uses all cores."""
    batch_size: int | None = None
    """Rows that are read at once; by default so many that they take a few megabytes."""
    io_buffer_size: int | None = None
    defer_index_remap: bool = False
    compaction_mode: str | None = None
    binary_copy_read_batch_bytes: int = BINARY_COPY_BYTES
    max_source_fragments: int | None = None
    max_source_rows: int | None = None
    max_source_bytes: int | None = None
    excluded_fragment_ids: tuple[int, ...] = ()
    data_storage_version: str | None = None

    @classmethod
    def of(
        cls, given: Mapping[str, Any] | None = None, config: Mapping[str, str] | None = None
    ) -> CompactionOptions:
        """Options from what a caller gave (None: not given) and the table's config.

        Raises `InvalidInput` or `WrongType` naming the option, what is expected and what was found;
        `UnsupportedFeature` for copying pages.
        """
        values: dict[str, Any] = {}
        for name in _CHECKS:
            text = (config or {}).get(CONFIG_PREFIX + name)
            if text is not None and name not in _CALLER_ONLY:
                values[name] = _parsed(name, text)
        for name, value in (given or {}).items():
            if name not in _CHECKS:
                raise InvalidInput(f"Invalid compaction option: {name}; {nearest(name, list(_CHECKS))}")
            if value is not None:
                values[name] = _CHECKS[name](name, value)
        options = replace(cls(), **values)
        if options.compaction_mode == "force_binary_copy":
            raise UnsupportedFeature(
                "compaction_mode='force_binary_copy' is not supported: pages are decoded and encoded anew; "
                "use 'reencode', or 'try_binary_copy', which may do so too"
            )
        return options

    def given(self) -> dict[str, Any]:
        """All settings by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


def _whole(low: int, high: int = MAX_NUMBER) -> Callable[[str, Any], int]:
    def check(name: str, value: Any) -> int:
        try:
            number = None if isinstance(value, bool) else operator.index(value)
        except Exception:  # whatever a caller's class raises: it is no number
            number = None
        if number is None:
            raise WrongType(f"{name} must be a whole number, found {value!r:.60}")
        if not low <= number <= high:
            raise InvalidInput(f"{name} must be a number from {low} to {high}, found {number}")
        return number

    return check


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise WrongType(f"{name} must be True or False, found {value!r:.60}")
    return value


def _share(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongType(f"{name} must be a number from 0 to 1, found {value!r:.60}")
    if not (math.isfinite(value) and 0 <= value <= 1):
        raise InvalidInput(f"{name} must be a number from 0 to 1, found {value}")
    return float(value)


def _mode(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise WrongType(f"{name} must be one of {', '.join(MODES)}, found {value!r:.60}")
    if value not in MODES:
        raise InvalidInput(f"{name} must be one of {', '.join(MODES)}, found {value!r:.60}")
    return value


def _ids(name: str, value: Any) -> tuple[int, ...]:
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        raise WrongType(f"{name} must be a list of fragment ids, found {value!r:.60}")
    check = _whole(0)
    return tuple(sorted({check(f"an item of {name}", each) for each in value}))


def _version(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise WrongType(f"{name} must be text such as '2.2', found {value!r:.60}")
    return FileVersion.parse(value).value


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "target_rows_per_fragment": _whole(1, MAX_ROWS),
    "max_rows_per_group": _whole(1),
    "max_bytes_per_file": _whole(1),
    "materialize_deletions": _flag,
    "materialize_deletions_threshold": _share,
    "num_threads": _whole(1),
    "batch_size": _whole(1, (1 << 31) - 1),
    "io_buffer_size": _whole(1),
    "defer_index_remap": _flag,
    "compaction_mode": _mode,
    "binary_copy_read_batch_bytes": _whole(1),
    "max_source_fragments": _whole(1),
    "max_source_rows": _whole(1),
    "max_source_bytes": _whole(1),
    "excluded_fragment_ids": _ids,
    "data_storage_version": _version,
}
_CALLER_ONLY = frozenset(("excluded_fragment_ids", "num_threads", "io_buffer_size"))
_FLAGS = {"true": True, "false": False}


def _parsed(name: str, text: str) -> Any:
    """A setting from its text in the table's config."""
    check = _CHECKS[name]
    value: Any = text
    try:
        if check is _flag:
            value = _FLAGS.get(text.strip().lower(), text)
        elif check is _share:
            value = float(text)
        elif check not in (_mode, _version):
            value = int(text)
        return check(name, value)
    except (ValueError, TypeError) as error:
        raise InvalidInput(
            f"the table's config {CONFIG_PREFIX}{name} is {text!r:.60}, which is no value for it ({error}); "
            "set it anew with update_config, or delete the key"
        ) from error
