"""Heat maps of weights, fit to print: one panel, or small multiples that share one scale of colours.

Colours are those of viridis, which stay in order for colour-blind eyes and in grey print. A weight of exactly 0
(masked, outside of a window, cut off by a sparse normaliser) is light grey, so that it is not taken for a small one.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import east_asian_width

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foci.errors import ConfigError, DataError, MissingPackageError, ShapeError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

FORMATS = ("png", "svg", "pdf")

_ZERO_COLOUR = "#e6e6e6"
_CELL = 0.34
"""Height of a cell in inches; wider ones are made for long texts, smaller ones for long sequences."""
_WIDEST = 10.0
"""How much room all panels together may take, in inches."""
_GAP = 0.4
"""Between two panels."""
_BAR = 0.15
"""How thick the bar of colours is."""
_LETTER = 0.075
"""How wide a letter is."""
_LONGEST = 28
"""Letters of a label; longer ones are cut."""
_MOST_LABELS = 64
_STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9,
    "text.parse_math": False,  # a label with two $ is no formula
    "pdf.fonttype": 42,
    "svg.hashsalt": "foci",
}


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

    Arguments:
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
    stack = _as_panels(weights)
    labels = _Labels(rows, columns, panels, texts, row_axis, column_axis, title, scale)
    labels.check(stack.shape)
    path = Path(path)
    if path.suffix[1:].lower() not in FORMATS:
        raise ConfigError(f"heatmap: path is {path.name!r}, expected a name that ends in .{', .'.join(FORMATS)}.")
    try:
        import matplotlib
    except ImportError as error:
        raise MissingPackageError("drawing needs matplotlib. Install it with: pip install 'foci[viz]'") from error
    from foci.viz.fonts import families

    with matplotlib.rc_context(_STYLE | {"font.family": families(labels.letters)}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # `families` has said so, with a remedy
        _save(_draw(stack, labels, _Layout.of(stack.shape, labels, across)), path)
    return path


@dataclass(frozen=True)
class _Labels:
    """All that is written in a picture."""

    rows: Sequence[str] | None
    columns: Sequence[str] | None
    panels: Sequence[str] | None
    texts: Sequence[Sequence[str]] | None
    row_axis: str
    column_axis: str
    title: str
    scale: str

    def check(self, shape: tuple[int, ...]) -> None:
        for name, size in zip(("panels", "rows", "columns"), shape):
            labels = getattr(self, name)
            if labels is not None and len(labels) != size:
                raise ShapeError(f"heatmap: {name} has {len(labels)} labels, expected {size}, as weights has {name}.")
        if self.texts is not None and [len(line) for line in self.texts] != [shape[2]] * shape[1]:
            raise ShapeError(f"heatmap: texts has not one text a cell, expected {shape[1]} × {shape[2]}.")

    @property
    def in_cells(self) -> list[str]:
        return [text for line in self.texts or () for text in line]

    @property
    def letters(self) -> str:
        labels = [*(self.rows or ()), *(self.columns or ()), *(self.panels or ()), *self.in_cells]
        return "".join([*labels, self.row_axis, self.column_axis, self.title, self.scale])


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
    def of(cls, shape: tuple[int, ...], labels: _Labels, across: int | None) -> _Layout:
        count, rows, columns = shape
        height = min(_CELL, (_WIDEST / (across or min(count, 2)) - _GAP) / max(rows, columns))
        width = height if labels.texts is None else max(height, 0.1 + _LETTER * _longest(labels.in_cells))
        panel_height, panel_width = rows * height, columns * width
        if across is None:
            fitting = max(1, int(_WIDEST // (panel_width + _GAP)))
            across = -(-count // -(-count // fitting))  # as few lines as fit, filled evenly
        down = -(-count // across)
        longest_row, longest_column = _longest(labels.rows or ()), _longest(labels.columns or ())
        tilted = longest_column * _LETTER > width
        figure = (
            across * (panel_width + _GAP) + _LETTER * longest_row + 1.5,
            down * (panel_height + _GAP + 0.4 + _LETTER * longest_column * tilted) + 0.5,
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


def _draw(stack: NDArray[np.float64], labels: _Labels, layout: _Layout) -> Figure:
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=layout.figure, layout="compressed")
    grid = figure.subplots(layout.down, layout.across, squeeze=False)
    lowest, highest = min(stack.min(), 0.0), stack.max() if stack.max() > 0 else 1.0
    for number, axes in enumerate(grid.flat):
        if number >= len(stack):
            axes.set_axis_off()
            continue
        image = axes.imshow(
            np.ma.masked_equal(stack[number], 0.0),
            cmap=colormaps["viridis"].with_extremes(bad=_ZERO_COLOUR),
            vmin=lowest,
            vmax=highest,
            aspect=layout.cell_height / layout.cell_width,
            interpolation="nearest",
        )
        axes.spines[:].set_visible(False)
        if number % layout.across == 0:
            axes.set_ylabel(labels.row_axis)
        _label(axes.yaxis, labels.rows if number % layout.across == 0 else None)
        at_the_bottom = number + layout.across >= len(stack)
        if at_the_bottom:
            axes.set_xlabel(labels.column_axis)
        _label(axes.xaxis, labels.columns if at_the_bottom else None, tilted=layout.tilted)
        if labels.panels is not None:
            axes.set_title(labels.panels[number])
        if layout.cell_height > 0.2:
            _rule(axes, *stack.shape[1:])
        if labels.texts is not None:
            _write(axes, image, labels.texts)
    _add_bar(figure, image, labels.scale + ("  (grey: exactly 0)" if (stack == 0).any() else ""), layout)
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


def _label(axis: Any, labels: Sequence[str] | None, *, tilted: bool = False) -> None:
    """Write the labels, or some of many; none without labels."""
    axis.set_tick_params(length=0)
    labels = [label if len(label) <= _LONGEST else label[: _LONGEST - 1] + "…" for label in labels or ()]
    step = max(1, -(-len(labels) // _MOST_LABELS))
    turned = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if tilted else {}
    axis.set_ticks(range(0, len(labels), step), labels[::step], **turned)


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


def _longest(labels: Iterable[str]) -> int:
    """The width of the widest label as it will be shown, in Latin letters; a Chinese character takes two."""
    widths = (sum(1 + (east_asian_width(letter) in "WF") for letter in label[:_LONGEST]) for label in labels)
    return max(widths, default=0)


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = path.suffix[1:].lower()
    undated: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        figure.savefig(unfinished, format=kind, dpi=150, bbox_inches="tight", metadata=undated.get(kind))
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
