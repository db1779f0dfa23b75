"""Creators of one name wait for each other: of all that write a table only one can win.

Who has lost a name makes a small directory below the register, one of `PLACES`, which from then on is what
creators of such names lock while they are at work. It saves work, and nothing rests on it: where there is no
such directory, no lock, or somebody holds one for long, they go on, and the row decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING
from zlib import crc32

from tiltyard import runtime
from tiltyard.catalog.names import RIVALS_DIR, Id, object_id
from tiltyard.errors import StoreError
from tiltyard.format.names import VERSIONS_DIR

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog

PLACES = 32
"""Directories among which names are spread: names of one directory wait for each other, too."""

WAIT_SECONDS = 0.1
"""How long a creator waits for another of the same name."""

REMEMBERED_SECONDS = 1.0
"""How long after it has lost a name a process takes it that others are after its names."""


class Rivals:
    """What one catalog knows of creators of the same names. Safe to share among threads."""

    def __init__(self) -> None:
        self._lost_at: float | None = None

    def note(self) -> None:
        """Another creator has got a name that was free a moment ago."""
        self._lost_at = runtime.monotonic()

    @property
    def are_there(self) -> bool:
        """Whether that happened not long ago."""
        lost_at = self._lost_at
        return lost_at is not None and runtime.monotonic() - lost_at <= REMEMBERED_SECONDS

    @contextmanager
    def one_at_a_time(self, catalog: Catalog, id: Id) -> Iterator[None]:
        """Around a creation, from its first look on."""
        with ExitStack() as held:
            if catalog.settings.mode.has_register:
                self._wait(catalog, id, held)
            yield

    def _wait(self, catalog: Catalog, id: Id, held: ExitStack) -> None:
        store = catalog.register_store
        place = f"{RIVALS_DIR}/{crc32(object_id(id).encode('utf-8', 'surrogatepass')) % PLACES:02x}"
        with suppress(StoreError):
            if held.enter_context(store.turnstile(place, WAIT_SECONDS)) or not self.are_there:
                return
            if not store.list_names(place) and store.dir_stat(VERSIONS_DIR) is not None:
                store.write_hint(f"{place}/creators", b"")
                held.enter_context(store.turnstile(place, 0.0))
