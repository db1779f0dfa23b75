"""What was seen of a table's shards, kept in the session as long as the store says that nothing has changed.

Reads look at every shard's newest manifest. On a local disk a directory's modification time answers, as it
does for the table's own versions (`table.versions`); where a store has none, names are listed each time.
Whoever writes to a shard never asks here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tiltyard.errors import ObjectNotFound
from tiltyard.format.mem_wal import MemWalDetails
from tiltyard.memwal import layout
from tiltyard.memwal.claim import INCARNATION
from tiltyard.memwal.identity import merge_functions
from tiltyard.memwal.manifest import of_begun
from tiltyard.table.apply.mem_wal import entry_of
from tiltyard.table.versions import RACY_NS

if TYPE_CHECKING:
    from tiltyard.format.mem_wal import Marks
    from tiltyard.format.shard_manifest import ShardManifest
    from tiltyard.memwal.merge_functions import Functions
    from tiltyard.session import Session
    from tiltyard.store import Store
    from tiltyard.table.snapshot import Snapshot

SEEN_BYTES = 512
"""What one kept answer is accounted as, and what each thing that it names adds (bytes)."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """An answer, and the time that its directory had before it was looked for."""

    answer: Any
    directory_ns: int
    looked_ns: int


def shards(store: Store, session: Session) -> tuple[str, ...]:
    """The ids of a table's shards."""

    def look() -> tuple[tuple[str, ...], int]:
        found = tuple(layout.shard_ids(store.list_names(layout.ROOT)))
        return found, len(found)

    found: tuple[str, ...] = _kept(store, session, layout.ROOT, look, lambda _: True)
    return found


def newest_manifest(store: Store, session: Session, shard_id: str) -> ShardManifest | None:
    """The newest manifest of a shard; None where there is no shard. Raises as `manifest.newest` does."""
    directory = layout.shard_dir(shard_id)

    def look() -> tuple[tuple[ShardManifest | None, str, str], int]:
        began_ns = store.now_ns()
        found = of_begun(store.at(directory))
        if found is None:
            return (None, "", ""), 0
        path = f"{directory}/{layout.manifest_path(found.version)}"
        return (found, path, _tag(store, path, began_ns)), len(found.sstables)

    def stands(answer: tuple[ShardManifest | None, str, str]) -> bool:
        known, path, tag = answer
        return known is None or (tag != "" and _tag(store, path) == tag)

    return _kept(store, session, f"{directory}/{layout.MANIFEST_DIR}", look, stands)[0]


def _tag(store: Store, path: str, began_ns: int | None = None) -> str:
    """Which file a manifest is; nothing where it was changed since shortly before `began_ns`. One that is
    made under its final name grows there (D12): what was read of it may be less.
    """
    try:
        stat = store.stat(path)
    except ObjectNotFound:
        return ""
    return stat.tag if began_ns is None or began_ns - stat.mtime_ns > RACY_NS else ""


def _kept(
    store: Store,
    session: Session,
    directory: str,
    look: Callable[[], tuple[Any, int]],
    stands: Callable[[Any], bool],
) -> Any:
    """What `look` says, or has said while the directory was as it is now."""
    try:
        # Before anything else: what changes after this moment shows as another time next time.
        directory_ns = store.dir_stat(directory)
    except ObjectNotFound:
        directory_ns = None
    if directory_ns is None:
        return look()[0]
    key = (store.identity, directory, "seen", "")
    seen: _Seen | None = session.cache.get(key)
    if (
        seen is not None
        and seen.directory_ns == directory_ns
        and seen.looked_ns - directory_ns > RACY_NS
        and stands(seen.answer)
    ):
        return seen.answer
    looked_ns = store.now_ns()
    answer, names = look()
    session.cache.put(key, _Seen(answer, directory_ns, looked_ns), SEEN_BYTES * (1 + names))
    return answer


@dataclass(frozen=True, slots=True)
class Streaming:
    """What a version of a table says of what is streamed into it."""

    marks: Marks
    """Shard id -> the generation up to which the base holds the shard's rows."""
    incarnation: str | None
    """Which life of the table it is, where it says (decision D21)."""


def streaming(base: Snapshot) -> Streaming | None:
    """As the version says it; None where nobody streams into the table."""
    entry = entry_of(base.manifest)
    if entry is None:
        return None
    text = b"" if entry.details is None else entry.details.value
    kind = "" if entry.details is None else entry.details.type_url

    def made() -> tuple[Streaming, int]:
        details = MemWalDetails.of(entry)
        marks: Mapping[str, int] = details.marks
        found = Streaming(marks, details.writer_defaults.get(INCARNATION))
        return found, SEEN_BYTES + 2 * len(text)

    found: Streaming = base.session.cache.get_or(("mem wal details", kind, text), made)
    return found


def merging(base: Snapshot) -> tuple[Functions | None, str]:
    """The table's merge functions, and the same as text; see `identity.merge_functions`."""
    entry = entry_of(base.manifest)
    text = b"" if entry is None or entry.details is None else entry.details.value

    def made() -> tuple[tuple[Functions | None, str], int]:
        found = merge_functions(base)
        return (found, "" if found is None else found.encode()), SEEN_BYTES + len(text)

    found: tuple[Functions | None, str] = base.session.cache.get_or(("merge functions", text), made)
    return found
