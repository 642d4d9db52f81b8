"""A progress bar on standard error, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress


@contextmanager
def counting(what: str, total: int | None, *, hidden: bool = False) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the number of items that were just completed.

    Args:
        what: what is done, in a word.
        total: number of items; None where it is not known, so that they are counted alone.
        hidden: show nothing.
    """
    console, hidden = Console(file=sys.stderr), hidden or not sys.stderr.isatty()
    # What is printed meanwhile goes where it should: rich would draw it on the terminal.
    with Progress(console=console, transient=True, disable=hidden, redirect_stdout=False) as progress:
        task = progress.add_task(what, total=total)

        def advance(done: int) -> None:
            progress.advance(task, done)
            if total is None:
                progress.update(task, description=f"{what}: {progress.tasks[0].completed:,.0f}")

        yield advance
