"""The one step that makes a version: putting its manifest under its name. Replaceable.

The default is the store's exclusive creation. A catalog that manages versions, or a simulation, gives another
`Publish`; whatever it does, it must answer as `Store.create` does (decision D10), and UNKNOWN means that
nobody may try again or clean up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from tiltyard.store import Created, Store

if TYPE_CHECKING:
    from tiltyard.store.protocol import Bytes


class Publish(Protocol):
    """Make `path` hold the manifest of `version`, if nothing stands there."""

    def __call__(self, store: Store, version: int, path: str, data: Sequence[Bytes]) -> Created: ...


def create_manifest(store: Store, version: int, path: str, data: Sequence[Bytes]) -> Created:
    """Publish by exclusive creation of the manifest under its final name."""
    return store.create(path, data)
