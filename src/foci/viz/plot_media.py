"""Attention over an image and over a recording.

An image is shown once as it is, then once for each word, in grey, with the weights laid over it: smooth between the
middles of its regions, since regions overlap in what they see. A recording is shown as its spectrogram, with the
weights of each word below it on the same axis of time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foci.errors import ConfigError
from foci.viz import canvas
from foci.viz.labels import widest
from foci.viz.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TILE = 1.7
"""Width of an image in inches."""
_MOST = 47
"""So many words are drawn unless some are chosen."""
_ROW = 0.22
"""Height of a word's weights over time, in inches."""


def image(
    trace: Trace,
    spell: canvas.Spelling,
    name: str | None = None,
    head: int | None = None,
    words: Sequence[int] | None = None,
) -> Figure:
    """The image, and for each word what it looked at."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

    attention = trace.attention(name) if name is not None else trace.crossing()[0]
    source, target = trace.cells[attention.source], trace.cells[attention.target]
    if source.image is None or source.grid is None:
        raise ConfigError(
            f"plot: {attention.source!r} has no image and grid; make it with Cells.of_image(image, grid)."
        )
    weights = attention.dense(head)
    chosen = list(range(min(len(target), _MOST)) if words is None else words)
    for word in chosen:
        if not 0 <= word < len(target):
            raise ConfigError(f"plot: word {word} is not among the {len(target)} of {attention.target!r} (from 0 on).")
    height, width, _ = source.image.shape
    across = min(len(chosen) + 1, max(1, int(10 // (_TILE + 0.1))))
    down = -(-(len(chosen) + 1) // across)
    tile = _TILE * min(max(height / width, 0.3), 3.0)
    figure = Figure(figsize=(across * (_TILE + 0.1) + 0.8, down * (tile + 0.35) + 0.4), layout="compressed")
    grid = figure.subplots(down, across, squeeze=False)
    highest = float(weights[chosen].max(initial=0.0)) or 1.0
    grey = np.repeat((source.image @ np.array([0.299, 0.587, 0.114]))[..., None] / 255, 3, axis=2)
    whole: Any = (0, width, height, 0)
    for axes in grid.flat:
        axes.set_axis_off()
    grid.flat[0].imshow(source.image, extent=whole)
    grid.flat[0].set_title(spell(source.title))
    layer = None
    for axes, word in zip(list(grid.flat)[1:], chosen):
        axes.imshow(grey, extent=whole)
        layer = axes.imshow(
            (smooth := _smooth(weights[word].reshape(source.grid), height, width)),
            extent=whole,
            cmap=canvas.colours(),
            alpha=0.1 + 0.65 * np.sqrt(smooth / highest),  # where little was looked at, the image stays clear
            vmin=0.0,
            vmax=highest,
        )
        axes.set_title(spell(target.labels[word]))
    if layer is not None:
        solid = ScalarMappable(layer.norm, layer.cmap)
        bar = figure.colorbar(solid, ax=list(grid.flat), fraction=0.03, aspect=25)
        bar.set_label("weight")
        bar.outline.set_visible(False)
    if words is None and len(target) > _MOST:
        figure.supxlabel(f"the first {_MOST} of {len(target)} words", fontsize=9)
    return figure


def spectrogram(trace: Trace, spell: canvas.Spelling, name: str | None = None, head: int | None = None) -> Figure:
    """The spectrogram, and below it what each word listened to."""
    from matplotlib.figure import Figure

    attention = trace.attention(name) if name is not None else trace.crossing()[0]
    source, target = trace.cells[attention.source], trace.cells[attention.target]
    if source.spectrogram is None:
        raise ConfigError(
            f"plot: {attention.source!r} has no spectrogram; make it with Cells.of_frames(count, spectrogram=…)."
        )
    weights = trace.alignment(name) if head is None else attention.dense(head)
    rows = [spell(label) for label in target.labels]
    cell = min(_ROW, 8.0 / max(len(rows), 1))
    below = max(cell * len(rows), 0.5)
    figure = Figure(figsize=(7.5 + canvas.LETTER * widest(rows), 1.5 + below + 0.9), layout="constrained")
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
    heat = axes.imshow(
        canvas.zeros_masked(weights),
        extent=(0, length, len(rows) - 0.5, -0.5),
        aspect="auto",
        cmap=canvas.colours(),
        vmin=0.0,
        vmax=float(weights.max(initial=0.0)) or 1.0,
        interpolation="nearest",
    )
    canvas.label_axis(axes.yaxis, rows, cell)
    axes.spines[:].set_visible(False)
    axes.set_ylabel(spell(target.title))
    axes.set_xlabel(f"{spell(source.title)} (seconds)" if source.seconds else spell(source.title))
    bar = figure.colorbar(heat, ax=[above, axes], fraction=0.02, aspect=30)
    bar.set_label(canvas.scale_label("weight", canvas.meaning_of_grey([attention]), weights))
    bar.outline.set_visible(False)
    return figure


def _smooth(weights: NDArray[np.float32], height: int, width: int) -> NDArray[np.float64]:
    """The weights of a grid of regions at each point of the image, linear between the middles of the regions."""
    down, across = weights.shape
    rows = (np.arange(height) + 0.5) * down / height - 0.5
    columns = (np.arange(width) + 0.5) * across / width - 0.5
    wide = np.stack([np.interp(columns, np.arange(across), line) for line in weights])
    return np.stack([np.interp(rows, np.arange(down), line) for line in wide.T], axis=1)
