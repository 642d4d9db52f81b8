"""Heat maps of weights, fit to print: one panel, or small multiples that share one scale of colours.

Colours are those of viridis, which stay in order for colour-blind eyes and in grey print. A weight of exactly 0
(masked, outside of a window, cut off by a sparse normaliser) is light grey, so that it is not taken for a small one.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
_LONGEST_LABEL = 28
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
    _check_labels(stack, rows, columns, panels, texts)
    path = Path(path)
    if path.suffix[1:].lower() not in FORMATS:
        raise ConfigError(f"heatmap: path is {path.name!r}, expected a name that ends in .{', .'.join(FORMATS)}.")
    try:
        import matplotlib
    except ImportError as error:
        raise MissingPackageError("drawing needs matplotlib. Install it with: pip install 'foci[viz]'") from error
    from foci.viz.fonts import families

    labels = [*(rows or ()), *(columns or ()), *(panels or ()), *(text for line in texts or () for text in line)]
    everything = "".join([*labels, row_axis, column_axis, title, scale])
    with matplotlib.rc_context(_STYLE | {"font.family": families(everything)}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # `families` has said so, with a remedy
        figure = _draw(stack, rows, columns, panels, texts, (row_axis, column_axis), title, scale, across)
        _save(figure, path)
    return path


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


def _check_labels(
    stack: NDArray[np.float64],
    rows: Sequence[str] | None,
    columns: Sequence[str] | None,
    panels: Sequence[str] | None,
    texts: Sequence[Sequence[str]] | None,
) -> None:
    for name, labels, size in zip(("panels", "rows", "columns"), (panels, rows, columns), stack.shape):
        if labels is not None and len(labels) != size:
            raise ShapeError(f"heatmap: {name} has {len(labels)} labels, expected {size}, as weights has {name}.")
    if texts is not None and [len(line) for line in texts] != [stack.shape[2]] * stack.shape[1]:
        raise ShapeError(f"heatmap: texts has not one text a cell, expected {stack.shape[1]} × {stack.shape[2]}.")


def _draw(
    stack: NDArray[np.float64],
    rows: Sequence[str] | None,
    columns: Sequence[str] | None,
    panels: Sequence[str] | None,
    texts: Sequence[Sequence[str]] | None,
    axis_names: tuple[str, str],
    title: str,
    scale: str,
    across: int | None,
) -> Figure:
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    count, height, width = stack.shape
    side_by_side = across or min(count, 2)
    cell = min(_CELL, (_WIDEST / side_by_side - _GAP) / max(height, width))
    cell_width = cell if texts is None else max(cell, 0.1 + 0.075 * _longest(text for line in texts for text in line))
    rows, columns = _shortened(rows), _shortened(columns)
    tilted = _longest(columns or ()) * 0.075 > cell_width
    fitting = max(1, int(_WIDEST // (width * cell_width + _GAP)))
    across = across or -(-count // -(-count // fitting))  # as few lines as fit, filled evenly
    down = -(-count // across)
    label_width, label_height = 0.3 + 0.08 * _longest(rows or ()), 0.4 + 0.06 * _longest(columns or ()) * tilted
    figure = Figure(
        figsize=(
            across * (width * cell_width + _GAP) + label_width + 1.2,
            down * (height * cell + 0.4 + label_height) + 0.5,
        ),
        layout="compressed",
    )
    colours = colormaps["viridis"].with_extremes(bad=_ZERO_COLOUR)
    highest = stack.max() if stack.max() > 0 else 1.0
    grid = figure.subplots(down, across, squeeze=False)
    for number, axes in enumerate(grid.flat):
        if number >= count:
            axes.set_axis_off()
            continue
        image = axes.imshow(
            np.ma.masked_equal(stack[number], 0.0),
            cmap=colours,
            vmin=min(stack.min(), 0.0),
            vmax=highest,
            aspect=cell / cell_width,
            interpolation="nearest",
        )
        if panels is not None:
            axes.set_title(panels[number])
        leftmost, lowest = number % across == 0, number + across >= count
        _label(axes.yaxis, rows if leftmost else None, height)
        _label(axes.xaxis, columns if lowest else None, width, tilted=tilted)
        axes.set_ylabel(axis_names[0] if leftmost else "")
        axes.set_xlabel(axis_names[1] if lowest else "")
        if cell > 0.2:
            _rule(axes, height, width)
        axes.spines[:].set_visible(False)
        if texts is not None:
            _write(axes, image, texts)
    grey = "  (grey: exactly 0)" if (stack == 0).any() else ""
    flat = down * height * cell < 1.2  # too low for a bar at its side
    length, depth = (across * width * cell_width, down * height * cell)[:: 1 if flat else -1]
    bar = figure.colorbar(
        image,
        ax=grid,
        location="bottom" if flat else "right",
        fraction=_BAR / (depth + _BAR),
        aspect=length / _BAR,
    )
    bar.set_label(scale + grey)
    bar.outline.set_visible(False)
    if title:
        figure.suptitle(title, fontsize=10, fontweight="bold")
    return figure


def _label(axis: Any, labels: Sequence[str] | None, count: int, *, tilted: bool = False) -> None:
    axis.set_tick_params(length=0)
    if labels is None:
        axis.set_ticks([])
        return
    step = -(-count // _MOST_LABELS)
    turned = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if tilted else {}
    axis.set_ticks(range(0, count, step), labels[::step], **turned)


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


def _shortened(labels: Sequence[str] | None) -> list[str] | None:
    if labels is None:
        return None
    return [label if len(label) <= _LONGEST_LABEL else label[: _LONGEST_LABEL - 1] + "…" for label in labels]


def _longest(labels: Iterable[str]) -> int:
    return max(map(len, labels), default=0)


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
