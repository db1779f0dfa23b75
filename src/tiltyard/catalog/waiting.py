"""Changes that the process whose turn it is makes for those that wait (decisions D16, D39; design 008).

Who finds the turn taken, and only wants a new row, leaves a *request*, a small file in `_tiltyard/waiting/`
of the register. Who has the turn puts the rows that are asked for into its own rewrite, which names the
requests (`tiltyard.members` of its transaction), and then answers each. The files of a request:

    `<uuid>`             asked: whoever removes it decides, its author or who takes it over
    (none)               taken over
    `<uuid>.answer`      `done` by a version that stands, `no` (it was not done and will not be), or the row
                         that has its id in a version that stands
    `<uuid>.withdrawn`   its author no longer waits for the answer

Requests are neither durable nor needed: what decides is the version. Invariants, checked by
tests/catalog/test_waiting.py and the simulation (K2):

1. A request is in at most one version. Who has taken it over puts it into the version after one that was the
   newest before it was taken or, at a later attempt, before it was found not to be withdrawn.
2. `done` is said of a version that stands, as durable as the asker would have made it, and so is what has
   the id: that version came while its asker waited. Who is told `no` looks itself why.
3. An asker without an answer withdraws, looks for its request in every version since, and ends the doubt with
   a version of its own: after that one nobody can put the request anywhere.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from tiltyard import runtime
from tiltyard.catalog.found import is_directory
from tiltyard.catalog.names import SEPARATOR, WAITING_DIR, check_new_id
from tiltyard.catalog.rows import NAMESPACE, TABLE, Row
from tiltyard.catalog.taking import check_parents
from tiltyard.errors import ObjectNotFound, OutcomeUnknown, StoreError, TiltyardError
from tiltyard.format import names
from tiltyard.table.catching_up import carries
from tiltyard.table.snapshot import read_transaction
from tiltyard.table.turnstile import TURNSTILE_SECONDS, read_progress, stalls, try_turn
from tiltyard.table.versions import VersionLocation

if TYPE_CHECKING:
    from tiltyard.catalog.register import Register, RegisterTable
    from tiltyard.catalog.round import Draft
    from tiltyard.store import Store

ANSWER = ".answer"
WITHDRAWN = ".withdrawn"
DONE, NO = b"done", b"no"
FORMAT = 1
"""Requests of another format are left to those who know it."""

MAX_REQUEST_BYTES = 65_536
MAX_SERVED = 256
"""Requests that one rewrite takes over."""

MAX_AGE_SECONDS = 10.0
"""An older request (boot clock) is that of a process that died: nobody takes it over."""

LOOK_SECONDS = 0.001
"""Pause between two looks at a request; by chance up to half as much more. Shorter ones take from the server
what they save its askers.
"""

DOUBT_SECONDS = 0.5
"""How long a request that was taken over may stay without an answer."""

MAX_WAITS = 30
"""Times `TURNSTILE_SECONDS` that a request waits while others go on without taking it over."""

REFUSALS = (errno.EACCES, errno.EPERM, errno.EROFS)
"""Of who may not write into the directory: then nobody has seen the request."""

MAX_SEARCHED = 10_000
"""Versions in which a request without an answer is looked for."""

MAX_TAKEN_SECONDS = 60.0
"""Who took a request over longer ago (boot clock) does not make it any more; its files go after an hour."""


@dataclass(frozen=True, slots=True)
class NewRow:
    """A change that can be made for another process: a row whose id is free, below namespaces that exist."""

    row: Row
    answer: Any
    """What its caller is told once the row is there."""
    place: str = ""
    """A directory of the root that must not be there."""
    refused: Callable[[Row], Any] | None = None
    """What its caller is told, or by what it fails, where the id has this row; None: the register says."""


class Fate(Enum):
    """What became of a request."""

    TURN = "our turn came first: it is withdrawn, and the turn is ours"
    ALONE = "nobody goes on: it is withdrawn"
    REFUSED = "we may not ask"
    DONE = "it was done"
    NO = "it was not done"
    TAKEN = "its id has a row"
    DOUBT = "it was taken over, and there is no answer"


# -- asking --------------------------------------------------------------------------------------


class Request:
    """What one process asks of the others."""

    def __init__(self, table: RegisterTable, new: NewRow, since: int, data: bytes) -> None:
        self.new = new
        self._table = table
        self._store = table.store
        self._since = since
        self._data = data
        self._uuid = str(runtime.uuid4())
        self._path = f"{WAITING_DIR}/{self._uuid}"
        self.found: Row | None = None
        """What has the id, where that was the answer."""

    def wait(self, turn: ExitStack) -> Fate:
        """Ask, and wait until it was done, or our turn has come, which `turn` holds then."""
        is_there = False
        try:
            self._store.write_hint(self._path, self._data)
            is_there = True
            return self._wait(turn)
        except StoreError as error:
            if error.errno in REFUSALS and not is_there:
                return Fate.REFUSED
            turn.close()
            return Fate.ALONE if self._withdraw() else Fate.DOUBT
        except BaseException:
            self._withdraw()
            raise

    def _wait(self, turn: ExitStack) -> Fate:
        store, session = self._store, self._table.session
        seen, since, waits = read_progress(store), runtime.monotonic(), 0
        is_taken = False
        while True:
            pause = LOOK_SECONDS * (1 + runtime.random().random() / 2)
            runtime.sleep(pause)
            now = runtime.monotonic()
            if not is_taken and not store.exists(self._path):
                is_taken, since = True, now
            if is_taken:
                answer = self._answer()
                if answer is not None:
                    return answer
                if now - since > DOUBT_SECONDS:
                    return Fate.DOUBT
            elif try_turn(store, turn):
                if self._withdraw():
                    return Fate.TURN
                turn.close()  # taken over a moment ago
            elif now - since > TURNSTILE_SECONDS:
                before, seen, since, waits = seen, read_progress(store), now, waits + 1
                if (seen == before or waits > MAX_WAITS) and self._withdraw():
                    stalls(store, session)
                    return Fate.ALONE

    def _answer(self) -> Fate | None:
        path = self._path + ANSWER
        try:
            said = self._store.read(path).to_pybytes()
        except ObjectNotFound:
            return None
        fate = {DONE: Fate.DONE, NO: Fate.NO}.get(said, Fate.TAKEN)
        if fate is Fate.TAKEN:
            self.found = _decoded_row(said, self.new.row.object_id)
            if self.found is None:
                return None  # it is being written
        with suppress(StoreError):
            self._store.delete(path)
        return fate

    def _withdraw(self) -> bool:
        """Whether nobody has taken it over, nor will."""
        try:
            return self._store.delete(self._path)
        except StoreError:
            return False

    # -- without an answer -----------------------------------------------------------------------

    def stop_waiting(self) -> None:
        """Who has taken it over makes no attempt on what it looks at from now on. Raises `OutcomeUnknown`."""
        try:
            self._store.write_hint(self._path + WITHDRAWN, b"")
        except StoreError as error:
            raise self.unknown(error) from error

    def is_in(self, register: Register) -> bool:
        """Whether a version since we asked, up to this one, has done it. Raises `OutcomeUnknown`."""
        snapshot = register.snapshot
        assert snapshot is not None
        naming = snapshot.location.naming
        if register.version - self._since > MAX_SEARCHED:
            raise self.unknown(f"{register.version - self._since} versions were made since")
        try:
            for version in range(register.version, self._since, -1):
                location = VersionLocation(version, names.manifest_path(version, naming), naming)
                theirs = read_transaction(self._store, self._table.session, location)
                if theirs is not None and carries(theirs, self._uuid):
                    return True
        except StoreError as error:
            raise self.unknown(error) from error
        self._since = register.version
        return False

    def unknown(self, why: BaseException | str) -> OutcomeUnknown:
        """The error for a doubt that cannot be ended."""
        return OutcomeUnknown(
            f"another process was to put {self.new.row.object_id!r} into the catalog at "
            f"{self._table.root.uri}, and whether it did could not be found out ({why}): look again "
            "whether it is there",
            uuid=self._uuid,
        )


def request(table: RegisterTable, new: NewRow) -> Request | None:
    """A request for a row; None where nobody could serve it: the change waits for its turn."""
    store = table.store
    try:
        if store.dir_stat(names.VERSIONS_DIR) is None:
            return None  # it is not known to show every process the same files at once
        since = table.version_of_late()
    except StoreError:
        return None
    data = _encoded(new, table.root.durable)
    return None if not since or data is None else Request(table, new, since, data)


def _encoded(new: NewRow, durable: bool) -> bytes | None:
    row = new.row
    if row.base_objects is not None or row.extra:
        return None
    facts = {
        "format": FORMAT,
        "id": row.object_id,
        "type": row.object_type,
        "location": row.location,
        "metadata": row.metadata,
        "place": new.place,
        "durable": durable,
        "asked_at": runtime.monotonic(),
        "shows": new.refused is not None,
    }
    try:
        data = json.dumps(facts, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return None
    return data if len(data) <= MAX_REQUEST_BYTES else None


def _decoded(data: bytes, durable: bool) -> _Taken | None:
    """The request that we can serve, from its file's content."""
    try:
        facts = json.loads(data)
    except ValueError:
        return None  # it is being written
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        return None
    id, kind, place, asked_at = (facts.get(key) for key in ("id", "type", "place", "asked_at"))
    location, metadata = facts.get("location"), facts.get("metadata")
    if not (isinstance(id, str) and isinstance(place, str) and kind in (NAMESPACE, TABLE)):
        return None
    if not (isinstance(location, str | None) and isinstance(metadata, str | None)):
        return None
    if facts.get("durable") is not False and not durable:
        return None
    now = runtime.monotonic()
    age = now - asked_at if isinstance(asked_at, float) else -1.0
    if not 0.0 <= age <= MAX_AGE_SECONDS:
        return None
    return _Taken(NewRow(Row(id, kind, location, metadata), None, place), now, facts.get("shows") is True)


def _encoded_row(row: Row) -> bytes:
    """What is told of a row that has the id: as much of it as refusals need."""
    facts = {"type": row.object_type, "location": row.location, "metadata": row.metadata}
    return json.dumps(facts).encode()


def _decoded_row(data: bytes, id: str) -> Row | None:
    try:
        facts = json.loads(data)
        return Row(id, facts["type"], facts["location"], facts["metadata"])
    except (ValueError, KeyError, TypeError):
        return None


# -- serving -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Taken:
    """A request that was taken over, when, and whether its author can be told what has the id."""

    new: NewRow
    at: float
    shows: bool
    found: Row | None = None
    """What has the id in the version that is tried: the row is not put."""


class Served:
    """The requests that one round has taken over."""

    def __init__(self, table: RegisterTable) -> None:
        self._table = table
        self._taken: dict[str, _Taken] = {}

    def __len__(self) -> int:
        return len(self._taken)

    @property
    def uuids(self) -> list[str]:
        """The requests whose rows were put: what the version that carries them has to name."""
        return [uuid for uuid, taken in self._taken.items() if taken.found is None]

    def put(self, draft: Draft, *, more: bool) -> None:
        """Put the rows into a draft of the version after one that was looked at before; those that cannot be
        put are given back. `more`: take over what is asked for by now.
        """
        for uuid, taken in list(self._taken.items()):
            if self._is_withdrawn(uuid, taken.at):
                del self._taken[uuid]
        if more:
            self._take_over()
        for uuid, taken in list(self._taken.items()):
            try:
                taken.found = draft.attempt(partial(_put, taken.new, self._table.root))
                is_plain = taken.found is None or taken.shows
            except TiltyardError:
                is_plain = False
            if not is_plain:
                self._give(uuid, NO)

    def _is_withdrawn(self, uuid: str, taken_at: float) -> bool:
        if runtime.monotonic() - taken_at > MAX_TAKEN_SECONDS:
            return True
        try:
            return self._table.store.exists(f"{WAITING_DIR}/{uuid}{WITHDRAWN}")
        except StoreError:
            return True  # perhaps: its author does not wait longer than it must

    def _take_over(self) -> None:
        store = self._table.store
        try:
            listed = [each for each in store.list_names(WAITING_DIR) if "." not in each]
        except StoreError:
            return
        for uuid in listed:  # among them those of processes that died, until they are swept
            if len(self._taken) >= MAX_SERVED:
                return
            path = f"{WAITING_DIR}/{uuid}"
            try:
                taken = _decoded(store.read(path).to_pybytes(), self._table.root.durable)
                if taken is not None and store.delete(path):
                    self._taken[uuid] = taken
            except StoreError:
                continue  # if it was removed, its author finds out that nobody has made it

    def done(self) -> None:
        """The version that names the requests stands."""
        for uuid, taken in list(self._taken.items()):
            self._give(uuid, DONE if taken.found is None else _encoded_row(taken.found))

    def give_back(self) -> None:
        """No further version will be tried, and none stands."""
        for uuid in list(self._taken):
            self._give(uuid, NO)

    def _give(self, uuid: str, answer: bytes) -> None:
        del self._taken[uuid]
        with suppress(StoreError):
            self._table.store.write_hint(f"{WAITING_DIR}/{uuid}{ANSWER}", answer)


def _put(new: NewRow, root: Store, draft: Draft) -> Row | None:
    """Put a row as its asker would; the row that has its id, if any. Raises TiltyardError if not plain."""
    row = new.row
    id = tuple(row.object_id.split(SEPARATOR))
    check_parents(draft.rows, id)
    found = draft.rows.find(row.object_id)
    if found is not None:
        return found
    check_new_id(id, row.object_type)
    if new.place and is_directory(root, new.place):
        raise StoreError(f"{row.object_id!r} is not free")
    draft.put(row)
    return None
