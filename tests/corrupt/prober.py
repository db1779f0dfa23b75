"""Damages files and reads them, in a process that may die of it.

`python -m corrupt.prober DAMAGES VICTIM...` reads each victim DAMAGES times, each time with another accident.
Every probe must end in data or in one of our own errors. Data that differs from the right rows is allowed
only where nobody can know: in a file without checksums, or where our checksums tell. Each probe is announced
before it runs, so that the last line of a dead process names the accident; a probe that hangs is killed by an
alarm. The last line of a healthy process is a JSON summary.
"""

from __future__ import annotations

import faulthandler
import json
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa

import tiltyard.lance as lance
from corrupt.damage import damaged
from corrupt.victims import Victim, load
from tables_alike import difference
from tiltyard.errors import TiltyardError

PROBE_SECONDS = int(os.environ.get("TILTYARD_PROBE_SECONDS", "20"))
MEMORY_BYTES = 12 << 30  # an allocation that a damaged length asks for must fail here, not fill the machine


def probe(victim: Victim, right: pa.Table, place: Path, seed: int) -> str:
    """'right', 'error', or 'other data'; raises what is not ours."""
    whole = (victim.table / victim.target).read_bytes()
    broken, _ = damaged(whole, seed)
    shutil.copytree(victim.table, place, copy_function=os.link)
    (place / victim.target).unlink()
    (place / victim.target).write_bytes(broken)
    os.utime(place / victim.target, (1e9, 1e9))  # a young manifest that is cut short is waited for
    outcome = read(victim, right, place)
    if victim.kind == "data":
        whole_file(place, victim.target)
    return outcome


def read(victim: Victim, right: pa.Table, place: Path) -> str:
    outcomes = set()
    for attempt in (scan, take):
        try:
            wrong = attempt(place, right)
        except TiltyardError:
            outcomes.add("error")
        else:
            outcomes.add("other data" if wrong else "right")
    if victim.kind in ("manifest", "transaction"):
        try:
            lance.dataset(str(place)).read_transaction(lance.dataset(str(place)).version)
            lance.dataset(str(place)).versions()
        except TiltyardError:
            outcomes.add("error")
    return next(o for o in ("other data", "error", "right") if o in outcomes)


def scan(place: Path, right: pa.Table) -> str:
    return compare(right, lance.dataset(str(place)).to_table())


def take(place: Path, right: pa.Table) -> str:
    rows = [0, right.num_rows // 2, right.num_rows - 1]
    return compare(right.take(rows), lance.dataset(str(place)).take(rows))


def compare(right: pa.Table, found: pa.Table) -> str:
    """What differs; raises if it is no valid Arrow data.

    Values that their type does not allow (text that is not UTF-8, decimals of too many digits) are values
    that differ: only checksums can tell them from what was stored.
    """
    try:
        found.validate(full=True)
    except pa.ArrowInvalid as error:
        if not any(word in str(error) for word in ("UTF8", "does not fit in precision")):
            raise
        return "values out of their type's range"
    return difference(right, found)


def whole_file(place: Path, target: str) -> None:
    """The file read by itself, without a manifest that knows its size, and its checksums looked at."""
    from tiltyard.file.reader import open_file
    from tiltyard.session import default_session
    from tiltyard.store import open_store

    store = open_store(str(place))
    try:
        reader = open_file(store, target, size=None, session=default_session())
        fields = list(reader.schema.fields)
        for array in reader.read(fields, None, slice(0, min(reader.num_rows, 10_000))):
            array.validate()
        reader.verify()
    except TiltyardError:
        return


def checksums_tell(place: Path, target: str) -> bool:
    """Whether `verify` finds the file damaged, or without checksums, as where the damage hit these."""
    from tiltyard.file.reader import open_file
    from tiltyard.session import default_session
    from tiltyard.store import open_store

    try:
        reader = open_file(open_store(str(place)), target, size=None, session=default_session())
        return not reader.verify()
    except TiltyardError:
        return True


def main(damages: int, directories: list[str], first: int) -> int:
    faulthandler.enable()
    limit_memory()
    summary: dict[str, dict[str, int]] = {}
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:
        for directory in directories:
            victim = load(Path(directory))
            with pa.memory_map(str(victim.directory / "right.arrow")) as source:
                right = pa.ipc.open_file(source).read_all()
                checked = victim.kind == "data" and victim.directory.name.endswith("-ours")
                outcomes: Counter[str] = Counter()
                for seed in range(first, first + damages):
                    accident = f"{victim.directory.name} seed {seed}"
                    print(accident, flush=True)
                    place = Path(scratch) / f"{victim.directory.name}-{seed}"
                    signal.alarm(PROBE_SECONDS)
                    try:
                        outcome = probe(victim, right, place, seed)
                        if checked and outcome == "other data" and not checksums_tell(place, victim.target):
                            failures.append(f"{accident}: wrong data, and the checksums do not tell")
                        outcomes[outcome] += 1
                    except Exception as error:
                        failures.append(f"{accident}: {type(error).__name__}: {str(error)[:200]}")
                    signal.alarm(0)
                    shutil.rmtree(place, ignore_errors=True)
                summary[victim.directory.name] = dict(outcomes)
    print(json.dumps({"failures": failures, "outcomes": summary}), flush=True)
    return 1 if failures else 0


def limit_memory() -> None:
    if "LD_PRELOAD" in os.environ:
        return  # AddressSanitizer reserves terabytes of address space for its shadow
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:], int(os.environ.get("TILTYARD_FIRST_SEED", "0"))))
