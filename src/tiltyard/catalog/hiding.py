"""Hiding a root table's directory from those who read the root by names, and showing it again, where the
register decides: a rewrite removes or puts the row, and a record in it (`moves`, HIDE and SHOW) has the
marker file follow, whoever comes by next.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiltyard import runtime
from tiltyard.catalog import moves
from tiltyard.catalog.markers import DEREGISTERED, nonce_of, read_marker, remove_marker
from tiltyard.catalog.moves import Kind, Move
from tiltyard.errors import StoreError

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.catalog.round import Draft


def hide(location: str, object_id: str) -> Move:
    """The record of a rewrite that deregisters a table."""
    return Move(str(runtime.uuid4()), Kind.HIDE, location, "", object_id)


def carry_out(catalog: Catalog, move: Move, asked_at: float) -> None:
    """Have the marker follow a rewrite that was asked for at `asked_at` (boot clock).

    If it fails, or comes late, the record stays, and whoever changes the catalog next does it.
    """
    if runtime.monotonic() - asked_at < moves.LATE_SECONDS:
        with suppress(StoreError):
            moves.perform(catalog.store, move)


@dataclass(frozen=True, slots=True)
class Hidden:
    """The deregistered marker as it stood in a directory before something is put there."""

    catalog: Catalog
    location: str
    object_id: str
    is_there: bool
    show: Move | None
    """The record that takes a marker of ours away."""
    looked_at: float

    @property
    def is_others(self) -> bool:
        """Whether it is another program's, which cannot be told from the next one that it may put there."""
        return self.is_there and self.show is None

    def in_rewrite(self, draft: Draft) -> None:
        """Add to a rewrite that puts the row."""
        if self.show is not None:
            moves.add(draft.metadata, self.show)

    def follow(self) -> None:
        """Take a marker of ours away after that rewrite."""
        if self.show is not None:
            carry_out(self.catalog, self.show, self.looked_at)

    def remove_others(self) -> bool:
        """Take another program's marker away; whether it was us who did. Raises `StoreError`."""
        return self.is_others and remove_marker(self.catalog.store.at(self.location), DEREGISTERED)


def hidden(catalog: Catalog, location: str, object_id: str) -> Hidden:
    """What hides a directory now."""
    looked_at = runtime.monotonic()
    store = catalog.store
    if not store.exists(f"{location}/{DEREGISTERED}"):
        return Hidden(catalog, location, object_id, False, None, looked_at)
    nonce = nonce_of(read_marker(store.at(location), DEREGISTERED))
    show = None
    if nonce is not None:
        show = Move(str(runtime.uuid4()), Kind.SHOW, "", location, object_id, nonce=nonce)
    return Hidden(catalog, location, object_id, True, show, looked_at)
