"""Attention over an image.

A figure shows the image once as it is, then once for each word, in gray, with the weights laid over it: smooth between
the middles of its regions, since regions overlap in what they see. In a terminal with colors a character shows two
pixels of the image, one above the other; what was looked at stays bright, the rest lies under a veil. Without colors
each region is two blocks, darker where its weight is larger; of a fine grid, some regions together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foci.errors import ConfigError
from foci.viz.axis import Axis
from foci.viz.colors import code
from foci.viz.figure import canvas
from foci.viz.figure.measured_text import wrapped
from foci.viz.labels import cut, shown, width
from foci.viz.pictured import of_picture
from foci.viz.regions import smooth
from foci.viz.selection import Selection
from foci.viz.terminal.sheet import sheet_of, with_notes
from foci.viz.terminal.tiles import beside, coarser
from foci.viz.trace import Trace

_TILE = 1.7
"""Width of an image in inches."""
_NARROWEST_TILE = 0.9
"""Of an image in a figure of a given width."""
_BAR = 0.8
"""What the bar of colors takes with its numbers and its name."""
_FAINTEST, _STRONGEST = 0.1, 0.8
"""How much the colors of weights cover of the image below them."""
_MOST = 47
"""How many words are drawn by default."""
_WIDEST = 28
"""Columns of an image in a terminal."""
_LABEL = 24
"""Columns that a label may take above a narrower image."""
_VEIL = 0.2
"""How bright a pixel is that nothing looked at."""


def fits(selection: Selection) -> bool:
    """What is read are regions of an image that is there; a terminal needs their grid alone."""
    source = of_picture(selection).source
    needed = source.image if selection.form == "figure" else source.grid
    return source.kind == "regions" and needed is not None


def figure(
    trace: Trace,
    style: canvas.FigureStyle,
    name: str | None = None,
    head: int | None = None,
    words: Sequence[int] | None = None,
) -> canvas.Figure:
    """The image, and for each word what it looked at."""
    from matplotlib.cm import ScalarMappable

    selection = of_picture(Selection(trace, name, head))
    attention, source, target = selection.attention, selection.source, selection.target
    if source.image is None or source.grid is None:
        raise ConfigError(
            f"plot: {attention.source!r} has no image and grid; make it with Axis.from_image(image, grid)."
        )
    weights = style.scaled(selection.weights)
    chosen = list(range(min(len(target), _MOST)) if words is None else words)
    for word in chosen:
        if not 0 <= word < len(target):
            raise ConfigError(f"plot: word {word} is not among the {len(target)} of {attention.target!r} (zero-based).")
    height, width, _ = source.image.shape
    room = 10.0 if style.width is None else style.width - _BAR
    least = _TILE if style.width is None else _NARROWEST_TILE
    across = min(len(chosen) + 1, max(1, int(room // (least + 0.1))))
    down = -(-(len(chosen) + 1) // across)
    across = -(-(len(chosen) + 1) // down)
    wide = _TILE if style.width is None else room / across - 0.1
    tile = wide * min(max(height / width, 0.3), 3.0)
    size = style.width or across * (wide + 0.1) + _BAR, down * (tile + 0.35) + 0.4
    drawn = canvas.new_figure(*size, "compressed")
    grid = drawn.subplots(down, across, squeeze=False)
    highest = float(weights[chosen].max(initial=0.0)) or 1.0
    gray = np.repeat((source.image @ np.array([0.299, 0.587, 0.114]))[..., None] / 255, 3, axis=2)
    whole: Any = (0, width, height, 0)
    for axes in grid.flat:
        axes.set_axis_off()
    grid.flat[0].imshow(source.image, extent=whole)
    grid.flat[0].set_title(wrapped(style.text(source.title), wide, style.size))
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
        axes.set_title(wrapped(style.label(target.labels[word]), wide, style.size))
    if layer is not None:
        solid = ScalarMappable(layer.norm, layer.cmap)
        bar = drawn.colorbar(solid, ax=list(grid.flat), fraction=0.03, aspect=25)
        bar.set_label(style.title(trace.measure))
        bar.outline.set(edgecolor="#c8c8c8", linewidth=0.5)
    if words is None and len(target) > _MOST:
        drawn.supxlabel(f"the first {_MOST} of {len(target)} words", fontsize=style.size)
    return drawn


def terminal(selection: Selection) -> list[str]:
    """The maps of all rows, beside each other as far as there is room."""
    selection = of_picture(selection)
    source, (columns, colors) = selection.source, (selection.screen.columns, selection.screen.colors)
    if source.grid is None:
        key = selection.attention.source
        raise ConfigError(f"view 'image' needs regions of an image, but {key!r} has no grid.")
    block = sheet_of(selection).block
    tiles = []
    for label, row in zip(selection.target.labels, selection.weights[: selection.rows]):
        highest = float(row.max())
        shares = (row / highest if highest > 0 else row).reshape(source.grid)
        room = min(columns, _WIDEST)
        picture = _painted(shares, source, room, colors) if colors else _blocks(coarser(shares, room // 2), block)
        size = picture[0][1]
        called = cut(shown(label), max(size, min(_LABEL, columns)))
        tiles.append((called, picture, max(size, width(called))))
    return with_notes(selection, beside(tiles, columns))


def _blocks(shares: NDArray[Any], block: Callable[[float], str]) -> list[tuple[str, int]]:
    lines = ["".join(2 * (block(float(share)) if share > 0 else " ") for share in row) for row in shares]
    return [(line, len(line)) for line in lines]


def _painted(shares: NDArray[np.float32], source: Axis, room: int, colors: int) -> list[tuple[str, int]]:
    """The image below a veil, two pixels a character."""
    height, wide = (1, 1) if source.image is None else source.image.shape[:2]
    ratio = shares.shape[0] / shares.shape[1] if source.image is None else height / wide
    rows = 2 * max(1, round(room * ratio / 2))
    bright = _VEIL + (1 - _VEIL) * np.clip(smooth(shares, rows, room), 0, 1)
    if source.image is None:
        pixels = np.full((rows, room, 3), 255)
    else:
        down, across = (np.arange(count) * size // count for count, size in ((rows, height), (room, wide)))
        pixels = source.image[down][:, across]
    shaded: Any = np.rint(pixels * bright[..., None]).astype(int).tolist()
    lines = []
    for upper, lower in zip(shaded[::2], shaded[1::2]):
        cells = [f"\x1b[38;{code(above, colors)};48;{code(below, colors)}m▀" for above, below in zip(upper, lower)]
        lines.append(("".join(cells) + "\x1b[0m", room))
    return lines
