"""Properties of a catalog as given to `connect`: what the official package would pass over is told here.

A setting that is misspelt would otherwise be no setting, without a word. The plug-in of `lance_namespace`
stays as lenient as the official one: one set of properties serves both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tiltyard.catalog.settings import FALSE, STORAGE, TRUE
from tiltyard.dataset import arguments
from tiltyard.errors import InvalidInput, nearest

FLAGS = (
    "manifest_enabled",
    "dir_listing_enabled",
    "dir_listing_to_manifest_migration_enabled",
    "inline_optimization_enabled",
    "table_version_tracking_enabled",
    "vend_input_storage_options",
    "ops_metrics_enabled",
)
NUMBERS = ("commit_retries", "vend_input_storage_options_refresh_interval_millis")
OTHERS = ("tiltyard.grace_seconds", "root")


def check_properties(properties: Any) -> None:
    """Raise `InvalidInput` (or `WrongType`) for what is no setting, and for values that say nothing."""
    if properties is None:
        return
    known = (*FLAGS, *NUMBERS, *OTHERS)
    given: Mapping[Any, Any] = arguments.mapping("properties", properties)
    for key, value in given.items():
        if isinstance(key, str) and key.startswith(STORAGE):
            raise InvalidInput(
                f"the option {key!r} is no property of a lake: give storage_options="
                f"{{{key.removeprefix(STORAGE)!r}: ...}}"
            )
        if key not in known:
            raise InvalidInput(f"a lake has no property {key!r}; {nearest(str(key), known)}")
        text = str(value).lower()
        if key in FLAGS and text not in TRUE | FALSE:
            raise InvalidInput(f"the property {key!r} is 'true' or 'false', found {value!r}")
        if key in NUMBERS and not (text.isascii() and text.isdigit()):
            raise InvalidInput(f"the property {key!r} is a whole number, found {value!r}")
