"""A process of a probe: opens the store that it is told to, then does what each line of its input says.

The first line is a JSON object with `opener` ("package.module:function"), its `arguments`, and `below`, the
directory to work in. Every later line is `{"do": name, ...}`; the answer is one line, `{"answer": ...}` or
`{"error": text}`.
"""

from __future__ import annotations

import json
import select
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from tiltyard.errors import CorruptFile, ObjectNotFound
from tiltyard.store import Store

SPIN_SECONDS = 0.002
"""The last part of a wait for a common moment, which is not slept."""


def opened(opener: str, arguments: list[Any], below: str) -> Store:
    """The store of the directory `below` in what the opener gives."""
    module, _, function = opener.partition(":")
    store: Store = getattr(import_module(module), function)(*arguments)
    return store.at(below)


def content(number: int, size: int) -> bytes:
    """What an object of that number holds: one value all through, so that a part or a mixture shows."""
    return bytes([number % 256]) * size


def wait_for(moment: float) -> None:
    """Return at that time of the wall clock (s), to some microseconds."""
    left = moment - time.time()
    if left > SPIN_SECONDS:
        time.sleep(left - SPIN_SECONDS)
    while time.time() < moment:
        pass


def race(store: Store, *, me: int, rounds: int, start: float, step: float) -> list[str]:
    """Create the object of each round at its moment; the answers."""
    answers = []
    for number in range(rounds):
        wait_for(start + number * step)
        answers.append(store.create(f"race/{number}", content(me, 100)).value)
    return answers


def watch(store: Store, *, paths: list[str], size: int) -> dict[str, Any]:
    """`watched` until the next line of the input, whatever it is. Says before it begins that it does."""
    print(json.dumps({"answer": "watching"}), flush=True)

    def over() -> bool:
        return bool(select.select([sys.stdin], [], [], 0)[0])

    seen = watched(store, paths, size, over)
    sys.stdin.readline()
    return seen


def watched(store: Store, paths: list[str], size: int, over: Callable[[], bool]) -> dict[str, Any]:
    """Read objects again and again until it is over: how often, what was not whole, the last number of each.

    An object that was seen once is to be there ever after, and its number never to fall.
    """
    reads, last = 0, dict.fromkeys(paths, -1)
    wrong: list[str] = []
    while not wrong:
        ending = over()  # before the last look, so that it sees all that was done
        for path in paths:
            fault, seen = looked_at(store, path, size)
            reads += seen >= 0
            if fault is None and last[path] >= 0:
                if seen < 0:
                    fault = "it was gone for a moment"
                elif seen < last[path]:
                    fault = f"content {seen} came back after {last[path]}"
            if fault is not None:
                wrong.append(f"{path}: {fault}")
            last[path] = max(seen, last[path])
        if ending:
            break
    return {"reads": reads, "wrong": wrong, "last": list(last.values())}


def looked_at(store: Store, path: str, size: int) -> tuple[str | None, int]:
    """What is wrong with an object that is whole or absent, and its number; -1 for an absent one."""
    try:
        data = store.read(path).to_pybytes()
    except ObjectNotFound:
        return None, -1
    except CorruptFile as error:
        return str(error), 0
    if len(data) != size:
        return f"{len(data):,} of {size:,} bytes were there", 0
    if data != data[:1] * size:
        return "it was a mixture of two contents", 0
    return None, data[0]


def look(store: Store, *, path: str) -> dict[str, Any]:
    """What is seen of an object by every way of looking."""
    directory = path.rpartition("/")[0]
    try:
        data: str | None = store.read(path).to_pybytes().hex()
    except ObjectNotFound:
        data = None
    return {
        "data": data,
        "exists": store.exists(path),
        "listed": path in [each.path for each in store.list(directory)],
        "named": path.rpartition("/")[2] in store.list_names(directory),
    }


def create(store: Store, *, path: str, number: int, size: int) -> str:
    return store.create(path, content(number, size)).value


def delete(store: Store, *, path: str) -> bool:
    return store.delete(path)


def turn(store: Store, *, seconds: float) -> bool:
    """Whether the turnstile let this process in."""
    with store.turnstile("", seconds) as ours:
        return ours


ORDERS: dict[str, Callable[..., Any]] = {
    each.__name__: each for each in (race, watch, look, create, delete, turn)
}


def main() -> int:
    """Serve until the input ends."""
    where = json.loads(sys.stdin.readline())
    store = opened(where["opener"], where["arguments"], where["below"])
    print(json.dumps({"answer": "ready"}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            told = {"answer": ORDERS[order.pop("do")](store, **order)}
        except Exception as error:  # told to the one who asked
            told = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(told), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
