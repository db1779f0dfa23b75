"""`tiltyard demo`: the main job on real data, told while it happens.

Four processes append 336,776 flights at once while the table is read; cancelled flights are deleted; versions
are listed and an old one read; a filter is shown; every value is compared with the CSV and, where pylance is
installed, with what pylance reads from the same table.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa

from tiltyard import runtime
from tiltyard.cli import flights
from tiltyard.cli.account import Account
from tiltyard.cli.text_table import lines, local_time, terminal_width
from tiltyard.errors import TiltyardError

WRITERS = 4
APPENDS_EACH = 12
POLL_SECONDS = 0.02
PEER_SECONDS = 300
STREAMED = 100  # rows that are put one by one
PUTTERS = 8  # threads
KEY = "tailnum"
INDENT = 3  # columns before what is told
SORT_KEYS = ("time_hour", "carrier", "flight", "origin", "dest", "sched_dep_time", "tailnum")

# The official package reads the table in a process of its own; nothing of it is imported here.
PEER_READS = """
import sys, lance, pyarrow as pa
table = lance.dataset(sys.argv[1]).to_table()
with pa.OSFile(sys.argv[2], "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
    writer.write_table(table)
print(lance.__version__)
"""


class DemoError(TiltyardError):
    """Something in the demo did not come out as promised."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory", nargs="?", help="keep the table in this directory (default: a temporary one)"
    )


def run(arguments: argparse.Namespace) -> int:
    account = Account()
    with _directory(arguments.directory) as (place, kept), tempfile.TemporaryDirectory() as scratch:
        uri = str(_free_name(place))
        _tell(account, uri, Path(scratch))
        if kept:
            account.title(f"\nThe table is kept: tiltyard info {uri}")
    return 0


def _tell(account: Account, uri: str, scratch: Path) -> None:
    import tiltyard.lance as lance

    started = runtime.monotonic()
    account.title("Tiltyard: 336,776 flights from New York City in 2013, four writers, one table")
    account.step("The data")
    source = flights.read(flights.archive(flights.cache_directory()))
    account.say(
        f"{source.num_rows:,} rows, {source.num_columns} columns, {source.nbytes / 1e6:.0f} MB in memory"
    )
    _write_at_once(account, source, uri, scratch)
    _compare(account, "the CSV", source, lance.dataset(uri).to_table())
    full = lance.dataset(uri).version
    _delete_cancelled(account, uri)
    _travel(account, uri, full)
    _show_a_filter(account, uri)
    peer = _start_peer(uri, scratch)  # it takes its time to begin
    try:
        _stream(account, source, scratch)
        _hear_the_peer(account, uri, scratch, peer)
    finally:
        if peer is not None:
            peer.kill()
            peer.wait()
    account.title(f"\nDone in {runtime.monotonic() - started:.2f} s.")


# -- the steps -----------------------------------------------------------------------------------


def _write_at_once(account: Account, source: pa.Table, uri: str, scratch: Path) -> None:
    import tiltyard.lance as lance

    appends = WRITERS * APPENDS_EACH
    account.step(f"{WRITERS} processes append at once, {APPENDS_EACH} times each, while this one reads")
    lance.write_dataset(source.slice(0, 0), uri)
    shared = scratch / "flights.arrow"
    with pa.OSFile(str(shared), "wb") as out, pa.ipc.new_file(out, source.schema) as writer:
        writer.write_table(source, max_chunksize=-(-source.num_rows // appends))
    writers = [_start_writer(shared, uri, number) for number in range(WRITERS)]
    try:
        seconds, looks = _watch(account, writers, uri, source.num_rows)
    finally:
        for process in writers:
            process.kill()  # only those that still run: after an error here
            process.wait()
    dataset = lance.dataset(uri)
    if dataset.count_rows() != source.num_rows:
        raise DemoError(f"{dataset.count_rows():,} rows arrived, not {source.num_rows:,}")
    account.checked(
        f"{appends} appends in {seconds:.2f} s, {dataset.count_rows():,} rows, none lost, none twice; "
        f"{looks} reads meanwhile, each of a whole version"
    )


def _start_writer(shared: Path, uri: str, number: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tiltyard.cli", "demo-writer", str(shared), uri]
    command += ["--first", str(number), "--stride", str(WRITERS)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _watch(account: Account, writers: list[subprocess.Popen[str]], uri: str, total: int) -> tuple[float, int]:
    """Start all writers together, look at the table until they are done; seconds and number of looks."""
    import tiltyard.lance as lance

    for process in writers:
        if process.stdout is None or process.stdout.readline() != "ready\n":
            raise DemoError("a writer process did not start")
    started, seen, looks = runtime.monotonic(), 0, 0
    for process in writers:
        if process.stdin is not None:
            process.stdin.write("go\n")
            process.stdin.close()
    with account.progress("rows", total) as reached:
        running = True
        while running:
            running = any(process.poll() is None for process in writers)
            count = lance.dataset(uri).count_rows()
            looks += 1
            if count < seen:
                raise DemoError(f"a reader saw {count:,} rows after {seen:,}")
            seen = count
            reached(seen)
            if running:
                runtime.sleep(POLL_SECONDS)
    if any(process.returncode for process in writers):
        raise DemoError("a writer process failed; its error stands above")
    return runtime.monotonic() - started, looks


def _delete_cancelled(account: Account, uri: str) -> None:
    import tiltyard.lance as lance

    account.step("Flights that never left are deleted: dep_time IS NULL")
    dataset = lance.dataset(uri)
    before, started = dataset.count_rows(), runtime.monotonic()
    dataset.delete("dep_time IS NULL")
    seconds, after = runtime.monotonic() - started, lance.dataset(uri).count_rows()
    if before - after != flights.CANCELLED:
        raise DemoError(f"{before - after:,} rows were deleted, not {flights.CANCELLED:,}")
    account.checked(f"{before - after:,} rows deleted in {seconds:.2f} s, {after:,} remain")


def _travel(account: Account, uri: str, full: int) -> None:
    import tiltyard.lance as lance

    account.step("Every version is still there")
    versions = lance.dataset(uri).versions()
    for version in [*versions[:2], None, *versions[-3:]]:
        if version is None:
            account.say("     ...")
        else:
            rows = lance.dataset(uri, version=version["version"]).count_rows()
            account.say(f"{version['version']:>8}  {local_time(version['timestamp'])}  {rows:>9,} rows")
    old = lance.dataset(uri, version=full)
    cancelled = old.count_rows("dep_time IS NULL")
    if cancelled != flights.CANCELLED:
        raise DemoError(f"version {full} shows {cancelled:,} cancelled flights, not {flights.CANCELLED:,}")
    account.checked(f"version {full} still shows the {cancelled:,} cancelled flights")


def _show_a_filter(account: Account, uri: str) -> None:
    import tiltyard.lance as lance

    where = "carrier = 'HA' AND dep_delay > 60 AND month IN (1, 2, 9)"
    account.step(f"A filter: {where}")
    started = runtime.monotonic()
    columns = ["month", "day", "flight", "tailnum", "origin", "dest", "dep_delay", "arr_delay"]
    found = lance.dataset(uri).to_table(columns=columns, filter=where)
    seconds = runtime.monotonic() - started
    width = terminal_width()
    account.say("\n".join(lines(found.slice(0, 8), width and width - INDENT)))
    account.say(f"{found.num_rows} of {lance.dataset(uri).count_rows():,} rows in {seconds:.2f} s")


def _stream(account: Account, source: pa.Table, scratch: Path) -> None:
    """Rows one by one into a table with a key."""
    from tiltyard.lake import connect

    account.step("A stream: rows by key, each put durable when its call returns, read while they come")
    columns = [KEY, "carrier", "flight", "origin", "dest", "dep_delay"]
    flown = source.select(columns).slice(0, 2 * STREAMED).drop_null().slice(0, STREAMED)
    board = connect(scratch / "lake").create_table("board", flown.schema, key=KEY)
    started = runtime.monotonic()
    with board.stream() as stream:
        batches = flown.combine_chunks().to_batches(max_chunksize=-(-STREAMED // PUTTERS))
        puts = [runtime.spawn(_put_rows, stream, batch) for batch in batches]
        for each in puts:
            each.join()
        seconds, entries = runtime.monotonic() - started, stream.stats().log_entries
        tails, rows = flown[KEY].unique(), board.live().count()
    if rows != len(tails) or board.live().lookup(tails).num_rows != rows:
        raise DemoError(f"{rows} aircraft are seen live, not {len(tails)}")
    account.checked(
        f"{flown.num_rows} puts of {len(puts)} threads in {seconds:.2f} s, in {entries} log entries; "
        f"{rows} aircraft are seen live, each with a flight of its own"
    )


def _put_rows(stream: Any, batch: pa.RecordBatch) -> None:
    for row in range(batch.num_rows):
        stream.put(batch.slice(row, 1))


def _start_peer(uri: str, scratch: Path) -> subprocess.Popen[str] | None:
    if find_spec("lance") is None:
        return None
    command = [sys.executable, "-c", PEER_READS, uri, str(scratch / "peer.arrow")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _hear_the_peer(account: Account, uri: str, scratch: Path, peer: subprocess.Popen[str] | None) -> None:
    import tiltyard.lance as lance

    account.step("What the official implementation reads from the same table")
    if peer is None:
        account.say("pylance is not installed here: skipped (pip install pylance)")
        return
    said, complained = peer.communicate(timeout=PEER_SECONDS)
    if peer.returncode:
        raise DemoError(f"pylance could not read the table: {complained.strip()[-500:]}")
    with pa.memory_map(str(scratch / "peer.arrow")) as source:
        theirs = pa.ipc.open_file(source).read_all()
        _compare(account, f"pylance {said.strip()}", theirs, lance.dataset(uri).to_table())


def _compare(account: Account, whom: str, theirs: pa.Table, ours: pa.Table) -> None:
    """Every value of every row; both sides sorted, because the order of appends is the writers' race."""
    if theirs.schema != ours.schema:
        raise DemoError(f"the schema differs from that of {whom}:\n{ours.schema}\nagainst\n{theirs.schema}")
    keys = [(name, "ascending") for name in SORT_KEYS]
    if not theirs.sort_by(keys).equals(ours.sort_by(keys)):
        raise DemoError(f"values differ from those of {whom}")
    account.checked(f"{ours.num_rows:,} rows x {ours.num_columns} columns equal to {whom}, value for value")


# -- places --------------------------------------------------------------------------------------


@contextmanager
def _directory(asked: str | None) -> Iterator[tuple[Path, bool]]:
    """The directory for the table, and whether it stays."""
    if asked is not None:
        if "://" in asked:
            raise DemoError(f"{asked}: the demo's writers are processes; give a directory that they all see")
        try:
            Path(asked).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            told = "it is a file" if isinstance(error, FileExistsError) else error.strerror
            raise DemoError(f"cannot keep the table in {asked}: {told}") from error
        yield Path(asked), True
        return
    with tempfile.TemporaryDirectory(prefix="tiltyard-demo-") as made:
        yield Path(made), False


def _free_name(directory: Path) -> Path:
    """`flights.lance`, or the first numbered name that nothing has yet."""
    names: Iterator[Any] = (f"flights{'' if i == 1 else f'-{i}'}.lance" for i in range(1, 10_000))
    return next(directory / name for name in names if not (directory / name).exists())
