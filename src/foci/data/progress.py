"""Messages while long files are read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def counted(items: Iterable[Item], what: str, log: Callable[[str], None], seconds: float = 5.0) -> Iterator[Item]:
    """Yield the items, and log every few seconds how many were read.

    Args:
        items: the items that are read.
        what: their name, in the plural.
        log: called with each message.
        seconds: time between two messages.
    """
    last = time.monotonic()
    for number, item in enumerate(items, start=1):
        if number % 1000 == 0 and time.monotonic() - last >= seconds:
            last = time.monotonic()
            log(f"read {number:,} {what}")
        yield item
