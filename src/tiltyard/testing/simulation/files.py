"""A file system in memory that knows what a power cut takes: content and names, each until it is synced.

A file's content is durable as of its last `fdatasync`. A name (or its removal) is durable once its directory
was synced; until then each change of a directory survives or not by itself, in any order (decision D52). A
machine crash lets the run's choices decide about every change that was not synced.
"""

from __future__ import annotations

import errno
import os
import stat as modes
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tiltyard.testing.simulation.choices import Choices

CLOCK_TICK_NS = 4_000_000
"""Granularity of file times: a kernel stamps with its tick."""

LOSS_CHANCE = 0.5
"""How often a crash takes a change that was not synced, where it may."""


@dataclass(eq=False)
class Node:
    """A file or directory."""

    number: int
    is_directory: bool
    times_ns: int
    changed_ns: int
    data: bytearray = field(default_factory=bytearray)
    synced: bytes | None = None
    """Content as of the last sync; None: never synced."""
    names: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)
    """Names as of the last sync of the directory."""
    links: int = 0
    lock: Handle | None = None
    above: Node | None = None
    name: str = ""
    """Where it was linked last."""

    @property
    def dirty(self) -> bool:
        return self.synced is None or self.synced != bytes(self.data)


@dataclass(eq=False)
class Handle:
    """An open file."""

    node: Node
    owner: int
    position: int = 0
    closed: bool = False


def failure(code: int, path: str = "") -> OSError:
    """The system's error."""
    return OSError(code, os.strerror(code), path)


@dataclass(eq=False)
class Made:
    """A name that a file was given once, and the names that stood beside it at that moment."""

    path: str
    node: Node
    beside: tuple[str, ...]
    at_ns: int

    @property
    def data(self) -> bytes:
        """What was written to the file, also where a power cut took some of it."""
        return bytes(self.node.data)


class Files:
    """The tree, the handles, and what survives. `archive` holds every name that a file ever had, in order."""

    def __init__(self) -> None:
        self._numbers = 1
        self._handles: dict[int, Handle] = {}
        self._next_handle = 1000
        self.root = Node(1, True, 0, 0, links=1)
        self.archive: list[Made] = []

    # -- nodes -----------------------------------------------------------------------------------

    def new(self, is_directory: bool, now_ns: int) -> Node:
        self._numbers += 1
        tick = now_ns // CLOCK_TICK_NS * CLOCK_TICK_NS
        return Node(self._numbers, is_directory, tick, tick)

    def touch(self, node: Node, now_ns: int, *, content: bool = True) -> None:
        tick = now_ns // CLOCK_TICK_NS * CLOCK_TICK_NS
        node.changed_ns = tick
        if content:
            node.times_ns = tick

    def find(self, path: str, start: Node | None) -> Node:
        node = self.root if path.startswith("/") or start is None else start
        if start is not None and not path.startswith("/") and start is not self.root and not start.links:
            raise failure(errno.ENOENT, path)  # a removed directory holds nothing
        for part in path.split("/"):
            if part in ("", "."):
                continue
            if not node.is_directory:
                raise failure(errno.ENOTDIR, path)
            found = node.names.get(part)
            if found is None:
                raise failure(errno.ENOENT, path)
            node = found
        return node

    def place(self, path: str, start: Node | None) -> tuple[Node, str]:
        """The directory of a path, and the name in it."""
        above, _, name = path.rstrip("/").rpartition("/")
        if path.startswith("/") and not above:
            above = "/"
        directory = self.find(above, start) if above else (start or self.root)
        if not directory.is_directory:
            raise failure(errno.ENOTDIR, path)
        if directory is not self.root and not directory.links:
            raise failure(errno.ENOENT, path)
        return directory, name

    def link(self, node: Node, directory: Node, name: str, now_ns: int) -> None:
        directory.names[name] = node
        node.links += 1
        node.above, node.name = directory, name
        if not node.is_directory:
            self.archive.append(Made(self.path(node), node, self._visible_beside(directory, name), now_ns))
        self.touch(directory, now_ns)
        self.touch(node, now_ns, content=False)

    def _visible_beside(self, directory: Node, name: str) -> tuple[str, ...]:
        return tuple(each for each in directory.names if each != name)

    def path(self, node: Node) -> str:
        """Where a file or directory is, from the root."""
        parts: list[str] = []
        at: Node | None = node
        while at is not None and at is not self.root:
            parts.append(at.name)
            at = at.above
        return "/" + "/".join(reversed(parts))

    def unlink(self, directory: Node, name: str, now_ns: int) -> None:
        node = directory.names.pop(name)
        node.links -= 1
        self.touch(directory, now_ns)
        self.touch(node, now_ns, content=False)

    # -- handles ---------------------------------------------------------------------------------

    def open(self, node: Node, owner: int) -> int:
        self._next_handle += 1
        self._handles[self._next_handle] = Handle(node, owner)
        return self._next_handle

    def handle(self, fd: int) -> Handle:
        found = self._handles.get(fd)
        if found is None:
            raise failure(errno.EBADF)
        return found

    def close(self, fd: int) -> None:
        handle = self._handles.pop(fd, None)
        if handle is None:
            raise failure(errno.EBADF)
        handle.closed = True
        if handle.node.lock is handle:
            handle.node.lock = None

    def close_all(self, owner: int | None = None) -> None:
        """What the system does when a process (None: every one) dies."""
        for fd, handle in list(self._handles.items()):
            if owner is None or handle.owner == owner:
                self.close(fd)

    # -- facts -----------------------------------------------------------------------------------

    def facts(self, node: Node) -> os.stat_result:
        mode = (modes.S_IFDIR | 0o755) if node.is_directory else (modes.S_IFREG | 0o644)
        links = node.links + 1 if node.is_directory and node.links else node.links
        seconds, changed = node.times_ns // 10**9, node.changed_ns // 10**9
        plain = (mode, node.number, 1, links, 0, 0, len(node.data), seconds, seconds, changed)
        exact = {
            "st_atime_ns": node.times_ns,
            "st_mtime_ns": node.times_ns,
            "st_ctime_ns": node.changed_ns,
        }
        return os.stat_result(plain, exact)

    # -- durability ------------------------------------------------------------------------------

    def sync(self, node: Node) -> None:
        if node.is_directory:
            node.durable = dict(node.names)
        else:
            node.synced = bytes(node.data)

    def lose_power(self, choices: Choices) -> list[str]:
        """The machine goes down and comes up again; what was lost, for the trace."""
        self.close_all()
        lost: list[str] = []
        self._settle_directory(self.root, "", choices, lost, {})
        return lost

    def _settle_directory(
        self, node: Node, path: str, choices: Choices, lost: list[str], settled: dict[int, Node]
    ) -> None:
        if node.number in settled:
            return
        settled[node.number] = node
        kept = dict(node.durable)
        left = _left_by_moves(node)
        for name in sorted({*node.names, *node.durable}):
            now, before = node.names.get(name), node.durable.get(name)
            if name in left:
                continue  # as the name that the directory has now
            if now is not before and not choices.choose(2, LOSS_CHANCE):
                _survive(node, name, kept, left)  # 0: the change survives
            elif now is not before:
                lost.append(f"{path}/{name} {'made' if before is None else 'changed'}")
        for name in sorted(kept):
            child = settled.get(kept[name].number, kept[name])
            child.links = max(1, child.links)
            if child.is_directory:
                self._settle_directory(child, f"{path}/{name}", choices, lost, settled)
            elif child.dirty and child.number not in settled:
                child = self._settle_content(child, f"{path}/{name}", choices, lost)
            settled[child.number] = kept[name] = child
        node.names, node.durable = kept, dict(kept)

    def _settle_content(self, node: Node, path: str, choices: Choices, lost: list[str]) -> Node:
        """The file after the crash: itself, or another in its place with what is left. What was written stays
        in the node that was there, for whoever checks (`archive`).
        """
        full, before = bytes(node.data), node.synced or b""
        options = [full, before, _torn(before, full)]
        left = options[choices.choose(len(options), LOSS_CHANCE)]
        if left == full:
            node.synced = full
            return node
        lost.append(f"{path} content: {len(left)} of {len(full)} bytes are left")
        return replace(node, data=bytearray(left), synced=left, lock=None)

    def tree(self) -> Iterator[tuple[str, bytes]]:
        """Every file, sorted by path."""
        yield from self._walk(self.root, "")

    def _walk(self, node: Node, path: str) -> Iterator[tuple[str, bytes]]:
        for name in sorted(node.names):
            child = node.names[name]
            if child.is_directory:
                yield from self._walk(child, f"{path}/{name}")
            else:
                yield f"{path}/{name}", bytes(child.data)


def _left_by_moves(node: Node) -> dict[str, Node]:
    """The names that directories had which have another one in the same directory now: no directory has two
    names, or none, whatever is lost.
    """
    now = {child.number for child in node.names.values()}
    return {
        name: child
        for name, child in node.durable.items()
        if child.is_directory and node.names.get(name) is not child and child.number in now
    }


def _survive(node: Node, name: str, kept: dict[str, Node], left: Mapping[str, Node]) -> None:
    """A name is what it was last; so is the one that its directory had before."""
    kept.pop(name, None)
    now = node.names.get(name)
    if now is None:
        return
    kept[name] = now
    for old, child in left.items():
        if child is now:
            _survive(node, old, kept, left)


def _torn(before: bytes, full: bytes) -> bytes:
    """Content of which a half of what was not synced reached the disk: the synced part is whole."""
    same = next(
        (at for at, (old, new) in enumerate(zip(before, full, strict=False)) if old != new),
        min(len(before), len(full)),
    )
    half = same + (len(full) - same) // 2
    return full[:half] + before[half:]


def as_bytes(buffers: Any) -> bytes:
    """Buffers as one text of bytes."""
    return b"".join(bytes(memoryview(each).cast("B")) for each in buffers)
