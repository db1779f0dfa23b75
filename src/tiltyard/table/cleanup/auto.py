"""Cleanup after commits, as a table's config asks for it (table format, section 16).

The keys are the official ones: `lance.auto_cleanup.interval` (every so many versions), `.older_than` (a span
such as `14days` or `1h 30m`), `.retain_versions`. The version before the new one always stays: somebody is
reading it. A cleanup that fails warns; the commit that it follows has succeeded.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

from tiltyard.errors import InvalidInput, TiltyardError
from tiltyard.table.snapshot import Snapshot
from tiltyard.table.wording import NS_PER_SECOND as NS

PREFIX = "lance.auto_cleanup."
INTERVAL = PREFIX + "interval"
OLDER_THAN = PREFIX + "older_than"
RETAIN_VERSIONS = PREFIX + "retain_versions"
DELETE_RATE_LIMIT = PREFIX + "delete_rate_limit"
KEYS = (INTERVAL, OLDER_THAN, RETAIN_VERSIONS)

DEFAULT_INTERVAL = 20
DEFAULT_OLDER_THAN_SECONDS = 14 * 86_400
"""What is taken for one of the two options when only the other is given, as the official package does."""

_UNITS = {
    1: ("nsec", "ns", "nanos"),
    1_000: ("usec", "us", "micros"),
    1_000_000: ("msec", "ms", "millis"),
    NS: ("seconds", "second", "secs", "sec", "s"),
    60 * NS: ("minutes", "minute", "min", "mins", "m"),
    3_600 * NS: ("hours", "hour", "hrs", "hr", "h"),
    86_400 * NS: ("days", "day", "d"),
    604_800 * NS: ("weeks", "week", "wks", "wk", "w"),
    2_630_016 * NS: ("months", "month", "M"),
    31_557_600 * NS: ("years", "year", "yrs", "yr", "y"),
}
"""Nanoseconds of the units that spans are written in (humantime), and their names."""
_NS_OF = {name: ns for ns, every in _UNITS.items() for name in every}
_PART = re.compile(r"\s*([0-9]{1,19})\s*([A-Za-z]+)", re.ASCII)
_WRITTEN = ((86_400, "day"), (3_600, "h"), (60, "m"), (1, "s"))


class AutoCleanupWarning(UserWarning):
    """A cleanup after a commit failed, or the table's config of it cannot be read; the commit stands."""


@dataclass(frozen=True, slots=True)
class AutoCleanup:
    """What a table's config asks for: see the module. Spans in nanoseconds."""

    interval: int
    older_than_ns: int | None
    retain_versions: int | None
    delete_rate_limit: int | None


def parse_span(text: str) -> int:
    """Nanoseconds of a span such as `14days` or `1h 30m`. Raises `InvalidInput`."""
    at, total = 0, 0
    while at < len(text.rstrip()):
        found = _PART.match(text, at)
        unit = _NS_OF.get(found[2]) if found else None
        if found is None or unit is None:
            raise InvalidInput(f"{text!r} is no span of time such as '14days' or '1h 30m'")
        total += int(found[1]) * unit
        at = found.end()
    if not at:
        raise InvalidInput(f"{text!r} is no span of time such as '14days' or '1h 30m'")
    return total


def span_of_seconds(seconds: int) -> str:
    """A span as config says it: `14days`, `1h 30m`."""
    parts = []
    for size, unit in _WRITTEN:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}{'s' if unit == 'day' and count > 1 else ''}")
    return " ".join(parts) or "0s"


def config_of(interval: int | None, older_than_seconds: int | None) -> dict[str, str]:
    """The config entries for the options of `write_dataset` and `enable_auto_cleanup`."""
    every = DEFAULT_INTERVAL if interval is None else interval
    age = DEFAULT_OLDER_THAN_SECONDS if older_than_seconds is None else older_than_seconds
    return {INTERVAL: str(every), OLDER_THAN: span_of_seconds(age)}


def parse_config(config: Mapping[str, str]) -> AutoCleanup | None:
    """What the config asks for; None where it does not ask, or asks for no version to go. Raises
    `InvalidInput`.
    """
    text = config.get(INTERVAL)
    if text is None:
        return None
    interval = _number(INTERVAL, text, 0)
    older_than = config.get(OLDER_THAN)
    retain = config.get(RETAIN_VERSIONS)
    rate = config.get(DELETE_RATE_LIMIT)
    if not interval or (older_than is None and retain is None):
        return None
    return AutoCleanup(
        interval,
        None if older_than is None else parse_span(older_than),
        None if retain is None else _number(RETAIN_VERSIONS, retain, 1),
        None if rate is None else _number(DELETE_RATE_LIMIT, rate, 1),
    )


def _number(key: str, text: str, low: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) >= low):
        raise InvalidInput(f"config {key} must be a whole number of {low} or more, found {text!r}")
    return int(text)


def after_commit(made: Snapshot) -> None:
    """Clean up if the config of the version that was just made asks for it now. Never raises."""
    if INTERVAL not in made.manifest.config:
        return
    try:
        asked = parse_config(made.manifest.config)
        if asked is not None and made.version % asked.interval == 0:
            _clean(made, asked)
    except (TiltyardError, OSError) as error:
        warnings.warn(
            f"version {made.version} of {made.store.uri} was committed, but the cleanup that its config asks "
            f"for after it failed: {error}",
            AutoCleanupWarning,
            stacklevel=2,
        )


def _clean(made: Snapshot, asked: AutoCleanup) -> None:
    from tiltyard.table.cleanup.run import clean
    from tiltyard.table.cleanup.select import Policy
    from tiltyard.table.cleanup.survey import place_of

    policy = Policy(asked.older_than_ns, asked.retain_versions, refuse_tagged=False)
    clean(place_of(made), max(made.version - 1, 1), policy, asked.delete_rate_limit)
