"""Where every accident of a run comes from: one sequence of small numbers.

Whatever a run leaves open (who goes on, which fault strikes, what survives a crash) is a question with
`options` answers, asked of the run's `Choices`. Answer 0 is always the uneventful one: the same actor goes
on, nothing fails. So a run is its list of answers, replaying is answering from the list, and a simpler run
is one with more zeros or a shorter list.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Protocol


class Choices(Protocol):
    """Answers questions; `taken` holds the answers so far."""

    taken: list[int]

    def choose(self, options: int, chance: float, *, forced: bool = False) -> int:
        """A number below `options`; one other than 0 with about this chance. `forced`: the run cannot go on
        as it did, so that no answer is an extra event.
        """
        ...


class RandomChoices:
    """Answers from a seed."""

    def __init__(self, seed: int) -> None:
        self._dice = Random(seed)
        self.taken: list[int] = []

    def choose(self, options: int, chance: float, *, forced: bool = False) -> int:
        answer = 0
        if options > 1 and self._dice.random() < chance:
            answer = 1 + self._dice.randrange(options - 1)
        self.taken.append(answer)
        return answer


class ReplayedChoices:
    """Answers from a list, then zeros. An answer that a question does not have counts as its last one, which
    is what a search for simpler lists needs; `misfit` says so to whoever wanted a certain run.
    """

    def __init__(self, answers: Sequence[int]) -> None:
        self._answers = answers
        self.taken: list[int] = []
        self._wrong: str | None = None

    def choose(self, options: int, chance: float, *, forced: bool = False) -> int:
        at = len(self.taken)
        asked = self._answers[at] if at < len(self._answers) else 0
        answer = min(max(asked, 0), options - 1)
        if answer != asked and self._wrong is None:
            self._wrong = f"choice {at} is {asked}, and its question has the answers 0 to {options - 1}"
        self.taken.append(answer)
        return answer

    def misfit(self) -> str | None:
        """After the run: why it cannot be the one of this list; None when it is."""
        left = self._answers[len(self.taken) :]
        if self._wrong is None and any(left):
            return f"the run asked {len(self.taken)} questions, and there are {len(self._answers)} choices"
        return self._wrong


class EnumeratedChoices:
    """Follows a list, then answers 0, and remembers each question: for whoever goes through all lists
    (`explore.exhaust`). `asked[i]` is (options of question i, whether it was forced).
    """

    def __init__(self, answers: Sequence[int]) -> None:
        self._answers = answers
        self.taken: list[int] = []
        self.asked: list[tuple[int, bool]] = []

    def choose(self, options: int, chance: float, *, forced: bool = False) -> int:
        at = len(self.taken)
        answer = self._answers[at] if at < len(self._answers) else 0
        self.taken.append(answer)
        self.asked.append((options if chance > 0 else 1, forced))
        return answer
