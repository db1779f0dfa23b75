"""Whether what callers were told of one name could have happened one after the other (linearizability).

A history is a list of calls with the time at which each began and was answered. It is linearizable if every
call can be given one moment between the two, so that a plain sequential model, taking the calls in the order
of these moments, gives every caller the answer that it got. A call of unknown outcome may have happened at
any moment from its beginning on, or never.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

State = Hashable
Step = Callable[[Any], tuple[Any, Any]]
"""The model: from the state before to (the state after, the answer)."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call. `ended` is None for a call that was never answered; `accepts` tells whether an answer of the
    model is the one that the caller got, None for an unknown outcome.
    """

    name: str
    begun: int
    ended: int | None
    step: Step
    accepts: Callable[[Any], bool] | None

    def __str__(self) -> str:
        return f"{self.name} [{self.begun}, {'?' if self.ended is None else self.ended}]"


def is_linearizable(calls: Sequence[Call], initial: State) -> bool:
    """Whether an order of the calls explains every answer. Exponential in calls that overlap: for histories
    of one name with a few dozen calls.
    """
    certain = frozenset(at for at, call in enumerate(calls) if call.accepts is not None)
    seen: set[tuple[frozenset[int], State]] = set()
    pending: list[tuple[frozenset[int], State]] = [(frozenset(), initial)]
    while pending:
        done, state = pending.pop()
        if done >= certain:
            return True
        if (done, state) in seen:
            continue
        seen.add((done, state))
        for at in _next(calls, done, certain):
            after, answer = calls[at].step(state)
            accepts = calls[at].accepts
            if accepts is None:
                if after != state:  # what changes nothing may as well never happen
                    pending.append((done | {at}, after))
            elif accepts(answer):
                pending.append((done | {at}, after))
    return False


def _next(calls: Sequence[Call], done: frozenset[int], certain: frozenset[int]) -> list[int]:
    """The calls that may come next: none of the others was answered before they began."""
    left = [at for at in range(len(calls)) if at not in done]
    answered = [calls[at].ended for at in left if at in certain]
    first = min((each for each in answered if each is not None), default=None)
    return [at for at in left if first is None or calls[at].begun <= first]
