"""Storage options that answers carry to clients: never static secrets, unless the properties ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiltyard import runtime

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.catalog.plugin.requests import Given

EXPIRES = "expires_at_millis"
NS_PER_MS = 1_000_000


def vended(catalog: Catalog, given: Given) -> dict[str, str] | None:
    """The storage options of an answer; None where none are given out, or the request wants none."""
    settings = catalog.settings
    wanted = given.flag("vend_credentials", True)
    if not (settings.vend_input_storage_options and wanted):
        return None
    options = dict(settings.storage)
    if settings.refresh_interval_millis is not None:
        options[EXPIRES] = str(runtime.now_ns() // NS_PER_MS + settings.refresh_interval_millis)
    return options
