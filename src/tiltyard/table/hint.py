"""The version hint that our commits leave for other programs (decision D13); we find versions without it.

Programs that probe upwards from it are lost where it lies below a hole. Rules: only upward, only while
holding the turnstile, not at all when more than a second has passed since the version was created, and once
more upward when a pause in the middle may have pulled it down.
"""

from __future__ import annotations

from tiltyard import runtime
from tiltyard.errors import CorruptFile, StoreError
from tiltyard.format import names
from tiltyard.store import Store
from tiltyard.table.versions import list_names, read_hint

MAX_HINT_DELAY_SECONDS = 1.0
"""A hint later than this could pull a newer one down; it is left to the next commit."""

MAX_UNCHECKED_SECONDS = 0.05
"""After a write that came later than this (boot clock) the versions are listed: others may have raised the
hint in between.
"""

MAX_CORRECTIONS = 8
"""How often a late write is checked again; each takes another pause of the process."""


def write_hint(store: Store, version: int, created_at: float) -> None:
    """Raise the hint to `version`. Call it holding the turnstile; `created_at` is boot-clock seconds.

    Never fails: the hint is advice, and the version stands.
    """
    if runtime.monotonic() - created_at > MAX_HINT_DELAY_SECONDS:
        return
    try:
        known = read_hint(store)
        if known is not None and known >= version:
            return
        seen_at = created_at  # a moment at which `version` was the newest
        for _ in range(MAX_CORRECTIONS):
            store.write_hint(names.HINT_PATH, names.hint_body(version))
            if runtime.monotonic() - seen_at <= MAX_UNCHECKED_SECONDS:
                return
            seen_at = runtime.monotonic()
            newest = max((each.version for each in list_names(store, above=version)), default=version)
            if newest <= version:
                return
            version = newest
    except (StoreError, CorruptFile):
        return
