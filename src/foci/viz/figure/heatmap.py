"""Heat maps of weights, fit to print: one panel, or small multiples that share one scale of colors."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foci.errors import DataError, ShapeError
from foci.viz.axis import Axis
from foci.viz.colors import ink
from foci.viz.figure import canvas, measured_text
from foci.viz.figure.canvas import FigureStyle
from foci.viz.figure.measured_text import GAP, LINE, Fitted, measure, wrapped

if TYPE_CHECKING:
    from matplotlib.image import AxesImage

_CELL = 0.34
"""Height of a cell in inches; wider ones are made for long texts, smaller ones for long sequences."""
_WIDEST = 10.0
"""How much room all panels together may take, in inches."""
_PRINTED = 7.5
"""As much fits on a page; cells are not widened beyond it."""
_WIDEST_CELL = 0.62
"""How wide a cell is made to fill a given width, or so that labels stand upright, in inches."""
_NARROWEST_CELL = 0.13
"""Panels with narrower cells than this do not stand side by side."""
_GAP = 0.4
"""Between two panels."""
_BAR = 0.15
"""How thick the bar of colors is."""
_BAR_ROOM = 0.75
"""What the bar takes with its numbers and its name."""
_NARROW_GAP = 0.12
"""Between two panels in a figure of a given width."""


def heatmap(
    weights: ArrayLike,
    path: str | os.PathLike[str],
    *,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    panels: Sequence[str] | None = None,
    texts: Sequence[Sequence[str]] | None = None,
    row_axis: str = "",
    column_axis: str = "",
    title: str = "",
    scale: str | Sequence[str] = "weight",
    across: int | None = None,
    width: float | None = None,
    gamma: float = 1.0,
) -> Path:
    """Draw weights and save them as PNG, SVG or PDF, by the name's ending. The file appears whole or not at all.

    Args:
        weights: ``(L, S)``; small multiples ``(P, L, S)``, for example heads; or one row ``(S,)`` or ``(C, 1, 1)``.
        path: where the picture goes; missing folders are made.
        rows: a label for each row.
        columns: a label for each column.
        panels: a title for each panel.
        texts: a text for each cell, the same in every panel.
        row_axis: what the rows are.
        column_axis: what the columns are.
        title: above everything.
        scale: what the colors mean; or one name per panel, where panels of another name have a scale of their own.
        across: how many panels stand side by side; default: as many as fit.
        width: of the picture in inches; default: what suits the content.
        gamma: the exponent of the scale of colors; below 1 brings out small weights.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> heatmap([[0.9, 0.1], [0.0, 1.0]], f"{folder}/weights.png", columns=["the", "cat"]).name
        'weights.png'
    """
    path = canvas.check_path("heatmap", path)
    style = FigureStyle(width, gamma=gamma)
    labels = Labels(rows, columns, panels, texts, row_axis, column_axis, title, scale)
    with canvas.drawing(labels.all, style) as style:
        canvas.save(draw(weights, labels, style, across=across), path, keep_width=width is not None)
    return path


@dataclass(frozen=True)
class Labels:
    """All that is written in a picture."""

    rows: Sequence[str] | None = None
    columns: Sequence[str] | None = None
    panels: Sequence[str] | None = None
    texts: Sequence[Sequence[str]] | None = None
    row_axis: str = ""
    column_axis: str = ""
    title: str = ""
    scale: str | Sequence[str] = "weight"
    lines: Sequence[str] | None = None
    """A name for each line of panels, in the place of the row axis's."""
    hatched: str = "exactly 0"
    """What a weight of 0 means."""
    all_or_none: bool = False
    """Whether labels are left out altogether where there is no room for each of them."""

    @classmethod
    def from_axes(cls, rows: Axis, columns: Axis, scale: str, **others: Any) -> Labels:
        """Return the labels and titles of two axes; the others are those of the class."""
        others |= {"row_axis": rows.title, "column_axis": columns.title}
        return cls(rows.labels, columns.labels, scale=scale, **others)

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise unless there is one label for each panel, row, column and cell."""
        for name, size in zip(("panels", "rows", "columns"), shape):
            labels = getattr(self, name)
            if labels is not None and len(labels) != size:
                raise ShapeError(f"heatmap: {name} has {len(labels)} labels, expected {size}, as weights has {name}.")
        if self.texts is not None and [len(line) for line in self.texts] != [shape[2]] * shape[1]:
            raise ShapeError(f"heatmap: texts has not one text a cell, expected {shape[1]} × {shape[2]}.")
        if not isinstance(self.scale, str) and len(self.scale) != shape[0]:
            raise ShapeError(f"heatmap: scale has {len(self.scale)} names, expected one or {shape[0]}, one per panel.")

    def scales(self, count: int) -> list[str]:
        """Return the name of each panel's scale."""
        return [self.scale] * count if isinstance(self.scale, str) else list(self.scale)

    @property
    def in_cells(self) -> list[str]:
        """The texts of all cells."""
        return [text for line in self.texts or () for text in line]

    @property
    def all(self) -> list[str]:
        """Every text there is."""
        named = [self.row_axis, self.column_axis, self.title, *self.scales(1), *(self.lines or ())]
        return [*(self.rows or ()), *(self.columns or ()), *(self.panels or ()), *self.in_cells, *named]

    def formatted(self, style: FigureStyle) -> Labels:
        """Return the labels as they are drawn."""

        def long(text: str) -> str:
            return style.text(text, canvas.LONGEST_TITLE)

        return replace(
            self,
            rows=self.rows and [style.label(label) for label in self.rows],
            columns=self.columns and [style.label(label) for label in self.columns],
            panels=self.panels and [long(label) for label in self.panels],
            texts=self.texts and [[style.text(text) for text in line] for line in self.texts],
            row_axis=style.text(self.row_axis),
            column_axis=long(self.column_axis),
            title=long(self.title),
        )


class _Layout:
    """How many panels stand side by side and one below the other, and their measures in inches.

    ``figure`` is width and height, ``panel`` and ``cell`` are height and width.
    """

    def __init__(self, shape: tuple[int, ...], labels: Labels, across: int | None, style: FigureStyle) -> None:
        count, rows, columns = shape
        size = style.size
        longest_row = max(measure(labels.rows or (), size).values(), default=0.0)
        at_side = longest_row + 0.1 + (LINE * size / 72 + 0.05) * bool(labels.row_axis or labels.lines)
        in_cell = 0.0 if labels.texts is None else 0.1 + max(measure(labels.in_cells, size).values(), default=0.0)
        bar_below = style.width is not None and (style.width <= canvas.COLUMN or count > 1)
        if style.width is None:
            height = min(_CELL, (_WIDEST / (across or min(count, 2)) - _GAP) / max(rows, columns))
            width = max(height, in_cell)
            upright = max(measure(labels.columns or (), size).values(), default=0.0) + GAP
            if height < upright <= _WIDEST_CELL and height == _CELL and columns * upright * (across or 1) <= _PRINTED:
                width = max(width, upright)  # a little wider, and no label must lean
            across = across or _filled(count, max(1, int(_WIDEST // (columns * width + _GAP))))
        else:
            room = style.width - at_side - (0.0 if bar_below else _BAR_ROOM)
            least = columns * max(_NARROWEST_CELL, in_cell) + _NARROW_GAP
            across = across or _filled(count, max(1, int(room // least)))
            width = max(min((room / across - _NARROW_GAP) / columns, _WIDEST_CELL), 1e-3)
            height = min(width, _CELL) if rows <= 30 else min(width, _WIDEST / rows)
        down = -(-count // across)
        self.rows = measured_text.beside(labels.rows or (), height, size)
        self.columns = measured_text.below(labels.columns or (), width, size)
        if labels.all_or_none:
            self.rows, self.columns = (one if one.step == 1 else _none(one) for one in (self.rows, self.columns))
        self.titles = [wrapped(title, columns * width + _GAP, size) for title in labels.panels or ()]
        line = LINE * size / 72
        above = line * max((title.count("\n") + 1 for title in self.titles if title), default=0)
        bar_below = bar_below or (style.width is None and down * rows * height < 1.2)
        natural = across * (columns * width + _GAP) + at_side + (0.2 if bar_below else _BAR_ROOM)
        tall = down * (rows * height + above + 0.15) + self.columns.room + 2 * line + 2 * line * bool(labels.title)
        self.figure = style.width or natural, tall + (0.7 if bar_below else 0.2)
        self.panel = rows * height, columns * width
        self.across, self.down, self.cell, self.bar_below = across, down, (height, width), bar_below


def _filled(count: int, fitting: int) -> int:
    """As few lines of panels as fit, filled evenly."""
    return -(-count // -(-count // fitting))


def _none(fitted: Fitted) -> Fitted:
    return replace(fitted, labels=(), step=1, room=0.0)


def _as_panels(weights: ArrayLike) -> NDArray[np.float64]:
    stack = np.asarray(weights, dtype=np.float64)
    if stack.ndim == 3 and stack.shape[1:] == (1, 1):
        stack = stack.reshape(1, 1, -1)
    if stack.ndim not in (1, 2, 3) or stack.size == 0:
        raise ShapeError(
            f"heatmap: weights has shape {stack.shape}, expected (row, column), (panel, row, column) or (column,), "
            "none of them 0. Take one entry of the batch, for example weights.dense()[0].detach()."
        )
    if not np.isfinite(stack).all():
        raise DataError("heatmap: weights holds NaN or an infinity, expected finite numbers.")
    return stack.reshape((1,) * (3 - stack.ndim) + stack.shape)


def draw(
    weights: ArrayLike,
    labels: Labels,
    style: FigureStyle,
    *,
    across: int | None = None,
    right_to_left: bool = False,
) -> canvas.Figure:
    """The figure that `heatmap` saves; within `canvas.drawing`, with the style that it gives.

    With ``right_to_left`` the first column stands at the right, as the first word of an Arabic sentence does.
    """
    stack = _as_panels(weights)
    labels.check(stack.shape)
    labels = labels.formatted(style)
    layout = _Layout(stack.shape, labels, across, style)
    figure = canvas.new_figure(*layout.figure, "compressed")
    grid = figure.subplots(layout.down, layout.across, squeeze=False)
    scales = labels.scales(len(stack))
    shown: dict[str, list[AxesImage]] = {}
    for number, axes in enumerate(grid.flat):
        if number >= len(stack):
            axes.set_axis_off()
            continue
        of_scale = stack[[name == scales[number] for name in scales]]
        lowest, highest = min(of_scale.min(), 0.0), of_scale.max() if of_scale.max() > 0 else 1.0
        norm = style.norm(lowest, highest)
        image = canvas.draw_map(axes, stack[number], norm, aspect=layout.cell[0] / layout.cell[1])
        shown.setdefault(scales[number], []).append(image)
        axes.spines[:].set(visible=True, color="#c8c8c8", linewidth=0.5)  # white cells need an edge
        at_the_side, at_the_bottom = number % layout.across == 0, number + layout.across >= len(stack)
        if at_the_side:
            axes.set_ylabel(labels.row_axis if labels.lines is None else labels.lines[number // layout.across])
        (layout.rows if at_the_side else _none(layout.rows)).write(axes.yaxis)
        if at_the_bottom:
            axes.set_xlabel(labels.column_axis)
        (layout.columns if at_the_bottom else _none(layout.columns)).write(axes.xaxis)
        if right_to_left:
            axes.invert_xaxis()
        if labels.panels is not None:
            axes.set_title(layout.titles[number])
        if layout.cell[0] > 0.2:
            _rule(axes, *stack.shape[1:])
        if labels.texts is not None:
            _write(axes, image, labels.texts)
    for name, images in shown.items():
        of_scale = stack[[one == name for one in scales]]
        _add_bar(
            figure,
            images,
            canvas.scale_label(name, labels.hatched, of_scale),
            layout,
            style.size,
            alone=len(shown) == 1,
        )
    if labels.title:
        figure.suptitle(labels.title, fontsize=style.size + 2)
    return figure


def _add_bar(
    figure: canvas.Figure, images: Sequence[AxesImage], label: str, layout: _Layout, size: float, *, alone: bool
) -> None:
    """The bar of colors of some panels: at the side, or below where the side has no room."""
    maps = [image.axes for image in images]
    lines = -(-len(maps) // layout.across)
    height, width = lines * layout.panel[0], min(layout.across, len(maps)) * layout.panel[1]
    below = layout.bar_below and alone
    bar = figure.colorbar(
        images[0],
        ax=figure.axes if alone else maps,
        location="bottom" if below else "right",
        fraction=_BAR / (_BAR + (height if below else width)),
        aspect=max((width if below else height) / _BAR, 3.0),
    )
    bar.set_label(label if below else wrapped(label, max(height + 0.3, 1.4), size))
    bar.outline.set(edgecolor="#c8c8c8", linewidth=0.5)


def _rule(axes: canvas.Axes, height: int, width: int) -> None:
    """Faint lines between the cells."""
    axes.set_xticks(np.arange(0.5, width - 1), minor=True)
    axes.set_yticks(np.arange(0.5, height - 1), minor=True)
    axes.grid(which="minor", color="#dedede", linewidth=0.5)
    axes.tick_params(which="minor", length=0)


def _write(axes: canvas.Axes, image: AxesImage, texts: Sequence[Sequence[str]]) -> None:
    """A text in each cell, dark on light colors and light on dark ones."""
    shares = np.ma.filled(image.norm(np.ma.asarray(image.get_array())), 0.0)
    for row, line in enumerate(texts):
        for column, text in enumerate(line):
            axes.text(column, row, text, ha="center", va="center", fontsize=8, color=ink(float(shares[row, column])))
