"""Texts that are measured as they will be drawn, so that none touches another.

Labels along an axis are turned, then made smaller, then thinned out until they fit; titles are broken into lines.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

SMALLEST = 7.0
"""Points below which letters are not made: less is hard to read in print."""
LINE = 1.25
"""The height of a line, in sizes of its letters."""
GAP = 0.07
"""Between two labels side by side, in inches."""
_MOST = 64
"""Labels of words; more are not read."""
_NUMBER = re.compile(r"\d+(\.\d+)?( s)?")
_NICE = (1, 2, 5)


def measure(labels: Iterable[str], size: float) -> dict[str, float]:
    """Return how wide each text is drawn in inches, with the fonts of the current style."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties

    renderer = FigureCanvasAgg(Figure(dpi=100)).get_renderer()  # type: ignore[no-untyped-call]
    font = FontProperties(size=size)
    return {label: renderer.get_text_width_height_descent(label, font, False)[0] / 100 for label in set(labels)}


@dataclass(frozen=True)
class Fitted:
    """How the labels of an axis are written."""

    labels: Sequence[str]
    step: int
    """Every how many cells have a label."""
    rotation: int
    """In degrees: 0, 45 or 90."""
    size: float
    """Of the letters, in points."""
    room: float
    """How far they reach from the axis, in inches."""

    def write(self, axis: Any) -> None:
        """Put them on an axis of matplotlib."""
        axis.set_tick_params(length=0)
        turned: dict[str, Any] = {"rotation": self.rotation} if self.rotation else {}
        if self.rotation:
            turned |= {"ha": "right", "va": "top" if self.rotation == 45 else "center", "rotation_mode": "anchor"}
        axis.set_ticks(range(0, len(self.labels), self.step), self.labels[:: self.step], fontsize=self.size, **turned)


def below(labels: Sequence[str], cell: float, size: float) -> Fitted:
    """Fit labels below columns that are ``cell`` inches wide.

    Words stand upright while they have room, lean, or run upwards; only then are they made smaller, and only then some
    are left out. Numbers stay upright: of them every second, fifth or tenth is enough.
    """
    widths = measure(labels, size)
    widest, line = max(widths.values(), default=0.0), LINE * size / 72
    if widest + GAP <= cell and len(labels) <= _MOST:
        return Fitted(labels, 1, 0, size, line)
    if labels and all(_NUMBER.fullmatch(label) for label in labels):
        return Fitted(labels, _nice((widest + GAP) / cell), 0, size, line)
    if cell * math.sin(math.pi / 4) >= line and len(labels) <= _MOST:
        return Fitted(labels, 1, 45, size, widest * math.sin(math.pi / 4) + line)
    step, smaller = _upright(len(labels), cell, size)
    return Fitted(labels, step, 90, smaller, widest * smaller / size)


def beside(labels: Sequence[str], cell: float, size: float) -> Fitted:
    """Fit labels beside rows that are ``cell`` inches high."""
    step, smaller = _upright(len(labels), cell, size)
    if step > 1 and all(_NUMBER.fullmatch(label) for label in labels):
        step = _nice(step)
    return Fitted(labels, step, 0, smaller, max(measure(labels, smaller).values(), default=0.0))


def _upright(count: int, cell: float, size: float) -> tuple[int, float]:
    """Every how many of lines that are ``cell`` inches apart have room, and in which size."""
    fitting = min(size, 72 * cell / LINE)
    if fitting < SMALLEST:
        return max(math.ceil(LINE * SMALLEST / 72 / cell), -(-count // _MOST)), SMALLEST
    return -(-count // _MOST) or 1, fitting


def _nice(least: float) -> int:
    """The smallest of 1, 2, 5, 10, 20, 50, … that is at least this."""
    power = int(10 ** math.floor(math.log10(max(least, 1.0))))
    return next(step * power for step in (*_NICE, 10) if step * power >= least - 1e-9)


def wrapped(title: str, width: float, size: float) -> str:
    """Break the title into lines of at most about ``width`` inches."""
    if not title:
        return title
    letters = max(int(len(title) * width / max(measure([title], size)[title], 1e-6)), 1)
    return "\n".join(textwrap.wrap(title, letters))
