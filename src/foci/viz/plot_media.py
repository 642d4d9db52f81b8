"""Attention over an image and over a recording.

An image is shown once as it is, then once for each word, in gray, with the weights laid over it: smooth between the
middles of its regions, since regions overlap in what they see. A recording is shown as its spectrogram, with the
weights of each word below it on the same axis of time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from foci.errors import ConfigError
from foci.viz import canvas
from foci.viz.axis import Axis
from foci.viz.measured_text import beside, measure, wrapped
from foci.viz.regions import smooth
from foci.viz.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TILE = 1.7
"""Width of an image in inches."""
_NARROWEST_TILE = 0.9
"""Of an image in a figure of a given width."""
_BAR = 0.8
"""What the bar of colors takes with its numbers and its name."""
_FAINTEST, _STRONGEST = 0.1, 0.8
"""How much the colors of weights cover of the image below them."""
_MOST = 47
"""So many words are drawn unless some are chosen."""
_BETWEEN = 0.06
"""Inches between two spoken words above a spectrogram."""
_ROW = 0.22
"""Height of a word's weights over time, in inches."""


def image(
    trace: Trace,
    formatter: canvas.TextFormatter,
    style: canvas.FigureStyle,
    name: str | None = None,
    head: int | None = None,
    words: Sequence[int] | None = None,
) -> Figure:
    """The image, and for each word what it looked at."""
    from matplotlib.cm import ScalarMappable

    from foci.viz.figures import NotebookFigure

    attention = trace.attention(name) if name is not None else trace.cross_attentions()[0]
    source, target = trace.axes[attention.source], trace.axes[attention.target]
    if source.image is None or source.grid is None:
        raise ConfigError(
            f"plot: {attention.source!r} has no image and grid; make it with Axis.from_image(image, grid)."
        )
    weights = style.scaled(attention.dense(head))
    chosen = list(range(min(len(target), _MOST)) if words is None else words)
    for word in chosen:
        if not 0 <= word < len(target):
            raise ConfigError(f"plot: word {word} is not among the {len(target)} of {attention.target!r} (from 0 on).")
    height, width, _ = source.image.shape
    room = 10.0 if style.width is None else style.width - _BAR
    least = _TILE if style.width is None else _NARROWEST_TILE
    across = min(len(chosen) + 1, max(1, int(room // (least + 0.1))))
    down = -(-(len(chosen) + 1) // across)
    across = -(-(len(chosen) + 1) // down)
    wide = _TILE if style.width is None else room / across - 0.1
    tile = wide * min(max(height / width, 0.3), 3.0)
    size = across * (wide + 0.1) + _BAR, down * (tile + 0.35) + 0.4
    figure = NotebookFigure(figsize=size if style.width is None else (style.width, size[1]), layout="compressed")
    grid = figure.subplots(down, across, squeeze=False)
    highest = float(weights[chosen].max(initial=0.0)) or 1.0
    gray = np.repeat((source.image @ np.array([0.299, 0.587, 0.114]))[..., None] / 255, 3, axis=2)
    whole: Any = (0, width, height, 0)
    for axes in grid.flat:
        axes.set_axis_off()
    grid.flat[0].imshow(source.image, extent=whole)
    grid.flat[0].set_title(wrapped(formatter(source.title), wide, style.size))
    norm = style.norm(0.0, highest)
    layer = None
    for axes, word in zip(list(grid.flat)[1:], chosen):
        axes.imshow(gray, extent=whole)
        layer = axes.imshow(
            (spread := smooth(weights[word].reshape(source.grid), height, width)),
            extent=whole,
            cmap=canvas.colors(),
            alpha=_FAINTEST + (_STRONGEST - _FAINTEST) * np.asarray(norm(spread)),  # elsewhere the image stays clear
            norm=norm,
        )
        axes.set_title(wrapped(formatter.label(target.labels[word]), wide, style.size))
    if layer is not None:
        solid = ScalarMappable(layer.norm, layer.cmap)
        bar = figure.colorbar(solid, ax=list(grid.flat), fraction=0.03, aspect=25)
        bar.set_label(style.title("weight"))
        bar.outline.set(edgecolor="#c8c8c8", linewidth=0.5)
    if words is None and len(target) > _MOST:
        figure.supxlabel(f"the first {_MOST} of {len(target)} words", fontsize=style.size)
    return figure


def spectrogram(
    trace: Trace,
    formatter: canvas.TextFormatter,
    style: canvas.FigureStyle,
    name: str | None = None,
    head: int | None = None,
) -> Figure:
    """The spectrogram, and below it what each word listened to."""
    from foci.viz.figures import NotebookFigure

    attention = trace.attention(name) if name is not None else trace.cross_attentions()[0]
    source, target = trace.axes[attention.source], trace.axes[attention.target]
    if source.spectrogram is None:
        raise ConfigError(
            f"plot: {attention.source!r} has no spectrogram; make it with Axis.from_frames(count, spectrogram=…)."
        )
    weights = style.scaled(trace.alignment(name) if head is None else attention.dense(head))
    rows = [formatter.label(label) for label in target.labels]
    cell = min(_ROW, 8.0 / max(len(rows), 1))
    below = max(cell * len(rows), 0.5)
    longest = max(measure(rows, style.size).values(), default=0.0)
    width = style.width or 7.5 + longest
    figure = NotebookFigure(figsize=(width, 1.5 + below + 0.9), layout="constrained")
    above, axes = figure.subplots(2, 1, sharex=True, height_ratios=(1.5, below))
    length = len(source) * (source.seconds or 1.0)
    above.imshow(
        source.spectrogram.T,
        extent=(0, length, 0, source.spectrogram.shape[1]),
        origin="lower",
        aspect="auto",
        cmap="gray_r",
        interpolation="nearest",
    )
    above.set_ylabel("bin")
    above.spines[:].set_visible(False)
    _mark_words(source, formatter, style, [above, axes], width - _BAR - longest)
    masked = canvas.zeros_masked(weights)
    heat = axes.imshow(
        masked,
        extent=(0, length, len(rows) - 0.5, -0.5),
        aspect="auto",
        cmap=canvas.colors(),
        norm=style.norm(0.0, float(weights.max(initial=0.0)) or 1.0),
        interpolation="nearest",
    )
    if masked.mask.any():
        canvas.hatch(axes)
    beside(rows, cell, style.size).write(axes.yaxis)
    axes.spines[:].set(color="#c8c8c8", linewidth=0.5)
    axes.set_ylabel(formatter(target.title))
    axes.set_xlabel(f"{formatter(source.title)} (seconds)" if source.seconds else formatter(source.title))
    said = canvas.scale_label(style.title("weight"), canvas.meaning_of_zero([attention]), weights)
    if width <= canvas.COLUMN:
        bar = figure.colorbar(heat, ax=[above, axes], location="bottom", fraction=0.05, aspect=20)
        bar.set_label(wrapped(said, 0.8 * width, style.size))
    else:
        bar = figure.colorbar(heat, ax=[above, axes], fraction=0.02, aspect=30)
        bar.set_label(wrapped(said, 1.5 + below, style.size))
    bar.outline.set(edgecolor="#c8c8c8", linewidth=0.5)
    return figure


def _mark_words(
    source: Axis, formatter: canvas.TextFormatter, style: canvas.FigureStyle, axes: Sequence[Any], inches: float
) -> None:
    """Write the spoken words above the spectrogram, and mark where each begins and ends.

    Where words would overlap on a time axis of so many inches, they are turned, and of those that still would the later
    ones are left out.
    """
    long = source.seconds or 1.0
    marks = source.marks or ()
    labels = [formatter(mark.label) for mark in marks]
    middles = [(mark.first + mark.last + 1) / 2 for mark in marks]
    places = [middle * inches / len(source) for middle in middles]
    widths = measure(labels, style.size)
    turned = any(
        after - before < (widths[left] + widths[right]) / 2 + _BETWEEN
        for (before, left), (after, right) in pairwise(zip(places, labels))
    )
    written = -inches
    for mark, label, middle, place in zip(marks, labels, middles, places):
        for each in axes:
            for moment in (mark.first * long, (mark.last + 1) * long):
                each.axvline(moment, color="#c04000", linewidth=0.5, alpha=0.6, gid="word")
        if turned and place - written < 1.25 * style.size / 72:  # a line of letters
            continue
        written = place
        axes[0].text(
            middle * long,
            1.02,
            label,
            transform=axes[0].get_xaxis_transform(),
            ha="center",
            va="bottom",
            fontsize=style.size,
            rotation=90 if turned else 0,
        )
