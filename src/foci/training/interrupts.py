"""Ctrl-C and SIGTERM stop a training run after its current step."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Interrupts:
    """While open, the first Ctrl-C or SIGTERM only sets ``requested``; a second Ctrl-C interrupts at once.

    A SIGTERM that follows is ignored: torchrun sends one to its workers after a Ctrl-C that they have received
    themselves. Outside the main thread Python allows no handlers, and nothing changes.
    """

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._request) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True
