"""Boxes over a picture, and what was looked at: a wash of color with a line around its middle, or dots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from numpy.typing import NDArray

from foci.viz.figure import canvas
from foci.viz.figure.measured_text import SMALLEST
from foci.viz.regions import smooth
from foci.viz.shaded_words import HUES

DARK = "#1d1f23"
"""Around what is drawn, so that it is seen on any picture."""
_STRONGEST = 0.45
"""How much the color of the largest weight covers of the picture below it."""
_LARGEST_DOT = 110.0
"""The area of the dot with the largest weight, in square points."""
_FAR_RIGHT = 0.7
"""A box that begins beyond this share of the width has its label towards the left."""
LINE = 1.4
"""The width of a line in points."""


def class_of(label: str) -> str:
    """Return the label of an object without its probability.

    Example:
        >>> class_of("red cell 0.93"), class_of("0.93")
        ('red cell', '0.93')
    """
    name, _, last = label.rpartition(" ")
    return name if name and last.replace(".", "", 1).isdecimal() else label


def hues_of(labels: Sequence[str]) -> list[str]:
    """Return a hue for each label: the same for objects of one class; a ninth class has the first hue again.

    Example:
        >>> hues_of(["cat 0.9", "dog 0.8", "cat 0.7"])
        ['#56b4e9', '#e69f00', '#56b4e9']
    """
    classes = list(dict.fromkeys(map(class_of, labels)))
    return [HUES[classes.index(class_of(label)) % len(HUES)] for label in labels]


def show_picture(axes: Any, picture: UInt8[NDArray[np.uint8], "H W 3"]) -> None:
    """Draw a picture without a frame, in pixels from its left upper corner on."""
    height, width, _ = picture.shape
    axes.imshow(picture, extent=(0, width, height, 0), interpolation="antialiased")
    axes.set(xlim=(0, width), ylim=(height, 0))
    canvas.bare(axes)


def draw_box(
    axes: Any, box: Sequence[float], color: str, label: str = "", *, line: float = LINE, dashed: bool = False
) -> None:
    """Draw a box, left, top, right and bottom in the units of the axes, and its label above or, at the edge, in it."""
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import Stroke, withStroke

    left, top, right, bottom = box
    drawn = Rectangle((left, top), right - left, bottom - top, fill=False, edgecolor=color, linewidth=line)
    drawn.set_linestyle((0, (3, 2)) if dashed else "-")
    drawn.set_path_effects([Stroke(linewidth=line + 1.0, foreground=DARK), withStroke(linewidth=0, foreground=DARK)])
    axes.add_patch(drawn)
    if label:
        width, height = axes.get_xlim()[1], axes.get_ylim()[0]
        inside, leftward = top < 0.06 * height, left > _FAR_RIGHT * width
        axes.annotate(
            label,
            (min(right, width) if leftward else max(left, 0.0), max(top, 0.0)),
            xytext=(-0.5 if leftward else 0.5, -1 if inside else 1),
            textcoords="offset points",
            va="top" if inside else "bottom",
            ha="right" if leftward else "left",
            fontsize=SMALLEST,
            color="black",
            bbox={"boxstyle": "square,pad=0.15", "facecolor": color, "edgecolor": "none", "alpha": 0.9},
            annotation_clip=False,
        )


def draw_wash(axes: Any, weights: Float[NDArray[np.floating], "R S"], size: tuple[int, int], norm: Any) -> None:
    """Draw weights over a picture: the more the less is seen of it, and a line around half of the largest and more."""
    height, width = size
    spread = smooth(weights, height, width)
    shares = np.clip(np.asarray(norm(spread)), 0, 1)
    whole: Any = (0, width, height, 0)
    axes.imshow(spread, extent=whole, cmap=canvas.colors(), norm=norm, alpha=_STRONGEST * shares)
    middle = spread.max() / 2
    if spread.min() < middle:
        across, down = np.arange(width) + 0.5, np.arange(height) + 0.5
        for color, thick in ((DARK, LINE + 0.6), ("white", 0.8)):
            axes.contour(across, down, spread, levels=[middle], colors=[color], linewidths=[thick])


def draw_points(axes: Any, points: Float[NDArray[np.floating], "N 3"], size: tuple[int, int], norm: Any) -> None:
    """Draw points, each with its place as shares of the picture and its weight, as dots, small ones on top."""
    height, width = size
    ordered = points[np.argsort(-points[:, 2], kind="stable")]
    axes.scatter(
        ordered[:, 0] * width,
        ordered[:, 1] * height,
        s=_LARGEST_DOT * ordered[:, 2] / max(norm.vmax, 1e-30),
        c=ordered[:, 2],
        cmap=canvas.colors(),
        norm=norm,
        edgecolors=DARK,
        linewidths=0.7,
        clip_on=True,
    )
