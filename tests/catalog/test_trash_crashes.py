"""A drop, undrop, rename or purge that dies before or after any of its calls of the store: readers are never
wrong meanwhile, and the next change of the catalog finishes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from lakes import directories, fresh, has, moves_left, planned, put, trash_left, values
from tiltyard.catalog import Catalog
from tiltyard.catalog.namespaces import create_namespace
from tiltyard.catalog.purging import purge
from tiltyard.catalog.renaming import rename_table
from tiltyard.catalog.trash import drop_table, dropped_tables, undrop_table
from tiltyard.errors import TiltyardError
from tiltyard.testing.faults import Crashed, Fault, Plan, Rule

Act = Callable[[Catalog], object]
Id = tuple[str, ...]

T, U, CHILD, OTHER = ("t",), ("u",), ("n", "t"), ("n", "u")
CHANGING = ("create", "put", "writer*", "move_dir", "delete", "delete_tree", "copy_create", "write_hint")


def fill(root: str, id: Id, dropped: bool) -> None:
    lake = fresh(root)
    create_namespace(lake, ("n",))
    put(lake, id, 1, 2, properties={"k": "v"})
    if dropped:
        drop_table(lake, id)


def changes(make: Callable[[str], str], act: Act, id: Id, dropped: bool) -> int:
    """How many calls that change storage the act makes."""
    root = make("count")
    fill(root, id, dropped)
    plan = Plan()
    act(planned(root, plan))
    return sum(plan.calls(kind) for kind in CHANGING)


def struck(
    make: Callable[[str], str], act: Act, id: Id, fault: Fault, *, dropped: bool = False
) -> Iterator[tuple[str, bool]]:
    """The act with a fault at each of its changing calls: the root, and whether the act said it was done."""
    for at in range(1, changes(make, act, id, dropped) + 1):
        root = make(f"{fault.value}-{at}")
        fill(root, id, dropped)
        plan = _AnyChange(fault, at)
        done = False
        with suppress(Crashed, TiltyardError):
            act(planned(root, plan))
            done = True
        assert plan.reached
        yield root, done


class _AnyChange(Plan):
    """A plan that strikes at the k-th call that changes storage, of whatever kind."""

    def __init__(self, fault: Fault, at: int) -> None:
        super().__init__(*(Rule(fault, kind, at=1) for kind in CHANGING))
        self._at = at
        self._seen = 0
        self.reached = False

    def _rule_for(self, call: str, path: str) -> Rule | None:
        rule = super()._rule_for(call, path)
        for each in self.rules:
            each.seen = 0
        if rule is None:
            return None
        self._seen += 1
        if self._seen != self._at:
            return None
        self.reached = True
        return rule


@pytest.fixture
def make(tmp_path: Path) -> Callable[[str], str]:
    return lambda name: str(tmp_path / name)


STRIKES = [Fault.CRASH, Fault.CRASH_AFTER, Fault.FAIL_BEFORE, Fault.LOSE_ANSWER, Fault.LOSE_REQUEST]


@pytest.mark.parametrize("fault", STRIKES, ids=lambda fault: fault.name)
@pytest.mark.parametrize("id", [T, CHILD])
def test_a_drop_that_dies_has_happened_or_has_not(make: Callable[[str], str], id: Id, fault: Fault) -> None:
    for root, done in struck(make, lambda lake: drop_table(lake, id), id, fault):
        gone = not has(fresh(root), id)
        assert gone or not done
        if gone:
            assert [each.id for each in dropped_tables(fresh(root))] == [id]
        else:
            assert values(fresh(root), id) == [1, 2]
            assert dropped_tables(fresh(root)) == ()
        create_namespace(fresh(root), ("next",))
        assert has(fresh(root), id) is not gone
        assert moves_left(fresh(root)) == 0
        if gone:
            assert not [name for name in directories(fresh(root)) if name.endswith(".lance")]
            put(fresh(root), id, 3)
            drop_table(fresh(root), id)
            undrop_table(fresh(root), trash=dropped_tables(fresh(root))[0].trash)
        assert values(fresh(root), id) == [1, 2]


@pytest.mark.parametrize("fault", STRIKES, ids=lambda fault: fault.name)
@pytest.mark.parametrize("id", [T, CHILD])
def test_an_undrop_that_dies_has_happened_or_has_not(
    make: Callable[[str], str], id: Id, fault: Fault
) -> None:
    for root, done in struck(make, lambda lake: undrop_table(lake, id), id, fault, dropped=True):
        back = has(fresh(root), id)
        assert back or not done
        assert trash_left(fresh(root)) == (0 if back else 1)
        if back:
            assert values(fresh(root), id) == [1, 2]
        create_namespace(fresh(root), ("next",))
        assert has(fresh(root), id) is back
        assert moves_left(fresh(root)) == 0
        if not back:
            undrop_table(fresh(root), id)
        assert values(fresh(root), id) == [1, 2]
        if id == T:
            assert directories(fresh(root)) == ["t.lance"]


@pytest.mark.parametrize("fault", STRIKES, ids=lambda fault: fault.name)
@pytest.mark.parametrize(("id", "new"), [(T, U), (T, OTHER), (CHILD, OTHER), (CHILD, U)])
def test_a_rename_that_dies_has_happened_or_has_not(
    make: Callable[[str], str], id: Id, new: Id, fault: Fault
) -> None:
    for root, done in struck(make, lambda lake: rename_table(lake, id, new), id, fault):
        now = [each for each in (id, new) if has(fresh(root), each)]
        assert now == [new] if done else len(now) == 1
        assert values(fresh(root), now[0]) == [1, 2]
        create_namespace(fresh(root), ("next",))
        assert [each for each in (id, new) if has(fresh(root), each)] == now
        assert moves_left(fresh(root)) == 0
        assert values(fresh(root), now[0]) == [1, 2]
        assert len(directories(fresh(root))) == 1
        if now == [new]:
            put(fresh(root), id, 3)
            assert (values(fresh(root), id), values(fresh(root), new)) == ([3], [1, 2])


@pytest.mark.parametrize("fault", STRIKES, ids=lambda fault: fault.name)
@pytest.mark.parametrize("id", [T, CHILD])
def test_a_purge_that_dies_is_finished_by_the_next_one(
    make: Callable[[str], str], id: Id, fault: Fault
) -> None:
    for root, _ in struck(make, lambda lake: purge(lake, 0), id, fault, dropped=True):
        assert not has(fresh(root), id)
        lake = fresh(root)
        if dropped_tables(lake):
            undrop_table(lake, id)
            assert values(lake, id) == [1, 2]
            continue
        purge(lake)
        purge(lake)
        assert not [each for each in lake.store.list("") if not each.path.startswith("__manifest")]
        assert trash_left(lake) == (1 if id == T else 0)


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.LOSE_REQUEST, Fault.LOSE_ANSWER])
def test_a_move_that_the_store_refuses_is_done_by_the_next_change(
    make: Callable[[str], str], fault: Fault
) -> None:
    root = make("lake")
    fill(root, T, False)
    plan = Plan(Rule(fault, "move_dir", path="*_dropped_t", times=None))
    lake = planned(root, plan)
    drop_table(lake, T)
    assert not has(fresh(root), T)
    assert ("t.lance" in directories(fresh(root))) is (fault is not Fault.LOSE_ANSWER)
    create_namespace(lake, ("refused",))  # others are not held up by it
    assert not has(fresh(root), T)
    create_namespace(fresh(root), ("next",))
    assert "t.lance" not in directories(fresh(root))
    assert moves_left(fresh(root)) == 0
    undrop_table(fresh(root), T)
    assert values(fresh(root), T) == [1, 2]
