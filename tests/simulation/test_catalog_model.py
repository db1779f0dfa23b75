"""The perfect catalog that the product is compared with: its own rules, and how it judges a history."""

from __future__ import annotations

from functools import partial

import pytest

from tiltyard.testing.simulation import catalogs_model as model
from tiltyard.testing.simulation.catalogs_model import Answer, Asked, Done, Refused, Shelf, Step, calls
from tiltyard.testing.simulation.linear import is_linearizable

T, U, N, NT = ("t",), ("u",), ("n",), ("n", "t")


def after(*steps: Step) -> tuple[Shelf, list[Answer]]:
    shelf, answers = Shelf(), []
    for step in steps:
        shelf, answer = step(shelf)
        answers.append(answer)
    return shelf, answers


def refused(*codes: int) -> Refused:
    return Refused(frozenset(codes))


def create(id: tuple[str, ...], content: int = 1) -> Step:
    return partial(model.create, id, content)


def test_a_name_is_taken_once_by_tables_and_namespaces_alike() -> None:
    _, answers = after(create(T), create(T, 2), partial(model.create_namespace, T))
    assert answers == [Done(), refused(model.TABLE_EXISTS), refused(model.NAMESPACE_EXISTS)]


def test_creating_or_opening_gives_what_is_there() -> None:
    _, answers = after(
        partial(model.create_or_open, T, 1),
        partial(model.create_or_open, T, 2),
        partial(model.overwrite, T, 3),
        partial(model.written, 3),
        partial(model.read, T),
    )
    assert answers == [Done(1), Done(1), Done(), Done(), Done(3)]


def test_nothing_is_made_without_its_namespace_and_no_namespace_goes_with_something_in_it() -> None:
    _, answers = after(
        create(NT),
        partial(model.create_namespace, N),
        create(NT),
        partial(model.drop_namespace, N),
        partial(model.drop, NT),
        partial(model.drop_namespace, N),
        partial(model.undrop, NT, None),
        partial(model.read, NT),
    )
    assert answers == [
        refused(model.NO_NAMESPACE),
        Done(),
        Done(),
        refused(model.NOT_EMPTY),
        Done(),
        Done(),
        refused(model.NO_NAMESPACE),
        refused(model.NO_TABLE, model.NO_NAMESPACE),
    ]


def test_what_was_dropped_comes_back_with_its_content_unless_its_name_is_taken() -> None:
    _, answers = after(
        create(T, 1),
        partial(model.drop, T),
        create(T, 2),
        partial(model.undrop, T, None),
        partial(model.rename, T, U),
        partial(model.undrop, T, 1),
        partial(model.undrop, T, None),
        partial(model.read, U),
    )
    assert answers[3] == refused(model.TABLE_EXISTS)
    assert answers[5] == Done(1)
    assert answers[6] == refused(model.NO_TABLE, model.TABLE_EXISTS)
    assert answers[7] == Done(2)


def test_a_rename_tells_every_reason() -> None:
    _, answers = after(create(U), partial(model.rename, T, U), partial(model.rename, U, NT))
    assert answers[1:] == [refused(model.NO_TABLE, model.TABLE_EXISTS), refused(model.NO_NAMESPACE)]


def asked(step: Step, answer: Answer | None, begun: int, ended: int) -> Asked:
    return Asked("a call", begun, ended, step, answer)


@pytest.mark.parametrize(
    ("first", "second", "right"),
    [
        (Done(), refused(model.TABLE_EXISTS), True),
        (Done(), Done(), False),
        (refused(model.TABLE_EXISTS), refused(model.TABLE_EXISTS), False),
        (None, refused(model.TABLE_EXISTS), True),
        (Done(), refused(model.NO_TABLE), False),
    ],
)
def test_of_two_creators_one_wins(first: Answer | None, second: Answer, right: bool) -> None:
    history = [asked(create(T, 1), first, 0, 10), asked(create(T, 2), second, 5, 15)]
    assert is_linearizable(calls(history), Shelf()) is right


def test_what_was_acknowledged_is_seen_by_whoever_asks_later() -> None:
    made, late = asked(create(T, 1), Done(), 0, 1), partial(model.read, T)
    assert is_linearizable(calls([made, asked(late, Done(1), 2, 3)]), Shelf())
    assert not is_linearizable(calls([made, asked(late, refused(model.NO_TABLE), 2, 3)]), Shelf())
    assert not is_linearizable(calls([made, asked(late, Done(2), 2, 3)]), Shelf())
    assert not is_linearizable(
        calls([asked(model.nothing, Done(), 0, 1), asked(late, Done(1), 2, 3)]), Shelf()
    )
