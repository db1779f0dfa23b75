"""What a batch over several tables is about to do, written down before it does (decision D5).

One file for each batch in `_tiltyard/batch/` of the root. It holds all that another process needs to finish
the batch, or to take it back: see `batch`. A batch that could be neither leaves a file that says what stands
and what does not, until a person has looked.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tiltyard.catalog.names import resolve
from tiltyard.errors import CorruptFile, ObjectNotFound, OutcomeUnknown, StoreError
from tiltyard.format.names import PRIVATE_DIR, is_temporary
from tiltyard.store import Created

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tiltyard.catalog.names import Id
    from tiltyard.format.names import Naming
    from tiltyard.store import Store

BATCH_DIR = f"{PRIVATE_DIR}/batch"
_PENDING = ".json"
_TORN = ".torn"
VERSIONS = 1 << 64
"""Every version is below."""


@dataclass(frozen=True, slots=True)
class Staged:
    """A version that waits: `path` in the table's directory at `location`, to become version `version` there.

    `uuid` is that of its transaction, which tells it from all others; `undo` that of the commit which takes
    it back.
    """

    id: Id
    location: str
    version: int
    naming: Naming
    path: str
    uuid: str
    undo: str


@dataclass(frozen=True, slots=True)
class RowChange:
    """A table that is declared (`declare`, at `location`, with these properties) or deregistered."""

    id: Id
    declare: bool
    location: str
    properties: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Removal:
    """Versions whose manifests go, once everything else stands."""

    id: Id
    location: str
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Intent:
    """One batch. `versions` are in the order in which they are published."""

    uuid: str
    versions: tuple[Staged, ...]
    rows: tuple[RowChange, ...] = ()
    removals: tuple[Removal, ...] = ()

    @property
    def path(self) -> str:
        return f"{BATCH_DIR}/{self.uuid}{_PENDING}"

    @property
    def torn_path(self) -> str:
        return f"{BATCH_DIR}/{self.uuid}{_TORN}"


def announce(store: Store, intent: Intent) -> None:
    """Write an intent down, durable. Raises `StoreError` where nothing was begun, `OutcomeUnknown` where it
    may have been written: whoever meets it then does the batch.
    """
    data = _encoded(intent)
    answer = store.create(intent.path, data)
    if answer is Created.WON:
        return
    cause = store.failure(intent.path)
    if answer is Created.NOT_DONE:
        raise StoreError(
            f"what the batch was to do could not be written down at {store.uri}/{intent.path} ({cause}); "
            "nothing was changed"
        ) from cause
    try:
        there = store.read(intent.path).to_pybytes() == data
    except StoreError:
        there = False
    if not there:
        raise OutcomeUnknown(
            f"the answer to creating {store.uri}/{intent.path} was lost ({cause}): if it stands there, the "
            "next change of this catalog does the batch. Look at its tables again",
            uuid=intent.uuid,
        ) from cause
    store.sync_dir(BATCH_DIR)


def withdraw(store: Store, intent: Intent) -> None:
    """Remove the intent of a batch that is over."""
    store.delete(intent.path)


def is_announced(store: Store, intent: Intent) -> bool:
    """Whether the batch is still to be finished."""
    return store.exists(intent.path)


def tear(store: Store, intent: Intent, told: str) -> None:
    """Leave word of a batch that can be neither finished nor taken back, for a person to look at. Raises
    `StoreError`: its intent must stay then.
    """
    answer = store.create(intent.torn_path, told.encode())
    if answer not in (Created.WON, Created.EXISTS):  # whoever finds it so says the same
        raise StoreError(
            f"what became of the batch could not be written down at {store.uri}/{intent.torn_path} "
            f"({store.failure(intent.torn_path) or answer.value})"
        )


def was_torn(store: Store, intent: Intent) -> bool:
    """Whether somebody found the batch to be torn."""
    return store.exists(intent.torn_path)


def pending(store: Store) -> Iterator[str]:
    """Paths of the intents there are, sorted."""
    for name in store.list_names(BATCH_DIR):
        if name.endswith(_PENDING) and not is_temporary(name):
            yield f"{BATCH_DIR}/{name}"


def torn(store: Store) -> Iterator[tuple[str, str]]:
    """Paths of what is left of torn batches, and what it says."""
    for name in store.list_names(BATCH_DIR):
        if name.endswith(_TORN) and not is_temporary(name):
            path = f"{BATCH_DIR}/{name}"
            try:
                yield path, store.read(path).to_pybytes().decode(errors="replace")
            except ObjectNotFound:
                continue


def read_intent(store: Store, path: str) -> Intent | None:
    """An intent by its path; None where it is gone. Raises `CorruptFile`."""
    try:
        data = store.read(path).to_pybytes()
    except ObjectNotFound:
        return None
    try:
        value = json.loads(data)
        intent = Intent(
            _text(value["uuid"]),
            tuple(_staged(each) for each in value["versions"]),
            tuple(_row_change(each) for each in value["rows"]),
            tuple(_removal(each) for each in value["removals"]),
        )
        if intent.path != path:
            raise ValueError(f"it is that of batch {intent.uuid!r}")
        return intent
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CorruptFile(
            f"a batch's intent must be a JSON object of its fields ({error!r})", path
        ) from error


def _text(value: Any) -> str:
    """Text of an intent, such as UTF-8 can write. Raises `ValueError`."""
    if not isinstance(value, str):
        raise ValueError(f"{type(value).__name__} is no text")
    value.encode()
    return value


def _place(value: Any) -> str:
    """The place of a table, or a path in one. Raises `ValueError`."""
    text = _text(value)
    resolve(text)
    return text


def _number(value: Any) -> int:
    """A version. Raises `ValueError`."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < VERSIONS:
        raise ValueError(f"{type(value).__name__} is no version")
    return value


def _encoded(intent: Intent) -> bytes:
    value: dict[str, Any] = {
        "uuid": intent.uuid,
        "versions": [
            {
                "id": list(each.id),
                "location": each.location,
                "version": each.version,
                "naming": each.naming,
                "path": each.path,
                "uuid": each.uuid,
                "undo": each.undo,
            }
            for each in intent.versions
        ],
        "rows": [
            {
                "id": list(each.id),
                "declare": each.declare,
                "location": each.location,
                "properties": each.properties,
            }
            for each in intent.rows
        ],
        "removals": [
            {"id": list(each.id), "location": each.location, "ranges": [list(pair) for pair in each.ranges]}
            for each in intent.removals
        ],
    }
    return json.dumps(value, indent=1).encode()


def _staged(value: Any) -> Staged:
    naming: Naming = "V1" if value["naming"] == "V1" else "V2"
    return Staged(
        _id(value),
        _place(value["location"]),
        _number(value["version"]),
        naming,
        _place(value["path"]),
        _text(value["uuid"]),
        _text(value["undo"]),
    )


def _row_change(value: Any) -> RowChange:
    properties = value["properties"]
    if properties is not None:
        properties = {_text(key): _text(text) for key, text in properties.items()}
    return RowChange(_id(value), bool(value["declare"]), _place(value["location"]), properties)


def _removal(value: Any) -> Removal:
    ranges = tuple((_number(start), _number(end)) for start, end in value["ranges"])
    return Removal(_id(value), _place(value["location"]), ranges)


def _id(value: Any) -> Id:
    if not isinstance(value["id"], list):
        raise ValueError("its id is no list")
    return tuple(_text(part) for part in value["id"])
