"""The two marker files of a table directory (pack 2.1): `.lance-reserved` says that the name is taken though
no version was written, `.lance-deregistered` hides the directory from everybody who reads the root by names.

Both are made with put-if-absent and decide races where there is no row to decide them, so ours carry a nonce
after the word that every writer puts there (decision D11); others test presence only. Where there is a
register, a deregistered marker of ours only tells others what a rewrite has decided: for ours the row counts.

1. Of all that create one marker while none stands, exactly one is told that it won, also where the store's
   answer was lost. Test: tests/catalog/test_markers.py.
2. A marker is never made in a directory that is gone: it goes through the handle that was opened on the
   directory while it stood, and lands there even if that is renamed meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiltyard import runtime
from tiltyard.errors import CorruptFile, ObjectNotFound, OutcomeUnknown, StoreError
from tiltyard.store import Created

if TYPE_CHECKING:
    from tiltyard.store import Store

RESERVED = ".lance-reserved"
DEREGISTERED = ".lance-deregistered"

WORD = b"reserved"
"""What every writer puts into both markers."""

MAX_MARKER_BYTES = 4096
"""Nobody writes longer ones; of one that is, only its presence is looked at."""


def put_marker(table: Store, marker: str, note: str = "") -> bool:
    """Create a marker in a table's directory: whether we did, or one stood there. `note` is one more line.

    Raises StoreError where it could not be made, OutcomeUnknown where that cannot be told.
    """
    data = marker_content(note)
    answer = table.create(marker, data)
    if answer is Created.WON:
        return True
    if answer is Created.EXISTS:
        return read_marker(table, marker) == data  # an answer of ours that was lost below the store
    cause = table.failure(marker)
    if answer is Created.NOT_DONE:
        raise StoreError(f"cannot write {table.uri}/{marker}: {cause}; nothing was changed") from cause
    try:
        found = read_marker(table, marker)
        if found == data:
            table.sync_dir("")
            return True
    except StoreError as error:
        raise _unknown(table, marker) from error
    if found is not None:
        return False
    raise _unknown(table, marker) from cause


def marker_content(note: str = "") -> bytes:
    """What a marker of ours holds, with a nonce that no other has. With a note it decides also beside a row
    (`nonce_of`).
    """
    return "\n".join([WORD.decode(), str(runtime.uuid4()), *([note] if note else [])]).encode()


def note_of(content: bytes | None) -> str | None:
    """The note in a marker's content; None where there is none."""
    found = [] if content is None else content.split(b"\n")
    return found[2].decode("utf-8", "replace") if len(found) == 3 and found[0] == WORD else None


def _unknown(table: Store, marker: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"the answer to creating {table.uri}/{marker} was lost: it may stand there now, or later. Look at "
        "the table again"
    )


def read_marker(table: Store, marker: str) -> bytes | None:
    """The content of a marker, None where there is none."""
    try:
        return table.read(marker, 0, min(table.stat(marker).size, MAX_MARKER_BYTES)).to_pybytes()
    except (ObjectNotFound, CorruptFile):
        return None


def nonce_of(content: bytes | None) -> str | None:
    """The nonce in a marker's content; None for a marker of another program, or none."""
    found = [] if content is None else content.split(b"\n")
    return found[1].decode("ascii", "replace") if len(found) == 2 and found[0] == WORD else None


def remove_marker(table: Store, marker: str) -> bool:
    """Take a marker away for good; whether it was there."""
    if not table.delete(marker):
        return False
    table.sync_dir("")
    return True
