"""Waits after lost rounds: drawn anew each time from a span that grows to its bound, and never cut to it."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tiltyard import runtime
from tiltyard.table.back_off import (
    MAX_BACKOFF_DOUBLINGS,
    MAX_BACKOFF_SECONDS,
    MIN_BACKOFF_UNIT_SECONDS,
    back_off,
)


class Spans(random.Random):
    """Notes what it is asked to draw from, and draws the end of it."""

    def __init__(self) -> None:
        super().__init__(0)
        self.asked: list[tuple[float, float]] = []

    def uniform(self, a: float, b: float) -> float:
        self.asked.append((a, b))
        return b


class Clock(runtime.Runtime):
    """Sleeps take no time but count."""

    def __init__(self) -> None:
        super().__init__()
        self.spans = Spans()
        self.waits: list[float] = []

    def random(self) -> random.Random:
        return self.spans

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


@pytest.fixture
def clock() -> Iterator[Clock]:
    clock = Clock()
    before = runtime.install(clock)
    yield clock
    runtime.install(before)


def test_the_span_doubles_with_each_lost_round_up_to_its_bound(clock: Clock) -> None:
    for lost in range(5):
        back_off(0.02, lost)
    assert clock.spans.asked == [(0, 0.02), (0, 0.04), (0, 0.08), (0, 0.16), (0, MAX_BACKOFF_SECONDS)]
    assert clock.waits == [span for _, span in clock.spans.asked]  # what was drawn is what is waited


def test_a_round_of_no_time_counts_as_a_little_and_doubles_so_often(clock: Clock) -> None:
    back_off(0.0, 0)
    back_off(0.0, 1000, longest=60.0)
    least = MIN_BACKOFF_UNIT_SECONDS
    assert clock.waits == [least, least * 2**MAX_BACKOFF_DOUBLINGS]


def test_a_caller_may_set_another_bound(clock: Clock) -> None:
    back_off(5.0, 3, longest=1.0)
    assert clock.spans.asked == [(0, 1.0)]
