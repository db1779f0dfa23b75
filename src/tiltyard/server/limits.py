"""What a server lets one client take: bytes, rows, time, and places in the queue."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """`json_bytes`: of a JSON body. `upload_bytes`: of an Arrow stream; what is above `memory_bytes` of it
    waits in a temporary file. `rows`: of the answer of a query. `threads`: requests at work at once.
    `requests`: those at work and those that wait; who comes then is told to come again. `seconds`: for one
    request, its body aside. `head_seconds`: for a client to send the head of a request, `step_seconds`: to
    send, or take, the next piece of a body. `idle_seconds`: that a connection is kept without a request.
    `drain_seconds`: that requests at work have when the server ends.
    """

    json_bytes: int = 16 * MIB
    upload_bytes: int = 4096 * MIB
    memory_bytes: int = 64 * MIB
    rows: int = 10_000_000
    threads: int = 16
    requests: int = 4096
    seconds: float = 300.0
    head_seconds: float = 10.0
    step_seconds: float = 30.0
    idle_seconds: float = 75.0
    drain_seconds: float = 30.0
