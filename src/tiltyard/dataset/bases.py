"""Bases of a table: other places for its data files, named when a table is made or registered later."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tiltyard import runtime
from tiltyard.dataset import arguments
from tiltyard.dataset.handle import Handle
from tiltyard.dataset.transaction import with_message
from tiltyard.errors import InvalidInput
from tiltyard.format import transaction as facts
from tiltyard.format.base_paths import BasePath
from tiltyard.format.operations import UpdateBases
from tiltyard.store import open_other
from tiltyard.table import commit as table_commit
from tiltyard.table.write import Target

if TYPE_CHECKING:
    from typing import Self

    from tiltyard.store import Store
    from tiltyard.table.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class DatasetBasePath:
    """A place for data files: an absolute path or URI. With `is_dataset_root` they lie in `data` below it,
    else directly there. The table numbers bases that have no `id`.
    """

    path: str
    name: str | None = None
    is_dataset_root: bool = False
    id: int | None = None

    def __post_init__(self) -> None:
        given = os.fspath(self.path) if isinstance(self.path, os.PathLike) else self.path
        path = arguments.text("path", given)
        if not path.startswith("/") and "://" not in path:
            raise InvalidInput(f"the path of a base must be absolute or a URI, found {path!r}")
        object.__setattr__(self, "path", path)
        arguments.maybe_text("name", self.name)
        arguments.flag("is_dataset_root", self.is_dataset_root)
        arguments.maybe_whole("id", self.id, 1, arguments.MAX_U32)


class BaseFace(Handle):
    """What tells of bases and registers them."""

    def base_paths(self) -> dict[int, DatasetBasePath]:
        """The places beside the table's root that files may lie in, by id."""
        return {
            base.id: DatasetBasePath(base.path, base.name, base.is_dataset_root, base.id or None)
            for base in sorted(self._snapshot.manifest.base_paths, key=lambda base: base.id)
        }

    def add_bases(
        self,
        new_bases: Iterable[DatasetBasePath],
        transaction_properties: Mapping[str, str] | None = None,
    ) -> Self:
        """Register further bases, for `target_bases` of later writes; gives this handle, moved on. Raises
        `InvalidInput` where the table has one of the same name, path or id, and what a commit raises.
        """
        found = numbered(new_bases, self._snapshot.manifest.base_paths)
        properties = with_message(transaction_properties, None)
        if found:
            base = self._snapshot
            operation = UpdateBases(found)
            made = facts.Transaction(base.version, str(runtime.uuid4()), operation, properties)
            self._move(table_commit.commit(base.store, made, session=base.session, base=base))
        return self


def numbered(given: Any, known: Sequence[BasePath] = ()) -> tuple[BasePath, ...]:
    """Bases with their ids, after those that a table has. Raises `InvalidInput` for a name, path or id that
    stands twice.
    """
    found: list[BasePath] = []
    for each in arguments.items("bases", given, DatasetBasePath):
        every = [*known, *found]
        for other in every:
            same = [
                what
                for what in ("name", "path", "id")
                if getattr(each, what) is not None and getattr(each, what) == getattr(other, what)
            ]
            if same:
                raise InvalidInput(
                    f"a base of {same[0]} {getattr(each, same[0])!r} exists already, as base {other.id} at "
                    f"{other.path}; give each base a name and a path of its own"
                )
        id = each.id or max((other.id for other in every), default=0) + 1
        found.append(BasePath(id, each.path, each.name, each.is_dataset_root))
    return tuple(found)


def initial(given: Any, mode: str, snapshot: Snapshot | None) -> tuple[BasePath, ...]:
    """The bases that a new table begins with. Raises `InvalidInput` where the table is there."""
    if not given:
        return ()
    if mode == "append":
        raise InvalidInput(
            "Cannot register new bases in Append mode: leave initial_bases out, and register bases by "
            "add_bases"
        )
    if snapshot is not None:
        raise InvalidInput(
            f"{snapshot.store.uri} is a table already: bases are registered by add_bases; initial_bases are "
            "for new tables"
        )
    return numbered(given)


def targets(store: Store, bases: Sequence[BasePath], wanted: Any, every: Any) -> tuple[Target, ...]:
    """Where data files go. `wanted`: names or paths of bases; `every`: all bases, with the table's own root
    (True) or without it (False). Raises `InvalidInput` for one that is not there.
    """
    if wanted is not None and every is not None:
        raise InvalidInput("target_bases and target_all_bases cannot be combined: give one of them")
    if every is not None:
        own = (Target(store),) if arguments.flag("target_all_bases", every) else ()
        found = (*own, *[_target(store, base) for base in bases])
        if not found:
            raise InvalidInput(f"target_all_bases: {store.uri} has no bases")
        return found
    chosen = []
    for each in [] if wanted is None else arguments.texts("target_bases", wanted):
        base = next((base for base in bases if each in (base.name, base.path)), None)
        if base is None:
            there = ", ".join(base.name or base.path for base in bases) or "none"
            raise InvalidInput(f"target base {each!r} not found among the bases of {store.uri}: {there}")
        chosen.append(_target(store, base))
    return tuple(chosen)


def _target(store: Store, base: BasePath) -> Target:
    return Target(open_other(store, base.path), base.id, base.is_dataset_root)
