"""Base paths: other places where files of a table may stand (table format, section 10)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tiltyard.errors import CorruptFile
from tiltyard.format import wire
from tiltyard.format.protos import table_pb2 as pb


@dataclass(frozen=True, slots=True)
class BasePath:
    """A place: an absolute path or URI. When `is_dataset_root`, files stand in the usual folders below it."""

    id: int
    path: str
    name: str | None = None
    is_dataset_root: bool = False
    _source: Any = field(default=None, repr=False, compare=False, kw_only=True)

    def folder(self, name: str) -> str:
        """Where files of a kind stand; `name` is the usual folder (`data`, `_deletions`, `_indices`)."""
        root = self.path.rstrip("/") or "/"
        return f"{root.rstrip('/')}/{name}" if self.is_dataset_root else root


def base_of(bases: Iterable[BasePath], id: int, what: str) -> BasePath:
    """The base path of an id. Raises `CorruptFile` when the table has none; `what` names who asks."""
    for each in bases:
        if each.id == id:
            return each
    raise CorruptFile(f"{what} lies under base path {id}, which the manifest does not list")


def decode_base(m: Any) -> BasePath:
    """A base path from its message."""
    return BasePath(m.id, m.path, m.name if m.HasField("name") else None, m.is_dataset_root, _source=m)


def encode_base(each: BasePath) -> Any:
    """The message of a base path."""
    m = pb.BasePath(id=each.id, name=each.name, is_dataset_root=each.is_dataset_root, path=each.path)
    wire.carry_unknown(each._source, m)
    return m
