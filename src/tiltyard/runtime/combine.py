"""The combining queue: callers that arrive together are served by one of them (decision D39).

The first caller becomes the *leader*: it takes what is queued, runs one round for all, hands each its own
answer, and after a bounded number of rounds passes the lead to a caller that still waits. No thread, no
timer: what arrives while a round runs is the next round.

Invariants, checked by tests/runtime/test_combine.py:
1. Rounds never overlap.
2. An item is in exactly one round, and its caller gets that round's answer for it.
3. Items enter rounds in the order in which they were queued.
4. A leader works at most `max_rounds` rounds, its own item being in the first of them.
5. A caller that leaves by an exception, wherever it is interrupted, takes neither the lead nor anybody's
   answer with it.
6. A caller that does not wait (`post`) is told its answer, unless it withdrew before a round took its item;
   where the lead falls to it, a task is spawned that leads in its place: one at a time, however many such
   callers there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Generic, Protocol, TypeVar

from tiltyard import runtime
from tiltyard.errors import OutcomeUnknown
from tiltyard.runtime.seams import Event

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class LeaderInterrupted(OutcomeUnknown):
    """The caller that did the shared work was interrupted: it may have been done, or not."""


def _interrupted() -> LeaderInterrupted:
    return LeaderInterrupted(
        "the caller that did the shared work was interrupted: it may have been done; read again"
    )


MAX_ITEMS_PER_ROUND = 1024
MAX_ROUNDS_PER_LEADER = 4


class _Wake(Protocol):
    """How a caller learns that it has its answer, or without one that the lead is its own. May come twice."""

    def set(self) -> None: ...


class _Waiting(Generic[Item, Answer]):
    __slots__ = ("answer", "answered", "item", "wake")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.wake: _Wake
        self.answered = False
        self.answer: Answer | BaseException | None = None


class _Posted(Generic[Item, Answer]):
    """The wake of a caller that does not wait: its answer is told, the lead is given to a task."""

    __slots__ = ("_lead", "_led", "_lock", "_mine", "_tell")

    def __init__(
        self,
        mine: _Waiting[Item, Answer],
        tell: Callable[[Answer | BaseException], None],
        lead: Callable[[_Waiting[Item, Answer]], None],
    ) -> None:
        self._mine = mine
        self._tell = tell
        self._lead = lead
        self._led = False
        self._lock = runtime.leaf_lock()

    def set(self) -> None:
        if self._mine.answered:
            self._tell(self._mine.answer)  # type: ignore[arg-type]
            return
        with self._lock:
            leads, self._led = not self._led, True
        if leads:
            try:
                runtime.spawn(self._lead, self._mine, name="leader of callers that do not wait")
            except RuntimeError:  # there can be no more threads: then this one does it
                self._lead(self._mine)


class CombiningQueue(Generic[Item, Answer]):
    """Serves concurrent `submit` calls in shared rounds.

    `run(items)` does one round and returns one answer per item, in order; an exception object as an answer is
    raised in that item's caller. What `run` itself raises goes to every caller of the round.
    """

    def __init__(
        self,
        run: Callable[[list[Item]], Sequence[Answer | BaseException]],
        *,
        max_items: int = MAX_ITEMS_PER_ROUND,
        max_rounds: int = MAX_ROUNDS_PER_LEADER,
    ) -> None:
        self._run = run
        self._max_items = max_items
        self._max_rounds = max_rounds
        self._renew()
        runtime.after_fork(self._renew)

    def _renew(self) -> None:
        """Empty; in a forked child too, where the callers that waited do not exist."""
        self._lock = runtime.leaf_lock()
        self._queue: deque[_Waiting[Item, Answer]] = deque()
        self._leader: _Waiting[Item, Answer] | None = None

    def submit(self, item: Item) -> Answer:
        """Have `item` served in a round, by another caller or by this one; its answer."""
        mine: _Waiting[Item, Answer] = _Waiting(item)
        wake: Event = runtime.event()
        mine.wake = wake
        try:
            with self._lock:
                if self._leader is None:
                    self._leader = mine
                self._queue.append(mine)
            if self._leader is not mine:
                wake.wait()
            if not mine.answered:  # ours from the start, or woken without an answer: the lead is ours
                self._lead()
        except BaseException:
            self._abandon(mine)
            raise
        answer = mine.answer
        if isinstance(answer, BaseException):
            raise answer
        return answer  # type: ignore[return-value]

    def post(self, item: Item, tell: Callable[[Answer | BaseException], None]) -> Callable[[], bool]:
        """Have `item` served in a round without waiting for it; `tell` is called with its answer, or with
        the exception that it failed by, from the thread that leads. `tell` must neither wait nor raise, and
        not mind a second call.

        Gives a function that withdraws the item if no round has taken it yet, and says whether it did: then
        nothing is told.
        """
        mine: _Waiting[Item, Answer] = _Waiting(item)
        mine.wake = _Posted(mine, tell, self._lead_for)
        with self._lock:
            leads = self._leader is None
            if leads:
                self._leader = mine
            self._queue.append(mine)
        if leads:
            try:
                mine.wake.set()
            except BaseException:  # no task could be begun
                self._abandon(mine)
                raise
        return lambda: self._withdraw(mine)

    def _withdraw(self, mine: _Waiting[Item, Answer]) -> bool:
        with self._lock:
            if mine not in self._queue:
                return False
            self._queue.remove(mine)  # the lead, if it has it, stays with the task that leads in its place
            return True

    def _lead_for(self, mine: _Waiting[Item, Answer]) -> None:
        try:
            self._lead()
        except BaseException:
            self._abandon(mine)
            if not mine.answered:
                self._answer([mine], [_interrupted()])
            raise

    def _lead(self) -> None:
        batch: list[_Waiting[Item, Answer]] = []
        try:
            for _ in range(self._max_rounds):
                with self._lock:
                    batch = list(islice(self._queue, self._max_items))
                    self._queue = deque(islice(self._queue, len(batch), None))
                    if not batch:
                        self._leader = None
                        return
                self._round(batch)
        except BaseException:
            # The leader is being stopped (interrupt, crash). Its companions must neither hang nor believe a
            # result; those that still stand in the queue are for the next leader.
            left = [one for one in batch if not one.answered and one not in self._queue]
            self._answer(left, [_interrupted()] * len(left))
            for one in batch:  # whoever has an answer may not have been told
                if one.answered:
                    one.wake.set()
            raise
        self._pass_on()

    def _pass_on(self) -> None:
        with self._lock:
            heir = self._leader = self._queue[0] if self._queue else None
        if heir is not None:
            heir.wake.set()

    def _abandon(self, mine: _Waiting[Item, Answer]) -> None:
        """A caller leaves by an exception, wherever it stood: its item, and the lead if it had it, go."""
        with self._lock:
            if mine in self._queue:
                self._queue.remove(mine)
            if self._leader is mine:
                self._leader = self._queue[0] if self._queue else None
            leader = self._leader
        if leader is not None:
            leader.wake.set()  # again, if it knows already: that does no harm

    def _round(self, batch: list[_Waiting[Item, Answer]]) -> None:
        answers: Sequence[Answer | BaseException]
        try:
            answers = self._run([waiting.item for waiting in batch])
            if len(answers) != len(batch):
                raise RuntimeError(f"a round of {len(batch)} items gave {len(answers)} answers")
        except Exception as error:
            answers = [error] * len(batch)
        self._answer(batch, answers)

    def _answer(self, batch: list[_Waiting[Item, Answer]], answers: Sequence[Answer | BaseException]) -> None:
        for waiting, answer in zip(batch, answers, strict=True):
            waiting.answer = answer
            waiting.answered = True
            waiting.wake.set()
