"""The object that everything of the catalog takes: a root, its settings, a session, and the register."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from tiltyard.catalog.batch_intents import BATCH_DIR
from tiltyard.catalog.register import Register, RegisterTable
from tiltyard.catalog.round import Change, Draft, submit
from tiltyard.catalog.settings import Settings
from tiltyard.dataset import arguments
from tiltyard.errors import InvalidUri, UnsupportedFeature
from tiltyard.session import default_session
from tiltyard.store import open_store
from tiltyard.store.uri import options_for
from tiltyard.table.publish import Publish, create_manifest

if TYPE_CHECKING:
    from tiltyard.catalog.rivals import Rivals
    from tiltyard.catalog.waiting import NewRow
    from tiltyard.session import Session
    from tiltyard.store import Store

T = TypeVar("T")


class Catalog:
    """A directory catalog. Safe to share among threads; making one touches nothing.

    Catalogs of one root in one session share what they have read and the rounds of their changes. One goes on
    with its directory when that is renamed; when it is removed, with what stands at its path then.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        session: Session,
        publish: Publish = create_manifest,
    ) -> None:
        self.settings = settings
        self.session = session
        self._publish = publish
        self._place = store, RegisterTable(store, session, publish)

    def __repr__(self) -> str:
        return f"Catalog({self.store.uri!r}, {self.settings.mode.name})"

    @property
    def store(self) -> Store:
        """Its root."""
        return self._place[0]

    @property
    def _table(self) -> RegisterTable:
        return self._place[1]

    @property
    def rivals(self) -> Rivals:
        """What is known of others who are after the same names."""
        return self._table.rivals

    @property
    def uri(self) -> str:
        """Where the catalog is, without a slash at the end."""
        return self.store.uri.rstrip("/") or "/"

    @property
    def register_store(self) -> Store:
        """The store of the `__manifest` table."""
        return self._table.store

    def register(self) -> Register:
        """The newest version of the register; version 0 without rows where there is none. Creates nothing.

        Raises UnsupportedFeature (features that we do not know, or a catalog without a register), and what
        reading raises.
        """
        self._need_register()
        self.follow()
        return self._table.newest()

    def register_of_late(self) -> Register | None:
        """A version of the register that is the newest, or was not long ago, if that is known without asking
        the store.
        """
        return self._table.of_late()

    def mutate(
        self,
        mutation: Callable[[Draft], T],
        *,
        repairing: bool = False,
        in_batch: bool = False,
        new: NewRow | None = None,
    ) -> T:
        """Carry out a change, a pure function of a `Draft` that runs again on every version that is tried;
        what it returns.

        Batches that a process left half done are finished first, unless this is `in_batch`. `repairing`: also
        where the register is damaged. `new`: the row that it puts, if it does anything: then another process
        may do it. Raises what the function raises (its changes are left
        out then), CatalogThrottled, OutcomeUnknown, CatalogDamaged, UnsupportedFeature, StoreError.
        """
        self._need_register()
        self.follow()
        if not (repairing or in_batch):
            self.finish_batches()
        answer: T = submit(Change(self._table, mutation, repairing, new))
        if self._table.has_old_files:
            self._table.remove_old_files()
        return answer

    def follow(self) -> None:
        """Every look at the catalog begins so: where its root was removed it goes on with what is there."""
        place = self._place
        store = place[0].successor()
        if store is not None and self._place is place:  # else another thread was first
            self._place = store, RegisterTable(store, self.session, self._publish)

    def finish_batches(self) -> None:
        """Finish the batches over several tables that somebody left half done: every change begins so."""
        if self.store.list_names(BATCH_DIR):
            from tiltyard.catalog.batch_walk import finish_pending

            finish_pending(self)

    def _need_register(self) -> None:
        if not self.settings.mode.has_register:
            raise UnsupportedFeature(
                "Child namespaces are only supported when manifest mode is enabled: this catalog was opened "
                "with manifest_enabled=false"
            )


def open_catalog(
    uri: Any, *, properties: Mapping[str, Any] | None = None, session: Session | None = None
) -> Catalog:
    """The catalog at a path or URI; nothing is made and nothing is read yet.

    `properties`: strings as the official package takes them (`Settings`). Options `storage.*` that are for
    other stores are left aside. Raises `InvalidUri`, `UnsupportedFeature` for stores that are not served.
    """
    if isinstance(uri, os.PathLike):
        uri = os.fspath(uri)
    if not isinstance(uri, str) or not uri:
        raise InvalidUri(f"a catalog's root is a path or URI, found {uri!r}")
    arguments.text("a catalog's root", uri)
    settings = Settings.parse(properties)
    store = open_store(
        uri if uri.endswith("://") else uri.rstrip("/") or "/", options_for(uri, settings.storage)
    )
    return Catalog(store, settings, default_session() if session is None else session)
