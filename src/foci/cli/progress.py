"""A progress bar on standard error, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress


@contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the number of items that were just completed."""
    with Progress(console=Console(file=sys.stderr), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done: progress.advance(task, done)
