"""The worst mistakes of a detector: what it found, and beside it what is there."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, UInt8
from numpy.typing import NDArray

from foci.metrics.detection import Found, Marked
from foci.metrics.matched_boxes import Mistake, matched, mistakes
from foci.viz.figure import canvas
from foci.viz.figure.boxes import LINE, draw_box, show_picture
from foci.viz.figure.measured_text import measure
from foci.viz.shaded_words import HUES

_TILE = 1.7
"""Width of a picture in inches, which is as high."""
_GAP, _BETWEEN, _TITLE, _HEADING = 0.06, 0.22, 0.22, 0.36
"""Inches between both pictures of a mistake, between mistakes, above a picture for its title, and above a kind."""
_PAIRS = 3
"""Mistakes beside each other, each with the truth."""
_AROUND = 2.5
"""How wide and high the part of an image is that is shown, in longer sides of the box that is the mistake."""
_LEAST = 0.3
"""The same, at least, in shorter sides of the image."""
_LONGEST = 26
"""Letters of a title; longer ones are cut."""
_THICK = 2.6
"""The line of the mistake, in points."""
_KINDS = {
    "missed": "missed objects, the least suspected first",
    "wrong": "boxes of a wrong class, the surest first",
    "false": "false boxes, the surest first",
}


class Seen(NamedTuple):
    """An image as it is drawn, how high and wide it is in the pixels of its boxes, and its name."""

    picture: UInt8[NDArray[np.uint8], "H W 3"]
    size: tuple[float, float]
    name: str


def draw_mistakes(
    path: str | os.PathLike[str],
    found: Sequence[Found],
    marked: Sequence[Marked],
    labels: Sequence[str],
    image: Callable[[int], Seen],
    *,
    threshold: float,
    most: int = 6,
) -> canvas.Figure:
    """Draw the worst mistakes of each kind to a PNG, SVG or PDF file by the name's ending.

    Each is a part of its image twice: with the boxes that were found, and with the objects that are there. The box or
    the object that is the mistake has a thick line.

    Args:
        path: of the file, which appears whole or not at all.
        found: the predicted boxes of each image.
        marked: the objects of each image.
        labels: of the classes.
        image: gives an image by its number.
        threshold: the lowest score of the boxes that count.
        most: how many mistakes of each kind are drawn.
    """
    target = canvas.check_path("mistakes", path)
    kinds = {kind: worst for kind, worst in mistakes(found, marked, threshold=threshold)._asdict().items() if worst}
    seen = {one.image: image(one.image) for worst in kinds.values() for one in worst[:most]}
    with canvas.drawing([*labels, *(one.name for one in seen.values())]) as style:
        lines = {kind: -(-min(len(worst), most) // _PAIRS) for kind, worst in kinds.items()}
        height = _HEADING * (1 + max(len(kinds), 1)) + (_TILE + _TITLE) * sum(lines.values())
        page = _Page(canvas.new_figure(_PAIRS * (2 * _TILE + _GAP + _BETWEEN), height), style)
        page.legend(labels)
        if not kinds:
            page.heading(f"no mistakes in {len(marked):,} images")
        for kind, worst in kinds.items():
            drawn = f" ({most} of {len(worst):,} are drawn)" if most < len(worst) else ""
            page.heading(f"{len(worst):,} {_KINDS[kind]}{drawn}; left: found, right: there")
            for place, one in enumerate(worst[:most]):
                both = _Pair(one, found[one.image], marked[one.image], seen[one.image], labels, threshold)
                for side, draw in enumerate((both.draw_found, both.draw_there)):
                    axes = page.tile(2 * (place % _PAIRS) + side)
                    both.show(axes)
                    axes.set_title(style.text(draw(axes), _LONGEST), fontsize=style.size - 1, pad=3)
                if place % _PAIRS == _PAIRS - 1 or one is worst[:most][-1]:
                    page.next_line()
        canvas.save(page.figure, target)
    return page.figure


class _Page:
    """A figure that is filled from the top."""

    def __init__(self, figure: canvas.Figure, style: canvas.FigureStyle) -> None:
        self.figure, self.style = figure, style
        self.width, self.height = figure.get_size_inches()
        self.top = 0.0

    def heading(self, text: str) -> None:
        """Write a line."""
        place = 1 - (self.top + 0.6 * _HEADING) / self.height
        self.figure.text(_BETWEEN / 2 / self.width, place, text, fontsize=self.style.size + 1, va="center")
        self.top += _HEADING

    def legend(self, labels: Sequence[str]) -> None:
        """Write the classes on their hues, as many as there is room for."""
        left, place = _BETWEEN / 2, 1 - (self.top + 0.6 * _HEADING) / self.height
        names = [self.style.text(label) for label in labels]
        inches = measure(names, self.style.size)
        for number, name in enumerate(names):
            if left + inches[name] + _BETWEEN > self.width:
                self.figure.text(left / self.width, place, "…", va="center")
                break
            box = {"boxstyle": "square,pad=0.2", "facecolor": HUES[number % len(HUES)], "edgecolor": "none"}
            self.figure.text(left / self.width, place, name, fontsize=self.style.size, va="center", bbox=box)
            left += inches[name] + _BETWEEN
        self.top += _HEADING

    def tile(self, column: int) -> Any:
        """Return a place for a picture."""
        bottom = self.height - self.top - _TITLE - _TILE
        left = _BETWEEN / 2 + column * (_TILE + _GAP) + (column // 2) * (_BETWEEN - _GAP)
        box = (left / self.width, bottom / self.height, _TILE / self.width, _TILE / self.height)
        return self.figure.add_axes(box)

    def next_line(self) -> None:
        """Go on below the pictures."""
        self.top += _TILE + _TITLE


class _Pair(NamedTuple):
    """A mistake, and what there is to be drawn of it."""

    mistake: Mistake
    found: Found
    marked: Marked
    seen: Seen
    labels: Sequence[str]
    threshold: float

    def draw_found(self, axes: Any) -> str:
        """Draw the boxes that reach the threshold; returns what the box of the mistake is called."""
        for place in np.flatnonzero(self.found.scores >= self.threshold):
            self._box(axes, self.found.boxes[place], self.found.labels[place], thick=place == self.mistake.box)
        if self.mistake.box is None:
            return f"missed (at most {self.mistake.score:.2f})" if self.mistake.score else "missed"
        return f"{self.labels[self.found.labels[self.mistake.box]]} {self.mistake.score:.2f}"

    def draw_there(self, axes: Any) -> str:
        """Draw the objects, crowds with broken lines; returns what the object of the mistake is called."""
        one = self.mistake.object
        for place, (box, label) in enumerate(zip(self.marked.boxes, self.marked.labels)):
            self._box(axes, box, label, thick=place == one, dashed=bool(self.marked.crowd[place]))
        said = "nothing" if one is None else self.labels[self.marked.labels[one]]
        taken = self.mistake.box is not None and one is not None and self.is_false
        return f"{said}{', found already' * taken} · {Path(self.seen.name).stem}"

    @property
    def is_false(self) -> bool:
        """Whether the box of the mistake found no object."""
        pairs = matched(self.found, self.marked, threshold=self.threshold)
        return bool(pairs.objects[pairs.boxes == self.mistake.box] < 0)

    def _box(
        self, axes: Any, box: Float[NDArray[np.floating], " 4"], label: int, *, thick: bool, dashed: bool = False
    ) -> None:
        color = HUES[int(label) % len(HUES)]
        draw_box(axes, self._scaled(box), color, line=_THICK if thick else LINE, dashed=dashed)

    def _scaled(self, box: Float[NDArray[np.floating], " 4"]) -> list[float]:
        """Return a box in the pixels of the picture."""
        (high, wide, _), (height, width) = self.seen.picture.shape, self.seen.size
        scaled: list[float] = (box * [wide / width, high / height, wide / width, high / height]).tolist()
        return scaled

    def show(self, axes: Any) -> None:
        """Draw the part of the picture around the mistake."""
        show_picture(axes, self.seen.picture)
        places = (self.found.boxes, self.mistake.box), (self.marked.boxes, self.mistake.object)
        boxes = [self._scaled(of[place]) for of, place in places if place is not None]
        (left, top), (right, bottom) = np.min(boxes, axis=0)[:2], np.max(boxes, axis=0)[2:]
        high, wide, _ = self.seen.picture.shape
        side = max(_AROUND * max(right - left, bottom - top), _LEAST * min(high, wide))
        across, down = (_inside(left + right, side, wide), _inside(top + bottom, side, high))
        axes.set(xlim=across, ylim=down[::-1])


def _inside(twice_middle: float, side: float, end: float) -> tuple[float, float]:
    """Return a stretch of this length around a middle, moved so that it lies from 0 to the end as far as it can."""
    if side >= end:
        return 0.0, end
    first = min(max((twice_middle - side) / 2, 0.0), end - side)
    return first, first + side
