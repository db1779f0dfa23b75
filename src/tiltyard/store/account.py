"""What this process has read from stores since it began: requests and bytes.

A file that is mapped counts as one request of its whole size when it is mapped. Counts are for people and
tests; threads that read at once may lose one.
"""

from __future__ import annotations


class Reads:
    """Requests, and bytes that they gave."""

    __slots__ = ("nbytes", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.nbytes = 0

    def add(self, nbytes: int) -> None:
        """One more request."""
        self.requests += 1
        self.nbytes += nbytes


READS = Reads()
"""Those of this process."""


def iops_counter() -> int:
    """Requests so far."""
    return READS.requests


def bytes_read_counter() -> int:
    """Bytes so far."""
    return READS.nbytes
