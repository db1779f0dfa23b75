"""Exclusive creation of an object that is known by its bytes: a lost answer is settled by what stands there
(decision D10).

The content must be the caller's alone (an epoch, a nonce, a random name), or one that several callers may
each count as theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from tiltyard.errors import ObjectNotFound, StoreError
from tiltyard.store import Created, Store
from tiltyard.table.back_off import back_off

MAX_SENDS = 5
"""How often one object is sent after answers that do not tell whether it is there."""


def create_settled(
    store: Store, path: str, data: bytes | Sequence[Any], directory: str
) -> tuple[Created, bytes | None]:
    """Create an object; what is known in the end, and for EXISTS the content that stands there.

    `data`: its bytes, or buffers.

    WON: ours stands, durably. EXISTS: another object does (content None if it is gone again). NOT_DONE: ours
    is not there and will not be. UNKNOWN: after `MAX_SENDS` tries it still cannot be told. `directory` is the
    path's, synced before an object whose creation got no answer counts as won.
    """
    doubtful = False
    for sends in range(1, MAX_SENDS + 1):
        answer = store.create(path, data)
        if answer is Created.WON:
            return Created.WON, None
        if answer is Created.NOT_DONE and not doubtful:
            return Created.NOT_DONE, None
        doubtful = doubtful or answer is Created.UNKNOWN
        try:
            found = bytes(store.read(path))
        except ObjectNotFound:
            if not doubtful:
                return Created.EXISTS, None
        except StoreError:
            if not doubtful:
                raise
        else:
            if not doubtful or found != whole(data):
                return Created.EXISTS, found
            with suppress(StoreError):
                store.sync_dir(directory)
                return Created.WON, None
            return Created.UNKNOWN, None
        back_off(0.0, sends)  # then the same bytes again: whichever lands, it is this object
    return Created.UNKNOWN, None


def whole(data: bytes | Sequence[Any]) -> bytes:
    """The bytes of an object that is given by buffers."""
    return data if isinstance(data, bytes) else b"".join(map(memoryview, data))
