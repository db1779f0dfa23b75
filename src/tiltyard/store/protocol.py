"""The store protocol: the only door to bytes at rest (decisions D9-D13).

A store holds *objects* under '/'-joined relative paths; directories exist only as what paths have in
common. Its promises, checked for every store by `tiltyard.testing.store_model` and tests/store:

1. `create` is exclusive: of all that ever run for one path, at most one answers WON while the object lives.
2. An object made by `create`, `put` or `copy_create` is seen whole or not at all, also after a crash at any
   point; WON, and the return of `put` and of a writer's `commit`, mean that it survives power loss (unless
   the store was opened with `durable=False`, or is that of a block `together`: then the block's end does).
   The exception is a file system that offers neither links nor an exclusive rename: there `create` writes
   under the final name, and `create_mode` says so.
3. NOT_DONE means that nothing became visible and nothing will; UNKNOWN means that the object may be there,
   now or later. Nothing is retried by the store after UNKNOWN.
4. What one call has made visible, every later call of any process sees.
5. A range lies whole within the object or the read raises `CorruptFile`; no read returns fewer bytes.
6. Bytes given to `create`, `put` and `write` are not looked at after the call returns; bytes returned never
   change.
7. Listings are sorted by path (code points) and leave nothing out that existed throughout the call. They show
   raw names, other programs' temporary files included: `tiltyard.format.names` decides which names are ours.
8. Paths with empty, '.' or '..' parts, a leading '/' or a NUL are refused with `InvalidInput` and touch
   nothing.
9. Failures are `StoreError`s (`ObjectNotFound` where there is nothing); nothing else escapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from tiltyard.errors import StoreError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    # One contiguous buffer: whatever `memoryview` takes.
    Bytes: TypeAlias = bytes | bytearray | memoryview | pa.Buffer | npt.NDArray[np.generic]

MAX_NAMED_FAILURES = 5
"""Paths that an error about many removals lists."""
MIN_MAP_BYTES = 1 << 20  # smaller objects are read, which costs less than a map and its page faults


class Created(Enum):
    """The four answers of a conditional creation (D10)."""

    WON = "won"  # the object is ours, whole and durable
    EXISTS = "exists"  # something stood there; nothing was changed
    NOT_DONE = "not done"  # a definite failure before anything was visible; `failure(path)` says which
    UNKNOWN = "unknown"  # may or may not be there; `failure(path)` says what was lost


@dataclass(frozen=True, slots=True)
class ObjectStat:
    """Facts of one object."""

    path: str
    size: int  # bytes
    mtime_ns: int  # last change of the content, by the store's clock
    ctime_ns: int  # when the object got its name (local: last change of the inode), by the store's clock
    tag: str  # differs whenever path holds other content; where the medium can tell, also another object


@dataclass(frozen=True, slots=True)
class Removed:
    """What became of many removals. `paths`: objects that are gone by this call; where a store answers for
    many at once it does not tell those that were not there, and they are among them. `failed`: why others may
    still be there, by path.
    """

    paths: frozenset[str]
    failed: Mapping[str, StoreError]

    def check(self) -> None:
        """Raise a `StoreError` that names what could not be removed, if there is any."""
        if self.failed:
            path, cause = next(iter(self.failed.items()))
            named = ", ".join(list(self.failed)[:MAX_NAMED_FAILURES])
            more = len(self.failed) - MAX_NAMED_FAILURES
            raise StoreError(
                f"{len(self.failed)} of {len(self.failed) + len(self.paths)} objects could not be removed: "
                f"{named}{f' and {more} more' if more > 0 else ''}; of {path}: {cause}"
            ) from cause


Listing: TypeAlias = list[ObjectStat]
Names: TypeAlias = list[str]


@runtime_checkable
class ObjectWriter(Protocol):
    """A new object being streamed. A `with` block aborts it unless `commit` was called in it."""

    @property
    def path(self) -> str: ...

    @property
    def position(self) -> int:
        """Bytes written so far: where the next buffer begins."""
        ...

    def write(self, buffers: Sequence[Bytes]) -> None:
        """Append the buffers, in order; they may be reused when the call returns."""
        ...

    def commit(self) -> int:
        """Make the object whole and durable; its size in bytes. After a failure the object is gone."""
        ...

    def abort(self) -> None:
        """Remove what was written. Nothing happens after `commit` or a second time."""
        ...

    def __enter__(self) -> ObjectWriter: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Paged(Protocol):
    """What a store of objects that are far away offers besides."""

    ranged: bool
    """Whether large objects should not be read whole where a few ranges do."""

    def first_page(self, directory: str) -> tuple[Listing, bool]:
        """The first objects below a directory, in order, for one request; whether these are all."""
        ...


@runtime_checkable
class Store(Protocol):
    """Bytes at rest under one root. Safe to share among threads, and usable in a forked child."""

    @property
    def uri(self) -> str:
        """What `open_store` opens again."""
        ...

    @property
    def identity(self) -> str:
        """Key for caches: equal for stores with the same root."""
        ...

    @property
    def durable(self) -> bool:
        """Whether writes are forced to the medium."""
        ...

    # -- reading ---------------------------------------------------------------------------------

    def read(self, path: str, start: int = 0, length: int | None = None) -> pa.Buffer:
        """Bytes [start, start + length) of an object; to its end without `length`.

        A negative start counts from the end and is cut at the object's beginning: `read(path, -65536)` of a
        smaller object is the whole of it.
        """
        ...

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        """The (start, length) ranges of one object, in the order given."""
        ...

    def map(self, path: str, size: int | None = None) -> pa.Buffer:
        """The whole object, without a copy where the medium allows; CorruptFile when `size` differs."""
        ...

    def stat(self, path: str) -> ObjectStat:
        """Facts of an object; ObjectNotFound."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is an object at the path (a directory is none)."""
        ...

    def list(self, prefix: str = "", start_after: str = "") -> Listing:
        """Every object below the directory `prefix`, at any depth, whose path is greater than `start_after`.

        Sorted by path; [] where nothing is. Objects that vanish meanwhile are left out.
        """
        ...

    def list_names(self, directory: str = "") -> Names:
        """Names directly in a directory, of objects and of directories, sorted; [] where there is none."""
        ...

    def dir_stat(self, directory: str) -> int | None:
        """Nanoseconds (store clock) at which a name in the directory was last made or removed.

        ObjectNotFound when it is absent; None where the store keeps no such time that can be relied on
        (object stores, network file systems): then list.
        """
        ...

    def now_ns(self) -> int:
        """The store's clock, nanoseconds since 1970 UTC: compare ages of objects with nothing else."""
        ...

    # -- writing ---------------------------------------------------------------------------------

    def create(self, path: str, data: Bytes | Sequence[Bytes]) -> Created:
        """Put the object there if nothing is: exclusive, whole, durable. Storage failures are answers."""
        ...

    def failure(self, path: str) -> BaseException | None:
        """Why the last `create` of the path through this object gave NOT_DONE or UNKNOWN, if still known."""
        ...

    @property
    def create_mode(self) -> str:
        """How `create` is done here, for people: known after the first one."""
        ...

    def put(self, path: str, data: Bytes | Sequence[Bytes]) -> None:
        """Put the object there, replacing another in one step."""
        ...

    def writer(self, path: str) -> ObjectWriter:
        """Stream a new object to a path that nothing else uses; ObjectExists when it is taken, at the latest
        from `commit`.

        The object may be visible before it is whole: use it for files with unique names, named by nobody yet.
        """
        ...

    def write_hint(self, path: str, data: bytes, *, sync: bool = False) -> None:
        """Overwrite a small advisory object in place; neither atomic nor, without `sync`, durable (D13)."""
        ...

    def copy_create(self, source: str, target: str) -> Created:
        """`create` the target with the source's bytes; ObjectNotFound when there is no source."""
        ...

    def move_dir(self, source: str, target: str) -> Created:
        """Rename a directory, or an object, to a name that is free, in one step.

        EXISTS when it is taken; ObjectNotFound when there is no source, and then nothing was made;
        UnsupportedFeature where the store has no such step (for objects, or at all).
        """
        ...

    def together(self) -> AbstractContextManager[Store]:
        """A block for objects that nothing looks for yet: what is made through the store that it gives is
        visible at once, and durable when the block ends, all of it together. Where the medium has to be
        waited for, that is a few waits instead of some for each object.

        The block ends with StoreError where that cannot be; then, and where it is left by an exception, what
        was made may vanish or be cut by a crash. The store that it gives is of no use afterwards.
        """
        ...

    def delete(self, path: str) -> bool:
        """Remove an object; whether it was there. `sync_dir` between two removals keeps their order."""
        ...

    def delete_many(self, paths: Sequence[str]) -> Removed:
        """Remove objects, as many at a time as the medium takes; those that are not there are no failures.

        One at a time they go in the order given (`removing.OneByOne`), many at a time in none, and a crash
        may leave any: objects that must outlive others are removed by another call.
        """
        ...

    def delete_tree(self, directory: str) -> None:
        """Remove everything below a directory, and it."""
        ...

    def sync_dir(self, directory: str) -> None:
        """Make the names made and removed in a directory survive power loss."""
        ...

    def turnstile(self, directory: str, seconds: float) -> AbstractContextManager[bool]:
        """Queue up with the host's other processes for at most `seconds`; whether it was our turn.

        Safety never depends on it (D16): the block runs in any case. Leaves no trace in the directory.
        """
        ...

    def at(self, prefix: str) -> Store:
        """The store of a directory below this one; it stays with the directory when that is renamed.

        A class derived from a store of ours gets one of its own class, with the same attributes.
        """
        ...

    def successor(self) -> Store | None:
        """A store of what stands at the path by now, if the directory that this one was opened on was
        removed; None while it stands, wherever it was moved, and where there is nothing to be removed.
        """
        ...
