"""Blocking calls from coroutines: thin, without a protocol of their own (decision D56)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


async def in_thread(fn: Callable[..., T], *args: Any, **named: Any) -> T:
    """What `fn` returns or raises, run on a thread of the running event loop's."""
    import asyncio  # only who awaits something needs it

    return await asyncio.get_running_loop().run_in_executor(None, partial(fn, *args, **named))


Begin = Callable[[Callable[[Any], None]], Callable[[], None]]
"""Begins something that tells its answer, or the exception that it failed by, from any thread; gives what
takes it back (`CombiningQueue.post`).
"""


async def told(begins: Sequence[Begin]) -> list[Any]:
    """The answers of all, which run side by side without a thread for each; the first failure is raised when
    all have ended. A caller that is cancelled takes back what has not begun.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    futures: list[asyncio.Future[Any]] = []
    undo: list[Callable[[], None]] = []
    try:
        for begin in begins:
            future: asyncio.Future[Any] = loop.create_future()
            undo.append(begin(partial(_tell, loop, future)))
            futures.append(future)
        answers = [await each for each in futures]
    except BaseException:
        for back in undo:
            back()
        raise
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return answers


def _tell(loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], answer: Any) -> None:
    with suppress(RuntimeError):  # the loop was closed: nobody waits any more
        loop.call_soon_threadsafe(_settle, future, answer)


def _settle(future: asyncio.Future[Any], answer: Any) -> None:
    if not future.done():
        future.set_result(answer)  # exceptions too: one that nobody fetched would be logged


async def pause(seconds: float) -> None:
    """Let others run for so long."""
    import asyncio

    await asyncio.sleep(seconds)
