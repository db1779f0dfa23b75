"""Blocking calls from coroutines: thin, without a protocol of their own (decision D56)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


async def in_thread(fn: Callable[..., T], *args: Any, **named: Any) -> T:
    """What `fn` returns or raises, run on a thread of the running event loop's."""
    import asyncio  # only who awaits something needs it

    return await asyncio.get_running_loop().run_in_executor(None, partial(fn, *args, **named))
