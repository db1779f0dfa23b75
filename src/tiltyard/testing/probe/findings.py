"""What a probe found: one finding for each promise, and the calls of the file system that were tried."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class Grade(Enum):
    """How a promise fares."""

    KEPT = "kept"
    SLOWER = "slower"
    """Kept by a slower way, or not offered where nothing depends on it; the finding names what happens."""
    BROKEN = "broken"
    UNTRIED = "untried"
    """It could not be asked here, or was given up on purpose."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One promise. `seen` is what was observed, `meaning` what follows from it for the user, if anything."""

    promise: str
    grade: Grade
    seen: str
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the file system that was tried. `instead` is what is done where it is refused."""

    name: str
    works: bool
    error: str = ""
    instead: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """A probe that is over. `medium` says what the location is, `facts` what was measured, for people."""

    uri: str
    medium: str
    findings: tuple[Finding, ...]
    calls: tuple[Call, ...]
    facts: tuple[str, ...]
    seconds: float

    @property
    def broken(self) -> tuple[Finding, ...]:
        """The promises that are broken; none for a store that can be used."""
        return tuple(each for each in self.findings if each.grade is Grade.BROKEN)

    def finding(self, promise: str) -> Finding:
        """The finding of that name; KeyError."""
        for each in self.findings:
            if each.promise == promise:
                return each
        raise KeyError(promise)

    def as_json(self) -> dict[str, Any]:
        """The report in JSON's types."""
        findings = [{**asdict(each), "grade": each.grade.value} for each in self.findings]
        return {
            "uri": self.uri,
            "usable": not self.broken,
            "medium": self.medium,
            "findings": findings,
            "calls": [asdict(each) for each in self.calls],
            "facts": list(self.facts),
            "seconds": round(self.seconds, 3),
        }
