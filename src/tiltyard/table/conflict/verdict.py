"""What the comparison of two transactions says: a class and a sentence."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Outcome(enum.IntEnum):
    """The three answers, mildest first, so that the worst of several conditions is their maximum."""

    OK = 0
    RETRYABLE = 1
    INCOMPATIBLE = 2


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer for one pair; `reason` is a clause that completes "because ..." (empty when compatible)."""

    outcome: Outcome
    reason: str = ""

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.OK


OK = Verdict(Outcome.OK)


def retry(reason: str) -> Verdict:
    """Planning again on the newest version can succeed."""
    return Verdict(Outcome.RETRYABLE, reason)


def refuse(reason: str) -> Verdict:
    """The operation lost its meaning; repeating it as it stands cannot succeed."""
    return Verdict(Outcome.INCOMPATIBLE, reason)
