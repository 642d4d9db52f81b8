"""Heat maps of weights, fit to print: one panel, or small multiples that share one scale of colours."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foci.errors import DataError, ShapeError
from foci.viz import canvas
from foci.viz.canvas import LETTER
from foci.viz.labels import widest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

_CELL = 0.34
"""Height of a cell in inches; wider ones are made for long texts, smaller ones for long sequences."""
_WIDEST = 10.0
"""How much room all panels together may take, in inches."""
_GAP = 0.4
"""Between two panels."""
_BAR = 0.15
"""How thick the bar of colours is."""


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
    scale: str = "weight",
    across: int | None = None,
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
        scale: what the colours mean.
        across: how many panels stand side by side; as many as fit unless given.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> heatmap([[0.9, 0.1], [0.0, 1.0]], f"{folder}/weights.png", columns=["the", "cat"]).name
        'weights.png'
    """
    path = canvas.check_path("heatmap", path)
    labels = Labels(rows, columns, panels, texts, row_axis, column_axis, title, scale)
    with canvas.drawing(labels.all) as spell:
        canvas.save(draw(weights, labels.spelt(spell), across=across), path)
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
    scale: str = "weight"
    lines: Sequence[str] | None = None
    """A name for each line of panels, in the place of the row axis's."""
    grey: str = "exactly 0"
    """What a weight of 0 means."""

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise unless there is one label for each panel, row, column and cell."""
        for name, size in zip(("panels", "rows", "columns"), shape):
            labels = getattr(self, name)
            if labels is not None and len(labels) != size:
                raise ShapeError(f"heatmap: {name} has {len(labels)} labels, expected {size}, as weights has {name}.")
        if self.texts is not None and [len(line) for line in self.texts] != [shape[2]] * shape[1]:
            raise ShapeError(f"heatmap: texts has not one text a cell, expected {shape[1]} × {shape[2]}.")

    @property
    def in_cells(self) -> list[str]:
        """The texts of all cells."""
        return [text for line in self.texts or () for text in line]

    @property
    def all(self) -> list[str]:
        """Every text there is."""
        named = [self.row_axis, self.column_axis, self.title, self.scale]
        return [*(self.rows or ()), *(self.columns or ()), *(self.panels or ()), *self.in_cells, *named]

    def spelt(self, spell: canvas.Spelling) -> Labels:
        """The labels as they are drawn."""
        return replace(
            self,
            rows=None if self.rows is None else [spell(label) for label in self.rows],
            columns=None if self.columns is None else [spell(label) for label in self.columns],
            panels=None if self.panels is None else [spell(label) for label in self.panels],
            texts=None if self.texts is None else [[spell(text) for text in line] for line in self.texts],
            row_axis=spell(self.row_axis),
            column_axis=spell(self.column_axis, canvas.LONGEST_TITLE),
            title=spell(self.title, canvas.LONGEST_TITLE),
        )


@dataclass(frozen=True)
class _Layout:
    """How many panels stand side by side and one below the other, and their measures in inches."""

    across: int
    down: int
    cell_height: float
    cell_width: float
    panel_height: float
    panel_width: float
    figure: tuple[float, float]
    tilted: bool
    """Whether the labels of the columns must be turned to have room."""

    @classmethod
    def of(cls, shape: tuple[int, ...], labels: Labels, across: int | None) -> _Layout:
        count, rows, columns = shape
        height = min(_CELL, (_WIDEST / (across or min(count, 2)) - _GAP) / max(rows, columns))
        width = height if labels.texts is None else max(height, 0.1 + LETTER * widest(labels.in_cells))
        panel_height, panel_width = rows * height, columns * width
        if across is None:
            fitting = max(1, int(_WIDEST // (panel_width + _GAP)))
            across = -(-count // -(-count // fitting))  # as few lines as fit, filled evenly
        down = -(-count // across)
        longest_row, longest_column = widest(labels.rows or ()), widest(labels.columns or ())
        tilted = longest_column * LETTER > width
        figure = (
            across * (panel_width + _GAP) + LETTER * longest_row + 1.5,
            down * (panel_height + _GAP + 0.4 + LETTER * longest_column * tilted) + 0.5,
        )
        return cls(across, down, height, width, panel_height, panel_width, figure, tilted)


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


def draw(weights: ArrayLike, labels: Labels, *, across: int | None = None, right_to_left: bool = False) -> Figure:
    """The figure that `heatmap` saves; within `canvas.drawing`, whose spelling the labels have gone through.

    With ``right_to_left`` the first column stands at the right, as the first word of an Arabic sentence does.
    """
    from matplotlib.figure import Figure

    stack = _as_panels(weights)
    labels.check(stack.shape)
    layout = _Layout.of(stack.shape, labels, across)
    figure = Figure(figsize=layout.figure, layout="compressed")
    grid = figure.subplots(layout.down, layout.across, squeeze=False)
    lowest, highest = min(stack.min(), 0.0), stack.max() if stack.max() > 0 else 1.0
    for number, axes in enumerate(grid.flat):
        if number >= len(stack):
            axes.set_axis_off()
            continue
        image = axes.imshow(
            canvas.zeros_masked(stack[number]),
            cmap=canvas.colours(),
            vmin=lowest,
            vmax=highest,
            aspect=layout.cell_height / layout.cell_width,
            interpolation="nearest",
        )
        axes.spines[:].set_visible(False)
        at_the_side, at_the_bottom = number % layout.across == 0, number + layout.across >= len(stack)
        if at_the_side:
            axes.set_ylabel(labels.row_axis if labels.lines is None else labels.lines[number // layout.across])
        canvas.label_axis(axes.yaxis, list(labels.rows or ()) if at_the_side else [], layout.cell_height)
        if at_the_bottom:
            axes.set_xlabel(labels.column_axis)
        columns = list(labels.columns or ()) if at_the_bottom else []
        canvas.label_axis(axes.xaxis, columns, layout.cell_width, tilted=layout.tilted)
        if right_to_left:
            axes.invert_xaxis()
        if labels.panels is not None:
            axes.set_title(labels.panels[number])
        if layout.cell_height > 0.2:
            _rule(axes, *stack.shape[1:])
        if labels.texts is not None:
            _write(axes, image, labels.texts)
    _add_bar(figure, image, canvas.scale_label(labels.scale, labels.grey, stack), layout)
    if labels.title:
        figure.suptitle(labels.title, fontsize=11)
    return figure


def _add_bar(figure: Figure, image: AxesImage, label: str, layout: _Layout) -> None:
    """The bar of colours, at the side, or below panels that are too low for that."""
    height, width = layout.down * layout.panel_height, layout.across * layout.panel_width
    below = height < 1.2
    bar = figure.colorbar(
        image,
        ax=figure.axes,
        location="bottom" if below else "right",
        fraction=_BAR / (_BAR + (height if below else width)),
        aspect=(width if below else height) / _BAR,
    )
    bar.set_label(label)
    bar.outline.set_visible(False)


def _rule(axes: Axes, height: int, width: int) -> None:
    """White lines between the cells."""
    axes.set_xticks(np.arange(0.5, width - 1), minor=True)
    axes.set_yticks(np.arange(0.5, height - 1), minor=True)
    axes.grid(which="minor", color="white", linewidth=1.0)
    axes.tick_params(which="minor", length=0)


def _write(axes: Axes, image: AxesImage, texts: Sequence[Sequence[str]]) -> None:
    """A text in each cell, dark on light colours and light on dark ones."""
    brightness = image.to_rgba(np.ma.asarray(image.get_array()))[..., :3] @ np.array([0.299, 0.587, 0.114])
    for row, line in enumerate(texts):
        for column, text in enumerate(line):
            colour = "white" if brightness[row, column] < 0.5 else "black"
            axes.text(column, row, text, ha="center", va="center", fontsize=8, color=colour)
