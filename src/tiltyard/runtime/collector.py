"""The garbage collector, held back while many long-lived objects are made.

Opening ten thousand small files makes half a million objects that all stay. The cyclic collector looks at
them again and again as they grow in number and finds nothing: two fifths of such a scan.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

_is_held = False
"""Whether the collector is, or is about to be, off because of us."""


@contextmanager
def collector_held_back() -> Iterator[None]:
    """No cyclic garbage collection in this process meanwhile, if it was on; reference counting goes on.

    For work that is bounded in time and makes objects to keep. Whoever turned the collector off turns it on
    again, so of several threads the first to end may end it for all: that costs time, nothing else. In a
    child that is forked meanwhile it is on: the thread that would turn it on may not be there.
    """
    global _is_held
    if not gc.isenabled():
        yield
        return
    _is_held = True
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        _is_held = False


def _forked() -> None:
    if _is_held:
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
