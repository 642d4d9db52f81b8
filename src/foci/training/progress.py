"""The progress of a training run as it is displayed: a bar on a terminal, log lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from foci.printable import printable
from foci.training.options import TrainingOptions


@runtime_checkable
class Progress(Protocol):
    """Displays the progress of a training run."""

    def show(self, step: int, share: float, loss: float, speed: float, left: float | None) -> None:
        """Display a completed step; ``share`` of the whole, ``speed`` in counts per second, ``left`` in seconds."""

    def log(self, text: str) -> None:
        """Display a message."""

    def close(self) -> None:
        """End the display."""


def log_to_stderr(text: str) -> None:
    """Print a message to standard error at once, so that it can be followed in a file."""
    print(printable(text, lines=True), file=sys.stderr, flush=True)


class Lines:
    """Plain lines, one every few seconds."""

    def __init__(self, seconds: float, unit: str, log: Callable[[str], None] = log_to_stderr) -> None:
        self._seconds, self._unit, self._log = seconds, unit, log
        self._last = time.monotonic()

    def show(self, step: int, share: float, loss: float, speed: float, left: float | None) -> None:
        """Log a line, unless the last one is too recent."""
        if time.monotonic() - self._last >= self._seconds:
            self._last = time.monotonic()
            ahead = "" if left is None else f", {duration(left)} left"
            self.log(f"step {step}: loss {loss:.4f}, {speed:,.0f} {self._unit}/s{ahead}")

    def log(self, text: str) -> None:
        """Call the given function."""
        self._log(text)

    def close(self) -> None:
        """Do nothing: nothing is open."""


class Bar:
    """A bar on a terminal."""

    def __init__(self, unit: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        texts = ("step {task.fields[step]}", "loss {task.fields[loss]}", "{task.fields[speed]} " + unit + "/s")
        columns = [TextColumn(text) for text in texts]
        left = TextColumn("{task.fields[left]} left")
        self._bar = RichProgress(BarColumn(), *columns, TimeElapsedColumn(), left, console=Console(stderr=True))
        self._task = self._bar.add_task("", total=1.0, step=0, loss="–", speed="–", left="–")
        self._bar.start()

    def show(self, step: int, share: float, loss: float, speed: float, left: float | None) -> None:
        """Move the bar."""
        self._bar.update(
            self._task,
            completed=share,
            step=step,
            loss=f"{loss:.4f}",
            speed=f"{speed:,.0f}",
            left="–" if left is None else duration(left),
        )

    def log(self, text: str) -> None:
        """Print a line above the bar."""
        self._bar.console.print(printable(text, lines=True), markup=False, highlight=False)

    def close(self) -> None:
        """Stop the bar and leave it visible."""
        self._bar.stop()


def make_progress(
    options: TrainingOptions, unit: str, *, main: bool, log: Callable[[str], None] | None = None
) -> Progress:
    """Return a bar where standard error is a terminal and rich is installed, lines elsewhere or for a given ``log``."""
    if not main:  # the other processes display nothing
        return Lines(math.inf, unit, lambda text: None)
    if log is not None:
        return Lines(options.log_seconds, unit, log)
    if sys.stderr.isatty():
        try:
            return Bar(unit)
        except ImportError:
            pass
    return Lines(options.log_seconds, unit)


def duration(seconds: float) -> str:
    """
    Example:
        >>> duration(59.4), duration(61.0), duration(7322.0)
        ('59 s', '1 min 01 s', '2 h 02 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def metrics_text(metrics: Mapping[str, Any]) -> str:
    """Format metrics as one line, without those of a group ("calibration/temperature")."""
    return ", ".join(f"{name} {value:.4g}" for name, value in metrics.items() if "/" not in name)
