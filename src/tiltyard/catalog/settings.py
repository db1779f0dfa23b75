"""The settings of a directory catalog, parsed from its string properties (namespace pack, section 3).

Unknown names are ignored, and a value that cannot be understood leaves the default, as the official package
does: one set of properties serves both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tiltyard.errors import InvalidInput, WrongType

TRUE = frozenset(("true", "1", "on", "yes", "y"))
FALSE = frozenset(("false", "0", "off", "no", "n"))
STORAGE = "storage."
DEFAULT_COMMIT_RETRIES = 20

DEFAULT_GRACE_SECONDS = 7 * 24 * 3600.0
"""How long a dropped table can be brought back, and readers of it go on."""

MAX_GRACE_SECONDS = 100 * 365 * 24 * 3600.0
MAX_DIGITS = 18
MAX_NUMBER = 10**MAX_DIGITS
"""Of a property that is a whole number; one that is longer says nothing."""


class Mode(Enum):
    """Where the catalog looks for root tables (namespace pack, section 4.1)."""

    V1 = "directory only"
    """No register, no namespaces: the directories are the catalog."""
    MIXED = "directory and register"
    """The default: root tables are found by their directories, namespaces and their tables in the
    register.
    """
    MIGRATION = "register, then directory"
    """Root tables are found in the register first, then by their directories."""
    MANIFEST = "register only"
    """The directories are not listed; root tables have hashed locations."""

    @property
    def has_register(self) -> bool:
        return self is not Mode.V1

    @property
    def lists_directories(self) -> bool:
        return self is not Mode.MANIFEST


@dataclass(frozen=True, slots=True)
class Settings:
    """What the properties say. `storage`: options for the store, without their prefix. `commit_retries` has
    no effect: a change is tried for 30 seconds. `grace_seconds`: see `DEFAULT_GRACE_SECONDS`.
    """

    mode: Mode = Mode.MIXED
    inline_optimization: bool = False
    table_version_tracking: bool = False
    commit_retries: int = DEFAULT_COMMIT_RETRIES
    storage: Mapping[str, str] = field(default_factory=dict)
    vend_input_storage_options: bool = False
    refresh_interval_millis: int | None = None
    ops_metrics: bool = False
    grace_seconds: float = DEFAULT_GRACE_SECONDS

    @classmethod
    def parse(cls, properties: Mapping[str, Any] | None = None) -> Settings:
        """The settings of string properties; `root` and unknown ones are left aside. Raises `WrongType` for
        properties that are no mapping of text to text.
        """
        given = _checked(properties or {})
        return cls(
            mode=_mode(given),
            inline_optimization=_flag(given, "inline_optimization_enabled", False),
            table_version_tracking=_flag(given, "table_version_tracking_enabled", False),
            commit_retries=_whole(given, "commit_retries", DEFAULT_COMMIT_RETRIES) or 0,
            storage={
                key.removeprefix(STORAGE): value for key, value in given.items() if key.startswith(STORAGE)
            },
            vend_input_storage_options=_flag(given, "vend_input_storage_options", False),
            refresh_interval_millis=_whole(given, "vend_input_storage_options_refresh_interval_millis", None),
            ops_metrics=_flag(given, "ops_metrics_enabled", False),
            grace_seconds=_seconds(given, "tiltyard.grace_seconds", DEFAULT_GRACE_SECONDS),
        )


def _mode(given: Mapping[str, str]) -> Mode:
    if not _flag(given, "manifest_enabled", True):
        return Mode.V1
    if not _flag(given, "dir_listing_enabled", True):
        return Mode.MANIFEST
    return Mode.MIGRATION if _flag(given, "dir_listing_to_manifest_migration_enabled", False) else Mode.MIXED


def _checked(properties: Mapping[str, Any]) -> dict[str, str]:
    if not isinstance(properties, Mapping):
        raise WrongType(f"properties of a catalog must be a mapping of text to text, found {properties!r}")
    given: dict[str, str] = {}
    for key, value in properties.items():
        if isinstance(value, bool):
            value = "true" if value else "false"
        elif isinstance(value, float) or (isinstance(value, int) and abs(value) < MAX_NUMBER):
            value = str(value)
        if not isinstance(key, str) or not isinstance(value, str):
            raise WrongType(f"the catalog's property {key!r} must be text, found a {type(value).__name__}")
        given[key] = value
    return given


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    word = given.get(name, "").lower()
    return True if word in TRUE else False if word in FALSE else default


def _whole(given: Mapping[str, str], name: str, default: int | None) -> int | None:
    text = given.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS else default


def _seconds(given: Mapping[str, str], name: str, default: float) -> float:
    """A property of our own: nonsense is told, for no other program reads it."""
    text = given.get(name)
    if text is None:
        return default
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MAX_GRACE_SECONDS:
        raise InvalidInput(
            f"the catalog's property {name!r} must be a number of seconds up to "
            f"{MAX_GRACE_SECONDS:.0f} (a hundred years), found {text[:MAX_DIGITS]!r}"
        )
    return seconds
