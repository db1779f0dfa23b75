"""What a long command tells while it works: numbered steps, lines, a progress bar.

With rich installed the steps have colour and the bar moves in place; without it, or into a file, plain lines.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PLAIN_BAR_STEPS = 4  # lines of progress where no bar can be drawn


class Account:
    """A readable account on standard output."""

    def __init__(self) -> None:
        self._console = _rich_console()
        self._step = 0

    def title(self, text: str) -> None:
        self._print(text, style="bold")

    def step(self, text: str) -> None:
        """A numbered headline, set off by an empty line."""
        self._step += 1
        self._print(f"\n{self._step}. {text}", style="bold cyan")

    def say(self, text: str) -> None:
        for line in text.split("\n"):
            self._print(f"   {line}")

    def checked(self, text: str) -> None:
        """Something that was compared and found right."""
        self._print(f"   ok: {text}", style="green")

    @contextmanager
    def progress(self, label: str, total: int) -> Iterator[Callable[[int], None]]:
        """A bar; call what it yields with the amount reached so far."""
        if self._console is None or not self._console.is_terminal:
            yield self._plain_progress(label, total)
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        parts: list[Any] = [TextColumn("   {task.description}"), BarColumn(), MofNCompleteColumn()]
        with Progress(*parts, TimeElapsedColumn(), console=self._console) as bar:
            task = bar.add_task(label, total=total)
            yield lambda reached: bar.update(task, completed=reached)

    def _plain_progress(self, label: str, total: int) -> Callable[[int], None]:
        told = 0

        def update(reached: int) -> None:
            nonlocal told
            quarter = reached * PLAIN_BAR_STEPS // max(total, 1)
            if quarter > told:
                told = quarter
                self.say(f"{label}: {reached:,} of {total:,}")

        return update

    def _print(self, text: str, style: str | None = None) -> None:
        if self._console is None:
            print(text, flush=True)
        else:
            self._console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def _rich_console() -> Any:
    try:
        from rich.console import Console
    except ImportError:  # the extra `cli` is not installed
        return None
    return Console(file=sys.stdout)
