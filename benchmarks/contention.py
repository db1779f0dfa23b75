"""One directory catalog, several processes: `benchmarks/contention.py [--only WORD] [--processes 1 4]`.

Each row is a kind of call on names of its own for each process ("distinct") or on the same names for all
("same"). Both packages run in fresh processes on a fresh root, turn by turn in the order A B B A; a process
makes a few calls before it is timed. `a second` counts calls that made something, whose p50 and p99 are
given; ratios above 1 mean that we are better. What was said to be made is counted in the catalog afterwards:
a row that lost anything, or made something twice, is marked and makes the run fail.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PARENT = "db"
WARM_CALLS = 3
POLL_SECONDS = 0.0005
KINDS = ("create", "declare", "namespace")
SIDES = ("pylance", "tiltyard")
TITLE = (
    f"{'workload':36} {'a second':>22} {'ratio':>6} {'p50 ms':>15} {'ratio':>6} {'p99 ms':>17} {'ratio':>6}"
)


@dataclass(slots=True)
class Measured:
    """What all rounds of one side gave: calls made in a second of each round, seconds of each call."""

    rates: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    wrong: str = ""

    def quantile(self, share: float) -> float:
        """Milliseconds that so large a share of the calls took at most."""
        ordered = sorted(self.seconds)
        return 1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]


# -- one process of the measured ones --------------------------------------------------------------


def opened(side: str, root: str) -> Any:
    if side == "pylance":
        from lance.namespace import DirectoryNamespace

        return DirectoryNamespace(root=root)
    from tiltyard.lance.namespace import DirectoryNamespace as Ours

    return Ours(root=root)


def caller(kind: str, catalog: Any) -> Callable[[str], None]:
    """The call that is measured, by the name that it is to make."""
    import lance_namespace as requests
    import pyarrow as pa

    table = pa.table({"a": [1, 2, 3]})

    def create(name: str) -> None:
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        catalog.create_table(requests.CreateTableRequest(id=[PARENT, name]), sink.getvalue())

    def declare(name: str) -> None:
        catalog.declare_table(requests.DeclareTableRequest(id=[PARENT, name]))

    def namespace(name: str) -> None:
        catalog.create_namespace(requests.CreateNamespaceRequest(id=[PARENT, name]))

    return {"create": create, "declare": declare, "namespace": namespace}[kind]


def work(spec: dict[str, Any]) -> None:
    """Calls between the sign to begin and the last one; prints the seconds of those that were not refused."""
    call = caller(spec["kind"], opened(spec["side"], spec["root"]))
    number, barrier = spec["number"], Path(spec["barrier"])
    for n in range(WARM_CALLS):
        call(f"warm{number}_{n}")
    gc.collect()  # else Python looks through all that was imported, once, in the middle of a short run
    gc.freeze()
    (barrier / f"ready{number}").touch()
    parent = os.getppid()
    while not (barrier / "go").exists():
        if os.getppid() != parent:
            return  # it was stopped
        time.sleep(POLL_SECONDS)
    seconds = []
    own = f"own{number}_" if spec["distinct"] else "same"
    began = time.time()
    for n in range(spec["calls"]):
        started = time.perf_counter()
        try:
            call(f"{own}{n}")
        except Exception:  # the errors of either package; how many calls are to succeed is known
            continue
        seconds.append(time.perf_counter() - started)
    print(json.dumps({"seconds": seconds, "began": began, "ended": time.time()}))


# -- all of them -----------------------------------------------------------------------------------


def race(side: str, kind: str, processes: int, calls: int, *, distinct: bool, into: Measured) -> None:
    """One round of one side."""
    import lance_namespace as requests

    with tempfile.TemporaryDirectory() as place:
        root, barrier = Path(place) / "root", Path(place) / "barrier"
        root.mkdir()
        barrier.mkdir()
        catalog = opened(side, str(root))
        catalog.create_namespace(requests.CreateNamespaceRequest(id=[PARENT]))
        spec = {"side": side, "kind": kind, "root": str(root), "barrier": str(barrier), "calls": calls}
        workers = []
        for number in range(processes):
            given = json.dumps({**spec, "number": number, "distinct": distinct})
            command = [sys.executable, __file__, "--worker", given]
            workers.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        while len(list(barrier.iterdir())) < processes and all(each.poll() is None for each in workers):
            time.sleep(POLL_SECONDS)
        (barrier / "go").touch()
        told = [json.loads(each.communicate()[0]) for each in workers]
        made = [seconds for each in told for seconds in each["seconds"]]
        span = max(each["ended"] for each in told) - min(each["began"] for each in told)
        into.seconds += made
        into.rates.append(len(made) / span)
        if kind == "namespace":
            found = catalog.list_namespaces(requests.ListNamespacesRequest(id=[PARENT])).namespaces
        else:
            found = catalog.list_tables(requests.ListTablesRequest(id=[PARENT])).tables
        expected, there = calls * (processes if distinct else 1), len(found) - WARM_CALLS * processes
        if not len(made) == there == expected:
            into.wrong = f"{expected} EXPECTED, {len(made)} MADE, {there} FOUND"


def shown(name: str, sides: dict[str, Measured]) -> str:
    theirs, ours = sides["pylance"], sides["tiltyard"]
    line = f"{name:36}"
    left, right = statistics.median(theirs.rates), statistics.median(ours.rates)
    line += f" {left:>10.0f} {right:>11.0f} {right / left:>5.1f}x"
    for share, width in ((0.5, 7), (0.99, 8)):
        left, right = theirs.quantile(share), ours.quantile(share)
        line += f" {left:>{width}.1f} {right:>{width}.1f} {left / right:>5.1f}x"
    wrong = [f"{side}: {each.wrong}" for side, each in sides.items() if each.wrong]
    return " ".join([line, *wrong])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--calls", type=int, default=60, help="of each process in each round")
    parser.add_argument("--rounds", type=int, default=2, help="of A B B A")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is not None:
        work(json.loads(arguments.worker))
        return 0
    status = 0
    print(TITLE, flush=True)
    for processes in arguments.processes:
        for kind in KINDS:
            for distinct in (True, False) if processes > 1 else (True,):
                names = "" if processes == 1 else ", distinct names" if distinct else ", same names"
                name = f"{kind}, {processes} process{'es' if processes > 1 else ''}{names}"
                if arguments.only not in name:
                    continue
                sides = {side: Measured() for side in SIDES}
                for _ in range(arguments.rounds):
                    for side in (*SIDES, *reversed(SIDES)):
                        race(side, kind, processes, arguments.calls, distinct=distinct, into=sides[side])
                status |= bool(sides["tiltyard"].wrong)
                print(shown(name, sides), flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
