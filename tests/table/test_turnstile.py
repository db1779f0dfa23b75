"""The line before the turnstile: who waits comes next, and who stalls holds nobody up for long."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tiltyard import runtime
from tiltyard.format import names
from tiltyard.session import Session
from tiltyard.store import Store, open_store
from tiltyard.table import turnstile
from tiltyard.table.turnstile import LINE, TURN, queue_up
from tiltyard.testing.faults import Fault, FaultyStore, Plan, Rule


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = open_store(str(tmp_path / "t"), {"durable": False})
    made.put(f"{names.VERSIONS_DIR}/x", b"")
    return made


def asked(plan: Plan) -> list[str]:
    """The locks that were asked for, in order, each run of one once."""
    paths = [path for call, path in plan.trace if call == "turnstile"]
    return [path for at, path in enumerate(paths) if at == 0 or paths[at - 1] != path]


def turn(store: Store, session: Session, *, lost: bool = False) -> bool:
    with ExitStack() as held:
        return queue_up(store, session, held, lost=lost)


@pytest.mark.parametrize("now", [0.0, 33_600.0, 1e9])  # clocks whose floats round one way and the other
def test_a_free_turn_is_taken_through_the_line_and_the_line_left(
    store: Store, now: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "monotonic", lambda: now)
    plan, held = Plan(), ExitStack()
    assert queue_up(FaultyStore(store, plan), Session(), held, lost=False)
    assert asked(plan) == [LINE, TURN]
    with store.turnstile(LINE, 0.0) as line, store.turnstile(TURN, 0.0) as mine:
        assert (line, mine) == (True, False)
    held.close()
    with store.turnstile(TURN, 0.0) as mine:
        assert mine


def test_the_turn_is_taken_again_at_once_but_not_for_long(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, session = Plan(), Session()
    watched = FaultyStore(store, plan)
    monkeypatch.setattr(turnstile, "AGAIN_SECONDS", 60.0)
    for _ in range(turnstile.AGAIN_TURNS + 2):
        assert turn(watched, session)
    assert asked(plan) == [LINE, TURN]
    monkeypatch.setattr(turnstile, "AGAIN_SECONDS", 0.0)
    assert turn(watched, session)
    assert asked(plan) == [LINE, TURN, LINE, TURN]
    for _ in range(turnstile.AGAIN_TURNS - 1):
        assert turn(watched, session)
    assert asked(plan) == [LINE, TURN, LINE, TURN]
    assert turn(watched, session)
    assert asked(plan) == [LINE, TURN, LINE, TURN, LINE, TURN]


def test_who_has_had_the_turn_does_not_take_it_from_who_waits(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody stands at the head of the line and looks for the turn: it comes although others ask too."""
    monkeypatch.setattr(turnstile, "AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(turnstile, "AGAIN_TURNS", 0)
    session, order = Session(), list[str]()
    with ExitStack() as first:
        assert queue_up(store, session, first, lost=False)

        def waiting() -> None:
            with ExitStack() as held:
                assert queue_up(open_store(store.uri), Session(), held, lost=False)
                order.append("waited")

        task = runtime.spawn(waiting)
        while True:  # until it is at the head of the line
            with store.turnstile(LINE, 0.0) as free:
                if not free:
                    break
            runtime.sleep(0.001)
    with ExitStack() as again:
        assert queue_up(store, session, again, lost=False)
        order.append("had it before")
    task.join()
    assert order == ["waited", "had it before"]


def test_a_stalled_head_of_the_line_is_passed_and_remembered(store: Store) -> None:
    plan, session = Plan(), Session()
    watched = FaultyStore(store, plan)
    with store.turnstile(LINE, 0.0) as line:
        assert line
        assert turn(watched, session)
        session.cache.drop((watched.identity, TURN, "own turnstile", ""))
        before = plan.calls("turnstile")
        assert turn(watched, session)
    assert plan.calls("turnstile") == before + 1  # straight for the turn


def test_a_stalled_turn_is_waited_for_once_and_again_after_a_loss(store: Store) -> None:
    plan, session = Plan(), Session()
    watched = FaultyStore(store, plan)
    with store.turnstile(TURN, 0.0) as mine:
        assert mine
        assert not turn(watched, session)
        before = plan.calls("turnstile")
        assert not turn(watched, session)
        assert plan.calls("turnstile") == before
        assert not turn(watched, session, lost=True)
        assert plan.calls("turnstile") > before


def test_where_there_is_no_turnstile_there_is_no_turn(tmp_path: Path) -> None:
    for each in (open_store("memory://"), open_store(str(tmp_path / "nowhere"))):
        assert not turn(each, Session())


def test_a_failing_turnstile_is_none(store: Store) -> None:
    plan = Plan(Rule(Fault.FAIL_BEFORE, "turnstile", times=None))
    assert not turn(FaultyStore(store, plan), Session())
