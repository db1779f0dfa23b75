"""The checker of tables: every version that ever was, against what actors did, were told and were shown.

Checks, by the numbers of docs/design/007-simulation.md:
T1  One version, one content: what was acknowledged as version N is what stands as N.
T2  No version is acknowledged that was made below an existing one.
T3  Each version differs from the one before it by what its operations say: every acknowledged write once,
    none that failed for certain, an unknown one wholly or not at all, and only where it was under way then.
T4  What is retained can be read: no file that a retained version names is missing or differs.
T5  Where keys are unique no key has two rows.
T6  What a tag names can be read.
T7  A cleanup removes no version that is younger than it was asked for, by the store's clock.
T8  A read sees what was acknowledged, or shown to anybody, before it began.
T9  Where a column is indexed, a filter on it finds what a scan of everything finds.
T10 A read shows the rows of the version that it says it shows, and of the one that was asked for.
T11 A tag that was acknowledged, and that nobody moved or deleted, is there and names its version.
T12 Whoever comes next finds the newest version no older than what was told, and can write and read on
    (`tables.TableScenario`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

from tiltyard.errors import TiltyardError
from tiltyard.session import Session
from tiltyard.store import Store
from tiltyard.table.refs import list_tags
from tiltyard.table.snapshot import Snapshot, open_snapshot
from tiltyard.table.versions import list_versions
from tiltyard.testing.simulation.chain import KEY, Chain, rows_of
from tiltyard.testing.simulation.history import History, Operation, Outcome, Rows, Saw
from tiltyard.testing.simulation.world import World

MAX_TOGETHER = 8
"""Operations of unknown outcome of one process that are tried in every combination."""


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
    for number, members in sorted(claims.items()):
        wrong += _check_claim(chain, number, members, last)
    if wrong:
        return wrong
    try:
        wrong += _check_steps(chain, history, claims, last, world.late_ns)
        wrong += _check_shown(chain, history)
    except TiltyardError as error:
        wrong.append(f"T4: a version cannot be read: {type(error).__name__}: {error}")
    wrong += _check_retained(chain, store, retained)
    wrong += _check_tags(chain, history, store)
    if not wrong:
        wrong += _check_indices(chain, store, retained)
    if unique and last:
        doubled = {key: values for key, values in chain.rows(last).items() if len(values) > 1}
        if doubled:
            wrong.append(f"T5: doubled rows: {doubled}")
    return wrong


def _check_claim(chain: Chain, number: int, members: list[Operation], last: int) -> Iterator[str]:
    """What is wrong with what was told of one version."""
    version = chain.acknowledged(members[0])
    told = ", ".join(map(str, members))
    if any(chain.acknowledged(each) is not version for each in members):
        yield f"T1: version {number} was acknowledged twice: {told}"
    if version is None:
        yield f"T1: version {number} was acknowledged, and not made while its operation ran: {told}"
    elif number > last:
        yield f"T1: version {number} was acknowledged and is gone: {told}"
    elif version.below_another:
        yield f"T2: version {number} was acknowledged and made below another: {told}"
    else:
        chain.settle(number, version)
    if len(members) > 1 and not (all(each.groups for each in members) and _are_of_one(members)):
        yield f"T1: one version acknowledged to several: {told}"


def _are_of_one(operations: Sequence[Operation]) -> bool:
    """Whether all are of one process, which alone can group them."""
    return len({each.process for each in operations}) < 2


# -- steps from version to version ------------------------------------------------------------------


def _check_steps(
    chain: Chain, history: History, claims: dict[int, list[Operation]], last: int, late_ns: int
) -> list[str]:
    open_ends = [
        each
        for each in history.operations
        if each.effect is not None and each.outcome in (Outcome.UNKNOWN, Outcome.RUNNING)
    ]
    before = chain.rows(1)  # made before the run began
    for number in range(2, last + 1):
        made = chain.settled.get(number)
        if made is None:
            return [f"T1: version {number} was never made, though {last} is"]
        now = chain.rows(number)
        members = claims.get(number, [])
        able = [each for each in open_ends if each.may_have_made(made.order, made.at_ns, late_ns)]
        found = explained(before, now, members, able, chain.rows)
        if found is None:
            told = ", ".join(map(str, members)) or "nobody's for certain"
            return [f"T3: version {number} ({told}) makes {_difference(before, now)}"]
        open_ends = [each for each in open_ends if each not in found]
        before = now
    return []


def _after(before: Rows, operations: Sequence[Operation], rows: Callable[[int], Rows]) -> Rows:
    after = before
    for each in operations:
        assert each.effect is not None
        after = each.effect(after, rows)
    return after


def explained(
    before: Rows,
    now: Rows,
    members: list[Operation],
    able: list[Operation],
    rows: Callable[[int], Rows],
) -> list[Operation] | None:
    """Operations of unknown outcome that, together with those that were told of the version, make these
    rows: [] where none is needed, None where nothing explains them.

    `able`: those that were under way when the version was made. Only operations of one process can share a
    version (group commit).
    """
    if _after(before, members, rows) == now:
        return []
    if not members:
        for each in able:
            if _after(before, [each], rows) == now:
                return [each]
    if not all(each.groups for each in members):
        return None
    processes = {each.process for each in members or able}
    for process in sorted(processes):
        group = [each for each in able if each.groups and each.process == process][:MAX_TOGETHER]
        for size in range(1 if members else 2, len(group) + 1):
            for some in combinations(group, size):
                if _after(before, [*members, *some], rows) == now:
                    return list(some)
    return None


def _difference(before: Rows, now: Rows) -> str:
    changed = {
        key: (before.get(key, ()), now.get(key, ()))
        for key in sorted({*before, *now})
        if before.get(key) != now.get(key)
    }
    return "no change" if not changed else f"changes (key: before, after) {changed}"


# -- what is read -----------------------------------------------------------------------------------


def _check_shown(chain: Chain, history: History) -> Iterator[str]:
    """T10."""
    for each in history.operations:
        if each.saw is None or each.saw.rows is None:
            continue
        expected = [_among(rows, each.saw) for rows in chain.shown(each.saw.version, each)]
        if not expected:
            yield f"T10: {each} was shown version {each.saw.version}, which did not stand before its end"
        elif each.saw.rows not in expected:
            yield (
                f"T10: {each} was shown version {each.saw.version} with "
                f"{_difference(expected[-1], each.saw.rows)}"
            )


def _among(rows: Rows, saw: Saw) -> Rows:
    return rows if saw.keys is None else {key: had for key, had in rows.items() if key in saw.keys}


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


def _check_tags(chain: Chain, history: History, store: Store) -> Iterator[str]:
    """T6, T11."""
    named: dict[str, int] = {}
    for name, tag in list_tags(store).items():
        named[name] = tag.version
        try:
            found = rows_of(open_snapshot(store, Session(), tag=name))
        except TiltyardError as error:
            yield f"T6: tag {name!r} cannot be read: {type(error).__name__}: {error}"
            continue
        if not chain.is_stray(tag.version) and found != chain.rows(tag.version):
            yield f"T6: tag {name!r} reads {_difference(chain.rows(tag.version), found)}"
    for each in history.operations:
        if each.tagged is not None and each.outcome is Outcome.DONE:
            name, version = each.tagged
            if name not in named:
                yield f"T11: tag {name!r} is gone: {each}"
            elif named[name] != version:
                yield f"T11: tag {name!r} names version {named[name]}: {each}"
        if each.saw is not None and each.saw.tag is not None:
            given = {other.tagged for other in history.operations if other.outcome is not Outcome.FAILED}
            if (each.saw.tag, each.saw.version) not in given:
                yield f"T11: nobody let the tag name version {each.saw.version}: {each}"


# -- indices ----------------------------------------------------------------------------------------


def _check_indices(chain: Chain, store: Store, retained: list[int]) -> list[str]:
    """T9: everything by the index in each version; each key that ever was, and each half, in the newest."""
    wrong: list[str] = []
    session = Session()
    for number in retained:
        if chain.is_stray(number):
            continue
        snapshot = open_snapshot(store, session, version=number)
        if not snapshot.manifest.indices:
            continue
        rows = chain.rows(number)
        keys = sorted({*chain.keys(), max(rows, default=0) + 1})
        ranges = [range(keys[0], keys[-1] + 1)]
        if number == retained[-1]:
            middle = keys[len(keys) // 2]
            ranges += [range(keys[0], middle), range(middle, keys[-1] + 1)]
            ranges += [range(key, key + 1) for key in keys]
        for asked in ranges:
            wrong += _asked(snapshot, asked, rows)
    return wrong


def between(keys: range) -> str:
    """A filter for keys."""
    if len(keys) == 1:
        return f"{KEY} = {keys.start}"
    return f"{KEY} >= {keys.start} AND {KEY} < {keys.stop}"


def _asked(snapshot: Snapshot, asked: range, rows: Rows) -> Iterator[str]:
    where = between(asked)
    told = rows_of(snapshot, where)
    there = {key: values for key, values in rows.items() if key in asked}
    if told != there:
        yield f"T9: version {snapshot.version} by its index where {where}: {_difference(there, told)}"
