"""`LanceDataset` and `dataset()`: the handle that people hold, made of its faces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tiltyard.dataset import arguments
from tiltyard.dataset.arrow_class import DatasetLike
from tiltyard.dataset.bases import BaseFace
from tiltyard.dataset.blobs import BlobFace
from tiltyard.dataset.checking import CheckFace
from tiltyard.dataset.cleaning import CleanFace
from tiltyard.dataset.engines import EngineFace
from tiltyard.dataset.handle import Handle, locked, moment_of, open_root, refuse, seconds_of, session_of
from tiltyard.dataset.indexing import IndexFace
from tiltyard.dataset.merge_insert import MergeFace
from tiltyard.dataset.reading import version_number
from tiltyard.dataset.streaming import StreamFace
from tiltyard.dataset.updating import UpdateFace
from tiltyard.dataset.upkeep import UpkeepFace
from tiltyard.dataset.writing import WriteFace
from tiltyard.errors import InvalidInput, TableNotFound
from tiltyard.format.names import branch_path
from tiltyard.table.snapshot import open_snapshot


class LanceDataset(
    EngineFace,
    BlobFace,
    BaseFace,
    CheckFace,
    WriteFace,
    UpdateFace,
    MergeFace,
    IndexFace,
    CleanFace,
    UpkeepFace,
    StreamFace,
    DatasetLike,
):
    """A table, seen at one version. Share it among threads, pickle it, use it in forked children.

    A handle shows the version it was opened at until `checkout_latest()`, a write through it, or its
    `freshness` moves it on: None (never by itself), a number of seconds or a timedelta (a read looks for a
    newer version when the last look is older), or `'latest'` (every read looks). Deletes and updates always
    see the newest version. It is a `pyarrow.dataset.Dataset`, too: engines read it by columns and filter.
    """

    def __init__(
        self,
        uri: Any,
        version: int | str | None = None,
        block_size: int | None = None,
        index_cache_size: int | None = None,
        metadata_cache_size: int | None = None,
        commit_lock: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        serialized_manifest: bytes | None = None,
        default_scan_options: Mapping[str, Any] | None = None,
        metadata_cache_size_bytes: int | None = None,
        index_cache_size_bytes: int | None = None,
        read_params: Mapping[str, Any] | None = None,
        session: Any = None,
        namespace_client: Any = None,
        table_id: Any = None,
        namespace_client_managed_versioning: bool = False,
        base_store_params: Any = None,
        *,
        asof: Any = None,
        freshness: Any = None,
    ) -> None:
        """Open a table; see `dataset`. Numbers of cache entries and sizes of blocks have no effect; cache
        sizes in bytes give the handle a session of its own, unless one is given. With
        `namespace_client_managed_versioning` commits go through the client, which knows the table by its id.
        """
        refuse(serialized_manifest=serialized_manifest, base_store_params=base_store_params)
        managed = arguments.flag("namespace_client_managed_versioning", namespace_client_managed_versioning)
        seconds = seconds_of(freshness)
        for name, given in (("default_scan_options", default_scan_options), ("read_params", read_params)):
            if given is not None:
                arguments.mapping(name, given)
        pinned = version is not None or asof is not None
        if pinned and seconds is not None:
            raise InvalidInput(
                "a handle of a chosen version stays there: leave version and asof, or freshness, out"
            )
        if version is not None and asof is not None:
            raise InvalidInput("give at most one of version and asof")
        root = open_root(uri, storage_options)
        if namespace_client is not None or table_id is not None or managed:
            from tiltyard.dataset import namespace_client as clients

            id = clients.both(namespace_client, table_id)
            root = clients.managed_store(root, namespace_client, id) if managed else root
        root = locked(root, commit_lock)
        found = session_of(session, index_cache_size_bytes, metadata_cache_size_bytes)
        try:
            if version is None or isinstance(version, str):
                tag = None if version is None else arguments.text("version", version)
                moment = None if asof is None else moment_of(asof)
                snapshot = open_snapshot(root, found, tag=tag, asof=moment)
            else:
                snapshot = open_snapshot(root, found, version=version_number(version))
        except TableNotFound as error:
            from tiltyard.dataset.places import table_not_found

            raise table_not_found(root) from error
        Handle.__init__(
            self,
            snapshot,
            root=root,
            freshness=seconds,
            storage_options=storage_options,
            default_scan_options=default_scan_options,
            read_params=read_params,
        )

    def __repr__(self) -> str:
        return f"LanceDataset({self.uri!r}, version={self._held.version})"

    def __reduce__(self) -> Any:
        if self._root.uri.startswith("memory://"):
            raise InvalidInput(
                f"{self._root.uri} lives in the memory of this process and cannot be pickled: no other "
                "process could open it. Write the table to a directory, or send its rows"
            )
        if hasattr(self._root, "release_lock"):
            raise InvalidInput(
                f"this handle of {self._root.uri} commits under a lock of this process and cannot be "
                "pickled: open the table again where it is needed, with a lock that all share"
            )
        return _reopened, (
            self._root.uri,
            self._held.manifest.branch,
            self._held.version,
            self._storage_options,
            self._default_scan_options,
            self._freshness,
            getattr(self._root, "namespace", None),
        )


def _reopened(
    uri: str,
    branch: str | None,
    version: int,
    storage_options: Mapping[str, Any] | None,
    default_scan_options: Mapping[str, Any] | None,
    freshness: float | None,
    namespace: tuple[Any, tuple[str, ...]] | None = None,
) -> LanceDataset:
    """A handle from its pickled form: the same version, opened again in this process."""
    root = open_root(uri, storage_options)
    if namespace is not None:
        from tiltyard.dataset.namespace_client import managed_store

        root = managed_store(root, *namespace)
    chain = root if branch is None else root.at(branch_path(branch))
    snapshot = open_snapshot(chain, session_of(None), version=version)
    return LanceDataset._made(
        snapshot,
        root=root,
        freshness=freshness,
        storage_options=storage_options,
        default_scan_options=default_scan_options,
    )


def dataset(
    uri: Any = None,
    version: int | str | None = None,
    asof: Any = None,
    block_size: int | None = None,
    commit_lock: Any = None,
    index_cache_size: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    default_scan_options: Mapping[str, Any] | None = None,
    metadata_cache_size_bytes: int | None = None,
    index_cache_size_bytes: int | None = None,
    read_params: Mapping[str, Any] | None = None,
    session: Any = None,
    namespace_client: Any = None,
    table_id: Any = None,
    base_store_params: Any = None,
    *,
    freshness: Any = None,
) -> LanceDataset:
    """Open a table at its newest version, at `version` (a number or a tag), or as it was at the time `asof`.

    `namespace_client` and `table_id` instead of a URI: a client of the `lance_namespace` interface says where
    the table of this id is; where it manages versions, commits go through it. `storage_options`:
    `{"durable": False}` turns fsync off for writes. `freshness`: see `LanceDataset`. Raises `InvalidUri`,
    `TableNotFound`, `VersionNotFound` and `TagNotFound` (which list what there is), `CorruptFile` (which
    names the last good version), `UnsupportedFeature`, and what the client raises.
    """
    managed = False
    if uri is None or namespace_client is not None or table_id is not None:
        from tiltyard.dataset.namespace_client import named

        place = named(uri, namespace_client, table_id, storage_options)
        assert place is not None
        uri, storage_options, managed = place.uri, place.storage_options, place.managed
    return LanceDataset(
        uri,
        version,
        block_size=block_size,
        index_cache_size=index_cache_size,
        commit_lock=commit_lock,
        storage_options=storage_options,
        default_scan_options=default_scan_options,
        metadata_cache_size_bytes=metadata_cache_size_bytes,
        index_cache_size_bytes=index_cache_size_bytes,
        read_params=read_params,
        session=session,
        namespace_client=namespace_client,
        table_id=table_id,
        namespace_client_managed_versioning=managed,
        base_store_params=base_store_params,
        asof=asof,
        freshness=freshness,
    )
