"""Figures of a server in the text form that Prometheus reads."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper ends, in seconds."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(slots=True)
class _Timed:
    """Of one operation: how many answers took at most so long, and all together."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    seconds: float = 0.0


class Metrics:
    """Counters of one server. Used from its event loop alone."""

    def __init__(self) -> None:
        self.running = 0
        self.handed = 0
        self._answers: dict[tuple[str, int], int] = {}
        self._timed: dict[str, _Timed] = {}
        self._received = 0
        self._sent = 0
        self._cut_off: dict[str, int] = {}

    def answered(self, operation: str, status: int, seconds: float, received: int, sent: int) -> None:
        """One more answer; bytes of the bodies."""
        key = operation, status
        self._answers[key] = self._answers.get(key, 0) + 1
        timed = self._timed.get(operation)
        if timed is None:
            timed = self._timed[operation] = _Timed()
        timed.counts[bisect_left(BUCKETS, seconds)] += 1
        timed.seconds += seconds
        self._received += received
        self._sent += sent

    def cut_off(self, why: str) -> None:
        """A client that was too slow, or went away."""
        self._cut_off[why] = self._cut_off.get(why, 0) + 1

    def text(self) -> str:
        """All of it."""
        lines: list[str] = []
        _family(lines, "requests_total", "counter", "Answers by operation and status.")
        for (operation, status), count in sorted(self._answers.items()):
            lines.append(f'tiltyard_requests_total{{operation="{operation}",status="{status}"}} {count}')
        _family(lines, "request_seconds", "histogram", "Time from the head of a request to its answer.")
        for operation, timed in sorted(self._timed.items()):
            lines += _histogram(operation, timed)
        _family(lines, "requests_running", "gauge", "Requests that have no whole answer yet.")
        lines.append(f"tiltyard_requests_running {self.running}")
        _family(lines, "requests_handed", "gauge", "Of them, those that a thread works at or is to.")
        lines.append(f"tiltyard_requests_handed {self.handed}")
        _family(lines, "received_bytes_total", "counter", "Bytes of request bodies.")
        lines.append(f"tiltyard_received_bytes_total {self._received}")
        _family(lines, "sent_bytes_total", "counter", "Bytes of answers.")
        lines.append(f"tiltyard_sent_bytes_total {self._sent}")
        _family(lines, "clients_cut_off_total", "counter", "Clients too slow to be waited for, or gone.")
        for why, count in sorted(self._cut_off.items()):
            lines.append(f'tiltyard_clients_cut_off_total{{why="{why}"}} {count}')
        return "\n".join(lines) + "\n"


def _family(lines: list[str], name: str, kind: str, told: str) -> None:
    lines += [f"# HELP tiltyard_{name} {told}", f"# TYPE tiltyard_{name} {kind}"]


def _histogram(operation: str, timed: _Timed) -> list[str]:
    lines, total = [], 0
    for end, count in zip((*map(str, BUCKETS), "+Inf"), timed.counts, strict=True):
        total += count
        lines.append(f'tiltyard_request_seconds_bucket{{operation="{operation}",le="{end}"}} {total}')
    lines.append(f'tiltyard_request_seconds_sum{{operation="{operation}"}} {timed.seconds:.6f}')
    lines.append(f'tiltyard_request_seconds_count{{operation="{operation}"}} {total}')
    return lines
