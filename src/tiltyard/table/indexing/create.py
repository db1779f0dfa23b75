"""Making and dropping indices: a segment is written whole under its final name, then one commit names it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tiltyard import runtime
from tiltyard.errors import IndexAlreadyExists, IndexNotFound, InvalidInput, UnsupportedFeature, nearest
from tiltyard.format.index_metadata import SYSTEM_INDICES, IndexMetadata
from tiltyard.format.names import index_directory
from tiltyard.index.btree.written import DEFAULT_LIMITS, BuildLimits, build
from tiltyard.table.indexing.source import (
    Progress,
    address_version,
    check_name,
    column_entries,
    commit_indices,
    indexable,
    new_entry,
    path_of,
    written_segments,
)
from tiltyard.table.replanning import CONFLICT_RETRIES, RETRY_SECONDS, replanned

if TYPE_CHECKING:
    from tiltyard.format.schema import Field
    from tiltyard.session import Session
    from tiltyard.store import Store
    from tiltyard.table.snapshot import Snapshot

BTREE = "BTREE"
OTHER_KINDS = frozenset(
    (
        "BITMAP", "LABEL_LIST", "NGRAM", "ZONEMAP", "BLOOMFILTER", "INVERTED", "FTS", "RTREE", "MINHASHLSH",
        "JSON", "FM", "IVF_FLAT", "IVF_PQ", "IVF_SQ", "IVF_RQ", "IVF_HNSW_FLAT", "IVF_HNSW_PQ", "IVF_HNSW_SQ",
    )
)  # fmt: skip
"""Kinds of index that the format knows and this version does not build."""


def check_kind(kind: object) -> None:
    """Raise `UnsupportedFeature` for a kind of index other than BTREE, by name."""
    name = kind.upper() if isinstance(kind, str) else str(kind)
    if name == BTREE:
        return
    what = "is not built by this version of tiltyard" if name in OTHER_KINDS else "is not a kind of index"
    raise UnsupportedFeature(
        f"an index of type {name!r} {what}: BTREE is; indices of other kinds that pylance built are kept as "
        "they are"
    )


def create_index(
    store: Store,
    session: Session,
    column: str,
    *,
    name: str | None = None,
    replace: bool = True,
    train: bool = True,
    limits: BuildLimits = DEFAULT_LIMITS,
    progress: Progress | None = None,
    conflict_retries: int = CONFLICT_RETRIES,
    retry_seconds: float = RETRY_SECONDS,
) -> Snapshot:
    """`create_btree` on the newest version, planned again where other writers changed what it read."""
    return replanned(
        lambda snapshot: create_btree(
            snapshot, column, name=name, replace=replace, train=train, limits=limits, progress=progress
        ),
        store,
        session,
        what=f"index on {column}",
        conflict_retries=conflict_retries,
        retry_seconds=retry_seconds,
    )


def create_btree(
    snapshot: Snapshot,
    column: str,
    *,
    name: str | None = None,
    replace: bool = True,
    fragments: Iterable[int] | None = None,
    train: bool = True,
    limits: BuildLimits = DEFAULT_LIMITS,
    progress: Progress | None = None,
) -> Snapshot:
    """Build a B-tree index on a column or dotted path and commit it; the version that it made.

    `name`: `<column>_idx` by default. `replace`: whether an index of this name on the same column makes room.
    `fragments`: ids of those to index, all by default. Without `train` the index is empty, to be filled by
    `optimize_indices`. The rows are those of `snapshot`; rows that others add meanwhile are not indexed.

    Raises `FieldNotFound`, `WrongType` (values that cannot be indexed), `IndexAlreadyExists`, and what a
    commit raises: `RetryableConflict` where indexed fragments were rewritten meanwhile. Then nothing is left.
    """
    field = indexable(snapshot.schema, column)
    label = f"{path_of(snapshot.schema, field.id)}_idx" if name is None else name
    removed = replaced_entries(snapshot, field, label, replace)
    covered = _covered(snapshot, fragments) if train else []
    with written_segments(snapshot.store) as written:
        entry = build_entry(snapshot, field, label, covered, written, limits, progress)
        return commit_indices(snapshot, [entry], removed)


def build_entry(
    snapshot: Snapshot,
    field: Field,
    name: str,
    fragments: Iterable[int],
    written: list[str],
    limits: BuildLimits = DEFAULT_LIMITS,
    progress: Progress | None = None,
) -> IndexMetadata:
    """Write a segment of some fragments; its uuid is added to `written`. Nothing is committed."""
    covered = sorted(fragments)
    uuid = str(runtime.uuid4())
    written.append(uuid)
    built = build(
        snapshot.store,
        index_directory(uuid),
        column_entries(snapshot, field, covered, progress),
        field.arrow_type,
        index_version=address_version(snapshot),
        limits=limits,
    )
    return new_entry(snapshot, uuid, field.id, name, built, covered)


def replaced_entries(snapshot: Snapshot, field: Field, name: str, replace: bool) -> list[IndexMetadata]:
    """The entries that an index of this name on this field takes the place of."""
    check_name(name)
    if name in SYSTEM_INDICES:
        raise InvalidInput(f"{name!r} is the name of state of the table and cannot be given to an index")
    found = [entry for entry in snapshot.manifest.indices if entry.name == name]
    if any(entry.fields != (field.id,) for entry in found):
        raise IndexAlreadyExists(
            f"an index named {name!r} already exists with different fields; please specify a different name"
        )
    if found and not replace:
        raise IndexAlreadyExists(
            f"an index named {name!r} already exists; please specify a different name or use replace=True"
        )
    return found


def _covered(snapshot: Snapshot, fragments: Iterable[int] | None) -> list[int]:
    if fragments is None:
        return [int(id) for id in snapshot.fragments.ids]
    wanted = sorted(set(fragments))
    for id in wanted:
        if snapshot.fragment(id) is None:
            raise InvalidInput(f"version {snapshot.version} of {snapshot.store.uri} has no fragment {id}")
    return wanted


def drop_index(
    store: Store,
    session: Session,
    name: str,
    *,
    conflict_retries: int = CONFLICT_RETRIES,
    retry_seconds: float = RETRY_SECONDS,
) -> Snapshot:
    """Take an index of any kind out of the newest version; its files stay until a cleanup.

    Raises `IndexNotFound`, and `InvalidInput` for state of the table that is only kept like an index.
    """

    def attempt(snapshot: Snapshot) -> Snapshot:
        return commit_indices(snapshot, [], entries_named(snapshot, name))

    check_name(name)
    if name in SYSTEM_INDICES:
        raise InvalidInput(f"{name!r} is state of the table, not an index: it cannot be dropped")
    return replanned(
        attempt,
        store,
        session,
        what=f"removal of index {name}",
        conflict_retries=conflict_retries,
        retry_seconds=retry_seconds,
    )


def entries_named(snapshot: Snapshot, name: str) -> list[IndexMetadata]:
    """All segments of an index. Raises `IndexNotFound`."""
    found = [entry for entry in snapshot.manifest.indices if entry.name == name]
    if not found:
        known = list(dict.fromkeys(e.name for e in snapshot.manifest.indices if not e.is_system))
        raise IndexNotFound(
            f"version {snapshot.version} of {snapshot.store.uri} has no index {name!r}; "
            f"{nearest(name, known)}"
        )
    return found
