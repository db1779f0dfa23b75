"""The checker of tables: every version that ever was, against what actors did and were told.

Checks, by the numbers of docs/design/007-simulation.md:
T1  One version, one content: what was acknowledged as version N is what stands as N.
T2  No version is acknowledged that was made below an existing one.
T3  Each version differs from the one before it by what its operations say: every acknowledged write once,
    none that failed for certain, an unknown one wholly or not at all.
T4  What is retained can be read: no file that a retained version names is missing or differs.
T5  Where keys are unique no key has two rows.
T6  What a tag names can be read.
T7  A cleanup removes no version that is younger than it was asked for, by the store's clock.
T8  A read sees what was acknowledged before it began.
T9  Where a column is indexed, a filter on it finds what a scan of everything finds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tiltyard.errors import TiltyardError
from tiltyard.format import names
from tiltyard.session import Session
from tiltyard.store import Store
from tiltyard.store.memory import MemoryStore, Space
from tiltyard.table.refs import list_tags
from tiltyard.table.scan import Scan, ScanRequest
from tiltyard.table.snapshot import Snapshot, open_snapshot
from tiltyard.table.versions import list_versions
from tiltyard.testing.simulation.history import History, Operation, Outcome, Rows
from tiltyard.testing.simulation.world import World

KEY, VALUE = "id", "value"


def rows_of(snapshot: Snapshot) -> Rows:
    """The rows of a version: values by key."""
    table = Scan(snapshot, ScanRequest(columns=[KEY, VALUE])).table()
    found: dict[int, list[int]] = {}
    for key, value in zip(table[KEY].to_pylist(), table[VALUE].to_pylist(), strict=True):
        found.setdefault(key, []).append(value)
    return {key: tuple(sorted(values)) for key, values in sorted(found.items())}


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest that was made: its place in the order of all names, and whether greater versions stood."""

    order: int
    version: int
    content: bytes
    below_another: bool


class Chain:
    """Every version of a table of a world, whether it is retained or not.

    A number may have been given more than once: after a power cut took it, or to a sleeper for whom it was
    free again after a cleanup. `settled` decides which one is the version.
    """

    def __init__(self, world: World, path: str = "table") -> None:
        self._archive = MemoryStore(Space("archive"), clock=lambda: 0)
        self._made: dict[int, list[Manifest]] = {}
        self.settled: dict[int, Manifest] = {}
        for order, place, made in world.made(path):
            version = version_of(place)
            if version is None:
                self._archive.put(place, made.data)
                continue
            below = made_below_another(version, made.beside)
            self._made.setdefault(version, []).append(Manifest(order, version, made.data, below))
        for version, every in self._made.items():
            on_top = [each for each in every if not each.below_another]
            self.settle(version, (on_top or every)[-1])
        self._session = Session()
        self._rows: dict[int, Rows] = {}

    def settle(self, version: int, manifest: Manifest) -> None:
        """Let this manifest be the version."""
        self.settled[version] = manifest
        naming_path = names.manifest_path(version, "V2")
        self._archive.put(naming_path, manifest.content)

    def is_stray(self, version: int) -> bool:
        """Whether what stands as this version was made below a greater one: by a sleeper, who was told that
        its outcome is unknown. Nobody reads on from it.
        """
        return self._made[version][-1].below_another

    def acknowledged(self, operation: Operation) -> Manifest | None:
        """The manifest that an operation was told of: the newest of its number when the answer came."""
        assert operation.version is not None
        every = self._made.get(operation.version, [])
        return next((each for each in reversed(every) if each.order < operation.made_before), None)

    def snapshot(self, number: int) -> Snapshot:
        """A version, from everything that was ever written."""
        return open_snapshot(self._archive, self._session, version=number)

    def rows(self, number: int) -> Rows:
        """The rows of a version."""
        found = self._rows.get(number)
        if found is None:
            found = self._rows[number] = rows_of(self.snapshot(number))
        return found


def version_of(place: str) -> int | None:
    """The version whose manifest has this path in a table; None for every other file."""
    directory, _, name = place.rpartition("/")
    parsed = names.parse_manifest_name(name) if directory == names.VERSIONS_DIR else None
    return None if parsed is None or parsed[1] == "detached" else parsed[0]


def made_below_another(version: int, beside: Sequence[str]) -> bool:
    """Whether a greater version stood among the names beside a manifest when it was made."""
    return any((version_of(f"{names.VERSIONS_DIR}/{name}") or 0) > version for name in beside)


def check_table(
    world: World, history: History, store: Store, *, path: str = "table", unique: bool = False
) -> list[str]:
    """What is wrong with a table after a run; [] when nothing is. Run it in calm weather, in an actor."""
    wrong = list(history.wrong)
    chain = Chain(world, path)
    retained = [each.version for each in list_versions(store)]
    last = max(retained, default=0)
    claims: dict[int, list[Operation]] = {}
    for each in history.operations:
        if each.outcome is Outcome.DONE and each.version is not None and each.effect is not None:
            claims.setdefault(each.version, []).append(each)
        if isinstance(each.error, Exception) and not isinstance(each.error, TiltyardError):
            wrong.append(f"an error that is none of ours: {each}")
    for number, members in sorted(claims.items()):
        version = chain.acknowledged(members[0])
        if any(chain.acknowledged(each) is not version for each in members):
            wrong.append(f"T1: version {number} was acknowledged twice: {', '.join(map(str, members))}")
        if version is None or number > last:
            wrong.append(f"T1: version {number} was acknowledged and is gone: {members[0]}")
        elif version.below_another:
            wrong.append(f"T2: version {number} was acknowledged and made below another: {members[0]}")
        else:
            chain.settle(number, version)
        if len(members) > 1 and not all(each.groups for each in members):
            wrong.append(f"T1: one version acknowledged to several: {', '.join(map(str, members))}")
    if wrong:
        return wrong
    try:
        wrong += _check_steps(chain, history, claims, last)
    except TiltyardError as error:
        wrong.append(f"T4: a version cannot be read: {type(error).__name__}: {error}")
    wrong += _check_retained(chain, store, retained)
    wrong += _check_tags(store)
    if not wrong:
        wrong += _check_indices(store)
    if unique and last:
        doubled = {key: values for key, values in chain.rows(last).items() if len(values) > 1}
        if doubled:
            wrong.append(f"T5: doubled rows: {doubled}")
    return wrong


def _check_tags(store: Store) -> list[str]:
    wrong = []
    for name in list_tags(store):
        try:
            rows_of(open_snapshot(store, Session(), tag=name))
        except TiltyardError as error:
            wrong.append(f"T6: tag {name!r} cannot be read: {type(error).__name__}: {error}")
    return wrong


def _check_indices(store: Store) -> list[str]:
    newest = open_snapshot(store, Session())
    if not newest.manifest.indices:
        return []
    wrong = []
    rows = rows_of(newest)
    for key in {*rows, max(rows, default=0) + 1}:
        found = Scan(newest, ScanRequest(columns=[VALUE], where=f"{KEY} = {key}")).table()
        told = tuple(sorted(found[VALUE].to_pylist()))
        if told != rows.get(key, ()):
            wrong.append(f"T9: by the index key {key} has values {told}, a scan finds {rows.get(key, ())}")
    return wrong


def _check_steps(chain: Chain, history: History, claims: dict[int, list[Operation]], last: int) -> list[str]:
    open_ends = [
        each
        for each in history.operations
        if each.effect is not None and each.outcome in (Outcome.UNKNOWN, Outcome.RUNNING)
    ]
    before = chain.rows(1)  # made before the run began
    for number in range(2, last + 1):
        if number not in chain.settled:
            return [f"T1: version {number} was never made, though {last} is"]
        now = chain.rows(number)
        members = claims.get(number, [])
        expected = _after(before, members, chain.rows)
        if now != expected:
            found = _explained(before, now, members, open_ends, chain.rows)
            if found is None:
                told = ", ".join(map(str, members)) or "nobody's for certain"
                return [f"T3: version {number} ({told}) makes {_difference(before, now)}"]
            for each in found:
                open_ends.remove(each)
        before = now
    return []


def _after(before: Rows, members: list[Operation], rows: Callable[[int], Rows]) -> Rows:
    after = before
    for each in members:
        assert each.effect is not None
        after = each.effect(after, rows)
    return after


def _explained(
    before: Rows,
    now: Rows,
    members: list[Operation],
    open_ends: list[Operation],
    rows: Callable[[int], Rows],
) -> list[Operation] | None:
    """Operations of unknown outcome that, together with the members, make these rows."""
    if not members or all(each.groups for each in members):
        together: list[Operation] = []
        for each in open_ends:  # a group may hold members whose processes died
            if each.groups and _after(now, [], rows) == now:
                with_it = _after(before, [*members, *together, each], rows)
                if all(set(values) <= set(now.get(key, ())) for key, values in with_it.items()):
                    together.append(each)
        if together and _after(before, [*members, *together], rows) == now:
            return together
    if not members:
        for each in open_ends:
            if _after(before, [each], rows) == now:
                return [each]
    return None


def _difference(before: Rows, now: Rows) -> str:
    changed = {
        key: (before.get(key, ()), now.get(key, ()))
        for key in sorted({*before, *now})
        if before.get(key) != now.get(key)
    }
    return "no change" if not changed else f"changes (key: before, after) {changed}"


def _check_retained(chain: Chain, store: Store, retained: list[int]) -> list[str]:
    wrong = []
    session = Session()
    for number in retained:
        if chain.is_stray(number):
            continue
        try:
            found = rows_of(open_snapshot(store, session, version=number))
        except TiltyardError as error:
            wrong.append(f"T4: version {number} cannot be read: {type(error).__name__}: {error}")
            continue
        if not wrong and found != chain.rows(number):
            wrong.append(f"T4: version {number} reads {_difference(chain.rows(number), found)}")
    return wrong
