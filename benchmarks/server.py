"""A catalog over HTTP: `benchmarks/server.py [--clients 1 4 16] [--workers N] [--only WORD]`.

The official `RestAdapter` and `tiltyard serve` run in processes of their own on roots of their own, and are
asked in turn, in the order A B B A, by threads that send prepared bytes over connections that are kept. Each
answer is checked for its status. Ratios above 1 mean that we are better. `TILTYARD_DURABLE=0` takes our syncs
away, which the official package does not make.
"""

from __future__ import annotations

import argparse
import io
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

JSON = "application/json"
STREAM = "application/vnd.apache.arrow.stream"
TABLES = 50
ROWS = 1000
CALLS = {"describe": 1600, "list": 1600, "query": 800, "create": 320}
SIDES = ("pylance", "tiltyard")
TITLE = (
    f"{'workload':24} {'a second':>15} {'ratio':>6} {'p50 ms':>15} {'ratio':>6} {'p99 ms':>15} {'ratio':>6}"
)
ADAPTER = """
import sys, time
from lance.namespace import RestAdapter
adapter = RestAdapter("dir", {"root": sys.argv[1]}, host="127.0.0.1", port=0)
adapter.start()
print(f"http://127.0.0.1:{adapter.port}", flush=True)
time.sleep(3600)
"""


@dataclass(slots=True)
class Measured:
    """Requests a second of each round, seconds of each request."""

    rates: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def quantile(self, share: float) -> float:
        """Milliseconds."""
        ordered = sorted(self.seconds)
        return 1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Client:
    """One connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, request: bytes) -> None:
        """Send one request, and hear its answer to the end. Raises for a failure."""
        self._socket.sendall(request)
        heard = b""
        while b"\r\n\r\n" not in heard:
            piece = self._socket.recv(1 << 16)
            if not piece:
                raise SystemExit(f"the server closed the connection after {heard!r}")
            heard += piece
        head, _, body = heard.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
        missing = int(length[1]) - len(body) if length else 0
        while missing > 0:
            piece = self._socket.recv(1 << 20)
            body += piece
            missing -= len(piece)
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"{request[:80]!r}: {head!r} {body[:300]!r}")

    def close(self) -> None:
        self._socket.close()


def request(method: str, path: str, body: bytes = b"", kind: str = JSON) -> bytes:
    head = f"{method} /v1/{path} HTTP/1.1\r\nhost: x\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


def rows() -> bytes:
    table = pa.table({"id": list(range(ROWS)), "v": [float(each) for each in range(ROWS)]})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


DATA = rows()
QUERY = b'{"k":10,"vector":{},"filter":"id > 500"}'


def asked(kind: str, name: str, at: int) -> bytes:
    """The request of a kind; `name` is a new one for each."""
    table = f"b%24t{at % TABLES}"
    match kind:
        case "describe":
            return request("POST", f"table/{table}/describe", b"{}")
        case "list":
            return request("GET", "namespace/b/table/list")
        case "query":
            return request("POST", f"table/{table}/query", QUERY)
        case _:
            return request("POST", f"table/b%24{name}/create?mode=create", DATA, STREAM)


@contextmanager
def running(side: str, root: str, workers: int) -> Iterator[int]:
    """A server; its port."""
    if side == "pylance":
        words = [sys.executable, "-c", ADAPTER, root]
    else:
        words = [sys.executable, "-m", "tiltyard", "serve", root, "--port", "0", "--quiet"]
        words += ["--workers", str(workers)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r":(\d+)", process.stdout.readline().partition("://")[2])
        assert found
        port = int(found[1])
        client = Client(port)
        client.call(request("POST", "namespace/b/create", b"{}"))
        for at in range(TABLES):
            client.call(asked("create", f"t{at}", at))
        client.close()
        yield port
    finally:
        process.terminate()
        process.wait()


def measure(port: int, kind: str, clients: int, salt: int) -> tuple[float, list[float]]:
    """Requests a second, and the seconds of each."""
    each = max(1, CALLS[kind] // clients // 2)
    taken: list[list[float]] = [[] for _ in range(clients)]

    def work(mine: int) -> None:
        client = Client(port)
        for at in range(each):
            sent = asked(kind, f"c{salt}_{mine}_{at}", at)
            before = time.perf_counter()
            client.call(sent)
            taken[mine].append(time.perf_counter() - before)
        client.close()

    threads = [threading.Thread(target=work, args=(mine,)) for mine in range(clients)]
    before = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return clients * each / (time.perf_counter() - before), [one for mine in taken for one in mine]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--workers", type=int, default=2, help="processes of ours (default: 2)")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    given = parser.parse_args()
    print(TITLE)
    with ExitStack() as stack:
        ports = {}
        for side in SIDES:
            root = stack.enter_context(tempfile.TemporaryDirectory(prefix="tiltyard-server-"))
            ports[side] = stack.enter_context(running(side, root, given.workers))
        salt = 0
        for kind in CALLS:
            for clients in given.clients:
                name = f"{kind}, {clients} client{'s' if clients > 1 else ''}"
                if given.only not in name:
                    continue
                found: dict[str, Measured] = defaultdict(Measured)
                for side in (*SIDES, *reversed(SIDES)):
                    salt += 1
                    rate, seconds = measure(ports[side], kind, clients, salt)
                    found[side].rates.append(rate)
                    found[side].seconds += seconds
                print(row(name, found["pylance"], found["tiltyard"]), flush=True)
    return 0


def row(name: str, theirs: Measured, ours: Measured) -> str:
    a, b = statistics.mean(theirs.rates), statistics.mean(ours.rates)
    told = f"{name:24} {a:7.0f} {b:7.0f} {b / a:5.1f}x"
    for share in (0.5, 0.99):
        a, b = theirs.quantile(share), ours.quantile(share)
        told += f" {a:7.1f} {b:7.1f} {a / b:5.1f}x"
    return told


if __name__ == "__main__":
    sys.exit(main())
